"""intarsia show"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from intarsia.cli.options import JSON, LEVEL, MODEL, TARGET, THREADS, dims
from intarsia.cli.progress import working
from intarsia.support.errors import InputError

if TYPE_CHECKING:
    from intarsia.infer import Typing
    from intarsia.ir import IRModule
    from intarsia.kernel.target import Target
    from intarsia.runtime.tensor import Signature
    from intarsia.vm.isa import KernelRef, Program


class Stage(StrEnum):
    """The stages in the order in which a model goes through them."""

    relay = "relay"
    typed = "typed"
    fused = "fused"
    kernel = "kernel"
    llvm = "llvm"
    asm = "asm"
    memory = "memory"
    bytecode = "bytecode"


def show(
    model: Path = MODEL,
    stage: Stage = typer.Option(Stage.relay, "--stage", "-s", help="What to show."),
    stop_after: str = typer.Option(
        None,
        "--pass",
        metavar="NAME",
        help="Relay after this pass of the optimiser (--stage relay, or typed).",
    ),
    kernel: str = typer.Option(
        None,
        "--kernel",
        "-k",
        metavar="NAME",
        help="Only kernels with this in their name, or one by number (k3).",
    ),
    dim: list[str] = typer.Option(
        [],
        "--dim",
        help="--stage memory in numbers: size of a symbol, NAME=NUMBER; repeatable.",
        show_default=False,
    ),
    threads: int = THREADS,
    target: str = TARGET,
    level: int = LEVEL,
    as_json: bool = JSON,
) -> None:
    """Print what the compiler makes of a model, at any stage.

    \b
    relay     the model as imported               kernel    the loops of each kernel
    typed     with types in comments              llvm, asm each kernel as LLVM IR, as assembly
    fused     after the optimiser                 memory    where and when each tensor lives
                                                  bytecode  the program of the virtual machine

    An artifact can show memory and bytecode.

    Example: intarsia show model.onnx --stage kernel --kernel softmax
    """
    if model.suffix == ".intarsia":
        _show_artifact(model, stage, dims(dim), as_json)
        return
    import intarsia.api as api

    with working(f"reading {model.name}"):
        module = api.read(model)
    if stop_after or stage in (Stage.relay, Stage.typed, Stage.fused):
        _show_relay(module, stage, stop_after, level, as_json)
        return
    from intarsia.codegen.llvm.host import target_from_name

    lowered = _lower(model.name, module, target_from_name(target or "host", api.thread_count(threads)), level)
    match stage:
        case Stage.memory | Stage.bytecode:
            _show_program(lowered.program, lowered.inputs, stage, dims(dim), as_json)
        case _:
            _show_kernels(lowered, stage, kernel, as_json)


# ---- relay --------------------------------------------------------------------------------------------
def _show_relay(module: IRModule, stage: Stage, stop_after: str | None, level: int, as_json: bool) -> None:
    from intarsia.infer import infer
    from intarsia.ir.text import print_module
    from intarsia.transform import optimize, pipeline

    if stop_after is not None or stage is Stage.fused:
        names = [p.name for p in pipeline(level)]
        if stop_after is not None and stop_after not in names:
            raise InputError(
                "CLI-005",
                f"level {level} has no pass '{stop_after}'",
                remedy=f"one of: {', '.join(dict.fromkeys(names))}",
            )
        with working("optimising"):
            module = optimize(module, level=level, stop_after=stop_after)
    typing = infer(module) if stage is Stage.typed else None
    text = print_module(module, typing=typing)
    print(
        json.dumps({"stage": stage.value, "pass": stop_after, "text": text}) if as_json else text,
        end="\n" if as_json else "",
    )


# ---- kernels ------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Lowered:
    """texts: LLVM IR by symbol: every kernel, then 'program', 'call' and 'pool'."""

    program: Program
    inputs: tuple[Signature, ...]
    target: Target
    texts: dict[str, str]


def _lower(name: str, module: IRModule, target: Target, level: int) -> Lowered:
    from intarsia.api import signatures
    from intarsia.infer import infer
    from intarsia.transform import optimize
    from intarsia.vm.build import module_texts
    from intarsia.vm.compile import compile_module

    with working(name) as tell:
        module = optimize(module, level=level, observe=lambda p, _: tell(f"optimising: {p}"))
        typing: Typing = infer(module)
        inputs, _ = signatures(module, typing)
        tell("scheduling kernels")
        program = compile_module(module, target, typing)
        refs: list[KernelRef] = []
        texts = dict(module_texts(program, target, refs))
    return Lowered(replace(program, kernels=tuple(refs)), tuple(inputs), target, texts)


def _show_kernels(lowered: Lowered, stage: Stage, wanted: str | None, as_json: bool) -> None:
    found: list[dict[str, Any]] = []
    for numbers, symbol, text in _kernel_texts(lowered, stage, wanted):
        if as_json:
            found.append({"kernels": numbers, "symbol": symbol, "text": text})
            continue
        mark = "//" if stage is Stage.kernel else "#" if stage is Stage.asm else ";"
        print(f"{mark} {', '.join(f'k{n}' for n in numbers) or 'module'} {symbol}")
        print(text.rstrip("\n") + "\n", flush=True)
    if as_json:
        print(json.dumps({"stage": stage.value, "kernels": found}))


def _kernel_texts(lowered: Lowered, stage: Stage, wanted: str | None) -> Iterator[tuple[list[int], str, str]]:
    """(numbers in the bytecode, symbol, text) of each kernel wanted. InputError CLI-006 if there is none."""
    from intarsia.codegen.llvm.jit import assembly
    from intarsia.kernel.printer import print_kernel

    refs = lowered.program.kernels
    numbers: dict[str, list[int]] = {symbol: [] for symbol in lowered.texts}
    for k, ref in enumerate(refs):
        numbers[ref.symbol].append(k)
    chosen = [
        s for s in numbers if _is_wanted(s, numbers[s], wanted) and (numbers[s] or stage is not Stage.kernel)
    ]
    if not chosen:
        names = list(numbers)
        shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
        raise InputError("CLI-006", f"no kernel is called '{wanted}'", remedy=f"one of: {shown}")
    for symbol in chosen:
        if stage is Stage.kernel:
            loops = refs[numbers[symbol][0]].kernel
            assert loops is not None
            yield numbers[symbol], symbol, print_kernel(loops)
        else:
            text = lowered.texts[symbol]
            yield numbers[symbol], symbol, text if stage is Stage.llvm else assembly(text, lowered.target)


def _is_wanted(symbol: str, numbers: list[int], wanted: str | None) -> bool:
    """Without a wish: every kernel, but not the program's own modules, which are asked for by name."""
    if wanted is None:
        return bool(numbers)
    return wanted in (f"k{n}" for n in numbers) or wanted in symbol


# ---- the program --------------------------------------------------------------------------------------
def _show_artifact(path: Path, stage: Stage, sizes: dict[str, int], as_json: bool) -> None:
    from intarsia.vm.executable import load

    if stage not in (Stage.memory, Stage.bytecode):
        raise InputError(
            "CLI-004",
            f"an artifact holds machine code, not the stage '{stage.value}'",
            remedy="show the model it was compiled from, or --stage memory or bytecode",
        )
    exe = load(path, None)
    _show_program(exe.program, exe.inputs, stage, sizes, as_json)


def _show_program(
    program: Program, inputs: tuple[Signature, ...], stage: Stage, sizes: dict[str, int], as_json: bool
) -> None:
    from intarsia.cli import memory_map
    from intarsia.vm import isa

    if stage is Stage.bytecode:
        print(json.dumps(_bytecode(program)) if as_json else isa.show(program), end="\n" if as_json else "")
        return
    maps = memory_map.of_program(program, inputs)
    known = frozenset().union(*(m.symbols for m in maps))
    if unknown := sorted(sizes.keys() - known):
        raise InputError(
            "CLI-007",
            f"no size depends on {', '.join(unknown)}",
            remedy=f"one of: {', '.join(sorted(known)) or '(there are none)'}",
        )
    print(
        json.dumps(memory_map.as_json(program, maps, sizes))
        if as_json
        else memory_map.draw(program, maps, sizes)
    )


def _bytecode(program: Program) -> dict[str, Any]:
    from intarsia.vm import isa

    return {
        "stage": "bytecode",
        "functions": [
            {
                "name": f.name,
                "params": list(map(str, f.params)),
                "results": list(map(str, f.results)),
                "code": [isa.text(i, program) for i in f.code],
            }
            for f in program.functions
        ],
        "kernels": [
            {
                "symbol": k.symbol,
                "inputs": list(map(str, k.inputs)),
                "outputs": list(map(str, k.outputs)),
                "workspaces": list(map(str, k.workspaces)),
                "symbols": k.symbols,
            }
            for k in program.kernels
        ],
        "constants": [{"dtype": str(c.dtype), "shape": list(c.shape)} for c in program.constants],
        "messages": [{"code": m.code, "text": m.text, "where": m.where} for m in program.messages],
    }

"""The public functions: `compile` a model, `load` a compiled one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from intarsia.dim import Dim
from intarsia.infer import Typing, infer
from intarsia.infer.typing import tensor_leaves
from intarsia.ir import IRModule, TensorType, Type
from intarsia.kernel.target import Target
from intarsia.runtime.tensor import Signature
from intarsia.support.errors import ModelError, UnsupportedError
from intarsia.vm.executable import Executable

if TYPE_CHECKING:
    import onnx

Model = Union[str, os.PathLike[str], bytes, IRModule, "onnx.ModelProto"]


_TEXT = ("def ", "fn ", "type ", "where ", "inputs(", "outputs(")  # how Relay text of one line begins


def compile(
    model: Model,
    *,
    threads: int | None = None,
    target: Target | str | None = None,
    level: int = 3,
    tier: str = "native",
    progress: Callable[[str], None] | None = None,
) -> Executable:
    """Compile a model into something that can be called.

    model:    path or bytes of an ONNX file, an onnx.ModelProto, an IRModule, Relay text or its path (.relay)
    threads:  that a call may use; by default INTARSIA_NUM_THREADS or the cores this process may run on
    target:   the processor to compile for, a Target or a name (x86-64-v3, aarch64, …); by default the host
    level:    0 … 3, how much is optimised; never changes results beyond rounding
    tier:     'native', or 'interpreter': the same bytecode in Python, slow, to look into
    progress: told what is being done, a few words at a time, from any thread

    Raises ModelError (not a model), UnsupportedError (lists all it lacks), TypeCheckError.
    """
    from intarsia.transform import optimize
    from intarsia.vm.build import build
    from intarsia.vm.compile import compile_module
    from intarsia.vm.verify import verify

    start = time.perf_counter()
    tell = progress or (lambda _: None)
    if tier not in ("native", "interpreter"):
        raise UnsupportedError(
            "API-001", f"there is no tier {tier!r}", remedy="use 'native' or 'interpreter'"
        )
    count = thread_count(threads)
    machine = _target(target, count)
    tell("reading")
    module = read(model)
    module = optimize(module, level=level, observe=lambda name, _: tell(f"optimising: {name}"))
    typing = infer(module)
    inputs, outputs = signatures(module, typing)
    tell("scheduling kernels")
    program = compile_module(module, machine, typing)
    if os.environ.get("INTARSIA_VERIFY") == "1":
        verify(program)
    objects: list[bytes] = []
    if tier == "native":
        program, objects = build(program, machine, progress=lambda name: tell(f"generating code: {name}"))
    return Executable(
        program,
        inputs,
        outputs,
        machine,
        objects,
        threads=count,
        native=tier == "native",
        compile_seconds=time.perf_counter() - start,
    )


def _target(target: Target | str | None, cores: int) -> Target:
    from intarsia.codegen.llvm.host import host_target, target_from_name

    if isinstance(target, Target):
        return replace(target, cores=cores)
    return host_target(cores) if target is None else target_from_name(target, cores)


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Executable:
    """A compiled model from a file that `Executable.save` wrote. Raises ArtifactError."""
    from intarsia.codegen.llvm.host import host_target
    from intarsia.vm.executable import load as load_executable

    count = thread_count(threads)
    return load_executable(path, host_target(count), threads=count)


def thread_count(threads: int | None) -> int:
    """The argument, or the default. UnsupportedError API-002 unless positive."""
    count = default_threads() if threads is None else threads
    if count < 1:
        raise UnsupportedError("API-002", f"threads is {count}, not a positive number")
    return count


def default_threads() -> int:
    """INTARSIA_NUM_THREADS, or else the cores this process may run on."""
    text = os.environ.get("INTARSIA_NUM_THREADS", "")
    if not text:
        from intarsia.codegen.llvm.host import available_cores

        return available_cores()
    if not (text.isdigit() and int(text) > 0):
        raise UnsupportedError("API-002", f"INTARSIA_NUM_THREADS is {text!r}, not a positive number")
    return int(text)


def read(model: Model) -> IRModule:
    """Any accepted form of a model as a Relay module."""
    if isinstance(model, IRModule):
        return model
    if isinstance(model, str) and ("\n" in model or model.lstrip().startswith(_TEXT)):
        return _parse(model, "<text>")
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if not path.is_file():
            raise ModelError("MODEL-001", f"there is no file {path}")
        if path.suffix == ".relay":
            from intarsia.ir.text import load_text

            return load_text(path)
        if path.suffix == ".intarsia":
            raise ModelError(
                "MODEL-003", f"{path} is compiled already", remedy="use intarsia.load, or `intarsia run`"
            )
    elif not isinstance(model, bytes) and not hasattr(model, "SerializeToString"):
        raise ModelError(
            "MODEL-002",
            f"a {type(model).__module__}.{type(model).__qualname__} is not a model",
            remedy="pass a path, bytes, an onnx.ModelProto, an IRModule or Relay text",
        )
    from intarsia.frontend.onnx import load as load_onnx

    return load_onnx(Path(model) if isinstance(model, os.PathLike) else model)


def _parse(text: str, source: str) -> IRModule:
    from intarsia.ir.text import parse

    return parse(text, source)


def signatures(module: IRModule, typing: Typing) -> tuple[list[Signature], list[Signature]]:
    """The inputs and outputs of `main`: names from the user's model, shapes as ints and strings.

    Raises ModelError MODEL-004 if there is no `main`.
    """
    if "main" not in module.functions:
        names = ", ".join(f"@{name}" for name in module.functions) or "no functions at all"
        raise ModelError(
            "MODEL-004", f"the module has no function @main, but {names}", remedy="name the entry @main"
        )
    names = [
        module.input_names[i] if i < len(module.input_names) else p.name
        for i, p in enumerate(module.main.params)
    ]
    inputs: list[Signature] = []
    for name, p in zip(names, module.main.params):
        inputs += _named(name, typing.type(p))
    results = tensor_leaves(typing.type(module.main.body))
    outputs = [
        _signature(module.output_names[i] if i < len(module.output_names) else f"output_{i}", t)
        for i, t in enumerate(results)
    ]
    return inputs, outputs


def _named(name: str, t: Type) -> list[Signature]:
    leaves = tensor_leaves(t)
    if isinstance(t, TensorType):
        return [_signature(name, t)]
    return [_signature(f"{name}.{i}", leaf) for i, leaf in enumerate(leaves)]


def _signature(name: str, t: TensorType) -> Signature:
    return Signature(name, t.dtype, tuple(_dim(d) for d in t.shape))


def _dim(d: Dim) -> Any:
    return d.value if d.is_const else str(d)

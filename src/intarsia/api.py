"""The public functions: `compile` a model, `load` a compiled one."""

from __future__ import annotations

import os
import time
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


def compile(
    model: Model,
    *,
    threads: int | None = None,
    target: Target | None = None,
    level: int = 3,
    tier: str = "native",
) -> Executable:
    """Compile a model into something that can be called.

    model:   path of an ONNX file, its bytes, an onnx.ModelProto, an IRModule, the path of Relay text (.relay), or Relay text
    threads: that a call may use; by default INTARSIA_NUM_THREADS or the cores this process may run on
    target:  the processor to compile for; by default the one found here
    level:   0 … 3, how much is optimised; never changes results beyond rounding
    tier:    'native', or 'interpreter': the same bytecode in Python, slow, to look into

    Raises ModelError (not a model), UnsupportedError (lists all it lacks), TypeCheckError.
    """
    from intarsia.codegen.llvm.host import host_target
    from intarsia.transform import optimize
    from intarsia.vm.build import build
    from intarsia.vm.compile import compile_module

    start = time.perf_counter()
    if tier not in ("native", "interpreter"):
        raise UnsupportedError(
            "API-001", f"there is no tier {tier!r}", remedy="use 'native' or 'interpreter'"
        )
    count = thread_count(threads)
    machine = replace(target or host_target(), cores=count)
    module = optimize(read(model), level=level)
    typing = infer(module)
    inputs, outputs = signatures(module, typing)
    program = compile_module(module, machine, typing)
    objects: list[bytes] = []
    if tier == "native":
        program, objects = build(program, machine)
    return Executable(
        program, inputs, outputs, machine, objects,
        threads=count, native=tier == "native", compile_seconds=time.perf_counter() - start,
    )  # fmt: skip


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> Executable:
    """A compiled model from a file that `Executable.save` wrote. Raises ArtifactError."""
    from intarsia.codegen.llvm.host import host_target
    from intarsia.vm.executable import load as load_executable

    return load_executable(path, host_target(), threads=thread_count(threads))


def thread_count(threads: int | None) -> int:
    """The argument, else INTARSIA_NUM_THREADS, else the cores this process may run on."""
    if threads is None:
        text = os.environ.get("INTARSIA_NUM_THREADS", "")
        if text and not (text.isdigit() and int(text) > 0):
            raise UnsupportedError("API-002", f"INTARSIA_NUM_THREADS is {text!r}, not a positive number")
        threads = int(text) if text else _cores()
    if threads < 1:
        raise UnsupportedError("API-002", f"threads is {threads}, not a positive number")
    return threads


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read(model: Model) -> IRModule:
    """Any accepted form of a model as a Relay module."""
    if isinstance(model, IRModule):
        return model
    if isinstance(model, str) and ("\n" in model or model.lstrip().startswith(("def ", "fn ", "type "))):
        return _parse(model, "<text>")
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if not path.is_file():
            raise ModelError("MODEL-001", f"there is no file {path}")
        if path.suffix == ".relay":
            return _parse(path.read_text(encoding="utf-8"), str(path))
    elif not isinstance(model, bytes) and not hasattr(model, "SerializeToString"):
        raise ModelError(
            "MODEL-002",
            f"a {type(model).__module__}.{type(model).__qualname__} is not a model",
            remedy="pass a path, bytes, an onnx.ModelProto, an IRModule or Relay text",
        )
    from intarsia.frontend.onnx import load as load_onnx

    return load_onnx(model)


def _parse(text: str, source: str) -> IRModule:
    from intarsia.ir.text import parse

    return parse(text, source)


def signatures(module: IRModule, typing: Typing) -> tuple[list[Signature], list[Signature]]:
    """The inputs and outputs of `main`: names from the user's model, shapes as ints and strings."""
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

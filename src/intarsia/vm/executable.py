"""A compiled model that can be called, saved and loaded.

A call fills a few words with pointers and sizes, crosses into machine code once, and wraps the results;
shapes are checked in there, by the program itself. Any number of Python threads may call one executable: each
call in flight has a context of its own, taken from a free list and given back.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.codegen.llvm.jit import Library
from intarsia.kernel.target import Target
from intarsia.runtime import artifact
from intarsia.runtime.tensor import Signature, address, aligned, as_dense, bind, numpy_dtype
from intarsia.support.errors import ArtifactError, Error
from intarsia.vm import container
from intarsia.vm.interpreter import Interpreter, RunError, failure, out_of_memory
from intarsia.vm.isa import Program
from intarsia.vm.support_ir import (
    CONTEXT_BYTES,
    GONE,
    MESSAGE,
    NUMPY,
    OUT_OF_MEMORY,
    RESULTS,
    STACK_BYTES,
    STACK_OVERFLOW,
    TENSOR_WORDS,
    TYPES,
    A,
    B,
)  # fmt: skip
from intarsia.vm.trampoline import CALL, WRAP, callable_at, destructor, numpy_table
from intarsia.vm.verify import verify

_SYMBOLS = (
    "intarsia_run", "intarsia_context_new", "intarsia_context_delete", "intarsia_pool_create",
    "intarsia_pool_destroy", CALL, WRAP,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Statistics:
    """What an executable consists of; sizes in bytes, times in seconds (compile_seconds: 0 if loaded)."""

    kernels: int
    instructions: int
    constant_bytes: int
    code_bytes: int
    compile_seconds: float
    calls: int


class Executable:
    """A compiled model. Call it with arrays, by position or by name; it returns an array, or a tuple of them.

    inputs, outputs: Signature per tensor (name, dtype, shape). Raises InputError CALL-… for arguments that do
        not fit.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Signature],
        outputs: Sequence[Signature],
        target: Target,
        objects: Sequence[bytes],
        *,
        threads: int = 1,
        native: bool = True,
        compile_seconds: float = 0.0,
    ):
        self.program, self.target, self.threads = program, target, threads
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._objects = list(objects)
        self._seconds, self._calls = compile_seconds, 0
        self._native, self._linking = native, threading.Lock()
        self._run: _Native | _Portable | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model. Arguments: NumPy arrays, or anything with DLPack or the buffer protocol (on the
        CPU).
        """
        results = self._results(
            bind(self.inputs, args, kwargs) if kwargs or len(args) != len(self.inputs) else args
        )
        return results[0] if len(results) == 1 else results

    def run(self, feed: Mapping[str, Any]) -> dict[str, Any]:
        """Run by names: every input in, every output out."""
        results = self._results(bind(self.inputs, (), dict(feed)))
        return {s.name: r for s, r in zip(self.outputs, results)}

    def _results(self, values: Sequence[Any]) -> tuple[np.ndarray, ...]:
        self._calls += 1
        run = self._run or self._link()
        return run(values)

    def _link(self) -> _Native | _Portable:
        """Machine code is linked at the first call: an executable for another processor can be made and
        saved.
        """
        with self._linking:
            if self._run is None:
                if self._native:
                    from intarsia.codegen.llvm.host import host_target

                    _admit(self.target, host_target())
                    self._run = _Native(self.program, self.inputs, self._objects, self.threads)
                else:
                    self._run = _Portable(self.program, self.inputs)
            return self._run

    def stats(self) -> Statistics:
        return Statistics(
            kernels=len({k.symbol for k in self.program.kernels}),
            instructions=sum(len(f.code) for f in self.program.functions),
            constant_bytes=sum(c.nbytes for c in self.program.constants),
            code_bytes=sum(map(len, self._objects)),
            compile_seconds=self._seconds,
            calls=self._calls,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model as one file for `intarsia.load`. Equal models give equal files."""
        meta, sections = container.encode(self.program)
        meta |= {
            "inputs": [[s.name, s.dtype, list(s.shape)] for s in self.inputs],
            "outputs": [[s.name, s.dtype, list(s.shape)] for s in self.outputs],
            "target": asdict(self.target),
            "objects": len(self._objects),
        }
        artifact.save(path, meta, sections | {f"object.{i}": o for i, o in enumerate(self._objects)})

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, s)) for s in (self.inputs, self.outputs))
        return f"<intarsia.Executable ({inputs}) -> ({outputs})>"


def load(path: str | os.PathLike[str], host: Target | None, *, threads: int = 1) -> Executable:
    """An executable from a file that `save` wrote. Raises ArtifactError ART-… for what is not one or does not
    run on host.

    host: None to look into a file from any machine; calling it is then refused where it does not run.
    """
    try:
        return _load(path, host, threads)
    except ArtifactError as e:
        raise ArtifactError(e.code, e.message, where=str(Path(path)), remedy=e.remedy) from None


def _load(path: str | os.PathLike[str], host: Target | None, threads: int) -> Executable:
    meta, sections = artifact.load(path)
    program = container.decode(meta, sections)
    verify(program)
    try:
        target = Target(**meta["target"])
        inputs = [Signature(str(n), str(t), tuple(s)) for n, t, s in meta["inputs"]]
        outputs = [Signature(str(n), str(t), tuple(s)) for n, t, s in meta["outputs"]]
        objects = [bytes(sections[f"object.{i}"]) for i in range(meta["objects"])]
    except (KeyError, TypeError, ValueError) as e:
        raise ArtifactError(
            "ART-006", f"the artifact's program is not valid: {type(e).__name__} {e}"
        ) from None
    if len(inputs) != len(program.functions[0].params) or len(outputs) != len(program.functions[0].results):
        raise ArtifactError("ART-006", "the artifact's inputs and outputs do not fit its program")
    if host is not None:
        _admit(target, host)
    return Executable(program, inputs, outputs, target, objects, threads=threads)


def _admit(target: Target, host: Target) -> None:
    """ART-008 if code for `target` cannot run on `host`."""
    if target.triple.split("-")[0] != host.triple.split("-")[0]:
        raise ArtifactError(
            "ART-008",
            f"the artifact is for {target.triple}, this machine is {host.triple}",
            remedy="compile the model here",
        )
    here = {f for f in host.features.split(",") if f.startswith("+")}
    missing = sorted(f[1:] for f in target.features.split(",") if f.startswith("+") and f not in here)
    if missing:
        raise ArtifactError(
            "ART-008",
            f"the artifact needs CPU features that this machine lacks: {', '.join(missing)}",
            remedy="compile the model here, or for the weakest machine it shall run on",
        )


class _Dense:
    """Arguments as dense arrays of the inputs' dtypes and ranks. Raises InputError CALL-003/004/007."""

    def __init__(self, inputs: Sequence[Signature]):
        self._wanted = [(s, numpy_dtype(s.dtype)) for s in inputs]

    def __call__(self, values: Sequence[Any]) -> list[np.ndarray]:
        return [as_dense(v, s, d) for v, (s, d) in zip(values, self._wanted)]


class _Portable:
    """The interpreter behind the same interface."""

    def __init__(self, program: Program, inputs: Sequence[Signature]):
        self.dense = _Dense(inputs)
        self.interpreter = Interpreter(program)

    def __call__(self, values: Sequence[Any]) -> tuple[np.ndarray, ...]:
        return tuple(self.interpreter.run(self.dense(values)))


class _Context:
    """Memory of one call in flight: the native context, and room for the results' words."""

    __slots__ = ("address", "results")

    def __init__(self, address: int, results: int, types: int, stack: int):
        self.address = address
        self.results = ctypes.create_string_buffer(max(1, results) * TENSOR_WORDS * 8)
        words = _words(address)
        words[RESULTS], words[TYPES] = ctypes.addressof(self.results), types
        words[STACK_BYTES], words[NUMPY], words[GONE] = stack, numpy_table(), destructor()


class _Native:
    """The linked machine code of a program. It knows no executable: no cycle keeps the weights alive."""

    def __init__(self, program: Program, inputs: Sequence[Signature], objects: Sequence[bytes], threads: int):
        entry = program.functions[0]
        self.messages, self.dense = program.messages, _Dense(inputs)
        self.library = library = Library(objects, _SYMBOLS)
        self.constants = [aligned(c) for c in program.constants]
        self.table = (ctypes.c_void_p * max(1, len(self.constants)))(*map(address, self.constants))
        word, pointer = ctypes.c_int64, ctypes.c_void_p

        def native(name: str, result: Any, *arguments: Any) -> Any:
            return ctypes.CFUNCTYPE(result, *arguments)(library.address(name))

        self.call = native("intarsia_run", ctypes.c_int32, pointer, pointer, pointer, word)
        self.fast, fast_definition = callable_at(library.address(CALL))
        self.wrap, wrap_definition = callable_at(library.address(WRAP))
        self._definitions = fast_definition, wrap_definition
        self.new = native("intarsia_context_new", pointer, pointer, pointer)
        self.pool = native("intarsia_pool_create", pointer, word)(threads) if threads > 1 else None
        self.types = (ctypes.c_int32 * max(1, len(entry.results)))(
            *(numpy_dtype(s.dtype).num for s in entry.results)
        )
        self.results = len(entry.results)
        self.stack = _stack_budget()
        self.idle: list[_Context] = []
        delete = native("intarsia_context_delete", None, pointer)
        destroy = native("intarsia_pool_destroy", None, pointer)
        weakref.finalize(self, _delete_all, self.idle, delete, self.pool, destroy, library).atexit = False

    def __call__(self, values: Sequence[Any]) -> tuple[np.ndarray, ...]:
        try:
            context = self.idle.pop()
        except IndexError:
            context = self._context()
        try:
            results = self.fast(context.address, *values)
            if type(results) is not tuple:
                if results < 0:
                    return self._convert_and_call(context, values)
                raise self._error(context)
            return results
        finally:
            self.idle.append(context)

    def _convert_and_call(self, context: _Context, values: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """The call for arguments that cannot be taken as they are."""
        arrays = self.dense(values)
        words = (ctypes.c_int64 * (TENSOR_WORDS * max(1, len(arrays))))()
        for i, array in enumerate(arrays):
            words[i * TENSOR_WORDS] = address(array)
            words[i * TENSOR_WORDS + 2 : i * TENSOR_WORDS + 2 + array.ndim] = array.shape
        if self.call(context.address, ctypes.addressof(words), ctypes.addressof(context.results), self.stack):
            raise self._error(context)
        return self.wrap(context.address)  # type: ignore[return-value] - machine code that makes a tuple

    def _context(self) -> _Context:
        address = self.new(self.pool, ctypes.addressof(self.table))
        if not address:
            raise MemoryError("no memory for another call")
        return _Context(address, self.results, ctypes.addressof(self.types), self.stack)

    def _error(self, context: _Context) -> Error:
        words = _words(context.address)
        message, a, b = words[MESSAGE], words[A], words[B]
        if message == STACK_OVERFLOW:
            return RunError("RUN-003", "the model recurses too deeply for the stack of this thread")
        if message == OUT_OF_MEMORY:
            return out_of_memory(a)
        return failure(self.messages[message], a, b)


def _words(context: int) -> Any:
    return (ctypes.c_int64 * (CONTEXT_BYTES // 8)).from_address(context)


def _delete_all(idle: list[_Context], delete: Any, pool: int | None, destroy: Any, library: Library) -> None:
    for context in idle:
        delete(context.address)
    idle.clear()
    destroy(pool)
    del library  # until here: `delete` is code in it


def _stack_budget() -> int:
    """Bytes of stack that one call may use: half of what its thread has."""
    import resource

    limit = threading.stack_size() or resource.getrlimit(resource.RLIMIT_STACK)[0]
    return limit // 2 if 0 < limit < 1 << 40 else 1 << 20

"""The portable tier: one instruction after the other in Python, the reference for the bytecode.

Registers hold NumPy arrays. The frame of a call is real memory in which slots lie at their offsets, so that a
wrong memory plan gives wrong answers here as well. Fresh memory is filled with 0xFF (NaN as a float).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.runtime.tensor import numpy_dtype
from intarsia.support.errors import Error, InputError, UnsupportedError
from intarsia.vm import isa
from intarsia.vm.isa import Function, Message, Program
from intarsia.vm.support_ir import NO_SIZE

Launcher = Callable[[int, Sequence[np.ndarray], Sequence[int]], None]

_ARITH: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}


class RunError(Error):
    """Something that types could not promise did not hold while the model ran (RUN-…)."""


def failure(message: Message, a: int, b: int) -> Error:
    """The error that a failed check raises."""
    kind = InputError if message.kind == "input" else RunError
    return kind(
        message.code, message.text.replace("{a}", str(a)).replace("{b}", str(b)), where=message.where or None
    )


def out_of_memory(size: int) -> Error:
    """The error for a tensor of that many bytes; NO_SIZE: of no size at all."""
    if size >= NO_SIZE or size < 0:
        return RunError("RUN-002", "a size came out negative, or too large to count in bytes")
    return RunError("RUN-002", f"no memory for a tensor of {size} bytes")


@dataclass(slots=True)
class _Tensor:
    """owned: whether the memory lives as long as anyone refers to it (a heap tensor)."""

    array: np.ndarray
    owned: bool


@dataclass(slots=True)
class _Activation:
    function: Function
    ints: list[int]
    objects: list[_Tensor | None]
    results: tuple[int, ...]  # registers of the caller
    at: int = 0
    frame: np.ndarray = field(default_factory=lambda: np.empty(0, np.uint8))


class Interpreter:
    """Runs a program. launch: runs kernel k on (buffers, symbols); by default through its loops (slow,
    checked).
    """

    def __init__(self, program: Program, launch: Launcher | None = None):
        self.program = program
        self._launch = launch or self._evaluate

    def run(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The entry's results. args must have the entry's dtypes and ranks."""
        stack = [self._activate(0, [_Tensor(a, False) for a in args], ())]
        while True:
            current = stack[-1]
            instr = current.function.code[current.at]
            current.at += 1
            match instr:
                case isa.Call(dsts, callee, arguments):
                    stack.append(self._activate(callee, [_get(current, r) for r in arguments], dsts))
                case isa.Return(registers):
                    results = [_own(_get(current, r)) for r in registers]
                    stack.pop()
                    if not stack:
                        return [t.array for t in results]
                    for r, t in zip(current.results, results, strict=True):
                        stack[-1].objects[r] = t
                case isa.TailCall(registers):
                    arguments = [self._keep(_get(current, r), current) for r in registers]
                    callee = self.program.functions.index(current.function)
                    stack[-1] = self._activate(callee, arguments, current.results)
                case _:
                    self._step(instr, current)

    def _activate(self, function: int, args: Sequence[_Tensor], results: tuple[int, ...]) -> _Activation:
        f = self.program.functions[function]
        objects: list[_Tensor | None] = [None] * f.objects
        objects[: len(args)] = args
        return _Activation(f, [0] * f.ints, objects, results)

    def _keep(self, t: _Tensor, a: _Activation) -> _Tensor:
        return _own(t) if np.may_share_memory(t.array, a.frame) else t

    def _step(self, instr: isa.Instr, a: _Activation) -> None:
        ints, objects = a.ints, a.objects
        match instr:
            case isa.Imm(dst, value):
                ints[dst] = value
            case isa.Arith(dst, op, x, y):
                ints[dst] = _ARITH[op](ints[x], ints[y])
            case isa.DimOf(dst, src, axis):
                ints[dst] = _get(a, src).array.shape[axis]
            case isa.Item(dst, src, index):
                ints[dst] = int(_get(a, src).array.reshape(-1)[index])
            case isa.Check(x, relation, y, message):
                if not _COMPARE[relation](ints[x], ints[y]):
                    raise failure(self.program.messages[message], ints[x], ints[y])
            case isa.Const(dst, constant):
                objects[dst] = _Tensor(self.program.constants[constant], False)
            case isa.Frame(size):
                a.frame = np.full(ints[size], 0xFF, np.uint8)
            case isa.Slot(dst, offset, dtype, dims):
                kind, shape = numpy_dtype(dtype), [ints[d] for d in dims]
                start = ints[offset]
                memory = a.frame[start : start + kind.itemsize * int(np.prod(shape, dtype=np.int64))]
                objects[dst] = _Tensor(memory.view(kind).reshape(shape), False)
            case isa.Heap(dst, dtype, dims):
                kind, shape = numpy_dtype(dtype), [ints[d] for d in dims]
                size = kind.itemsize * prod(shape)
                if kind.itemsize * prod(d or 1 for d in shape) >= NO_SIZE or min(shape, default=0) < 0:
                    raise out_of_memory(NO_SIZE)
                objects[dst] = _Tensor(np.full(size, 0xFF, np.uint8).view(kind).reshape(shape), True)
            case isa.View(dst, src, dims):
                t = _get(a, src)
                objects[dst] = _Tensor(t.array.reshape([ints[d] for d in dims]), t.owned)
            case isa.Move(dst, src):
                objects[dst] = _get(a, src)
            case isa.Free(src):
                objects[src] = None
            case isa.Launch(kernel, inputs, outputs, workspaces, symbols):
                buffers = [_get(a, r).array for r in (*inputs, *outputs, *workspaces)]
                self._launch(kernel, buffers, [ints[r] for r in symbols])
            case isa.Jump(target):
                a.at = target
            case isa.Branch(cond, orelse):
                if not _get(a, cond).array.item():
                    a.at = orelse
            case _:
                raise TypeError(f"not an instruction: {instr!r}")

    def _evaluate(self, kernel: int, buffers: Sequence[np.ndarray], symbols: Sequence[int]) -> None:
        ref = self.program.kernels[kernel]
        if ref.kernel is None:
            raise UnsupportedError(
                "VM-006", "a loaded artifact has no portable kernels", remedy="compile the model again"
            )
        inputs, outputs = list(buffers[: len(ref.inputs)]), buffers[len(ref.inputs) :]
        for i, b in enumerate(ref.kernel.inputs):
            if inputs[i].ndim < len(b.shape):  # a constant packed in more dimensions than tensors have here
                inputs[i] = inputs[i].reshape([d.value for d in b.shape])
        results = evaluate_kernel(ref.kernel, inputs, dict(zip(ref.kernel.symbols, symbols, strict=True)))
        for buffer, result in zip(outputs, results):
            buffer[...] = result


def _get(a: _Activation, register: int) -> _Tensor:
    t = a.objects[register]
    if t is None:
        raise RuntimeError(f"register t{register} of {a.function.name} is empty")  # a fault of the compiler
    return t


def _own(t: _Tensor) -> _Tensor:
    return t if t.owned else _Tensor(t.array.copy(), True)

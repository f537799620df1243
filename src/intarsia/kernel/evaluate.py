"""Run a kernel one scalar at a time: the meaning of the loop language, slow and plain.

Every access is checked: an index outside its buffer and a read of an element that nothing has written are
faults of whoever wrote the kernel, and raise `KernelFault`. Lanes of a vector loop and iterations of a
parallel loop run one after the other, which is what they mean since they are independent; `backwards` runs
the latter from last to first, which tells whether they really are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.dim import Dim
from intarsia.kernel.expr import (
    COMPARE,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    IndexLike,
    LaneReduce,
    Load,
    Select,
    Unary,
)
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store


class KernelFault(AssertionError):  # noqa: N818 - reads as what it is
    """A kernel broke the rules of the loop language; never the user's fault."""


class _Memory:
    """A buffer's elements, and which of them have been written."""

    def __init__(self, array: np.ndarray, written: np.ndarray):
        self.array, self.written = array, written


def numpy_type(dtype: str) -> np.dtype:
    """The NumPy dtype of a kernel dtype name."""
    if dtype == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(dtype)


def evaluate_kernel(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    *,
    backwards: bool = False,
) -> list[np.ndarray]:
    """The outputs of `kernel` for input arrays (in order of kernel.inputs) and symbol values.

    Raises KernelFault for a wrong shape or dtype, an index out of bounds, or a read before any write.
    """
    env = {name: int((symbols or {})[name]) for name in kernel.symbols}
    if len(arrays) != len(kernel.inputs):
        raise KernelFault(f"{kernel.name} has {len(kernel.inputs)} inputs, {len(arrays)} given")
    memory: dict[int, _Memory] = {}
    for buffer, array in zip(kernel.inputs, arrays, strict=True):
        shape = tuple(d.evaluate(env) for d in buffer.shape)
        if array.shape != shape or array.dtype != numpy_type(buffer.dtype):
            raise KernelFault(f"{buffer.name} is {buffer.dtype}{shape}, given {array.dtype}{array.shape}")
        memory[id(buffer)] = _Memory(array.copy(), np.full(array.shape, True))
    for buffer in (*kernel.outputs, *kernel.workspaces):
        memory[id(buffer)] = _blank(buffer, env)
    with np.errstate(all="ignore"):
        _Run(memory, backwards).stmt(kernel.body, env)
    return [memory[id(b)].array for b in kernel.outputs]


def _blank(buffer: Buffer, env: Mapping[str, int]) -> _Memory:
    shape = tuple(d.evaluate(env) for d in buffer.shape)
    return _Memory(np.zeros(shape, numpy_type(buffer.dtype)), np.full(shape, False))


class _Run:
    def __init__(self, memory: dict[int, _Memory], backwards: bool):
        self.memory, self.backwards = memory, backwards

    def stmt(self, s: Stmt, env: dict[str, int]) -> None:
        match s:
            case Block():
                for inner in s.stmts:
                    self.stmt(inner, env)
            case For():
                count = s.extent.evaluate(env)
                if s.active is not None:
                    count = min(count, s.active.evaluate(env))
                order = range(count)
                for i in reversed(order) if self.backwards and s.kind == "parallel" else order:
                    self.stmt(s.body, {**env, s.var: i})
            case Store():
                value = self.expr(s.value, env, {})
                if s.value.dtype != s.buffer.dtype:
                    raise KernelFault(f"{s.value.dtype} stored to {s.buffer.name}, which is {s.buffer.dtype}")
                memory, place = self.locate(s.buffer, s.indices, env, {})
                memory.array[place] = value
                memory.written[place] = True
            case Allocate():
                self.memory[id(s.buffer)] = _blank(s.buffer, env)
                self.stmt(s.body, env)
                del self.memory[id(s.buffer)]
            case Bind():
                value = (
                    s.value.evaluate(env) if isinstance(s.value, Dim) else int(self.expr(s.value, env, {}))
                )
                self.stmt(s.body, {**env, s.name: value})
            case If():
                if self.expr(s.cond, env, {}):
                    self.stmt(s.then, env)
                elif s.orelse is not None:
                    self.stmt(s.orelse, env)
            case _:
                raise KernelFault(f"unknown statement {s!r}")

    def locate(
        self, buffer: Buffer, indices: Sequence[IndexLike], env, memo
    ) -> tuple[_Memory, tuple[int, ...]]:
        memory = self.memory.get(id(buffer))
        if memory is None:
            memory = self.find(buffer, env)
        try:
            place = tuple(
                i.evaluate(env) if isinstance(i, Dim) else int(self.expr(i, env, memo)) for i in indices
            )
        except KeyError as missing:
            raise KernelFault(f"variable {missing} in an index of {buffer.name} is not in scope") from None
        shape = memory.array.shape
        if len(place) != len(shape) or not all(0 <= i < n for i, n in zip(place, shape, strict=True)):
            raise KernelFault(f"{buffer.name}{list(place)} is outside shape {list(shape)} (at {env})")
        return memory, place

    def find(self, buffer: Buffer, env: Mapping[str, int]) -> _Memory:
        memory = self.memory.get(id(buffer))
        if memory is not None:
            return memory
        if buffer.of is None:
            raise KernelFault(f"buffer {buffer.name} is used outside its scope")
        root = self.find(buffer.of, env)
        shape = tuple(d.evaluate(env) for d in buffer.shape)
        if math.prod(shape) != root.array.size or buffer.dtype != root.array.dtype.name:
            raise KernelFault(
                f"view {buffer.name} {buffer.dtype}{shape} of {root.array.dtype}{root.array.shape}"
            )
        view = self.memory[id(buffer)] = _Memory(root.array.reshape(shape), root.written.reshape(shape))
        return view

    def expr(self, e: Expr, env: dict[str, int], memo: dict[int, np.generic]):
        if id(e) not in memo:
            memo[id(e)] = self.fresh(e, env, memo)
        return memo[id(e)]

    def fresh(self, e: Expr, env: dict[str, int], memo: dict[int, np.generic]):
        match e:
            case Const():
                return numpy_type(e.dtype).type(e.value)
            case Index():
                return np.int64(e.dim.evaluate(env))
            case Load():
                memory, place = self.locate(e.buffer, e.indices, env, memo)
                if not memory.written[place]:
                    raise KernelFault(f"{e.buffer.name}{list(place)} is read before it is written")
                return memory.array[place]
            case Unary():
                return unary(e.op, self.expr(e.x, env, memo), e.x.dtype)
            case Binary():
                if e.a.dtype != e.b.dtype:
                    raise KernelFault(f"{e.op} of {e.a.dtype} and {e.b.dtype}")
                return binary(e.op, self.expr(e.a, env, memo), self.expr(e.b, env, memo), e.a.dtype)
            case Select():
                return self.expr(e.then if self.expr(e.cond, env, memo) else e.orelse, env, memo)
            case Cast():
                return convert(self.expr(e.x, env, memo), e.x.dtype, e.dtype)
            case LaneReduce():
                memory = self.find(e.buffer, env)
                if not memory.written.all():
                    raise KernelFault(f"{e.buffer.name} is reduced before it is written")
                return lane_reduce(e.op, memory.array.reshape(-1), e.dtype)
        raise KernelFault(f"{type(e).__name__} cannot be evaluated inside a kernel")


# ---- scalar arithmetic -------------------------------------------------------------------------------------
_FLOAT_UNARY = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)) if x >= 0 else np.exp(x) / (1 + np.exp(x)),
    "erf": lambda x: math.erf(x), "floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc,
}  # fmt: skip


def is_float(dtype: str) -> bool:
    return "float" in dtype


def wrap(value: int, dtype: str) -> np.generic:
    """A Python integer as dtype, modulo 2^bits."""
    if dtype == "bool":
        return np.bool_(value != 0)
    info = np.iinfo(dtype)
    value &= (1 << info.bits) - 1
    return np.dtype(dtype).type(value - (1 << info.bits) if value > info.max else value)


def unary(op: str, x, dtype: str):
    """One of kernel.expr.UNARY on a NumPy scalar."""
    kind = numpy_type(dtype).type
    if op == "isnan":
        return np.bool_(is_float(dtype) and math.isnan(x))
    if op == "isinf":
        return np.bool_(is_float(dtype) and math.isinf(x))
    if op == "not":
        return np.bool_(not x)
    if is_float(dtype):
        if op == "neg":
            return -x
        if op == "abs":
            return kind(math.fabs(x))
        if op == "sign":
            return x if math.isnan(x) else kind(int(x > 0) - int(x < 0))
        if op in _FLOAT_UNARY:  # in double precision, then rounded once
            return kind(_FLOAT_UNARY[op](np.float64(x)))
        raise KernelFault(f"{op} of {dtype}")
    v = int(x)
    match op:
        case "neg":
            return wrap(-v, dtype)
        case "abs":
            return wrap(abs(v), dtype)
        case "sign":
            return wrap((v > 0) - (v < 0), dtype)
        case "bitnot":
            return np.bool_(not x) if dtype == "bool" else wrap(~v, dtype)
        case "floor" | "ceil" | "round" | "trunc":
            return x
    raise KernelFault(f"{op} of {dtype}")


def binary(op: str, a, b, dtype: str):
    """One of kernel.expr.BINARY on NumPy scalars of one dtype. Integer division by zero gives 0."""
    if op in COMPARE:
        return np.bool_(
            {"eq": a == b, "ne": a != b, "lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b}[op]
        )
    if op in ("and", "or", "xor"):
        return np.bool_({"and": a and b, "or": a or b, "xor": bool(a) != bool(b)}[op])
    if op in ("min", "max"):
        if is_float(dtype) and (math.isnan(a) or math.isnan(b)):
            return a if math.isnan(a) else b
        return (a if a < b else b) if op == "min" else (a if a > b else b)
    if is_float(dtype):
        return _float_binary(op, a, b, dtype)
    return _integer_binary(op, int(a), int(b), dtype)


def _float_binary(op: str, a, b, dtype: str):
    kind = numpy_type(dtype).type
    wide = np.float64 if dtype == "float64" else np.float32
    x, y = wide(a), wide(b)
    match op:
        case "add":
            return kind(x + y)
        case "sub":
            return kind(x - y)
        case "mul":
            return kind(x * y)
        case "div":
            return kind(x / y)
        case "floordiv":
            return kind(np.floor_divide(x, y))
        case "mod":
            return kind(np.mod(x, y))
        case "fmod":
            return kind(np.fmod(x, y))
        case "pow":
            return kind(np.power(np.float64(a), np.float64(b)))
    raise KernelFault(f"{op} of {dtype}")


def _integer_binary(op: str, a: int, b: int, dtype: str):
    bits = 1 if dtype == "bool" else np.iinfo(dtype).bits
    match op:
        case "add":
            value = a + b
        case "sub":
            value = a - b
        case "mul":
            value = a * b
        case "div":
            value = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        case "floordiv":
            value = 0 if b == 0 else a // b
        case "mod":
            value = 0 if b == 0 else a % b
        case "fmod":
            value = 0 if b == 0 else abs(a) % abs(b) * (-1 if a < 0 else 1)
        case "pow":
            value = _integer_power(a, b, bits)
        case "bitand":
            value = a & b
        case "bitor":
            value = a | b
        case "bitxor":
            value = a ^ b
        case "shl":
            value = a << b if 0 <= b < bits else 0
        case "shr":
            value = a >> b if 0 <= b < bits else 0
        case _:
            raise KernelFault(f"{op} of {dtype}")
    return wrap(value, dtype)


def _integer_power(a: int, b: int, bits: int) -> int:
    """a^b modulo 2^bits; the truncated quotient for a negative exponent (0 for base 0)."""
    if b >= 0:
        return pow(a, b, 1 << bits)
    return 1 if a == 1 else (-1 if b % 2 else 1) if a == -1 else 0


def convert(x, source: str, dtype: str):
    """Cast: see kernel.expr.Cast."""
    if dtype == "bool":
        return np.bool_(x != 0)
    if is_float(dtype):
        if not is_float(source) and dtype in ("float16", "bfloat16"):
            x = np.float32(x)
        return x.astype(numpy_type(dtype)) if isinstance(x, np.generic) else numpy_type(dtype).type(x)
    if not is_float(source):
        return wrap(int(x), dtype)
    info = np.iinfo(dtype)
    if math.isnan(x):
        return wrap(0, dtype)
    if math.isinf(x):
        return wrap(int(info.max if x > 0 else info.min), dtype)
    return wrap(min(max(int(float(x)), int(info.min)), int(info.max)), dtype)  # int() of a bfloat16 wraps


def lane_reduce(op: str, values: np.ndarray, dtype: str):
    """sum, prod, min, max, any or all of the values, in order."""
    combine = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(op, op)
    total = values[0]
    for v in values[1:]:
        total = binary(combine, total, v, dtype)
    return total

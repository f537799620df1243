"""Stages that depend on constants only are computed now, and become inputs.

The evaluation is vectorised: every loop variable is an index array along its own dimension. `Select` is lazy
in that loads of arms that are not chosen are clamped into their buffer, and their values dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from intarsia.dim import Dim, product
from intarsia.kernel.compute import Stage, placeholder
from intarsia.kernel.evaluate import is_float, numpy_type
from intarsia.kernel.expr import (
    COMPARE,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    Unary,
    identity_of,
    subexpressions,
    transform,
    walk,
)  # fmt: skip
from intarsia.kernel.strategy.region import producers

_MOST = 1 << 24  # elements of a stage's iteration space
_GROWTH = 4  # a folded stage may be so much larger than the constants it reads


def fold(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], constants: Mapping[Buffer, np.ndarray]
) -> tuple[dict[Buffer, np.ndarray], list[Buffer]]:
    """(new constant inputs with their contents, outputs that read them)."""
    if not constants:
        return {}, list(outputs)
    order = producers(outputs)
    results = {id(b) for b in outputs}
    values: dict[int, np.ndarray] = {id(b): a for b, a in constants.items()}
    for b in order:
        stage = b.producer
        if isinstance(stage, Stage) and id(b) not in results and _foldable(b, stage, values):
            values[id(b)] = evaluate(b, values)
    return _rebuilt(order, outputs, {id(b) for b in inputs}, values)


def _foldable(b: Buffer, stage: Stage, values: Mapping[int, np.ndarray]) -> bool:
    reads = stage.inputs
    if not reads or not all(id(x) in values for x in reads) or not all(d.is_const for d in b.shape):
        return False
    names = set(stage.axes) | ({a.var for a in stage.body.axes} if isinstance(stage.body, Reduce) else set())
    for n in walk(stage.body):
        dims = (
            [i for i in n.indices if isinstance(i, Dim)]
            if isinstance(n, Load)
            else [n.dim]
            if isinstance(n, Index)
            else []
        )
        if any(d.symbols() - names for d in dims):
            return False
        if (
            isinstance(n, Unary)
            and n.op == "tan"
            or isinstance(n, Reduce)
            and not all(a.extent.is_const for a in n.axes)
        ):
            return False
    size = product(b.shape).value
    inner = product(a.extent for a in stage.body.axes).value if isinstance(stage.body, Reduce) else 1
    return size * inner <= _MOST and size <= max(4096, _GROWTH * sum(values[id(x)].size for x in reads))


def _rebuilt(
    order, outputs, given: set[int], values: Mapping[int, np.ndarray]
) -> tuple[dict[Buffer, np.ndarray], list[Buffer]]:
    """The computation with folded stages as inputs."""
    extra: dict[Buffer, np.ndarray] = {}
    new: dict[int, Buffer] = {}

    def operand(b: Buffer) -> Buffer:
        if id(b) in values and id(b) not in given and id(b) not in new:
            new[id(b)] = placeholder(f"{b.name}.folded", b.shape, b.dtype)
            extra[new[id(b)]] = values[id(b)]
        return new.get(id(b), b)

    opaques: dict[int, object] = {}
    for b in order:
        producer = b.producer
        if id(b) in values:
            continue
        if isinstance(producer, Stage):
            if any(operand(x) is not x for x in producer.inputs):

                def leaf(n: Expr) -> Expr | None:
                    if isinstance(n, Load) and operand(n.buffer) is not n.buffer:
                        return replace(n, buffer=operand(n.buffer))
                    return None

                new[id(b)] = replace(b, producer=replace(producer, body=transform(producer.body, leaf)))
        elif producer is not None and any(operand(x) is not x for x in producer.inputs):
            if id(producer) not in opaques:
                opaques[id(producer)] = replace(producer, inputs=tuple(operand(x) for x in producer.inputs))
            new[id(b)] = replace(b, producer=opaques[id(producer)])
    return extra, [operand(b) for b in outputs]


# ---- evaluation --------------------------------------------------------------------------------------------
_erf = np.vectorize(math.erf, otypes=[np.float64])
_FLOAT = {
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
}
_BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "fmod": np.fmod,
    "mod": np.mod,
    "floordiv": np.floor_divide,
}
_REDUCE = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}


def evaluate(
    b: Buffer, values: Mapping[int, np.ndarray], symbols: Mapping[str, int] | None = None
) -> np.ndarray:
    """The elements of a stage, all buffers that it reads being in `values` (by identity)."""
    stage = b.producer
    assert isinstance(stage, Stage)
    body = stage.body
    symbols = symbols or {}
    inner = body.axes if isinstance(body, Reduce) else ()
    shape = tuple(d.evaluate(symbols) for d in b.shape)
    extents = (*shape, *(a.extent.evaluate(symbols) for a in inner))
    env: dict[str, np.ndarray | int] = dict(symbols)
    for k, name in enumerate((*stage.axes, *(a.var for a in inner))):
        env[name] = np.arange(extents[k]).reshape([-1 if i == k else 1 for i in range(len(extents))])
    with np.errstate(all="ignore"):
        if not isinstance(body, Reduce):
            result = np.broadcast_to(_Evaluation(values, env)(body), shape)
        else:
            each = np.broadcast_to(_Evaluation(values, env)(body.body), extents)
            result = _reduced(body, each, len(shape))
    return np.ascontiguousarray(result, dtype=numpy_type(b.dtype)).reshape(shape)


def _reduced(body: Reduce, each: np.ndarray, kept: int) -> np.ndarray:
    axes = tuple(range(kept, each.ndim))
    if body.op in ("argmin", "argmax"):
        return (
            getattr(np, body.op)(each, axis=axes[0]) if each.size else np.zeros(each.shape[:kept], np.int64)
        )
    if not each.size:
        return np.full(each.shape[:kept], identity_of(body.op, body.dtype).value)
    logic = {"sum": np.any, "max": np.any, "prod": np.all, "min": np.all} if body.dtype == "bool" else {}
    if body.op in logic:
        return logic[body.op](each, axis=axes)
    if body.op in ("sum", "prod"):
        return _REDUCE[body.op](each, axis=axes, dtype=numpy_type(body.dtype))
    return _REDUCE[body.op](each, axis=axes)


class _Evaluation:
    def __init__(self, values: Mapping[int, np.ndarray], env: Mapping[str, np.ndarray | int]):
        self.values, self.env = values, env
        self.done: dict[int, np.ndarray] = {}

    def __call__(self, e: Expr) -> np.ndarray:
        todo = [e]
        while todo:
            node = todo[-1]
            waiting = [c for c in subexpressions(node) if id(c) not in self.done]
            if waiting:
                todo.extend(waiting)
                continue
            todo.pop()
            if id(node) not in self.done:
                self.done[id(node)] = np.asarray(self.node(node)).astype(numpy_type(node.dtype), copy=False)
        return self.done[id(e)]

    def node(self, e: Expr):
        match e:
            case Const():
                return np.asarray(e.value, numpy_type(e.dtype))
            case Index():
                return dim_values(e.dim, self.env)
            case Load():
                array = self.values[id(e.buffer)]
                places = [
                    dim_values(i, self.env) if isinstance(i, Dim) else self.done[id(i)] for i in e.indices
                ]
                if array.size == 0:
                    return np.zeros(np.broadcast_shapes(*(p.shape for p in places)), array.dtype)
                return array[tuple(np.clip(p, 0, n - 1) for p, n in zip(places, array.shape))]
            case Unary():
                return unary_values(e.op, self.done[id(e.x)], e.x.dtype)
            case Binary():
                return binary_values(e.op, self.done[id(e.a)], self.done[id(e.b)], e.a.dtype)
            case Select():
                return np.where(self.done[id(e.cond)], self.done[id(e.then)], self.done[id(e.orelse)])
            case Cast():
                return cast_values(self.done[id(e.x)], e.x.dtype, e.dtype)
        raise AssertionError(f"{type(e).__name__} inside a stage")


def dim_values(d: Dim, env: Mapping[str, np.ndarray | int]) -> np.ndarray:
    """d where names stand for index arrays."""
    total = np.asarray(0, np.int64)
    for monomial, c in d.terms.items():
        term = np.asarray(c, np.int64)
        for atom, power in monomial:
            if atom.kind == "sym":
                value = np.asarray(env[atom.name], np.int64)
            else:
                op = {"floordiv": np.floor_divide, "mod": np.mod, "min": np.minimum, "max": np.maximum}[
                    atom.kind
                ]
                value, *rest = (dim_values(a, env) for a in atom.args)
                for x in rest:
                    value = op(value, x)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def unary_values(op: str, x: np.ndarray, dtype: str) -> np.ndarray:
    """One of kernel.expr.UNARY."""
    match op:
        case "neg":
            return np.logical_not(x) if dtype == "bool" else np.negative(x)
        case "abs":
            return np.abs(x)
        case "sign":
            return np.sign(x)
        case "not":
            return np.logical_not(x)
        case "bitnot":
            return np.invert(x)
        case "isnan" | "isinf":
            return getattr(np, op)(x) if is_float(dtype) else np.zeros(x.shape, bool)
    if not is_float(dtype):
        return x  # rounding an integer
    return np.asarray(_FLOAT[op](x.astype(np.float64))).astype(x.dtype)


def binary_values(op: str, a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """One of kernel.expr.BINARY. Integer division by zero gives 0."""
    if is_float(dtype):
        if op == "div":
            return np.divide(a, b)
        if op == "pow":
            return np.power(a.astype(np.float64), b.astype(np.float64))
        return _BINARY[op](a, b)
    if op == "div":
        quotient, rest = np.floor_divide(a, b), np.mod(a, b)
        return np.where(b == 0, 0, quotient + ((rest != 0) & ((rest < 0) != (a < 0))))
    if op in ("floordiv", "mod", "fmod"):
        return np.where(b == 0, 0, _BINARY[op](a, b))
    if op in ("shl", "shr"):
        width = a.dtype.itemsize * 8
        legal = (b >= 0) & (b < width)
        shifted = (
            np.left_shift(a, np.where(legal, b, 0))
            if op == "shl"
            else np.right_shift(a, np.where(legal, b, 0))
        )
        return np.where(legal, shifted, 0)
    if op == "pow":
        from intarsia.kernel.evaluate import binary

        return np.frompyfunc(lambda x, y: binary("pow", x, y, dtype), 2, 1)(a, b).astype(a.dtype)
    if dtype == "bool" and op in ("add", "sub", "mul", "min", "max", "bitand", "bitor", "bitxor"):
        op = {"add": "xor", "sub": "xor", "mul": "and", "min": "and", "max": "or"}.get(
            op, op.removeprefix("bit")
        )
    result = _BINARY[op](a, b)
    return result if op in COMPARE else np.asarray(result).astype(a.dtype)


def cast_values(x: np.ndarray, source: str, dtype: str) -> np.ndarray:
    """See kernel.expr.Cast."""
    if dtype == "bool":
        return x != 0
    if is_float(dtype) or not is_float(source):
        wide = x.astype(np.float32) if dtype in ("float16", "bfloat16") and not is_float(source) else x
        return wide.astype(numpy_type(dtype))
    info = np.iinfo(dtype)
    whole = np.trunc(x.astype(np.float64))
    inside = (whole >= float(info.min)) & (whole < float(info.max) + 1)
    safe = np.where(inside, whole, 0).astype(np.dtype(dtype))
    return np.where(
        np.isnan(x),
        0,
        np.where(whole > 0, np.where(inside, safe, info.max), np.where(inside, safe, info.min)),
    )

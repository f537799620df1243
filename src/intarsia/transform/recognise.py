"""Operators that an exporter took apart are put together again.

    %m = reduce.mean(%x, [-1], keepdims=True); %d = subtract(%x, %m)
    %v = reduce.mean(multiply(%d, %d), [-1], keepdims=True)
    multiply(divide(%d, sqrt(add(%v, 1e-5f))), %scale)                nn.layer_norm(%x, %scale, epsilon=1e-05)

A following `add` of a constant becomes the bias.
"""

from __future__ import annotations

import numpy as np

from intarsia.ir import Call, Constant, Expr, IRModule, TensorType, call
from intarsia.transform.rewriting import Match, is_call, rewrite_module, scalar


def recognise(module: IRModule) -> IRModule:
    """Layer normalisation recognised in every function."""
    return rewrite_module(module, {"divide": [_normalised], "multiply": [_scaled], "add": [_biased]})


def _normalised(m: Match) -> Expr | None:
    d, root = m.args
    if not (is_call(d, "subtract") and is_call(root, "sqrt")):
        return None
    shifted = root.args[0]  # type: ignore[attr-defined]
    if not is_call(shifted, "add"):
        return None
    variance, epsilon = _split_scalar(shifted)
    x, mean = d.args  # type: ignore[attr-defined]
    t = m.graph.type_of(x)
    if variance is None or epsilon is None or not isinstance(t, TensorType) or not t.shape[-1].is_const:
        return None
    if not (_is_mean_of(mean, x, t.rank) and is_call(variance, "reduce.mean")):
        return None
    square = variance.args[0]  # type: ignore[attr-defined]
    if not (is_call(square, "multiply") and _is_mean_of(variance, square, t.rank)):
        return None
    if not all(_same_difference(s, d) for s in square.args):  # type: ignore[attr-defined]
        return None
    scale = Constant(np.ones(t.shape[-1].value, t.dtype), span=m.span)
    return call("nn.layer_norm", x, scale, axis=-1, epsilon=epsilon, span=m.span)


def _same_difference(a: Expr, b: Expr) -> bool:
    """The same node, or the same subtraction written twice."""
    return a is b or (is_call(a, "subtract") and is_call(b, "subtract") and a.args == b.args)  # type: ignore[attr-defined]


def _is_mean_of(e: Expr, x: Expr, rank: int) -> bool:
    if not (is_call(e, "reduce.mean") and isinstance(e, Call) and e.args[0] is x and e.attrs.get("keepdims")):
        return False
    axes = e.args[1] if len(e.args) > 1 else None
    return isinstance(axes, Constant) and [int(a) % rank for a in axes.value.flat] == [rank - 1]


def _split_scalar(add: Expr) -> tuple[Expr | None, float | None]:
    a, b = add.args  # type: ignore[attr-defined]
    if scalar(b) is not None:
        return a, scalar(b)
    return (b, scalar(a)) if scalar(a) is not None else (None, None)


def _scaled(m: Match) -> Expr | None:
    for norm, scale in (m.args, m.args[::-1]):
        if (
            is_call(norm, "nn.layer_norm")
            and isinstance(norm, Call)
            and len(norm.args) == 2
            and m.graph.used_once(norm)
        ):
            vector = _row_vector(scale, m.graph.type_of(norm))
            if vector is not None and isinstance(norm.args[1], Constant):
                product = Constant(norm.args[1].value * vector, span=m.span)
                return Call(norm.op, (norm.args[0], product), norm.attrs, span=norm.span)
    return None


def _biased(m: Match) -> Expr | None:
    for norm, bias in (m.args, m.args[::-1]):
        if (
            is_call(norm, "nn.layer_norm")
            and isinstance(norm, Call)
            and len(norm.args) == 2
            and m.graph.used_once(norm)
        ):
            vector = _row_vector(bias, m.graph.type_of(norm))
            if vector is not None:
                return Call(norm.op, (*norm.args, Constant(vector, span=m.span)), norm.attrs, span=norm.span)
    return None


def _row_vector(e: Expr, t: object) -> np.ndarray | None:
    """A constant that is one value per element of the last dimension, as a vector."""
    if not isinstance(e, Constant) or not isinstance(t, TensorType) or e.value.dtype != np.dtype(t.dtype):
        return None
    if not t.shape[-1].is_const:
        return None
    width = t.shape[-1].value
    if e.value.size == 1:
        return np.full(width, e.value.reshape(()))
    fits = e.value.size == width and e.value.shape[-1:] == (width,)
    return e.value.reshape(width) if fits else None

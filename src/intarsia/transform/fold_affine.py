"""Constant scales and shifts after a convolution or matrix product go into its weights and bias.

    nn.batch_norm(nn.conv(%x, W), …constants)        nn.conv(%x, W * scale, shift)
    add(nn.conv(%x, W), const of shape (1, C, 1, 1)) nn.conv(%x, W, const)
    multiply(matmul(%x, W), const of shape (C,))     matmul(%x, W * const)
    multiply(transpose(add(matmul(%x, W), B)), 0.1f) transpose(add(matmul(%x, 0.1 * W), 0.1 * B))
    nn.batch_norm(%x, …constants) alone              add(multiply(%x, scale), shift)

Only where the inner result has no other use. Results change by rounding only.
"""

from __future__ import annotations

import numpy as np

from intarsia.ir import Call, Constant, Expr, IRModule, TensorType, call
from intarsia.transform.rewriting import Match, is_call, is_unit, rewrite_module

_CONV = ("nn.conv", "nn.conv_transpose")


def fold_affine(module: IRModule) -> IRModule:
    """Batch normalisation and constant affine maps folded in every function."""
    return rewrite_module(module, {"nn.batch_norm": [_batch_norm], "multiply": [_scale], "add": [_shift]})


def _batch_norm(m: Match) -> Expr | None:
    x, *parameters = m.args
    if not all(isinstance(p, Constant) for p in parameters):
        return None
    scale, bias, mean, var = (p.value.astype(np.float64) for p in parameters)  # type: ignore[attr-defined]
    factor = scale / np.sqrt(var + float(m.attrs["epsilon"]))  # type: ignore[arg-type]
    shift = bias - mean * factor
    dtype = m.out.dtype
    axis = int(m.attrs["axis"]) % m.out.rank  # type: ignore[arg-type]
    if axis == 1 and is_call(x, *_CONV) and m.graph.used_once(x):
        folded = _into_conv(x, factor, shift, m)
        if folded is not None:
            return folded
    shape = [-1 if i == axis else 1 for i in range(m.out.rank)]
    scaled = call("multiply", x, _constant(factor.reshape(shape), dtype, m), span=m.span)
    return call("add", scaled, _constant(shift.reshape(shape), dtype, m), span=m.span)


def _scale(m: Match) -> Expr | None:
    for x, c in (m.args, m.args[::-1]):
        if not isinstance(c, Constant) or m.graph.type_of(x) != m.out or not m.graph.used_once(x):
            continue
        if is_call(x, *_CONV):
            per_channel = _per_channel(c.value, m.out, axis=1)
            return None if per_channel is None else _into_conv(x, per_channel, np.zeros(1), m)
        if is_call(x, "matmul"):
            per_column = _per_channel(c.value, m.out, axis=m.out.rank - 1)
            return None if per_column is None else _into_matmul(x, per_column, m)
        if c.value.size == 1 and c.value.dtype.kind == "f":
            return _scale_source(x, float(c.value.reshape(())), m)
    return None


_MOVES = ("reshape", "transpose", "expand_dims", "squeeze", "flatten")


def _scale_source(x: Expr, factor: float, m: Match) -> Expr | None:
    """factor * moved(matmul(a, W) + b) as moved(matmul(a, factor * W) + factor * b): the scale of attention's
    queries.
    """
    moves: list[Call] = []
    while is_call(x, *_MOVES) and m.graph.used_once(x):
        assert isinstance(x, Call)
        moves.append(x)
        x = x.args[0]
    if not m.graph.used_once(x):
        return None
    scaled: Expr | None = None
    if is_call(x, "matmul"):
        scaled = _into_matmul(x, np.array([factor]), m)
    elif is_call(x, "add"):
        assert isinstance(x, Call)
        for product, bias in (x.args, x.args[::-1]):
            if isinstance(bias, Constant) and is_call(product, "matmul") and m.graph.used_once(product):
                inner = _into_matmul(product, np.array([factor]), m)
                if inner is not None:
                    new_bias = Constant((bias.value * factor).astype(bias.value.dtype), span=bias.span)
                    scaled = Call(x.op, (inner, new_bias), x.attrs, span=x.span)
    if scaled is None:
        return None
    for move in reversed(moves):
        scaled = Call(move.op, (scaled, *move.args[1:]), move.attrs, span=move.span)
    return scaled


def _shift(m: Match) -> Expr | None:
    for x, c in (m.args, m.args[::-1]):
        if (
            isinstance(c, Constant)
            and is_call(x, *_CONV)
            and m.graph.type_of(x) == m.out
            and m.graph.used_once(x)
        ):
            per_channel = _per_channel(c.value, m.out, axis=1)
            return None if per_channel is None else _into_conv(x, np.ones(1), per_channel, m)
    return None


def _per_channel(value: np.ndarray, t: TensorType, axis: int) -> np.ndarray | None:
    """A constant that broadcasts along one axis only, as a float64 vector (one element if it is a scalar)."""
    if value.dtype.kind != "f" or value.ndim > t.rank:
        return None
    shape = (1,) * (t.rank - value.ndim) + value.shape
    if any(d != 1 for i, d in enumerate(shape) if i != axis):
        return None
    return value.reshape(-1).astype(np.float64)


def _into_conv(conv: Expr, factor: np.ndarray, shift: np.ndarray, m: Match) -> Expr | None:
    """conv * factor + shift as one convolution; factor and shift per output channel (or one for all)."""
    assert isinstance(conv, Call)
    data, weight, *rest = conv.args
    bias = rest[0] if rest and not is_unit(rest[0]) else None
    if not isinstance(weight, Constant) or not (bias is None or isinstance(bias, Constant)):
        return None
    transposed = is_call(conv, "nn.conv_transpose")
    if transposed and conv.attrs.get("groups", 1) != 1:
        return None
    dtype = weight.value.dtype
    out_axis = 1 if transposed else 0
    channels = weight.value.shape[out_axis]
    factor, shift = np.broadcast_to(factor, channels), np.broadcast_to(shift, channels)
    spread = [-1 if i == out_axis else 1 for i in range(weight.value.ndim)]
    new_weight = (
        weight if (factor == 1).all() else Constant((weight.value * factor.reshape(spread)).astype(dtype))
    )
    old_bias = bias.value if bias is not None else 0.0
    new_bias = Constant((old_bias * factor + shift).astype(dtype), span=m.span)
    keep = bias is None and not new_bias.value.any()
    args = (data, new_weight) if keep else (data, new_weight, new_bias)
    return Call(conv.op, args, conv.attrs, span=conv.span)


def _into_matmul(product: Expr, factor: np.ndarray, m: Match) -> Expr | None:
    assert isinstance(product, Call)
    weight = product.args[1]
    if not isinstance(weight, Constant) or weight.value.ndim != 2 or weight.value.dtype.kind != "f":
        return None
    scaled = weight.value * (factor.reshape(-1, 1) if product.attrs.get("transpose_b") else factor)
    constant = Constant(np.ascontiguousarray(scaled.astype(weight.value.dtype)), span=m.span)
    return Call(product.op, (product.args[0], constant), product.attrs, span=product.span)


def _constant(value: np.ndarray, dtype: str, m: Match) -> Constant:
    return Constant(np.ascontiguousarray(value.astype(dtype)), span=m.span)

"""Quantised operators, spelled out in the arithmetic that they stand for."""

from __future__ import annotations

import numpy as np

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.frontend.onnx.tensors import DTYPES, dtype_name
from intarsia.ir.expr import Expr

_STEPS = ("cast", "subtract", "multiply", "divide", "add", "round", "clip")


def _blocked(node: Node) -> str | None:
    if node.int("block_size", 0):
        return "blocks of scales"
    if node.int("output_dtype", 0) not in (0, *DTYPES):
        return "its output type"
    return None


def _along(b: Builder, e: Expr, x: Expr, axis: int) -> Expr:
    """A scale or zero point, one a tensor or one a place of the axis, so that it broadcasts against x."""
    if b.rank(e) == 0:
        return e
    if b.rank(e) != 1:
        return e
    if b.type(e).shape[0] == 1:
        return b.scalar(e)
    trailing = b.rank(x) - b.axis(axis, x) - 1
    return b.op("expand_dims", e, axes=tuple(range(1, 1 + trailing))) if trailing else e


def _dequantized(b: Builder, x: Expr, scale: Expr, zero: Expr | None, axis: int) -> Expr:
    """(x - zero) * scale in float32."""
    wide = b.cast(x, "int32")
    if zero is not None and b.dtype(x) != "int32":
        wide = b.op("subtract", wide, b.cast(_along(b, zero, x, axis), "int32"))
    return b.op("multiply", b.cast(wide, b.dtype(scale)), _along(b, scale, x, axis))


def _quantized(b: Builder, x: Expr, scale: Expr, zero: Expr | None, dtype: str, axis: int) -> Expr:
    """x / scale rounded to even, plus zero, held in the range of dtype."""
    near = b.op("round", b.op("divide", x, _along(b, scale, x, axis)))
    if zero is not None:
        near = b.op("add", near, b.cast(_along(b, zero, x, axis), b.dtype(x)))
    info = np.iinfo(dtype)
    return b.cast(b.op("clip", near, b.like(info.min, x), b.like(info.max, x)), dtype)


@converts("DequantizeLinear", needs=_STEPS, limit=_blocked)
def _dequantize(b: Builder, node: Node) -> Expr:
    y = _dequantized(b, node.arg(0), node.arg(1), node.maybe(2), node.int("axis", 1))
    to = node.int("output_dtype", 0)
    return b.cast(y, dtype_name(to, node.where)) if to else y


@converts("QuantizeLinear", needs=_STEPS, limit=_blocked)
def _quantize(b: Builder, node: Node) -> Expr:
    zero, to = node.maybe(2), node.int("output_dtype", 0)
    dtype = b.dtype(zero) if zero is not None else dtype_name(to, node.where) if to else "uint8"
    if dtype.startswith(("float", "bfloat")):
        raise node.unsupported(f"quantisation to {dtype}")
    x, scale = node.arg(0), node.arg(1)
    return _quantized(b, b.cast(x, "float32"), b.cast(scale, "float32"), zero, dtype, node.int("axis", 1))


@converts("DynamicQuantizeLinear", needs=(*_STEPS, "reduce.max", "reduce.min", "maximum", "minimum", "where"))
def _dynamic_quantize(b: Builder, node: Node) -> tuple[Expr, ...]:
    """Scale and zero point from x's own range, which always holds 0 (ONNX DynamicQuantizeLinear-11)."""
    x, nothing = node.arg(0), b.const(0, "float32")
    low = b.op("minimum", b.op("reduce.min", x), nothing)
    high = b.op("maximum", b.op("reduce.max", x), nothing)
    scale = b.op("divide", b.op("subtract", high, low), b.const(255, "float32"))
    safe = b.op("where", b.op("equal", scale, nothing), b.const(1, "float32"), scale)
    place = b.op("clip", b.op("divide", b.op("negative", low), safe), nothing, b.const(255, "float32"))
    zero = b.cast(b.op("round", place), "uint8")
    return _quantized(b, x, safe, zero, "uint8", 0), scale, zero


def _centred(b: Builder, x: Expr, zero: Expr | None, axis: int) -> Expr:
    """x - zero in int32; a vector of zeros runs along the axis."""
    wide = b.cast(x, "int32")
    return wide if zero is None else b.op("subtract", wide, b.cast(_along(b, zero, x, axis), "int32"))


@converts("MatMulInteger", needs=("matmul", "cast", "subtract"))
def _matmul_integer(b: Builder, node: Node) -> Expr:
    x, y = node.arg(0), node.arg(1)
    return b.op("matmul", _centred(b, x, node.maybe(2), -2), _centred(b, y, node.maybe(3), -1))


def _window(node: Node) -> dict:
    auto = node.string("auto_pad", "NOTSET")
    return {
        "strides": node.ints("strides", None),
        "padding": node.ints("pads", None) if auto == "NOTSET" else None,
        "dilation": node.ints("dilations", None),
        "groups": node.int("group", 1),
        "auto_pad": auto,
    }


@converts("ConvInteger", needs=("nn.conv", "cast", "subtract"))
def _conv_integer(b: Builder, node: Node) -> Expr:
    """Padding stands for the zero point, so it is 0 once that is subtracted."""
    x, w = _centred(b, node.arg(0), node.maybe(2), 1), _centred(b, node.arg(1), node.maybe(3), 0)
    return b.op("nn.conv", x, w, **_window(node))


@converts("QLinearMatMul", needs=(*_STEPS, "matmul"))
def _qlinear_matmul(b: Builder, node: Node) -> Expr:
    x, x_scale, x_zero, y, y_scale, y_zero, scale, zero = (node.arg(i) for i in range(8))
    total = b.op("matmul", _centred(b, x, x_zero, -2), _centred(b, y, y_zero, -1))
    factor = b.op("multiply", _rows(b, x_scale, x, -2), _rows(b, y_scale, y, -1))
    real = b.op("multiply", b.cast(total, "float32"), b.cast(factor, "float32"))
    return _quantized(b, real, b.cast(scale, "float32"), zero, b.dtype(zero), -1)


def _rows(b: Builder, scale: Expr, x: Expr, axis: int) -> Expr:
    return b.cast(_along(b, scale, x, axis), "float32")


@converts("QLinearConv", needs=(*_STEPS, "nn.conv"))
def _qlinear_conv(b: Builder, node: Node) -> Expr:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (node.arg(i) for i in range(8))
    bias = node.maybe(8)
    total = b.op("nn.conv", _centred(b, x, x_zero, 1), _centred(b, w, w_zero, 0), bias, **_window(node))
    factor = b.op("multiply", b.scalar(x_scale), _along(b, w_scale, total, 1))
    return _quantized(
        b,
        b.op("multiply", b.cast(total, "float32"), factor),
        b.scalar(scale),
        b.scalar(zero),
        b.dtype(zero),
        1,
    )

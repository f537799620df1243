"""Resize and Upsample."""

from __future__ import annotations

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.ir.expr import Attr, Constant, Expr
from intarsia.support.errors import UnsupportedError


def _given(b: Builder, e: Expr | None) -> Expr | None:
    """Exporters write an empty tensor for a missing input."""
    return None if e is None or any(d == 0 for d in b.type(e).shape) else e


def _must_be_constant(node: Node, scales: Expr) -> None:
    if not isinstance(scales, Constant):
        raise UnsupportedError(
            "ONNX-023",
            f"the scales of {node.op} must be known when the model is compiled, but they are not constant",
            where=node.where,
            remedy="export the model with constant scales, or with sizes, which may be computed",
        )


@converts("Resize", needs=("image.resize",))
def _resize(b: Builder, node: Node) -> Expr:
    x, mode = node.arg(0), node.string("mode", "nearest")
    if node.version < 11:
        return _scaled(b, node, x, node.arg(1), mode)
    roi, scales, sizes = (_given(b, node.maybe(i)) for i in (1, 2, 3))
    if scales is not None and sizes is None:
        _must_be_constant(node, scales)
    attrs: dict[str, Attr] = {
        "mode": mode,
        "coordinate_transformation": node.string("coordinate_transformation_mode", "half_pixel"),
        "nearest_mode": node.string("nearest_mode", "round_prefer_floor"),
        "cubic_coeff_a": node.float("cubic_coeff_a", -0.75),
        "exclude_outside": node.flag("exclude_outside"),
        "extrapolation_value": node.float("extrapolation_value", 0.0),
    }
    if node.version >= 18:
        attrs["antialias"] = node.flag("antialias")
        attrs["axes"] = node.ints("axes", None)
        attrs["keep_aspect_ratio_policy"] = node.string("keep_aspect_ratio_policy", "stretch")
    if attrs["coordinate_transformation"] != "tf_crop_and_resize":
        roi = None
    return b.op("image.resize", x, roi, scales, sizes, **attrs)


@converts("Upsample", needs=("image.resize",))
def _upsample(b: Builder, node: Node) -> Expr:
    if node.version >= 9:
        scales: Expr = node.arg(1)
    elif node.version >= 7:
        scales = b.const(node.floats("scales"), "float32")
    else:
        scales = b.const([1.0, 1.0, node.float("height_scale"), node.float("width_scale")], "float32")
    return _scaled(b, node, node.arg(0), scales, node.string("mode", "nearest"))


def _scaled(b: Builder, node: Node, x: Expr, scales: Expr, mode: str) -> Expr:
    """Upsample and Resize-10: place i of the result is place i / scale of x, rounded down for nearest."""
    _must_be_constant(node, scales)
    mode = "linear" if mode == "bilinear" else mode
    return b.op(
        "image.resize",
        x,
        None,
        scales,
        mode=mode,
        coordinate_transformation="asymmetric",
        nearest_mode="floor",
    )

"""Constants, shapes, and operators that move elements."""

from __future__ import annotations

import numpy as np

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.frontend.onnx.tensors import DTYPES, dtype_name, to_array
from intarsia.ir.expr import Constant, Expr, TupleGet

_MAX_OUTPUTS = 1 << 16


# ---- constants ---------------------------------------------------------------------------------------------
def _constant_limit(node: Node) -> str | None:
    kinds = ("value", "value_float", "value_floats", "value_int", "value_ints")
    return None if any(node.has(k) for k in kinds) else "strings or sparse tensors"


@converts("Constant", limit=_constant_limit)
def _constant(b: Builder, node: Node) -> Expr:
    if node.has("value_float"):
        return b.const(node.float("value_float"), "float32")
    if node.has("value_floats"):
        return b.const(node.floats("value_floats"), "float32")
    if node.has("value_int"):
        return b.const(node.int("value_int"), "int64")
    if node.has("value_ints"):
        return b.const(node.ints("value_ints"), "int64")
    return Constant(to_array(node.tensor("value"), b.folder, node.where), span=b.span)


@converts("ConstantOfShape", needs=("full",))
def _constant_of_shape(b: Builder, node: Node) -> Expr:
    value = np.zeros((), np.float32)
    if node.has("value"):
        value = to_array(node.tensor("value"), b.folder, node.where)
        if value.size != 1:
            raise node.unsupported("its value must be one number")
    return b.op("full", node.arg(0), Constant(value.reshape(()), span=b.span))


@converts("Shape", needs=("shape_of",))
def _shape(b: Builder, node: Node) -> Expr:
    return b.op("shape_of", node.arg(0), start=node.int("start", 0), end=node.int("end", None))


@converts("Size", needs=("size_of",))
def _size(b: Builder, node: Node) -> Expr:
    return b.op("size_of", node.arg(0))


@converts("Range", needs=("arange",))
def _range(b: Builder, node: Node) -> Expr:
    return b.op("arange", *(b.scalar(node.arg(i)) for i in range(3)))


def _eye_limit(node: Node) -> str | None:
    return None if node.int("dtype", 1) in DTYPES else "its element type"


@converts("EyeLike", needs=("eye_like",), limit=_eye_limit)
def _eye_like(b: Builder, node: Node) -> Expr:
    dtype = dtype_name(node.int("dtype"), node.where) if node.has("dtype") else b.dtype(node.arg(0))
    return b.op("eye_like", node.arg(0), k=node.int("k", 0), dtype=dtype)


@converts("OneHot", needs=("one_hot",))
def _one_hot(b: Builder, node: Node) -> Expr:
    indices, depth = b.cast(node.arg(0), "int64"), b.cast(b.scalar(node.arg(1)), "int64")
    return b.op("one_hot", indices, depth, node.arg(2), axis=node.int("axis", -1))


@converts("Trilu", needs=("trilu",))
def _trilu(b: Builder, node: Node) -> Expr:
    k = node.maybe(1)
    return b.op("trilu", node.arg(0), b.scalar(k) if k is not None else None, upper=node.flag("upper", True))


# ---- views -------------------------------------------------------------------------------------------------
@converts("Reshape", needs=("reshape",))
def _reshape(b: Builder, node: Node) -> Expr:
    shape = node.arg(1) if node.version >= 5 else b.ints(node.ints("shape"))
    return b.op("reshape", node.arg(0), shape, allowzero=node.flag("allowzero"))


@converts("Flatten", needs=("flatten",))
def _flatten(b: Builder, node: Node) -> Expr:
    return b.op("flatten", node.arg(0), axis=node.int("axis", 1))


def axes_of(b: Builder, node: Node, version: int) -> tuple[int, ...] | None:
    """Axes: an attribute before operator set `version`, then input 1; must be known, for they decide the
    rank.
    """
    if node.version < version:
        return node.ints("axes", None)
    axes = node.maybe(1)
    return None if axes is None else b.known(axes, f"the axes of {node.op}")


@converts("Squeeze", needs=("squeeze",))
def _squeeze(b: Builder, node: Node) -> Expr:
    x, axes = node.arg(0), axes_of(b, node, 13)
    return b.op("squeeze", x, axes=tuple(b.axis(a, x) for a in axes) if axes is not None else None)


@converts("Unsqueeze", needs=("expand_dims",))
def _unsqueeze(b: Builder, node: Node) -> Expr:
    return b.op("expand_dims", node.arg(0), axes=axes_of(b, node, 13) or ())


@converts("Transpose", needs=("transpose",))
def _transpose(b: Builder, node: Node) -> Expr:
    return b.op("transpose", node.arg(0), axes=node.ints("perm", None))


# ---- joining and cutting -----------------------------------------------------------------------------------
@converts("Concat", needs=("concatenate",))
def _concat(b: Builder, node: Node) -> Expr:
    axis = node.int("axis", 1) if node.version < 4 else node.int("axis")
    return b.op("concatenate", *(node.arg(i) for i in range(len(node.args))), axis=axis)


@converts("Split", needs=("split",))
def _split(b: Builder, node: Node) -> tuple[Expr, ...]:
    sizes, axis = node.maybe(1), node.int("axis", 0)
    if node.version < 13 and node.has("split"):
        sizes = b.ints(node.ints("split"))
    parts = None if sizes is not None else node.int("num_outputs", len(node.outputs))
    if parts is not None and not 1 <= parts <= _MAX_OUTPUTS:
        raise node.unsupported(f"{parts} outputs")
    pieces = b.op("split", node.arg(0), sizes, axis=axis, parts=parts)
    return tuple(TupleGet(pieces, i, span=b.span) for i in range(len(node.outputs)))


@converts("Slice", needs=("slice",))
def _slice(b: Builder, node: Node) -> Expr:
    if node.version >= 10:
        axes, steps = (
            b.fixed(node.maybe(i), f"the {what} of Slice") for i, what in ((3, "axes"), (4, "steps"))
        )
        return b.op("slice", node.arg(0), node.arg(1), node.arg(2), axes, steps)
    axes = node.ints("axes", None)
    starts, ends = b.ints(node.ints("starts")), b.ints(node.ints("ends"))
    return b.op("slice", node.arg(0), starts, ends, b.ints(axes) if axes is not None else None)


@converts("Expand", needs=("expand",))
def _expand(b: Builder, node: Node) -> Expr:
    return b.op("expand", node.arg(0), node.arg(1))


@converts("Tile", needs=("tile",))
def _tile(b: Builder, node: Node) -> Expr:
    x, repeats = node.arg(0), node.arg(1)
    if node.version < 6:  # one axis
        axis, count = b.known(node.arg(2), "the axis of Tile")[0], b.known(repeats, "the tiles of Tile")[0]
        repeats = b.ints([count if a == axis else 1 for a in range(b.rank(x))])
    return b.op("tile", x, repeats)


@converts("Pad", needs=("pad",))
def _pad(b: Builder, node: Node) -> Expr:
    x, mode = node.arg(0), node.string("mode", "constant")
    if node.version < 11:
        pads = b.ints(node.ints("pads" if node.has("pads") else "paddings"))
        return b.op("pad", x, pads, b.like(node.float("value", 0.0), x), mode=mode)
    value, axes = node.maybe(2), b.fixed(node.maybe(3), "the axes of Pad")
    return b.op("pad", x, node.arg(1), b.scalar(value) if value is not None else None, axes, mode=mode)


@converts("DepthToSpace", needs=("depth_to_space",))
def _depth_to_space(b: Builder, node: Node) -> Expr:
    return b.op("depth_to_space", node.arg(0), block=node.int("blocksize"), mode=node.string("mode", "DCR"))


@converts("SpaceToDepth", needs=("space_to_depth", "transpose", "reshape", "concatenate"))
def _space_to_depth(b: Builder, node: Node) -> Expr:
    x, block, mode = node.arg(0), node.int("blocksize"), node.string("mode", "DCR")
    blocks_first = b.op("space_to_depth", x, block=block)
    if mode == "DCR":
        return blocks_first
    batch, channels = (b.op("shape_of", x, start=k, end=k + 1) for k in (0, 1))
    space = b.op("shape_of", blocks_first, start=2)
    apart = b.op("concatenate", batch, b.ints([block * block]), channels, space, axis=0)
    swapped = b.op("transpose", b.op("reshape", blocks_first, apart), axes=(0, 2, 1, 3, 4))
    return b.op("reshape", swapped, b.shape(blocks_first))


@converts("ReverseSequence", needs=("reverse_sequence",))
def _reverse_sequence(b: Builder, node: Node) -> Expr:
    time, batch = node.int("time_axis", 0), node.int("batch_axis", 1)
    return b.op("reverse_sequence", node.arg(0), node.arg(1), time_axis=time, batch_axis=batch)


# ---- gathering and scattering ------------------------------------------------------------------------------
@converts("Gather", needs=("take",))
def _gather(b: Builder, node: Node) -> Expr:
    return b.op("take", node.arg(0), node.arg(1), axis=node.int("axis", 0))


@converts("GatherElements", needs=("take_along_axis",))
def _gather_elements(b: Builder, node: Node) -> Expr:
    return b.op("take_along_axis", node.arg(0), node.arg(1), axis=node.int("axis", 0))


@converts("GatherND", needs=("gather_nd",))
def _gather_nd(b: Builder, node: Node) -> Expr:
    return b.op("gather_nd", node.arg(0), node.arg(1), batch_dims=node.int("batch_dims", 0))


@converts("ScatterND", needs=("scatter_nd",))
def _scatter_nd(b: Builder, node: Node) -> Expr:
    return b.op(
        "scatter_nd", node.arg(0), node.arg(1), node.arg(2), reduction=node.string("reduction", "none")
    )


@converts("ScatterElements", "Scatter", needs=("scatter_elements",))
def _scatter_elements(b: Builder, node: Node) -> Expr:
    axis, reduction = node.int("axis", 0), node.string("reduction", "none")
    return b.op("scatter_elements", node.arg(0), node.arg(1), node.arg(2), axis=axis, reduction=reduction)


@converts("NonZero", needs=("nonzero",))
def _nonzero(b: Builder, node: Node) -> Expr:
    return b.op("nonzero", node.arg(0))

"""Convolution with channels last, as the contraction of form.py: rows are places of the image, and one run of
the contracted loops goes over the window's rows, then over (window column, channel), which lie in one piece
in memory.

Padding is written out: the image is copied into a workspace with a border of zeros, so that no tile meets an
edge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Binary, Buffer, Expr, Index, identity_of, substitute
from intarsia.kernel.library.conv import ConvShape
from intarsia.kernel.stmt import If, Stmt, block, loop, store
from intarsia.kernel.strategy import Lowered
from intarsia.kernel.strategy.contraction.fill import vectorised
from intarsia.kernel.strategy.contraction.form import (
    Anchor,
    Form,
    address,
    build,
    find_anchor,
    flattened,
    inline,
)
from intarsia.kernel.strategy.contraction.matmul import plan
from intarsia.kernel.strategy.contraction.pack import parallel
from intarsia.kernel.strategy.region import Region
from intarsia.kernel.target import ITEMSIZE, Target
from intarsia.kernel.views import Flat


def conv(region: Region, target: Target) -> Lowered | None:
    """The kernel for a region around one channels-last convolution; else None."""
    anchor = find_anchor(region.outputs)
    shape = anchor.stage.hint.get("conv") if anchor else None
    if anchor is None or not isinstance(shape, ConvShape) or shape.layout != "NHWC":
        return None
    data, fill = padded_data(shape)
    form = conv_form(anchor, shape, data)
    if form is None:
        return None
    result = plan(form, region, target)
    if fill is not None:
        result.workspaces.append(data)
        result.stmts.insert(0, fill(form.flat, target))
    return result.lowered(region)


def conv_form(anchor: Anchor, shape: ConvShape, data: Buffer) -> Form | None:
    """Contraction over `data`, which holds the padding; its columns are the output channels of a group."""
    weight, groups = shape.weight, shape.groups
    if weight.dtype != anchor.buffer.dtype or data.dtype != anchor.buffer.dtype:
        return None
    per_group, channels = weight.shape[0] // groups, weight.shape[1]
    names = anchor.stage.axes
    places = [as_dim(0) if d == 1 else Symbol(v) for v, d in zip(names, anchor.buffer.shape)]
    column, group = Axis(fresh("o"), per_group), Axis(fresh("g"), as_dim(groups))
    o = Symbol(column.var)
    g = Symbol(group.var) if groups != 1 else as_dim(0)
    c, taps = Axis(fresh("c"), channels), [Axis(fresh("k"), k) for k in shape.kernel]
    axes = [x for x in anchor.axes if x.var != names[-1]]
    spatial = [p * s + _var(k) * d for p, s, k, d in zip(places[1:-1], shape.strides, taps, shape.dilation)]
    a = data[(places[0], *spatial, g * channels + _var(c))]
    b = weight[(g * per_group + o, _var(c), *map(_var, taps))]
    env = {names[-1]: g * per_group + o}
    values = [(out, tuple(i.subst(env) for i in at), substitute(v, env)) for out, at, v in anchor.values]
    regrouped = Anchor(anchor.buffer, anchor.stage, anchor.axes, values)
    regrouped.sums = anchor.sums
    loops = [*([group] if groups != 1 else []), *axes, column]
    return build(regrouped, a, b, column, loops, [*taps, c])


def _var(axis: Axis) -> Dim:
    return as_dim(0) if axis.extent == 1 else Symbol(axis.var)


def padded_data(shape: ConvShape) -> tuple[Buffer, Callable[[Flat, Target], Stmt] | None]:
    """The data with its padding in memory, and what fills it; the data itself if nothing is padded."""
    data = shape.data
    if not shape.padded:
        return data, None
    sizes = [d + b + e for d, (b, e) in zip(data.shape[1:-1], shape.padding)]
    padded = Buffer("padded", (data.shape[0], *sizes, data.shape[-1]), data.dtype)
    return padded, lambda flat, target: fill_padded(data, padded, shape.padding, flat, target)


def fill_padded(
    data: Buffer, padded: Buffer, padding: Sequence[tuple[Dim, Dim]], flat: Flat, target: Target
) -> Stmt:
    """padded = data with zeros around its spatial dimensions; parallel over all but the innermost one."""
    n, *sizes, channels = data.shape
    outer = [Axis(fresh("i"), d) for d in padded.shape[:-2]]
    lines = [_var(x) for x in outer]
    before = [p - b for p, (b, _) in zip(lines[1:], padding[:-1])]
    width, (begin, end) = sizes[-1], padding[-1]
    to, lanes = flat.view(padded), max(1, target.lanes(data.dtype)) * 4
    start = address(padded, (*lines, as_dim(0), as_dim(0)))
    zero = identity_of("sum", data.dtype)

    def zeros(first: Dim, count: Dim) -> Stmt:
        return vectorised(count, lanes, lambda i: store(to, (start + first + i,), zero))

    def copy() -> Stmt:
        if data.producer is None:
            source = address(data, (lines[0], *before, as_dim(0), as_dim(0)))
            return vectorised(
                width * channels,
                lanes,
                lambda i: store(to, (start + begin * channels + i,), flat.view(data)[source + i]),
            )
        w = Axis(fresh("w"), width)

        def element(c: Dim) -> Stmt:
            value = flattened(flat, inline(data[(lines[0], *before, _var(w), c)]))
            return store(to, (start + (begin + _var(w)) * channels + c,), value)

        return loop(w.var, width, vectorised(channels, lanes, element))

    inside: Expr | None = None
    for p, size, (b, e) in zip(before, sizes, padding[:-1]):
        for needed, test in ((b != 0, Index(p) >= 0), (e != 0, Index(p) < size)):
            if needed:
                inside = test if inside is None else Binary("and", inside, test)
    line = block(
        *([] if begin == 0 else [zeros(as_dim(0), begin * channels)]),
        copy(),
        *([] if end == 0 else [zeros((begin + width) * channels, end * channels)]),
    )
    whole = padded.shape[-2] * channels
    body = line if inside is None else If(inside, line, zeros(as_dim(0), whole))
    return parallel(outer, body, whole * ITEMSIZE[data.dtype] // 8)

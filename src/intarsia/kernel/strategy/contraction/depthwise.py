"""Depthwise convolution with channels last: lanes are channels, rows are output places, the window is the
contracted loop.

There is too little arithmetic to pay for a padded copy of the image, so borders are met where they are: outer
window axes run only over what lies inside, and along a line the few places whose window sticks out are
computed one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmax, dmin
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Load
from intarsia.kernel.library.conv import ConvShape, PoolShape
from intarsia.kernel.stmt import Stmt, block, loop
from intarsia.kernel.strategy import Lowered
from intarsia.kernel.strategy.contraction.form import (
    Anchor,
    Form,
    Result,
    address,
    find_anchor,
    flattened,
    inline,
    plain,
)
from intarsia.kernel.strategy.contraction.matmul import Plan, begin, packed_here, packed_weight
from intarsia.kernel.strategy.contraction.nest import Part, Tiles, lets
from intarsia.kernel.strategy.contraction.pack import Source, parallel
from intarsia.kernel.strategy.contraction.tile import TileShape, tile_shape
from intarsia.kernel.strategy.region import Region
from intarsia.kernel.target import Target
from intarsia.kernel.views import Flat


@dataclass(frozen=True, slots=True)
class Reach:
    """Along one spatial dimension: output place p reads input p · stride - before + k · dilation for k below
    `kernel`.
    """

    size: Dim
    kernel: Dim
    stride: int
    dilation: int
    before: Dim
    after: Dim

    def window(self, p: Dim) -> tuple[Dim, Dim]:
        """(first, count) of the window elements that lie inside the input at place p."""
        start = p * self.stride - self.before
        first = as_dim(0) if self.before == 0 else dmax(0, ceildiv(-start, self.dilation))
        last = (
            self.kernel if self.after == 0 else dmin(self.kernel, ceildiv(self.size - start, self.dilation))
        )
        return first, last - first if first == 0 and self.after == 0 else dmax(last - first, 0)

    def interior(self, places: Dim) -> tuple[Dim, Dim]:
        """(first, end) of the places whose window lies inside the input altogether."""
        span = (self.kernel - 1) * self.dilation
        first = as_dim(0) if self.before == 0 else dmin(ceildiv(self.before, self.stride), places)
        if self.after == 0:
            return first, places
        return first, dmax(first, dmin(places, (self.size - 1 - span + self.before) // self.stride + 1))


def depthwise(region: Region, target: Target) -> Lowered | None:
    """The kernel for a region around one channels-last convolution with one filter per channel; else None."""
    anchor = find_anchor(region.outputs)
    shape = anchor.stage.hint.get("conv") if anchor else None
    if anchor is None or not isinstance(shape, ConvShape) or shape.layout != "NHWC":
        return None
    channels = shape.weight.shape[0]
    if shape.groups == 1 or channels != shape.groups or shape.weight.shape[1] != 1:
        return None
    taps = tuple(Axis(fresh("k"), k) for k in shape.kernel)
    form = window_form(anchor, shape, taps)
    if form is None or shape.weight.dtype != form.dtype:
        return None
    weight = shape.weight[(Symbol(form.column.var), as_dim(0), *(Symbol(k.var) for k in taps))]
    return _plan(replace(form, b=inline(weight)), reaches(shape), region, target).lowered(region)


def window_form(anchor: Anchor, shape: ConvShape | PoolShape, taps: Sequence[Axis]) -> Form | None:
    """Windows over channels-last data, each channel by itself: rows are places, `inner` the window."""
    names = anchor.stage.axes
    places = [as_dim(0) if d == 1 else Symbol(v) for v, d in zip(names, anchor.buffer.shape)]
    spatial = [
        p * s + Symbol(k.var) * d - b
        for p, s, k, d, (b, _) in zip(places[1:-1], shape.strides, taps, shape.dilation, shape.padding)
    ]
    load = shape.data[(places[0], *spatial, places[-1])]
    dtype = anchor.buffer.dtype
    inlined = inline(load)
    prologue = () if plain(inlined, dtype) else (shape.data,)
    if not isinstance(inlined, Load) and shape.data.producer is None or shape.data.dtype != dtype:
        return None
    flat = Flat()
    a = flat.load(load if prologue else inlined)  # type: ignore[arg-type]
    at = a.indices[0]
    assert isinstance(at, Dim)
    column = Axis(names[-1], anchor.buffer.shape[-1])
    rows = tuple(Axis(v, d) for v, d in zip(names[:-1], anchor.buffer.shape[:-1]))
    if any(at.coefficient(x.var) is None for x in (*rows, column, *taps)):
        return None
    results = tuple(Result(flat.view(o), address(o, i), flattened(flat, v)) for o, i, v in anchor.values)
    if column.extent != 1 and any(p.coefficient(column.var) != 1 for p in (at, *(r.place for r in results))):
        return None
    return Form(
        (),
        rows,
        column,
        tuple(taps),
        a,
        None,
        results,
        anchor.sums,
        flat,
        prologue,
        anchor.reduce.op,
        tuple(taps),
    )


def reaches(shape: ConvShape | PoolShape) -> list[Reach]:
    """One for each spatial dimension."""
    return [
        Reach(size, as_dim(k), s, d, b, e)
        for size, k, s, d, (b, e) in zip(
            shape.data.shape[1:-1], shape.kernel, shape.strides, shape.dilation, shape.padding
        )
    ]


def _plan(form: Form, reaches: Sequence[Reach], region: Region, target: Target) -> Plan:
    result = begin(form, target)
    shape = window_tile(target, form)
    src = packed_weight(result, region, shape.width) or packed_here(result, shape.width, target)
    exact = Source(src.buffer, src.start, src.panel, src.strides, False, packed=True)
    result.stmts.append(window_lines(form, reaches, exact, shape, target))
    return result


def window_tile(target: Target, form: Form) -> TileShape:
    """Four places by two vectors (or three): every element of A is used once, so that more rows would only be
    more code.
    """
    shape = tile_shape(target, form.dtype, form.column.extent)
    return TileShape(min(4, shape.rows), shape.width)


def window_lines(
    form: Form, reaches: Sequence[Reach], src: Source | None, shape: TileShape, target: Target
) -> Stmt:
    """Lines of output places in parallel; in each, panel by panel: left border, interior, right border."""
    *lines, row = form.rows
    panels = ceildiv(form.column.extent, shape.width)
    tiles = Tiles(form, src, shape, target, row)
    *outer, along = reaches

    def line(bounds: list[Dim]) -> Stmt:
        windows = tuple(zip(bounds[: len(outer)], bounds[len(outer) : 2 * len(outer)]))
        first, end = bounds[2 * len(outer) :]
        panel = fresh("p")

        def emit(start: Dim, width: int, active: Dim | None) -> Stmt:
            column = Symbol(panel) * shape.width
            finish = tiles.stored(column, width, active)

            def border(begin: Dim, count: Dim) -> Stmt:
                u = fresh("u")
                m = begin + Symbol(u)

                def place(window: list[Dim]) -> Stmt:
                    part = Part((*windows, (window[0], window[1])))
                    return tiles.tile(1, m, column, width, start, part, finish)

                return loop(u, count, lets("window", along.window(m), place))

            def interior(rows: int, m: Dim) -> Stmt:
                part = Part((*windows, (as_dim(0), along.kernel)))
                return tiles.tile(rows, first + m, column, width, start, part, finish)

            count = end - first
            middle = tiles.rows(count, as_dim(0), ceildiv(count, shape.rows), interior, None)
            left = [] if first == 0 else [border(as_dim(0), first)]
            right = [] if along.after == 0 else [border(end, row.extent - end)]
            return block(*left, middle, *right)

        return loop(panel, panels, tiles.panel(Symbol(panel), emit))

    windows = [r.window(Symbol(x.var)) for r, x in zip(outer, lines[1:])]
    bounds = [*(w[0] for w in windows), *(w[1] for w in windows), *along.interior(row.extent)]
    size = as_dim(1)
    for x in form.inner:
        size = size * x.extent
    work = row.extent * form.column.extent * size // max(1, 2 * target.lanes(form.dtype))
    return parallel(lines, lets("edge", bounds, line), work)

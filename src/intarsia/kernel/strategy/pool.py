"""Pools with channels last: lanes are channels; the loops are those of depthwise convolution, without
weights.
"""

from __future__ import annotations

from dataclasses import replace

from intarsia.dim import Dim, as_dim
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis
from intarsia.kernel.library.conv import PoolShape
from intarsia.kernel.strategy import Lowered
from intarsia.kernel.strategy.contraction.depthwise import (
    Reach,
    reaches,
    window_form,
    window_lines,
    window_tile,
)
from intarsia.kernel.strategy.contraction.form import find_anchor
from intarsia.kernel.strategy.contraction.matmul import begin
from intarsia.kernel.strategy.region import Region
from intarsia.kernel.target import Target


def pool(region: Region, target: Target) -> Lowered | None:
    """The kernel for a region around one channels-last pool; else None."""
    for op in ("max", "sum"):
        anchor = find_anchor(region.outputs, op)
        shape = anchor.stage.hint.get("pool") if anchor else None
        if anchor is None or not isinstance(shape, PoolShape) or shape.layout != "NHWC":
            continue
        channels = anchor.buffer.shape[-1]
        form = window_form(anchor, shape, [Axis(fresh("k"), as_dim(k)) for k in shape.kernel])
        if form is None or not channels.is_const:
            return None
        edges = [_overhanging(r, n) for r, n in zip(reaches(shape), anchor.buffer.shape[1:-1])]
        result = begin(form, target)
        result.stmts.append(window_lines(form, edges, None, window_tile(target, form), target))
        return result.lowered(region)
    return None


def _overhanging(reach: Reach, places: Dim) -> Reach:
    """The reach with `after` set if the last window can stick out past the end, as in ceil mode."""
    span = (reach.kernel - 1) * reach.dilation + 1
    if reach.after != 0 or places == (reach.size + reach.before - span) // reach.stride + 1:
        return reach
    return replace(reach, after=as_dim(1))

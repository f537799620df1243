"""Vectorised loops for elementwise stages that a contraction needs in memory."""

from __future__ import annotations

from collections.abc import Callable

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.kernel.compute import Stage, fresh
from intarsia.kernel.expr import Axis, Buffer, Index, substitute
from intarsia.kernel.stmt import For, If, Stmt, block, loop, store
from intarsia.kernel.strategy.contraction.form import address, flattened, inline
from intarsia.kernel.strategy.contraction.pack import parallel
from intarsia.kernel.target import ITEMSIZE, Target
from intarsia.kernel.views import Flat


def vectorised(extent: Dim, lanes: int, body: Callable[[Dim], Stmt]) -> Stmt:
    """body(i) for i in 0 … extent, `lanes` at a time; the ragged end is a vector loop with fewer active
    lanes.
    """
    if extent.is_const and extent.value <= lanes:
        j = fresh("j")
        return For(j, extent, body(Symbol(j)), "vector")
    whole, rest = extent // lanes, extent % lanes
    v, j = fresh("v"), fresh("j")
    parts = [loop(v, whole, For(j, as_dim(lanes), body(Symbol(v) * lanes + Symbol(j)), "vector"))]
    if rest != 0:
        j = fresh("j")
        tail = body(whole * lanes + Symbol(j))
        if rest.is_const:
            parts.append(For(j, rest, tail, "vector"))
        else:
            parts.append(If(Index(rest) > 0, For(j, as_dim(lanes), tail, "vector", active=rest)))
    return block(*parts)


def fill_stage(buffer: Buffer, flat: Flat, target: Target) -> Stmt:
    """All elements of a stage's buffer, through its flat view; parallel over all dimensions but the last."""
    stage = buffer.producer
    assert isinstance(stage, Stage)
    value = inline(stage.body)
    *outer, last = (Axis(v, d) for v, d in zip(stage.axes, buffer.shape, strict=True))
    places = tuple(as_dim(0) if d == 1 else Symbol(v) for v, d in zip(stage.axes, buffer.shape))
    lanes = max(1, target.lanes(buffer.dtype)) * 2

    def element(i: Dim) -> Stmt:
        env = {last.var: i}
        place = address(buffer, [p.subst(env) for p in places])
        return store(flat.view(buffer), (place,), flattened(flat, substitute(value, env)))

    return parallel(outer, vectorised(last.extent, lanes, element), last.extent * ITEMSIZE[buffer.dtype] // 8)

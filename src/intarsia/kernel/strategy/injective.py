"""Stages without a reduction: every element by one expression.

Dimensions that all operands walk through together are one loop; conditions on one index (concatenate, pad)
become separate loops; transpositions are tiled; data-dependent places are loaded once outside the innermost
loop.
"""

from __future__ import annotations

from intarsia.dim import Symbol
from intarsia.kernel.stmt import Stmt
from intarsia.kernel.strategy.access import Assign, Memory
from intarsia.kernel.strategy.nest import Nest
from intarsia.kernel.strategy.region import Loops
from intarsia.kernel.target import Target
from intarsia.kernel.views import address


def injective(loops: Loops, memory: Memory, target: Target) -> Stmt:
    """The loops of one stage, memory seen through flat views."""
    place = address(loops.buffer.shape, tuple(Symbol(a.var) for a in loops.axes))
    assign = Assign(memory.view(loops.buffer), (place,), memory.expr(loops.body))  # type: ignore[arg-type]
    return Nest(target).schedule(loops.axes, [assign])

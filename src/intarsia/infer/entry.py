"""What a function does first: read its symbols from its arguments' shapes, and check the shapes against each
other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from intarsia.dim import Dim, Symbol
from intarsia.infer.typing import tensor_leaves
from intarsia.ir.types import Type


@dataclass(frozen=True, slots=True)
class Bind:
    """symbol = (size of `axis` of tensor `leaf` - offset) // factor; leaves count through the parameters'
    tuples.
    """

    symbol: str
    leaf: int
    axis: int
    factor: int
    offset: Dim


@dataclass(frozen=True, slots=True)
class Demand:
    """The size of `axis` of tensor `leaf` must be `dim`, and no symbol may be negative."""

    leaf: int
    axis: int
    dim: Dim


def entry_plan(params: Iterable[Type], known: Iterable[str] = ()) -> list[Bind | Demand]:
    """Steps in order; `known` symbols have values already. A symbol that no tensor's size determines is left
    out.
    """
    leaves = [t for p in params for t in tensor_leaves(p)]
    bound = set(known)
    steps: list[Bind | Demand] = []
    demands: list[Demand] = []
    compound: list[Demand] = []
    for leaf, t in enumerate(leaves):
        for axis, d in enumerate(t.shape):
            if d.symbol and d.symbol not in bound:
                bound.add(d.symbol)
                steps.append(Bind(d.symbol, leaf, axis, 1, Dim({})))
            elif d.symbol is None and not d.is_const:
                compound.append(Demand(leaf, axis, d))
            else:
                demands.append(Demand(leaf, axis, d))
    progress = True
    while progress:
        progress = False
        for demand in compound:
            missing = demand.dim.symbols() - bound
            if len(missing) == 1:
                (name,) = missing
                c = demand.dim.coefficient(name)
                if c is not None and c.is_const and c.value > 0:
                    offset = demand.dim - c * Symbol(name)
                    steps.append(Bind(name, demand.leaf, demand.axis, c.value, offset))
                    bound.add(name)
                    progress = True
    return steps + [d for d in demands + compound if d.dim.symbols() <= bound]

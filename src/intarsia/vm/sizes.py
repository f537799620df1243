"""Sizes as kernels see them: polynomials over symbols that are never negative.

A quotient, remainder, minimum or maximum in a size becomes a symbol of its own: the machine computes it once
for all kernels, and layers that differ only in how their image came to its size share one kernel.

What was read from a tensor may be negative. A dimension that mentions such a symbol becomes a symbol of its
own (a dimension is a size); elsewhere the symbol s becomes s+ - s-, with s+ = max(s, 0) and s- = max(-s, 0).
The machine computes the new symbols.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np

from intarsia.dim import Atom, Bounds, Dim, Symbol, as_dim, dmax
from intarsia.ir.expr import Attr
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.op.entry import Site


class Sizes:
    """The rewriting of one region. derived: new symbols and what they stand for."""

    def __init__(self, bounds: Bounds):
        self.bounds = bounds
        self.derived: dict[str, Dim] = {}
        self._dimension: dict[Dim, Dim] = {}
        self._parts: dict[str, Dim] = {}

    def dimension(self, d: Dim) -> Dim:
        """A tensor's dimension."""
        if not self._signed(d):
            return d.map_atoms(self._atom)
        if d not in self._dimension:
            self._dimension[d] = self._new(f"size{len(self._dimension)}", d)
        return self._dimension[d]

    def number(self, d: Dim) -> Dim:
        """Any other integer expression."""
        signed = self._signed(d)
        if not signed:
            return d.map_atoms(self._atom)
        for s in signed:
            if s not in self._parts:
                self._parts[s] = self._new(f"{s}+", dmax(Symbol(s), 0)) - self._new(
                    f"{s}-", dmax(-Symbol(s), 0)
                )
        return d.subst(self._parts)

    def _atom(self, atom: Atom) -> Dim:
        d = Dim({((atom, 1),): 1})
        if self.bounds.interval(d)[0] < 0:
            return d
        if d not in self._dimension:
            self._dimension[d] = self._new(f"size{len(self._dimension)}", d)
        return self._dimension[d]

    def original(self, d: Dim) -> Dim:
        """The expression in the function's own symbols."""
        return d.subst(self.derived)

    def _signed(self, d: Dim) -> list[str]:
        return [s for s in sorted(d.symbols()) if self.bounds.interval(Symbol(s))[0] < 0]

    def _new(self, name: str, meaning: Dim) -> Dim:
        self.derived[name] = meaning
        return Symbol(name)

    # ---- what is made of dimensions ------------------------------------------------------------------------
    def type(self, t: TensorType) -> TensorType:
        shape = tuple(map(self.dimension, t.shape))
        return t if all(a is b for a, b in zip(shape, t.shape)) else TensorType(shape, t.dtype)

    def contents(self, values: np.ndarray) -> np.ndarray:
        """Known contents of an integer tensor."""
        out = np.empty(values.shape, object)
        for place, d in np.ndenumerate(values):
            out[place] = self.number(as_dim(d))
        return out

    def site(self, site: Site) -> Site:
        """The site with everything rewritten; itself if nothing is to be."""
        before = len(self.derived)
        new = copy.copy(site)
        new.args = tuple(
            replace(a, type=self._any_type(a.type), value=None if a.value is None else self.contents(a.value))
            for a in site.args
        )
        new.attrs = {k: self._attr(v) for k, v in site.attrs.items()}
        new.out = tuple(map(self.type, site.out))
        new._items = {i: self.contents(v) for i, v in site._items.items()}
        return site if len(self.derived) == before and not self.derived else new

    def _any_type(self, t: Type) -> Type:
        match t:
            case TensorType():
                return self.type(t)
            case TupleType(fields=fields):
                return TupleType(tuple(map(self._any_type, fields)))
        return t

    def _attr(self, a: Attr) -> Attr:
        if isinstance(a, Dim):
            return self.number(a)
        return tuple(map(self._attr, a)) if isinstance(a, tuple) else a

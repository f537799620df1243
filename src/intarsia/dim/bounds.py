"""What is known about symbols: lower and upper bounds, and what follows for expressions."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from intarsia.dim.expr import Atom, DimLike, as_dim

Interval = tuple[float, float]


class Bounds:
    """Intervals for symbols. A symbol without an entry is a tensor dimension: 0 … infinity."""

    def __init__(self, known: Mapping[str, Interval] | None = None):
        self.known: dict[str, Interval] = dict(known or {})

    def interval(self, d: DimLike) -> Interval:
        """Smallest and largest value of d, by interval arithmetic (sound, not always tight)."""
        low = high = 0.0
        for monomial, c in as_dim(d).terms.items():
            a, b = float(c), float(c)
            for atom, power in monomial:
                lo, hi = self._atom(atom)
                for _ in range(power):
                    products = [_mul(a, lo), _mul(a, hi), _mul(b, lo), _mul(b, hi)]
                    a, b = min(products), max(products)
            low, high = low + a, high + b
        return low, high

    def le(self, a: DimLike, b: DimLike) -> bool:
        """True if a <= b is proved."""
        return self.interval(as_dim(b) - a)[0] >= 0

    def lt(self, a: DimLike, b: DimLike) -> bool:
        return self.interval(as_dim(b) - a)[0] > 0

    def _atom(self, atom: Atom) -> Interval:
        if atom.kind == "sym":
            return self.known.get(atom.name, (0, inf))
        args = [self.interval(a) for a in atom.args]
        match atom.kind:
            case "min":
                return min(a for a, _ in args), min(b for _, b in args)
            case "max":
                return max(a for a, _ in args), max(b for _, b in args)
            case "mod":
                low, high = args[1]
                return (0, high - 1) if low > 0 else (-inf, inf)
        (lo, hi), (dlo, dhi) = args
        if dlo <= 0:
            return -inf, inf
        ends = [_floordiv(x, y) for x in (lo, hi) for y in (dlo, dhi)]
        return min(ends), max(ends)


def _mul(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _floordiv(x: float, y: float) -> float:
    if x in (inf, -inf):
        return x if y != inf else (0 if x > 0 else -1)
    return (0 if x >= 0 else -1) if y == inf else x // y

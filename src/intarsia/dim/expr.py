"""Integer expressions over named symbols, in a canonical form that decides equality of polynomials.

    dim  ::= sum of  coefficient * atom^power * …            (a polynomial with integer coefficients)
    atom ::= symbol | floordiv(dim, dim) | mod(dim, dim) | min(dim, …) | max(dim, …)

`Dim` values are immutable and hashable; `==` compares canonical forms, so `n + m == m + n` and `(n + 1) * 2
== 2 * n + 2`. Division and remainder are Python's (floor). A symbol is identified by its name within the
function (or kernel) it occurs in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Union

Monomial = tuple[tuple["Atom", int], ...]  # sorted (atom, power) pairs; () is the constant monomial


class Atom:
    """An indivisible factor: kind is 'sym', 'floordiv', 'mod', 'min' or 'max'."""

    __slots__ = ("kind", "name", "args", "_hash", "_order")

    def __init__(self, kind: str, name: str = "", args: tuple[Dim, ...] = ()):
        self.kind, self.name, self.args = kind, name, args
        self._hash = hash((kind, name, args))
        self._order: str | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Atom)
            and self._hash == other._hash
            and self.kind == other.kind
            and self.name == other.name
            and self.args == other.args
        )

    def __hash__(self) -> int:
        return self._hash

    @property
    def order(self) -> str:
        """What factors are sorted by: the same in every process."""
        if self._order is None:
            self._order = f"{self.kind} {self}"
        return self._order

    def __str__(self) -> str:
        match self.kind:
            case "sym":
                return self.name
            case "floordiv":
                return f"({_group(self.args[0])} // {_group(self.args[1])})"
            case "mod":
                return f"({_group(self.args[0])} % {_group(self.args[1])})"
        return f"{self.kind}({', '.join(map(str, self.args))})"

    __repr__ = __str__


class Dim:
    """An integer expression. Build with `Symbol(name)`, `as_dim(int)`, Python operators, `dmin`, `dmax`."""

    __slots__ = ("terms", "_hash", "_symbols")

    def __init__(self, terms: dict[Monomial, int]):
        """terms: without zero coefficients; the dictionary becomes the Dim's own."""
        self.terms = terms
        self._hash: int | None = None
        self._symbols: frozenset[str] | None = None

    # ---- what it is ----------------------------------------------------------------------------------------
    @property
    def is_const(self) -> bool:
        terms = self.terms
        return not terms or (len(terms) == 1 and () in terms)

    @property
    def value(self) -> int:
        """The integer, where `is_const`; ValueError otherwise."""
        if not self.is_const:
            raise ValueError(f"{self} is not constant")
        return self.terms.get((), 0)

    @property
    def symbol(self) -> str | None:
        """The name, if this is one bare symbol; else None."""
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            if (
                coefficient == 1
                and len(monomial) == 1
                and monomial[0][1] == 1
                and monomial[0][0].kind == "sym"
            ):
                return monomial[0][0].name
        return None

    def symbols(self) -> frozenset[str]:
        """Names of all symbols that occur."""
        if self._symbols is None:
            found: set[str] = set()
            for monomial in self.terms:
                for atom, _ in monomial:
                    if atom.kind == "sym":
                        found.add(atom.name)
                    for a in atom.args:
                        found |= a.symbols()
            self._symbols = frozenset(found)
        return self._symbols

    def coefficient(self, name: str) -> Dim | None:
        """c where this is `c * name + rest`, `name` in neither c nor rest; None if not linear in `name`."""
        out: dict[Monomial, int] = {}
        for monomial, c in self.terms.items():
            rest = tuple((a, p) for a, p in monomial if not (a.kind == "sym" and a.name == name))
            if any(name in arg.symbols() for a, _ in rest for arg in a.args):
                return None
            if len(rest) != len(monomial):
                if next(p for a, p in monomial if a.kind == "sym" and a.name == name) != 1:
                    return None
                out[rest] = out.get(rest, 0) + c
        return _dim(out)

    # ---- arithmetic ----------------------------------------------------------------------------------------
    def __add__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        terms = dict(self.terms)
        for m, c in other.terms.items():
            total = terms.get(m, 0) + c
            if total:
                terms[m] = total
            else:
                del terms[m]
        return Dim(terms)

    def __neg__(self) -> Dim:
        return Dim({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: DimLike) -> Dim:
        return self + -as_dim(other)

    def __mul__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if other.is_const or self.is_const:
            one, factor = (self, other.value) if other.is_const else (other, self.value)
            if factor == 1:
                return one
            return Dim({m: c * factor for m, c in one.terms.items()}) if factor else as_dim(0)
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                m = _times(m1, m2)
                terms[m] = terms.get(m, 0) + c1 * c2
        return _dim(terms)

    def __floordiv__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if other.is_const and self.is_const:
            return as_dim(self.value // other.value)
        if other.is_const and other.value == 1:
            return self
        if self == other:  # dimensions used as divisors are never zero where the quotient is used
            return as_dim(1)
        exact = _divide_exactly(self, other)
        if exact is not None:
            return exact
        if other.is_const and other.value > 0:
            quotient, rest = _split_multiples(self, other.value)
            if quotient.terms:
                return quotient + rest // other
            nested = _as_single_atom(self, "floordiv")  # (a // b) // c == a // (b * c) for positive constants
            if nested and nested.args[1].is_const and nested.args[1].value > 0:
                return nested.args[0] // (nested.args[1] * other)
        return _of_atom(Atom("floordiv", args=(self, other)))

    def __mod__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if other.is_const and self.is_const:
            return as_dim(self.value % other.value)
        if other.is_const and other.value == 1 or self == other or _divide_exactly(self, other) is not None:
            return as_dim(0)
        if other.is_const and other.value > 0:
            _, rest = _split_multiples(self, other.value)
            if rest != self:
                return rest % other
        return _of_atom(Atom("mod", args=(self, other)))

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: DimLike) -> Dim:
        return as_dim(other) - self

    def __rfloordiv__(self, other: DimLike) -> Dim:
        return as_dim(other) // self

    def __rmod__(self, other: DimLike) -> Dim:
        return as_dim(other) % self

    # ---- substitution and evaluation -----------------------------------------------------------------------
    def subst(self, env: Mapping[str, DimLike]) -> Dim:
        """Replace symbols by expressions, all at once."""
        if not env or self.is_const or not (self.symbols() & env.keys()):
            return self
        total = as_dim(0)
        for monomial, c in self.terms.items():
            factor = as_dim(c)
            for atom, power in monomial:
                base = _subst_atom(atom, env)
                for _ in range(power):
                    factor = factor * base
            total = total + factor
        return total

    def map_atoms(self, f: Callable[[Atom], Dim]) -> Dim:
        """The same polynomial with outermost atoms that are no symbols replaced by `f(atom)`."""
        if all(a.kind == "sym" for m in self.terms for a, _ in m):
            return self
        total = as_dim(0)
        for monomial, c in self.terms.items():
            factor = as_dim(c)
            for atom, power in monomial:
                base = _of_atom(atom) if atom.kind == "sym" else f(atom)
                for _ in range(power):
                    factor = factor * base
            total = total + factor
        return total

    def evaluate(self, env: Mapping[str, int]) -> int:
        """The integer for given symbol values; KeyError names a missing symbol."""
        return sum(c * prod(_eval_atom(a, env) ** p for a, p in m) for m, c in self.terms.items())

    # ---- the rest ------------------------------------------------------------------------------------------
    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            return self.is_const and self.value == other
        return self is other or (isinstance(other, Dim) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.value) if self.is_const else hash(frozenset(self.terms.items()))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of a symbolic dimension ({self}) is not known at compile time")

    def __int__(self) -> int:
        return self.value

    __index__ = __int__

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts: list[str] = []
        for monomial, c in sorted(self.terms.items(), key=_term_order):
            factors = "*".join(str(a) if p == 1 else f"{a}^{p}" for a, p in monomial)
            text = str(abs(c)) if not monomial else factors if abs(c) == 1 else f"{abs(c)}*{factors}"
            parts.append(("-" if c < 0 else "") + text if not parts else (" - " if c < 0 else " + ") + text)
        return "".join(parts)

    __repr__ = __str__


DimLike = Union[Dim, int]
_SMALL = {i: Dim({(): i} if i else {}) for i in range(-64, 4097)}


def as_dim(value: DimLike) -> Dim:
    """An int (or NumPy integer) or Dim as Dim."""
    if isinstance(value, Dim):
        return value
    value = int(value)
    return _SMALL[value] if -64 <= value <= 4096 else Dim({(): value})


@lru_cache(1 << 16)
def Symbol(name: str) -> Dim:  # noqa: N802 - reads as a constructor
    """The dimension that is one named symbol."""
    return _of_atom(Atom("sym", name))


def dmin(*values: DimLike) -> Dim:
    return _extremum("min", min, values)


def dmax(*values: DimLike) -> Dim:
    return _extremum("max", max, values)


def ceildiv(a: DimLike, b: DimLike) -> Dim:
    """Smallest integer not below a / b, for positive b."""
    return (as_dim(a) + (as_dim(b) - 1)) // b


def product(dims: Iterable[DimLike]) -> Dim:
    total = as_dim(1)
    for d in dims:
        total = total * d
    return total


def _group(d: Dim) -> str:
    return f"({d})" if len(d.terms) > 1 else str(d)


# ---- canonical form ----------------------------------------------------------------------------------------
def _dim(terms: dict[Monomial, int]) -> Dim:
    return Dim({m: c for m, c in terms.items() if c})


def _term_order(item: tuple[Monomial, int]):
    """Higher degrees first, then by name: how a polynomial is printed."""
    monomial = item[0]
    return (-sum(p for _, p in monomial), tuple((a.order, p) for a, p in monomial))


def _of_atom(atom: Atom) -> Dim:
    return Dim({((atom, 1),): 1})


def _as_single_atom(d: Dim, kind: str) -> Atom | None:
    if len(d.terms) == 1:
        ((m, c),) = d.terms.items()
        if c == 1 and len(m) == 1 and m[0][1] == 1 and m[0][0].kind == kind:
            return m[0][0]
    return None


def _times(m1: Monomial, m2: Monomial) -> Monomial:
    if not m1:
        return m2
    if not m2:
        return m1
    powers: dict[Atom, int] = dict(m1)
    for a, p in m2:
        powers[a] = powers.get(a, 0) + p
    return tuple(sorted(powers.items(), key=lambda ap: ap[0].order))


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is one monomial that divides every term of a (b positive where it stands for a size)."""
    if len(b.terms) != 1:
        return None
    ((bm, bc),) = b.terms.items()
    out: dict[Monomial, int] = {}
    for m, c in a.terms.items():
        if c % bc:
            return None
        powers = dict(m)
        for atom, p in bm:
            if powers.get(atom, 0) < p:
                return None
            powers[atom] -= p
        out[tuple((x, p) for x, p in m if powers[x] > 0 for p in [powers[x]])] = c // bc
    return Dim(out)


def _split_multiples(d: Dim, k: int) -> tuple[Dim, Dim]:
    """d == k * quotient + rest, with every coefficient of rest in 0 … k-1 (so floor division distributes)."""
    quotient = {m: c // k for m, c in d.terms.items()}
    rest = {m: c % k for m, c in d.terms.items()}
    return _dim(quotient), _dim(rest)


def _subst_atom(atom: Atom, env: Mapping[str, DimLike]) -> Dim:
    if atom.kind == "sym":
        return as_dim(env[atom.name]) if atom.name in env else _of_atom(atom)
    args = [a.subst(env) for a in atom.args]
    match atom.kind:
        case "floordiv":
            return args[0] // args[1]
        case "mod":
            return args[0] % args[1]
        case "min":
            return dmin(*args)
    return dmax(*args)


def _eval_atom(atom: Atom, env: Mapping[str, int]) -> int:
    match atom.kind:
        case "sym":
            return env[atom.name]
        case "floordiv":
            return atom.args[0].evaluate(env) // atom.args[1].evaluate(env)
        case "mod":
            return atom.args[0].evaluate(env) % atom.args[1].evaluate(env)
        case "min":
            return min(a.evaluate(env) for a in atom.args)
    return max(a.evaluate(env) for a in atom.args)


def _extremum(kind: str, pick: Callable, values: Iterable[DimLike]) -> Dim:
    flat: list[Dim] = []
    for v in map(as_dim, values):
        nested = _as_single_atom(v, kind)
        flat.extend(nested.args if nested else (v,))
    constants = [v.value for v in flat if v.is_const]
    rest: list[Dim] = []
    for v in flat:  # of terms that differ by a constant only one matters
        if v.is_const:
            continue
        for i, other in enumerate(rest):
            difference = v - other
            if difference.is_const:
                rest[i] = other if pick(difference.value, 0) == 0 else v
                break
        else:
            rest.append(v)
    if constants:
        rest.append(as_dim(pick(constants)))
    if len(rest) == 1:
        return rest[0]
    return _of_atom(Atom(kind, args=tuple(sorted(rest, key=str))))

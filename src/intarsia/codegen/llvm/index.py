"""Symbolic integers as i64 arithmetic.

An index is first brought into linear form, `constant + sum of coefficient * product of names`, with unrolled
variables already replaced by numbers; then each loop level adds its part in its own preamble.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Union

from intarsia.codegen.llvm.writer import Function, Interval
from intarsia.dim import Dim
from intarsia.dim.expr import Atom

LANE = "#lane"  # in a linear form: the lane number of the vector loop being written


@dataclass(frozen=True, slots=True)
class Lane:
    """The variable of a vector loop: base + lane number."""

    base: int | str
    lanes: int


@dataclass(frozen=True, slots=True)
class LaneNames:
    """A variable with a value of its own in each lane."""

    names: tuple[str, ...]


# a number, a name, a vector loop's variable, one value per lane, or a dimension that depends on the lane
Binding = Union[int, str, Lane, LaneNames, Dim]


class NotAffine(Exception):  # noqa: N818 - no error, but a turn
    """An index that is not affine in the lane number."""


class Linear:
    """constant + sum of coefficient * product of names (sorted, LANE among them)."""

    __slots__ = ("constant", "terms")

    def __init__(self, constant: int = 0, terms: dict[tuple[str, ...], int] | None = None):
        self.constant, self.terms = constant, terms if terms is not None else {}

    def add(self, other: Linear, factor: int = 1) -> Linear:
        terms = dict(self.terms)
        for key, c in other.terms.items():
            terms[key] = terms.get(key, 0) + c * factor
        return Linear(self.constant + other.constant * factor, {k: c for k, c in terms.items() if c})

    def times(self, other: Linear) -> Linear:
        if not other.terms:
            c = other.constant
            return Linear(self.constant * c, {k: v * c for k, v in self.terms.items()} if c else {})
        terms: dict[tuple[str, ...], int] = {}
        left = [*self.terms.items(), ((), self.constant)]
        right = [*other.terms.items(), ((), other.constant)]
        for k1, c1 in left:
            for k2, c2 in right:
                if c1 and c2:
                    key = tuple(sorted(k1 + k2)) if k1 and k2 else k1 or k2
                    terms[key] = terms.get(key, 0) + c1 * c2
        constant = terms.pop((), 0)
        return Linear(constant, {k: c for k, c in terms.items() if c})

    def split_lane(self) -> tuple[Linear, Linear]:
        """(rest, step) where this is rest + step * LANE; NotAffine for higher powers."""
        if not any(LANE in key for key in self.terms if len(key) > 1):
            step = self.terms.get((LANE,), 0)
            rest = {k: c for k, c in self.terms.items() if k[0] is not LANE} if step else self.terms
            return Linear(self.constant, rest), Linear(step)
        rest, step = Linear(self.constant), Linear()
        for key, c in self.terms.items():
            if LANE not in key:
                rest.terms[key] = c
            elif key.count(LANE) > 1:
                raise NotAffine
            else:
                inner = tuple(k for k in key if k != LANE)
                step = step.add(Linear(0, {inner: c}) if inner else Linear(c))
        return rest, step


Terms = tuple[tuple[tuple[str, ...], int], ...]


def terms_of(x: Linear) -> Terms:
    """x without its constant, as a key."""
    return tuple(sorted(x.terms.items()))


class Indices:
    """Lowers dimensions inside one function, given what its variables are."""

    def __init__(self, f: Function, variables: Mapping[str, Binding], lookup: Callable[[str], int | str]):
        self.f, self.variables, self.lookup = f, variables, lookup
        self.lanes = 0
        self.fixed_lane: int | None = None
        # What branches around here have decided: terms -> bounds of their sum. Only comparisons may use it:
        # index arithmetic moves out of branches, and its bounds with it.
        self.facts: dict[Terms, Interval] = {}

    def sum(self, constant: int, simple: tuple[tuple[str, int], ...], rest: Dim | None) -> Linear:
        """constant + sum of coefficient * variable + rest, in linear form."""
        terms: dict[tuple[str, ...], int] = {}
        for name, c in simple:
            value = self.variables.get(name)
            if value is None:
                value = self.lookup(name)
            if type(value) is int:
                constant += c * value
            elif type(value) is str:
                terms[(value,)] = terms.get((value,), 0) + c
            else:
                shifted = self.bound(value)
                if isinstance(shifted, str):
                    terms[(shifted,)] = terms.get((shifted,), 0) + c
                    continue
                constant += c * shifted.constant
                for key, x in shifted.terms.items():
                    terms[key] = terms.get(key, 0) + c * x
        if rest is not None:
            return Linear(constant, terms).add(self.linear(rest))
        return Linear(constant, {k: c for k, c in terms.items() if c} if 0 in terms.values() else terms)

    def linear(self, d: Dim) -> Linear:
        """d in linear form; NotAffine where the lane is inside a division, remainder, min or max."""
        constant = 0
        terms: dict[tuple[str, ...], int] = {}
        for monomial, c in d.terms.items():
            if len(monomial) == 1 and monomial[0][1] == 1:  # most terms are a number times a variable
                value = self.atom(monomial[0][0])
                if isinstance(value, int):
                    constant += c * value
                elif isinstance(value, str):
                    terms[(value,)] = terms.get((value,), 0) + c
                else:
                    constant += c * value.constant
                    for key, x in value.terms.items():
                        terms[key] = terms.get(key, 0) + c * x
                continue
            names: list[str] = []
            shifted: Linear | None = None  # product of factors that are sums (a lane variable: base + lane)
            for atom, power in monomial:
                value = self.atom(atom)
                for _ in range(power):
                    if isinstance(value, int):
                        c *= value
                    elif isinstance(value, str):
                        names.append(value)
                    else:
                        shifted = value if shifted is None else shifted.times(value)
            if shifted is not None:
                whole = shifted.times(Linear(0, {tuple(sorted(names)): c}) if names else Linear(c))
                constant += whole.constant
                for key, x in whole.terms.items():
                    terms[key] = terms.get(key, 0) + x
            elif names:
                key = (names[0],) if len(names) == 1 else tuple(sorted(names))
                terms[key] = terms.get(key, 0) + c
            else:
                constant += c
        return Linear(constant, {k: c for k, c in terms.items() if c} if 0 in terms.values() else terms)

    def atom(self, a: Atom) -> int | str | Linear:
        if a.kind == "sym":
            value = self.variables.get(a.name)
            if value is None:
                value = self.lookup(a.name)
            return value if isinstance(value, (int, str)) else self.bound(value)
        args = [self.linear(x) for x in a.args]
        if any(LANE in key for x in args for key in x.terms):
            raise NotAffine
        if all(not x.terms for x in args):
            numbers = [x.constant for x in args]
            match a.kind:
                case "min":
                    return min(numbers)
                case "max":
                    return max(numbers)
                case "floordiv":
                    return numbers[0] // numbers[1] if numbers[1] else 0
                case _:
                    return numbers[0] % numbers[1] if numbers[1] else 0
        match a.kind:
            case "min" | "max":
                return self.extremum(a.kind, args)
            case "floordiv":
                return self.floordiv(*args)
            case _:
                return self.mod(*args)

    def bound(self, value: Binding) -> str | Linear:
        """A variable that depends on the lane."""
        match value:
            case Dim():
                return self.linear(value)
            case LaneNames():
                if self.fixed_lane is None:
                    raise NotAffine
                return value.names[self.fixed_lane]
            case Lane():
                base = Linear(value.base) if isinstance(value.base, int) else Linear(0, {(value.base,): 1})
                lane = self.fixed_lane
                return base.add(Linear(0, {(LANE,): 1}) if lane is None else Linear(lane))
        raise TypeError(f"{value!r} does not depend on the lane")

    # ---- arithmetic on names -------------------------------------------------------------------------------
    def interval(self, x: Linear) -> Interval:
        """Bounds of x by interval arithmetic over what is known of the names."""
        low = high = float(x.constant)
        for key, c in x.terms.items():
            a = b = float(c)
            for name in key:
                lo, hi = (0.0, float(self.lanes - 1)) if name == LANE else self.f.interval(name)
                corners = [0.0 if p == 0 or q == 0 else p * q for p in (a, b) for q in (lo, hi)]
                a, b = min(corners), max(corners)
            low, high = low + a, high + b
        return low, high

    def bounds(self, x: Linear) -> Interval:
        """Bounds of x here, with what branches have decided."""
        low, high = self.interval(x)
        fact = self.facts.get(terms_of(x)) if self.facts else None
        if fact is None:
            return low, high
        return max(low, fact[0] + x.constant), min(high, fact[1] + x.constant)

    def value(self, x: Linear) -> str:
        """x (free of LANE) as an i64 operand."""
        total: str | None = None
        for names, c in self.by_depth(x):
            product = names[0]
            for other in names[1:]:
                product = self.f.pure(f"mul nsw i64 {product}, {other}", (product, other))
            if c != 1:
                product = self.scale(product, c)
            total = (
                product if total is None else self.f.pure(f"add nsw i64 {total}, {product}", (total, product))
            )
        if total is None:
            return str(x.constant)
        if x.constant:
            total = self.f.pure(f"add nsw i64 {total}, {x.constant}", (total,), self.interval(x))
        self.f.range_of.setdefault(total, self.interval(x))
        return total

    def by_depth(self, x: Linear) -> list[tuple[tuple[str, ...], int]]:
        """Terms from the outermost loop inwards."""
        depth = self.f.depth_of
        return sorted(
            ((tuple(sorted(k, key=lambda n: (depth[n], n))), c) for k, c in x.terms.items()),
            key=lambda item: (max(depth[n] for n in item[0]), item[0]),
        )

    def scale(self, name: str, c: int) -> str:
        if c > 0 and c & (c - 1) == 0:
            return self.f.pure(f"shl nsw i64 {name}, {c.bit_length() - 1}", (name,))
        return self.f.pure(f"mul nsw i64 {name}, {c}", (name,))

    def operand(self, x: Linear) -> tuple[str, tuple[str, ...]]:
        text = self.value(x)
        return text, (text,) if text.startswith("%") else ()

    def extremum(self, kind: str, args: list[Linear]) -> str:
        result, known = self.operand(args[0])
        bounds = self.interval(args[0])
        pick = min if kind == "min" else max
        name = self.f.module.declare(f"llvm.s{kind}.i64", "i64 {}(i64, i64)")
        for x in args[1:]:
            other, names = self.operand(x)
            low, high = self.interval(x)
            bounds = pick(bounds[0], low), pick(bounds[1], high)
            result = self.f.pure(f"call i64 @{name}(i64 {result}, i64 {other})", known + names, bounds)
            known = (result,)
        return result

    def floordiv(self, a: Linear, b: Linear) -> str | int:
        low, high = self.interval(a)
        x, names = self.operand(a)
        if not b.terms and b.constant > 0:
            c = b.constant
            bounds = (low // c if low > -inf else low, high // c if high < inf else high)
            if bounds[0] == bounds[1]:
                return int(bounds[0])
            if c & (c - 1) == 0:
                return self.f.pure(f"ashr i64 {x}, {c.bit_length() - 1}", names, bounds)
            if low >= 0:
                return self.f.pure(f"udiv i64 {x}, {c}", names, bounds)
        y, more = self.divisor(b)
        names += more
        if low >= 0 and self.interval(b)[0] >= 0:
            return self.f.pure(f"udiv i64 {x}, {y}", names, (0, high))
        quotient = self.f.pure(f"sdiv i64 {x}, {y}", names)
        rest = self.f.pure(f"srem i64 {x}, {y}", names)
        return self.f.pure(
            f"sub i64 {quotient}, {self.borrow(rest, y)}", (quotient, *self.names(self.borrow(rest, y)))
        )

    def mod(self, a: Linear, b: Linear) -> str | int:
        low, high = self.interval(a)
        x, names = self.operand(a)
        if not b.terms and b.constant > 0:
            c = b.constant
            if low >= 0 and high < c:
                return x if not x.lstrip("-").isdigit() else int(x)
            if c & (c - 1) == 0:
                return self.f.pure(f"and i64 {x}, {c - 1}", names, (0, c - 1))
            if low >= 0:
                return self.f.pure(f"urem i64 {x}, {c}", names, (0, c - 1))
        y, more = self.divisor(b)
        names += more
        if low >= 0 and self.interval(b)[0] >= 0:
            return self.f.pure(f"urem i64 {x}, {y}", names, (0, self.interval(b)[1] - 1))
        rest = self.f.pure(f"srem i64 {x}, {y}", names)
        borrow = self.borrow(rest, y)
        back = self.f.pure(f"mul i64 {borrow}, {y}", (borrow, *self.names(y)))
        bounds = (0, self.interval(b)[1] - 1) if self.interval(b)[0] > 0 else None
        return self.f.pure(f"add i64 {rest}, {back}", (rest, back), bounds)

    def borrow(self, rest: str, divisor: str) -> str:
        """1 where a truncated quotient is above the floor: the rest's sign is not the divisor's."""
        signs = self.f.pure(f"xor i64 {rest}, {divisor}", (rest, *self.names(divisor)))
        differ = self.f.pure(f"lshr i64 {signs}, 63", (signs,))
        some = self.f.pure(f"icmp ne i64 {rest}, 0", (rest,))
        return self.f.pure(f"select i1 {some}, i64 {differ}, i64 0", (some, differ))

    def divisor(self, b: Linear) -> tuple[str, tuple[str, ...]]:
        """b, or 1 for 0: a quotient by an empty dimension is never used, but may be computed early."""
        y, names = self.operand(b)
        if not names:
            return (y if y != "0" else "1"), ()
        if self.interval(b)[0] > 0:
            return y, names
        zero = self.f.pure(f"icmp eq i64 {y}, 0", names)
        safe = self.f.pure(f"select i1 {zero}, i64 1, i64 {y}", (zero, *names))
        return safe, (safe,)

    @staticmethod
    def names(text: str) -> tuple[str, ...]:
        return (text,) if text.startswith("%") else ()

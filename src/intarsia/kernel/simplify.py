"""Simpler expressions of the same value: constants folded, neutral operands dropped, conditions decided by
bounds.

Equal subexpressions become one node, so that code generators compute them once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from intarsia.dim import Bounds, Dim, as_dim, dmax, dmin
from intarsia.dim.expr import Atom
from intarsia.kernel.evaluate import binary, convert, is_float, numpy_type, unary
from intarsia.kernel.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    IndexLike,
    LaneReduce,
    Load,
    Reduce,
    Select,
    Unary,
    subexpressions,
)  # fmt: skip

Interval = tuple[float, float]


class Ranges:
    """What is known of loop variables: var -> (first, last), as Dims over symbols and outer variables.

    A loop may be empty (last < first): what is concluded holds wherever its body runs.
    """

    def __init__(self, axes: Mapping[str, tuple[Dim, Dim]] | None = None, bounds: Bounds | None = None):
        self.axes = dict(axes or {})
        self.bounds = Bounds(bounds.known if bounds else {})
        for var, (first, last) in self.axes.items():
            self.bounds.known[var] = (self.bounds.interval(first)[0], self.bounds.interval(last)[1])

    def within(self, axes: Mapping[str, tuple[Dim, Dim]]) -> Ranges:
        """These and some more (inner) variables."""
        result = Ranges({}, self.bounds)
        result.axes = {**self.axes, **axes}
        for var, (first, last) in axes.items():
            result.bounds.known[var] = (result.interval(first)[0], result.interval(last)[1])
        return result

    def interval(self, d: Dim) -> Interval:
        """Bounds of d, the better of interval arithmetic and of putting the extremes for variables that d is
        linear in.
        """
        low, high = self.bounds.interval(d)
        if self.axes and not d.is_const:
            low = max(low, self.bounds.interval(self.extreme(d, 0))[0])
            high = min(high, self.bounds.interval(self.extreme(d, 1))[1])
        return low, high

    def extreme(self, d: Dim, end: int) -> Dim:
        """d at its least (end 0) or largest (end 1), as far as variables occur linearly. Innermost variables
        first.
        """
        for var in reversed(self.axes):
            if var not in d.symbols():
                continue
            c = d.coefficient(var)
            if c is None:
                continue
            low, high = self.bounds.interval(c)
            if low >= 0:
                d = d.subst({var: self.axes[var][end]})
            elif high <= 0:
                d = d.subst({var: self.axes[var][1 - end]})
        return d

    def nonnegative(self, d: Dim) -> bool:
        return self.interval(d)[0] >= 0

    def below(self, a: Dim, b: Dim) -> bool:
        """a < b is proved."""
        return self.interval(b - a)[0] > 0

    def dim(self, d: Dim) -> Dim:
        """d with divisions, remainders, minima and maxima resolved where the ranges tell their value."""
        if all(a.kind == "sym" for m in d.terms for a, _ in m):
            return d
        total = as_dim(0)
        for monomial, c in d.terms.items():
            factor = as_dim(c)
            for atom, power in monomial:
                value = self._atom(atom)
                for _ in range(power):
                    factor = factor * value
            total = total + factor
        return total

    def _atom(self, atom: Atom) -> Dim:
        if atom.kind == "sym":
            return Dim({((atom, 1),): 1})
        args = [self.dim(a) for a in atom.args]
        if atom.kind in ("min", "max"):
            return self._extremum(atom.kind, args)
        a, b = args
        whole, rest = _multiples(a, b)
        if self.nonnegative(rest) and self.below(rest, b):
            return whole if atom.kind == "floordiv" else rest
        return a // b if atom.kind == "floordiv" else a % b

    def _extremum(self, kind: str, args: list[Dim]) -> Dim:
        kept: list[Dim] = []
        for x in args:
            kept = [y for y in kept if not self._at_least(kind, x, y)]
            if not any(self._at_least(kind, y, x) for y in kept):
                kept.append(x)
        return dmin(*kept) if kind == "min" else dmax(*kept)

    def _at_least(self, kind: str, winner: Dim, loser: Dim) -> bool:
        return self.nonnegative(loser - winner if kind == "min" else winner - loser)

    def compare(self, op: str, a: Dim, b: Dim) -> bool | None:
        """Whether `a op b` holds, if the ranges tell."""
        low, high = self.interval(a - b)
        match op:
            case "lt":
                return True if high < 0 else False if low >= 0 else None
            case "le":
                return True if high <= 0 else False if low > 0 else None
            case "gt":
                return True if low > 0 else False if high <= 0 else None
            case "ge":
                return True if low >= 0 else False if high < 0 else None
        same = True if low == high == 0 else False if low > 0 or high < 0 else None
        return same if op == "eq" or same is None else not same


def _multiples(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """a == b * whole + rest, with the terms of a that b divides in `whole`."""
    if b.is_const:
        if b.value <= 0:
            return as_dim(0), a
        whole = Dim({m: q for m, c in a.terms.items() if (q := c // b.value)})
        return whole, a - whole * b
    whole = as_dim(0)
    for m, c in a.terms.items():
        term = Dim({m: c})
        part = term // b
        if part * b == term:
            whole = whole + part
    return whole, a - whole * b


class Simplifier:
    """Rewrites expressions under given ranges. One instance shares equal nodes over all expressions it
    sees.
    """

    def __init__(self, ranges: Ranges | None = None):
        self.ranges = ranges or Ranges()
        self._known: dict[object, Expr] = {}
        self._done: dict[int, tuple[Expr, Expr]] = {}

    def __call__(self, e: Expr) -> Expr:
        todo = [e]
        while todo:
            node = todo[-1]
            if id(node) in self._done:
                todo.pop()
                continue
            waiting = [c for c in subexpressions(node) if id(c) not in self._done]
            if waiting:
                todo.extend(waiting)
                continue
            todo.pop()
            self._done[id(node)] = (node, self._share(self._node(node)))
        return self._done[id(e)][1]

    def done(self, e: Expr) -> Expr:
        return self._done[id(e)][1]

    def _share(self, e: Expr) -> Expr:
        return self._known.setdefault(_key(e), e)

    def _node(self, e: Expr) -> Expr:
        match e:
            case Const() | LaneReduce():
                return e
            case Index():
                return self._index(e.dim)
            case Load():
                return Load(e.buffer, tuple(self._place(i) for i in e.indices))
            case Unary():
                return self._unary(e.op, self.done(e.x))
            case Binary():
                return self._binary(e.op, self.done(e.a), self.done(e.b))
            case Select():
                return self._select(self.done(e.cond), self.done(e.then), self.done(e.orelse))
            case Cast():
                return self._cast(self.done(e.x), e.dtype)
            case Reduce():
                return replace(
                    e,
                    body=self.done(e.body),
                    axes=tuple(Axis(a.var, self.ranges.dim(a.extent)) for a in e.axes),
                )
        return e

    def _index(self, d: Dim) -> Expr:
        d = self.ranges.dim(d)
        return Const(d.value, "int64") if d.is_const else Index(d)

    def _place(self, i: IndexLike) -> IndexLike:
        if isinstance(i, Dim):
            return self.ranges.dim(i)
        i = self.done(i)
        d = as_index(i)
        return i if d is None else d

    def _unary(self, op: str, x: Expr) -> Expr:
        if isinstance(x, Const):
            with np.errstate(all="ignore"):
                return _constant(unary(op, _scalar(x), x.dtype), Unary(op, x).dtype)
        if isinstance(x, Unary) and op == x.op and op in ("neg", "not", "bitnot"):
            return x.x
        if not is_float(x.dtype):
            if op in ("floor", "ceil", "round", "trunc"):
                return x
            if op in ("isnan", "isinf"):
                return Const(False, "bool")
        d = as_index(x)
        if op == "neg" and d is not None:
            return self._index(-d)
        return Unary(op, x)

    def _binary(self, op: str, a: Expr, b: Expr) -> Expr:
        if isinstance(a, Const) and isinstance(b, Const):
            with np.errstate(all="ignore"):
                return _constant(binary(op, _scalar(a), _scalar(b), a.dtype), Binary(op, a, b).dtype)
        x, y = as_index(a), as_index(b)
        if x is not None and y is not None:
            whole = self._integers(op, x, y)
            if whole is not None:
                return whole
        if op in ("and", "or"):
            for p, q in ((a, b), (b, a)):
                if isinstance(p, Const):
                    return q if bool(p.value) == (op == "and") else p
            if a is b:
                return a
        return _neutral(op, a, b) or Binary(op, a, b)

    def _integers(self, op: str, x: Dim, y: Dim) -> Expr | None:
        """Arithmetic and comparison of int64 index expressions."""
        match op:
            case "add":
                return self._index(x + y)
            case "sub":
                return self._index(x - y)
            case "mul":
                return self._index(x * y)
            case "min":
                return self._index(dmin(x, y))
            case "max":
                return self._index(dmax(x, y))
            case "floordiv" | "mod" if y.is_const and y.value > 0:
                return self._index(x // y if op == "floordiv" else x % y)
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
                holds = self.ranges.compare(op, x, y)
                return None if holds is None else Const(holds, "bool")
        return None

    def _select(self, cond: Expr, then: Expr, orelse: Expr) -> Expr:
        if isinstance(cond, Const):
            return then if cond.value else orelse
        if then is orelse or (_key(then) == _key(orelse)):
            return then
        if isinstance(cond, Unary) and cond.op == "not":
            return Select(cond.x, orelse, then)
        if isinstance(then, Const) and then.dtype == "bool" and isinstance(orelse, Const):
            return cond if then.value else Unary("not", cond)
        return Select(cond, then, orelse)

    def _cast(self, x: Expr, dtype: str) -> Expr:
        if x.dtype == dtype:
            return x
        if isinstance(x, Const):
            with np.errstate(all="ignore"):
                return _constant(convert(_scalar(x), x.dtype, dtype), dtype)
        return Cast(x, dtype)


def simplify(e: Expr, ranges: Ranges | None = None) -> Expr:
    """An expression of the same value wherever the loop variables are within the ranges."""
    return Simplifier(ranges)(e)


def as_index(e: Expr) -> Dim | None:
    """e as an integer expression over variables, if it is one (int64)."""
    if isinstance(e, Index):
        return e.dim
    if isinstance(e, Const) and e.dtype == "int64":
        return as_dim(int(e.value))
    return None


def _neutral(op: str, a: Expr, b: Expr) -> Expr | None:
    """The result where one operand is neutral or absorbing and that is exact (x + 0.0 is not: -0.0)."""
    floating = is_float(a.dtype)
    if isinstance(b, Const) and not isinstance(b.value, bool):
        if b.value == 1 and op in ("mul", "div", "floordiv") and not (floating and op == "floordiv"):
            return a
        if b.value == 0 and (
            op in ("sub", "shl", "shr") or op in ("add", "bitor", "bitxor") and not floating
        ):
            return a if not (floating and _negative_zero(b)) else None
        if b.value == 0 and op in ("mul", "bitand") and not floating:
            return b
        if b.value == 1 and op == "pow":
            return a
        if b.value == 2 and op == "pow" and floating:
            return Binary("mul", a, a)
    if isinstance(a, Const) and not isinstance(a.value, bool):
        if a.value == 1 and op == "mul":
            return b
        if a.value == 0 and op in ("add", "bitor", "bitxor") and not floating:
            return b
        if a.value == 0 and op in ("mul", "bitand") and not floating:
            return a
    if a is b and op in ("min", "max"):
        return a
    return None


def _negative_zero(c: Const) -> bool:
    return bool(np.signbit(float(c.value)))


def _scalar(c: Const):
    return numpy_type(c.dtype).type(c.value)


def _constant(value, dtype: str) -> Const:
    if dtype == "bool":
        return Const(bool(value), dtype)
    return Const(float(value) if is_float(dtype) else int(value), dtype)


def _key(e: Expr) -> object:
    """Equal for nodes of one operation on the same (shared) operands."""
    match e:
        case Const():
            value = e.value
            text = repr(float(value)) if is_float(e.dtype) else value
            return Const, text, e.dtype
        case Index():
            return Index, e.dim
        case Load():
            return Load, id(e.buffer), tuple(i if isinstance(i, Dim) else id(i) for i in e.indices)
        case Unary():
            return Unary, e.op, id(e.x)
        case Binary():
            return Binary, e.op, id(e.a), id(e.b)
        case Select():
            return Select, id(e.cond), id(e.then), id(e.orelse)
        case Cast():
            return Cast, id(e.x), e.dtype
    return id(e)

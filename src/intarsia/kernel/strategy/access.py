"""Loop nests seen from memory: flat addresses, strides, and which neighbouring loops are really one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from intarsia.dim import Dim, Symbol, as_dim, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import (
    Axis,
    Binary,
    Buffer,
    Const,
    Expr,
    Index,
    IndexLike,
    Load,
    Reduce,
    Select,
    subexpressions,
    substitute,
    transform,
    walk,
)  # fmt: skip
from intarsia.kernel.simplify import Ranges, Simplifier
from intarsia.kernel.stmt import Stmt, store
from intarsia.kernel.views import Flat, address

_SPLITS = 6  # axes that are taken apart because something divides by a part of them


class Memory(Flat):
    """Flat views of a kernel's buffers, and two-dimensional ones for accesses at data-dependent places."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[tuple[int, Dim], Buffer] = {}

    def flat(self, load: Load) -> Load:
        """The same element by its address. A data-dependent index keeps a dimension of its own:
        buffer[place, rest].
        """
        if all(isinstance(i, Dim) for i in load.indices):
            return self.load(load)
        shape = load.buffer.shape
        last = max(k for k, i in enumerate(load.indices) if isinstance(i, Expr))
        width = product(shape[last + 1 :])
        key = id(load.buffer), width
        if key not in self._rows:
            rows = product(shape[: last + 1])
            self._rows[key] = replace(load.buffer, shape=(rows, width), producer=None, of=load.buffer)
        place = address(shape[: last + 1], load.indices[: last + 1])
        rest = address(shape[last + 1 :], load.indices[last + 1 :])
        return Load(self._rows[key], (place, rest))

    def expr(self, e: Expr) -> Expr:
        """e with all loads of global buffers flat."""

        def leaf(n: Expr) -> Expr | None:
            if isinstance(n, Load) and n.buffer.scope == "global" and n.buffer.of is None:
                return self.flat(n)
            return None

        return transform(e, leaf)


@dataclass(frozen=True, slots=True, eq=False)
class Assign:
    """target[place] = value, for every iteration. A flat view, or a small buffer with its own indices."""

    target: Buffer
    indices: tuple[Dim, ...]
    value: Expr

    def stmt(self) -> Stmt:
        return store(self.target, self.indices, self.value)

    def substituted(self, env: Mapping[str, Dim]) -> Assign:
        return Assign(self.target, tuple(i.subst(env) for i in self.indices), substitute(self.value, env))


def forms(values: Iterable[Expr], places: Iterable[Dim] = ()) -> list[Dim]:
    """Every integer expression over loop variables: addresses, and indices used as values."""
    found: dict[Dim, None] = dict.fromkeys(places)
    for e in values:
        for n in walk(e):
            if isinstance(n, Load):
                found.update(dict.fromkeys(i for i in n.indices if isinstance(i, Dim)))
            elif isinstance(n, Index):
                found[n.dim] = None
    return list(found)


def loads_of(e: Expr) -> list[Load]:
    return [n for n in walk(e) if isinstance(n, Load)]


def stride(d: Dim, var: str) -> Dim | None:
    """The step of d when var grows by one; None if that is not one number."""
    return d.coefficient(var) if var in d.symbols() else as_dim(0)


def mergeable(outer: Axis, inner: Axis, dims: Iterable[Dim]) -> bool:
    """Whether a step of `outer` is `inner.extent` steps of `inner` everywhere."""
    for d in dims:
        a, b = stride(d, outer.var), stride(d, inner.var)
        if a is None or b is None or a != b * inner.extent:
            return False
    return True


def collapse(axes: Sequence[Axis], dims: Sequence[Dim]) -> tuple[tuple[Axis, ...], dict[str, Dim]]:
    """(fewer axes, what the old variables are in terms of the new ones) where neighbours are one loop in all
    `dims`.
    """
    dims = list(dims)
    result = list(axes)
    env: dict[str, Dim] = {}
    i = len(result) - 2
    while i >= 0:
        outer, inner = result[i], result[i + 1]
        if mergeable(outer, inner, dims):
            joint = Axis(fresh("f"), outer.extent * inner.extent)
            step = {outer.var: as_dim(0), inner.var: Symbol(joint.var)}
            dims = [d.subst(step) for d in dims]
            env = {**{v: d.subst(step) for v, d in env.items()}, **step}
            result[i : i + 2] = [joint]
        i -= 1
    return tuple(result), env


def without_units(axes: Sequence[Axis]) -> tuple[tuple[Axis, ...], dict[str, Dim]]:
    """Axes of extent 1 left out, their variables 0."""
    return tuple(a for a in axes if a.extent != 1), {a.var: as_dim(0) for a in axes if a.extent == 1}


def ranges_of(axes: Iterable[Axis]) -> Ranges:
    return Ranges({a.var: (as_dim(0), a.extent - 1) for a in axes})


def divided(axes: Sequence[Axis], values: Sequence[Expr]) -> tuple[tuple[Axis, ...], dict[str, Dim]]:
    """Axes taken apart where something needs var // s or var % s, for s that divides the extent.

    (new axes, old variables in terms of the new ones); under the new axes' ranges the divisions simplify
    away.
    """
    result = list(axes)
    env: dict[str, Dim] = {}
    for _ in range(_SPLITS):
        dims = [d.subst(env) for d in forms(values)]
        found = next(
            (x for k in range(len(result)) if (x := _division(result[k], dims, result)) is not None), None
        )
        if found is None:
            break
        axis, s = found
        k = result.index(axis)
        outer, inner = Axis(fresh("q"), axis.extent // s), Axis(fresh("r"), s)
        step = {axis.var: Symbol(outer.var) * s + Symbol(inner.var)}
        env = {**{v: d.subst(step) for v, d in env.items()}, **step}
        result[k : k + 1] = [outer, inner]
    return tuple(result), env


def _division(axis: Axis, dims: Iterable[Dim], axes: Sequence[Axis]) -> tuple[Axis, Dim] | None:
    """A proper part of the axis that an expression divides the bare variable by."""
    ranges = ranges_of(axes)
    todo = [ranges.dim(d) for d in dims]
    while todo:
        for monomial in todo.pop().terms:
            for atom, _ in monomial:
                todo.extend(atom.args)
                if atom.kind not in ("floordiv", "mod") or atom.args[0].coefficient(axis.var) != 1:
                    continue
                s = atom.args[1]
                if s == 1 or s == axis.extent or s.is_const and s.value <= 0:
                    continue
                if (axis.extent // s) * s == axis.extent:
                    return axis, s
    return None


def unconditional(e: Expr) -> set[int]:
    """Nodes that are evaluated whatever any condition says."""
    seen: set[int] = set()
    todo = [e]
    while todo:
        n = todo.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        todo.extend((n.cond,) if isinstance(n, Select) else subexpressions(n))
    return seen


def depends(e: Expr, names: frozenset[str] | set[str], memo: dict[int, bool]) -> bool:
    """Whether e's value may change with one of the variables (small buffers count as changing with all)."""
    found = memo.get(id(e))
    if found is None:
        match e:
            case Load():
                found = (
                    e.buffer.scope != "global"
                    and bool(e.indices)
                    and any(isinstance(i, Dim) and i.symbols() & names for i in e.indices)
                )
                found = found or any(isinstance(i, Dim) and bool(i.symbols() & names) for i in e.indices)
            case Index():
                found = bool(e.dim.symbols() & names)
            case _:
                found = False
        found = found or any(depends(x, names, memo) for x in subexpressions(e))
        memo[id(e)] = found
    return found


def invariants(e: Expr, names: frozenset[str] | set[str]) -> list[Expr]:
    """The largest parts of e that read memory or compute, and do not change with the variables.

    Only parts that are evaluated in any case; data-dependent indices are found as parts of their own.
    """
    memo: dict[int, bool] = {}
    sure = unconditional(e)
    found: list[Expr] = []
    seen: set[int] = set()
    todo = [e]
    while todo:
        n = todo.pop()
        if id(n) in seen or id(n) not in sure:
            continue
        seen.add(id(n))
        if not depends(n, names, memo) and not isinstance(n, Const | Index) and not _plain_index(n):
            found.append(n)
            continue
        todo.extend((n.cond,) if isinstance(n, Select) else subexpressions(n))
    return found


def _plain_index(e: Expr) -> bool:
    return all(isinstance(n, Const | Index) for n in walk(e))


def replaced(e: Expr, new: Mapping[int, IndexLike]) -> Expr:
    """e with nodes exchanged by identity; an index that became a Dim stays an index."""
    memo: dict[int, IndexLike] = {}

    def go(n: Expr) -> IndexLike:
        if id(n) in new:
            return new[id(n)]
        if id(n) not in memo:
            memo[id(n)] = rebuild(n)
        return memo[id(n)]

    def value(n: Expr) -> Expr:
        r = go(n)
        return Index(r) if isinstance(r, Dim) else r

    def rebuild(n: Expr) -> Expr:
        match n:
            case Load():
                return replace(n, indices=tuple(go(i) if isinstance(i, Expr) else i for i in n.indices))
            case Binary():
                return replace(n, a=value(n.a), b=value(n.b))
            case Select():
                return replace(n, cond=value(n.cond), then=value(n.then), orelse=value(n.orelse))
            case Reduce():
                return replace(n, body=value(n.body))
        inner = subexpressions(n)
        return replace(n, x=value(inner[0])) if inner else n  # type: ignore[call-arg]

    return value(e)


def tidy(assigns: Sequence[Assign], axes: Iterable[Axis], ranges: Ranges | None = None) -> list[Assign]:
    """Assignments simplified under the axes' ranges."""
    known = {a.var: (as_dim(0), a.extent - 1) for a in axes}
    simple = Simplifier(ranges.within(known) if ranges else Ranges(known))
    return [
        Assign(a.target, tuple(simple.ranges.dim(i) for i in a.indices), simple(a.value)) for a in assigns
    ]

"""Rewrites of loop nests that cannot change what they compute; each refuses what it cannot prove.

    split(s, 'i', 8)      for i in n  →  for o in n // 8 { for k in 8 { i = 8·o + k } }, then a loop over the
    rest reorder(s, 'i', 'k')  for i { for k … }  →  for k { for i … }
    fuse(s, 'i', 'k')     for i in n { for k in m … }  →  for f in n·m { let i = f // m, k = f % m … }
    unroll(s, 'i'), vectorise(s, 'i'), parallel(s, 'i')   another kind of loop

Loops are named by their variables, which must be bound once in the statement. A refusal is a CodegenError
CODE-010 … CODE-015 that says which loop and why. Distinct buffers never overlap; views of one buffer are
taken to overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.dim.expr import DimLike
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Buffer, Expr, IndexLike, LaneReduce, Load, substitute, walk
from intarsia.kernel.simplify import Ranges
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Stmt, Store, block, loop
from intarsia.support.errors import CodegenError


# ---- rewrites ----------------------------------------------------------------------------------------------
def split(s: Stmt, var: str, factor: int, *, outer: str | None = None, inner: str | None = None) -> Stmt:
    """The loop in blocks of `factor`, and a loop over what is left where that may be something."""
    if factor < 1:
        raise CodegenError("CODE-011", f"loop {var} cannot be split into blocks of {factor}")

    def rewrite(f: For) -> Stmt:
        _require_serial(f, "split")
        o, i = outer or fresh("o"), inner or fresh("i")
        whole, rest = f.extent // factor, f.extent % factor
        body = substituted(f.body, {var: Symbol(o) * factor + Symbol(i)})
        parts: list[Stmt] = [For(o, whole, For(i, as_dim(factor), body))]
        if rest != 0:
            again = fresh("i")
            parts.append(
                For(again, rest, renamed(substituted(f.body, {var: whole * factor + Symbol(again)})))
            )
        return block(*parts)

    return at_loop(s, var, rewrite)


def reorder(s: Stmt, outer: str, inner: str) -> Stmt:
    """Two loops, one directly inside the other, exchanged."""

    def rewrite(f: For) -> Stmt:
        g = _directly_inside(f, inner)
        _require_serial(f, "reorder")
        _require_serial(g, "reorder")
        if f.var in g.extent.symbols():
            raise CodegenError(
                "CODE-012", f"loops {outer} and {inner} cannot be exchanged: {inner} runs to {g.extent}"
            )
        ranges = _inner_ranges(g.body)
        for group in _conflicts(g.body):
            if not (_determines(group, f.var, ranges, {g.var}) or _determines(group, g.var, ranges, {f.var})):
                raise CodegenError(
                    "CODE-012",
                    f"loops {outer} and {inner} cannot be exchanged: several of their iterations use "
                    f"one element of {group.buffer.name}",
                )
        return replace(g, body=replace(f, body=g.body))

    return at_loop(s, outer, rewrite)


def fuse(s: Stmt, outer: str, inner: str, *, name: str | None = None) -> Stmt:
    """Two loops, one directly inside the other, as one."""

    def rewrite(f: For) -> Stmt:
        g = _directly_inside(f, inner)
        _require_serial(f, "fuse")
        _require_serial(g, "fuse")
        if f.var in g.extent.symbols():
            raise CodegenError(
                "CODE-013", f"loops {outer} and {inner} cannot be fused: {inner} runs to {g.extent}"
            )
        v = name or fresh("f")
        body = Bind(f.var, Symbol(v) // g.extent, Bind(g.var, Symbol(v) % g.extent, g.body))
        return For(v, f.extent * g.extent, body)

    return at_loop(s, outer, rewrite)


def unroll(s: Stmt, var: str) -> Stmt:
    """The loop repeated in code; its extent must be constant."""

    def rewrite(f: For) -> Stmt:
        _require_serial(f, "unroll")
        _require_constant(f, "unrolled")
        return replace(f, kind="unroll")

    return at_loop(s, var, rewrite)


def vectorise(s: Stmt, var: str) -> Stmt:
    """All iterations at once: the extent must be constant, the iterations independent, and no loop inside
    parallel.
    """

    def rewrite(f: For) -> Stmt:
        _require_serial(f, "vectorise")
        _require_constant(f, "vectorised")
        for inner in loops(f.body):
            if inner.kind in ("vector", "parallel") or f.var in inner.extent.symbols():
                raise CodegenError(
                    "CODE-014", f"loop {var} cannot be vectorised around {inner.kind} loop {inner.var}"
                )
        _require_independent(f, "vectorised")
        return replace(f, kind="vector")

    return at_loop(s, var, rewrite)


def parallel(s: Stmt, var: str, *, work: DimLike | None = None) -> Stmt:
    """Iterations shared among threads; they must be independent. work: nanoseconds of one, about."""

    def rewrite(f: For) -> Stmt:
        _require_serial(f, "parallel")
        _require_independent(f, "run in parallel")
        return replace(f, kind="parallel", work=None if work is None else as_dim(work))

    return at_loop(s, var, rewrite)


# ---- statements --------------------------------------------------------------------------------------------
def inner_statements(s: Stmt) -> tuple[Stmt, ...]:
    """Statements directly inside."""
    match s:
        case Block():
            return s.stmts
        case For() | Allocate() | Bind():
            return (s.body,)
        case If():
            return (s.then,) if s.orelse is None else (s.then, s.orelse)
    return ()


def statements(s: Stmt) -> Iterator[Stmt]:
    """s and all statements inside, outer ones first."""
    todo = [s]
    while todo:
        x = todo.pop()
        yield x
        todo.extend(reversed(inner_statements(x)))


def loops(s: Stmt) -> list[For]:
    return [x for x in statements(s) if isinstance(x, For)]


def map_statements(s: Stmt, change: Callable[[Stmt], Stmt]) -> Stmt:
    """Rebuilt from the inside: `change` sees each statement after those inside it. Nests are as deep as
    their loops.
    """
    match s:
        case Block():
            s = block(*(map_statements(x, change) for x in s.stmts))
        case For() | Allocate() | Bind():
            s = replace(s, body=map_statements(s.body, change))
        case If():
            orelse = None if s.orelse is None else map_statements(s.orelse, change)
            s = replace(s, then=map_statements(s.then, change), orelse=orelse)
    return change(s)


def at_loop(s: Stmt, var: str, rewrite: Callable[[For], Stmt]) -> Stmt:
    """s with the one loop over `var` rewritten. CODE-010 if there is none, or more than one."""
    found = [f for f in loops(s) if f.var == var]
    if len(found) != 1:
        raise CodegenError("CODE-010", f"there are {len(found)} loops over {var}")
    return map_statements(s, lambda x: rewrite(x) if isinstance(x, For) and x.var == var else x)


def substituted(s: Stmt, env: dict[str, Dim]) -> Stmt:
    """s with variables replaced in every index, extent and value."""

    def index(i: IndexLike) -> IndexLike:
        return substitute(i, env) if isinstance(i, Expr) else i.subst(env)

    def change(x: Stmt) -> Stmt:
        match x:
            case Store():
                return Store(x.buffer, tuple(map(index, x.indices)), substitute(x.value, env))
            case For():
                active = None if x.active is None else x.active.subst(env)
                work = None if x.work is None else x.work.subst(env)
                return replace(x, extent=x.extent.subst(env), active=active, work=work)
            case Bind():
                return replace(x, value=index(x.value))
            case If():
                return replace(x, cond=substitute(x.cond, env))
        return x

    return map_statements(s, change)


def renamed(s: Stmt) -> Stmt:
    """s with fresh variables and fresh private buffers, to stand beside the original."""
    names = {x.var for x in loops(s)} | {x.name for x in statements(s) if isinstance(x, Bind)}
    new = {n: fresh(n.partition(".")[0]) for n in sorted(names)}
    s = substituted(s, {n: Symbol(v) for n, v in new.items()})

    def change(x: Stmt) -> Stmt:
        if isinstance(x, For):
            return replace(x, var=new[x.var])
        return replace(x, name=new[x.name]) if isinstance(x, Bind) else x

    return map_statements(s, change)


# ---- what iterations share ---------------------------------------------------------------------------------
@dataclass(slots=True)
class _Group:
    """All accesses of a statement to one memory that it writes.

    places: for each dimension the index that all accesses have; None where they differ or are data-dependent.
    """

    buffer: Buffer
    places: list[Dim | None]


def _base(b: Buffer) -> Buffer:
    while b.of is not None:
        b = b.of
    return b


def _expressions(s: Stmt) -> Iterator[Expr]:
    for x in statements(s):
        match x:
            case Store():
                yield x.value
                yield from (i for i in x.indices if isinstance(i, Expr))
            case Bind():
                if isinstance(x.value, Expr):
                    yield x.value
            case If():
                yield x.cond


def _conflicts(s: Stmt) -> list[_Group]:
    """One group for each memory that s writes and does not allocate itself."""
    private = {id(x.buffer) for x in statements(s) if isinstance(x, Allocate)}
    names = {x.name for x in statements(s) if isinstance(x, Bind)}
    groups: dict[int, _Group] = {}

    def access(b: Buffer, indices: Sequence[IndexLike]) -> None:
        group = groups.get(id(_base(b)))
        if group is None:
            return
        for k, i in enumerate(group.places):
            if b is not group.buffer or indices[k] != i:
                group.places[k] = None

    for x in statements(s):
        if isinstance(x, Store) and id(_base(x.buffer)) not in private:
            known = [i if isinstance(i, Dim) and not i.symbols() & names else None for i in x.indices]
            groups.setdefault(id(_base(x.buffer)), _Group(x.buffer, known))
            access(x.buffer, x.indices)
    for e in _expressions(s):
        for n in walk(e):
            if isinstance(n, Load):
                access(n.buffer, n.indices)
            elif isinstance(n, LaneReduce) and id(_base(n.buffer)) in groups:
                groups[id(_base(n.buffer))].places = []
    return list(groups.values())


def _inner_ranges(s: Stmt) -> Ranges:
    """Ranges of the loops inside s, outer ones first."""
    return Ranges({f.var: (as_dim(0), f.extent - 1) for f in loops(s)})


def _determines(group: _Group, var: str, ranges: Ranges, others: set[str]) -> bool:
    """Whether an element is used in one iteration of `var` only, whatever the inner loops and `others` do.

    That is so if some index is c·var + rest, and rest moves by less than c.
    """
    for place in group.places:
        c = None if place is None else place.coefficient(var)
        if place is None or c is None or not c.is_const or c.value == 0:
            continue
        rest = place - c * Symbol(var)
        if rest.symbols() & others:
            continue
        if not rest.symbols() & ranges.axes.keys():
            return True
        least, most = ranges.extreme(rest, 0), ranges.extreme(rest, 1)
        if not (least.symbols() | most.symbols()) & ranges.axes.keys() and ranges.below(
            most - least, as_dim(abs(c.value))
        ):
            return True
    return False


# ---- refusals ----------------------------------------------------------------------------------------------
def _require_serial(f: For, what: str) -> None:
    if f.kind != "serial":
        raise CodegenError("CODE-010", f"{what} takes a serial loop, but {f.var} is {f.kind}")


def _require_constant(f: For, what: str) -> None:
    if not f.extent.is_const:
        raise CodegenError(
            "CODE-014", f"loop {f.var} cannot be {what}: its extent {f.extent} is not constant"
        )


def _directly_inside(f: For, inner: str) -> For:
    if isinstance(f.body, For) and f.body.var == inner:
        return f.body
    raise CodegenError("CODE-010", f"loop {inner} is not the only thing inside loop {f.var}")


def _require_independent(f: For, what: str) -> None:
    ranges = _inner_ranges(f.body)
    for group in _conflicts(f.body):
        if not _determines(group, f.var, ranges, set()):
            raise CodegenError(
                "CODE-015",
                f"loop {f.var} cannot be {what}: its iterations may use one element of {group.buffer.name}",
            )


__all__ = ["fuse", "loop", "parallel", "reorder", "split", "unroll", "vectorise"]

"""Chains of reductions over the same rows (softmax, layer norm, …): one pass of a row after the other, while
it is in L1.

    for each row, in parallel:  m = max x;  y = exp(x - m), s = sum y;  y = y / s

What there is one of in a row lives in a register; what there is one of for each element, in a result's own
row where one fits, else in a row of scratch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from intarsia.dim import Dim, Symbol, as_dim, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Buffer, Expr, Load, Reduce, substitute, transform
from intarsia.kernel.stmt import Allocate, Bind, Kernel, Stmt, block, store
from intarsia.kernel.strategy.access import (
    Assign,
    Memory,
    collapse,
    divided,
    forms,
    loads_of,
    ranges_of,
    stride,
    tidy,
    without_units,
)  # fmt: skip
from intarsia.kernel.strategy.cost import cost, guess
from intarsia.kernel.strategy.nest import Nest
from intarsia.kernel.strategy.reduction import accumulate
from intarsia.kernel.strategy.region import Loops, Plan, Region, plan
from intarsia.kernel.strategy.staged import kernel
from intarsia.kernel.target import ITEMSIZE, Target
from intarsia.kernel.views import address

_STACK = 16 << 10  # bytes of a row that may lie on the stack
_ALONE = 1 << 15  # elements from which a single row is better shared stage by stage


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """A root in terms of the common row and element variables.

    per:   'row' or 'element': what there is one value for
    value: in terms of flat loads; `reduce`: the operation that combines the row's values, if it is a
    reduction
    place: address in the root's own buffer
    """

    buffer: Buffer
    per: str
    value: Expr
    place: Dim
    reduce: str | None = None


def rowwise(region: Region, target: Target) -> Kernel | None:
    """The kernel of a region that is a chain of reductions over common rows; None if it is not."""
    the_plan = plan(region)
    memory = Memory()
    found = _Reader(the_plan, memory).run()
    return None if found is None else _Writer(the_plan, memory, target, *found).run()


class _Reader:
    """Finds the rows and checks that every root fits them."""

    def __init__(self, the_plan: Plan, memory: Memory):
        self.plan, self.memory = the_plan, memory
        self.members: dict[int, Member] = {}

    def run(self) -> tuple[tuple[Axis, ...], tuple[Axis, ...], list[Member]] | None:
        roots = [r for r in self.plan.roots if isinstance(r, Loops)]
        if len(roots) != len(self.plan.roots) or len(roots) < 2:
            return None
        first = next((r for r in roots if isinstance(r.body, Reduce)), None)
        if first is None or not isinstance(first.body, Reduce):
            return None
        self.rows = tuple(Axis(fresh("r"), a.extent) for a in without_units(first.axes)[0])
        self.inner = tuple(Axis(fresh("e"), a.extent) for a in without_units(first.body.axes)[0])
        if not self.inner or not self.rows and guess(product(a.extent for a in self.inner)) > _ALONE:
            return None
        for root in roots:
            member = self._member(root)
            if member is None:
                return None
            self.members[id(root.buffer)] = member
        members = list(self.members.values())
        if not any(m.per == "element" for m in members) and len(members) < 2 or not self._contiguous(members):
            return None
        return self.rows, self.inner, members

    def _member(self, root: Loops) -> Member | None:
        axes, env = without_units(root.axes)
        place = address(root.buffer.shape, tuple(Symbol(a.var) for a in root.axes))
        assert isinstance(place, Dim)
        body = root.body
        if isinstance(body, Reduce):
            inner, more = without_units(body.axes)
            matched = self._matched(axes, self.rows), self._matched(inner, self.inner)
            if matched[0] is None or matched[1] is None:
                return None
            env = {**env, **more, **matched[0], **matched[1]}
            value = self._value(substitute(body.body, env))
            return None if value is None else Member(root.buffer, "row", value, place.subst(env), body.op)
        matched_row = self._matched(axes, self.rows)
        if matched_row is not None:
            env = {**env, **matched_row}
            value = self._value(substitute(body, env))
            if value is not None:
                return Member(root.buffer, "row", value, place.subst(env))
        axes, parts = divided(axes, [substitute(body, env)])
        matched_all = self._matched(axes, (*self.rows, *self.inner))
        if matched_all is None:
            return None
        env = (
            {v: d.subst(parts).subst(matched_all) for v, d in env.items()}
            | {v: d.subst(matched_all) for v, d in parts.items()}
            | matched_all
        )
        value = self._value(substitute(body, env))
        return None if value is None else Member(root.buffer, "element", value, place.subst(env))

    def _matched(self, axes: Sequence[Axis], common: Sequence[Axis]) -> dict[str, Dim] | None:
        if [a.extent for a in axes] != [c.extent for c in common]:
            return None
        return {a.var: Symbol(c.var) for a, c in zip(axes, common)}

    def _value(self, e: Expr) -> Expr | None:
        """e with flat loads, if it reads every other root at the common place only."""
        ranges = ranges_of((*self.rows, *self.inner))
        e = tidy([Assign(Buffer("", (), e.dtype), (), self.memory.expr(e))], (*self.rows, *self.inner))[
            0
        ].value
        for n in loads_of(e):
            base = n.buffer.of or n.buffer
            member = self.members.get(id(base))
            if member is None:
                continue
            if len(n.indices) != 1 or not isinstance(n.indices[0], Dim):
                return None
            if ranges.dim(n.indices[0]) != ranges.dim(member.place):
                return None
        return e

    def _contiguous(self, members: Sequence[Member]) -> bool:
        """Whether what is read in every row lies along the last element axis."""
        last = self.inner[-1].var
        for m in members:
            if m.reduce is None:
                continue
            places = [n.indices[-1] for n in loads_of(m.value) if n.indices]
            along = [stride(p, last) if isinstance(p, Dim) else None for p in places]
            if any(s is None or s not in (as_dim(0), as_dim(1)) for s in along) or not any(
                s == 1 for s in along
            ):
                return False
        return True


class _Writer:
    """Builds the loops."""

    def __init__(
        self,
        the_plan: Plan,
        memory: Memory,
        target: Target,
        rows: tuple[Axis, ...],
        inner: tuple[Axis, ...],
        members: list[Member],
    ):
        self.plan, self.memory, self.target = the_plan, memory, target
        self.rows, self.inner, self.members = rows, inner, members
        self.results = {id(b) for b in the_plan.region.outputs}
        self.workspaces: list[Buffer] = []
        self.stack: list[Buffer] = []
        self.home: dict[int, tuple[Buffer, tuple[Dim, ...]]] = {}  # where other members read a member's value

    def run(self) -> Kernel:
        for k, m in enumerate(self.members):
            self.home[id(m.buffer)] = self._home(k, m)
        body = self._row()
        rows, env = collapse(
            self.rows, forms([m.value for m in self.members], [m.place for m in self.members])
        )
        body_of_row = _renamed_rows(body, env)
        each = sum(cost(m.value) + 0.1 for m in self.members if m.per == "element" or m.reduce is not None)
        count = product(a.extent for a in self.inner)
        whole = (
            Nest(self.target).shared(rows, body_of_row, each * guess(count), count, each)
            if rows
            else body_of_row
        )
        return kernel(self.plan.region, whole, self.workspaces)

    # ---- where values live ---------------------------------------------------------------------------------
    def _home(self, k: int, m: Member) -> tuple[Buffer, tuple[Dim, ...]]:
        if m.per == "row":
            self.stack.append(Buffer(f"row.{m.buffer.name}", (), m.buffer.dtype, "register"))
            return self.stack[-1], ()
        if id(m.buffer) in self.results:
            return self.memory.view(m.buffer), (m.place,)
        for later in self.members[k + 1 :]:
            if self._can_borrow(k, later):
                return self.memory.view(later.buffer), (later.place,)
        size = product(a.extent for a in self.inner)
        if size.is_const and size.value * ITEMSIZE[m.buffer.dtype] <= _STACK:
            place = as_dim(0)
            for a in self.inner:
                place = place * a.extent + Symbol(a.var)
            self.stack.append(Buffer(f"row.{m.buffer.name}", (size,), m.buffer.dtype, "stack"))
            return self.stack[-1], (place,)
        self.workspaces.append(m.buffer)
        return self.memory.view(m.buffer), (m.place,)

    def _can_borrow(self, k: int, later: Member) -> bool:
        """Whether member k's elements may lie in the result `later` until that is written: nobody reads them
        after it, and no other member lies there."""
        m = self.members[k]
        if (
            later.per != "element"
            or id(later.buffer) not in self.results
            or later.buffer.dtype != m.buffer.dtype
        ):
            return False
        view = self.memory.view(later.buffer)
        if any(place[0] is view for place in self.home.values()):
            return False
        at = self.members.index(later)
        return not any(self._reads(x, m.buffer) for x in self.members[at + 1 :])

    def _reads(self, m: Member, b: Buffer) -> bool:
        return any((n.buffer.of or n.buffer) is b for n in loads_of(m.value))

    def _homed(self, e: Expr) -> Expr:
        """e reading other members from where they live."""

        def leaf(n: Expr) -> Expr | None:
            if isinstance(n, Load):
                home = self.home.get(id(n.buffer.of or n.buffer))
                return None if home is None else Load(*home)
            return None

        return transform(e, leaf)

    # ---- one row -------------------------------------------------------------------------------------------
    def _row(self) -> Stmt:
        stmts: list[Stmt] = []
        waiting: list[Assign] = []  # elements that the next reduction may compute on its way
        nest = Nest(self.target, share=False)

        def flush() -> None:
            for a in waiting:
                stmts.append(nest.schedule(self.inner, [a]))
            waiting.clear()

        for m in self.members:
            value = self._homed(m.value)
            buffer, place = self.home[id(m.buffer)]
            if m.per == "element":
                waiting.append(Assign(buffer, place, value))
            elif m.reduce is not None:
                ahead = list(waiting) if self._together(value, waiting) else []
                if not ahead:
                    flush()
                stmts.append(
                    accumulate(
                        m.reduce, self.inner, value, self.target, lambda e, m=m: self._keep(m, e), ahead
                    )
                )
                waiting.clear()
            else:
                stmts.append(self._keep(m, value))
        flush()
        body = block(*stmts)
        for b in self.stack:
            body = Allocate(b, body)
        return body

    def _together(self, value: Expr, waiting: Sequence[Assign]) -> bool:
        """Whether one loop can compute the waiting elements and reduce: it has as few axes as the reduction
        alone.
        """
        alone, _ = collapse(self.inner, forms([value]))
        both, _ = collapse(
            self.inner, forms([value, *(a.value for a in waiting)], [i for a in waiting for i in a.indices])
        )
        return len(alone) == len(both)

    def _keep(self, m: Member, value: Expr) -> Stmt:
        """A row's value into its register, and into memory if it is a result."""
        register, _ = self.home[id(m.buffer)]
        keep: Stmt = store(register, (), value)
        if id(m.buffer) in self.results:
            keep = block(keep, store(self.memory.view(m.buffer), (m.place,), register[()]))
        return keep


def _renamed_rows(body: Stmt, env: Mapping[str, Dim]) -> Stmt:
    """The row's loops in terms of the collapsed row variables."""
    for name, d in env.items():
        body = Bind(name, d, body)
    return body

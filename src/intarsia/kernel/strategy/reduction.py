"""Reductions, one at a time: along rows with vector accumulators, or down columns with one accumulator a
column.

    rows:     contiguous in memory along the reduced axis: vectors of partial results, combined at the end
    columns:  contiguous along a kept axis: a few vectors of columns are held in registers while the reduced
    axes run

Where there are few results and many elements, threads reduce parts, which are then reduced themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmin, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import (
    Axis,
    Binary,
    Buffer,
    Const,
    Expr,
    Index,
    LaneReduce,
    Reduce,
    Select,
    Unary,
    cast,
    identity_of,
    substitute,
)  # fmt: skip
from intarsia.kernel.simplify import Simplifier
from intarsia.kernel.stmt import Allocate, Bind, For, Stmt, block, loop, store
from intarsia.kernel.strategy.access import (
    Assign,
    Memory,
    collapse,
    divided,
    forms,
    loads_of,
    ranges_of,
    stride,
    without_units,
)  # fmt: skip
from intarsia.kernel.strategy.cost import cost, guess
from intarsia.kernel.strategy.nest import CHUNK, SHARED, Nest, hoisted, lanes_of, pieces
from intarsia.kernel.strategy.region import Loops
from intarsia.kernel.target import ITEMSIZE, Target
from intarsia.kernel.views import address

_COMBINE = {"sum": "add", "prod": "mul", "min": "min", "max": "max", "any": "or", "all": "and"}
_OF_BOOL = {"sum": "any", "prod": "all", "max": "any", "min": "all"}


def op_for(op: str, dtype: str) -> str:
    """The operation, named as logic on bools."""
    return _OF_BOOL.get(op, op) if dtype == "bool" else op


def combine(op: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    return Binary(_COMBINE[op_for(op, a.dtype)], a, b)


def is_better(op: str, new: Expr, old: Expr) -> Expr:
    """Whether `new`, which comes later, displaces `old` in argmin or argmax: NaN is the most extreme."""
    compared = Binary("gt" if op == "argmax" else "lt", new, old)
    if "float" not in new.dtype:
        return compared
    return Binary("or", compared, Binary("and", Unary("isnan", new), Unary("not", Unary("isnan", old))))


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """target[place] = op over `inner` of value, for all of `outer`; addresses are flat."""

    outer: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    op: str
    value: Expr
    target: Buffer
    place: Dim

    @property
    def is_arg(self) -> bool:
        return self.op.startswith("arg")

    @property
    def steps(self) -> Dim:
        """Elements of one result (of the first one, where a part's length depends on which part it is)."""
        return product(a.extent for a in self.inner).subst({a.var: 0 for a in self.outer})


def reduction(loops: Loops, memory: Memory, target: Target) -> tuple[Stmt, tuple[Buffer, ...]]:
    """The loops of one stage whose body is a Reduce, and the workspaces they need."""
    found = normal(loops, memory)
    if isinstance(found, Assign):
        return Nest(target).schedule(loops.axes, [found]), ()
    if any(a.extent == 0 for a in found.outer):
        return block(), ()
    return _Scheduler(target).run(found)


def normal(loops: Loops, memory: Memory) -> Reduction | Assign:
    """A stage with flat addresses, without axes of extent 1; an assignment if nothing is left to reduce."""
    reduce = loops.body
    assert isinstance(reduce, Reduce)
    place = address(loops.buffer.shape, tuple(Symbol(a.var) for a in loops.axes))
    assert isinstance(place, Dim)
    inner, none = without_units(reduce.axes)
    value = substitute(memory.expr(reduce.body), none)
    view = memory.view(loops.buffer)
    if not inner:
        return Assign(view, (place,), Const(0, "int64") if reduce.op.startswith("arg") else value)
    outer, zero = without_units(loops.axes)
    env = dict(zero)
    outer, parts = divided(outer, [substitute(value, env)])
    env = {**{v: d.subst(parts) for v, d in env.items()}, **parts}
    if not reduce.op.startswith("arg"):
        inner, parts = divided(inner, [substitute(value, env)])
        env = {**{v: d.subst(parts) for v, d in env.items()}, **parts}
    simple = Simplifier(ranges_of([*outer, *inner]))
    return Reduction(outer, inner, reduce.op, simple(substitute(value, env)), view, place.subst(env))


# ---- accumulating along an axis ----------------------------------------------------------------------------
def accumulate(
    op: str,
    axes: Sequence[Axis],
    value: Expr,
    target: Target,
    use: Callable[[Expr], Stmt],
    before: Sequence[Assign] = (),
) -> Stmt:
    """`use(result)` after the reduction of `value` over the axes, vectorised along the last one.

    before: assignments made in each iteration, before value is taken (which may read them).
    """
    dims = forms([value, *(a.value for a in before)], [i for a in before for i in a.indices])
    if not op.startswith("arg"):
        axes, env = collapse(axes, dims)
        value, before = substitute(value, env), [a.substituted(env) for a in before]
    *outer, last = axes
    values = [value, *(a.value for a in before)]
    lanes = lanes_of(target, values, [a.target for a in before])
    lanes = max(1, min(lanes, target.vector_bits // (8 * _size(op, value, last.extent))))
    unroll = 2 if op.startswith("arg") or sum(map(cost, values)) > 1.0 else 4
    width = lanes * unroll
    if last.extent.is_const:
        width = max(1, min(width, last.extent.value))
        unroll = max(1, width // lanes) if width >= lanes else 1
        lanes = min(lanes, width)
        width = lanes * unroll
    acc = _Accumulator(op, value, width, last.extent)

    def body(kept: list[Assign]) -> Stmt:
        *first, final = kept

        def emit(start: Dim, count: int, active: Dim | None) -> Stmt:
            lane = fresh("l")
            env = {last.var: start + Symbol(lane)}
            stmts = [a.substituted(env).stmt() for a in first]
            stmts += acc.step(Symbol(lane), substitute(final.value, env), start + Symbol(lane))
            return For(lane, as_dim(count), block(*stmts), "vector", active=active)

        inner = pieces(last.extent, lanes, unroll, emit)
        for a in reversed(outer):
            inner = loop(a.var, a.extent, inner)
        return block(acc.clear(), inner, acc.finish(use))

    names = frozenset(a.var for a in axes)
    return acc.allocated(hoisted([*before, Assign(acc.best, (), value)], names, body))


def _counter(extent: Dim) -> str:
    """The dtype that places along an axis are counted in."""
    return "int32" if extent.is_const and extent.value < 1 << 31 else "int64"


def _size(op: str, value: Expr, extent: Dim) -> int:
    """Bytes of the widest element that an accumulator holds for one lane."""
    return max(ITEMSIZE[value.dtype], ITEMSIZE[_counter(extent)] if op.startswith("arg") else 1)


class _Accumulator:
    """Partial results in registers, one for each lane. extent: of the axis whose places argmin and argmax
    count.
    """

    def __init__(self, op: str, value: Expr, width: int, extent: Dim):
        self.op, self.width = op, width
        self.best = Buffer("acc", (as_dim(width),), value.dtype, "register")
        count = _counter(extent)
        self.where = Buffer("where", (as_dim(width),), count, "register") if op.startswith("arg") else None

    def allocated(self, body: Stmt) -> Stmt:
        body = Allocate(self.best, body)
        return body if self.where is None else Allocate(self.where, body)

    def clear(self) -> Stmt:
        lane = fresh("l")
        stmts = [
            store(self.best, (Symbol(lane),), identity_of(op_for(self.op, self.best.dtype), self.best.dtype))
        ]
        if self.where is not None:
            stmts.append(store(self.where, (Symbol(lane),), Const(0, self.where.dtype)))
        return For(lane, as_dim(self.width), block(*stmts), "vector")

    def step(self, lane: Dim, value: Expr, place: Dim) -> list[Stmt]:
        old = self.best[lane]
        if self.where is None:
            return [store(self.best, (lane,), combine(self.op, old, value))]
        better = is_better(self.op, value, old)
        return [
            store(
                self.where, (lane,), Select(better, cast(Index(place), self.where.dtype), self.where[lane])
            ),
            store(self.best, (lane,), Select(better, value, old)),
        ]

    def finish(self, use: Callable[[Expr], Stmt]) -> Stmt:
        """`use` of all lanes' result."""
        if self.where is None:
            return use(
                LaneReduce(op_for(self.op, self.best.dtype), self.best) if self.width > 1 else self.best[0]
            )
        best, where = self.best, self.where
        stmts: list[Stmt] = []
        for i in range(1, self.width):
            new, old = best[i], best[0]
            same: Expr = new.equals(old)
            if "float" in best.dtype:
                same = Binary("or", same, Binary("and", Unary("isnan", new), Unary("isnan", old)))
            better = Binary("or", is_better(self.op, new, old), Binary("and", same, where[i] < where[0]))
            stmts.append(store(where, (0,), Select(better, where[i], where[0])))
            wins = is_better(self.op, new, old)
            stmts.append(store(best, (0,), Select(wins, new, old)))
        return block(*stmts, use(cast(where[0], "int64")))


# ---- whole reductions --------------------------------------------------------------------------------------
class _Scheduler:
    def __init__(self, target: Target):
        self.target = target

    def run(self, r: Reduction) -> tuple[Stmt, tuple[Buffer, ...]]:
        r = self._collapsed(r)
        split = self._split(r)
        if split is not None:
            first, second, partial = split
            return block(self._whole(first), self._whole(second)), (partial,)
        return self._whole(r), ()

    def _collapsed(self, r: Reduction) -> Reduction:
        inner = r.inner if r.is_arg else self._by_stride(r)
        dims = forms([r.value], [r.place])
        outer, env = collapse(r.outer, dims)
        dims = [d.subst(env) for d in dims]
        if not r.is_arg:
            inner, more = collapse(inner, dims)
            env = {**env, **more}
        simple = Simplifier(ranges_of([*outer, *inner]))
        return replace(
            r, outer=outer, inner=inner, value=simple(substitute(r.value, env)), place=r.place.subst(env)
        )

    def _by_stride(self, r: Reduction) -> tuple[Axis, ...]:
        """Reduced axes in the order of memory."""
        loads = [n.indices[-1] for n in loads_of(r.value) if n.indices and isinstance(n.indices[-1], Dim)]

        def step(a: Axis) -> float:
            found = [
                s for d in loads if isinstance(d, Dim) and (s := stride(d, a.var)) is not None and s != 0
            ]
            return -guess(found[0]) if found else 0.0

        return tuple(sorted(r.inner, key=step))

    def _whole(self, r: Reduction) -> Stmt:
        return self._columns(r) if self._prefers_columns(r) else self._rows(r)

    def _prefers_columns(self, r: Reduction) -> bool:
        if not r.outer:
            return False
        last = r.outer[-1]
        if any(last.var in a.extent.symbols() for a in r.inner):
            return False  # columns of different lengths: the last of several parts
        places = [n.indices[-1] for n in loads_of(r.value) if n.indices]
        along = [stride(p, last.var) if isinstance(p, Dim) else None for p in places]
        if any(s == 1 for s in along) and all(s is not None and s in (as_dim(0), as_dim(1)) for s in along):
            return True
        lanes = lanes_of(self.target, [r.value])
        contiguous = [a for a in r.inner if any(isinstance(p, Dim) and stride(p, a.var) == 1 for p in places)]
        short = all(a.extent.is_const and a.extent.value < lanes for a in contiguous)
        wide = not last.extent.is_const or last.extent.value >= lanes
        return short and wide and any(s != 0 for s in along)

    # ---- rows ----------------------------------------------------------------------------------------------
    def _rows(self, r: Reduction) -> Stmt:
        inner = list(r.inner)
        if not r.is_arg:
            places = [n.indices[-1] for n in loads_of(r.value) if n.indices]
            best = [a for a in inner if any(isinstance(p, Dim) and stride(p, a.var) == 1 for p in places)]
            if best:
                inner.remove(best[-1])
                inner.append(best[-1])
        body = accumulate(r.op, inner, r.value, self.target, lambda e: store(r.target, (r.place,), e))
        each = cost(r.value) + 0.1
        count = r.steps
        return Nest(self.target).shared(r.outer, body, each * guess(count), count, each) if r.outer else body

    # ---- columns -------------------------------------------------------------------------------------------
    def _columns(self, r: Reduction) -> Stmt:
        *outer, last = r.outer
        lanes = lanes_of(self.target, [r.value], [r.target])
        lanes = max(1, min(lanes, self.target.vector_bits // (8 * _size(r.op, r.value, r.inner[-1].extent))))
        unroll = 2 if r.is_arg or cost(r.value) > 1.0 else 8
        each = cost(r.value) + 0.1
        rows = r.steps
        size = max(lanes * unroll, 128)
        if last.extent.is_const and last.extent.value <= size:
            body = pieces(last.extent, lanes, unroll, lambda s, c, a: self._strip(r, last, s, c, a))
            count = rows * last.extent
            return Nest(self.target).shared(outer, body, each * guess(count), count, each) if outer else body
        chunk, left = fresh("c"), fresh("n")
        first = Symbol(chunk) * size
        exact = last.extent.is_const and last.extent.value % size == 0
        extent = as_dim(size) if exact else Symbol(left)
        body = pieces(extent, lanes, unroll, lambda s, c, a: self._strip(r, last, first + s, c, a))
        if not exact:
            body = Bind(left, dmin(size, last.extent - first), body)
        axes = [*outer, Axis(chunk, ceildiv(last.extent, size))]
        return Nest(self.target).shared(axes, body, each * guess(rows) * size, rows * size, each)

    def _strip(self, r: Reduction, last: Axis, start: Dim, count: int, active: Dim | None) -> Stmt:
        """A few vectors of columns."""
        acc = _Accumulator(r.op, r.value, count, r.inner[-1].extent)
        lane = fresh("l")
        column = start + Symbol(lane)
        place = Symbol(r.inner[-1].var) if r.is_arg else as_dim(0)
        value = substitute(r.value, {last.var: column})
        body: Stmt = For(
            lane, as_dim(count), block(*acc.step(Symbol(lane), value, place)), "vector", active=active
        )
        for a in reversed(r.inner):
            body = loop(a.var, a.extent, body)
        out = fresh("l")
        result = cast(acc.where[Symbol(out)], "int64") if acc.where is not None else acc.best[Symbol(out)]
        write = store(r.target, (r.place.subst({last.var: start + Symbol(out)}),), result)
        return acc.allocated(
            block(acc.clear(), body, For(out, as_dim(count), write, "vector", active=active))
        )

    # ---- parts ---------------------------------------------------------------------------------------------
    def _split(self, r: Reduction) -> tuple[Reduction, Reduction, Buffer] | None:
        """(reduction of parts, reduction of their results, workspace) where one result's elements are worth
        sharing.
        """
        results = product(a.extent for a in r.outer)
        if self.target.cores < 2 or r.is_arg or not results.is_const or not r.inner:
            return None
        each = cost(r.value) + 0.1
        axis = r.inner[0]
        rest = product(a.extent for a in r.inner[1:])
        per_step = each * guess(rest) * results.value
        if results.value * each * 64 >= SHARED and results.value >= 64 * self.target.cores:
            return None
        if axis.extent.is_const and axis.extent.value * per_step < 4 * SHARED:
            return None
        size = max(1, int(2 * CHUNK / per_step))
        if axis.extent.is_const and axis.extent.value <= size or results.value == 0:
            return None
        parts = ceildiv(axis.extent, size)
        partial = Buffer("partial", (parts, results), r.value.dtype)
        flat = Buffer("partial.flat", (parts * results,), r.value.dtype, of=partial)
        part, k, again = Axis(fresh("p"), parts), fresh("k"), fresh("p")
        length = dmin(size, axis.extent - Symbol(part.var) * size)
        place = as_dim(0)
        for a in r.outer:
            place = place * a.extent + Symbol(a.var)
        env = {axis.var: Symbol(part.var) * size + Symbol(k)}
        first = Reduction(
            (part, *r.outer),
            (Axis(k, length), *r.inner[1:]),
            r.op,
            substitute(r.value, env),
            flat,
            Symbol(part.var) * results + place,
        )
        second = replace(r, inner=(Axis(again, parts),), value=flat[Symbol(again) * results + place])
        return first, second, partial

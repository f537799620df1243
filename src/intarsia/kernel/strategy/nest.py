"""Loops around assignments: strips of vectors innermost, tiles where memory is crossed, parallel chunks
outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmax, dmin, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Binary, Buffer, Const, Expr, Index, Load, Select, transform, walk
from intarsia.kernel.simplify import Ranges, as_index
from intarsia.kernel.stmt import Allocate, Bind, For, Stmt, block, loop, store
from intarsia.kernel.strategy.access import (
    Assign,
    collapse,
    divided,
    forms,
    invariants,
    loads_of,
    ranges_of,
    replaced,
    stride,
    tidy,
    without_units,
)  # fmt: skip
from intarsia.kernel.strategy.cost import cost, guess
from intarsia.kernel.target import ITEMSIZE, Target

CHUNK = 4000  # nanoseconds of work that is worth handing to a thread
SHARED = 8000  # nanoseconds of work in all below which nothing is shared
_HOISTED = 8  # values that are kept in registers through an inner loop
_TILE = 16


def pieces(extent: Dim, lanes: int, unroll: int, emit: Callable[[Dim, int, Dim | None], Stmt]) -> Stmt:
    """`emit(start, count, active)` for consecutive runs that make up 0 … extent-1.

    First runs of `unroll` vectors of `lanes`, then of one; the last is ragged: only `active` of its elements
    are there.
    """
    width = lanes * unroll

    def run(count: Dim, step: int, origin: Dim) -> Stmt:
        v = fresh("v")
        return loop(v, count, emit(origin + Symbol(v) * step, step, None))

    if extent.is_const:
        whole, rest = divmod(extent.value, width)
        parts = [run(as_dim(whole), width, as_dim(0))] if whole else []
        if rest:
            parts.append(emit(as_dim(whole * width), rest, None))
        return block(*parts)
    whole = extent // width
    parts = [run(whole, width, as_dim(0))]
    done = whole * width
    if unroll > 1:
        parts.append(run(extent % width // lanes, lanes, done))
        done = extent // lanes * lanes
    if lanes > 1:
        parts.append(emit(done, lanes, extent % lanes))
    return block(*parts)


def strips(extent: Dim, lanes: int, unroll: int, make: Callable[[Dim], Stmt]) -> Stmt:
    """`make(i)` for i in 0 … extent-1 in vector loops."""

    def vector(start: Dim, count: int, active: Dim | None) -> Stmt:
        lane = fresh("l")
        return For(lane, as_dim(count), make(start + Symbol(lane)), "vector", active=active)

    return pieces(extent, lanes, unroll, vector)


def lanes_of(target: Target, values: Sequence[Expr], stores: Sequence[Buffer] = ()) -> int:
    """Lanes of a vector of the widest element that moves."""
    size = max((ITEMSIZE[n.buffer.dtype] for e in values for n in loads_of(e)), default=1)
    size = max([size, *(ITEMSIZE[b.dtype] for b in stores)])
    if any(b.dtype in ("float16", "bfloat16") for b in stores):
        size = max(size, 4)
    return max(1, target.vector_bits // (8 * size))


def unroll_for(nanoseconds: float) -> int:
    """Vectors in flight: more of them for cheap elements."""
    return 4 if nanoseconds < 0.6 else 2 if nanoseconds < 1.5 else 1


def parallel_over(axes: Sequence[Axis], body: Stmt, work: Dim) -> Stmt:
    """One parallel loop over all axes, the last one fastest; `work` nanoseconds an iteration."""
    units = [a for a in axes if a.extent == 1]
    for a in units:
        body = Bind(a.var, as_dim(0), body)
    axes = [a for a in axes if a.extent != 1]
    work = dmax(work, 1) if not work.is_const else as_dim(max(1, work.value))
    if not axes:
        return body
    if len(axes) == 1:
        return For(axes[0].var, axes[0].extent, body, "parallel", work=work)
    index = fresh("p")
    rest = Symbol(index)
    binds: list[tuple[str, Dim]] = []
    for a in reversed(axes[1:]):
        quotient = fresh("p")
        binds += [(a.var, rest % a.extent), (quotient, rest // a.extent)]
        rest = Symbol(quotient)
    binds.append((axes[0].var, rest))
    for name, value in reversed(binds):
        body = Bind(name, value, body)
    return For(index, product(a.extent for a in axes), body, "parallel", work=work)


def work_of(nanoseconds: float, count: Dim) -> Dim:
    """Whole nanoseconds for `count` elements."""
    thousandths = max(1, round(nanoseconds * 1000))
    return (count * thousandths + 999) // 1000


# ---- values kept through a loop ----------------------------------------------------------------------------
def hoisted(assigns: Sequence[Assign], names: frozenset[str], make: Callable[[list[Assign]], Stmt]) -> Stmt:
    """`make(assigns)` with what does not change with the variables computed before: in registers, or bound
    as an index.
    """
    parts: dict[int, Expr] = {}
    for a in assigns:
        parts.update((id(e), e) for e in invariants(a.value, names))
    places = {id(i) for a in assigns for n in loads_of(a.value) for i in n.indices if isinstance(i, Expr)}
    new: dict[int, Dim | Expr] = {}
    binds: list[tuple[str, Expr]] = []
    registers: list[tuple[Buffer, Expr]] = []
    for e in list(parts.values())[:_HOISTED]:
        if id(e) in places and e.dtype == "int64":
            binds.append((fresh("at"), e))
            new[id(e)] = Symbol(binds[-1][0])
        elif id(e) not in places:
            registers.append((Buffer("kept", (), e.dtype, "register"), e))
            new[id(e)] = Load(registers[-1][0], ())
    body = (
        make([Assign(a.target, a.indices, replaced(a.value, new)) for a in assigns])
        if new
        else make(list(assigns))
    )
    for name, e in reversed(binds):
        body = Bind(name, e, body)
    for b, e in reversed(registers):
        body = Allocate(b, block(store(b, (), e), body))
    return body


# ---- cuts --------------------------------------------------------------------------------------------------
def cut_of(e: Binary, axes: Sequence[Axis]) -> tuple[Axis, Dim] | None:
    """(axis, place) where a comparison of indices changes its truth along one axis; None for other
    comparisons.
    """
    a, b = as_index(e.a), as_index(e.b)
    if a is None or b is None:
        return None
    d = a - b
    mine = [x for x in axes if x.var in d.symbols()]
    if len(mine) != 1:
        return None
    c = d.coefficient(mine[0].var)
    if c is None or not c.is_const or abs(c.value) != 1:
        return None
    rest = d - c * Symbol(mine[0].var)
    place = -rest if c.value == 1 else rest
    after = e.op in ("le", "gt") if c.value == 1 else e.op in ("lt", "ge")
    return mine[0], place + 1 if after else place


def cuts(assigns: Sequence[Assign], axes: Sequence[Axis]) -> list[tuple[Axis, Dim, Binary]]:
    """Places where a condition of some `Select` changes along one axis only, once (not equality)."""
    found = []
    seen: set[int] = set()
    for a in assigns:
        for s in walk(a.value):
            if not isinstance(s, Select):
                continue
            for n in walk(s.cond):
                if isinstance(n, Binary) and n.op in ("lt", "le", "gt", "ge") and id(n) not in seen:
                    seen.add(id(n))
                    cut = cut_of(n, axes)
                    if cut is not None:
                        found.append((*cut, n))
    return found


def halves(
    axis: Axis, place: Dim, assigns: Sequence[Assign], ranges: Ranges
) -> list[tuple[Axis, Dim, list[Assign]]]:
    """The axis before and from `place`: (axis, first value of the old variable, assignments with conditions
    decided).
    """
    middle = ranges.dim(dmin(dmax(place, 0), axis.extent))
    result = []
    for before, first, extent in ((True, as_dim(0), middle), (False, middle, axis.extent - middle)):
        if extent == 0:
            continue
        part = Axis(fresh("s"), extent)

        def decided(n: Expr, before: bool = before) -> Expr | None:
            if (
                isinstance(n, Binary)
                and n.op in ("lt", "le", "gt", "ge")
                and cut_of(n, [axis]) == (axis, place)
            ):
                d = as_index(n.a) - as_index(n.b)  # type: ignore[operator]
                rising = d.coefficient(axis.var) == 1
                low = (n.op in ("lt", "le")) == rising  # true before the place
                return Const(low == before, "bool")
            return None

        env = {axis.var: first + Symbol(part.var)}
        mine = [Assign(a.target, a.indices, transform(a.value, decided)).substituted(env) for a in assigns]
        result.append((part, first, tidy(mine, [part], ranges)))
    return result


# ---- whole nests -------------------------------------------------------------------------------------------
class Nest:
    """Schedules assignments over a box of axes; all their iterations are independent."""

    def __init__(self, target: Target, *, share: bool = True, ranges: Ranges | None = None):
        self.target, self.share, self.ranges = target, share and target.cores > 1, ranges or Ranges()

    def schedule(self, axes: Sequence[Axis], assigns: Sequence[Assign], budget: int = 16) -> Stmt:
        """Loops over `axes` (in the order of the targets' memory) around flat assignments."""
        axes, env = without_units(axes)
        axes, parts = divided(axes, [a.substituted(env).value for a in assigns])
        assigns = tidy([a.substituted(env).substituted(parts) for a in assigns], axes, self.ranges)
        return self._boxes(axes, assigns, budget)

    def _boxes(self, axes: Sequence[Axis], assigns: list[Assign], budget: int) -> Stmt:
        """Outer axes cut where conditions change; each part is a nest of its own."""
        if any(a.extent == 0 for a in axes):
            return block()
        found = next(((x, p) for x, p, _ in cuts(assigns, axes) if budget > 1 and x is not axes[-1]), None)
        if found is None:
            dims = forms([a.value for a in assigns], [i for a in assigns for i in a.indices])
            fewer, env = collapse(axes, dims)
            return self._nest(fewer, tidy([a.substituted(env) for a in assigns], fewer, self.ranges))
        axis, place = found
        k = axes.index(axis)
        ranges = self.ranges.within({a.var: (as_dim(0), a.extent - 1) for a in axes})
        parts = []
        for part, _, mine in halves(axis, place, assigns, ranges):
            parts.append(self._boxes((*axes[:k], part, *axes[k + 1 :]), mine, budget // 2))
        return block(*parts)

    def _nest(self, axes: Sequence[Axis], assigns: list[Assign]) -> Stmt:
        if not axes:
            return block(*(a.stmt() for a in assigns))
        crossed = self._crossing(axes, assigns)
        each = sum(cost(a.value) for a in assigns) + 0.1
        if crossed is not None:
            return self._across(axes, crossed, assigns, each)
        *outer, last = axes
        if not outer:
            return self._line(last, assigns, each)
        return self._rows(outer, last, assigns, each)

    # ---- one long line -------------------------------------------------------------------------------------
    def _line(self, axis: Axis, assigns: list[Assign], each: float) -> Stmt:
        chunk = max(64, int(CHUNK / each) // 64 * 64)
        if not self.share or axis.extent.is_const and axis.extent.value < 2 * chunk:
            return self.row(axis, assigns)
        c = fresh("c")
        first = Symbol(c) * chunk
        exact = axis.extent.is_const and axis.extent.value % chunk == 0
        part = Axis(fresh("i"), as_dim(chunk) if exact else dmin(chunk, axis.extent - first))
        count = fresh("n")
        bound = Axis(part.var, Symbol(count)) if not part.extent.is_const else part
        body = self.row(bound, [a.substituted({axis.var: first + Symbol(part.var)}) for a in assigns])
        if bound is not part:
            body = Bind(count, part.extent, body)
        return For(c, ceildiv(axis.extent, chunk), body, "parallel", work=work_of(each, as_dim(chunk)))

    def row(self, axis: Axis, assigns: Sequence[Assign]) -> Stmt:
        """One run along the innermost axis, in pieces where conditions change."""
        lanes = lanes_of(self.target, [a.value for a in assigns], [a.target for a in assigns])
        long = not axis.extent.is_const or axis.extent.value > 2 * lanes
        ranges = self.ranges.within({axis.var: (as_dim(0), axis.extent - 1)})
        found = [(p, n) for _, p, n in cuts(assigns, [axis])] if long else []
        if found and len({p for p, _ in found}) <= 12:
            parts = halves(axis, found[0][0], assigns, ranges)
            return block(*(self.row(part, mine) for part, _, mine in parts))
        unroll = unroll_for(sum(cost(a.value) for a in assigns))

        def strip(kept: list[Assign]) -> Stmt:
            return strips(
                axis.extent,
                lanes,
                unroll,
                lambda i: block(*(a.substituted({axis.var: i}).stmt() for a in kept)),
            )

        return hoisted(assigns, frozenset({axis.var}), strip)

    # ---- rows ----------------------------------------------------------------------------------------------
    def _rows(self, outer: Sequence[Axis], last: Axis, assigns: list[Assign], each: float) -> Stmt:
        return self.shared(outer, self.row(last, assigns), each * guess(last.extent), last.extent, each)

    def shared(self, outer: Sequence[Axis], body: Stmt, inner: float, count: Dim, each: float) -> Stmt:
        """Outer loops around `body`: the inner ones serial until there is enough work to share, the rest
        parallel.

        inner: nanoseconds of one body, about; `count` elements of `each` nanoseconds exactly.
        """
        total = product([*(a.extent for a in outer), count])
        if not self.share or total.is_const and total.value * each < SHARED:
            for a in reversed(outer):
                body = loop(a.var, a.extent, body)
            return body
        rest = list(outer)
        while len(rest) > 1 and inner < CHUNK:
            a = rest[-1]
            if a.extent.is_const and a.extent.value * inner <= 2 * CHUNK:
                body, inner, count = loop(a.var, a.extent, body), inner * a.extent.value, count * a.extent
                rest.pop()
                continue
            size = max(1, int(CHUNK / inner))
            if size == 1:
                break
            c, i = fresh("c"), fresh("i")
            left = dmin(size, a.extent - Symbol(c) * size)
            body = loop(i, left, Bind(a.var, Symbol(c) * size + Symbol(i), body))
            rest[-1] = Axis(c, ceildiv(a.extent, size))
            count = count * size
            break
        return parallel_over(rest, body, work_of(each, count))

    # ---- transpositions ------------------------------------------------------------------------------------
    def _crossing(self, axes: Sequence[Axis], assigns: Sequence[Assign]) -> Axis | None:
        """An outer axis along which some load is contiguous that is not so along the last one."""
        last = axes[-1]
        for a in assigns:
            for n in loads_of(a.value):
                place = n.indices[-1] if n.indices else as_dim(0)
                if not isinstance(place, Dim) or stride(place, last.var) in (as_dim(0), as_dim(1)):
                    continue
                for x in axes[:-1]:
                    if stride(place, x.var) == 1:
                        return x
        return None

    def _across(self, axes: Sequence[Axis], across: Axis, assigns: list[Assign], each: float) -> Stmt:
        last = axes[-1]
        others = [a for a in axes[:-1] if a is not across]
        lanes = lanes_of(self.target, [a.value for a in assigns], [a.target for a in assigns])
        if last.extent.is_const and last.extent.value <= 8 and last.extent.value < 2 * lanes:
            return self._interleaved(others, across, last, assigns, lanes, each)
        lanes = max(4, min(lanes, 8))
        block_size = _TILE
        tile, i = fresh("b"), fresh("i")
        first = Symbol(tile) * block_size
        exact = across.extent.is_const and across.extent.value % block_size == 0
        height = as_dim(block_size) if exact else dmin(block_size, across.extent - first)
        v, lane = fresh("v"), fresh("l")

        def vectors(start: Dim, count: int, active: Dim | None = None) -> Stmt:
            env = {last.var: start + Symbol(lane), across.var: first + Symbol(i)}
            body = block(*(a.substituted(env).stmt() for a in assigns))
            return loop(i, height, For(lane, as_dim(count), body, "vector", active=active))

        whole = last.extent // lanes
        parts = [loop(v, whole, vectors(Symbol(v) * lanes, lanes))]
        if not last.extent.is_const:
            parts.append(vectors(whole * lanes, lanes, last.extent % lanes))
        elif last.extent.value % lanes:
            parts.append(vectors(whole * lanes, last.extent.value % lanes))
        each = max(each, 0.5)
        blocks = Axis(tile, ceildiv(across.extent, block_size))
        count = last.extent * block_size
        return self.shared([*others, blocks], block(*parts), each * guess(count), count, each)

    def _interleaved(
        self, others: Sequence[Axis], across: Axis, last: Axis, assigns: list[Assign], lanes: int, each: float
    ) -> Stmt:
        """A short last axis: vectors along the other one, its elements written side by side."""

        def make(i: Dim) -> Stmt:
            return block(
                *(
                    a.substituted({across.var: i, last.var: as_dim(j)}).stmt()
                    for j in range(last.extent.value)
                    for a in assigns
                )
            )

        each = each + 0.5
        chunk = max(64, int(CHUNK / (each * last.extent.value)) // 64 * 64)
        if across.extent.is_const and across.extent.value <= chunk:
            body = strips(across.extent, lanes, 1, make)
            count = across.extent * last.extent
            return self.shared(others, body, each * guess(count), count, each)
        c = fresh("c")
        first = Symbol(c) * chunk
        left = fresh("n")
        body = Bind(
            left,
            dmin(chunk, across.extent - first),
            strips(Symbol(left), lanes, 1, lambda i: make(first + i)),
        )
        count = last.extent * chunk
        return self.shared(
            [*others, Axis(c, ceildiv(across.extent, chunk))], body, each * guess(count), count, each
        )


__all__ = ["Index", "Nest", "hoisted", "parallel_over", "ranges_of", "strips", "unroll_for", "work_of"]

"""Few rows against an operand whose contracted axis is contiguous: inner products, with lanes along that
axis.

Packing B would cost more than the product itself (one token's query against all keys). A handful of columns
share each vector of A; their partial sums are added up across lanes at the end.
"""

from __future__ import annotations

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import (
    Axis,
    Buffer,
    Expr,
    Index,
    LaneReduce,
    Load,
    identity_of,
    substitute,
    transform,
)
from intarsia.kernel.stmt import Allocate, Bind, For, If, Stmt, block, loop, store
from intarsia.kernel.strategy.contraction.form import Form, address
from intarsia.kernel.strategy.contraction.pack import parallel
from intarsia.kernel.target import ITEMSIZE, Target

ROWS = 4  # fewer rows than this are worth it
COLUMNS = 4


def dottable(form: Form) -> bool:
    """Whether both operands are contiguous along the one contracted axis."""
    if (
        len(form.inner) != 1
        or len(form.parts) != 1
        or not isinstance(form.b, Load)
        or form.b.dtype != form.dtype
    ):
        return False
    k, place = form.inner[0].var, form.a.indices[0]
    if not all(isinstance(i, Dim) for i in form.b.indices) or "float" not in form.dtype or form.op != "sum":
        return False
    b = address(form.b.buffer, form.b.indices)
    assert isinstance(place, Dim)
    affine = b.coefficient(form.column.var) is not None
    return place.coefficient(k) == 1 and b.coefficient(form.parts[0].var) == 1 and affine


def dots(form: Form, target: Target) -> Stmt:
    """Every result as an inner product; parallel over outer axes, rows and groups of columns."""
    assert isinstance(form.b, Load)
    count = form.column.extent
    group, first = Axis(fresh("g"), ceildiv(count, COLUMNS)), fresh("first")
    whole = _columns(form, Symbol(first), COLUMNS, target)
    j = fresh("j")
    rest = loop(j, count - Symbol(first), _columns(form, Symbol(first) + Symbol(j), 1, target))
    if not (count.is_const and count.value % COLUMNS == 0):
        whole = If(Index(Symbol(first) + COLUMNS) <= count, whole, rest)
    body = Bind(first, Symbol(group.var) * COLUMNS, whole)
    work = product(x.extent for x in form.inner) * (COLUMNS * ITEMSIZE[form.dtype]) // 16
    return parallel([*form.outer, *form.rows, group], body, work)


def _columns(form: Form, column: Dim, count: int, target: Target) -> Stmt:
    """`count` neighbouring columns of one row."""
    assert isinstance(form.b, Load)
    lanes, extent = max(1, target.lanes(form.dtype)) * 2, form.inner[0].extent
    place = form.a.indices[0]
    assert isinstance(place, Dim)
    sums = [Buffer(f"sum{c}", (as_dim(lanes),), form.dtype, "register") for c in range(count)]
    b, at = form.flat.view(form.b.buffer), address(form.b.buffer, form.b.indices)
    zero = identity_of("sum", form.dtype)

    def products(k: Dim, c: int) -> Expr:
        right = at.subst({form.parts[0].var: k, form.column.var: column + c})
        return form.a.buffer[place.subst({form.inner[0].var: k})] * b[right]

    def lane(make) -> Stmt:
        j = fresh("j")
        return For(j, as_dim(lanes), block(*(make(Symbol(j), c) for c in range(count))), "vector")

    v = fresh("v")
    whole = extent // lanes
    k = Symbol(v) * lanes
    clear = lane(lambda j, c: store(sums[c], (j,), zero))
    main = loop(v, whole, lane(lambda j, c: store(sums[c], (j,), sums[c][j] + products(k + j, c))))
    tails = [Buffer(f"tail{c}", (), form.dtype, "stack") for c in range(count)]
    i = fresh("i")
    add = [store(tails[c], (), tails[c][()] + products(whole * lanes + Symbol(i), c)) for c in range(count)]
    finish = [store(tails[c], (), LaneReduce("sum", sums[c])) for c in range(count)]
    remain = extent - whole * lanes
    tail = block(*finish) if remain == 0 else block(*finish, loop(i, remain, block(*add)))
    results = [_results(form, column + c, tails[c][()]) for c in range(count)]
    body = block(clear, main, tail, *results)
    for buffer in (*sums, *tails):
        body = Allocate(buffer, body)
    return body


def _results(form: Form, column: Dim, total: Expr) -> Stmt:
    env = {form.column.var: column}

    def value(e: Expr) -> Expr:
        e = substitute(e, env)
        return transform(e, lambda n: total if isinstance(n, Load) and n.buffer is form.sums else None)

    return block(*(store(r.buffer, (r.place.subst(env),), value(r.value)) for r in form.results))

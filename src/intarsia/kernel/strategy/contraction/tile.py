"""The register tile: a few rows by a few vectors of sums held in registers while the contracted loops run.

    acc[rows, width] = 0
    for k …: row[width] = B(k, ·);  acc[i, ·] += A(i, k) * row[·]   for every row i

Every contraction ends in this one generator: what A, B and the finished sums are is given by functions. The
innermost contracted loop is unrolled by four (more only costs code); few rows keep several partial sums, so
that the multiply-add latency does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intarsia.dim import Dim, Symbol, as_dim, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Binary, Buffer, Expr, Load, identity_of
from intarsia.kernel.stmt import Allocate, For, If, Stmt, block, loop, store
from intarsia.kernel.target import Target

UNROLL = 4
FULL = 9  # so many steps need no loop at all
CHAINS = 8  # independent multiply-adds that hide the latency of one on every CPU in sight


@dataclass(frozen=True, slots=True)
class TileShape:
    """rows: the most rows of a tile. width: its columns, a multiple of the vector's lanes."""

    rows: int
    width: int


# (rows, vectors, cost relative to the best shape): the sums fill the registers but for a row of B,
# one element of A, and a product where nothing multiplies and adds at once. Measured: within 3 % of each
# other while all columns count, so that waste decides.
_NO_FMA = ((4, 2, 1.0), (8, 1, 1.05))
_FEW_REGISTERS = ((6, 2, 1.0), (4, 3, 1.01), (12, 1, 1.03))
_MANY_REGISTERS = ((8, 2, 1.0), (7, 3, 1.01), (12, 1, 1.05))
_WIDE_REGISTERS = ((6, 4, 1.0), (9, 3, 1.01), (12, 2, 1.01), (12, 1, 1.1))


def tile_shape(target: Target, dtype: str, columns: Dim) -> TileShape:
    """The tile that wastes the least: by registers, and by how many columns there are (if that is known)."""
    lanes = max(1, target.lanes(dtype))
    choices = _FEW_REGISTERS if target.fma else _NO_FMA
    if target.registers >= 32:
        choices = _WIDE_REGISTERS if target.vector_bits >= 512 else _MANY_REGISTERS

    def cost(choice: tuple[int, int, float]) -> float:
        width = choice[1] * lanes
        return -(-columns.value // width) * width * choice[2]

    rows, vectors, _ = min(choices, key=cost) if columns.is_const else choices[0]
    return TileShape(rows, vectors * lanes)


def register_tile(
    rows: int,
    width: int,
    dtype: str,
    target: Target,
    inner: Sequence[Axis],
    a: Callable[[Dim, Sequence[Dim], Dim], Expr],
    b: Callable[[Sequence[Dim], Dim], Expr] | None,
    finish: Callable[[Callable[[Dim, Dim], Expr]], Stmt],
    op: str = "sum",
    begin: tuple[Callable[[Dim, Dim], Expr], Expr] | None = None,
) -> Stmt:
    """The sums of `rows` x `width` products over the `inner` axes, then what `finish` makes of them.

    a:      (row, inner indices, lane) -> element of A; the same for all lanes, but in depthwise products
    b:      (inner indices, lane) -> element of B; None: A alone is combined (a pool)
    finish: given (row, lane) -> sum, the statement that uses the sums
    op:     how elements are combined, 'sum' or another reduction
    begin:  ((row, lane) -> what to start from, condition under which to start from nothing instead)
    """
    vectors = -(-width // max(1, target.lanes(dtype)))
    copies = min(UNROLL, max(1, -(-CHAINS // (rows * vectors))))
    acc = Buffer("acc", (as_dim(copies), as_dim(rows), as_dim(width)), dtype, "register")
    row_of_b = Buffer("b", (as_dim(width),), dtype, "register")
    neutral = identity_of(op, dtype)
    binary = {"sum": "add", "prod": "mul"}.get(op, op)

    def step(indices: Sequence[Dim], copy: Dim) -> Stmt:
        def combine(i: Dim, j: Dim) -> Stmt:
            value = a(i, indices, j)
            value = value if b is None else value * Load(row_of_b, (j,))
            return store(acc, (copy, i, j), Binary(binary, Load(acc, (copy, i, j)), value))

        products = each_row(rows, lambda i: vector(width, lambda j: combine(i, j)))
        if b is None:
            return products
        return block(vector(width, lambda j, b=b: store(row_of_b, (j,), b(indices, j))), products)

    def start(copy: int, value: Callable[[Dim, Dim], Expr]) -> Stmt:
        return each_row(rows, lambda i: vector(width, lambda j: store(acc, (copy, i, j), value(i, j))))

    first = [start(c, lambda i, j: neutral) for c in range(copies)]
    if begin is not None:
        so_far, nothing = begin
        first[0] = If(nothing, first[0], start(0, so_far))
    fold = [
        start(0, lambda i, j, c=c: Binary(binary, acc[0, i, j], acc[c, i, j]))
        for c in range(1, copies)
    ]  # fmt: skip
    sums = contracted(inner, step, copies)
    body = Allocate(acc, block(*first, sums, *fold, finish(lambda i, j: acc[0, i, j])))
    return body if b is None else Allocate(row_of_b, body)


def vector(width: int, body: Callable[[Dim], Stmt], active: Dim | None = None) -> Stmt:
    """body for all lanes of a row, or for the active ones."""
    if width == 1 and active is None:
        return body(as_dim(0))
    j = fresh("j")
    return For(j, as_dim(width), body(Symbol(j)), "vector", active=active)


def each_row(rows: int, body: Callable[[Dim], Stmt]) -> Stmt:
    """body for each of a tile's rows."""
    if rows == 1:
        return body(as_dim(0))
    i = fresh("i")
    return For(i, as_dim(rows), body(Symbol(i)), "unroll")


def contracted(inner: Sequence[Axis], step: Callable[[Sequence[Dim], Dim], Stmt], copies: int = 1) -> Stmt:
    """Loops over the inner axes around `step(indices, copy)`; the last one unrolled, copies taken in turn."""
    if not inner:
        return step((), as_dim(0))
    size = product(x.extent for x in inner)
    if size.is_const and size.value <= FULL:
        return _all_steps(inner, step, copies)
    *outer, last = inner
    before = [Symbol(x.var) for x in outer]

    def run(first: Dim, count: int) -> Stmt:
        u = Symbol(fresh("u"))
        assert u.symbol is not None
        if count == 1:
            return step((*before, first), as_dim(0))
        return For(u.symbol, as_dim(count), step((*before, first + u), u % copies), "unroll")

    extent = last.extent
    parts: list[Stmt] = []
    whole = extent // UNROLL
    if extent.is_const and extent.value < 2 * UNROLL:
        parts += [run(as_dim(0), extent.value)] if extent.value else []
    else:
        k = fresh("k")
        parts.append(loop(k, whole, run(Symbol(k) * UNROLL, UNROLL)))
        rest = extent - whole * UNROLL
        if rest.is_const:
            parts += [run(whole * UNROLL, rest.value)] if rest.value else []
        else:
            k = fresh("k")
            parts.append(loop(k, rest, run(whole * UNROLL + Symbol(k), 1)))
    body = block(*parts)
    for x in reversed(outer):
        body = loop(x.var, x.extent, body)
    return body


def _all_steps(inner: Sequence[Axis], step: Callable[[Sequence[Dim], Dim], Stmt], copies: int) -> Stmt:
    """Every step written out."""
    count = as_dim(0)
    for x in inner:
        count = count * x.extent + Symbol(x.var)
    body = step([Symbol(x.var) for x in inner], count % copies)
    for x in reversed(inner):
        body = For(x.var, x.extent, body, "unroll")
    return body

"""The register tile: a few rows by a few vectors of sums held in registers while the contracted loops run.

    acc[rows, width] = 0
    for k …: row[width] = B(k, ·);  acc[i, ·] += A(i, k) * row[·]   for every row i

Every contraction ends in this one generator: what A, B and the finished sums are is given by functions. The innermost
contracted loop is unrolled by four (more only costs code); few rows keep several partial sums, so that the multiply-add
latency does not show.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from intarsia.dim import Dim, Symbol, as_dim, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Binary, Buffer, Expr, Load, identity_of
from intarsia.kernel.stmt import Allocate, For, Stmt, block, loop, store
from intarsia.kernel.target import Target

UNROLL = 4
FULL = 9  # so many steps need no loop at all
CHAINS = 8  # independent multiply-adds that hide the latency of one on every CPU in sight


@dataclass(frozen=True, slots=True)
class TileShape:
    """rows: the most rows of a tile. width: its columns, a multiple of the vector's lanes."""

    rows: int
    width: int


def tile_shape(target: Target, dtype: str, columns: Dim) -> TileShape:
    """The tile that wastes the least: by registers, and by how many columns there are (if that is known).

    The sums fill all registers but those of one row of B and one broadcast of A.
    """
    lanes = max(1, target.lanes(dtype))
    choices = [(6, 4), (9, 3), (12, 2), (12, 1)] if target.registers >= 32 and target.vector_bits >= 512 else []
    if not choices:
        choices = [(8, 2), (5, 3), (12, 1)] if target.registers >= 32 else [(6, 2), (4, 3), (12, 1)]

    def cost(choice: tuple[int, int]) -> float:
        rows, vectors = choice
        width = vectors * lanes
        padded = -(-columns.value // width) * width if columns.is_const else width
        return padded * (1 + 1 / rows / 2 + 1 / vectors / 8)

    rows, vectors = choices[0] if not columns.is_const else min(choices, key=cost)
    return TileShape(rows, vectors * lanes)


def register_tile(
    rows: int,
    width: int,
    dtype: str,
    target: Target,
    inner: Sequence[Axis],
    a: Callable[[int, Sequence[Dim], Dim], Expr],
    b: Callable[[Sequence[Dim], Dim], Expr] | None,
    finish: Callable[[Callable[[int, Dim], Expr]], Stmt],
    op: str = "sum",
) -> Stmt:
    """The sums of `rows` x `width` products over the `inner` axes, then what `finish` makes of them.

    a:      (row, inner indices, lane) -> element of A; the same for all lanes, but in depthwise products
    b:      (inner indices, lane) -> element of B; None: A alone is combined (a pool)
    finish: given (row, lane) -> sum, the statement that uses the sums
    op:     how elements are combined, 'sum' or another reduction
    """
    vectors = -(-width // max(1, target.lanes(dtype)))
    copies = min(UNROLL, max(1, -(-CHAINS // (rows * vectors))))
    acc = Buffer("acc", (as_dim(copies * rows), as_dim(width)), dtype, "register")
    neutral = identity_of(op, dtype)
    binary = {"sum": "add", "prod": "mul"}.get(op, op)

    def lanes(make: Callable[[Dim], Stmt]) -> Stmt:
        lane = fresh("j")
        return For(lane, as_dim(width), make(Symbol(lane)), "vector")

    def step(indices: Sequence[Dim], copy: int) -> Stmt:
        row = Buffer("b", (as_dim(width),), dtype, "register")

        def combine(i: int) -> Stmt:
            at = copy * rows + i

            def value(j: Dim) -> Expr:
                return a(i, indices, j) if b is None else a(i, indices, j) * Load(row, (j,))

            return lanes(lambda j: store(acc, (at, j), Binary(binary, acc[at, j], value(j))))

        stmts = [combine(i) for i in range(rows)]
        if b is None:
            return block(*stmts)
        return Allocate(row, block(lanes(lambda j: store(row, (j,), b(indices, j))), *stmts))

    sums = contracted(inner, step, copies)
    fold = [
        lanes(lambda j, i=i, c=c: store(acc, (i, j), Binary(binary, acc[i, j], acc[c * rows + i, j])))
        for c in range(1, copies)
        for i in range(rows)
    ]
    clear = [lanes(lambda j, i=i: store(acc, (i, j), neutral)) for i in range(copies * rows)]
    return Allocate(acc, block(*clear, sums, *fold, finish(lambda i, j: acc[i, j])))


def contracted(inner: Sequence[Axis], step: Callable[[Sequence[Dim], int], Stmt], copies: int = 1) -> Stmt:
    """Loops over the inner axes around `step(indices, copy)`; the last one unrolled, `copy` counts its steps."""
    if not inner:
        return step((), 0)
    *outer, last = inner
    size = product(x.extent for x in inner)
    if size.is_const and size.value <= FULL:
        places = itertools.product(*(range(x.extent.value) for x in inner))
        return block(*(step([as_dim(i) for i in place], u % copies) for u, place in enumerate(places)))
    before = [Symbol(x.var) for x in outer]

    def run(first: Dim, count: int) -> list[Stmt]:
        return [step((*before, first + u), u % copies) for u in range(count)]

    extent = last.extent
    parts: list[Stmt] = []
    whole = extent // UNROLL
    if extent.is_const and extent.value < 2 * UNROLL:
        parts += run(as_dim(0), extent.value)
    else:
        k = fresh("k")
        parts.append(loop(k, whole, block(*run(Symbol(k) * UNROLL, UNROLL))))
        rest = extent - whole * UNROLL
        if rest.is_const:
            parts += run(whole * UNROLL, rest.value)
        else:
            k = fresh("k")
            parts.append(loop(k, rest, block(*run(whole * UNROLL + Symbol(k), 1))))
    body = block(*parts)
    for x in reversed(outer):
        body = loop(x.var, x.extent, body)
    return body

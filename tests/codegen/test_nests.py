"""Random loop nests: machine code against the reference executor, exactly (integers) or within rounding
(floats)."""

from __future__ import annotations

import random

import numpy as np
import pytest

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmax, dmin
from intarsia.kernel.expr import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    LaneReduce,
    Select,
    Unary,
    cast,
    identity_of,
)
from intarsia.kernel.stmt import Allocate, Bind, Block, If, Kernel, Stmt, block, loop, store

from .harness import IMPORTS, check, native_target, shares, sse2

COLUMNS = 21


class Maker:
    """One random kernel over x[n, COLUMNS], y[COLUMNS] and places[n] (row numbers)."""

    def __init__(self, seed: int, dtype: str):
        self.r = random.Random(seed)
        self.dtype = dtype
        self.n = Symbol("n")
        self.x = Buffer("x", (self.n, as_dim(COLUMNS)), dtype)
        self.y = Buffer("y", (as_dim(COLUMNS),), dtype)
        self.places = Buffer("places", (self.n,), "int64")
        self.out = Buffer("out", (self.n, as_dim(COLUMNS)), dtype)
        self.total = Buffer("total", (self.n,), dtype)

    # ---- indices and expressions ---------------------------------------------------------------------------
    def column(self, j: Dim) -> Dim:
        """Some column, in bounds for 0 <= j < COLUMNS."""
        c = COLUMNS
        return self.r.choice(
            [
                j,
                j,
                j,
                c - 1 - j,
                (j * 5 + 3) % c,
                j // 2,
                as_dim(self.r.randrange(c)),
                dmin(j + 2, c - 1),
                dmax(j - 3, 0),
                (j + 1) % c,
            ]
        )

    def const(self) -> Const:
        return Const(
            self.r.randrange(0 if self.dtype[0] == "u" else -9, 10)
            if "int" in self.dtype
            else self.r.uniform(-2, 2),
            self.dtype,
        )

    def leaf(self, i: Dim, j: Dim) -> Expr:
        shift = self.r.randrange(-4, 5)
        moved = j + shift
        inside = Binary(
            "and",
            Binary("ge", Index(moved), Const(0, "int64")),
            Binary("lt", Index(moved), Const(COLUMNS, "int64")),
        )
        return self.r.choice(
            [
                self.x[i, self.column(j)],
                self.x[i, j],
                self.y[self.column(j)],
                self.const(),
                cast(Index(i * 3 + j), self.dtype),
                Select(inside, self.x[i, moved], self.const()),
                self.x[self.places[i], self.column(j)],
                Select(inside, self.y[moved], self.x[i, j]),
                Select(Binary("lt", Index(i + 1), Index(self.n)), self.x[i + 1, j], self.const()),
                self.y[Binary("mod", Cast(self.x[i, j], "int64"), Const(COLUMNS, "int64"))],
            ]
        )

    def expr(self, depth: int, i: Dim, j: Dim) -> Expr:
        if depth == 0:
            return self.leaf(i, j)
        a, b = self.expr(depth - 1, i, j), self.expr(self.r.randrange(depth), i, j)
        if self.r.random() < 0.3:
            cond = Binary(self.r.choice(["lt", "ge", "eq"]), a, b)
            return Select(cond, b, self.expr(self.r.randrange(depth), i, j))
        if self.r.random() < 0.2:
            return Unary(self.r.choice(["neg", "abs"]), a)
        return Binary(self.r.choice(["add", "sub", "mul", "min", "max"]), a, b)

    # ---- statements ----------------------------------------------------------------------------------------
    def row(self, i: Dim) -> Stmt:
        """Writes out[i, :]."""
        name = self.r.choice(["j", "k", "w"])
        j = Symbol(name)
        value = self.expr(self.r.randrange(1, 4), i, j)
        match self.r.randrange(6):
            case 0:
                return loop(name, COLUMNS, store(self.out, (i, j), value))
            case 1:
                return loop(name, COLUMNS, store(self.out, (i, j), value), "vector")
            case 2:
                return loop(name, COLUMNS, store(self.out, (i, j), value), "unroll")
            case 3:  # blocks with a ragged end
                width = self.r.choice([4, 8, 16, 5])
                o, v = Symbol("o"), Symbol("v")
                inner = store(self.out, (i, o * width + v), self.expr(2, i, o * width + v))
                return loop(
                    "o",
                    ceildiv(COLUMNS, width),
                    loop("v", width, inner, "vector", active=COLUMNS - o * width),
                )
            case 4:  # a choice for each lane, or for all
                cond = Binary(
                    "lt",
                    *self.r.choice(
                        [
                            (self.x[i, j], self.y[j]),
                            (Index(i), Const(3, "int64")),
                            (Index(j), Const(7, "int64")),
                        ]
                    ),
                )
                other = store(self.out, (i, j), self.expr(1, i, j))
                return loop(
                    name,
                    COLUMNS,
                    If(cond, store(self.out, (i, j), value), other),
                    self.r.choice(["vector", "serial"]),
                )
        bound = Symbol("b")
        chosen = Bind(
            "b",
            Binary("mod", cast(self.x[i, j], "int64"), Const(COLUMNS, "int64")),
            store(self.out, (i, j), value + self.y[bound]),
        )
        return loop(name, COLUMNS, chosen, self.r.choice(["vector", "serial"]))

    def sum(self, i: Dim) -> Stmt:
        """Writes total[i] through registers."""
        op = self.r.choice(["sum", "max", "min"])
        combine = {"sum": "add"}.get(op, op)
        width = self.r.choice([4, 7, 8, 1])
        acc = Buffer("acc", (as_dim(width),), self.dtype, self.r.choice(["register", "stack"]))
        if acc.scope == "stack":
            width_sum: Expr = acc[0]
            for c in range(1, width):
                width_sum = Binary(combine, width_sum, acc[c])
        else:
            width_sum = LaneReduce(op, acc)
        v, o = Symbol("v"), Symbol("o")
        start = loop("v", width, store(acc, (v,), identity_of(op, self.dtype)), "vector")
        term = self.expr(1, i, o * width + v)
        step = loop(
            "v", width, store(acc, (v,), Binary(combine, acc[v], term)), "vector", active=COLUMNS - o * width
        )
        return Allocate(
            acc, block(start, loop("o", ceildiv(COLUMNS, width), step), store(self.total, (i,), width_sum))
        )

    def lanes_outside(self) -> Stmt:
        """Rows as lanes: a private accumulator for each lane, a serial loop inside."""
        o, v, j = Symbol("o"), Symbol("v"), Symbol("j")
        i = o * 8 + v
        acc = Buffer("acc", (as_dim(1),), self.dtype, "register")
        body = block(
            store(acc, (0,), Const(0, self.dtype)),
            loop("j", COLUMNS, store(acc, (0,), Binary("max", acc[0], self.x[i, j] + self.leaf(i, j)))),
            store(self.total, (i,), acc[0]),
        )
        inner = loop("v", 8, Allocate(acc, body), "vector", active=self.n - o * 8)
        return loop("o", ceildiv(self.n, 8), inner)

    def kernel(self) -> Kernel:
        i = Symbol("i")
        work = self.r.choice([None, 10, 3000, 20000])
        kind = self.r.choice(["serial", "parallel"])
        rows = loop("i", self.n, self.row(i), kind, work=work if kind == "parallel" else None)
        sums = (
            self.lanes_outside()
            if self.r.random() < 0.3
            else loop("i", self.n, self.sum(i), self.r.choice(["serial", "parallel"]))
        )
        body = Block((rows, sums))
        return Kernel("random", (self.x, self.y, self.places), (self.out, self.total), (), ("n",), body)

    def arrays(self, n: int) -> list[np.ndarray]:
        rng = np.random.default_rng(self.r.randrange(1 << 30))

        def some(*shape):
            return (
                rng.integers(-50, 50, shape).astype(self.dtype)
                if "int" in self.dtype
                else rng.normal(0, 2, shape).astype(self.dtype)
            )

        return [some(n, COLUMNS), some(COLUMNS), rng.integers(0, max(n, 1), n)]


@pytest.mark.parametrize("seed", range(36))
def test_random_nests(seed):
    assert IMPORTS
    dtype = ["int32", "float32", "int64", "float64", "int8", "uint16"][seed % 6]
    maker = Maker(seed, dtype)
    kernel = maker.kernel()
    target = native_target(cores=2) if seed % 3 else sse2()
    for n in (0, 1, 5, 8, 11)[seed % 2 :: 2]:
        check(
            kernel,
            maker.arrays(n),
            {"n": n},
            target,
            tolerance=0 if "int" in dtype else {"float32": 2e-5, "float64": 1e-12}[dtype],
        )


@pytest.mark.parametrize("op", ["eq", "lt", "ge", "ne", "le", "gt"])
def test_nested_branches_on_sizes(op):
    """What one branch decides holds in it, and nowhere else."""
    n, i, v = Symbol("n"), Symbol("i"), Symbol("v")
    out = Buffer("out", (as_dim(12), as_dim(8)), "int32")

    def choose(k: int) -> Stmt:
        if k == 6:
            return loop("v", 8, store(out, (i, v), Const(-1, "int32")), "vector")
        write = loop("v", 8, store(out, (i, v), cast(Index(i * 100 + k), "int32")), "vector")
        some = block(
            loop("v", 8, store(out, (i, v), Const(7, "int32")), "vector"),
            loop("v", 8, store(out, (i, v), Const(k, "int32")), "vector", active=i - n),
        )
        return If(
            Binary(op, Index(i - n), Const(k, "int64")),
            If(Binary("lt", Index(i - n), Const(4, "int64")), write, some),
            choose(k + 1),
        )

    kernel = Kernel("branches", (), (out,), (), ("n",), loop("i", 12, choose(0)))
    for size in (0, 3, 8):
        check(kernel, [], {"n": size})


def test_parallel_loops_are_shared_only_when_there_is_enough_work():
    n = Symbol("n")
    x, y = Buffer("x", (n,), "float32"), Buffer("y", (n,), "float32")
    i = Symbol("i")
    kernel = Kernel(
        "p", (x,), (y,), (), ("n",), loop("i", n, store(y, (i,), x[i] + 1.0), "parallel", work=100)
    )
    for size, parts in ((3, []), (79, []), (1000, [21])):
        shares.clear()
        check(kernel, [np.arange(size, dtype=np.float32)], {"n": size}, native_target(cores=4))
        assert shares == parts

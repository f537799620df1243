"""Simplification keeps values, and decides what bounds decide."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim, dmax, dmin
from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.kernel.expr import Binary, Buffer, Cast, Const, Index, Load, Select, Unary, walk
from intarsia.kernel.simplify import Ranges, simplify
from intarsia.kernel.stmt import For, Kernel, store

n, i, j = Symbol("n"), Symbol("i"), Symbol("j")
R = Ranges({"i": (as_dim(0), n - 1), "j": (as_dim(0), as_dim(7))})
X = Buffer("x", (n, as_dim(8)), "int32")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((i * 8 + j) // 8, i),
        ((i * 8 + j) % 8, j),
        (i % n, i),
        (i // n, as_dim(0)),
        ((i * n + i) // n, i),
        (dmin(i, n), i),
        (dmax(i, 0), i),
        (dmin(j, 7), j),
        (dmax(i - n, 0), as_dim(0)),
        (dmin(n, n + 3), n),
    ],
)
def test_dims_under_ranges(before, after):
    assert R.dim(before) == after


@pytest.mark.parametrize(
    ("e", "value"),
    [
        (Index(i) < Index(n), True),
        (Index(i) >= 0, True),
        (Index(j) > 7, False),
        (Index(i).equals(Index(i + 1)), False),
        ((Index(i) + 1) <= Index(n), True),
        (Binary("and", Index(i) >= 0, Index(j) < 8), True),
        (Unary("not", Index(j) < 9), False),
        (Index(i) < Index(n - 1), None),
    ],
)
def test_conditions_under_bounds(e, value):
    s = simplify(e, R)
    assert (s.value if isinstance(s, Const) else None) == value


def test_exact_identities_only():
    x = Load(Buffer("f", (n,), "float32"), (i,))
    assert simplify(x * 1.0, R) is not None and isinstance(simplify(x * 1.0, R), Load)
    assert isinstance(simplify(x + 0.0, R), Binary), "-0.0 + 0.0 is 0.0"
    assert isinstance(simplify(x - 0.0, R), Load)
    assert isinstance(simplify(x * 0.0, R), Binary), "NaN stays NaN"
    assert isinstance(simplify(Select(Index(i) < n, x, Const(0.0, "float32")), R), Load)
    assert simplify(Cast(Const(2.7, "float32"), "int32")).value == 2


def test_equal_parts_are_shared():
    x = Buffer("x", (n,), "float32")
    e = Unary("exp", x[i] + 1.0) * Unary("exp", x[i] + 1.0)
    assert sum(isinstance(v, Unary) for v in walk(simplify(e, R))) == 1


def random_expr(rng, depth):
    if depth == 0:
        choice = rng.randrange(3)
        if choice == 0:
            return Const(rng.choice([0, 1, 2, 3, -1]), "int64")
        if choice == 1:
            return Index(
                rng.choice([i, j, n, i + j, i * 8 + j, (i * 8 + j) // 8, j % 4, dmin(i, j), dmax(j - 2, 0)])
            )
        return Cast(Load(X, (i, j)), "int64")
    a, b = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    match rng.randrange(4):
        case 0:
            return Binary(
                rng.choice(["add", "sub", "mul", "min", "max", "floordiv", "mod", "div", "bitand", "bitor"]),
                a,
                b,
            )
        case 1:
            cond = Binary(rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), a, b)
            return Select(cond, random_expr(rng, depth - 1), random_expr(rng, depth - 1))
        case 2:
            return Unary(rng.choice(["neg", "abs"]), a)
    both = Binary(rng.choice(["and", "or"]), Binary("lt", a, b), Binary("ge", b, Const(1, "int64")))
    return Select(both, a, b)


@pytest.mark.parametrize("seed", range(60))
def test_random_expressions_keep_their_value(seed):
    rng = random.Random(seed)
    e = random_expr(rng, 3)
    out = Buffer("out", (n, as_dim(8)), "int64")
    for size, value in itertools.product([1, 4], [0]):
        x = np.random.default_rng(seed + value).integers(-9, 9, (size, 8)).astype(np.int32)
        results = []
        for v in (e, simplify(e, R)):
            body = For("i", n, For("j", as_dim(8), store(out, (i, j), v)))
            results.append(evaluate_kernel(Kernel("k", (X,), (out,), (), ("n",), body), [x], {"n": size})[0])
        np.testing.assert_array_equal(*results)

"""Single reductions over any axes agree with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.compute import compute, placeholder, reduce, reduce_axis, var
from intarsia.kernel.expr import Const, Index, Select
from tests.kernel.strategy.checking import check, randoms

NUMPY = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}


def reduced(x, op, axes, body=lambda e: e):
    """A stage that reduces x over axes."""
    kept = [d for a, d in enumerate(x.shape) if a not in axes]

    def element(*i):
        ks = {a: reduce_axis(x.shape[a]) for a in axes}
        rest = iter(i)
        place = tuple(var(ks[a]) if a in ks else next(rest) for a in range(len(x.shape)))
        return reduce(op, body(x[place]), *ks.values())

    return compute(kept, element)


def case(shape, axes, symbolic):
    dims = tuple(Symbol(f"d{a}") if symbolic else as_dim(d) for a, d in enumerate(shape))
    x = placeholder("x", dims, "float32")
    return x, {f"d{a}": d for a, d in enumerate(shape)}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((5,), (0,)),
        ((3, 1), (1,)),
        ((3, 4), (1,)),
        ((3, 37), (1,)),
        ((2, 70), (1,)),
        ((9, 3), (0,)),
        ((3, 41), (0,)),
        ((2, 3, 5), (1, 2)),
        ((2, 3, 5), (0, 2)),
        ((2, 5, 33), (1,)),
        ((2, 3, 4, 17), (1, 2)),
        ((2, 3, 4, 5), (2, 3)),
        ((2, 3, 4, 5), (0, 1, 2, 3)),
        ((0, 4), (1,)),
        ((4, 0), (1,)),
        ((0, 4), (0,)),
    ],
)
def test_sums(shape, axes, symbolic):
    x, symbols = case(shape, axes, symbolic)
    (a,) = randoms(1, shape)
    check([x], [reduced(x, "sum", axes)], [a], symbols, want=[np.sum(a, axes)])


@pytest.mark.parametrize("op", ["prod", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "float64"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_operations(op, dtype, axes):
    x = placeholder("x", (Symbol("n"), 19), dtype)
    (a,) = randoms(2, (7, 19), dtype=dtype)
    kind = {"dtype": dtype} if op == "prod" else {}
    with np.errstate(over="ignore"):
        want = np.asarray(NUMPY[op](a, axes, **kind))
    check([x], [reduced(x, op, axes)], [a], {"n": 7}, want=[want], rtol=1e-5)


@pytest.mark.parametrize("op", ["any", "all", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (1,)])
def test_bools(op, axes):
    x = placeholder("x", (Symbol("n"), 37), "bool")
    (a,) = randoms(3, (4, 37), dtype="bool")
    a[0], a[:, 3], a[1], a[:, 4] = True, True, False, False
    want = np.any(a, axes) if op in ("any", "max") else np.all(a, axes)
    check([x], [reduced(x, op, axes)], [a], {"n": 4}, want=[want])


@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_of_nothing_and_nan(op):
    x = placeholder("x", (3, Symbol("n")), "float32")
    start = -np.inf if op == "max" else np.inf
    check(
        [x],
        [reduced(x, op, (1,))],
        [np.zeros((3, 0), np.float32)],
        {"n": 0},
        want=[np.full(3, start, np.float32)],
    )
    (a,) = randoms(4, (3, 21))
    a[1, 20] = np.nan
    check([x], [reduced(x, op, (1,))], [a], {"n": 21}, want=[NUMPY[op](a, 1)])


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "int64", "uint8", "float64"])
def test_places_of_extremes(op, axis, dtype):
    x = placeholder("x", (Symbol("n"), Symbol("m")), dtype)
    rng = np.random.default_rng(5)
    for shape in ((1, 1), (3, 50), (40, 9)):
        a = rng.integers(0, 4, shape).astype(dtype)  # many ties
        check([x], [reduced(x, op, (axis,))], [a], dict(zip("nm", shape)), want=[getattr(np, op)(a, axis)])


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_places_with_nan_and_infinities(op):
    x = placeholder("x", (4, 35), "float32")
    a = np.zeros((4, 35), np.float32)
    a[0] = -np.inf if op == "argmax" else np.inf
    a[1, 7], a[1, 9], a[1, 3] = np.nan, np.nan, np.inf
    a[2, 34] = np.nan
    a[3, 33] = np.inf if op == "argmax" else -np.inf
    check([x], [reduced(x, op, (1,))], [a], want=[getattr(np, op)(a, 1)])


@pytest.mark.parametrize(("shape", "axes"), [((400003,), (0,)), ((130011, 3), (0,)), ((2, 200001), (1,))])
@pytest.mark.parametrize("symbolic", [False, True])
def test_large_ones_are_reduced_in_parts(shape, axes, symbolic):
    x, symbols = case(shape, axes, symbolic)
    a = np.random.default_rng(6).integers(0, 3, shape).astype(np.float32)
    from intarsia.kernel.strategy import lower
    from tests.codegen.harness import native_target, run

    lowered = lower("k", [x], [reduced(x, "sum", axes)], native_target(cores=2))
    assert symbolic or len(lowered.kernel.workspaces) == 1
    (got,) = run(lowered.kernel, [a], symbols, native_target(cores=2))
    np.testing.assert_array_equal(got, np.sum(a, axes))


def test_integers_wrap():
    x = placeholder("x", (Symbol("n"),), "int8")
    a = np.full(40, 100, np.int8)
    check([x], [reduced(x, "sum", (0,))], [a], {"n": 40}, want=[np.sum(a, dtype=np.int8)])


def test_windows_with_conditions():
    """A pool with padding: stride 2 over both axes."""
    n = Symbol("n")
    x = placeholder("x", (n, 9, 9, 3), "float32")
    ky, kx = reduce_axis(3), reduce_axis(3)

    def element(b, i, j, c):
        y, z = i * 2 + var(ky) - 1, j * 2 + var(kx) - 1
        inside = (Index(y) >= 0) & (Index(y) < 9) & (Index(z) >= 0) & (Index(z) < 9)
        return reduce("max", Select(inside, x[b, y, z, c], Const(float("-inf"), "float32")), ky, kx)

    out = compute((n, 5, 5, 3), element)
    (a,) = randoms(7, (2, 9, 9, 3))
    padded = np.pad(a, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
    view = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    check([x], [out], [a], {"n": 2}, want=[view.max((-1, -2))])


def test_products_of_two_operands():
    """A matrix product, as the fallback would have it."""
    n, m = Symbol("n"), Symbol("m")
    a, b = placeholder("a", (n, 7), "float32"), placeholder("b", (7, m), "float32")
    k = reduce_axis(7)
    out = compute((n, m), lambda i, j: reduce("sum", a[i, var(k)] * b[var(k), j], k))
    x, y = randoms(8, (5, 7), (7, 21))
    from intarsia.kernel import strategy

    kept, strategy.STRATEGIES[:] = list(strategy.STRATEGIES), []
    try:
        check([a, b], [out], [x, y], {"n": 5, "m": 21}, want=[x @ y])
    finally:
        strategy.STRATEGIES[:] = kept

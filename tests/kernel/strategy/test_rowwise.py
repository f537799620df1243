"""Chains of reductions over rows become one loop over the rows."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.compute import compute, placeholder, reduce, reduce_axis, var
from intarsia.kernel.expr import Cast, Unary
from intarsia.kernel.stmt import For
from intarsia.kernel.strategy.region import region_of
from intarsia.kernel.strategy.rowwise import rowwise
from tests.kernel.strategy.checking import WIDE, check, randoms

n, m = Symbol("n"), Symbol("m")


def softmax(x, log=False):
    *rows, d = x.shape
    k = reduce_axis(d)
    top = compute(rows, lambda *i: reduce("max", x[(*i, var(k))], k))
    e = compute(x.shape, lambda *i: Unary("exp", x[i] - top[i[:-1]]))
    k2 = reduce_axis(d)
    total = compute(rows, lambda *i: reduce("sum", e[(*i, var(k2))], k2))
    if log:
        return compute(x.shape, lambda *i: (x[i] - top[i[:-1]]) - Unary("log", total[i[:-1]]))
    return compute(x.shape, lambda *i: e[i] / total[i[:-1]])


def softmax_of(a, log=False):
    d = a - a.max(-1, keepdims=True)
    e = np.exp(d)
    return d - np.log(e.sum(-1, keepdims=True)) if log else e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (3, 2), (2, 8), (2, 33), (2, 3, 70), (0, 4)])
def test_softmax(shape, symbolic, log):
    dims = tuple(Symbol(f"d{k}") if symbolic else as_dim(d) for k, d in enumerate(shape))
    x = placeholder("x", dims, "float32")
    (a,) = randoms(1, shape)
    lowered = check(
        [x], [softmax(x, log)], [a], {f"d{k}": d for k, d in enumerate(shape)}, want=[softmax_of(a, log)]
    )
    assert not lowered.kernel.workspaces or shape == (1, 1)


def norm(x, rows, axes, scale, bias):
    shape = x.shape
    inner = shape[axes:]
    count = float(np.prod([d.value for d in inner]))
    ks = [reduce_axis(d) for d in inner]
    total = compute(rows, lambda *i: reduce("sum", x[(*i, *map(var, ks))], *ks))
    mean = compute(rows, lambda *i: total[i] * (1 / count))
    ks2 = [reduce_axis(d) for d in inner]

    def square(*i):
        d = x[(*i, *map(var, ks2))] - mean[i]
        return reduce("sum", d * d, *ks2)

    squares = compute(rows, square)
    inverse = compute(rows, lambda *i: 1.0 / Unary("sqrt", squares[i] * (1 / count) + 1e-5))

    def element(*i):
        return (x[i] - mean[i[:axes]]) * inverse[i[:axes]] * scale[i[axes:]] + bias[i[axes:]]

    return compute(shape, element)


@pytest.mark.parametrize("shape", [(1, 2), (4, 8), (3, 5, 37), (0, 7)])
def test_layer_norm(shape):
    dims = (*(Symbol(f"d{k}") for k in range(len(shape) - 1)), as_dim(shape[-1]))
    x, s, b = (placeholder(w, d, "float32") for w, d in (("x", dims), ("s", dims[-1:]), ("b", dims[-1:])))
    arrays = randoms(2, shape, shape[-1:], shape[-1:])
    a, scale, bias = arrays
    d = a - a.mean(-1, keepdims=True) if a.size else a
    want = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * scale + bias if a.size else a
    out = norm(x, dims[:-1], len(shape) - 1, s, b)
    lowered = check(
        [x, s, b],
        [out],
        arrays,
        {f"d{k}": v for k, v in enumerate(shape)},
        want=[want.astype("f4")],
        atol=1e-5,
    )
    assert not lowered.kernel.workspaces


def test_layer_norm_over_two_dimensions_with_broadcast_scale():
    x, s, b = (
        placeholder("x", (n, 3, 20), "float32"),
        placeholder("s", (3, 20), "float32"),
        placeholder("b", (3, 20), "float32"),
    )
    arrays = randoms(3, (5, 3, 20), (3, 20), (3, 20))
    check([x, s, b], [norm(x, (n,), 1, s, b)], arrays, {"n": 5}, atol=1e-5)


def group_norm(x, scale, groups):
    b, c, h, w = x.shape
    size = c // groups
    rows = (b, as_dim(groups))
    ks = [reduce_axis(d) for d in (size, h, w)]

    def place(i, k):
        return (i[0], i[1] * size + var(k[0]), var(k[1]), var(k[2]))

    total = compute(rows, lambda *i: reduce("sum", x[place(i, ks)], *ks))
    mean = compute(rows, lambda *i: total[i] * 0.05)
    return compute(x.shape, lambda *i: (x[i] - mean[i[0], i[1] // size]) * scale[i[1]])


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm_divides_the_channels(groups):
    x, s = placeholder("x", (n, 4, m, 5), "float32"), placeholder("s", (4,), "float32")
    out = group_norm(x, s, groups)
    arrays = randoms(4, (2, 4, 3, 5), (4,))
    check([x, s], [out], arrays, {"n": 2, "m": 3})
    assert rowwise(region_of("k", [x, s], [out], {}), WIDE) is not None


def test_statistics_that_are_results_too():
    x = placeholder("x", (n, 19), "float32")
    k = reduce_axis(19)
    total = compute((n, 1), lambda i, _: reduce("sum", x[i, var(k)], k))
    mean = compute((n, 1), lambda i, _: total[i, 0] / 19.0)
    out = compute((n, 19), lambda i, j: x[i, j] - mean[i, 0])
    (a,) = randoms(5, (6, 19))
    check([x], [out, mean, total], [a], {"n": 6}, atol=1e-5)


def test_operands_are_computed_inside_the_rows():
    x, y = placeholder("x", (n, 3, m), "float32"), placeholder("y", (n, 1, m), "float32")
    masked = compute((n, 3, m), lambda i, j, k: x[i, j, k] * 0.125 + y[i, 0, k])
    out = softmax(masked)
    a, b = randoms(6, (2, 3, 21), (2, 1, 21))
    check([x, y], [out], [a, b], {"n": 2, "m": 21}, want=[softmax_of(a * np.float32(0.125) + b)])


def test_half_precision_is_normalised_in_single():
    x = placeholder("x", (n, 24), "float16")
    wide = compute((n, 24), lambda i, j: Cast(x[i, j], "float32"))
    soft = softmax(wide)
    out = compute((n, 24), lambda i, j: Cast(soft[i, j], "float16"))
    (a,) = randoms(7, (3, 24), dtype="float16")
    check([x], [out], [a], {"n": 3}, want=[softmax_of(a.astype("f4")).astype("f2")], rtol=2e-3, atol=1e-3)


def test_softmax_over_other_axes_falls_back():
    x = placeholder("x", (n, 5, m), "float32")
    k = reduce_axis(5)
    top = compute((n, m), lambda i, j: reduce("max", x[i, var(k), j], k))
    e = compute((n, 5, m), lambda i, c, j: Unary("exp", x[i, c, j] - top[i, j]))
    k2 = reduce_axis(5)
    total = compute((n, m), lambda i, j: reduce("sum", e[i, var(k2), j], k2))
    out = compute((n, 5, m), lambda i, c, j: e[i, c, j] / total[i, j])
    (a,) = randoms(8, (2, 5, 19))
    want = softmax_of(a.transpose(0, 2, 1)).transpose(0, 2, 1)
    check([x], [out], [a], {"n": 2, "m": 19}, want=[np.ascontiguousarray(want)])


def test_long_rows_keep_their_scratch_in_the_result():
    x = placeholder("x", (n, 50000), "float32")
    found = rowwise(region_of("k", [x], [softmax(x)], {}), WIDE)
    assert found is not None and not found.workspaces and isinstance(found.body, For)

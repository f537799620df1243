"""Injective stages: every shape of loop that they become agrees with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.compute import compute, placeholder
from intarsia.kernel.expr import Cast, Const, Index, Select, Unary
from tests.kernel.strategy.checking import check, randoms

n, m = Symbol("n"), Symbol("m")


@pytest.mark.parametrize("size", [0, 1, 3, 7, 8, 9, 31, 32, 33, 70])
@pytest.mark.parametrize("symbolic", [False, True])
def test_lines_of_any_length(size, symbolic):
    d = n if symbolic else as_dim(size)
    x, y = placeholder("x", (d,), "float32"), placeholder("y", (d,), "float32")
    out = compute((d,), lambda i: x[i] + y[i] * 2.0)
    a, b = randoms(size, (size,), (size,))
    check([x, y], [out], [a, b], {"n": size}, want=[a + b * np.float32(2)])


@pytest.mark.parametrize("sizes", [(1, 1), (2, 5), (3, 40), (0, 4), (4, 0)])
def test_broadcast_operands(sizes):
    r, c = sizes
    x, row, col = (
        placeholder("x", (n, 3, m), "float32"),
        placeholder("r", (m,), "float32"),
        placeholder("c", (3, 1), "float32"),
    )
    out = compute((n, 3, m), lambda i, j, k: (x[i, j, k] + row[k]) * col[j, 0])
    a, b, d = randoms(1, (r, 3, c), (c,), (3, 1))
    check([x, row, col], [out], [a, b, d], {"n": r, "m": c}, want=[(a + b) * d])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "float64", "bool", "float16"])
def test_dtypes_move(dtype):
    x = placeholder("x", (n, 5), dtype)
    out = compute((5, n), lambda i, j: x[j, i])
    (a,) = randoms(3, (19, 5), dtype=dtype)
    check([x], [out], [a], {"n": 19}, want=[np.ascontiguousarray(a.T)])


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 16), (17, 33), (40, 3), (3, 40), (64, 9)])
@pytest.mark.parametrize("symbolic", [False, True])
def test_transpose(shape, symbolic):
    dims = (n, m) if symbolic else shape
    x = placeholder("x", dims, "float32")
    out = compute((dims[1], dims[0]), lambda i, j: x[j, i] * 2.0)
    (a,) = randoms(4, shape)
    check([x], [out], [a], {"n": shape[0], "m": shape[1]}, want=[np.ascontiguousarray(a.T) * 2])


def test_transpose_of_heads_keeps_the_last_dimension():
    x = placeholder("x", (n, m, 3, 8), "float32")
    out = compute((n, 3, m, 8), lambda i, h, s, d: x[i, s, h, d])
    (a,) = randoms(5, (2, 6, 3, 8))
    check([x], [out], [a], {"n": 2, "m": 6}, want=[np.ascontiguousarray(a.transpose(0, 2, 1, 3))])


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(1, 1, 1), (4, 2, 3), (20, 1, 18), (0, 3, 0)])
def test_concatenate(axis, sizes):
    names = [Symbol(s) for s in "abc"]
    shapes = [tuple(d if k == axis else as_dim(4) for k in range(3)) for d in names]
    xs = [placeholder(f"x{i}", s, "float32") for i, s in enumerate(shapes)]
    offsets = [as_dim(0), names[0], names[0] + names[1]]
    whole = tuple(sum(names, as_dim(0)) if k == axis else as_dim(4) for k in range(3))

    def element(*i):
        value = None
        for x, low, d in reversed(list(zip(xs, offsets, names))):
            own = x[(*i[:axis], i[axis] - low, *i[axis + 1 :])]
            value = own if value is None else Select(Index(i[axis]) < Index(low + d), own, value)
        return value

    out = compute(whole, element)
    arrays = randoms(6, *(tuple(d if k == axis else 4 for k in range(3)) for d in sizes))
    check(xs, [out], arrays, dict(zip("abc", sizes)), want=[np.concatenate(arrays, axis)])


@pytest.mark.parametrize("size", [(1, 1), (5, 9), (2, 40)])
def test_padding(size):
    x = placeholder("x", (2, n, m), "float32")

    def element(b, i, j):
        inside = (Index(i - 1) >= 0) & (Index(i - 1) < n) & (Index(j - 2) >= 0) & (Index(j - 2) < m)
        return Select(inside, x[b, i - 1, j - 2], Const(0.5, "float32"))

    out = compute((2, n + 2, m + 3), element)
    (a,) = randoms(7, (2, *size))
    want = np.pad(a, ((0, 0), (1, 1), (2, 1)), constant_values=0.5)
    check([x], [out], [a], {"n": size[0], "m": size[1]}, want=[want])


@pytest.mark.parametrize("width", [1, 6, 40])
def test_gather_of_rows(width):
    table, ids = placeholder("t", (11, width), "float32"), placeholder("i", (n, m), "int64")
    out = compute((n, m, width), lambda i, j, k: table[ids[i, j], k])
    (t,) = randoms(8, (11, width))
    index = np.random.default_rng(0).integers(0, 11, (3, 4))
    check([table, ids], [out], [t, index], {"n": 3, "m": 4}, want=[t[index]])


def test_gather_with_wrapped_places():
    table, ids = placeholder("t", (7, 20), "float32"), placeholder("i", (n,), "int32")

    def element(i, k):
        place = Cast(ids[i], "int64")
        return table[Select(place < 0, place + 7, place), k] + 1.0

    out = compute((n, 20), element)
    (t,) = randoms(8, (7, 20))
    index = np.array([0, -1, 3, -7], np.int32)
    check([table, ids], [out], [t, index], {"n": 4}, want=[t[index] + 1])


def test_gather_along_the_last_dimension():
    x, ids = placeholder("x", (n, 30), "float32"), placeholder("i", (n, 9), "int64")
    out = compute((n, 9), lambda i, j: x[i, ids[i, j]])
    (a,) = randoms(9, (5, 30))
    index = np.random.default_rng(0).integers(0, 30, (5, 9))
    check([x, ids], [out], [a, index], {"n": 5}, want=[np.take_along_axis(a, index, 1)])


def test_strided_and_reversed_slices():
    x = placeholder("x", (n, 20), "float32")
    out = compute((n, 10), lambda i, j: x[n - 1 - i, 19 - j * 2])
    (a,) = randoms(10, (3, 20))
    check([x], [out], [a], {"n": 3}, want=[np.ascontiguousarray(a[::-1, ::-2])])


def test_depth_to_space_divides_indices():
    x = placeholder("x", (n, 8, 3, 5), "float32")
    out = compute((n, 2, 6, 10), lambda b, c, i, j: x[b, (i % 2 * 2 + j % 2) * 2 + c, i // 2, j // 2])
    (a,) = randoms(11, (2, 8, 3, 5))
    want = a.reshape(2, 2, 2, 2, 3, 5).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 6, 10)
    check([x], [out], [a], {"n": 2}, want=[np.ascontiguousarray(want)])


def test_masks_of_two_indices_stay_masks():
    x = placeholder("x", (n, n), "float32")
    out = compute((n, n), lambda i, j: Select(Index(j) <= i, x[i, j], Const(0.0, "float32")))
    (a,) = randoms(12, (13, 13))
    check([x], [out], [a], {"n": 13}, want=[np.tril(a)])


def test_scalars_and_constants():
    x = placeholder("x", (), "float32")
    out = compute((), lambda: Unary("exp", x[()]))
    full = compute((n, 3), lambda i, j: Const(7, "int32"))
    iota = compute((n,), lambda i: Index(i * 2 + 1))
    (a,) = randoms(13, ())
    a = np.asarray(a, np.float32)
    check(
        [x],
        [out, full, iota],
        [a],
        {"n": 5},
        want=[np.exp(a), np.full((5, 3), 7, np.int32), np.arange(5) * 2 + 1],
    )


def test_outputs_that_are_inputs_or_twins_are_copied():
    x = placeholder("x", (n, 2), "int32")
    y = compute((n, 2), lambda i, j: x[i, j] + 1)
    (a,) = randoms(14, (4, 2), dtype="int32")
    check([x], [x, y, y], [a], {"n": 4}, want=[a, a + 1, a + 1])


def test_costly_operands_used_by_several_are_computed_once():
    x = placeholder("x", (n, 1), "float32")
    e = compute((n, 1), lambda i, j: Unary("exp", x[i, 0]))
    out = compute((n, 30), lambda i, j: e[i, 0] * 2.0)
    (a,) = randoms(15, (6, 1))
    lowered = check([x], [out], [a], {"n": 6}, want=[np.repeat(np.exp(a) * 2, 30, 1)])
    assert len(lowered.kernel.workspaces) == 1

"""Gather, scatter, construction of tensors, running sums and topk."""

from __future__ import annotations

import numpy as np
import pytest
from stage_eval import Case, agree, known_value, run_stages, site_of

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.compute import placeholder
from intarsia.op import Measured, get
from intarsia.op.entry import numpy_dtype
from intarsia.support.errors import TypeCheckError

N, M = Symbol("n"), Symbol("m")


def ints(*values, dtype=np.int64) -> np.ndarray:
    return np.array(values, dtype)


def numbered(*shape, dtype=np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


# ---- take and its kin --------------------------------------------------------------------------------------
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize(
    "indices",
    [np.array(1), np.array(-1), ints(0, -1, 1), np.array([[1], [-2]], np.int32), np.zeros((0, 2), np.int64)],
)
def test_take(axis, indices):
    x = numbered(3, 2)
    agree(Case("take", [x, indices], {"axis": axis}), np.take(x, indices, axis))
    agree(Case("take", [x, indices], {"axis": axis}, symbols={0: ("n", "m")}))
    agree(Case("take", [x, indices], {"axis": axis}, values=(1,)))


def test_take_of_an_empty_dimension():
    agree(Case("take", [numbered(0, 2), np.zeros((0,), np.int64)], symbols={0: ("n", None)}))


@pytest.mark.parametrize("symbols", [{}, {0: ("n",)}])
def test_kernels_clamp_indices_that_are_outside(symbols):
    x, indices = numbered(3), ints(7, -9, 1)
    site, env = site_of(Case("take", [x, indices], symbols=symbols))
    buffers = [placeholder("x", site.shape(0), "float32"), placeholder("i", (3,), "int64")]
    assert run_stages([site.op.compute(site, buffers)], buffers, [x, indices], env)[0].tolist() == [2, 0, 1]
    with pytest.raises(IndexError, match="outside"):
        site.op.reference(x, indices, axis=0)


def test_kernels_read_nothing_of_an_empty_dimension():
    x, indices = numbered(0), ints(0)
    site, env = site_of(Case("take", [x, indices], symbols={0: ("n",)}))
    buffers = [placeholder("x", site.shape(0), "float32"), placeholder("i", (1,), "int64")]
    assert run_stages([site.op.compute(site, buffers)], buffers, [x, indices], env)[0].tolist() == [0]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_take_along_axis(axis):
    x, rng = numbered(3, 4), np.random.default_rng(3)
    indices = rng.integers(-3, 3, (2, 4) if axis == 0 else (3, 2))
    agree(Case("take_along_axis", [x, indices], {"axis": axis}))
    agree(Case("take_along_axis", [x, indices], {"axis": axis}, symbols={0: ("n", "m"), 1: ("p", "q")}))
    with pytest.raises(TypeCheckError, match="along x"):
        site_of(Case("take_along_axis", [x, np.zeros((5, 5), np.int64)], {"axis": axis}))


@pytest.mark.parametrize(
    ("indices", "batch"),
    [
        (np.array([[0, 1], [-1, 0]]), 0), (np.array([[1]]), 0), (np.array([[[1], [0]], [[0], [-1]]]), 1),
        (np.array([[0], [1]]), 1), (np.array([0, 1, -1]), 0), (np.zeros((0, 2), np.int64), 0),
        (np.zeros((2, 0), np.int64), 0),
    ],
)  # fmt: skip
def test_gather_nd(indices, batch):
    x = numbered(2, 2, 3)
    agree(Case("gather_nd", [x, indices], {"batch_dims": batch}))
    agree(Case("gather_nd", [x, indices], {"batch_dims": batch}, symbols={0: ("n", "m", "k")}))


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16", "bool"])
def test_scatter_nd(reduction, dtype):
    x = numbered(4, 3).astype(dtype)
    updates = (numbered(3, 3) + 5).astype(dtype)
    agree(Case("scatter_nd", [x, np.array([[1], [-1], [1]]), updates], {"reduction": reduction}))
    agree(
        Case(
            "scatter_nd",
            [x, np.array([[0, 1], [3, -1]]), updates[0, :2]],
            {"reduction": reduction},
            symbols={0: ("n", "m")},
        )
    )


def test_scatter_nd_of_nothing():
    agree(Case("scatter_nd", [numbered(4), np.zeros((0, 1), np.int64), np.zeros((0,), np.float32)]))
    agree(Case("scatter_nd", [numbered(2, 2), np.zeros((1, 0), np.int64), numbered(1, 2, 2) + 9]))


@pytest.mark.parametrize("reduction", ["none", "add", "max"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(reduction, axis):
    x = numbered(3, 4)
    indices = np.array([[0, 2, -1], [1, 1, 0]])
    updates = numbered(2, 3) + 50
    agree(Case("scatter_elements", [x, indices, updates], {"axis": axis, "reduction": reduction}))
    agree(
        Case(
            "scatter_elements",
            [x, indices, updates],
            {"axis": axis, "reduction": reduction},
            symbols={0: ("n", "m")},
        )
    )


def test_scatter_refuses():
    x = numbered(3)
    with pytest.raises(TypeCheckError, match="no reduction"):
        site_of(Case("scatter_nd", [x, np.array([[0]]), x[:1]], {"reduction": "mean"}))
    with pytest.raises(TypeCheckError, match="updates of scatter_nd"):
        site_of(Case("scatter_nd", [x, np.array([[0]]), x]))
    with pytest.raises(TypeCheckError, match="int64 or int32"):
        site_of(Case("take", [x, x]))


def test_reverse_sequence():
    x = numbered(4, 3, 2)
    agree(Case("reverse_sequence", [x, ints(1, 4, 0)]))
    agree(
        Case(
            "reverse_sequence",
            [x, ints(3, 2, 1, 0)],
            {"time_axis": 1, "batch_axis": 0},
            symbols={0: ("n", "t", None)},
        )
    )


# ---- construction ------------------------------------------------------------------------------------------
def test_shape_of_and_size_of():
    x = numbered(2, 0, 3)
    agree(Case("shape_of", [x]), ints(2, 0, 3))
    agree(Case("shape_of", [x], {"start": -2, "end": 3}), ints(0, 3))
    agree(Case("shape_of", [numbered()]), np.zeros(0, np.int64))
    agree(Case("size_of", [x]), np.array(0))
    assert list(known_value("shape_of", [((N, 3, M), "float32", None)], {"start": 1})) == [3, M]
    assert known_value("size_of", [((N, 3, M), "float32", None)]).item() == 3 * N * M


@pytest.mark.parametrize("values", [(0, 5, 1), (2, 11, 3), (5, 0, -2), (5, 5, 1), (0, -3, 1), (-4, 4, 4)])
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_arange_of_integers(values, dtype):
    arrays = [np.array(v, dtype) for v in values]
    agree(Case("arange", arrays), np.arange(*values, dtype=dtype))
    agree(Case("arange", arrays, values=()))


def test_arange_of_floats_measures_its_size():
    op = get("arange")
    assert op.reference(*(np.array(v, np.float32) for v in (0, 1, 0.25))).tolist() == [0, 0.25, 0.5, 0.75]
    from intarsia.ir.types import tensor
    from intarsia.op import Arg, Site

    site = Site(op, [Arg(tensor((), "float32"))] * 3)
    (size,) = op.rule(site).shape
    assert site.bindings[size.symbol] == Measured(0, 0)


def test_arange_follows_sizes():
    def scalar(v):
        return ((), "int64", np.array(as_dim(v), object))

    assert list(known_value("arange", [scalar(N), scalar(N + 3), scalar(1)])) == [N, N + 1, N + 2]
    assert known_value("arange", [scalar(0), scalar(N), scalar(1)]) is None


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (1, 2)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
def test_full(shape, dtype):
    value = np.array([1]).astype(numpy_dtype(dtype))
    agree(Case("full", [np.array(shape, np.int64), value]))
    agree(Case("full", [np.array(shape, np.int64), value.reshape(())], values=()))


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("k", [None, 0, 1, -2, 9])
def test_trilu(upper, k):
    x = numbered(2, 3, 4) + 1
    arrays = [x] if k is None else [x, np.array(k)]
    agree(Case("trilu", arrays, {"upper": upper}, symbols={0: ("b", "n", "m")}))
    agree(Case("trilu", arrays, {"upper": upper}, values=()))


@pytest.mark.parametrize("k", [0, 1, -1])
@pytest.mark.parametrize("dtype", [None, "bool", "int64", "float16"])
def test_eye_like(k, dtype):
    agree(Case("eye_like", [numbered(3, 4)], {"k": k, "dtype": dtype}))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis):
    indices, values = np.array([0, 2, -1, 5]), np.array([1.0, 7.0], np.float32)
    agree(Case("one_hot", [indices, np.array(3), values], {"axis": axis}))
    agree(Case("one_hot", [indices.astype(np.float32), ints(3), values], {"axis": axis}, values=()))


# ---- running sums, topk ------------------------------------------------------------------------------------
@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("reverse", [True, False])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_cumsum(exclusive, reverse, axis):
    attrs = {"exclusive": exclusive, "reverse": reverse}
    for dtype in ("float32", "int32", "float16"):
        agree(Case("cumsum", [numbered(3, 4).astype(dtype), np.array(axis)], attrs, symbols={0: ("n", "m")}))
    agree(Case("cumsum", [numbered(0, 4), np.array(axis)], attrs))
    agree(Case("cumsum", [np.array([100, 100], np.int8), ints(0)], attrs))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("k", [0, 1, 3, 5])
def test_topk(largest, k):
    x = np.array([[3, 1, 3, 2, 3], [0, -1, 5, 5, np.inf], [-np.inf, 2, np.nan, 1, 0]], np.float32)
    agree(Case("topk", [x, ints(k)], {"largest": largest}))
    agree(Case("topk", [x.T.copy(), ints(k)], {"largest": largest, "axis": 0}, symbols={0: ("n", "m")}))
    agree(Case("topk", [x, ints(k)], {"largest": largest}, values=()))
    agree(Case("topk", [np.clip(np.nan_to_num(x), -9, 9).astype(np.int32), ints(k)], {"largest": largest}))
    agree(Case("topk", [x.astype(np.float16), ints(k)], {"largest": largest}))


def test_topk_of_equals_takes_the_first():
    values, places = agree(Case("topk", [np.array([1, 1, 1, 0], np.int64), ints(2)]))
    assert places.tolist() == [0, 1]
    with pytest.raises(TypeCheckError, match="at most"):
        site_of(Case("topk", [numbered(3), ints(4)]))


def test_take_follows_contents():
    sizes = np.empty(3, object)
    sizes[:] = [N, as_dim(3), M]
    shape = ((3,), "int64", sizes)
    assert known_value("take", [shape, ((), "int64", np.array(as_dim(-1), object))]).item() == M
    with pytest.raises(TypeCheckError, match="outside"):
        known_value("take", [shape, ((), "int64", np.array(as_dim(3), object))])

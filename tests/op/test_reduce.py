"""Reductions over odd shapes, dtypes and axes."""

from __future__ import annotations

import numpy as np
import pytest
from stage_eval import Case, agree, known_value, site_of

from intarsia.dim import Symbol, as_dim, dmax, dmin
from intarsia.op.entry import numpy_dtype
from intarsia.support.errors import TypeCheckError

N, M = Symbol("n"), Symbol("m")
NUMERIC = [
    f"reduce.{op}"
    for op in [
        "sum",
        "prod",
        "mean",
        "max",
        "min",
        "l1_norm",
        "l2_norm",
        "sum_square",
        "log_sum",
        "log_sum_exp",
    ]
]


def ints(*values) -> np.ndarray:
    return np.array(values, np.int64)


def data(shape, dtype="float32") -> np.ndarray:
    return np.random.default_rng(5).uniform(0.5, 2, shape).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [None, (0,), (-1,), (0, 2), (2, -2)])
def test_axes(name, keepdims, axes):
    given = [] if axes is None else [ints(*axes)]
    agree(Case(name, [data((2, 3, 4)), *given], {"keepdims": keepdims}))


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0), (0, 3), (1, 5, 1), (3, 9)])
def test_odd_shapes(name, shape):
    agree(Case(name, [data(shape)], {"keepdims": True}))
    if shape:
        symbols = {0: tuple(f"n{i}" for i in range(len(shape)))}
        agree(Case(name, [data(shape), ints(-1)], symbols=symbols))


@pytest.mark.parametrize("name", NUMERIC)
@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_float_dtypes(name, dtype):
    agree(Case(name, [data((3, 7), dtype), ints(1)]))


@pytest.mark.parametrize(
    "name",
    [
        "reduce.sum",
        "reduce.prod",
        "reduce.mean",
        "reduce.max",
        "reduce.min",
        "reduce.l1_norm",
        "reduce.sum_square",
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integers_wrap(name, dtype):
    info = np.iinfo(dtype)
    x = np.array([[info.max, 2, 3, 100], [info.min, 7, 1, 50]], dtype)
    if name == "reduce.mean":
        x = (
            np.array([[1, 2, 4, 4], [0, 7, 1, 50]], dtype)
            if info.min == 0
            else np.array([[-1, -2, -4, 0], [0, 7, 1, 50]], dtype)
        )
    agree(Case(name, [x, ints(1)]))


def test_half_sums_do_not_stall():
    x = np.ones(2560, np.float16)
    (got,) = agree(Case("reduce.sum", [x]))
    assert got == 2560


@pytest.mark.parametrize("noop", [True, False])
@pytest.mark.parametrize("given", [[], [np.zeros(0, np.int64)]])
def test_no_axes(noop, given):
    x = data((2, 3))
    for name in ("reduce.sum", "reduce.mean", "reduce.l1_norm"):
        (got,) = agree(Case(name, [x, *given], {"noop_with_empty_axes": noop}))
        assert got.shape == ((2, 3) if noop else ())


def test_extrema_keep_nan_and_infinities():
    x = np.array([[1, np.nan, 3], [np.inf, -np.inf, 0], [-np.inf, -np.inf, -np.inf]], np.float32)
    for name in ("reduce.max", "reduce.min", "reduce.sum", "reduce.log_sum_exp"):
        agree(Case(name, [x, ints(1)]))


def test_log_sum_exp_does_not_overflow():
    (got,) = agree(Case("reduce.log_sum_exp", [np.array([1000, 1000], np.float32)]))
    assert np.isclose(got, 1000 + np.log(2))


@pytest.mark.parametrize("shape", [(2, 3), (0,), ()])
def test_bools(shape):
    x = np.arange(int(np.prod(shape))).reshape(shape) % 2 == 0
    for name in ("reduce.any", "reduce.all", "reduce.max", "reduce.min"):
        agree(Case(name, [x]))


def test_axes_must_be_known():
    with pytest.raises(TypeCheckError, match="known at compile time"):
        site_of(Case("reduce.sum", [data((2, 3)), ints(0)], values=()))
    with pytest.raises(TypeCheckError, match="twice"):
        site_of(Case("reduce.sum", [data((2, 3)), ints(0, -2)]))
    with pytest.raises(TypeCheckError, match="outside"):
        site_of(Case("reduce.sum", [data((2, 3)), ints(2)]))


# ---- argmax, argmin ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["reduce.argmax", "reduce.argmin"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_places_of_extrema_with_ties(name, axis, keepdims, last):
    x = np.array([[2, 2, 1], [1, 2, 1], [2, 0, 0]], np.float32)
    attrs = {"axis": axis, "keepdims": keepdims, "select_last_index": last}
    for dtype in ("float32", "int64", "float16"):
        agree(Case(name, [x.astype(dtype)], attrs, symbols={0: ("n", "m")}))
    agree(Case(name, [x[:, :1].copy()], attrs))


def test_argmax_of_nothing_is_refused():
    with pytest.raises(TypeCheckError, match="may be empty"):
        site_of(Case("reduce.argmax", [data((0, 3))]))


# ---- contents ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "expected"),
    [("sum", N + M + 3), ("prod", 3 * N * M), ("max", dmax(N, 3, M)), ("min", dmin(N, 3, M))],
)
def test_integer_contents_are_followed(name, expected):
    values = np.empty(3, object)
    values[:] = [N, as_dim(3), M]
    assert known_value(f"reduce.{name}", [((3,), "int64", values)]).item() == expected
    kept = known_value(f"reduce.{name}", [((3,), "int64", values)], {"keepdims": True})
    assert kept.shape == (1,) and kept[0] == expected

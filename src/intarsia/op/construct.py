"""Operators that make tensors from sizes and numbers: shape_of, arange, full, one_hot, …"""

from __future__ import annotations

from math import ceil

import numpy as np

from intarsia.dim import Dim, as_dim, product
from intarsia.ir.types import TensorType, Type
from intarsia.kernel.compute import compute
from intarsia.kernel.expr import Buffer, Expr, Index, Select, cast
from intarsia.op.entry import Operator, Site, numpy_dtype, register
from intarsia.op.rules import (
    KNOWN_LIMIT,
    common_dtype,
    dims_array,
    first,
    is_float,
    known,
    need,
    not_negative,
    one,
    one_element,
    widen,
    zero,
)  # fmt: skip


# ---- sizes -------------------------------------------------------------------------------------------------
def _span(site: Site) -> tuple[Dim, ...]:
    start, end = site.attrs["start"], site.attrs["end"]
    return site.shape(0)[start if start is None else int(start) : end if end is None else int(end)]


def _shape_of(x: np.ndarray, *, start: int, end: int | None) -> np.ndarray:
    return np.array(x.shape[start:end], np.int64)


register(
    Operator(
        "shape_of",
        ("x",),
        lambda site: TensorType((as_dim(len(_span(site))),), "int64"),
        _shape_of,
        attrs={"start": 0, "end": None},
        value=lambda site: dims_array(_span(site)),
        doc="the dimensions start … end-1 of x, int64",
    )
)

register(
    Operator(
        "size_of",
        ("x",),
        lambda site: TensorType((), "int64") if site.tensor(0) else site.fail("no tensor"),
        lambda x: np.array(x.size, np.int64),
        value=lambda site: dims_array([product(site.shape(0))], ()),
        doc="the number of elements of x, int64",
    )
)


# ---- arange ------------------------------------------------------------------------------------------------
def _arange_rule(site: Site) -> Type:
    """The size is max(0, ceil((limit - start) / delta)), also for a delta whose sign is not known."""
    dtype = common_dtype(site, (0, 1, 2), "number")
    for i in range(3):
        one_element(site, i, "start, limit and delta are single numbers")
    if is_float(dtype):
        return TensorType((site.measured(0, 0),), dtype)
    start, limit, delta = (as_dim(site.items(i).reshape(-1)[0]) for i in range(3))
    if delta == 0:
        site.fail("delta is 0")
    return TensorType((not_negative(site, -((start - limit) // delta)),), dtype)


def _arange_compute(site: Site, bufs: list) -> Buffer:
    out = site.out[0]

    def number(i: int, dtype: str) -> Expr:
        return (
            cast(first(bufs[i]), dtype)
            if bufs[i] is not None
            else Index(as_dim(site.items(i).reshape(-1)[0]))
        )

    def element(i: Dim) -> Expr:
        wide = out.dtype if out.dtype == "float64" else "float32" if is_float(out.dtype) else "int64"
        return cast(number(0, wide) + cast(Index(i), wide) * number(2, wide), out.dtype)

    return compute(out.shape, element, name="arange")


def _arange(start: np.ndarray, limit: np.ndarray, delta: np.ndarray) -> np.ndarray:
    dtype, (a, b, step) = start.dtype, (v.reshape(()).item() for v in (start, limit, delta))
    count = max(0, ceil((b - a) / step) if isinstance(step, float) else -((a - b) // step))
    wide = np.float32 if dtype.name in ("float16", "bfloat16") else dtype
    return (np.array(a, wide) + np.arange(count).astype(wide) * np.array(step, wide)).astype(dtype)


def _arange_value(site: Site) -> np.ndarray | None:
    found = known(site, 0, 1, 2)
    if found is None:
        return None
    start, limit, delta = (as_dim(v.reshape(-1)[0]) for v in found)
    size = not_negative(site, -((start - limit) // delta))
    if not size.is_const or size.value > KNOWN_LIMIT:
        return None
    return dims_array([start + i * delta for i in range(size.value)])


register(
    Operator(
        "arange",
        ("start", "limit", "delta"),
        _arange_rule,
        _arange,
        _arange_compute,
        value_args=(0, 1, 2),
        value=_arange_value,
        doc="start, start + delta, … up to but not with limit",
    )
)


# ---- full --------------------------------------------------------------------------------------------------
def _full_rule(site: Site) -> Type:
    shape = site.items(0, nonnegative=True)
    if shape.ndim != 1:
        site.fail(f"the shape must be a vector, not of rank {shape.ndim}")
    one_element(site, 1, "full repeats one number")
    for axis, d in enumerate(map(as_dim, shape)):
        site.require(d, ">=", 0, f"dimension {axis} of full")
    return TensorType(tuple(as_dim(d) for d in shape), site.dtype(1))


def _full_value(site: Site) -> np.ndarray | None:
    found = known(site, 0, 1)
    if found is None or not all(as_dim(d).is_const for d in found[0]):
        return None
    shape = tuple(int(d) for d in found[0])
    size = int(np.prod(shape))
    return dims_array([found[1].reshape(-1)[0]] * size, shape) if size <= KNOWN_LIMIT else None


register(
    Operator(
        "full",
        ("shape", "value"),
        _full_rule,
        lambda shape, value: np.full(tuple(int(d) for d in shape), value.reshape(()), value.dtype),
        lambda site, bufs: compute(site.out[0].shape, lambda *i: first(bufs[1]), name="full"),
        value_args=(0,),
        value=_full_value,
        doc="a tensor of the shape, every element the value",
    )
)


# ---- triangles, one-hot ------------------------------------------------------------------------------------
def _diagonal(site: Site) -> Dim:
    return as_dim(site.items(1).reshape(-1)[0]) if site.has(1) else as_dim(0)


def _trilu_rule(site: Site) -> Type:
    if site.rank(0) < 2:
        site.fail("needs at least two dimensions")
    if site.has(1):
        one_element(site, 1, "the diagonal of trilu is one number")
        _diagonal(site)
    return site.tensor(0)


def _trilu_compute(site: Site, bufs: list) -> Buffer:
    x, k, upper = bufs[0], _diagonal(site), site.attrs["upper"]

    def element(*i: Dim) -> Expr:
        beyond, diagonal = Index(i[-1] - i[-2]), Index(k)
        return Select(beyond >= diagonal if upper else beyond <= diagonal, x[i], zero(x.dtype))

    return compute(x.shape, element, name="trilu")


def _trilu(x: np.ndarray, k: np.ndarray | None = None, *, upper: bool) -> np.ndarray:
    offset = 0 if k is None else int(k.reshape(()))
    beyond = np.arange(x.shape[-1])[None, :] - np.arange(x.shape[-2])[:, None]
    return np.where(beyond >= offset if upper else beyond <= offset, x, np.zeros((), x.dtype))


register(
    Operator(
        "trilu",
        ("x", "k?"),
        _trilu_rule,
        _trilu,
        _trilu_compute,
        attrs={"upper": True},
        value_args=(1,),
        doc="matrices with zeros below (upper) or above the k-th diagonal",
    )
)


def _eye_dtype(site: Site) -> str:
    return str(site.attrs["dtype"] or site.dtype(0))


def _eye_rule(site: Site) -> Type:
    if site.rank(0) != 2:
        site.fail(f"needs a matrix, not rank {site.rank(0)}")
    return TensorType(site.shape(0), _eye_dtype(site))


def _eye_compute(site: Site, bufs: list) -> Buffer:
    dtype, k = _eye_dtype(site), int(site.attrs["k"])
    return compute(
        site.out[0].shape, lambda i, j: Select(Index(j - i).equals(k), one(dtype), zero(dtype)), name="eye"
    )


register(
    Operator(
        "eye_like",
        ("x",),
        _eye_rule,
        lambda x, *, k, dtype: np.eye(*x.shape, k=k, dtype=numpy_dtype(dtype) if dtype else x.dtype),
        _eye_compute,
        attrs={"k": 0, "dtype": None},
        doc="ones on the k-th diagonal of a matrix of x's shape",
    )
)


def _one_hot_axis(site: Site) -> int:
    return site.axis(int(site.attrs["axis"]), site.rank(0) + 1)


def _one_hot_rule(site: Site) -> Type:
    need(site, 0, "number")
    one_element(site, 1, "the depth of one_hot is one number")
    depth, axis, shape = (
        as_dim(site.items(1, nonnegative=True).reshape(-1)[0]),
        _one_hot_axis(site),
        site.shape(0),
    )
    if site.rank(2) != 1:
        site.fail("the values (off, on) must be a vector of 2")
    site.equal(site.shape(2)[0], 2, "the values of one_hot are off and on")
    site.require(depth, ">=", 0, "depth of one_hot")
    return TensorType((*shape[:axis], depth, *shape[axis:]), site.dtype(2))


def _one_hot_compute(site: Site, bufs: list) -> Buffer:
    indices, _, values = bufs
    axis, shape = _one_hot_axis(site), site.out[0].shape

    def element(*i: Dim) -> Expr:
        place = indices[(*i[:axis], *i[axis + 1 :])]
        place = cast(widen(place), "int64")
        place = Select(place < 0, place + shape[axis], place)
        return Select(place.equals(i[axis]), values[1], values[0])

    return compute(shape, element, name="one_hot")


def _one_hot(indices: np.ndarray, depth: np.ndarray, values: np.ndarray, *, axis: int) -> np.ndarray:
    count, rank = int(depth.reshape(())), indices.ndim + 1
    places = np.expand_dims(indices.astype(np.int64), axis)
    places = np.where(places < 0, places + count, places)
    steps = np.arange(count).reshape([-1 if a == axis % rank else 1 for a in range(rank)])
    return np.where(places == steps, values[1], values[0]).astype(values.dtype)


register(
    Operator(
        "one_hot",
        ("indices", "depth", "values"),
        _one_hot_rule,
        _one_hot,
        _one_hot_compute,
        attrs={"axis": -1},
        value_args=(1,),
        doc="values[1] at the indices along a new axis of that depth, values[0] elsewhere",
    )
)

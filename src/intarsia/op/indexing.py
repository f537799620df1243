"""Operators that read or write at places that a tensor of indices gives.

Indices are int32 or int64; negative ones count from the end. An index outside the tensor is an error in the
references; kernels clamp it, so that they never touch memory that is not theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.ir.types import TensorType, Type
from intarsia.kernel.compute import compute, fresh, opaque
from intarsia.kernel.expr import Binary, Buffer, Expr, Index, Select, cast
from intarsia.kernel.stmt import If, Stmt, block, loop, store
from intarsia.op.entry import REQUIRED, Operator, Site, register
from intarsia.op.rules import if_any, known, need, same_shape, widen, wrapped


def _indices(site: Site, arg: int = 1) -> tuple[Dim, ...]:
    if site.dtype(arg) not in ("int64", "int32"):
        site.fail(f"indices must be int64 or int32, not {site.dtype(arg)}")
    return site.shape(arg)


def _axis(site: Site) -> int:
    return site.axis(int(site.attrs["axis"]), site.rank(0))


def _inside(indices: np.ndarray, size: int) -> np.ndarray:
    """Indices as 0 … size-1; IndexError for others."""
    if indices.size and not (-size <= int(indices.min()) and int(indices.max()) < size):
        raise IndexError(
            f"an index of {int(indices.min())} … {int(indices.max())} is outside a dimension of size {size}"
        )
    return np.where(indices < 0, indices + size, indices)


# ---- take --------------------------------------------------------------------------------------------------
def _take_rule(site: Site) -> Type:
    x, axis, indices = site.shape(0), _axis(site), _indices(site)
    return TensorType((*x[:axis], *indices, *x[axis + 1 :]), site.dtype(0))


def _take_compute(site: Site, bufs: list) -> Buffer:
    x, indices = bufs
    axis, rank = _axis(site), len(indices.shape)
    size = x.shape[axis]
    single = _single(site, size)

    def element(*i: Dim) -> Expr:
        if single is not None:
            return x[(*i[:axis], single, *i[axis + rank :])]
        place = wrapped(indices[i[axis : axis + rank]], size)
        return if_any(site, size, x[(*i[:axis], place, *i[axis + rank :])])

    return compute(site.out[0].shape, element, name="take")


def _single(site: Site, size: Dim) -> Dim | None:
    """The place, where there is one index, which is known and certainly inside."""
    value = site.value(1)
    if value is None or value.size != 1:
        return None
    place = as_dim(value.reshape(-1)[0])
    place = place + size if site.bounds.lt(place, 0) else place
    return place if site.bounds.le(0, place) and site.bounds.lt(place, size) else None


def _take(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    return np.take(x, _inside(indices, x.shape[axis]), axis)


def _take_value(site: Site) -> np.ndarray | None:
    found = known(site, 0, 1)
    if found is None or not all(as_dim(d).is_const for d in found[1].reshape(-1)):
        return None
    indices = np.array([int(d) for d in found[1].reshape(-1)], np.int64).reshape(found[1].shape)
    size = found[0].shape[_axis(site)]
    if indices.size and not (-size <= indices.min() and indices.max() < size):
        site.fail(f"index {[int(i) for i in indices.reshape(-1)]} is outside a dimension of size {size}")
    result = np.empty(
        [*found[0].shape[: _axis(site)], *indices.shape, *found[0].shape[_axis(site) + 1 :]], object
    )
    result[...] = np.take(found[0], indices, _axis(site))
    return result


register(
    Operator(
        "take",
        ("x", "indices"),
        _take_rule,
        _take,
        _take_compute,
        attrs={"axis": 0},
        value=_take_value,
        doc="the slices of x at the indices along the axis (ONNX Gather)",
    )
)


# ---- take_along_axis ---------------------------------------------------------------------------------------
def _along_rule(site: Site) -> Type:
    _axis(site)
    if len(_indices(site)) != site.rank(0):
        site.fail(f"indices have rank {site.rank(1)}, x has rank {site.rank(0)}")
    for axis, (d, n) in enumerate(zip(site.shape(0), site.shape(1))):
        if axis != _axis(site):
            site.require(n, "<=", d, f"indices reach along x only, dimension {axis}")
    return TensorType(site.shape(1), site.dtype(0))


def _along_compute(site: Site, bufs: list) -> Buffer:
    x, indices = bufs
    axis = _axis(site)
    size = x.shape[axis]

    def element(*i: Dim) -> Expr:
        return if_any(site, size, x[(*i[:axis], wrapped(indices[i], size), *i[axis + 1 :])])

    return compute(indices.shape, element, name="take_along_axis")


def _along(x: np.ndarray, indices: np.ndarray, *, axis: int) -> np.ndarray:
    axis %= x.ndim
    places: list[np.ndarray] = list(np.indices(indices.shape, sparse=True))
    places[axis] = _inside(indices, x.shape[axis])
    return x[tuple(places)]


register(
    Operator(
        "take_along_axis",
        ("x", "indices"),
        _along_rule,
        _along,
        _along_compute,
        attrs={"axis": REQUIRED},
        doc="x at each place of the indices, but for the axis, where they tell (ONNX GatherElements)",
    )
)


# ---- gather_nd ---------------------------------------------------------------------------------------------
def _tuple_length(site: Site) -> int:
    """The length of an index tuple: the last dimension of the indices."""
    shape = _indices(site)
    if not shape or not shape[-1].is_const:
        site.fail("the last dimension of the indices must be known: it sets the result's rank")
    return shape[-1].value


def _gather_nd_rule(site: Site) -> Type:
    x, indices, batch, k = site.shape(0), _indices(site), int(site.attrs["batch_dims"]), _tuple_length(site)
    if batch >= len(indices) or batch + k > len(x):
        site.fail(f"{batch} batch dimensions and indices of {k} places need more dimensions than there are")
    lead = same_shape(site, x[:batch], indices[:batch], "batch dimensions of gather_nd")
    return TensorType((*lead, *indices[batch:-1], *x[batch + k :]), site.dtype(0))


def _gather_nd_compute(site: Site, bufs: list) -> Buffer:
    x, indices = bufs
    batch, k, split = int(site.attrs["batch_dims"]), _tuple_length(site), len(indices.shape) - 1

    def element(*i: Dim) -> Expr:
        sizes = x.shape[batch : batch + k]
        places = [wrapped(indices[(*i[:split], as_dim(j))], size) for j, size in enumerate(sizes)]
        value: Expr = x[(*i[:batch], *places, *i[split:])]
        for size in sizes:
            value = if_any(site, size, value)
        return value

    return compute(site.out[0].shape, element, name="gather_nd")


def _gather_nd(x: np.ndarray, indices: np.ndarray, *, batch_dims: int) -> np.ndarray:
    k = indices.shape[-1]
    places = [_inside(indices[..., j], x.shape[batch_dims + j]) for j in range(k)]
    rank = indices.ndim - 1
    lead = [
        np.arange(x.shape[a]).reshape([-1 if b == a else 1 for b in range(rank)]) for a in range(batch_dims)
    ]
    if not lead and not places:
        return np.broadcast_to(x, (*indices.shape[:-1], *x.shape)).copy()
    result = x[tuple(lead + places)]
    return np.broadcast_to(result, (*indices.shape[:-1], *x.shape[batch_dims + k :])).copy()


register(
    Operator(
        "gather_nd",
        ("x", "indices"),
        _gather_nd_rule,
        _gather_nd,
        _gather_nd_compute,
        attrs={"batch_dims": 0},
        doc="slices of x at index tuples, which lie along the last dimension of the indices",
    )
)


# ---- scatter -----------------------------------------------------------------------------------------------
_COMBINE = {"none": None, "add": "add", "mul": "mul", "min": "min", "max": "max"}


def nest(shape: Sequence[Dim], body: Callable[[list[Dim]], Stmt], *, parallel: bool = False) -> Stmt:
    """Loops over a shape, the first of them parallel if asked for, around body(indices)."""
    names = [fresh("s") for _ in shape]
    statement = body([Symbol(n) for n in names])
    for level, (name, d) in reversed(list(enumerate(zip(names, shape)))):
        statement = loop(name, d, statement, "parallel" if parallel and level == 0 else "serial")
    return statement


def _scatter(name: str, site: Site, bufs: list, place: Callable[[Buffer, Buffer, list[Dim]], list]) -> Buffer:
    """x copied, then each update put (in order) at place(x, indices, indices of the update)."""
    combine = _COMBINE[str(site.attrs["reduction"])]

    def build(target, inputs, outputs, scratch) -> Stmt:
        (x, indices, updates), (out,) = inputs, outputs

        def update(i: list[Dim]) -> Stmt:
            at = place(x, indices, i)
            new: Expr = updates[tuple(i)]
            if combine:
                new = cast(_combined(combine, widen(out[tuple(at)]), widen(new)), out.dtype)
            statement: Stmt = store(out, at, new)
            for d, p in zip(x.shape, at):
                if isinstance(p, Expr) and not site.bounds.lt(0, d):
                    statement = If(Index(d) > 0, statement)
            return statement

        copied = nest(x.shape, lambda i: store(out, i, x[tuple(i)]), parallel=True)
        return block(copied, nest(updates.shape, update))

    return opaque(name, bufs, [(site.out[0].shape, site.out[0].dtype)], build)[0]


def _combined(op: str, a: Expr, b: Expr) -> Expr:
    if a.dtype == "bool":  # sums and products of bools are 'or' and 'and', and so are their extrema
        return Binary("or" if op in ("add", "max") else "and", a, b)
    return Binary(op, a, b)


def _check_reduction(site: Site) -> None:
    if site.attrs["reduction"] not in _COMBINE:
        site.fail(f"there is no reduction {site.attrs['reduction']}", remedy="one of " + ", ".join(_COMBINE))
    if site.dtype(0) != site.dtype(2):
        site.fail(f"x is {site.dtype(0)}, but the updates are {site.dtype(2)}")


_UFUNC = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _scattered(x: np.ndarray, places: tuple, updates: np.ndarray, reduction: str) -> np.ndarray:
    """x with the updates at the places, one after the other."""
    out = np.array(x)
    with np.errstate(all="ignore"):
        for at in np.ndindex(*updates.shape):
            place = tuple(p[at] for p in places)
            out[place] = updates[at] if reduction == "none" else _UFUNC[reduction](out[place], updates[at])
    return out


def _scatter_nd_rule(site: Site) -> Type:
    _check_reduction(site)
    x, indices, k = site.shape(0), _indices(site), _tuple_length(site)
    if k > len(x):
        site.fail(f"indices of {k} places for a tensor of {len(x)} dimensions")
    same_shape(site, site.shape(2), (*indices[:-1], *x[k:]), "updates of scatter_nd")
    return site.tensor(0)


def _scatter_nd_compute(site: Site, bufs: list) -> Buffer:
    k, split = _tuple_length(site), site.rank(1) - 1

    def place(x: Buffer, indices: Buffer, i: list[Dim]) -> list:
        at = [wrapped(indices[(*i[:split], as_dim(j))], x.shape[j]) for j in range(k)]
        return at + i[split:]

    return _scatter("scatter_nd", site, bufs, place)


def _scatter_nd(x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, reduction: str) -> np.ndarray:
    k, rank = indices.shape[-1], updates.ndim
    split = indices.ndim - 1
    lead = [
        np.broadcast_to(
            _inside(indices[..., j], x.shape[j]).reshape(indices.shape[:-1] + (1,) * (rank - split)),
            updates.shape,
        )
        for j in range(k)
    ]
    rest = list(np.indices(updates.shape))[split:]
    return _scattered(x, tuple(lead + rest), updates, reduction)


register(
    Operator(
        "scatter_nd",
        ("x", "indices", "updates"),
        _scatter_nd_rule,
        _scatter_nd,
        _scatter_nd_compute,
        attrs={"reduction": "none"},
        doc="x with slices replaced (or combined: add, mul, min, max) at index tuples; later updates win",
    )
)


def _scatter_elements_rule(site: Site) -> Type:
    _check_reduction(site)
    x, indices = site.shape(0), _indices(site)
    if len(x) != len(indices):
        site.fail(f"indices have rank {len(indices)}, x has rank {len(x)}")
    same_shape(site, site.shape(2), indices, "updates of scatter_elements")
    for axis, (d, n) in enumerate(zip(x, indices)):
        if axis != _axis(site):
            site.require(n, "<=", d, f"indices reach along x only, dimension {axis}")
    return site.tensor(0)


def _scatter_elements_compute(site: Site, bufs: list) -> Buffer:
    axis = _axis(site)

    def place(x: Buffer, indices: Buffer, i: list[Dim]) -> list:
        return [*i[:axis], wrapped(indices[tuple(i)], x.shape[axis]), *i[axis + 1 :]]

    return _scatter("scatter_elements", site, bufs, place)


def _scatter_elements(
    x: np.ndarray, indices: np.ndarray, updates: np.ndarray, *, axis: int, reduction: str
) -> np.ndarray:
    places: list = list(np.indices(indices.shape))
    places[axis % x.ndim] = _inside(indices, x.shape[axis])
    return _scattered(x, tuple(places), updates, reduction)


register(
    Operator(
        "scatter_elements",
        ("x", "indices", "updates"),
        _scatter_elements_rule,
        _scatter_elements,
        _scatter_elements_compute,
        attrs={"axis": 0, "reduction": "none"},
        doc="x with elements replaced (or combined) at the updates' places, but for the axis: indices tell",
    )
)


# ---- reverse_sequence --------------------------------------------------------------------------------------
def _reverse_rule(site: Site) -> Type:
    x, (time, batch) = site.shape(0), _reverse_axes(site)
    if time == batch:
        site.fail("time and batch must be different axes")
    need(site, 1, "int")
    same_shape(site, site.shape(1), (x[batch],), "sequence lengths, one for each of the batch")
    return site.tensor(0)


def _reverse_axes(site: Site) -> tuple[int, int]:
    rank = site.rank(0)
    return site.axis(int(site.attrs["time_axis"]), rank), site.axis(int(site.attrs["batch_axis"]), rank)


def _reverse_compute(site: Site, bufs: list) -> Buffer:
    x, lengths = bufs
    time, batch = _reverse_axes(site)

    def element(*i: Dim) -> Expr:
        length = Binary("min", cast(lengths[i[batch]], "int64"), Index(x.shape[time]))
        step = Index(i[time])
        places: list = list(i)
        places[time] = Select(step < length, length - 1 - step, step)
        return x[tuple(places)]

    return compute(x.shape, element, name="reverse_sequence")


def _reverse(x: np.ndarray, lengths: np.ndarray, *, time_axis: int, batch_axis: int) -> np.ndarray:
    rows = np.moveaxis(x, (batch_axis, time_axis), (0, 1)).copy()
    for row, n in zip(rows, lengths):
        row[: int(n)] = row[: int(n)][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(rows, (0, 1), (batch_axis, time_axis)))


register(
    Operator(
        "reverse_sequence",
        ("x", "lengths"),
        _reverse_rule,
        _reverse,
        _reverse_compute,
        attrs={"time_axis": 0, "batch_axis": 1},
        doc="the first lengths[b] steps of each sequence in reverse order",
    )
)

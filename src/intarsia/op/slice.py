"""`slice`, ONNX's, over places that may be known, symbolic, or read from tensors at run time."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Dim, as_dim, ceildiv, dmax, dmin
from intarsia.ir.types import TensorType, Type
from intarsia.kernel.compute import compute
from intarsia.kernel.expr import Buffer, Expr
from intarsia.op.entry import Operator, Site, register
from intarsia.op.rules import clamp, constant_items, dims_array, known, normal_axes, not_negative

_FAR = (1 << 31) - 1  # an end this large means 'to the end', in ONNX files written with int32 or int64 limits


def _slice_ranges(site: Site) -> dict[int, tuple[Dim, Dim, Dim]]:
    """axis -> (start, size, step): element j of the result is element start + j * step."""
    x = site.shape(0)
    starts, ends = site.items(1).reshape(-1), site.items(2).reshape(-1)
    axes = constant_items(site, 3, "the axes of slice") if site.has(3) else tuple(range(len(starts)))
    steps = site.items(4).reshape(-1) if site.has(4) else dims_array([1] * len(starts))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        site.fail(
            f"{len(starts)} starts, {len(ends)} ends, {len(axes)} axes and {len(steps)} steps do not match"
        )
    return {
        axis: _slice_range(site, x[axis], as_dim(start), as_dim(end), as_dim(step))
        for axis, start, end, step in zip(normal_axes(site, axes, len(x)), starts, ends, steps)
    }


def _slice_range(site: Site, d: Dim, start: Dim, end: Dim, step: Dim) -> tuple[Dim, Dim, Dim]:
    if step == 0:
        site.fail("the step of a slice is 0")
    first, last = _from_end(site, d, start), _from_end(site, d, end)
    if not site.bounds.lt(0, step) and not site.bounds.lt(step, 0):
        backwards = dmin(dmax(-step, 0), 1)  # 1 or 0: which way, only run time tells
        first, last = (dmax(dmin(p, d - backwards), -backwards) for p in (first, last))
        return first, dmax(-((first - last) // step), 0), step
    if site.bounds.lt(step, 0):
        first = first if site.bounds.le(first, d - 1) else dmin(first, d - 1)
        return first, ceildiv(not_negative(site, first - clamp(site, last, as_dim(-1), d - 1)), -step), step
    last = clamp(site, last, as_dim(0), d)
    low = not_negative(site, first)  # a start beyond the end gives an empty slice: no upper clamp
    if low != first and last == d and (d - first).is_const:  # the last elements, a given number of them
        extent = dmin(d, d - first)
    else:
        extent = not_negative(site, last - low)
    return low, ceildiv(extent, step), step


def _from_end(site: Site, d: Dim, place: Dim) -> Dim:
    """A place of a slice, negative ones counted from the end; integer types' limits are far-off places."""
    if place.is_const:
        if place.value >= _FAR:
            return d
        if place.value <= -_FAR:
            return as_dim(-1)
        return d + place if place.value < 0 else place
    if site.bounds.le(0, place):
        return place
    if site.bounds.lt(place, 0):
        return d + place
    return place + d * dmin(dmax(-place, 0), 1)


def _slice_rule(site: Site) -> Type:
    shape = list(site.shape(0))
    if site.has(4):
        for step in map(as_dim, site.items(4).reshape(-1)):
            if not step.is_const:
                site.require(step * step, ">", 0, "the step of a slice is not 0")
    for axis, (_, size, _) in _slice_ranges(site).items():
        shape[axis] = size
    return TensorType(tuple(shape), site.dtype(0))


def _slice_compute(site: Site, bufs: list) -> Buffer:
    ranges = _slice_ranges(site)

    def element(*i: Dim) -> Expr:
        places = [ranges[a][0] + j * ranges[a][2] if a in ranges else j for a, j in enumerate(i)]
        return bufs[0][tuple(places)]

    return compute(site.out[0].shape, element, name="slice")


def _slices(rank: int, starts, ends, axes, steps) -> tuple[slice, ...]:
    axes = range(len(starts)) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    result = [slice(None)] * rank
    for axis, start, end, step in zip(axes, starts, ends, steps):
        stop = None if step < 0 and end <= -_FAR else int(end)
        result[int(axis)] = slice(int(start), stop, int(step))
    return tuple(result)


def _slice(x, starts, ends, axes=None, steps=None) -> np.ndarray:
    return x[_slices(x.ndim, starts, ends, axes, steps)].copy()


def _known_slice(site: Site) -> np.ndarray | None:
    found = known(site, *(i for i in range(5) if site.has(i)))
    if found is None or not all(as_dim(d).is_const for v in found[1:] for d in v.reshape(-1)):
        return None
    given = iter(found[1:])
    ints = [[int(d) for d in next(given).reshape(-1)] if site.has(i) else None for i in range(1, 5)]
    return found[0][_slices(found[0].ndim, *ints)]


register(
    Operator(
        "slice",
        ("x", "starts", "ends", "axes?", "steps?"),
        _slice_rule,
        _slice,
        _slice_compute,
        value_args=(1, 2, 3, 4),
        value=_known_slice,
        doc="x[start:end:step] along the axes; places are clamped, negative ones count from the end",
    )
)

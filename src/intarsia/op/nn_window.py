"""The geometry that convolutions and pools share: layouts, windows, padding, sizes (as ONNX has them)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from intarsia.dim import Dim, as_dim, ceildiv, dmax, dmin
from intarsia.dim.expr import DimLike
from intarsia.kernel.compute import compute
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, Select
from intarsia.op.entry import Site

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where batch, channels and spatial dimensions stand, for any number of spatial dimensions."""

    name: str
    rank: int

    @property
    def last(self) -> bool:
        return self.name == "NHWC"

    @property
    def channel(self) -> int:
        return self.rank - 1 if self.last else 1

    def arrange(self, n: T, c: T, spatial: Sequence[T]) -> tuple[T, ...]:
        return (n, *spatial, c) if self.last else (n, c, *spatial)

    def parts(self, dims: Sequence[T]) -> tuple[T, T, tuple[T, ...]]:
        """(batch, channels, spatial) of a shape or of indices in this layout."""
        if self.last:
            return dims[0], dims[-1], tuple(dims[1:-1])
        return dims[0], dims[1], tuple(dims[2:])


@dataclass(frozen=True, slots=True)
class Window:
    """kernel, strides, dilation and padding per spatial dimension (padding as (begin, end))."""

    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[Dim, Dim], ...]

    def place(self, axis: int, out: Dim, tap: Dim) -> Dim:
        """The (possibly negative) input position that window `out` reads with kernel element `tap`."""
        return out * self.strides[axis] + tap * self.dilation[axis] - self.padding[axis][0]


def read_layout(site: Site, rank: int) -> Layout:
    """The layout attribute, checked against the rank of the data."""
    name = site.attrs["layout"]
    if name not in ("NCHW", "NHWC"):
        site.fail(f"layout {name!r} is neither 'NCHW' nor 'NHWC' (for any number of spatial dimensions)")
    if rank < 3:
        site.fail(
            f"the data needs a batch, a channel and at least one spatial dimension, not {rank} dimensions"
        )
    return Layout(name, rank)


def spatial_attr(site: Site, name: str, count: int) -> tuple[int, ...]:
    """A positive integer per spatial dimension; None means ones."""
    value = site.attrs[name]
    if value is None:
        return (1,) * count
    if not isinstance(value, tuple) or len(value) != count:
        site.fail(f"{name} {value} does not have one entry for each of the {count} spatial dimensions")
    numbers = tuple(int(v) for v in value)
    if any(v < 1 for v in numbers):
        site.fail(f"{name} {value} must be positive")
    return numbers


def extent(kernel: DimLike, dilation: int) -> Dim:
    """Input elements from the first to the last element of a dilated kernel."""
    return (as_dim(kernel) - 1) * dilation + 1


def read_padding(
    site: Site, sizes: Sequence[Dim], kernel: Sequence[Dim], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[tuple[Dim, Dim], ...]:
    """(begin, end) per spatial dimension from the attributes padding and auto_pad."""
    count, mode, given = len(sizes), site.attrs["auto_pad"], site.attrs["padding"]
    if mode == "NOTSET":
        return explicit_padding(site, count)
    if given is not None and any(p != 0 for p in given):
        site.fail(f"padding {given} and auto_pad {mode} exclude each other")
    if mode == "VALID":
        return ((as_dim(0), as_dim(0)),) * count
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        site.fail(f"auto_pad {mode!r} is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID")
    pads = []
    for size, k, s, d in zip(sizes, kernel, strides, dilation):
        total = dmax((ceildiv(size, s) - 1) * s + extent(k, d) - size, 0)
        small = total // 2
        pads.append((small, total - small) if mode == "SAME_UPPER" else (total - small, small))
    return tuple(pads)


def explicit_padding(site: Site, count: int) -> tuple[tuple[Dim, Dim], ...]:
    """The attribute padding (all begins, then all ends) as (begin, end) per spatial dimension."""
    given = site.attrs["padding"]
    if given is None:
        return ((as_dim(0), as_dim(0)),) * count
    if len(given) != 2 * count:
        site.fail(
            f"padding {given} does not have a begin and an end for each of the {count} spatial dimensions"
        )
    return tuple((as_dim(b), as_dim(e)) for b, e in zip(given[:count], given[count:]))


def result_size(site: Site, size: Dim, window: Window, axis: int, ceil: bool = False) -> Dim:
    """Number of window places along a spatial dimension.

    ceil: the last window may stick out at the end, but must start inside the data or its begin padding.
    """
    begin, end = window.padding[axis]
    stride = window.strides[axis]
    room = size + begin + end - extent(window.kernel[axis], window.dilation[axis])
    out = room // stride + 1
    if ceil:
        out = dmin(ceildiv(room, stride) + 1, ceildiv(size + begin, stride))
    site.require(out, ">=", 0, f"the window in spatial dimension {axis} must fit into the padded data")
    return out


def inside(positions: Sequence[tuple[Dim, Dim, bool, bool]]) -> Expr | None:
    """0 <= position < size for all (position, size, can be negative, can reach size); None: no test."""
    tests: list[Expr] = []
    for position, size, low, high in positions:
        if low:
            tests.append(Index(position) >= 0)
        if high:
            tests.append(Index(position) < size)
    cond: Expr | None = None
    for t in tests:
        cond = t if cond is None else Binary("and", cond, t)
    return cond


def guarded(cond: Expr | None, value: Expr, otherwise: float) -> Expr:
    """value where cond holds (always, if None), else the constant."""
    return value if cond is None else Select(cond, value, Const(otherwise, value.dtype))


def pad_spatial(data: Buffer, layout: Layout, padding: Sequence[tuple[Dim, Dim]]) -> Buffer:
    """data with zeros around its spatial dimensions; data itself if there is no padding."""
    if all(b == 0 and e == 0 for b, e in padding):
        return data
    n, c, sizes = layout.parts(data.shape)

    def element(*index: Dim) -> Expr:
        i, j, spatial = layout.parts(index)
        places = [p - b for p, (b, _) in zip(spatial, padding)]
        tests = [(p, size, b != 0, e != 0) for p, size, (b, e) in zip(places, sizes, padding)]
        return guarded(inside(tests), data[layout.arrange(i, j, places)], 0)

    padded = [size + b + e for size, (b, e) in zip(sizes, padding)]
    return compute(layout.arrange(n, c, padded), element, dtype=data.dtype, name="padded")


# ---- the NumPy side: independent of the above, on plain integers -------------------------------------------
def numpy_geometry(sizes, kernel, strides, padding, dilation, auto_pad):
    """strides, dilation, begins, ends as lists of ints."""
    count = len(kernel)
    strides, dilation = list(strides or [1] * count), list(dilation or [1] * count)
    begins, ends = [0] * count, [0] * count
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        for i in range(count):
            out = -(-sizes[i] // strides[i])
            total = max(0, (out - 1) * strides[i] + (kernel[i] - 1) * dilation[i] + 1 - sizes[i])
            big, small = total - total // 2, total // 2
            begins[i], ends[i] = (small, big) if auto_pad == "SAME_UPPER" else (big, small)
    elif auto_pad == "NOTSET" and padding is not None:
        begins, ends = [int(p) for p in padding[:count]], [int(p) for p in padding[count:]]
    return strides, dilation, begins, ends


def numpy_windows(x: np.ndarray, kernel, strides, dilation) -> np.ndarray:
    """All windows of an [N, C, spatial…] array as [N, C, places…, kernel…]; a view."""
    count = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    axes = tuple(range(2, 2 + count))
    if any(s > n for s, n in zip(spans, x.shape[2:])):
        places = [max(0, (n - s) // t + 1) for n, s, t in zip(x.shape[2:], spans, strides)]
        return np.zeros((*x.shape[:2], *places, *kernel), x.dtype)
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=axes)
    every = [slice(None, None, s) for s in strides] + [slice(None, None, d) for d in dilation]
    return windows[(slice(None), slice(None), *every)]

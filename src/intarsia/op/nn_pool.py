"""Pooling over spatial windows (ONNX MaxPool-22, AveragePool-22)."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Dim, as_dim, ceildiv, dmax, dmin, product
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, reduce, reduce_axis, var
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, cast, identity_of, lift
from intarsia.kernel.library.conv import PoolShape
from intarsia.op.entry import REQUIRED, Operator, Site, register
from intarsia.op.nn_window import (
    Layout,
    Window,
    guarded,
    inside,
    numpy_geometry,
    numpy_windows,
    read_layout,
    read_padding,
    result_size,
    spatial_attr,
)

_POOL_ATTRS = {
    "kernel": REQUIRED,
    "strides": None,
    "padding": None,
    "dilation": None,
    "ceil_mode": False,
    "layout": "NCHW",
    "auto_pad": "NOTSET",
}


def _pool_window(site: Site, layout: Layout) -> Window:
    count = layout.rank - 2
    kernel = tuple(as_dim(k) for k in spatial_attr(site, "kernel", count))
    strides, dilation = spatial_attr(site, "strides", count), spatial_attr(site, "dilation", count)
    sizes = layout.parts(site.shape(0))[2]
    return Window(kernel, strides, dilation, read_padding(site, sizes, kernel, strides, dilation))


def _pool_rule(site: Site) -> TensorType:
    layout = read_layout(site, site.rank(0))
    n, c, sizes = layout.parts(site.shape(0))
    window = _pool_window(site, layout)
    ceil = bool(site.attrs["ceil_mode"]) and site.attrs["auto_pad"] == "NOTSET"
    out = [result_size(site, size, window, i, ceil) for i, size in enumerate(sizes)]
    return TensorType(layout.arrange(n, c, out), site.dtype(0))


def _reduce_windows(site: Site, x: Buffer, op: str, acc: str) -> tuple[Buffer, Window, Layout]:
    """The reduction of every window; elements outside the data do not count."""
    layout = read_layout(site, len(x.shape))
    window = _pool_window(site, layout)
    sizes, out = layout.parts(x.shape)[2], layout.parts(site.out[0].shape)[2]
    taps = [reduce_axis(k) for k in window.kernel]
    neutral = identity_of(op, acc).value
    beyond = []  # whether a window may stick out past the end of the data
    for i, (size, places) in enumerate(zip(sizes, out)):
        last = window.place(i, places - 1, window.kernel[i] - 1)
        beyond.append(not site.bounds.lt(last, size))

    def element(*index: Dim) -> Expr:
        n, c, spatial = layout.parts(index)
        places = [window.place(i, p, var(t)) for i, (p, t) in enumerate(zip(spatial, taps))]
        tests = [(p, s, b != 0, far) for p, s, (b, _), far in zip(places, sizes, window.padding, beyond)]
        value = cast(x[layout.arrange(n, c, places)], acc)
        return reduce(op, guarded(inside(tests), value, neutral), *taps)

    info = PoolShape(
        x,
        op,
        tuple(k.value for k in window.kernel),
        window.strides,
        window.padding,
        window.dilation,
        layout.name,
    )
    name = {"max": "max_pool", "sum": "window_sum"}[op]
    return compute(site.out[0].shape, element, dtype=acc, name=name, hint={"pool": info}), window, layout


def _numpy_pool(x, kernel, strides, padding, dilation, ceil_mode, layout, auto_pad, fill):
    """(windows over x padded by `fill` so that all places exist; begins, ends, strides, dilation, sizes)."""
    x = np.moveaxis(x, -1, 1) if layout == "NHWC" else x
    sizes = x.shape[2:]
    strides, dilation, begins, ends = numpy_geometry(sizes, kernel, strides, padding, dilation, auto_pad)
    grow = list(ends)
    if ceil_mode and auto_pad == "NOTSET":
        for i, size in enumerate(sizes):
            span = (kernel[i] - 1) * dilation[i] + 1
            count = -(-(size + begins[i] + ends[i] - span) // strides[i]) + 1
            if (count - 1) * strides[i] >= size + begins[i]:
                count -= 1
            grow[i] = max(ends[i], (count - 1) * strides[i] + span - size - begins[i])
    padded = np.pad(x, [(0, 0), (0, 0), *zip(begins, grow)], constant_values=fill)
    windows = numpy_windows(padded, kernel, strides, dilation)
    if (
        ceil_mode and auto_pad == "NOTSET"
    ):  # end padding alone may hold further windows that start outside the data
        kept = [slice(0, max(0, -(-(size + b) // s))) for size, b, s in zip(sizes, begins, strides)]
        windows = windows[(slice(None), slice(None), *kept)]
    return windows, begins, ends, strides, dilation, sizes


def _restore(y: np.ndarray, layout: str) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(y, 1, -1) if layout == "NHWC" else y)


# ---- nn.max_pool -------------------------------------------------------------------------------------------
def _max_compute(site: Site, buffers: list) -> Buffer:
    return _reduce_windows(site, buffers[0], "max", buffers[0].dtype)[0]


def _max_reference(
    x,
    *,
    kernel,
    strides=None,
    padding=None,
    dilation=None,
    ceil_mode=False,
    layout="NCHW",
    auto_pad="NOTSET",
):
    low = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    windows = _numpy_pool(x, kernel, strides, padding, dilation, ceil_mode, layout, auto_pad, low)[0]
    y = np.max(windows, axis=tuple(range(-len(kernel), 0)), initial=low)
    return _restore(y.astype(x.dtype), layout)


register(
    Operator(
        "nn.max_pool",
        ("x",),
        _pool_rule,
        _max_reference,
        _max_compute,
        attrs=_POOL_ATTRS,
        doc="Largest element of each window; padding is minus infinity, NaN wins.",
    )
)


# ---- nn.max_pool_indices -----------------------------------------------------------------------------------
def _indices_rule(site: Site) -> TensorType:
    return TensorType(_pool_rule(site).shape, "int64")


def _indices_compute(site: Site, buffers: list) -> Buffer:
    """The first largest element of each window, then where that is in the data."""
    x = buffers[0]
    layout = read_layout(site, len(x.shape))
    window = _pool_window(site, layout)
    n, c, sizes = layout.parts(x.shape)
    count, neutral = len(sizes), identity_of("max", x.dtype).value
    tap = reduce_axis(product(window.kernel))

    def unrolled(number: Dim) -> list[Dim]:
        parts: list[Dim] = []
        for k in reversed(window.kernel):
            parts.append(number % k)
            number = number // k
        return parts[::-1]

    def best(*index: Dim) -> Expr:
        i, j, spatial = layout.parts(index)
        taps = unrolled(var(tap))
        places = [window.place(a, spatial[a], taps[a]) for a in range(count)]
        cond = inside([(p, size, True, True) for p, size in zip(places, sizes)])
        return reduce("argmax", guarded(cond, x[layout.arrange(i, j, places)], neutral), tap)

    found = compute(site.out[0].shape, best, dtype="int64", name="best_tap")

    def flat(*index: Dim) -> Expr:
        i, j, spatial = layout.parts(index)
        number, places = found[index], []
        for a in reversed(range(count)):
            k = window.kernel[a].value
            place = Binary("mod", number, Const(k, "int64")) * window.dilation[a]
            places.append(place + Index(window.place(a, spatial[a], as_dim(0))))
            number = Binary("floordiv", number, Const(k, "int64"))
        ordered = range(count) if site.attrs["column_major"] else reversed(range(count))
        total: Expr | None = None
        stride = as_dim(1)
        for a in ordered:
            part = places[count - 1 - a] * stride
            total, stride = part if total is None else total + part, stride * sizes[a]
        assert total is not None
        return total + Index((i * c + j) * stride)

    return compute(site.out[0].shape, flat, dtype="int64", name="max_pool_indices")


def _indices_reference(
    x,
    *,
    kernel,
    strides=None,
    padding=None,
    dilation=None,
    ceil_mode=False,
    layout="NCHW",
    auto_pad="NOTSET",
    column_major=False,
):
    low = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    shared = (kernel, strides, padding, dilation, ceil_mode)
    windows = _numpy_pool(x, *shared, layout, auto_pad, low)[0]
    sizes = (np.moveaxis(x, -1, 1) if layout == "NHWC" else x).shape
    spatial = np.arange(int(np.prod(sizes[2:]))).reshape(sizes[2:], order="F" if column_major else "C")
    numbers = np.arange(sizes[0] * sizes[1]).reshape(*sizes[:2], *[1] * len(kernel)) * spatial.size + spatial
    where = _numpy_pool(numbers, *shared, "NCHW", auto_pad, -1)[0]
    shape = (*windows.shape[: -len(kernel)], int(np.prod(kernel)))
    best = np.argmax(windows.reshape(shape), axis=-1)[..., None]
    return _restore(np.take_along_axis(where.reshape(shape), best, -1)[..., 0], layout)


register(
    Operator(
        "nn.max_pool_indices",
        ("x",),
        _indices_rule,
        _indices_reference,
        _indices_compute,
        attrs={**_POOL_ATTRS, "column_major": False},
        doc="Where in the flattened (N, C, spatial…) data the results of nn.max_pool come from (ONNX).",
    )
)


# ---- nn.avg_pool -------------------------------------------------------------------------------------------
def _avg_compute(site: Site, buffers: list) -> Buffer:
    x = buffers[0]
    acc = "float32" if x.dtype in ("float16", "bfloat16") else x.dtype
    total, window, layout = _reduce_windows(site, x, "sum", acc)
    sizes = layout.parts(x.shape)[2]
    with_padding = bool(site.attrs["count_include_pad"])

    def taps_counted(i: int, place: Dim) -> Dim:
        """How many kernel elements of window `place` lie inside the data (or its padding)."""
        start, (begin, end), k = window.place(i, place, as_dim(0)), window.padding[i], window.kernel[i]
        low, high = (begin, sizes[i] + end) if with_padding else (as_dim(0), sizes[i])
        first = as_dim(0) if with_padding or begin == 0 else dmax(0, ceildiv(-start, window.dilation[i]))
        out = layout.parts(site.out[0].shape)[2][i]
        last_start = window.place(i, out - 1, k - 1)
        inside_always = site.bounds.lt(last_start, high)
        last = k if inside_always else dmin(k, ceildiv(high - start, window.dilation[i]))
        return last - first

    def element(*index: Dim) -> Expr:
        spatial = layout.parts(index)[2]
        count = product(taps_counted(i, p) for i, p in enumerate(spatial))
        divisor = lift(count.value if count.is_const else count, acc)
        return cast(total[index] / divisor, x.dtype)

    return compute(site.out[0].shape, element, dtype=x.dtype, name="avg_pool")


def _avg_reference(
    x,
    *,
    kernel,
    strides=None,
    padding=None,
    dilation=None,
    ceil_mode=False,
    count_include_pad=False,
    layout="NCHW",
    auto_pad="NOTSET",
):
    half = x.dtype.itemsize == 2 and x.dtype.kind not in "iu"
    values = x.astype(np.float32) if half else x
    shared = (kernel, strides, padding, dilation, ceil_mode, layout, auto_pad)
    windows, begins, ends, _, _, sizes = _numpy_pool(values, *shared, 0)
    axes = tuple(range(-len(kernel), 0))
    ones = np.ones((1, 1, *sizes), values.dtype)
    if count_include_pad:  # padding counts like data, what lies beyond it does not
        ones = np.ones((1, 1, *[s + b + e for s, b, e in zip(sizes, begins, ends)]), values.dtype)
        strides = strides or (1,) * len(kernel)
        counts = _numpy_pool(
            ones, kernel, strides, None, dilation, ceil_mode or any(ends), "NCHW", "NOTSET", 0
        )[0]
        counts = counts[
            (slice(None), slice(None), *[slice(0, p) for p in windows.shape[2 : 2 + len(kernel)]])
        ]
    else:
        shared = (kernel, strides, padding, dilation, ceil_mode, "NCHW", auto_pad)
        counts = _numpy_pool(ones, *shared, 0)[0]
    total, count = windows.sum(axis=axes, dtype=values.dtype), counts.sum(axis=axes, dtype=values.dtype)
    return _restore((total / count if values.dtype.kind == "f" else total // count).astype(x.dtype), layout)


register(
    Operator(
        "nn.avg_pool",
        ("x",),
        _pool_rule,
        _avg_reference,
        _avg_compute,
        attrs={**_POOL_ATTRS, "count_include_pad": False},
        doc="Mean of each window; padding counts in the divisor only with count_include_pad.",
    )
)

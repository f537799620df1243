"""Convolution and its transpose in any number of spatial dimensions (ONNX Conv-22, ConvTranspose-22)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.dim import Dim, as_dim, ceildiv, product
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, reduce, reduce_axis, var
from intarsia.kernel.expr import Binary, Buffer, Expr, Index, cast
from intarsia.kernel.library.conv import ConvShape, ConvTransposeShape
from intarsia.op.entry import Operator, Site, register
from intarsia.op.nn_window import (
    Layout,
    Window,
    explicit_padding,
    extent,
    guarded,
    inside,
    numpy_geometry,
    numpy_windows,
    pad_spatial,
    read_layout,
    read_padding,
    result_size,
    spatial_attr,
)

HALF = ("float16", "bfloat16")


def _accumulator(dtype: str) -> str:
    """Half-width floats are summed in float32."""
    return "float32" if dtype in HALF else dtype


def _check_operands(site: Site, layout: Layout) -> int:
    """Types and ranks agree; the number of groups."""
    x, w = site.tensor(0), site.tensor(1)
    if w.rank != x.rank:
        site.fail(f"the weight has {w.rank} dimensions and the data {x.rank}; they must be as many")
    if w.dtype != x.dtype or (site.has(2) and site.dtype(2) != x.dtype):
        site.fail(f"data ({x.dtype}), weight ({w.dtype}) and bias must have one element type")
    groups = int(site.attrs["groups"])
    if groups < 1:
        site.fail(f"groups must be positive, not {groups}")
    return groups


def _check_bias(site: Site, channels: Dim) -> None:
    if site.has(2):
        if site.rank(2) != 1:
            site.fail(f"the bias must have 1 dimension, not {site.rank(2)}")
        site.equal(site.shape(2)[0], channels, "bias length and output channels")


def _check_groups(site: Site, channels: Dim, groups: int, what: str) -> None:
    if groups > 1:
        site.equal(channels % groups, 0, f"{what} modulo {groups} groups")


def _add_bias(result: Buffer, buffers: Sequence[Buffer | None], layout: Layout, dtype: str) -> Buffer:
    """result plus bias per channel, in the result's type; no stage where nothing is to be done."""
    bias = buffers[2] if len(buffers) > 2 else None
    if bias is None and result.dtype == dtype:
        return result

    def element(*index: Dim) -> Expr:
        value: Expr = result[index]
        if bias is not None:
            value = value + cast(bias[index[layout.channel]], result.dtype)
        return cast(value, dtype)

    return compute(result.shape, element, dtype=dtype, name="bias")


# ---- nn.conv -----------------------------------------------------------------------------------------------
def _conv_window(site: Site, layout: Layout) -> Window:
    sizes, kernel = layout.parts(site.shape(0))[2], site.shape(1)[2:]
    strides, dilation = (
        spatial_attr(site, "strides", len(kernel)),
        spatial_attr(site, "dilation", len(kernel)),
    )
    return Window(kernel, strides, dilation, read_padding(site, sizes, kernel, strides, dilation))


def _conv_rule(site: Site) -> TensorType:
    layout = read_layout(site, site.rank(0))
    groups = _check_operands(site, layout)
    n, c, sizes = layout.parts(site.shape(0))
    oc, ic = site.shape(1)[:2]
    site.equal(c, ic * groups, "input channels of data and weight")
    _check_groups(site, oc, groups, "output channels")
    _check_bias(site, oc)
    window = _conv_window(site, layout)
    out = [result_size(site, size, window, i) for i, size in enumerate(sizes)]
    return TensorType(layout.arrange(n, oc, out), site.dtype(0))


def _conv_compute(site: Site, buffers: list) -> Buffer:
    x, w = buffers[0], buffers[1]
    layout, groups = read_layout(site, len(x.shape)), int(site.attrs["groups"])
    window = _conv_window(site, layout)
    shape = ConvShape(
        x, w, groups, window.kernel, window.strides, window.padding, window.dilation, layout.name
    )
    padded = pad_spatial(x, layout, window.padding)
    acc, per_group = _accumulator(x.dtype), w.shape[0] // groups
    channel, taps = reduce_axis(w.shape[1]), [reduce_axis(k) for k in window.kernel]

    def element(*index: Dim) -> Expr:
        n, o, spatial = layout.parts(index)
        c = (o // per_group) * w.shape[1] + var(channel) if groups > 1 else var(channel)
        places = [p * s + var(k) * d for p, s, k, d in zip(spatial, window.strides, taps, window.dilation)]
        a = padded[layout.arrange(n, c, places)]
        b = w[(o, var(channel), *map(var, taps))]
        wide = [t for t in taps if t.extent != 1]
        return reduce("sum", cast(a, acc) * cast(b, acc), channel, *wide)

    result = compute(site.out[0].shape, element, dtype=acc, name="conv", hint={"conv": shape})
    return _add_bias(result, buffers, layout, x.dtype)


def _conv_reference(
    x, w, b=None, *, strides=None, padding=None, dilation=None, groups=1, layout="NCHW", auto_pad="NOTSET"
):
    dtype = x.dtype
    acc = np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    x, w = (np.moveaxis(x, -1, 1) if layout == "NHWC" else x).astype(acc), w.astype(acc)
    kernel = w.shape[2:]
    strides, dilation, begins, ends = numpy_geometry(
        x.shape[2:], kernel, strides, padding, dilation, auto_pad
    )
    x = np.pad(x, [(0, 0), (0, 0), *zip(begins, ends)])
    windows = numpy_windows(x, kernel, strides, dilation)
    count, n, places = len(kernel), x.shape[0], windows.shape[2 : 2 + len(kernel)]
    patches = windows.reshape(n, groups, x.shape[1] // groups, *places, *kernel)
    order = (0, 1, 2, *range(3 + count, 3 + 2 * count), *range(3, 3 + count))  # … channel, kernel, places
    columns = patches.transpose(order).reshape(n, groups, -1, int(np.prod(places))) if patches.size else None
    oc = w.shape[0]
    if columns is None:
        y = np.zeros((n, oc, *places), acc)
    else:
        y = np.matmul(w.reshape(groups, oc // groups, -1), columns).reshape(n, oc, *places)
    if b is not None:
        y = y + b.astype(acc).reshape(-1, *[1] * count)
    y = y.astype(dtype)
    return np.ascontiguousarray(np.moveaxis(y, 1, -1)) if layout == "NHWC" else y


register(
    Operator(
        "nn.conv",
        ("x", "w", "b?"),
        _conv_rule,
        _conv_reference,
        _conv_compute,
        attrs={
            "strides": None,
            "padding": None,
            "dilation": None,
            "groups": 1,
            "layout": "NCHW",
            "auto_pad": "NOTSET",
        },
        doc="Convolution with w [output channels, input channels / groups, kernel…], plus a bias.",
    )
)


# ---- nn.conv_transpose -------------------------------------------------------------------------------------
def _transpose_window(site: Site) -> Window:
    kernel = site.shape(1)[2:]
    count = len(kernel)
    strides, dilation = spatial_attr(site, "strides", count), spatial_attr(site, "dilation", count)
    return Window(kernel, strides, dilation, explicit_padding(site, count))


def _transpose_rule(site: Site) -> TensorType:
    layout = read_layout(site, site.rank(0))
    groups = _check_operands(site, layout)
    n, c, sizes = layout.parts(site.shape(0))
    site.equal(c, site.shape(1)[0], "input channels of data and weight")
    _check_groups(site, c, groups, "input channels")
    oc = site.shape(1)[1] * groups
    _check_bias(site, oc)
    window = _transpose_window(site)
    extra = site.attrs["output_padding"] or (0,) * len(sizes)
    if len(extra) != len(sizes):
        site.fail(f"output_padding {extra} needs one entry for each of the {len(sizes)} spatial dimensions")
    out = []
    for i, size in enumerate(sizes):
        (begin, end), k = window.padding[i], extent(window.kernel[i], window.dilation[i])
        length = (size - 1) * window.strides[i] + as_dim(extra[i]) + k - begin - end
        site.require(length, ">=", 0, f"the size of spatial dimension {i} of the result")
        out.append(length)
    return TensorType(layout.arrange(n, oc, out), site.dtype(0))


def _transpose_compute(site: Site, buffers: list) -> Buffer:
    """One matrix product over input channels, for each input place and kernel element; a gather of overlaps.

    Along a dimension without dilation, output place p receives only the kernel elements k ≡ p + begin modulo
    the stride; so the gather visits just those: a single one where windows do not overlap (kernel <= stride).
    """
    x, w = buffers[0], buffers[1]
    layout, groups = read_layout(site, len(x.shape)), int(site.attrs["groups"])
    window, acc = _transpose_window(site), _accumulator(x.dtype)
    n, c, sizes = layout.parts(x.shape)
    in_group, out_group = c // groups, w.shape[1]
    channel, count, outputs = reduce_axis(in_group), len(sizes), out_group * groups

    # The products of one place stand side by side: (kernel…, output channel), or (output channel, kernel…)
    # with channels first. That is what a matrix product likes best on either side.
    order = (*window.kernel, outputs) if layout.last else (outputs, *window.kernel)
    width = product(order)

    def split(column: Dim) -> tuple[Dim, tuple[Dim, ...]]:
        parts = []
        for size in reversed(order):
            parts.append(column % size if len(parts) + 1 < len(order) else column)
            column = column // size
        parts.reverse()
        return (parts[-1], tuple(parts[:-1])) if layout.last else (parts[0], tuple(parts[1:]))

    def joined(o: Dim, taps: Sequence[Dim]) -> Dim:
        column = as_dim(0)
        for part, size in zip((*taps, o) if layout.last else (o, *taps), order):
            column = column * size + part
        return column

    def weight(k: Dim, column: Dim) -> Expr:
        o, taps = split(column)
        g = o // out_group if groups > 1 else as_dim(0)
        return cast(w[(g * in_group + k, o - g * out_group, *taps)], acc)

    if layout.last:
        columns = compute((in_group, width), weight, dtype=acc, name="columns")
    else:
        columns = compute((width, in_group), lambda j, k: weight(k, j), dtype=acc, name="columns")

    def multiplied(*index: Dim) -> Expr:
        i, j, places = layout.parts(index)
        g = split(j)[0] // out_group if groups > 1 else as_dim(0)
        a = cast(x[layout.arrange(i, g * in_group + var(channel), places)], acc)
        b = columns[var(channel), j] if layout.last else columns[j, var(channel)]
        return reduce("sum", a * b, channel)

    products = compute(layout.arrange(n, width, sizes), multiplied, dtype=acc, name="products")
    direct = [d == 1 for d in window.dilation]  # whether only every stride-th kernel element is visited
    visits = [
        reduce_axis(ceildiv(k, s) if d else k) for k, s, d in zip(window.kernel, window.strides, direct)
    ]
    out_sizes = layout.parts(site.out[0].shape)[2]

    def gather(*index: Dim) -> Expr:
        i, o, spatial = layout.parts(index)
        taps, places, tests, aligned = [], [], [], []
        for a in range(count):
            p, s, d, begin = spatial[a], window.strides[a], window.dilation[a], window.padding[a][0]
            visit = var(visits[a])
            if direct[a]:
                tap, place = (p + begin) % s + visit * s, (p + begin) // s - visit
                beyond = (out_sizes[a] - 1 + begin) // s - (sizes[a] - 1)
                tests.append((tap, window.kernel[a], False, window.kernel[a] % s != 0))
                high = not (beyond.is_const and beyond.value <= 0)
                tests.append((place, sizes[a], visits[a].extent != 1, high))
            else:
                tap, offset = visit, p + begin - visit * d
                place = offset // s
                aligned.append(Index(offset % s).equals(0))
                tests.append((place, sizes[a], True, True))
            taps.append(tap)
            places.append(place)
        cond = inside(tests)
        for test in aligned:
            cond = test if cond is None else Binary("and", cond, test)
        value = guarded(cond, products[layout.arrange(i, joined(o, taps), places)], 0)
        return reduce("sum", value, *(v for v in visits if v.extent != 1))

    info = ConvTransposeShape(
        x, w, groups, window.kernel, window.strides, window.padding, window.dilation, layout.name
    )
    hint: dict[str, object] = {"conv_transpose": info}
    result = compute(site.out[0].shape, gather, dtype=acc, name="conv_transpose", hint=hint)
    return _add_bias(result, buffers, layout, x.dtype)


def _transpose_reference(
    x, w, b=None, *, strides=None, padding=None, dilation=None, groups=1, output_padding=None, layout="NCHW"
):
    dtype = x.dtype
    acc = np.float32 if dtype.itemsize == 2 and dtype.kind not in "iu" else dtype
    x, w = (np.moveaxis(x, -1, 1) if layout == "NHWC" else x).astype(acc), w.astype(acc)
    kernel, count, n, sizes = w.shape[2:], w.ndim - 2, x.shape[0], x.shape[2:]
    strides, dilation, begins, ends = numpy_geometry(sizes, kernel, strides, padding, dilation, "NOTSET")
    extra = output_padding or [0] * count
    full = [
        (i - 1) * s + (k - 1) * d + 1 + e for i, s, k, d, e in zip(sizes, strides, kernel, dilation, extra)
    ]
    y = np.zeros((n, w.shape[1] * groups, *[max(0, f) for f in full]), acc)
    if min(sizes, default=1) > 0:
        grouped = x.reshape(n, groups, x.shape[1] // groups, *sizes)
        weight = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
        for tap in np.ndindex(*kernel):
            part = np.einsum("ngc...,gco->ngo...", grouped, weight[(slice(None),) * 3 + tap])
            where = [
                slice(t * d, t * d + (i - 1) * s + 1, s) for t, d, i, s in zip(tap, dilation, sizes, strides)
            ]
            y[(slice(None), slice(None), *where)] += part.reshape(n, y.shape[1], *sizes)
    y = y[(slice(None), slice(None), *[slice(p, f - q) for p, q, f in zip(begins, ends, full)])]
    if b is not None:
        y = y + b.astype(acc).reshape(-1, *[1] * count)
    y = y.astype(dtype)
    return np.ascontiguousarray(np.moveaxis(y, 1, -1) if layout == "NHWC" else y)


register(
    Operator(
        "nn.conv_transpose",
        ("x", "w", "b?"),
        _transpose_rule,
        _transpose_reference,
        _transpose_compute,
        attrs={
            "strides": None,
            "padding": None,
            "dilation": None,
            "groups": 1,
            "output_padding": None,
            "layout": "NCHW",
        },
        doc="Transposed convolution with w [input channels, output channels / groups, kernel…], plus a bias.",
    )
)

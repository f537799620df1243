"""Convolutions, pools and normalisations against ONNX's reference evaluator and NumPy."""

import numpy as np
import pytest
from stage_oracle import onnx_reference, run_operator

import intarsia.op.nn  # noqa: F401
from intarsia.dim import Symbol
from intarsia.ir.types import tensor
from intarsia.kernel.expr import Reduce
from intarsia.op import entry
from intarsia.support.errors import TypeCheckError

rng = np.random.default_rng(11)


def data(*shape, dtype="float32"):
    if "int" in dtype:
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def both_layouts(name, arrays, attrs, expect, *, spatial_symbols=False, **tolerance):
    """The call in channels-first and channels-last layout, once with static and once with symbolic sizes."""
    rank = arrays[0].ndim
    first = [(0, k) for k in (0, *range(2, rank))] if spatial_symbols else []
    run_operator(name, arrays, attrs, expect=expect, symbolic=first, **tolerance)
    x = np.ascontiguousarray(np.moveaxis(arrays[0], 1, -1))
    last = [(0, k) for k in range(rank - 1)] if spatial_symbols else []
    attrs = {**attrs, "layout": "NHWC"}
    moved = np.ascontiguousarray(np.moveaxis(expect, 1, -1))
    run_operator(name, [x, *arrays[1:]], attrs, expect=moved, symbolic=last, **tolerance)


# ---- convolution -------------------------------------------------------------------------------------------
def naive_conv(x, w, b, strides, begins, ends, dilation, groups):
    """The definition, element by element in float64."""
    spatial, kernel = x.shape[2:], w.shape[2:]
    out = [(n + p + q - (k - 1) * d - 1) // s + 1
           for n, p, q, k, d, s in zip(spatial, begins, ends, kernel, dilation, strides)]  # fmt: skip
    y = np.zeros((x.shape[0], w.shape[0], *out))
    per = w.shape[0] // groups
    for o in range(w.shape[0]):
        for place in np.ndindex(*out):
            for tap in np.ndindex(*kernel):
                at = [p * s - b0 + t * d for p, s, b0, t, d in zip(place, strides, begins, tap, dilation)]
                if all(0 <= a < n for a, n in zip(at, spatial)):
                    for c in range(w.shape[1]):
                        value = x[(slice(None), (o // per) * w.shape[1] + c, *at)].astype(np.float64)
                        y[(slice(None), o, *place)] += value * float(w[(o, c, *tap)])
    return y if b is None else y + b.astype(np.float64).reshape(-1, *[1] * len(kernel))


CONVS = [
    # x, w, strides, padding, dilation, groups
    ((2, 3, 7, 6), (4, 3, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 3, 8, 9), (2, 3, 3, 2), (2, 3), (0, 1, 2, 0), (1, 1), 1),
    ((1, 4, 9, 8), (6, 2, 3, 3), (1, 2), (2, 2, 2, 2), (2, 1), 2),
    ((2, 3, 5, 5), (6, 1, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 3),
    ((1, 5, 4, 4), (3, 5, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((1, 2, 1, 1), (3, 2, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1),
    ((1, 2, 3, 3), (1, 2, 5, 5), (4, 4), (2, 2, 2, 2), (1, 1), 1),
    ((0, 2, 4, 4), (3, 2, 3, 3), (1, 1), (0, 0, 0, 0), (1, 1), 1),
    ((2, 3, 11), (4, 3, 3), (2,), (2, 1), (2,), 1),
    ((1, 4, 5), (4, 1, 2), (1,), (0, 0), (1,), 4),
    ((1, 2, 4, 5, 3), (3, 2, 2, 3, 2), (1, 2, 1), (1, 0, 1, 0, 1, 0), (1, 1, 2), 1),
]


@pytest.mark.parametrize("case", CONVS, ids=lambda c: f"{c[0]}x{c[1]}g{c[5]}")
@pytest.mark.parametrize("symbols", [False, True], ids=["static", "symbolic"])
def test_conv_equals_its_definition(case, symbols):
    xs, ws, strides, padding, dilation, groups = case
    x, w, b = data(*xs), data(*ws), data(ws[0])
    half = len(padding) // 2
    expect = naive_conv(x, w, b, strides, padding[:half], padding[half:], dilation, groups)
    attrs = {"strides": strides, "padding": padding, "dilation": dilation, "groups": groups}
    both_layouts("nn.conv", [x, w, b], attrs, expect, spatial_symbols=symbols, atol=1e-5)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("size", [5, 6, 7])
def test_conv_auto_pad_equals_onnx(auto_pad, size):
    x, w = data(1, 2, size, size), data(3, 2, 3, 2)
    expect = onnx_reference("Conv", [x, w], auto_pad=auto_pad, strides=[2, 2])
    attrs = {"auto_pad": auto_pad, "strides": (2, 2)}
    both_layouts("nn.conv", [x, w], attrs, expect, spatial_symbols=True, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_conv_keeps_the_element_type(dtype):
    x, w = data(1, 2, 5, 5, dtype=dtype), data(3, 2, 3, 3, dtype=dtype)
    expect = naive_conv(x, w, None, (1, 1), (0, 0), (0, 0), (1, 1), 1).astype(dtype)
    (y,) = run_operator(
        "nn.conv", [x, w], expect=expect, rtol=1e-2 if dtype == "float16" else 1e-6, atol=1e-2
    )
    assert y.dtype.name == dtype


def test_conv_reference_is_fast_enough_for_resnet50():
    import time

    x, w = np.ones((1, 256, 56, 56), np.float32), np.ones((256, 256, 3, 3), np.float32)
    begin = time.perf_counter()
    y = entry.get("nn.conv").reference(x, w, padding=(1, 1, 1, 1))
    assert y[0, 0, 5, 5] == 256 * 9
    assert time.perf_counter() - begin < 5  # about 0.3 s on a quiet machine


def conv_site(x, w, **attrs):
    return entry.Site(entry.get("nn.conv"), [entry.Arg(tensor(x)), entry.Arg(tensor(w))], attrs)


def test_conv_sizes_are_symbolic():
    n, h, w = Symbol("n"), Symbol("h"), Symbol("w")
    site = conv_site((n, 3, h, w), (64, 3, 7, 7), strides=(2, 2), padding=(3, 3, 3, 3))
    out = site.op.rule(site)
    assert out.shape == (n, 64, (h + 1) // 2, (w + 1) // 2)
    assert site.checks == []


def test_conv_hint_names_the_operands_before_padding():
    from intarsia.kernel.compute import placeholder

    site = conv_site((1, 4, 8, 8), (6, 2, 3, 3), groups=2, padding=(1, 1, 1, 1))
    site.out = (site.op.rule(site),)
    x, w = placeholder("x", (1, 4, 8, 8), "float32"), placeholder("w", (6, 2, 3, 3), "float32")
    stage = site.op.compute(site, [x, w]).producer
    hint = stage.hint["conv"]
    assert hint.data is x and hint.weight is w and hint.groups == 2 and hint.padded and hint.layout == "NCHW"
    assert isinstance(stage.body, Reduce) and len(stage.body.axes) == 3


@pytest.mark.parametrize(
    "x, w, attrs, words",
    [
        ((1, 3, 8, 8), (4, 2, 3, 3), {}, "input channels"),
        ((1, 4, 8, 8), (3, 2, 3, 3), {"groups": 2}, "groups"),
        ((1, 3, 8, 8), (4, 3, 3), {}, "3 dimensions and the data 4"),
        ((1, 3, 2, 8), (4, 3, 4, 3), {}, "must fit"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"strides": (2,)}, "strides"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"padding": (1, 1)}, "padding"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"layout": "NCHW16c"}, "layout"),
        ((1, 3, 8, 8), (4, 3, 3, 3), {"auto_pad": "SAME"}, "auto_pad"),
    ],
)
def test_conv_misfits_are_refused(x, w, attrs, words):
    site = conv_site(x, w, **attrs)
    with pytest.raises(TypeCheckError, match=words):
        site.op.rule(site)


TRANSPOSED = [
    # x, w [IC, OC/groups, kernel], strides, padding, dilation, groups, output padding
    ((2, 3, 4, 3), (3, 2, 2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 1, (0, 0)),
    ((1, 3, 4, 3), (3, 2, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), 1, (1, 0)),
    ((1, 4, 3, 3), (4, 3, 3, 2), (1, 3), (0, 1, 1, 0), (1, 1), 2, (0, 2)),
    ((1, 2, 3, 3), (2, 2, 2, 3), (3, 2), (0, 0, 0, 0), (2, 2), 1, (1, 1)),
    ((1, 2, 3, 3), (2, 1, 1, 1), (2, 2), (0, 0, 0, 0), (1, 1), 1, (0, 0)),
    ((1, 2, 1, 1), (2, 3, 4, 4), (2, 2), (1, 1, 1, 1), (1, 1), 1, (0, 0)),
    ((1, 3, 5), (3, 1, 5), (2,), (2, 2), (1,), 3, (1,)),
    ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), (2, 1, 2), (0, 1, 0, 0, 0, 1), (1, 1, 1), 1, (0, 0, 1)),
    ((0, 2, 3, 3), (2, 2, 2, 2), (2, 2), (0, 0, 0, 0), (1, 1), 1, (0, 0)),
]


def naive_conv_transpose(x, w, b, strides, begins, ends, dilation, groups, extra):
    """Scatter: every input element adds its weighted kernel to the result."""
    kernel, sizes = w.shape[2:], x.shape[2:]
    out = [(n - 1) * s + (k - 1) * d + 1 + e - p - q
           for n, s, k, d, e, p, q in zip(sizes, strides, kernel, dilation, extra, begins, ends)]  # fmt: skip
    y = np.zeros((x.shape[0], w.shape[1] * groups, *out))
    per = x.shape[1] // groups
    for c in range(x.shape[1]):
        for place in np.ndindex(*sizes):
            for tap in np.ndindex(*kernel):
                at = [i * s + t * d - p for i, s, t, d, p in zip(place, strides, tap, dilation, begins)]
                if all(0 <= a < n for a, n in zip(at, out)):
                    for o in range(w.shape[1]):
                        value = x[(slice(None), c, *place)].astype(np.float64) * float(w[(c, o, *tap)])
                        y[(slice(None), (c // per) * w.shape[1] + o, *at)] += value
    return y if b is None else y + b.astype(np.float64).reshape(-1, *[1] * len(kernel))


@pytest.mark.parametrize("case", TRANSPOSED, ids=lambda c: f"{c[0]}x{c[1]}s{c[2]}")
@pytest.mark.parametrize("symbols", [False, True], ids=["static", "symbolic"])
def test_conv_transpose_equals_its_definition(case, symbols):
    xs, ws, strides, padding, dilation, groups, extra = case
    x, w, b = data(*xs), data(*ws), data(ws[1] * groups)
    half = len(padding) // 2
    expect = naive_conv_transpose(x, w, b, strides, padding[:half], padding[half:], dilation, groups, extra)
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "output_padding": extra,
    }
    both_layouts("nn.conv_transpose", [x, w, b], attrs, expect, spatial_symbols=symbols, atol=1e-5)


def test_conv_transpose_without_overlap_needs_no_sum_over_the_kernel():
    from intarsia.kernel.compute import placeholder

    x, w = placeholder("x", (1, 3, Symbol("h"), 5), "float32"), placeholder("w", (3, 2, 2, 2), "float32")
    op = entry.get("nn.conv_transpose")
    site = entry.Site(op, [entry.Arg(tensor(b.shape)) for b in (x, w)], {"strides": (2, 2)})
    site.out = (op.rule(site),)
    assert not isinstance(op.compute(site, [x, w]).producer.body, Reduce)


# ---- pools -------------------------------------------------------------------------------------------------
POOLS = [
    # x, kernel, strides, padding, dilation, ceil
    ((2, 3, 7, 6), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False),
    ((1, 2, 7, 6), (3, 2), (2, 2), (1, 0, 1, 0), (1, 1), True),
    ((1, 2, 6, 6), (2, 2), (3, 3), (0, 0, 0, 0), (1, 1), True),
    ((1, 2, 9, 8), (3, 3), (1, 2), (1, 1, 0, 2), (2, 2), False),
    ((1, 2, 9, 8), (3, 3), (2, 3), (0, 1, 2, 0), (2, 1), True),
    ((1, 2, 1, 1), (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), False),
    ((1, 1, 4, 4), (1, 1), (2, 2), (0, 0, 0, 0), (1, 1), False),
    ((0, 2, 4, 4), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False),
    ((2, 3, 10), (4,), (3,), (1, 2), (1,), True),
    ((1, 2, 4, 5, 6), (2, 3, 2), (2, 2, 2), (0, 1, 1, 1, 1, 0), (1, 1, 1), False),
]


def naive_pool(x, kernel, strides, begins, ends, dilation, ceil, kind):
    """Window by window; kind is max, mean (of the data inside) or padded (of data and padding)."""
    sizes, out = x.shape[2:], []
    for n, k, s, p, q, d in zip(sizes, kernel, strides, begins, ends, dilation):
        room = n + p + q - (k - 1) * d - 1
        count = (-(-room // s) if ceil else room // s) + 1
        out.append(count - 1 if ceil and (count - 1) * s >= n + p else count)
    y = np.zeros((*x.shape[:2], *out), np.float64)
    for place in np.ndindex(*out):
        values, counted = [], 0
        for tap in np.ndindex(*kernel):
            at = [i * s - p + t * d for i, s, p, t, d in zip(place, strides, begins, tap, dilation)]
            if all(0 <= a < n for a, n in zip(at, sizes)):
                values.append(x[(slice(None), slice(None), *at)].astype(np.float64))
            counted += all(-p <= a < n + q for a, n, p, q in zip(at, sizes, begins, ends))
        stack = np.stack(values)
        divisor = len(values) if kind == "mean" else counted
        y[(slice(None), slice(None), *place)] = stack.max(0) if kind == "max" else stack.sum(0) / divisor
    return y


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("kind", ["max", "mean", "padded"])
@pytest.mark.parametrize("symbols", [False, True], ids=["static", "symbolic"])
def test_pools_equal_their_definition(case, kind, symbols):
    xs, kernel, strides, padding, dilation, ceil = case
    x, half = data(*xs), len(padding) // 2
    expect = naive_pool(x, kernel, strides, padding[:half], padding[half:], dilation, ceil, kind)
    attrs = {
        "kernel": kernel,
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": ceil,
    }
    if kind != "max":
        attrs["count_include_pad"] = kind == "padded"
    name = "nn.max_pool" if kind == "max" else "nn.avg_pool"
    both_layouts(name, [x], attrs, expect, spatial_symbols=symbols)


@pytest.mark.parametrize(
    "auto_pad, begins, ends",
    [("SAME_UPPER", (1, 0), (1, 1)), ("SAME_LOWER", (1, 1), (1, 0)), ("VALID", (0, 0), (0, 0))],
)
@pytest.mark.parametrize("name, kind", [("nn.max_pool", "max"), ("nn.avg_pool", "mean")])
def test_pool_auto_pad_covers_every_element(auto_pad, begins, ends, name, kind):
    x = data(1, 2, 7, 6)
    expect = naive_pool(x, (3, 3), (2, 2), begins, ends, (1, 1), False, kind)
    both_layouts(
        name, [x], {"kernel": (3, 3), "strides": (2, 2), "auto_pad": auto_pad}, expect, spatial_symbols=True
    )


@pytest.mark.parametrize("case", POOLS, ids=str)
@pytest.mark.parametrize("column_major", [False, True])
def test_max_pool_indices_point_at_the_largest_elements(case, column_major):
    xs, kernel, strides, padding, dilation, ceil = case
    x, half = data(*xs), len(padding) // 2
    attrs = {
        "kernel": kernel,
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": ceil,
    }
    pooled = naive_pool(x, kernel, strides, padding[:half], padding[half:], dilation, ceil, "max")
    symbols = [(0, k) for k in (0, *range(2, x.ndim))]
    (places,) = run_operator(
        "nn.max_pool_indices", [x], {**attrs, "column_major": column_major}, symbolic=symbols
    )
    order = (0, 1, *range(x.ndim - 1, 1, -1)) if column_major else range(x.ndim)
    np.testing.assert_array_equal(x.transpose(order).reshape(-1)[places], pooled)
    last = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    (moved,) = run_operator(
        "nn.max_pool_indices", [last], {**attrs, "column_major": column_major, "layout": "NHWC"}
    )
    np.testing.assert_array_equal(np.moveaxis(moved, -1, 1), places)


def test_max_pool_of_infinities_and_nan():
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 3, 3], x[0, 0, 0, 0] = np.nan, np.inf
    (y,) = run_operator("nn.max_pool", [x], {"kernel": (2, 2), "strides": (2, 2)})
    np.testing.assert_array_equal(y[0, 0], [[np.inf, -np.inf], [-np.inf, np.nan]])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "float64", "float16"])
def test_max_pool_of_other_types(dtype):
    x = data(1, 2, 5, 5, dtype="int8").astype(dtype)
    expect = naive_pool(x, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), False, "max").astype(dtype)
    run_operator(
        "nn.max_pool", [x], {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}, expect=expect
    )


# ---- normalisations ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("shape, axis", [((2, 3, 4, 5), 1), ((2, 4, 3), -1), ((0, 3, 2), 1), ((5, 1), 1)])
def test_batch_norm(shape, axis):
    x, c = data(*shape), shape[axis]
    scale, bias, mean, var = data(c), data(c), data(c), np.abs(data(c)) + 0.1
    like = [1] * len(shape)
    like[axis] = c
    s, b, m, v = (a.astype(np.float64).reshape(like) for a in (scale, bias, mean, var))
    expect = (x - m) / (v + 1e-3) ** 0.5 * s + b
    run_operator("nn.batch_norm", [x, scale, bias, mean, var], {"axis": axis, "epsilon": 1e-3},
                 symbolic=((0, 0), (0, axis)), expect=expect, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize(
    "shape, axis", [((2, 3, 4), -1), ((2, 3, 4), 1), ((2, 3, 4), 0), ((5, 1), -1), ((0, 4), -1)]
)
@pytest.mark.parametrize("biased", [True, False])
def test_layer_norm_equals_onnx(shape, axis, biased):
    x, inner = data(*shape), shape[axis:]
    arrays = [x, data(*inner)] + ([data(*inner)] if biased else [])
    expect = x
    if x.size:
        expect = onnx_reference("LayerNormalization", arrays, axis=axis, epsilon=1e-3)
    run_operator(
        "nn.layer_norm", arrays, {"axis": axis, "epsilon": 1e-3}, symbolic=((0, 0),), expect=expect, atol=1e-5
    )


def test_layer_norm_scale_broadcasts():
    x, scale = data(2, 3, 4) + 5, data(1, 4)
    d = x - x.mean((1, 2), keepdims=True, dtype=np.float64)
    expect = d / np.sqrt((d**2).mean((1, 2), keepdims=True) + 1e-5) * scale
    run_operator("nn.layer_norm", [x, scale], {"axis": 1}, expect=expect, atol=1e-5)


@pytest.mark.parametrize("shape, axis", [((2, 3, 4), -1), ((2, 3, 4), 1), ((0, 4), -1)])
def test_rms_norm(shape, axis):
    x, scale = data(*shape), data(*shape[axis:])
    axes = tuple(range(axis % len(shape), len(shape)))
    expect = (
        x / np.sqrt(np.mean(x.astype(np.float64) ** 2, axes, keepdims=True) + 1e-3) * scale if x.size else x
    )
    run_operator(
        "nn.rms_norm", [x, scale], {"axis": axis, "epsilon": 1e-3}, symbolic=((0, 0),), expect=expect
    )


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 2, 7), (2, 4, 1, 1), (0, 2, 3)])
def test_instance_norm_equals_onnx(shape):
    x, scale, bias = data(*shape), data(shape[1]), data(shape[1])
    expect = onnx_reference("InstanceNormalization", [x, scale, bias], epsilon=1e-3) if x.size else x
    symbolic = [(0, k) for k in (0, *range(2, len(shape)))]
    run_operator(
        "nn.instance_norm", [x, scale, bias], {"epsilon": 1e-3}, symbolic=symbolic, expect=expect, atol=1e-5
    )


@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(groups):
    x, scale, bias = data(2, 6, 3, 4), data(6), data(6)
    y = np.empty(x.shape)
    for g in range(groups):
        part = x[:, g * 6 // groups : (g + 1) * 6 // groups].astype(np.float64)
        m, v = part.mean((1, 2, 3), keepdims=True), part.var((1, 2, 3), keepdims=True)
        y[:, g * 6 // groups : (g + 1) * 6 // groups] = (part - m) / np.sqrt(v + 1e-5)
    expect = y * scale[:, None, None] + bias[:, None, None]
    symbolic = ((0, 0), (0, 2), (0, 3))
    run_operator(
        "nn.group_norm", [x, scale, bias], {"groups": groups}, symbolic=symbolic, expect=expect, atol=1e-5
    )


@pytest.mark.parametrize(
    "shape, axis",
    [((3, 5), -1), ((3, 5), 0), ((2, 3, 4), 1), ((4,), 0), ((0, 3), 1), ((3, 0), 1), ((2, 1), 1)],
)
@pytest.mark.parametrize("name, op", [("nn.softmax", "Softmax"), ("nn.log_softmax", "LogSoftmax")])
def test_softmax_equals_onnx(shape, axis, name, op):
    x = data(*shape) * 10
    expect = onnx_reference(op, [x], axis=axis) if x.size else x
    run_operator(name, [x], {"axis": axis}, symbolic=((0, 0),), expect=expect, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_softmax_of_other_types(dtype):
    x = data(3, 6, dtype=dtype)
    e = np.exp(x.astype(np.float64))
    run_operator(
        "nn.softmax", [x], expect=e / e.sum(-1, keepdims=True), rtol=1e-2 if dtype == "float16" else 1e-12
    )


def test_softmax_of_infinities():
    inf = np.float32(np.inf)
    x = np.array([[-inf, 0, -inf], [-inf, -inf, -inf], [inf, 0, 0], [0, np.nan, 1]], np.float32)
    (y,) = run_operator("nn.softmax", [x])
    np.testing.assert_array_equal(y[0], [0, 1, 0])
    assert np.isnan(y[1:]).all()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9])
def test_lrn(size):
    x = data(2, 5, 3, 2)
    expect = np.empty(x.shape)
    for c in range(5):
        near = x[:, max(0, c - (size - 1) // 2) : c + size // 2 + 1].astype(np.float64)
        expect[:, c] = x[:, c] / (1.5 + 0.1 / size * (near**2).sum(1)) ** 0.6
    attrs = {"size": size, "alpha": 0.1, "beta": 0.6, "bias": 1.5}
    run_operator("nn.lrn", [x], attrs, symbolic=((0, 0), (0, 1)), expect=expect)


def test_softmax_keeps_large_values_apart():
    x = np.array([[1000.0, 999.0, -1000.0]], np.float32)
    (y,) = run_operator("nn.log_softmax", [x])
    np.testing.assert_allclose(y, [[-0.3132617, -1.3132617, -2000.3132]], rtol=1e-6)

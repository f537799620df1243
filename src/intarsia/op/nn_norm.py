"""Normalisations: batch, layer, RMS, instance, group, local response; softmax and log-softmax (ONNX)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from intarsia.dim import Dim, as_dim, product
from intarsia.dim.expr import DimLike
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, reduce, reduce_axis, var
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Unary, cast, lift
from intarsia.op.entry import REQUIRED, Operator, Site, register
from intarsia.op.nn_window import guarded, inside


def _accumulator(dtype: str) -> str:
    """Half-width floats are normalised in float32."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _floating(site: Site) -> None:
    if "float" not in site.dtype(0):
        site.fail(f"the data must be floating-point, not {site.dtype(0)}")


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if x.dtype.itemsize == 2 else x


def _optional(buffers: list, i: int) -> Buffer | None:
    return buffers[i] if i < len(buffers) else None


def _number(d: DimLike, dtype: str) -> Expr:
    d = as_dim(d)
    return lift(d.value if d.is_const else d, dtype)


# ---- statistics shared by layer, rms, instance and group norm ----------------------------------------------
Place = Callable[[Sequence[Dim], Sequence[Dim]], tuple[Dim, ...]]  # (row, place in the row) -> index into x


def _row_mean(
    x: Buffer,
    rows: Sequence[Dim],
    inner: Sequence[Dim],
    place: Place,
    term: Callable[[Expr, Sequence[Dim]], Expr],
    acc: str,
) -> Buffer:
    """mean over the inner dimensions of term(x, row), one number a row."""
    axes = [reduce_axis(d) for d in inner]

    def summed(*row: Dim) -> Expr:
        return reduce("sum", term(cast(x[place(row, [var(a) for a in axes])], acc), row), *axes)

    total = compute(rows, summed, dtype=acc, name="row_sum")
    count = _number(product(inner), acc)
    return compute(rows, lambda *row: total[row] / count, dtype=acc, name="row_mean")


def _centre_and_scale(
    x: Buffer,
    rows: Sequence[Dim],
    inner: Sequence[Dim],
    place: Place,
    epsilon: float,
    acc: str,
    *,
    centre: bool = True,
) -> tuple[Buffer | None, Buffer]:
    """Per row: the mean (None without centring) and 1 / sqrt(mean of squared deviations + epsilon)."""
    mean = _row_mean(x, rows, inner, place, lambda v, row: v, acc) if centre else None

    def squared(v: Expr, row: Sequence[Dim]) -> Expr:
        d = v if mean is None else v - mean[tuple(row)]
        return d * d

    variance = _row_mean(x, rows, inner, place, squared, acc)
    scale = compute(
        rows,
        lambda *row: Const(1.0, acc) / Unary("sqrt", variance[row] + epsilon),
        dtype=acc,
        name="inverse_deviation",
    )
    return mean, scale


# ---- nn.batch_norm -----------------------------------------------------------------------------------------
def _batch_rule(site: Site) -> TensorType:
    _floating(site)
    axis = site.axis(site.attrs["axis"], site.rank(0))
    for i, what in enumerate(("scale", "bias", "mean", "variance"), 1):
        if site.rank(i) != 1:
            site.fail(f"{what} must have 1 dimension, not {site.rank(i)}")
        site.equal(site.shape(0)[axis], site.shape(i)[0], f"channels of the data and length of {what}")
    return site.tensor(0)


def _batch_compute(site: Site, buffers: list) -> Buffer:
    """x * factor + shift; both are small stages of their own, folded when the statistics are constant."""
    x, scale, bias, mean, variance = buffers
    axis, epsilon, acc = (
        site.axis(site.attrs["axis"], len(x.shape)),
        site.attrs["epsilon"],
        _accumulator(x.dtype),
    )
    channels = (x.shape[axis],)

    def factor_of(c: Dim) -> Expr:
        return cast(scale[c], acc) / Unary("sqrt", cast(variance[c], acc) + epsilon)

    factor = compute(channels, factor_of, dtype=acc, name="factor")
    shift = compute(
        channels, lambda c: cast(bias[c], acc) - cast(mean[c], acc) * factor[c], dtype=acc, name="shift"
    )

    def element(*i: Dim) -> Expr:
        return cast(cast(x[i], acc) * factor[i[axis]] + shift[i[axis]], x.dtype)

    return compute(x.shape, element, dtype=x.dtype, name="batch_norm")


def _batch_reference(x, scale, bias, mean, var, *, epsilon=1e-5, axis=1):  # noqa: A002
    shape = [1] * x.ndim
    shape[axis] = -1
    wide = _wide(x)
    s, b, m, v = (a.astype(wide.dtype).reshape(shape) for a in (scale, bias, mean, var))
    return ((wide - m) / np.sqrt(v + wide.dtype.type(epsilon)) * s + b).astype(x.dtype)


register(
    Operator(
        "nn.batch_norm",
        ("x", "scale", "bias", "mean", "var"),
        _batch_rule,
        _batch_reference,
        _batch_compute,
        attrs={"epsilon": 1e-5, "axis": 1},
        doc="(x - mean) / sqrt(var + epsilon) * scale + bias, per index of the axis, with given statistics.",
    )
)


# ---- nn.layer_norm, nn.rms_norm ----------------------------------------------------------------------------
def _layer_rule(site: Site) -> TensorType:
    _floating(site)
    shape = site.shape(0)
    axis = site.axis(site.attrs["axis"], len(shape))
    for i, what in ((1, "scale"), (2, "bias")):
        if not site.has(i):
            continue
        own = site.shape(i)
        if len(own) > len(shape):
            site.fail(f"{what} has {len(own)} dimensions, the data only {len(shape)}")
        for k, d in enumerate(reversed(own), 1):
            if d != 1:
                site.equal(shape[-k], d, f"dimension {-k} of the data and of {what}")
    if axis == len(shape):
        site.fail("there is no dimension to normalise over")
    return site.tensor(0)


def _aligned(buffer: Buffer, index: Sequence[Dim]) -> Expr:
    """The element of a tensor that broadcasts to the index's dimensions (NumPy rule)."""
    used = index[len(index) - len(buffer.shape) :]
    return buffer[tuple(as_dim(0) if d == 1 else i for i, d in zip(used, buffer.shape))]


def _layer(site: Site, buffers: list, centre: bool) -> Buffer:
    x, scale, bias = buffers[0], buffers[1], _optional(buffers, 2)
    axis, acc = site.axis(site.attrs["axis"], len(x.shape)), _accumulator(x.dtype)
    rows, inner = x.shape[:axis], x.shape[axis:]
    mean, inverse = _centre_and_scale(
        x, rows, inner, lambda row, i: (*row, *i), site.attrs["epsilon"], acc, centre=centre
    )

    def element(*i: Dim) -> Expr:
        row, value = i[:axis], cast(x[i], acc)
        value = (value if mean is None else value - mean[row]) * inverse[row]
        value = value * cast(_aligned(scale, i), acc)
        return cast(value if bias is None else value + cast(_aligned(bias, i), acc), x.dtype)

    return compute(x.shape, element, dtype=x.dtype, name="layer_norm" if centre else "rms_norm")


def _layer_reference(x, scale, bias=None, *, axis=-1, epsilon=1e-5):
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = _wide(x)
    if not x.size:
        return x.copy()
    d = wide - wide.mean(axis=axes, keepdims=True)
    y = d / np.sqrt(np.mean(d * d, axis=axes, keepdims=True) + wide.dtype.type(epsilon))
    y = y * scale.astype(wide.dtype)
    return (y if bias is None else y + bias.astype(wide.dtype)).astype(x.dtype)


register(
    Operator(
        "nn.layer_norm",
        ("x", "scale", "bias?"),
        _layer_rule,
        _layer_reference,
        lambda site, buffers: _layer(site, buffers, True),
        attrs={"axis": -1, "epsilon": 1e-5},
        doc="Zero mean and unit variance over the dimensions from axis on, then scale and bias (ONNX).",
    )
)


def _rms_reference(x, scale, *, axis=-1, epsilon=1e-5):
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = _wide(x)
    if not x.size:
        return x.copy()
    y = wide / np.sqrt(np.mean(np.square(wide), axis=axes, keepdims=True) + wide.dtype.type(epsilon))
    return (y * scale.astype(wide.dtype)).astype(x.dtype)


register(
    Operator(
        "nn.rms_norm",
        ("x", "scale"),
        _layer_rule,
        _rms_reference,
        lambda site, buffers: _layer(site, buffers, False),
        attrs={"axis": -1, "epsilon": 1e-5},
        doc="x / sqrt(mean of squares over the dimensions from axis on + epsilon) * scale (ONNX).",
    )
)


# ---- nn.instance_norm, nn.group_norm -----------------------------------------------------------------------
def _channel_rule(site: Site) -> TensorType:
    _floating(site)
    if site.rank(0) < 2:
        site.fail("the data needs a batch and a channel dimension")
    for i, what in ((1, "scale"), (2, "bias")):
        if site.rank(i) != 1:
            site.fail(f"{what} must have 1 dimension, not {site.rank(i)}")
        site.equal(site.shape(0)[1], site.shape(i)[0], f"channels of the data and length of {what}")
    groups = site.attrs.get("groups", 1)
    if groups < 1:
        site.fail(f"groups must be positive, not {groups}")
    if groups > 1:
        site.equal(site.shape(0)[1] % groups, 0, f"channels modulo {groups} groups")
    return site.tensor(0)


def _grouped(site: Site, buffers: list, groups: Dim, name: str) -> Buffer:
    """Normalise over the channels of a group and all spatial dimensions."""
    x, scale, bias = buffers
    acc = _accumulator(x.dtype)
    n, c, *spatial = x.shape
    size = as_dim(1) if groups == c else c // groups
    mean, inverse = _centre_and_scale(
        x,
        (n, groups),
        (size, *spatial),
        lambda row, i: (row[0], row[1] * size + i[0], *i[1:]),
        site.attrs["epsilon"],
        acc,
    )

    def element(*i: Dim) -> Expr:
        row = (i[0], i[1] // size)
        assert mean is not None
        value = (cast(x[i], acc) - mean[row]) * inverse[row]
        return cast(value * cast(scale[i[1]], acc) + cast(bias[i[1]], acc), x.dtype)

    return compute(x.shape, element, dtype=x.dtype, name=name)


def _group_reference(x, scale, bias, *, groups, epsilon=1e-5):
    if not x.size:
        return x.copy()
    wide, channels = _wide(x), (1, -1, *[1] * (x.ndim - 2))
    rows = wide.reshape(x.shape[0], groups, -1)
    d = rows - rows.mean(axis=-1, keepdims=True)
    y = d / np.sqrt(np.mean(d * d, axis=-1, keepdims=True) + wide.dtype.type(epsilon))
    s, b = (a.astype(wide.dtype).reshape(channels) for a in (scale, bias))
    return (y.reshape(x.shape) * s + b).astype(x.dtype)


register(
    Operator(
        "nn.instance_norm",
        ("x", "scale", "bias"),
        _channel_rule,
        lambda x, scale, bias, *, epsilon=1e-5: _group_reference(
            x, scale, bias, groups=x.shape[1], epsilon=epsilon
        ),
        lambda site, buffers: _grouped(site, buffers, site.shape(0)[1], "instance_norm"),
        attrs={"epsilon": 1e-5},
        doc="Zero mean and unit variance over a channel's spatial dimensions, then scale and bias (ONNX).",
    )
)
register(
    Operator(
        "nn.group_norm",
        ("x", "scale", "bias"),
        _channel_rule,
        _group_reference,
        lambda site, buffers: _grouped(site, buffers, as_dim(site.attrs["groups"]), "group_norm"),
        attrs={"groups": REQUIRED, "epsilon": 1e-5},
        doc="Zero mean and unit variance over a group of channels, then scale and bias per channel (ONNX).",
    )
)


# ---- nn.softmax, nn.log_softmax ----------------------------------------------------------------------------
def _softmax_rule(site: Site) -> TensorType:
    _floating(site)
    if site.rank(0) == 0:
        site.fail("a tensor of rank 0 has no axis")
    site.axis(site.attrs["axis"], site.rank(0))
    return site.tensor(0)


def _softmax(site: Site, buffers: list, logarithm: bool) -> Buffer:
    """Stages: a row's largest element, exp(x - largest), their sum, the quotient (or difference of logs)."""
    x = buffers[0]
    axis, acc = site.axis(site.attrs["axis"], len(x.shape)), _accumulator(x.dtype)
    rows = x.shape[:axis] + x.shape[axis + 1 :]

    def put(row: Sequence[Dim], k: Dim) -> tuple[Dim, ...]:
        return (*row[:axis], k, *row[axis:])

    def row_of(index: Sequence[Dim]) -> tuple[Dim, ...]:
        return tuple(index[:axis]) + tuple(index[axis + 1 :])

    def largest(*row: Dim) -> Expr:
        k = reduce_axis(x.shape[axis])
        return reduce("max", cast(x[put(row, var(k))], acc), k)

    top = compute(rows, largest, dtype=acc, name="row_max")

    def power(*i: Dim) -> Expr:
        return Unary("exp", cast(x[i], acc) - top[row_of(i)])

    powers = compute(x.shape, power, dtype=acc, name="exp")

    def summed(*row: Dim) -> Expr:
        k = reduce_axis(x.shape[axis])
        return reduce("sum", powers[put(row, var(k))], k)

    total = compute(rows, summed, dtype=acc, name="row_sum")
    if not logarithm:
        return compute(
            x.shape, lambda *i: cast(powers[i] / total[row_of(i)], x.dtype), dtype=x.dtype, name="softmax"
        )
    logs = compute(rows, lambda *row: Unary("log", total[row]), dtype=acc, name="log_sum")

    def difference(*i: Dim) -> Expr:
        return cast(cast(x[i], acc) - top[row_of(i)] - logs[row_of(i)], x.dtype)

    return compute(x.shape, difference, dtype=x.dtype, name="log_softmax")


def _softmax_reference(x, *, axis=-1):
    if not x.size:
        return x.copy()
    wide = _wide(x)
    with np.errstate(invalid="ignore"):
        e = np.exp(wide - wide.max(axis=axis, keepdims=True))
        return (e / e.sum(axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax_reference(x, *, axis=-1):
    if not x.size:
        return x.copy()
    wide = _wide(x)
    with np.errstate(invalid="ignore"):
        d = wide - wide.max(axis=axis, keepdims=True)
        return (d - np.log(np.exp(d).sum(axis=axis, keepdims=True))).astype(x.dtype)


register(
    Operator(
        "nn.softmax",
        ("x",),
        _softmax_rule,
        _softmax_reference,
        lambda site, buffers: _softmax(site, buffers, False),
        attrs={"axis": -1},
        doc="exp(x) / sum of exp(x) along the axis; a row that is all minus infinity gives NaN.",
    )
)
register(
    Operator(
        "nn.log_softmax",
        ("x",),
        _softmax_rule,
        _log_softmax_reference,
        lambda site, buffers: _softmax(site, buffers, True),
        attrs={"axis": -1},
        doc="The logarithm of softmax, without leaving the range of floats.",
    )
)


# ---- nn.lrn ------------------------------------------------------------------------------------------------
def _lrn_rule(site: Site) -> TensorType:
    _floating(site)
    if site.rank(0) < 2:
        site.fail("the data needs a batch and a channel dimension")
    if site.attrs["size"] < 1:
        site.fail(f"size must be positive, not {site.attrs['size']}")
    return site.tensor(0)


def _lrn_compute(site: Site, buffers: list) -> Buffer:
    x, size = buffers[0], site.attrs["size"]
    acc, before = _accumulator(x.dtype), (size - 1) // 2
    k = reduce_axis(size)

    def squares(*i: Dim) -> Expr:
        c = i[1] + var(k) - before
        v = cast(x[(i[0], c, *i[2:])], acc)
        return reduce("sum", guarded(inside([(c, x.shape[1], size > 1, size > 1)]), v * v, 0), k)

    total = compute(x.shape, squares, dtype=acc, name="square_sum")
    alpha, beta, bias = site.attrs["alpha"] / size, site.attrs["beta"], site.attrs["bias"]

    def element(*i: Dim) -> Expr:
        base = total[i] * alpha + bias
        return cast(cast(x[i], acc) / Binary("pow", base, Const(beta, acc)), x.dtype)

    return compute(x.shape, element, dtype=x.dtype, name="lrn")


def _lrn_reference(x, *, size, alpha=1e-4, beta=0.75, bias=1.0):
    wide = _wide(x)
    before = (size - 1) // 2
    padded = np.pad(np.square(wide), [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)])
    total = sum(padded[:, i : i + x.shape[1]] for i in range(size))
    return (wide / (bias + alpha / size * total) ** beta).astype(x.dtype)


register(
    Operator(
        "nn.lrn",
        ("x",),
        _lrn_rule,
        _lrn_reference,
        _lrn_compute,
        attrs={"size": REQUIRED, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
        doc="Local response normalisation over `size` neighbouring channels (ONNX LRN-13).",
    )
)

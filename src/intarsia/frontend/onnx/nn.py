"""Matrix products, convolutions, pools and normalisations."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.ir.expr import Expr

_SAME = ("SAME_UPPER", "SAME_LOWER")


# ---- matrix products ---------------------------------------------------------------------------------------
@converts("MatMul", needs=("matmul",))
def _matmul(b: Builder, node: Node) -> Expr:
    return b.op("matmul", node.arg(0), node.arg(1))


@converts("Gemm", needs=("matmul", "add", "multiply"))
def _gemm(b: Builder, node: Node) -> Expr:
    result: Expr = b.op(
        "matmul", node.arg(0), node.arg(1), transpose_a=node.flag("transA"), transpose_b=node.flag("transB")
    )
    alpha, beta, c = node.float("alpha", 1.0), node.float("beta", 1.0), node.maybe(2)
    if alpha != 1:
        result = b.op("multiply", result, b.like(alpha, result))
    if c is None:
        return result
    return b.op("add", result, c if beta == 1 else b.op("multiply", c, b.like(beta, c)))


# ---- convolutions ------------------------------------------------------------------------------------------
@converts("Conv", needs=("nn.conv",))
def _conv(b: Builder, node: Node) -> Expr:
    auto = node.string("auto_pad", "NOTSET")
    return b.op(
        "nn.conv",
        node.arg(0),
        node.arg(1),
        node.maybe(2),
        strides=node.ints("strides", None),
        padding=node.ints("pads", None) if auto == "NOTSET" else None,
        dilation=node.ints("dilations", None),
        groups=node.int("group", 1),
        auto_pad=auto,
    )


@converts("ConvTranspose", needs=("nn.conv_transpose",))
def _conv_transpose(b: Builder, node: Node) -> Expr:
    x, w = node.arg(0), node.arg(1)
    count = b.rank(x) - 2
    strides, dilation = (
        node.ints("strides", None) or (1,) * count,
        node.ints("dilations", None) or (1,) * count,
    )
    extra = node.ints("output_padding", None) or (0,) * count
    padding = node.ints("pads", None)
    if node.has("output_shape") or node.string("auto_pad", "NOTSET") in _SAME:
        padding, extra = _transpose_padding(b, node, strides, dilation, extra)
    elif node.string("auto_pad", "NOTSET") == "VALID":
        padding = None
    return b.op(
        "nn.conv_transpose",
        x,
        w,
        node.maybe(2),
        strides=strides,
        padding=padding,
        dilation=dilation,
        groups=node.int("group", 1),
        output_padding=extra,
    )


def _transpose_padding(
    b: Builder, node: Node, strides: Sequence[int], dilation: Sequence[int], extra: Sequence[int]
):
    """(padding, output_padding) for the wanted output shape (ONNX ConvTranspose: total_padding)."""
    sizes, kernel = b.type(node.arg(0)).shape[2:], b.type(node.arg(1)).shape[2:]
    wanted = node.ints("output_shape", None)
    upper = node.string("auto_pad", "NOTSET") == "SAME_UPPER"
    begins, ends, more = [], [], list(extra)
    for i, (size, k, s, d, e) in enumerate(zip(sizes, kernel, strides, dilation, extra)):
        total = (
            s * (size - 1)
            + e
            + (k - 1) * d
            + 1
            - (wanted[len(wanted) - len(sizes) + i] if wanted else size * s)
        )
        if not total.is_const:
            raise node.unsupported(
                "an output_shape needs input sizes that are known when the model is compiled"
            )
        most = max(total.value, 0)
        more[i] += max(-total.value, 0)
        small, large = most // 2, most - most // 2
        begins.append(small if upper else large)
        ends.append(large if upper else small)
    return (*begins, *ends), tuple(more)


# ---- pools -------------------------------------------------------------------------------------------------
def _pool(b: Builder, node: Node, relay: str, x: Expr, **more: bool) -> Expr:
    auto = node.string("auto_pad", "NOTSET")
    return b.op(
        relay,
        x,
        kernel=node.ints("kernel_shape"),
        strides=node.ints("strides", None),
        padding=node.ints("pads", None) if auto == "NOTSET" else None,
        dilation=node.ints("dilations", None),
        ceil_mode=node.flag("ceil_mode"),
        auto_pad=auto,
        **more,
    )


def _max_pool_limit(node: Node) -> str | None:
    return "its second result, the indices" if node.wants(1) else None


@converts("MaxPool", needs=("nn.max_pool",), limit=_max_pool_limit)
def _max_pool(b: Builder, node: Node) -> Expr:
    x = node.arg(0)
    if b.is_float(x):
        return _pool(b, node, "nn.max_pool", x)
    return b.cast(_pool(b, node, "nn.max_pool", b.cast(x, "float32")), b.dtype(x))  # (u)int8 only: exact


@converts("AveragePool", needs=("nn.avg_pool",))
def _average_pool(b: Builder, node: Node) -> Expr:
    return _pool(b, node, "nn.avg_pool", node.arg(0), count_include_pad=node.flag("count_include_pad"))


@converts("LpPool", needs=("nn.avg_pool", "power", "abs"))
def _lp_pool(b: Builder, node: Node) -> Expr:
    """(sum of |x|^p)^(1/p): the sum is the mean with padding counted, times the window's size."""
    x, p = node.arg(0), node.int("p", 2) if node.version >= 2 else int(node.float("p", 2.0))
    mean = _pool(b, node, "nn.avg_pool", b.op("power", b.op("abs", x), b.like(p, x)), count_include_pad=True)
    total = b.op("multiply", mean, b.like(prod(node.ints("kernel_shape")), x))
    return b.op("power", total, b.like(1 / p, x))


def spatial(b: Builder, x: Expr) -> Expr:
    """The axes after batch and channel."""
    return b.ints(range(2, b.rank(x)))


@converts("GlobalAveragePool", needs=("reduce.mean",))
def _global_average(b: Builder, node: Node) -> Expr:
    return b.op("reduce.mean", node.arg(0), spatial(b, node.arg(0)), keepdims=True)


@converts("GlobalMaxPool", needs=("reduce.max",))
def _global_max(b: Builder, node: Node) -> Expr:
    return b.op("reduce.max", node.arg(0), spatial(b, node.arg(0)), keepdims=True)


@converts("GlobalLpPool", needs=("reduce.sum", "power", "abs"))
def _global_lp(b: Builder, node: Node) -> Expr:
    x, p = node.arg(0), node.int("p", 2) if node.version >= 2 else int(node.float("p", 2.0))
    total = b.op("reduce.sum", b.op("power", b.op("abs", x), b.like(p, x)), spatial(b, x), keepdims=True)
    return b.op("power", total, b.like(1 / p, x))


# ---- normalisations ----------------------------------------------------------------------------------------
@converts("BatchNormalization", needs=("nn.batch_norm",))
def _batch_norm(b: Builder, node: Node) -> Expr | tuple[Expr | None, ...]:
    x, scale, bias, mean, var = (node.arg(i) for i in range(5))
    epsilon = node.float("epsilon", 1e-5)
    if not (node.flag("training_mode") if node.version >= 14 else _trains(node)):
        return b.op("nn.batch_norm", x, scale, bias, mean, var, epsilon=epsilon)
    axes = b.ints([a for a in range(b.rank(x)) if a != 1])
    keep = node.float("momentum", 0.9)
    now = b.op("reduce.mean", x, axes, keepdims=False)
    centre = b.op("subtract", x, b.op("reduce.mean", x, axes, keepdims=True))
    spread = b.op("reduce.mean", b.op("multiply", centre, centre), axes, keepdims=False)

    def running(old: Expr, new: Expr) -> Expr:
        return b.op(
            "add",
            b.op("multiply", old, b.like(keep, old)),
            b.cast(b.op("multiply", new, b.like(1 - keep, new)), b.dtype(old)),
        )

    y = b.op(
        "nn.batch_norm",
        x,
        scale,
        bias,
        b.cast(now, b.dtype(mean)),
        b.cast(spread, b.dtype(var)),
        epsilon=epsilon,
    )
    return y, running(mean, now), running(var, spread)


def _trains(node: Node) -> bool:
    return node.version < 7 and not node.flag("is_test") and node.wants(1)


@converts("InstanceNormalization", needs=("nn.instance_norm",))
def _instance_norm(b: Builder, node: Node) -> Expr:
    return b.op(
        "nn.instance_norm", node.arg(0), node.arg(1), node.arg(2), epsilon=node.float("epsilon", 1e-5)
    )


def _group_norm_limit(node: Node) -> str | None:
    return None if node.int("num_groups", 1) > 0 else "its num_groups"


@converts("GroupNormalization", needs=("nn.group_norm",), limit=_group_norm_limit)
def _group_norm(b: Builder, node: Node) -> Expr:
    x, groups, epsilon = node.arg(0), node.int("num_groups"), node.float("epsilon", 1e-5)
    if node.version < 21:  # scale and bias are per group
        return b.op(
            "nn.group_norm",
            x,
            _per_channel(b, x, node.arg(1), groups),
            _per_channel(b, x, node.arg(2), groups),
            groups=groups,
            epsilon=epsilon,
        )
    return b.op("nn.group_norm", x, node.arg(1), node.arg(2), groups=groups, epsilon=epsilon)


def _per_channel(b: Builder, x: Expr, per_group: Expr, groups: int) -> Expr:
    channels = b.op("shape_of", x, start=1, end=2)
    each = b.op("divide", channels, b.ints([groups]))
    wide = b.op(
        "expand",
        b.op("expand_dims", per_group, axes=(1,)),
        b.op("concatenate", b.ints([groups]), each, axis=0),
    )
    return b.op("reshape", wide, channels)


@converts("LayerNormalization", needs=("nn.layer_norm",))
def _layer_norm(b: Builder, node: Node) -> tuple[Expr | None, ...]:
    x, axis, epsilon = node.arg(0), node.int("axis", -1), node.float("epsilon", 1e-5)
    y = b.op("nn.layer_norm", x, node.arg(1), node.maybe(2), axis=axis, epsilon=epsilon)
    if not (node.wants(1) or node.wants(2)):
        return (y,)
    wide = b.cast(x, "float32") if b.dtype(x) in ("float16", "bfloat16") else x
    axes = b.ints(range(b.axis(axis, x), b.rank(x)))
    mean = b.op("reduce.mean", wide, axes, keepdims=True)
    centre = b.op("subtract", wide, mean)
    spread = b.op("reduce.mean", b.op("multiply", centre, centre), axes, keepdims=True)
    return y, mean, b.op("rsqrt", b.op("add", spread, b.like(epsilon, spread)))


@converts("RMSNormalization", needs=("nn.rms_norm",))
def _rms_norm(b: Builder, node: Node) -> Expr:
    return b.op(
        "nn.rms_norm",
        node.arg(0),
        node.arg(1),
        axis=node.int("axis", -1),
        epsilon=node.float("epsilon", 1e-5),
    )


@converts("LRN", needs=("nn.lrn",))
def _lrn(b: Builder, node: Node) -> Expr:
    alpha, beta, bias = node.float("alpha", 1e-4), node.float("beta", 0.75), node.float("bias", 1.0)
    return b.op("nn.lrn", node.arg(0), size=node.int("size"), alpha=alpha, beta=beta, bias=bias)

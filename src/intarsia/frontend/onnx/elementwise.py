"""Operators that act on each element, casts, and activations."""

from __future__ import annotations

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.frontend.onnx.tensors import DTYPES, dtype_name, dtype_words
from intarsia.ir.expr import Expr

_UNARY = {
    "Neg": "negative", "Abs": "abs", "Sign": "sign", "Exp": "exp", "Log": "log", "Sqrt": "sqrt",
    "Reciprocal": "reciprocal",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Sigmoid": "sigmoid", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Not": "logical_not",
    "BitwiseNot": "bitwise_not", "IsNaN": "isnan", "Relu": "nn.relu", "Softplus": "nn.softplus",
    "Softsign": "nn.softsign", "Mish": "nn.mish", "HardSwish": "nn.hard_swish",
}  # fmt: skip
_BINARY = {
    "Add": "add", "Sub": "subtract", "Mul": "multiply", "Div": "divide", "Equal": "equal", "Less": "less",
    "LessOrEqual": "less_equal", "Greater": "greater", "GreaterOrEqual": "greater_equal",
    "And": "logical_and",
    "Or": "logical_or", "Xor": "logical_xor", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}  # fmt: skip
_BOOL_RESULT = ("equal", "less", "less_equal", "greater", "greater_equal")
_ALPHA = {
    "LeakyRelu": ("nn.leaky_relu", 0.01),
    "Elu": ("nn.elu", 1.0),
    "ThresholdedRelu": ("nn.thresholded_relu", 1.0),
    "Celu": ("nn.celu", 1.0),
}


def _enter_unary(op: str, relay: str) -> None:
    @converts(op, needs=(relay,))
    def convert(b: Builder, node: Node) -> Expr:
        x = node.arg(0)
        if (
            relay in ("negative", "abs", "sign")
            and not b.is_float(x)
            or b.is_float(x)
            or not _float_only(relay)
        ):
            return b.op(relay, x)
        return b.cast(b.op(relay, b.cast(x, "float32")), b.dtype(x))


def _float_only(relay: str) -> bool:
    return relay not in ("logical_not", "bitwise_not", "nn.relu")


def _enter_binary(op: str, relay: str) -> None:
    @converts(op, needs=(relay,))
    def convert(b: Builder, node: Node) -> Expr:
        x, y = node.arg(0), aligned(b, node, node.arg(0), node.arg(1))
        if relay == "equal" or b.dtype(x) != "bool" or relay.startswith("logical_"):
            return b.op(relay, x, y)
        return b.op(relay, b.cast(x, "int32"), b.cast(y, "int32"))


def aligned(b: Builder, node: Node, x: Expr, y: Expr) -> Expr:
    """The second operand; before operator set 7 attributes say where in x it is aligned."""
    if node.version >= 7 or not node.flag("broadcast"):
        return y
    axis = node.int("axis", None)
    if axis is None:
        return y
    trailing = b.rank(x) - b.axis(axis, x) - b.rank(y)
    return b.op("expand_dims", y, axes=tuple(range(b.rank(y), b.rank(y) + trailing))) if trailing > 0 else y


for _op, _relay in _UNARY.items():
    _enter_unary(_op, _relay)
for _op, _relay in _BINARY.items():
    _enter_binary(_op, _relay)


@converts("Identity", "Dropout", needs=("copy",), limit=lambda n: _dropout_limit(n))
def _identity(b: Builder, node: Node) -> Expr | tuple[Expr, ...]:
    x = node.arg(0)
    if not node.wants(1):
        return x
    mask = (
        b.op("full", b.shape(x), b.const(True, "bool"))
        if node.version >= 10
        else b.op("full", b.shape(x), b.like(1, x))
    )
    return x, mask


def _dropout_limit(node: Node) -> str | None:
    """Dropout drops nothing in inference; the optional input training_mode asks for more."""
    if node.op == "Dropout" and len(node.proto.input) > 2 and node.proto.input[2]:
        return "training mode"
    return None


@converts("Pow", needs=("power",))
def _pow(b: Builder, node: Node) -> Expr:
    return b.op("power", node.arg(0), aligned(b, node, node.arg(0), node.arg(1)))


@converts("Mod", needs=("mod", "fmod"))
def _mod(b: Builder, node: Node) -> Expr:
    return b.op("fmod" if node.flag("fmod") else "mod", node.arg(0), node.arg(1))


@converts("BitShift", needs=("left_shift", "right_shift"))
def _shift(b: Builder, node: Node) -> Expr:
    return b.op(
        "left_shift" if node.string("direction") == "LEFT" else "right_shift", node.arg(0), node.arg(1)
    )


@converts("PRelu", needs=("nn.prelu",))
def _prelu(b: Builder, node: Node) -> Expr:
    x, slope = node.arg(0), node.arg(1)
    if node.version < 7 and b.rank(slope) == 1 and b.rank(x) > 2:  # one slope a channel
        slope = b.op("expand_dims", slope, axes=tuple(range(1, b.rank(x) - 1)))
    return b.op("nn.prelu", x, slope)


def _enter_fold(op: str, relay: str) -> None:
    @converts(op, needs=(relay,))
    def convert(b: Builder, node: Node) -> Expr:
        result = node.arg(0)
        for i in range(1, len(node.args)):
            result = b.op(relay, result, node.arg(i))
        return result


for _op, _relay in (("Sum", "add"), ("Max", "maximum"), ("Min", "minimum")):
    _enter_fold(_op, _relay)


@converts("Mean", needs=("add", "divide"))
def _mean(b: Builder, node: Node) -> Expr:
    total = node.arg(0)
    for i in range(1, len(node.args)):
        total = b.op("add", total, node.arg(i))
    return b.op("divide", total, b.like(len(node.args), total))


@converts("Where", needs=("where",))
def _where(b: Builder, node: Node) -> Expr:
    return b.op("where", node.arg(0), node.arg(1), node.arg(2))


@converts("Clip", needs=("clip",))
def _clip(b: Builder, node: Node) -> Expr:
    x = node.arg(0)
    if node.version >= 11:
        return b.op("clip", x, node.maybe(1), node.maybe(2))
    low, high = (b.like(node.float(k), x) if node.has(k) else None for k in ("min", "max"))
    return b.op("clip", x, low, high)


def _cast_limit(node: Node) -> str | None:
    to = node.int("to", 1) if node.version >= 6 else 1
    return None if to in DTYPES else f"the element type {dtype_words(to)}"


@converts("Cast", needs=("cast",), limit=_cast_limit)
def _cast(b: Builder, node: Node) -> Expr:
    if node.version < 6:
        return b.op("cast", node.arg(0), dtype=node.string("to").lower().replace("float", "float32", 1))
    return b.op("cast", node.arg(0), dtype=dtype_name(node.int("to"), node.where))


@converts("CastLike", needs=("cast",))
def _cast_like(b: Builder, node: Node) -> Expr:
    return b.op("cast", node.arg(0), dtype=b.dtype(node.arg(1)))


@converts("IsInf", needs=("isinf",))
def _isinf(b: Builder, node: Node) -> Expr:
    negative, positive = node.flag("detect_negative", True), node.flag("detect_positive", True)
    return b.op("isinf", node.arg(0), detect_negative=negative, detect_positive=positive)


def _enter_alpha(op: str, relay: str, default: float) -> None:
    @converts(op, needs=(relay,))
    def convert(b: Builder, node: Node) -> Expr:
        return b.op(relay, node.arg(0), alpha=node.float("alpha", default))


for _op, (_relay, _default) in _ALPHA.items():
    _enter_alpha(_op, _relay, _default)


@converts("Selu", needs=("nn.selu",))
def _selu(b: Builder, node: Node) -> Expr:
    alpha = node.float("alpha", 1.67326319217681884765625)
    return b.op("nn.selu", node.arg(0), alpha=alpha, gamma=node.float("gamma", 1.05070102214813232421875))


@converts("HardSigmoid", needs=("nn.hard_sigmoid",))
def _hard_sigmoid(b: Builder, node: Node) -> Expr:
    return b.op("nn.hard_sigmoid", node.arg(0), alpha=node.float("alpha", 0.2), beta=node.float("beta", 0.5))


@converts("Gelu", needs=("nn.gelu",))
def _gelu(b: Builder, node: Node) -> Expr:
    return b.op("nn.gelu", node.arg(0), approximate=node.string("approximate", "none"))


@converts("Swish", needs=("multiply", "sigmoid"))
def _swish(b: Builder, node: Node) -> Expr:
    x, alpha = node.arg(0), node.float("alpha", 1.0)
    return b.op("multiply", x, b.op("sigmoid", x if alpha == 1 else b.op("multiply", x, b.like(alpha, x))))


@converts("Shrink", needs=("where", "less", "greater", "add", "subtract"))
def _shrink(b: Builder, node: Node) -> Expr:
    x = node.arg(0)
    lambd, bias = node.float("lambd", 0.5), node.float("bias", 0.0)
    low = b.op("where", b.op("less", x, b.like(-lambd, x)), b.op("add", x, b.like(bias, x)), b.like(0, x))
    return b.op("where", b.op("greater", x, b.like(lambd, x)), b.op("subtract", x, b.like(bias, x)), low)

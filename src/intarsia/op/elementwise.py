"""Operators that act on each element by itself, with NumPy broadcasting where there are several arguments.

Semantics are ONNX's (newest opset): integers wrap, integer division truncates and gives 0 for a divisor of 0,
`power` has the dtype of its base. Activations stand in `activation.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf

import numpy as np

from intarsia.dim import Dim, as_dim, dmax, dmin
from intarsia.ir.types import DTYPES, TensorType, Type
from intarsia.kernel.expr import Binary, Const, Expr, Select, Unary, cast
from intarsia.op.entry import REQUIRED, Operator, Site, numpy_dtype, register
from intarsia.op.rules import (
    broadcast,
    common_dtype,
    elementwise,
    first,
    is_float,
    is_int,
    known,
    known_elementwise,
    need,
    one_element,
    oracle,
    truth,
    widen,
    wrap,
)  # fmt: skip

Value = Callable[[Site], "np.ndarray | None"] | None


# ---- one argument ------------------------------------------------------------------------------------------
def _unary(
    name: str, family: str, op: str, reference: Callable, doc: str, *, value: Value = None, to_bool=False
) -> None:
    def rule(site: Site) -> Type:
        dtype = need(site, 0, family)
        return TensorType(site.shape(0), "bool" if to_bool else dtype)

    def body(x: Expr) -> Expr:
        return x if op == "abs" and x.dtype.startswith("uint") else Unary(op, x)

    register(
        Operator(
            name,
            ("x",),
            rule,
            oracle(reference),
            lambda site, bufs: elementwise(site, bufs, body),
            value=value,
            doc=doc,
        )
    )


def _absolute(site: Site, a: Dim) -> Dim:
    return a if site.bounds.le(0, a) else -a if site.bounds.le(a, 0) else dmax(a, -a)


def _not(site: Site, a: Dim) -> Dim:
    return 1 - a


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-x))).astype(x.dtype)


for _name, _op, _reference, _doc in (
    ("exp", "exp", np.exp, "e to the x"),
    ("log", "log", np.log, "natural logarithm"),
    ("sqrt", "sqrt", np.sqrt, "square root"),
    ("rsqrt", "rsqrt", lambda x: 1 / np.sqrt(x), "1 / square root"),
    ("reciprocal", "reciprocal", lambda x: 1 / x, "1 / x"),
    ("sin", "sin", np.sin, "sine of radians"),
    ("cos", "cos", np.cos, "cosine of radians"),
    ("tan", "tan", np.tan, "tangent of radians"),
    ("asin", "asin", np.arcsin, "inverse sine"),
    ("acos", "acos", np.arccos, "inverse cosine"),
    ("atan", "atan", np.arctan, "inverse tangent"),
    ("sinh", "sinh", np.sinh, "hyperbolic sine"),
    ("cosh", "cosh", np.cosh, "hyperbolic cosine"),
    ("tanh", "tanh", np.tanh, "hyperbolic tangent"),
    ("asinh", "asinh", np.arcsinh, "inverse hyperbolic sine"),
    ("acosh", "acosh", np.arccosh, "inverse hyperbolic cosine"),
    ("atanh", "atanh", np.arctanh, "inverse hyperbolic tangent"),
    ("erf", "erf", lambda x: np.vectorize(erf, otypes=[np.float64])(x), "Gauss error function"),
    ("sigmoid", "sigmoid", _sigmoid, "1 / (1 + exp(-x))"),
    ("floor", "floor", np.floor, "largest integer not above x"),
    ("ceil", "ceil", np.ceil, "smallest integer not below x"),
    ("round", "round", np.rint, "nearest integer, halves to even"),
    ("trunc", "trunc", np.trunc, "x without its fraction"),
):
    _unary(_name, "float", _op, _reference, _doc)

_unary("negative", "signed", "neg", np.negative, "-x", value=known_elementwise(lambda site, a: -a))
_unary("abs", "number", "abs", np.abs, "absolute value", value=known_elementwise(_absolute))
_unary("sign", "number", "sign", np.sign, "-1, 0 or 1; NaN stays")
_unary("logical_not", "bool", "not", np.logical_not, "not x", value=known_elementwise(_not))
_unary("bitwise_not", "int", "bitnot", np.invert, "all bits flipped")
_unary("isnan", "float", "isnan", np.isnan, "whether x is not a number", to_bool=True)


def _isinf_rule(site: Site) -> Type:
    need(site, 0, "float")
    return TensorType(site.shape(0), "bool")


def _isinf_body(site: Site, x: Expr) -> Expr:
    up, down = site.attrs["detect_positive"], site.attrs["detect_negative"]
    infinity = Const(float("inf"), x.dtype)
    if up and down:
        return Unary("isinf", x)
    if up or down:
        return x.equals(infinity if up else Const(float("-inf"), x.dtype))
    return Const(False, "bool")


def _isinf(x: np.ndarray, *, detect_negative: bool, detect_positive: bool) -> np.ndarray:
    return np.isposinf(x) & bool(detect_positive) | np.isneginf(x) & bool(detect_negative)


register(
    Operator(
        "isinf",
        ("x",),
        _isinf_rule,
        oracle(_isinf),
        lambda site, bufs: elementwise(site, bufs, lambda x: _isinf_body(site, x)),
        attrs={"detect_negative": True, "detect_positive": True},
        doc="whether x is infinite, of the signs asked for",
    )
)

register(
    Operator(
        "copy",
        ("x",),
        lambda site: site.tensor(0),
        lambda x: x,
        lambda site, bufs: elementwise(site, bufs, lambda x: x, moves=True),
        value=lambda site: site.value(0),
        view=True,
        doc="the same tensor",
    )
)


# ---- cast, clip --------------------------------------------------------------------------------------------
def cast_array(x: np.ndarray, dtype: str) -> np.ndarray:
    """x in another dtype as kernels cast: floats to integers truncate and saturate, NaN gives 0."""
    target = numpy_dtype(dtype)
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return x != 0
        if not is_int(dtype) or not is_float(x.dtype.name):
            return x.astype(target)
        info = np.iinfo(target)
        wide = np.trunc(x.astype(np.float64))
        inside = (wide > float(info.min)) & (wide < float(info.max))
        result = np.where(inside, wide, 0).astype(target)
        result = np.where(wide >= float(info.max), np.array(info.max, target), result)
        return np.where(wide <= float(info.min), np.array(info.min, target), result).astype(target)


def _cast_rule(site: Site) -> Type:
    dtype = site.attrs["dtype"]
    if dtype not in DTYPES:
        site.fail(f"there is no dtype {dtype}")
    return TensorType(site.shape(0), str(dtype))


def _cast_value(site: Site) -> np.ndarray | None:
    dtype, found = str(site.attrs["dtype"]), known(site, 0)
    if found is None or is_float(dtype):
        return None
    out = np.empty_like(found[0])
    for i, d in enumerate(map(as_dim, found[0].reshape(-1))):
        if d.is_const:
            d = as_dim(wrap(d.value, dtype))
        elif dtype == "bool":
            nonzero = truth(site, d, "==", as_dim(0))
            if nonzero is None:
                return None
            d = as_dim(int(not nonzero))
        elif dtype not in ("int64", "int32", "uint64", "uint32"):
            return None
        out.reshape(-1)[i] = d
    return out


register(
    Operator(
        "cast",
        ("x",),
        _cast_rule,
        cast_array,
        lambda site, bufs: elementwise(site, bufs, lambda x: x),
        attrs={"dtype": REQUIRED},
        value=_cast_value,
        doc="x in another dtype",
    )
)


def _clip_rule(site: Site) -> Type:
    common_dtype(site, [i for i in range(3) if site.has(i)], "number")
    for i in (1, 2):
        if site.has(i):
            one_element(site, i, "a bound of clip is one number")
    return site.tensor(0)


def _clip_compute(site: Site, bufs: list):
    def body(x: Expr) -> Expr:
        for op, bound in zip(("max", "min"), bufs[1:]):
            if bound is not None:
                x = Binary(op, x, widen(first(bound)))
        return x

    return elementwise(site, bufs[:1], body)


def _clip(x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    x = x if low is None else np.maximum(x, low.reshape(()))
    return x if high is None else np.minimum(x, high.reshape(()))


def _clip_value(site: Site) -> np.ndarray | None:
    given = [i for i in range(3) if site.has(i)]
    found = known(site, *given)
    if found is None or not is_int(site.dtype(0)):
        return None
    out = np.empty_like(found[0])
    for place, d in enumerate(found[0].reshape(-1)):
        for i, bound in zip(given[1:], found[1:]):
            d = (dmax if i == 1 else dmin)(d, bound.reshape(-1)[0])
        out.reshape(-1)[place] = d
    return out


register(
    Operator(
        "clip",
        ("x", "min?", "max?"),
        _clip_rule,
        oracle(_clip),
        _clip_compute,
        value=_clip_value,
        doc="x held between two bounds; all max where min > max",
    )
)


# ---- two arguments -----------------------------------------------------------------------------------------
def _binary(
    name: str,
    family: str,
    body: Callable[[Expr, Expr], Expr],
    reference: Callable,
    doc: str,
    *,
    value: Value = None,
    to_bool: bool = False,
) -> None:
    def rule(site: Site) -> Type:
        dtype = common_dtype(site, (0, 1), family)
        return TensorType(broadcast(site, site.shape(0), site.shape(1)), "bool" if to_bool else dtype)

    register(
        Operator(
            name,
            ("a", "b"),
            rule,
            oracle(reference),
            lambda site, bufs: elementwise(site, bufs, body),
            value=value,
            doc=doc,
        )
    )


def _kernel(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: Binary(op, a, b)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return a / b
    quotient = np.floor_divide(a, b)
    inexact = (quotient * b != a) & (quotient < 0) & (b != 0)
    return quotient + inexact.astype(a.dtype)


def _divided(site: Site, a: Dim, b: Dim) -> Dim | None:
    if b == 0:
        return as_dim(0)
    if a.is_const and b.is_const:
        return as_dim(abs(a.value) // abs(b.value) * (1 if (a.value < 0) == (b.value < 0) else -1))
    return a // b if site.bounds.le(0, a) and site.bounds.le(0, b) else None


def _remainder(site: Site, a: Dim, b: Dim) -> Dim | None:
    quotient = _divided(site, a, b)
    if b == 0 or quotient is None:
        return as_dim(0) if b == 0 else None
    return a - quotient * b if a.is_const and b.is_const else a % b


def _relation(relation: str, negate: bool = False, swap: bool = False) -> Value:
    def decide(site: Site, a: Dim, b: Dim) -> int | None:
        holds = truth(site, b, relation, a) if swap else truth(site, a, relation, b)
        return None if holds is None else int(holds != negate)

    return known_elementwise(decide)


def _larger(site: Site, a: Dim, b: Dim) -> Dim:
    return a if site.bounds.le(b, a) else b if site.bounds.le(a, b) else dmax(a, b)


def _smaller(site: Site, a: Dim, b: Dim) -> Dim:
    return b if site.bounds.le(b, a) else a if site.bounds.le(a, b) else dmin(a, b)


def _both(site: Site, a: Dim, b: Dim) -> Dim:
    return a * b


def _either(site: Site, a: Dim, b: Dim) -> Dim:
    return dmax(a, b)


_binary("add", "number", _kernel("add"), np.add, "a + b", value=known_elementwise(lambda s, a, b: a + b))
_binary(
    "subtract", "number", _kernel("sub"), np.subtract, "a - b", value=known_elementwise(lambda s, a, b: a - b)
)
_binary(
    "multiply", "number", _kernel("mul"), np.multiply, "a * b", value=known_elementwise(lambda s, a, b: a * b)
)
_binary(
    "divide",
    "number",
    _kernel("div"),
    _truncated,
    "a / b; integers truncate",
    value=known_elementwise(_divided),
)
_binary(
    "floor_divide", "number", _kernel("floordiv"), np.floor_divide, "largest integer not above a / b",
    value=known_elementwise(lambda s, a, b: as_dim(0) if b == 0 else a // b),
)  # fmt: skip
_binary(
    "mod", "number", _kernel("mod"), np.mod, "rest of floor division, with the sign of b",
    value=known_elementwise(lambda s, a, b: as_dim(0) if b == 0 else a % b),
)  # fmt: skip
_binary(
    "fmod", "number", _kernel("fmod"), np.fmod, "rest of truncated division, with the sign of a",
    value=known_elementwise(_remainder),
)  # fmt: skip
_binary(
    "maximum", "number", _kernel("max"), np.maximum, "the larger; NaN if either is",
    value=known_elementwise(_larger),
)  # fmt: skip
_binary(
    "minimum", "number", _kernel("min"), np.minimum, "the smaller; NaN if either is",
    value=known_elementwise(_smaller),
)  # fmt: skip
_binary("equal", "any", _kernel("eq"), np.equal, "a == b", value=_relation("=="), to_bool=True)
_binary(
    "not_equal",
    "any",
    _kernel("ne"),
    np.not_equal,
    "a != b",
    value=_relation("==", negate=True),
    to_bool=True,
)
_binary("less", "number", _kernel("lt"), np.less, "a < b", value=_relation("<"), to_bool=True)
_binary("less_equal", "number", _kernel("le"), np.less_equal, "a <= b", value=_relation("<="), to_bool=True)
_binary(
    "greater", "number", _kernel("gt"), np.greater, "a > b", value=_relation("<", swap=True), to_bool=True
)
_binary(
    "greater_equal",
    "number",
    _kernel("ge"),
    np.greater_equal,
    "a >= b",
    value=_relation("<=", swap=True),
    to_bool=True,
)
_binary("logical_and", "bool", _kernel("and"), np.logical_and, "a and b", value=known_elementwise(_both))
_binary("logical_or", "bool", _kernel("or"), np.logical_or, "a or b", value=known_elementwise(_either))
_binary("logical_xor", "bool", _kernel("xor"), np.logical_xor, "exactly one of a and b")
_binary("bitwise_and", "int", _kernel("bitand"), np.bitwise_and, "bits of both")
_binary("bitwise_or", "int", _kernel("bitor"), np.bitwise_or, "bits of either")
_binary("bitwise_xor", "int", _kernel("bitxor"), np.bitwise_xor, "bits of exactly one")
_binary("left_shift", "int", _kernel("shl"), np.left_shift, "a * 2^b; 0 for b of the width or more")
_binary(
    "right_shift",
    "int",
    _kernel("shr"),
    np.right_shift,
    "a / 2^b, rounded down; b below the width for negative a",
)


# ---- power -------------------------------------------------------------------------------------------------
def _power_rule(site: Site) -> Type:
    dtype = need(site, 0, "number")
    need(site, 1, "number")
    return TensorType(broadcast(site, site.shape(0), site.shape(1)), dtype)


def _power_body(a: Expr, b: Expr) -> Expr:
    """In the base's dtype; an integer to the power of a float goes through float64."""
    if is_float(a.dtype):
        return Binary("pow", a, cast(b, a.dtype))
    if is_float(b.dtype):
        return cast(Binary("pow", cast(a, "float64"), cast(b, "float64")), a.dtype)
    return Binary("pow", a, cast(b, a.dtype))


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.power(a, b.astype(a.dtype))
    if b.dtype.kind == "f" or is_float(b.dtype.name):
        return cast_array(np.power(a.astype(np.float64), b.astype(np.float64)), a.dtype.name)
    b = b.astype(a.dtype)
    if a.dtype.kind == "u":
        return np.power(a, b)
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b & 1, -1, 1), 0))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


def _power_known(site: Site, a: Dim, b: Dim) -> Dim | None:
    if not (b.is_const and 0 <= b.value <= 8):
        return None
    result = as_dim(1)
    for _ in range(b.value):
        result = result * a
    return result


register(
    Operator(
        "power",
        ("a", "b"),
        _power_rule,
        oracle(_power),
        lambda site, bufs: elementwise(site, bufs, _power_body),
        value=known_elementwise(_power_known),
        doc="a to the b, in the dtype of a",
    )
)


# ---- where -------------------------------------------------------------------------------------------------
def _where_rule(site: Site) -> Type:
    need(site, 0, "bool")
    dtype = common_dtype(site, (1, 2))
    return TensorType(broadcast(site, site.shape(0), site.shape(1), site.shape(2)), dtype)


def _chosen(site: Site, cond: Dim, a: Dim, b: Dim) -> Dim | None:
    return a if a == b else (a if cond.value else b) if cond.is_const else None


def _where(cond: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(cond, a, b).astype(a.dtype)


def _where_value(site: Site) -> np.ndarray | None:
    return known_elementwise(_chosen)(site) if not is_float(site.dtype(1)) else None


register(
    Operator(
        "where",
        ("cond", "a", "b"),
        _where_rule,
        _where,
        lambda site, bufs: elementwise(site, bufs, Select, moves=True),
        value=_where_value,
        doc="a where cond holds, else b",
    )
)

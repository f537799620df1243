"""Activation functions (`nn.*`) that act on each element by itself. Formulas are ONNX's; NaN stays NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, pi, sqrt

import numpy as np

from intarsia.ir.types import TensorType, Type
from intarsia.kernel.expr import Binary, Const, Expr, Select, Unary
from intarsia.op.entry import Operator, Site, register
from intarsia.op.rules import broadcast, common_dtype, elementwise, need, oracle, same_shape


def _activation(
    name: str,
    body: Callable[..., Expr],
    reference: Callable,
    doc: str,
    attrs: Mapping[str, object] | None = None,
) -> None:
    """body(x, **attrs) builds the element, reference(x, **attrs) is its NumPy twin."""

    def rule(site: Site) -> Type:
        need(site, 0, "number" if name == "nn.relu" else "float")
        return site.tensor(0)

    register(
        Operator(
            name,
            ("x",),
            rule,
            oracle(reference),
            lambda site, bufs: elementwise(site, bufs, lambda x: body(x, **site.attrs)),
            attrs=attrs or {},
            doc=doc,
        )
    )


def _max(a: Expr, b: float) -> Expr:
    return Binary("max", a, Const(b if "float" in a.dtype else int(b), a.dtype))


def _min(a: Expr, b: float) -> Expr:
    return Binary("min", a, Const(b, a.dtype))


def _exp(x: Expr) -> Expr:
    return Unary("exp", x)


def _gelu(x: Expr, approximate: str) -> Expr:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + Unary("tanh", sqrt(2 / pi) * (x + 0.044715 * (x * x * x))))
    return 0.5 * x * (1.0 + Unary("erf", x * sqrt(0.5)))


def _gelu_reference(x: np.ndarray, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(erf, otypes=[np.float64])(x * sqrt(0.5)))


def _log1p(x: Expr) -> Expr:
    """log(1 + x) for 0 <= x, exact for small x too (W. Kahan: the rounding of 1 + x is divided out)."""
    u = 1.0 + x
    return Select(u.equals(1.0), x, Unary("log", u) * (x / (u - 1.0)))


def _softplus(x: Expr) -> Expr:
    return _max(x, 0.0) + _log1p(_exp(-Unary("abs", x)))


def _mish(x: Expr) -> Expr:
    """x * tanh(log(1 + e^x)), with tanh(log(u)) = (u² - 1) / (u² + 1); from 40 on the factor is 1."""
    e = _exp(_min(x, 40.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


def _softplus_reference(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


_activation("nn.relu", lambda x: _max(x, 0.0), lambda x: np.maximum(x, 0), "max(x, 0)")
_activation(
    "nn.leaky_relu",
    lambda x, alpha: Select(x < 0.0, x * alpha, x),
    lambda x, alpha: np.where(x < 0, x * np.array(alpha, x.dtype), x),
    "x, or alpha * x below 0",
    {"alpha": 0.01},
)
_activation(
    "nn.elu",
    lambda x, alpha: Select(x < 0.0, alpha * (_exp(x) - 1.0), x),
    lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x),
    "x, or alpha * (e^x - 1) below 0",
    {"alpha": 1.0},
)
_activation(
    "nn.selu",
    lambda x, alpha, gamma: Select(x <= 0.0, gamma * alpha * (_exp(x) - 1.0), gamma * x),
    lambda x, alpha, gamma: np.where(x <= 0, gamma * alpha * np.expm1(x), gamma * x),
    "gamma * x, or gamma * alpha * (e^x - 1) below 0",
    {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
)
_activation(
    "nn.celu",
    lambda x, alpha: _max(x, 0.0) + _min(alpha * (_exp(x / alpha) - 1.0), 0.0),
    lambda x, alpha: np.maximum(x, 0) + np.minimum(alpha * np.expm1(x / alpha), 0),
    "max(x, 0) + min(alpha * (e^(x / alpha) - 1), 0)",
    {"alpha": 1.0},
)
_activation("nn.gelu", _gelu, _gelu_reference, "x * normal cdf(x), exact or by tanh", {"approximate": "none"})
_activation("nn.silu", lambda x: x * Unary("sigmoid", x), lambda x: x / (1 + np.exp(-x)), "x * sigmoid(x)")
_activation(
    "nn.hard_sigmoid",
    lambda x, alpha, beta: _max(_min(x * alpha + beta, 1.0), 0.0),
    lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "alpha * x + beta, held between 0 and 1",
    {"alpha": 0.2, "beta": 0.5},
)
_activation(
    "nn.hard_swish",
    lambda x: x * _max(_min(x * (1 / 6) + 0.5, 1.0), 0.0),
    lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
    "x * hard_sigmoid(x; 1/6, 1/2)",
)
_activation("nn.softplus", _softplus, _softplus_reference, "log(1 + e^x)")
_activation(
    "nn.softsign", lambda x: x / (1.0 + Unary("abs", x)), lambda x: x / (1 + np.abs(x)), "x / (1 + |x|)"
)
_activation("nn.mish", _mish, lambda x: x * np.tanh(_softplus_reference(x)), "x * tanh(softplus(x))")
_activation(
    "nn.thresholded_relu",
    lambda x, alpha: Select(x > alpha, x, Const(0.0, x.dtype)),
    lambda x, alpha: np.where(x > alpha, x, 0),
    "x above alpha, else 0",
    {"alpha": 1.0},
)


# ---- prelu -------------------------------------------------------------------------------------------------
def _prelu_rule(site: Site) -> Type:
    dtype = common_dtype(site, (0, 1), "number")
    x = site.shape(0)
    if site.rank(1) > len(x):
        site.fail("the slope has more dimensions than x")
    same_shape(
        site, broadcast(site, x, site.shape(1)), x, "prelu's slope is stretched to x, not x to the slope"
    )
    return TensorType(x, dtype)


register(
    Operator(
        "nn.prelu",
        ("x", "slope"),
        _prelu_rule,
        oracle(lambda x, slope: np.where(x < 0, x * slope, x)),
        lambda site, bufs: elementwise(
            site, bufs, lambda x, s: Select(x < Const(0.0 if "float" in x.dtype else 0, x.dtype), x * s, x)
        ),
        doc="x, or slope * x below 0",
    )
)

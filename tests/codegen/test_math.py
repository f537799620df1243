"""Accuracy of the generated mathematical functions, against double (extended) precision."""

from __future__ import annotations

import math

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim, ceildiv
from intarsia.kernel.expr import Binary, Buffer, Unary
from intarsia.kernel.stmt import Kernel, loop, store

from .harness import native_target, run, sse2, ulps

LIMITS = {  # float32, float64: units of the last place
    "exp": (2, 2), "log": (2, 2), "sigmoid": (4, 4), "tanh": (5, 4), "erf": (5, 4), "sin": (2, 2),
    "cos": (2, 2),
}  # fmt: skip
_erf = np.frompyfunc(math.erf, 1, 1)


def oracle(op: str, x: np.ndarray) -> np.ndarray:
    """In extended precision, but for erf, which is Python's."""
    x = x.astype(np.longdouble)
    with np.errstate(all="ignore"):
        match op:
            case "sigmoid":
                return np.where(x >= 0, 1 / (1 + np.exp(-x)), np.exp(x) / (1 + np.exp(x)))
            case "erf":
                return _erf(x.astype(np.float64)).astype(np.longdouble)
            case "sin" | "cos":  # NumPy's long double versions reduce huge arguments correctly through libm
                return getattr(np, op)(x)
        return getattr(np, op)(x)


def arguments(op: str, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(7)
    big = (
        {"exp": 760.0, "sigmoid": 760.0, "log": 1e300}
        if dtype == "float64"
        else {"exp": 106.0, "sigmoid": 106.0, "log": 1e37}
    )
    wide = big.get(op, 12.0)
    parts = [
        np.linspace(-wide, wide, 6001)
        if op != "log"
        else np.geomspace(1e-300 if dtype == "float64" else 1e-44, wide, 6001),
        rng.normal(0, 1, 4000),
        np.geomspace(1e-9, 10, 1501),
        -np.geomspace(1e-9, 10, 1501),
        1 + rng.normal(0, 1e-3, 1000),
    ]
    if op in ("sin", "cos"):
        parts += [np.arange(-400, 400) * np.pi / 2, np.geomspace(1, 3e7, 999)]
    return np.concatenate(parts).astype(dtype)


def apply(op: str, x: np.ndarray, target) -> np.ndarray:
    n = Symbol("n")
    a, o = Buffer("a", (n,), x.dtype.name), Buffer("o", (n,), x.dtype.name)
    i, v = Symbol("i"), Symbol("v")
    body = loop(
        "i",
        ceildiv(n, 16),
        loop("v", 16, store(o, (i * 16 + v,), Unary(op, a[i * 16 + v])), "vector", active=n - i * 16),
    )
    return run(Kernel(op, (a,), (o,), (), ("n",), body), [x], {"n": len(x)}, target)[0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", sorted(LIMITS))
@pytest.mark.parametrize("target", [native_target(), sse2()], ids=["host", "sse2"])
def test_error_is_a_few_units_of_the_last_place(op, dtype, target):
    x = arguments(op, dtype)
    if target.fma is False:
        limit = 2 * LIMITS[op][dtype == "float64"] + 2
    else:
        limit = LIMITS[op][dtype == "float64"]
    errors = ulps(apply(op, x, target), oracle(op, x))
    worst = int(np.argmax(errors))
    assert errors[worst] <= limit, f"{op}({x[worst]!r}) is {errors[worst]:.2f} ulp off"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("op", sorted(LIMITS))
def test_special_values(op, dtype):
    tiny = float(np.finfo(dtype).smallest_subnormal)
    x = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, tiny, -tiny, np.finfo(dtype).max, np.finfo(dtype).min], dtype
    )
    got, want = apply(op, x, native_target()), oracle(op, x)
    for a, g, w, error in zip(x, got, want, ulps(got, want), strict=True):
        assert error <= 4, f"{op}({a}) = {g}, not {w}"
    if op in ("tanh", "erf", "sin"):
        assert math.copysign(1, got[1]) == -1, "the sign of zero is kept"
    if op in ("tanh", "erf"):
        assert (np.abs(apply(op, np.linspace(-20, 20, 4001).astype(dtype), native_target())) <= 1).all()


@pytest.mark.parametrize("target", [native_target(), sse2()], ids=["host", "sse2"])
def test_power_follows_the_rules_of_c(target):
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        0.5,
        -0.5,
        3.0,
        -3.0,
        1.5,
        np.inf,
        -np.inf,
        np.nan,
        1e30,
        -1e30,
        7e-39,
        2.5,
    ]
    base, exponent = (g.reshape(-1) for g in np.meshgrid(special, special))
    rng = np.random.default_rng(3)
    base = np.concatenate([base, rng.uniform(0, 20, 500)]).astype(np.float32)
    exponent = np.concatenate([exponent, rng.uniform(-20, 20, 500)]).astype(np.float32)
    n = as_dim(len(base))
    a, b, o = (Buffer(x, (n,), "float32") for x in "abo")
    v = Symbol("v")
    kernel = Kernel(
        "pow", (a, b), (o,), (), (), loop("v", n, store(o, (v,), Binary("pow", a[v], b[v])), "vector")
    )
    with np.errstate(all="ignore"):
        want = np.power(base.astype(np.float64), exponent.astype(np.float64)).astype(np.longdouble)
    errors = ulps(run(kernel, [base, exponent], target=target)[0], want)
    worst = int(np.argmax(errors))
    assert errors[worst] <= 1, f"pow({base[worst]}, {exponent[worst]}) is {errors[worst]} ulp off"

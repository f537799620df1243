"""Stages that depend on constants only are computed when the kernel is made."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Symbol
from intarsia.kernel.compute import compute, placeholder, reduce, reduce_axis, var
from intarsia.kernel.expr import Unary
from tests.kernel.strategy.checking import check, randoms

n = Symbol("n")


def test_factors_of_constants_become_inputs():
    x, scale, variance = (
        placeholder("x", (n, 6), "float32"),
        placeholder("s", (6,), "float32"),
        placeholder("v", (6,), "float32"),
    )
    factor = compute((6,), lambda c: scale[c] / Unary("sqrt", variance[c] + 1e-5))
    out = compute((n, 6), lambda i, c: x[i, c] * factor[c])
    a, s, v = randoms(1, (3, 6), (6,), (6,))
    v = np.abs(v)
    lowered = check(
        [x, scale, variance],
        [out],
        [a, s, v],
        {"n": 3},
        want=[a * (s / np.sqrt(v + np.float32(1e-5)))],
        constants=(1, 2),
    )
    (folded,) = lowered.extra_constants
    np.testing.assert_allclose(folded, s / np.sqrt(v + 1e-5), rtol=1e-6)
    assert len(lowered.kernel.inputs) == 4


def test_what_varies_or_grows_is_not_folded():
    x, c = placeholder("x", (n, 70), "float32"), placeholder("c", (70,), "float32")
    wide = compute((n, 70), lambda i, j: c[j] * 2.0)
    out = compute((n, 70), lambda i, j: x[i, j] + wide[i, j])
    a, b = randoms(2, (2, 70), (70,))
    lowered = check([x, c], [out], [a, b], {"n": 2}, want=[a + b * 2], constants=(1,))
    assert not lowered.extra_constants


def test_reductions_of_constants():
    x, w = placeholder("x", (n, 4), "float32"), placeholder("w", (4, 9), "float32")
    k = reduce_axis(9)
    total = compute((4,), lambda c: reduce("max", w[c, var(k)], k))
    out = compute((n, 4), lambda i, c: x[i, c] - total[c])
    a, b = randoms(3, (5, 4), (4, 9))
    lowered = check([x, w], [out], [a, b], {"n": 5}, want=[a - b.max(1)], constants=(1,))
    assert len(lowered.extra_constants) == 1


def test_an_output_of_constants_is_still_written():
    w = placeholder("w", (4,), "float32")
    out = compute((4,), lambda c: w[c] * 3.0)
    (a,) = randoms(4, (4,))
    check([w], [out, w], [a], want=[a * 3, a], constants=(0,))

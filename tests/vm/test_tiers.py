"""Both tiers compute what the reference evaluator says."""

import numpy as np
import pytest
from programs import CASES, counting_loop, floats, integer, recursion

import intarsia
from intarsia.interp import evaluate
from intarsia.vm.executable import Executable


def results(value) -> list[np.ndarray]:
    return [np.asarray(v) for v in value] if isinstance(value, tuple) else [np.asarray(value)]


def same(got, want) -> None:
    for a, b in zip(results(got), results(want), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("tier", ["interpreter", "native"])
@pytest.mark.parametrize("build, calls", [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_tiers_agree_with_the_reference(build, calls, tier, level):
    module = build()
    exe = intarsia.compile(module, threads=1, tier=tier, level=level)
    for args in calls:
        same(exe(*args), evaluate(module, *args))


def test_a_native_loop_runs_a_million_times_in_constant_space():
    exe = intarsia.compile(counting_loop(1_000_000), threads=1)
    np.testing.assert_allclose(exe(np.zeros(2, np.float32)), np.float32(499999500000.0), rtol=0.05)


def test_recursion_that_is_too_deep_is_an_error_and_the_next_call_works():
    exe = intarsia.compile(recursion(), threads=1)
    with pytest.raises(intarsia.Error, match="RUN-003"):
        exe(integer(50_000_000), floats(2))
    assert exe(integer(3), floats(2)).shape == (2,)


def test_results_own_their_memory():
    from programs import matmul_chain

    exe = intarsia.compile(matmul_chain(), threads=1)
    x = floats(3, 4)
    first = [r.copy() for r in exe(x)]
    kept = exe(x)
    for _ in range(50):
        exe(floats(3, 4))
    del exe
    for a, b in zip(kept, first, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.flags.writeable


def test_kernels_that_are_equal_are_one():
    from programs import long_chain

    exe = intarsia.compile(long_chain(40), threads=1, level=0)
    assert isinstance(exe, Executable) and exe.stats().kernels == 3

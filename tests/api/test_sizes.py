"""Sizes that a model computes and that no tensor can have: refused before memory is touched, in both tiers."""

import numpy as np
import pytest

import intarsia
from intarsia.dim import Symbol
from intarsia.ir import Constant, Function, IRModule, Var, call, tensor


@pytest.mark.parametrize("tier", ["native", "interpreter"])
@pytest.mark.parametrize(
    "sizes",
    [
        (-5, -5),
        (-5, 3),
        (0, -1),
        (-1, 0),
        (1 << 31, 1 << 31),
        (1 << 40, 1 << 40),
        (1 << 61, 16),
        (1 << 62, 0),
    ],
)
def test_a_size_read_from_a_tensor(tier: str, sizes: tuple[int, int]):
    x, shape = Var("x", tensor((1,))), Var("shape", tensor((2,), "int64"))
    exe = intarsia.compile(IRModule({"main": Function((x, shape), call("expand", x, shape))}), tier=tier)
    with pytest.raises(intarsia.Error, match="RUN-00[12]"):
        exe(np.zeros(1, np.float32), np.array(sizes, np.int64))
    assert exe(np.ones(1, np.float32), np.array((2, 3), np.int64)).shape == (2, 3)


def test_sizes_of_an_empty_tensor_may_multiply_beyond_a_word():
    x = Var("x", tensor((Symbol("n"), 0)))
    square = call("matmul", x, call("transpose", x, axes=(1, 0)))
    exe = intarsia.compile(IRModule({"main": Function((x,), call("exp", call("exp", square)))}), level=0)
    with pytest.raises(intarsia.Error, match="RUN-002"):
        exe(np.zeros((1 << 33, 0), np.float32))


@pytest.mark.parametrize("sizes", [(1 << 20, 1 << 20), (1 << 62, 1 << 62)])
def test_a_constant_that_is_too_large_is_not_made_at_compile_time(sizes: tuple[int, int]):
    shape, value = Constant(np.array(sizes, np.int64)), Constant(np.zeros((), np.float32))
    exe = intarsia.compile(IRModule({"main": Function((), call("full", shape, value))}))
    with pytest.raises(intarsia.Error, match="RUN-002"):
        exe()

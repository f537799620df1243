import pytest

from intarsia.kernel.strategy.pool import pool
from tests.kernel.strategy.contraction.problems import AVX2, Problem, numbers

CASES = [
    ((1, 6, 7, 5), {"kernel": (2, 2), "strides": (2, 2)}),
    ((1, 6, 7, 5), {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1)}),
    ((2, 6, 7, 17), {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "ceil_mode": True}),
    ((2, 6, 7, 17), {"kernel": (2, 3), "strides": (2, 1)}),
    ((1, 5, 5, 3), {"kernel": (3, 3), "strides": (1, 1), "auto_pad": "SAME_LOWER"}),
]


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool"])
@pytest.mark.parametrize("shape, attrs", CASES)
@pytest.mark.parametrize("symbolic", [None, {(0, 0): "n", (0, 1): "h", (0, 2): "w"}])
def test_pools(name, shape, attrs, symbolic):
    Problem(name, [numbers(*shape)], symbolic, layout="NHWC", **attrs).check(pool)


def test_one_dimension():
    Problem(
        "nn.max_pool", [numbers(2, 9, 4)], layout="NHWC", kernel=(3,), strides=(2,), padding=(1, 1)
    ).check(pool)


def test_channels_first_is_left_to_others():
    assert Problem("nn.max_pool", [numbers(1, 3, 5, 5)], kernel=(2, 2)).lowered(pool, AVX2) is None


@pytest.mark.parametrize("name", ["nn.max_pool", "nn.avg_pool"])
def test_machine_code(name):
    attrs = {"kernel": (3, 3), "strides": (2, 2), "padding": (1, 1, 1, 1), "layout": "NHWC"}
    Problem(name, [numbers(2, 23, 24, 37)], {(0, 1): "h", (0, 2): "w"}, **attrs).check_native(pool)
    Problem(name, [numbers(2, 23, 24, 64)], **attrs).check_native(pool)

import numpy as np
import pytest

from intarsia.kernel.compute import compute, placeholder
from intarsia.kernel.strategy.contraction import conv, depthwise, matmul
from tests.kernel.strategy.contraction.problems import AVX2, Problem, numbers, relu

SYMBOLIC = {(0, 0): "n", (0, 1): "h", (0, 2): "w"}


def problem(x, w, symbolic=None, bias=True, **attrs):
    arrays = [numbers(*x), numbers(*w), *([numbers(w[0])] if bias else [])]
    p = Problem("nn.conv", arrays, symbolic, range(1, len(arrays)), layout="NHWC", **attrs)
    return p.then(relu, lambda y: np.maximum(y, 0))


CASES = [
    ((1, 5, 6, 3), (5, 3, 3, 3), {"padding": (1, 1, 1, 1)}),
    ((2, 5, 6, 3), (17, 3, 3, 3), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
    ((2, 5, 6, 3), (4, 3, 1, 1), {}),
    ((2, 5, 6, 3), (4, 3, 1, 1), {"strides": (2, 2)}),
    ((1, 6, 7, 4), (6, 2, 3, 2), {"groups": 2, "dilation": (2, 1)}),
    ((1, 6, 7, 4), (6, 2, 3, 2), {"groups": 2, "dilation": (2, 1), "padding": (2, 2, 2, 2)}),
    ((1, 6, 7, 4), (1, 4, 3, 2), {}),
    ((1, 6, 7, 2), (4, 1, 3, 3), {"groups": 2}),
    ((1, 7, 7, 1), (9, 1, 7, 7), {"padding": (3, 3, 3, 3), "strides": (2, 2)}),
]


@pytest.mark.parametrize("x, w, attrs", CASES)
@pytest.mark.parametrize("symbolic", [None, SYMBOLIC])
def test_two_dimensions(x, w, attrs, symbolic):
    problem(x, w, symbolic, **attrs).check(conv)


def test_one_and_three_dimensions():
    problem((1, 9, 4), (6, 4, 3), dilation=(2,), padding=(2, 2)).check(conv)
    problem((1, 4, 4, 3, 2), (3, 2, 2, 2, 2), padding=(1, 0, 0, 0, 1, 0)).check(conv)


def test_same_padding_of_unknown_sizes():
    problem((1, 5, 6, 2), (3, 2, 3, 3), SYMBOLIC, strides=(2, 2), auto_pad="SAME_UPPER").check(conv)


def test_weights_that_vary():
    arrays = [numbers(1, 5, 6, 3), numbers(4, 3, 3, 3)]
    Problem("nn.conv", arrays, layout="NHWC", padding=(1, 1, 1, 1)).check(conv)


def test_data_that_is_computed():
    p = problem((1, 4, 5, 3), (4, 3, 3, 3), padding=(1, 1, 1, 1))
    x = placeholder("x", p.inputs[0].shape, "float32")
    for padding in ((1, 1, 1, 1), (0, 0, 0, 0)):
        q = Problem("nn.conv", [np.maximum(p.arrays[0], 0), p.arrays[1]], layout="NHWC", padding=padding)
        active = compute(x.shape, lambda *i: relu(x[i]), name="active")
        from intarsia.op import entry

        args = [entry.Arg(t) for t in _types(active, q.inputs[1])]
        site = entry.Site(entry.get("nn.conv"), args, {"layout": "NHWC", "padding": padding})
        site.out = (site.op.rule(site),)
        q.outputs = [site.op.compute(site, [active, q.inputs[1]])]
        q.inputs[0], q.arrays[0] = x, p.arrays[0]
        q.check(conv)


def _types(*buffers):
    from intarsia.ir.types import TensorType

    return [TensorType(b.shape, b.dtype) for b in buffers]


def test_long_windows_are_cut_into_parts():
    problem((1, 12, 12, 256), (24, 256, 3, 3), padding=(1, 1, 1, 1)).check_native(conv)


def test_channels_first_is_left_to_others():
    p = Problem("nn.conv", [numbers(1, 3, 5, 5), numbers(4, 3, 3, 3)], constants=[1])
    assert p.lowered(conv, AVX2) is None
    assert p.lowered(depthwise, AVX2) is None


def test_a_pointwise_convolution_is_a_matrix_product():
    problem((2, 5, 6, 8), (4, 8, 1, 1)).check(matmul)


DEPTHWISE = [
    ((1, 5, 6, 8), (8, 1, 3, 3), {"groups": 8}),
    ((2, 5, 6, 19), (19, 1, 3, 3), {"groups": 19, "padding": (1, 1, 1, 1)}),
    ((2, 5, 8, 19), (19, 1, 3, 5), {"groups": 19, "padding": (1, 2, 1, 2), "strides": (2, 2)}),
    (
        (2, 5, 8, 4),
        (4, 1, 3, 5),
        {"groups": 4, "padding": (1, 2, 1, 2), "strides": (1, 2), "dilation": (2, 1)},
    ),
    ((1, 1, 1, 4), (4, 1, 3, 5), {"groups": 4, "padding": (1, 2, 1, 2)}),
]


@pytest.mark.parametrize("x, w, attrs", DEPTHWISE)
@pytest.mark.parametrize("symbolic", [None, SYMBOLIC])
def test_depthwise(x, w, attrs, symbolic):
    problem(x, w, symbolic, **attrs).check(depthwise)


def test_depthwise_in_one_dimension():
    problem((1, 13, 4), (4, 1, 5), groups=4, padding=(2, 2)).check(depthwise)


@pytest.mark.parametrize("symbolic", [None, SYMBOLIC])
def test_machine_code(symbolic):
    problem((2, 13, 14, 16), (33, 16, 3, 3), symbolic, padding=(1, 1, 1, 1)).check_native(conv)
    problem((1, 29, 30, 3), (24, 3, 7, 7), symbolic, padding=(3, 3, 3, 3), strides=(2, 2)).check_native(conv)
    problem((2, 15, 16, 37), (37, 1, 3, 3), symbolic, groups=37, padding=(1, 1, 1, 1)).check_native(depthwise)


def test_machine_code_of_pointwise_grouped_and_strided_ones():
    problem((1, 14, 14, 24), (40, 24, 1, 1)).check_native(conv)
    problem((1, 14, 14, 24), (24, 6, 3, 3), groups=4, padding=(1, 1, 1, 1)).check_native(conv)
    problem((2, 15, 16, 40), (40, 1, 5, 5), groups=40, padding=(2, 2, 2, 2), strides=(2, 2)).check_native(
        depthwise
    )

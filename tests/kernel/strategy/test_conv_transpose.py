"""Transposed convolutions as kernels: with and without overlap, followed by other work, weights constant or
not.
"""

import numpy as np
import pytest

import intarsia.op.nn_conv  # noqa: F401
from intarsia.dim import Symbol
from intarsia.ir.types import tensor
from intarsia.kernel.compute import compute, placeholder
from intarsia.kernel.expr import Binary, Const
from intarsia.kernel.strategy.composed import composed
from intarsia.kernel.strategy.contraction.conv_transpose import conv_transpose
from intarsia.kernel.strategy.region import Region
from intarsia.op import entry
from tests.kernel.strategy.checking import WIDE, check, randoms


def transposed(x_shape, w_shape, attrs, *, relu=False):
    """(inputs, output, reference) of a transposed convolution with a bias."""
    op = entry.get("nn.conv_transpose")
    shapes = [x_shape, w_shape, (w_shape[1] * attrs.get("groups", 1),)]
    site = entry.Site(op, [entry.Arg(tensor(s)) for s in shapes], attrs)
    site.out = (op.rule(site),)
    inputs = [placeholder(f"a{i}", s, "float32") for i, s in enumerate(shapes)]
    out = op.compute(site, inputs)
    if relu:
        inner = out
        out = compute(out.shape, lambda *i: Binary("max", inner[i], Const(0.0, "float32")), name="relu")
    return inputs, out, lambda *a: op.reference(*a, **site.attrs)


CASES = [
    # batch, sizes, channels, results, attributes
    (2, (2, 3), 5, 10, {"strides": (2, 2), "layout": "NHWC"}, (2, 2)),
    (1, (2, 3), 5, 9, {"strides": (2, 3), "layout": "NHWC"}, (2, 3)),
    (1, (2, 3), 5, 1, {"strides": (2, 2), "layout": "NHWC"}, (2, 2)),
    (1, (2, 3), 4, 6, {"strides": (2, 2), "layout": "NHWC", "padding": (1, 1, 1, 1)}, (3, 3)),
    (2, (2, 3), 4, 6, {"strides": (2, 1), "padding": (1, 0, 1, 1), "output_padding": (1, 0)}, (3, 2)),
    (1, (2, 3), 6, 3, {"strides": (2, 2), "groups": 2}, (2, 2)),
    (1, (2, 3), 6, 3, {"strides": (2, 2), "groups": 2, "layout": "NHWC"}, (3, 3)),
    (1, (5,), 4, 9, {"strides": (3,), "layout": "NHWC"}, (3,)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("constants", [(), (1, 2)], ids=["variable", "constant"])
def test_transposed_convolution(case, constants):
    relu = bool(constants)
    n, sizes, c, o, attrs, kernel = case
    names = [Symbol(s) for s in "hw"[: len(sizes)]]

    def shape(dims):
        return (n, *dims, c) if attrs.get("layout") == "NHWC" else (n, c, *dims)

    inputs, out, reference = transposed(shape(names), (c, o, *kernel), attrs, relu=relu)
    arrays = randoms(1, shape(sizes), (c, o, *kernel), (o * attrs.get("groups", 1),))
    want = reference(*arrays)
    want = np.maximum(want, 0) if relu else want
    symbols = dict(zip("hw", sizes))
    check(
        inputs,
        [out],
        arrays,
        symbols,
        want=[want],
        constants=constants,
        targets=(WIDE,),
        rtol=1e-5,
        atol=1e-5,
    )


def test_windows_side_by_side_write_the_result_directly():
    inputs, out, _ = transposed(
        (1, Symbol("h"), 7, 5), (5, 16, 2, 2), {"strides": (2, 2), "layout": "NHWC"}, relu=True
    )
    found = conv_transpose(Region("k", tuple(inputs), (out,)), WIDE)
    assert found is not None and not any("products" in w.name for w in found.kernel.workspaces)


def test_overlapping_windows_are_products_and_a_gather():
    inputs, out, _ = transposed((1, Symbol("h"), 7, 5), (5, 16, 3, 3), {"strides": (2, 2), "layout": "NHWC"})
    region = Region("k", tuple(inputs), (out,))
    assert conv_transpose(region, WIDE) is None
    found = composed(region, WIDE)
    assert found is not None and any("products" in w.name for w in found.kernel.workspaces)

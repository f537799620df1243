"""image.resize against ONNX's reference evaluator and by hand."""

import itertools

import numpy as np
import pytest
from stage_oracle import onnx_reference, run_operator

import intarsia.op.image  # noqa: F401
from intarsia.dim import Symbol
from intarsia.ir.types import TupleType, tensor
from intarsia.op import entry
from intarsia.support.errors import TypeCheckError

rng = np.random.default_rng(3)
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]
SPATIAL = ((0, 0), (0, 2), (0, 3))


def data(*shape, dtype="float32"):
    return (
        rng.integers(0, 200, shape).astype(dtype)
        if "int" in dtype
        else rng.standard_normal(shape).astype(dtype)
    )


def resize(x, *, roi=None, scales=None, sizes=None, symbolic=SPATIAL, expect=None, atol=2e-5, **attrs):
    """Compare with ONNX (or `expect`), with static and symbolic sizes, `sizes` known or read at run time."""
    scales = None if scales is None else np.array(scales, np.float32)
    sizes = None if sizes is None else np.array(sizes, np.int64)
    roi = None if roi is None else np.array(roi, np.float32)
    arrays = [x, roi, scales, sizes]
    if expect is None:
        onnx_attrs = {k: v for k, v in attrs.items() if k != "coordinate_transformation"}
        if "coordinate_transformation" in attrs:
            onnx_attrs["coordinate_transformation_mode"] = attrs["coordinate_transformation"]
        expect = onnx_reference("Resize", arrays, opset=19, **{k: _plain(v) for k, v in onnx_attrs.items()})
    for symbols, contents in itertools.product([(), symbolic], [(3,), ()] if sizes is not None else [()]):
        run_operator(
            "image.resize",
            arrays,
            attrs,
            symbolic=symbols,
            known=contents,
            constants=(2,),
            expect=expect,
            atol=atol,
        )
    return expect


def _plain(v):
    return int(v) if isinstance(v, bool) else list(v) if isinstance(v, tuple) else v


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("scale", [(2.0, 3.0), (0.5, 1.5), (0.63, 2.37)])
def test_nearest_equals_onnx(coordinate, rounding, scale):
    x = data(1, 2, 4, 6)
    resize(
        x, scales=(1, 1, *scale), mode="nearest", coordinate_transformation=coordinate, nearest_mode=rounding
    )


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    "target", [{"scales": (1, 1, 2.0, 0.5)}, {"scales": (1, 1, 0.6, 1.7)}, {"sizes": (1, 2, 7, 3)}]
)
def test_interpolation_equals_onnx(coordinate, mode, target):
    resize(data(1, 2, 4, 6), **target, mode=mode, coordinate_transformation=coordinate)


@pytest.mark.parametrize("coordinate", ["half_pixel", "asymmetric", "align_corners"])
def test_nearest_by_sizes_equals_onnx(coordinate):
    resize(data(1, 2, 4, 6), sizes=(1, 2, 8, 9), mode="nearest", coordinate_transformation=coordinate)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude", [False, True])
@pytest.mark.parametrize("target", [{"scales": (1, 1, 0.6, 0.3)}, {"sizes": (1, 2, 3, 9)}])
def test_antialias_equals_onnx(mode, exclude, target):
    x = data(1, 2, 5, 7)
    resize(x, **target, mode=mode, antialias=True, exclude_outside=exclude)


def test_exclude_outside_and_cubic_coefficient_equal_onnx():
    attrs = {"exclude_outside": True, "cubic_coeff_a": -0.5, "coordinate_transformation": "half_pixel"}
    resize(data(1, 2, 4, 5), scales=(1, 1, 2.3, 0.7), mode="cubic", **attrs)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_crop_and_resize_equals_onnx(mode):
    roi = [0, 0, 0.45, 0.6, 1, 1, 0.63, 1.7]
    attrs = {"coordinate_transformation": "tf_crop_and_resize", "extrapolation_value": 10.0}
    resize(data(1, 1, 4, 5), roi=roi, sizes=(1, 1, 3, 4), mode=mode, symbolic=((0, 2),), **attrs)


@pytest.mark.parametrize("axes", [(2, 3), (3, 2), (-1,)])
def test_axes_equal_onnx(axes):
    x = data(1, 2, 4, 5)
    scales = (2.0, 0.6)[: len(axes)]
    wanted = [2.0, 0.6] if axes == (2, 3) else [0.6, 2.0] if axes == (3, 2) else [1.0, 2.0]
    expect = onnx_reference(
        "Resize", [x, None, np.array([1, 1, *wanted], np.float32)], opset=19, mode="linear"
    )
    resize(x, scales=scales, axes=axes, mode="linear", expect=expect)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_aspect_ratio_policies_equal_onnx(policy, mode):
    attrs = {"axes": (2, 3), "keep_aspect_ratio_policy": policy, "mode": mode}
    resize(data(1, 2, 4, 6), sizes=(7, 8), symbolic=((0, 2), (0, 3)), **attrs)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (0, 2, 3, 3), (2, 0, 3, 3), (1, 3, 0, 2)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_degenerate_shapes(shape, mode):
    x = data(*shape)
    expect = np.repeat(np.repeat(x, 2, axis=2), 2, axis=3)
    if x.size > 1:
        expect = None
    if x.size == 0:
        expect = np.zeros((shape[0], shape[1], shape[2] * 2, shape[3] * 2), np.float32)
    resize(x, scales=(1, 1, 2, 2), mode=mode, expect=expect)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float64", "float16"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_other_types(dtype, mode):
    x = data(1, 1, 3, 4, dtype=dtype)
    resize(x, scales=(1, 1, 2, 1.5), mode=mode, atol=1 if "int" in dtype else 2e-3)


@pytest.mark.parametrize(
    "shape, scales", [((7,), (2.0,)), ((3, 5), (1.0, 3.0)), ((1, 1, 2, 3, 4), (1, 1, 2, 2, 0.5))]
)
def test_other_ranks_equal_onnx(shape, scales):
    resize(data(*shape), scales=scales, mode="linear", symbolic=((0, 0),))


def test_whole_scales_make_integer_indices():
    from intarsia.kernel.compute import placeholder
    from intarsia.kernel.expr import Load

    h, w = Symbol("h"), Symbol("w")
    x = placeholder("x", (1, 3, h, w), "float32")
    scales = np.array([1, 1, 2, 4], np.float32)
    args = [entry.Arg(tensor(x.shape)), entry.Arg(TupleType(())), entry.Arg(tensor((4,)), None, scales)]
    site = entry.Site(entry.get("image.resize"), args, {"coordinate_transformation": "half_pixel"})
    site.out = (site.op.rule(site),)
    assert site.out[0].shape == (1, 3, 2 * h, 4 * w)
    stage = site.op.compute(site, [x, None, None, None]).producer
    i, j = Symbol(stage.axes[2]), Symbol(stage.axes[3])
    assert isinstance(stage.body, Load) and stage.body.indices[2:] == (i // 2, j // 4)


def test_sizes_read_at_run_time_are_symbols():
    args = [entry.Arg(tensor((1, 3, Symbol("h"), 8))), entry.Arg(TupleType(())), entry.Arg(TupleType(()))]
    site = entry.Site(entry.get("image.resize"), [*args, entry.Arg(tensor((4,), "int64"))])
    out = site.op.rule(site)
    assert len(site.bindings) == 4 and all(d.symbol in site.bindings for d in out.shape)


@pytest.mark.parametrize(
    "scales, attrs, words",
    [
        (None, {}, "either scales or sizes"),
        ([1, 1, 2], {}, "number of scales"),
        ([1, 1, 2, 0], {}, "positive"),
        ([1, 1, 2, 2], {"mode": "area"}, "area"),
        ([1, 1, 2, 2], {"antialias": True}, "antialias"),
        ([1, 1, 2, 2], {"coordinate_transformation": "tf_crop_and_resize"}, "region of interest"),
    ],
)
def test_misfits_are_refused(scales, attrs, words):
    missing = entry.Arg(TupleType(()))
    given = (
        missing if scales is None else entry.Arg(tensor((len(scales),)), None, np.array(scales, np.float32))
    )
    site = entry.Site(entry.get("image.resize"), [entry.Arg(tensor((1, 3, 4, 4))), missing, given], attrs)
    with pytest.raises(TypeCheckError, match=words):
        site.op.rule(site)


def test_scales_that_are_not_constant_are_refused():
    args = [entry.Arg(tensor((1, 3, 4, 4))), entry.Arg(TupleType(())), entry.Arg(tensor((4,)))]
    site = entry.Site(entry.get("image.resize"), args)
    with pytest.raises(TypeCheckError, match="known when the model is compiled"):
        site.op.rule(site)

"""Images: image.resize (ONNX Resize-19).

Along an axis of size n and scale s, place o of the result stands at coordinate v(o) of the data. `nearest`
takes the element at v rounded; `linear` and `cubic` sum the elements around v with weights by their distance,
with the border repeated outwards. Interpolation is separable, so each axis is one stage, with its
indices and weights (a few numbers for each place) in stages of their own.

Coordinates are computed in float32, as ONNX Runtime does. Where the scale is a small ratio that float32 holds
exactly and the mode is nearest, the index is integer arithmetic instead: the same number, and vectors see how
it runs. With align_corners and a scale that makes no whole size, the length is scale * size, as in ONNX's own
evaluator (ONNX Runtime takes the result's size).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np

from intarsia.dim import Dim, as_dim, ceildiv, dmax, dmin
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, reduce, reduce_axis, var
from intarsia.kernel.expr import Binary, Buffer, Cast, Const, Expr, Index, Select, Unary, cast, lift
from intarsia.op.entry import Operator, Site, register

_MODES = ("nearest", "linear", "cubic")
_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
)
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_POLICIES = ("stretch", "not_larger", "not_smaller")
_SIMPLE = 64  # the largest denominator of a ratio that stands for a float scale
_UNROLLED = 8  # so many elements are summed by one expression, which can be fused; more by a loop
F32 = "float32"


@dataclass(frozen=True, slots=True)
class _Axis:
    """One resized axis.

    number: its position; order: its position among the resized axes (for roi)
    scale:  the scale as a number, None where it depends on symbols
    ratio:  the scale as an exact ratio that float32 arithmetic meets too, None where there is none
    ratios: (result, data) sizes of which the scale is the only or extreme ratio; () with `scales`
    """

    number: int
    order: int
    size: Dim
    out: Dim
    scale: float | None
    ratio: Fraction | None
    ratios: tuple[tuple[Dim, Dim], ...] = ()


def _as_ratio(scale: float) -> Fraction:
    """The simple ratio that rounds to this float32, else its exact value."""
    near = Fraction(scale).limit_denominator(_SIMPLE)
    return near if float(np.float32(near.numerator / near.denominator)) == scale else Fraction(scale)


def _exact(ratio: Fraction | None) -> Fraction | None:
    """The ratio if float32 holds it and its multiples of sizes that occur."""
    if ratio is None or ratio.numerator > 1 << 10 or ratio.denominator > 1 << 10:
        return None
    power_of_two = ratio.denominator & (ratio.denominator - 1) == 0
    return ratio if power_of_two or ratio.numerator == 1 else None


def _resized_axes(site: Site) -> list[_Axis]:
    """The axes that change, in order. The result's other sizes are the data's."""
    shape, given = site.shape(0), site.attrs["axes"]
    numbers = range(len(shape)) if given is None else [site.axis(int(a), len(shape)) for a in given]
    if site.has(2) == site.has(3):
        site.fail("needs either scales or sizes")
    source = 2 if site.has(2) else 3
    if site.rank(source) != 1:
        site.fail(f"{('scales', 'sizes')[source - 2]} must have 1 dimension, not {site.rank(source)}")
    site.equal(site.shape(source)[0], len(numbers), "number of scales or sizes, and of axes")
    make = _by_scales if source == 2 else _by_sizes
    return make(site, [(a, k, shape[a]) for k, a in enumerate(numbers)])


def _by_scales(site: Site, axes: Sequence[tuple[int, int, Dim]]) -> list[_Axis]:
    scales = site.constant(2)
    if scales is None:
        site.fail(
            "the scales must be known when the model is compiled", remedy="give sizes, which may be computed"
        )
    made = []
    for (number, order, size), scale in zip(axes, np.asarray(scales, np.float32).tolist()):
        if not scale > 0:
            site.fail(f"the scale of axis {number} must be positive, not {scale}")
        ratio = _as_ratio(scale)
        out = (size * ratio.numerator) // ratio.denominator
        made.append(_Axis(number, order, size, out, scale, _exact(ratio)))
    return made


def _by_sizes(site: Site, axes: Sequence[tuple[int, int, Dim]]) -> list[_Axis]:
    sizes, policy = (
        [as_dim(d) for d in site.items(3, nonnegative=True)],
        site.attrs["keep_aspect_ratio_policy"],
    )
    ratios = tuple((wanted, size) for wanted, (_, _, size) in zip(sizes, axes))
    made = []
    for (number, order, size), own in zip(axes, ratios):
        if policy == "stretch":
            out, used = own[0], (own,)
        else:  # round(size · extreme ratio), which is the extreme of the rounded
            each = [(2 * size * wanted + of) // (2 * of) for wanted, of in ratios]
            out, used = (dmin if policy == "not_larger" else dmax)(*each), ratios
        scale = ratio = None
        if all(a.is_const and b.is_const and b != 0 for a, b in used):
            found = [Fraction(a.value, b.value) for a, b in used]
            ratio = max(found) if policy == "not_smaller" else min(found)
            scale = float(np.float32(ratio.numerator) / np.float32(ratio.denominator))
        elif len(used) == 1 and (multiple := _multiple(*own)):
            scale, ratio = float(multiple), Fraction(multiple)
        site.require(size, ">=", dmin(out, 1), f"an axis (here {number}) that is empty cannot grow: its size")
        made.append(_Axis(number, order, size, out, scale, _exact(ratio), used))
    return made


def _multiple(out: Dim, size: Dim) -> int | None:
    """k where out == k * size for all sizes."""
    if not out.terms or out.terms.keys() != size.terms.keys():
        return None
    monomial = next(iter(out.terms))
    k, rest = divmod(out.terms[monomial], size.terms[monomial])
    return k if rest == 0 and k > 0 and out == size * k else None


def _rule(site: Site) -> TensorType:
    choices = (
        ("mode", _MODES),
        ("coordinate_transformation", _COORDINATES),
        ("nearest_mode", _ROUNDINGS),
        ("keep_aspect_ratio_policy", _POLICIES),
    )
    for key, allowed in choices:
        if site.attrs[key] not in allowed:
            site.fail(f"{key} {site.attrs[key]!r} is not one of {', '.join(allowed)}")
    if site.attrs["antialias"] and site.attrs["mode"] == "nearest":
        site.fail("antialias needs mode linear or cubic")
    shape = list(site.shape(0))
    axes = _resized_axes(site)
    if site.attrs["coordinate_transformation"] == "tf_crop_and_resize":
        if not site.has(1):
            site.fail("tf_crop_and_resize needs a region of interest (argument roi)")
        site.equal(site.shape(1)[0], 2 * len(axes), "length of roi")
    for a in axes:
        shape[a.number] = a.out
    return TensorType(tuple(shape), site.dtype(0))


# ---- coordinates ------------------------------------------------------------------------------------------
def _f32(d: Dim) -> Expr:
    return lift(float(d.value) if d.is_const else d, F32)


def _scale(site: Site, axis: _Axis) -> Expr:
    if axis.scale is not None:
        return Const(axis.scale, F32)
    each = [_f32(out) / _f32(size) for out, size in axis.ratios]
    pick = "min" if site.attrs["keep_aspect_ratio_policy"] == "not_larger" else "max"
    result = each[0]
    for e in each[1:]:
        result = Binary(pick, result, e)
    return result


def _length(site: Site, axis: _Axis) -> Expr:
    """scale · size, which need not be whole; the result's size where it was given."""
    if len(axis.ratios) == 1:
        return _f32(axis.out)
    if axis.scale is not None and axis.size.is_const:
        return Const(float(np.float32(axis.scale) * np.float32(axis.size.value)), F32)
    return _scale(site, axis) * _f32(axis.size)


def _coordinate(site: Site, axis: _Axis, o: Dim, roi: Buffer | None) -> Expr:
    """v(o) in float32."""
    mode, place, scale = site.attrs["coordinate_transformation"], _f32(o), _scale(site, axis)
    half = (place + 0.5) / scale - 0.5
    last = _f32(axis.size) - 1.0
    match mode:
        case "asymmetric":
            return place / scale
        case "half_pixel":
            return half
        case "pytorch_half_pixel":
            if axis.out.is_const:
                return half if axis.out.value > 1 else Const(0.0, F32)
            return Select(Index(axis.out) > 1, half, Const(0.0, F32))
        case "half_pixel_symmetric":
            adjustment = _f32(axis.out) / _length(site, axis)
            return _f32(axis.size) / 2.0 * (Const(1.0, F32) - adjustment) + half
        case "align_corners":
            length = _length(site, axis)
            return Select(length.equals(1.0), Const(0.0, F32), place * last / (length - 1.0))
    assert roi is not None
    start, end = (cast(roi[axis.order + k * roi.shape[0] // 2], F32) for k in (0, 1))
    length = _length(site, axis)
    centre = (end - start) * last / 2.0
    inner = Select(length.equals(1.0), centre, place * (end - start) * last / (length - 1.0))
    return start * last + inner


def _exact_index(site: Site, axis: _Axis, o: Dim) -> Dim | None:
    """The nearest element's index as integer arithmetic, where that equals the float formula."""
    mode, rounding = site.attrs["coordinate_transformation"], site.attrs["nearest_mode"]
    if axis.ratio is None or mode not in ("asymmetric", "half_pixel"):
        return None
    p, q = axis.ratio.numerator, axis.ratio.denominator  # scale = p / q
    top, bottom = (o * q, p) if mode == "asymmetric" else ((2 * o + 1) * q - p, 2 * p)
    if mode == "half_pixel" and q == 1 and rounding.startswith("round"):
        return o // p  # |v - o // p| < 1/2
    match rounding:
        case "floor":
            index = top // bottom
        case "ceil":
            index = ceildiv(top, bottom)
        case "round_prefer_floor":
            index = ceildiv(2 * top - bottom, 2 * bottom)
        case _:
            index = (2 * top + bottom) // (2 * bottom)
    if mode == "asymmetric" and rounding == "floor":
        return index  # o < size·p/q, so the index is below size
    return dmax(0, dmin(index, axis.size - 1))


def _clamped(index: Expr, size: Dim) -> Expr:
    return Binary("max", Const(0, "int64"), Binary("min", index, Index(size - 1)))


# ---- nearest ----------------------------------------------------------------------------------------------
def _rounded(v: Expr, rounding: str) -> Expr:
    match rounding:
        case "floor":
            return Unary("floor", v)
        case "ceil":
            return Unary("ceil", v)
        case "round_prefer_floor":
            return Unary("ceil", v - 0.5)
    return Unary("floor", v + 0.5)


def _nearest(site: Site, x: Buffer, axes: Sequence[_Axis], roi: Buffer | None) -> Buffer:
    crop = site.attrs["coordinate_transformation"] == "tf_crop_and_resize"
    rounding = site.attrs["nearest_mode"]
    tables: dict[int, Buffer] = {}
    for a in axes:
        if _exact_index(site, a, as_dim(0)) is None:

            def entry(o: Dim, a: _Axis = a) -> Expr:
                return _clamped(Cast(_rounded(_coordinate(site, a, o, roi), rounding), "int64"), a.size)

            tables[a.number] = compute((a.out,), entry, dtype="int64", name="nearest")

    def element(*index: Dim) -> Expr:
        source: list = list(index)
        outside: list[Expr] = []
        for a in axes:
            o, table = index[a.number], tables.get(a.number)
            source[a.number] = _exact_index(site, a, o) if table is None else table[o]
            if crop:
                outside.append(_outside(_coordinate(site, a, o, roi), a.size))
        return _extrapolated(site, outside, x[tuple(source)])

    return compute(site.out[0].shape, element, dtype=x.dtype, name="resize")


def _outside(v: Expr, size: Dim) -> Expr:
    return Binary("or", v < 0.0, v > _f32(size) - 1.0)


def _extrapolated(site: Site, outside: Sequence[Expr], value: Expr) -> Expr:
    if not outside:
        return value
    cond = outside[0]
    for c in outside[1:]:
        cond = Binary("or", cond, c)
    fill = site.attrs["extrapolation_value"]
    return Select(cond, Const(fill if "float" in value.dtype else round(fill), value.dtype), value)


# ---- linear and cubic -------------------------------------------------------------------------------------
def _kernel(mode: str, a: float) -> tuple[int, Callable[[Expr], Expr]]:
    """(reach, weight of an element at a distance >= 0): a triangle, or Keys' cubic with parameter a."""
    if mode == "linear":
        return 1, lambda d: Binary("max", Const(0.0, F32), Const(1.0, F32) - d)

    def cubic(d: Expr) -> Expr:
        near = ((d * (a + 2) - (a + 3)) * d) * d + 1.0
        far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
        return Select(d <= 1.0, near, Select(d < 2.0, far, Const(0.0, F32)))

    return 2, cubic


def _taps(site: Site, axis: _Axis, reach: int) -> tuple[Dim, Expr]:
    """(how many elements have a weight, what scales their distance): over 2·reach only if antialiased."""
    if not site.attrs["antialias"]:
        return as_dim(2 * reach), Const(1.0, F32)
    if axis.scale is not None:
        shrink = min(axis.scale, 1.0)
        return as_dim(2 * ceil(reach / shrink)), Const(shrink, F32)
    each = [ceildiv(reach * size, dmax(out, 1)) for out, size in axis.ratios]
    widest = dmin(*each) if site.attrs["keep_aspect_ratio_policy"] == "not_smaller" else dmax(*each)
    return dmax(reach, widest) * 2, Binary("min", _scale(site, axis), Const(1.0, F32))


def _interpolate(site: Site, x: Buffer, axis: _Axis, roi: Buffer | None) -> Buffer:
    """x resized along one axis."""
    crop = site.attrs["coordinate_transformation"] == "tf_crop_and_resize"
    reach, weight_at = _kernel(site.attrs["mode"], site.attrs["cubic_coeff_a"])
    taps, shrink = _taps(site, axis, reach)
    first = 1 - taps // 2  # of the taps, relative to floor(v)
    normalised = site.attrs["antialias"] or site.attrs["exclude_outside"]
    places = compute((axis.out,), lambda o: _coordinate(site, axis, o, roi), dtype=F32, name="coordinate")

    def index_of(o: Dim, t: Dim) -> Expr:
        return Cast(Unary("floor", places[o]), "int64") + Index(t + first)

    def raw(o: Dim, t: Dim) -> Expr:
        fraction = places[o] - Unary("floor", places[o])
        value = weight_at(Unary("abs", _f32(t + first) - fraction) * shrink)
        if not site.attrs["exclude_outside"]:
            return value
        i = index_of(o, t)
        return Select(Binary("and", i >= 0, i < axis.size), value, Const(0.0, F32))

    weights = compute((axis.out, taps), raw, dtype=F32, name="weight")
    if normalised:
        plain, k = weights, reduce_axis(taps)
        total = compute(
            (axis.out,), lambda o: reduce("sum", plain[o, var(k)], k), dtype=F32, name="weight_sum"
        )
        weights = compute((axis.out, taps), lambda o, t: plain[o, t] / total[o], dtype=F32, name="weight")
    sources = compute(
        (axis.out, taps), lambda o, t: _clamped(index_of(o, t), axis.size), dtype="int64", name="index"
    )
    tap, acc, n = reduce_axis(taps), x.dtype, axis.number
    shape = (*x.shape[:n], axis.out, *x.shape[n + 1 :])

    def term(index: tuple[Dim, ...], t: Dim) -> Expr:
        source = (*index[:n], sources[index[n], t], *index[n + 1 :])
        return cast(weights[index[n], t], acc) * x[source]

    def summed(*index: Dim) -> Expr:
        if not taps.is_const or taps.value > _UNROLLED:
            return reduce("sum", term(index, var(tap)), tap)
        total = term(index, as_dim(0))
        for t in range(1, taps.value):
            total = total + term(index, as_dim(t))
        return total

    result = compute(shape, summed, dtype=acc, name="resize")
    if not crop:
        return result
    inner = result

    def cropped(*index: Dim) -> Expr:
        return _extrapolated(site, [_outside(places[index[n]], axis.size)], inner[index])

    return compute(shape, cropped, dtype=acc, name="resize")


def _compute(site: Site, buffers: list) -> Buffer:
    x, roi = buffers[0], buffers[1] if len(buffers) > 1 else None
    crop = site.attrs["coordinate_transformation"] == "tf_crop_and_resize"
    resized = _resized_axes(site)
    axes = [a for a in resized if crop or not (a.scale == 1.0 and a.out == a.size)]
    if not axes:
        return compute(x.shape, lambda *i: x[i], dtype=x.dtype, name="resize")
    if site.attrs["mode"] == "nearest":
        return _nearest(site, x, axes, roi)
    acc = x.dtype if x.dtype in ("float32", "float64") else "float64" if "64" in x.dtype else F32
    wide = x if x.dtype == acc else compute(x.shape, lambda *i: cast(x[i], acc), dtype=acc, name="wide")
    for a in axes:
        wide = _interpolate(site, wide, a, roi)
    if wide.dtype == x.dtype:
        return wide
    rounded = "int" in x.dtype

    def narrowed(*i: Dim) -> Expr:
        return cast(Unary("round", wide[i]) if rounded else wide[i], x.dtype)

    return compute(wide.shape, narrowed, dtype=x.dtype, name="resize")


# ---- the NumPy side ---------------------------------------------------------------------------------------
def _numpy_coordinates(mode, size, out, scale, length, start, end):
    """float32 coordinate of every place."""
    one, half = np.float32(1), np.float32(0.5)
    o, s, n = np.arange(out, dtype=np.float32), np.float32(scale), np.float32(size)
    with np.errstate(divide="ignore", invalid="ignore"):
        centred = (o + half) / s - half
        match mode:
            case "asymmetric":
                return o / s
            case "half_pixel":
                return centred
            case "pytorch_half_pixel":
                return centred if out > 1 else np.zeros(out, np.float32)
            case "half_pixel_symmetric":
                return n / np.float32(2) * (one - np.float32(out) / np.float32(length)) + centred
            case "align_corners":
                return o * 0 if length == 1 else o * (n - one) / (np.float32(length) - one)
        inner = (end - start) * (n - one) / np.float32(2) if length == 1 else (
            o * (end - start) * (n - one) / (np.float32(length) - one)
        )  # fmt: skip
        return (start * (n - one) + inner + o * 0).astype(np.float32)


def _numpy_weights(mode, v, scale, antialias, a, exclude, size):
    """(indices [out, taps] before clamping, weights [out, taps])."""
    reach, shrink = (1 if mode == "linear" else 2), min(float(scale), 1.0) if antialias else 1.0
    count = 2 * ceil(reach / shrink)
    base = np.floor(v)
    offsets = np.arange(count) + 1 - count // 2
    d = np.abs(offsets - (v - base).astype(np.float64)[:, None]) * shrink
    if mode == "linear":
        w = np.clip(1 - d, 0, None)
    else:
        near = (a + 2) * d**3 - (a + 3) * d**2 + 1
        w = np.where(d <= 1, near, np.where(d < 2, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a, 0))
    index = base.astype(np.int64)[:, None] + offsets
    if exclude:
        w = np.where((index >= 0) & (index < size), w, 0)
    if exclude or antialias:
        w = w / w.sum(axis=1, keepdims=True)
    return index, w


def _reference(
    x: np.ndarray,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    mode="nearest",
    coordinate_transformation="half_pixel",
    nearest_mode="round_prefer_floor",
    cubic_coeff_a=-0.75,
    exclude_outside=False,
    extrapolation_value=0.0,
    antialias=False,
    axes=None,
    keep_aspect_ratio_policy="stretch",
):
    numbers = [a % x.ndim for a in (range(x.ndim) if axes is None else axes)]
    crop = coordinate_transformation == "tf_crop_and_resize"
    shape = x.shape
    if scales is not None:
        factors = [float(np.float32(s)) for s in scales]
        outs = [
            n * r.numerator // r.denominator
            for n, r in zip((shape[a] for a in numbers), map(_as_ratio, factors))
        ]
        lengths = [np.float32(f) * np.float32(shape[a]) for f, a in zip(factors, numbers)]
    else:
        outs = [int(s) for s in sizes]
        exact = [Fraction(o, max(shape[a], 1)) for o, a in zip(outs, numbers)]
        if keep_aspect_ratio_policy != "stretch":
            exact = [(min if keep_aspect_ratio_policy == "not_larger" else max)(exact)] * len(exact)
            outs = [int(r * shape[a] + Fraction(1, 2)) for r, a in zip(exact, numbers)]
            lengths = [np.float32(r.numerator) / np.float32(r.denominator) * np.float32(shape[a])
                       for r, a in zip(exact, numbers)]  # fmt: skip
        else:
            lengths = [np.float32(o) for o in outs]
        factors = [float(np.float32(r.numerator) / np.float32(r.denominator)) for r in exact]
    y = x if mode == "nearest" else x.astype(np.float64)
    for k, (a, out, factor, length) in enumerate(zip(numbers, outs, factors, lengths)):
        size = shape[a]
        if out == size and factor == 1 and not crop:
            continue
        start, end = (np.float32(roi[k]), np.float32(roi[len(numbers) + k])) if crop else (None, None)
        v = _numpy_coordinates(coordinate_transformation, size, out, factor, length, start, end)
        if mode == "nearest":
            half = np.float32(0.5)
            rounded = {"floor": np.floor(v), "ceil": np.ceil(v), "round_prefer_floor": np.ceil(v - half),
                       "round_prefer_ceil": np.floor(v + half)}[nearest_mode]  # fmt: skip
            y = np.take(y, np.clip(rounded.astype(np.int64), 0, size - 1), axis=a)
        else:
            index, w = _numpy_weights(mode, v, factor, antialias, cubic_coeff_a, exclude_outside, size)
            taken = np.moveaxis(np.take(y, np.clip(index, 0, size - 1), axis=a), (a, a + 1), (-2, -1))
            y = np.moveaxis(np.einsum("...ot,ot->...o", taken, w), -1, a)
        if crop:
            outside = ((v < 0) | (v > size - 1)).reshape([-1 if i == a else 1 for i in range(x.ndim)])
            fill = extrapolation_value if y.dtype.kind not in "iu" else round(extrapolation_value)
            y = np.where(outside, np.asarray(fill, y.dtype), y)
    if x.dtype.kind in "iu" and y.dtype != x.dtype:
        info = np.iinfo(x.dtype)
        y = np.clip(np.rint(y), info.min, info.max)
    return np.ascontiguousarray(y, dtype=x.dtype)


register(
    Operator(
        "image.resize",
        ("x", "roi?", "scales?", "sizes?"),
        _rule,
        _reference,
        _compute,
        attrs={
            "mode": "nearest",
            "coordinate_transformation": "half_pixel",
            "nearest_mode": "round_prefer_floor",
            "cubic_coeff_a": -0.75,
            "exclude_outside": False,
            "extrapolation_value": 0.0,
            "antialias": False,
            "axes": None,
            "keep_aspect_ratio_policy": "stretch",
        },
        value_args=(2, 3),
        doc="x at other sizes along its axes: nearest, linear or cubic, with ONNX's coordinate conventions.",
    )
)

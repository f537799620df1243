"""Operators that give elements other places: reshape and its kin, transpose, flip, concatenate, split.

Semantics are ONNX's (newest opset). Where a size is not known at compile time it is an expression over the
function's symbols; contents of shape arguments that are not known become fresh symbols (`Site.items`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.dim import Dim, as_dim, ceildiv, dmax, dmin, product
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.kernel.compute import compute
from intarsia.kernel.expr import Buffer, Expr, Index, Select
from intarsia.op.entry import REQUIRED, Operator, Site, register
from intarsia.op.rules import (
    at,
    common_dtype,
    known,
    known_moved,
    normal_axes,
    not_negative,
)  # fmt: skip

# ---- views: the same elements in the same order ------------------------------------------------------------


def regroup(source: Sequence[Dim], target: Sequence[Dim], indices: Sequence[Dim]) -> tuple[Dim, ...]:
    """Where in `source` the element at `indices` of `target` is: two shapes of the same row-major elements.

    Dimensions are matched in runs of equal size, so that only what is split or merged costs arithmetic.
    """
    if any(d == 0 for d in (*source, *target)):
        return tuple(as_dim(0) for _ in source)  # no element, so no place is ever asked for
    inside = [(axis, d) for axis, d in enumerate(source) if d != 1]
    outside = [(d, i) for d, i in zip(target, indices, strict=True) if d != 1]
    result = [as_dim(0)] * len(source)
    while inside:
        ins, outs = _run(inside, outside)
        flat = as_dim(0)
        for d, i in outs:
            flat = flat * d + i
        stride = as_dim(1)
        for place, (axis, d) in reversed(list(enumerate(ins))):
            i = flat if place == len(ins) - 1 else flat // stride
            result[axis] = i if place == 0 else i % d
            stride = stride * d
        inside, outside = inside[len(ins) :], outside[len(outs) :]
    return tuple(result)


def _run(inside: list[tuple[int, Dim]], outside: list[tuple[Dim, Dim]]) -> tuple[list, list]:
    """The shortest leading runs of both sides with equal element counts (or all that is left)."""
    ins, outs = 1, min(1, len(outside))
    a, b = inside[0][1], outside[0][0] if outside else as_dim(1)
    while a != b:
        if ins < len(inside) and (outs == len(outside) or _divides(a, b)):
            a, ins = a * inside[ins][1], ins + 1
        elif outs < len(outside) and (ins == len(inside) or _divides(b, a)):
            b, outs = b * outside[outs][0], outs + 1
        else:
            return inside, outside
    return inside[:ins], outside[:outs]


def _divides(a: Dim, b: Dim) -> bool:
    return (b // a) * a == b


def _view(site: Site, bufs: list) -> Buffer:
    x = bufs[0]
    return compute(site.out[0].shape, lambda *i: x[regroup(x.shape, site.out[0].shape, i)], name="view")


def quotient(site: Site, above: Sequence[Dim], below: Sequence[Dim], what: str) -> Dim:
    """product(above) / product(below), which must be a whole number (checked where that is not clear)."""
    rest, left = list(above), []
    for d in below:
        if d in rest:
            rest.remove(d)
        else:
            left.append(d)
    total, divisor = product(rest), product(left)
    if divisor == 0:
        site.fail(f"{what} cannot be inferred beside a dimension of size 0")
    result = total // divisor
    if result * divisor != total:
        site.require(divisor, ">", 0, f"{what} is inferred by division")
        site.equal(result * divisor, total, f"{what}: the element count must divide")
    return result


def _reshape_rule(site: Site) -> Type:
    x, codes = site.shape(0), site.items(1)
    if codes.ndim != 1:
        site.fail(f"the new shape must be a vector, not of rank {codes.ndim}")
    codes = [as_dim(c) for c in codes]
    if site.value(1) is None:
        shape = _decode(site, x, codes)
    else:
        shape = _known_codes(site, x, codes)
    left, right = list(x), []
    for d in shape:
        if d in left:
            left.remove(d)
        else:
            right.append(d)
    if not any(d == 0 for d in (*x, *shape)) or product(x) != product(shape):
        site.equal(product(left), product(right), f"element count of {_text(x)} against {_text(shape)}")
    return TensorType(shape, site.dtype(0))


def _known_codes(site: Site, x: Sequence[Dim], codes: list[Dim]) -> tuple[Dim, ...]:
    """The shape that ONNX's codes stand for: 0 copies x's dimension (but for `allowzero`), -1 is the rest."""
    shape: list[Dim | None] = []
    for axis, code in enumerate(codes):
        if code == 0 and not site.attrs["allowzero"]:
            if axis >= len(x):
                site.fail(f"code 0 at place {axis} copies a dimension that x, of rank {len(x)}, has not")
            shape.append(x[axis])
        elif code == -1:
            shape.append(None)
        else:
            site.require(code, ">=", 0, f"dimension {axis} of the new shape")
            shape.append(code)
    holes = [axis for axis, d in enumerate(shape) if d is None]
    if len(holes) > 1:
        site.fail("more than one dimension of the new shape is -1")
    for axis in holes:
        shape[axis] = quotient(
            site, x, [d for d in shape if d is not None], f"dimension {axis} (-1) of the new shape"
        )
    return tuple(d for d in shape if d is not None)


def _decode(site: Site, x: Sequence[Dim], codes: list[Dim]) -> tuple[Dim, ...]:
    """The shape for codes that only run time tells, each of which may be a size, 0 or -1.

    A code's meanings are numbers of which all but one are 0 or less, so that their maximum is the dimension.
    """
    copied, inferred = [], []
    for axis, code in enumerate(codes):
        is_zero = 1 - dmin(dmax(code, -code), 1)
        copies = not site.attrs["allowzero"] and axis < len(x)
        copied.append(is_zero * x[axis] if copies else as_dim(0))
        inferred.append(dmin(dmax(-code, 0), 1))
    others = product(dmax(*meanings) for meanings in zip(codes, copied, inferred))
    rest = product(x) // dmax(others, 1)
    return tuple(dmax(code, copy, hole * rest) for code, copy, hole in zip(codes, copied, inferred))


def _text(shape: Sequence[Dim]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _reshape(x: np.ndarray, shape: np.ndarray, *, allowzero: bool) -> np.ndarray:
    codes = [int(c) for c in shape]
    copied = {i for i, c in enumerate(codes) if c == 0 and not allowzero}
    if -1 in codes:  # what was copied cancels, even where it is empty
        rest = [d for i, d in enumerate(x.shape) if i not in copied]
        others = [c for i, c in enumerate(codes) if i not in copied and c != -1]
        if 0 in others:  # what remains is told by the dimensions that are not empty
            rest, others = ([d for d in dims if d > 0] for dims in (rest, others))
        hole = int(np.prod(rest, dtype=np.int64)) // int(np.prod(others, dtype=np.int64))
        codes = [hole if c == -1 else c for c in codes]
    return x.reshape([x.shape[i] if i in copied else c for i, c in enumerate(codes)])


def _known_reshape(site: Site) -> np.ndarray | None:
    found = known(site, 0, 1)
    if found is None or not all(as_dim(d).is_const for d in found[1]):
        return None
    return _reshape(*found, allowzero=bool(site.attrs["allowzero"]))


register(
    Operator(
        "reshape",
        ("x", "shape"),
        _reshape_rule,
        _reshape,
        _view,
        attrs={"allowzero": False},
        value_args=(1,),
        value=_known_reshape,
        view=True,
        doc="the elements of x in a new shape; 0 copies a dimension, -1 is what remains",
    )
)


def _expand_dims_rule(site: Site) -> Type:
    x, given = site.shape(0), tuple(site.attrs["axes"])
    rank = len(x) + len(given)
    axes = normal_axes(site, given, rank)
    rest = iter(x)
    return TensorType(tuple(as_dim(1) if axis in axes else next(rest) for axis in range(rank)), site.dtype(0))


register(
    Operator(
        "expand_dims",
        ("x",),
        _expand_dims_rule,
        lambda x, *, axes: np.expand_dims(x, tuple(axes)),
        _view,
        attrs={"axes": REQUIRED},
        value=known_moved(lambda site, x: np.expand_dims(x, site.attrs["axes"])),
        view=True,
        doc="dimensions of size 1 put in at the given places of the result",
    )
)


def _squeeze_rule(site: Site) -> Type:
    x, given = site.shape(0), site.attrs["axes"]
    if given is None:
        axes = tuple(axis for axis, d in enumerate(x) if d == 1)
        for axis, d in enumerate(x):
            if not d.is_const:
                site.require(d, ">", 1, f"squeeze without axes, dimension {axis} is kept")
    else:
        axes = normal_axes(site, given, len(x))
        for axis in axes:
            site.equal(x[axis], 1, f"squeezed dimension {axis}")
    return TensorType(tuple(d for axis, d in enumerate(x) if axis not in axes), site.dtype(0))


register(
    Operator(
        "squeeze",
        ("x",),
        _squeeze_rule,
        lambda x, *, axes: np.squeeze(x, None if axes is None else tuple(axes)),
        _view,
        attrs={"axes": None},
        value=known_moved(lambda site, x: np.squeeze(x, site.attrs["axes"])),
        view=True,
        doc="dimensions of size 1 taken out (all of them without axes)",
    )
)


def _flatten_rule(site: Site) -> Type:
    x, axis = site.shape(0), int(site.attrs["axis"])
    axis = axis if axis == len(x) else site.axis(axis, len(x))
    return TensorType((product(x[:axis]), product(x[axis:])), site.dtype(0))


def _flatten(x: np.ndarray, *, axis: int) -> np.ndarray:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(int(np.prod(x.shape[:axis])), int(np.prod(x.shape[axis:])))


register(
    Operator(
        "flatten", ("x",), _flatten_rule, _flatten, _view, attrs={"axis": 1}, view=True,
        value=known_moved(lambda site, x: _flatten(x, axis=int(site.attrs["axis"]))),
        doc="a matrix: dimensions before axis by those from it on",
    )
)  # fmt: skip


# ---- transpose, flip ---------------------------------------------------------------------------------------
def _permutation(site: Site) -> tuple[int, ...]:
    axes, rank = site.attrs["axes"], site.rank(0)
    axes = tuple(reversed(range(rank))) if axes is None else normal_axes(site, axes, rank)
    if len(axes) != rank:
        site.fail(f"axes {axes} must name all {rank} dimensions")
    return axes


def _transpose_compute(site: Site, bufs: list) -> Buffer:
    axes = _permutation(site)

    def element(*i: Dim) -> Expr:
        return bufs[0][tuple(i[axes.index(axis)] for axis in range(len(axes)))]

    return compute(site.out[0].shape, element, name="transpose")


register(
    Operator(
        "transpose",
        ("x",),
        lambda site: TensorType(tuple(site.shape(0)[a] for a in _permutation(site)), site.dtype(0)),
        lambda x, *, axes: np.ascontiguousarray(np.transpose(x, axes)),
        _transpose_compute,
        attrs={"axes": None},
        value=known_moved(lambda site, x: np.transpose(x, _permutation(site))),
        doc="dimension k of the result is dimension axes[k] of x (reversed without axes)",
    )
)


def _flip_axes(site: Site) -> tuple[int, ...]:
    return normal_axes(site, site.attrs["axes"], site.rank(0))


def _flip_rule(site: Site) -> Type:
    _flip_axes(site)
    return site.tensor(0)


def _flip_compute(site: Site, bufs: list) -> Buffer:
    axes, shape = _flip_axes(site), site.out[0].shape

    def element(*i: Dim) -> Expr:
        return bufs[0][tuple(d - 1 - j if axis in axes else j for axis, (d, j) in enumerate(zip(shape, i)))]

    return compute(shape, element, name="flip")


register(
    Operator(
        "flip",
        ("x",),
        _flip_rule,
        lambda x, *, axes: np.ascontiguousarray(np.flip(x, tuple(axes))),
        _flip_compute,
        attrs={"axes": REQUIRED},
        value=known_moved(lambda site, x: np.flip(x, _flip_axes(site))),
        doc="the order along the axes reversed",
    )
)


# ---- concatenate, split ------------------------------------------------------------------------------------
def _concatenate_axis(site: Site) -> int:
    return site.axis(int(site.attrs["axis"]), site.rank(0))


def _concatenate_rule(site: Site) -> Type:
    if not site.args:
        site.fail("there is nothing to concatenate")
    dtype = common_dtype(site, range(len(site.args)))
    if site.rank(0) == 0:
        site.fail("rank-0 tensors cannot be concatenated", remedy="expand_dims first")
    axis, shape, total = _concatenate_axis(site), list(site.shape(0)), as_dim(0)
    for k in range(len(site.args)):
        other = site.shape(k)
        if len(other) != len(shape):
            site.fail(f"argument {k + 1} has rank {len(other)}, argument 1 has rank {len(shape)}")
        total = total + other[axis]
        for a, d in enumerate(other):
            if a != axis:
                shape[a] = site.equal(shape[a], d, f"dimension {a} of argument {k + 1} of concatenate")
    shape[axis] = total
    return TensorType(tuple(shape), dtype)


def _concatenate_compute(site: Site, bufs: list) -> Buffer:
    axis = _concatenate_axis(site)
    parts = [b for b in bufs if b.shape[axis] != 0] or bufs[:1]
    offsets = [as_dim(0)]
    for b in parts:
        offsets.append(offsets[-1] + b.shape[axis])

    def element(*i: Dim) -> Expr:
        value: Expr | None = None
        for b, low, high in reversed(list(zip(parts, offsets, offsets[1:]))):
            own = at(b, (*i[:axis], i[axis] - low, *i[axis + 1 :])) if b.shape[axis] != 1 else at(b, i)
            value = own if value is None else Select(Index(i[axis]) < Index(high), own, value)
        assert value is not None
        return value

    return compute(site.out[0].shape, element, name="concatenate", hint={"pieces": (axis, tuple(offsets))})


def _known_concatenate(site: Site) -> np.ndarray | None:
    found = known(site, *range(len(site.args)))
    return None if found is None else np.concatenate(found, _concatenate_axis(site))


register(
    Operator(
        "concatenate",
        ("*xs",),
        _concatenate_rule,
        lambda *xs, axis: np.concatenate(xs, axis),
        _concatenate_compute,
        attrs={"axis": REQUIRED},
        value=_known_concatenate,
        doc="tensors put one after the other along the axis",
    )
)


def _split_axis(site: Site) -> int:
    return site.axis(int(site.attrs["axis"]), site.rank(0))


def _split_sizes(site: Site) -> list[Dim]:
    size, parts = site.shape(0)[_split_axis(site)], site.attrs["parts"]
    if site.has(1):
        return [as_dim(d) for d in site.items(1, nonnegative=True).reshape(-1)]
    if not isinstance(parts, int) or parts < 1:
        site.fail("needs the sizes of the parts, or their number", remedy="sizes or parts=…")
    if size % parts == 0:
        return [size // parts] * parts
    most = ceildiv(size, parts)
    return [not_negative(site, dmin(most, size - k * most)) for k in range(parts)]


def _split_rule(site: Site) -> Type:
    x, axis, sizes = site.shape(0), _split_axis(site), _split_sizes(site)
    if site.has(1):
        total = as_dim(0)
        for k, d in enumerate(sizes):
            site.require(d, ">=", 0, f"size of part {k}")
            total = total + d
        site.equal(total, x[axis], "the sizes of the parts add up to the dimension")
    return TupleType(tuple(TensorType((*x[:axis], d, *x[axis + 1 :]), site.dtype(0)) for d in sizes))


def _split_offsets(site: Site) -> list[Dim]:
    offsets = [as_dim(0)]
    for d in _split_sizes(site)[:-1]:
        offsets.append(offsets[-1] + d)
    return offsets


def _split_compute(site: Site, bufs: list) -> tuple[Buffer, ...]:
    axis, x = _split_axis(site), bufs[0]

    def part(shape: tuple[Dim, ...], low: Dim) -> Buffer:
        return compute(shape, lambda *i: x[(*i[:axis], i[axis] + low, *i[axis + 1 :])], name="split")

    return tuple(part(t.shape, low) for t, low in zip(site.out, _split_offsets(site), strict=True))


def _split(
    x: np.ndarray, sizes: np.ndarray | None = None, *, axis: int, parts: int | None
) -> tuple[np.ndarray, ...]:
    if sizes is None:
        assert parts is not None  # the rule has seen to it
        most = -(-x.shape[axis] // parts)
        places = [min(k * most, x.shape[axis]) for k in range(1, parts)]
    else:
        places = np.cumsum(sizes)[:-1]
    return tuple(np.ascontiguousarray(p) for p in np.split(x, places, axis))


def _known_split(site: Site):
    """One array for each part."""
    found, sizes = known(site, 0), _split_sizes(site)
    if found is None or not all(d.is_const for d in sizes):
        return None
    return tuple(np.split(found[0], np.cumsum([d.value for d in sizes])[:-1], _split_axis(site)))


register(
    Operator(
        "split",
        ("x", "sizes?"),
        _split_rule,
        _split,
        _split_compute,
        attrs={"axis": 0, "parts": None},
        value_args=(1,),
        value=_known_split,
        doc="parts of x along the axis; without sizes equal ones, the last smaller",
    )
)

"""Operators that repeat or surround elements, and those that move them between channels and space."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Dim, as_dim, dmax, dmin
from intarsia.ir.types import TensorType, Type
from intarsia.kernel.compute import compute
from intarsia.kernel.expr import Binary, Buffer, Expr, Index, Select
from intarsia.op.entry import REQUIRED, Operator, Site, register
from intarsia.op.rules import (
    at,
    broadcast,
    constant_items,
    first,
    known,
    normal_axes,
    one_element,
    zero,
)
from intarsia.op.shape import quotient


# ---- expand ------------------------------------------------------------------------------------------------
def _expand_rule(site: Site) -> Type:
    x, wanted = site.shape(0), site.items(1, nonnegative=True)
    if wanted.ndim != 1:
        site.fail(f"the shape must be a vector, not of rank {wanted.ndim}")
    shape = [as_dim(d) for d in wanted]
    if (
        site.value(1) is None
    ):  # a size that only run time tells may be 1, and then leaves x's dimension as it is
        for axis in range(-min(len(x), len(shape)), 0):
            if x[axis] != 1:
                site.equal(
                    (shape[axis] - 1) * (shape[axis] - x[axis]),
                    0,
                    f"expand of dimension {axis} to its size or 1",
                )
                shape[axis] = x[axis]
    return TensorType(broadcast(site, x, shape), site.dtype(0))


def _expand(x: np.ndarray, shape: np.ndarray) -> np.ndarray:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(d) for d in shape))).copy()


def _expand_value(site: Site) -> np.ndarray | None:
    found = known(site, 0, 1)
    if found is None or not all(as_dim(d).is_const for d in found[1]):
        return None
    return _expand(*found)


register(
    Operator(
        "expand",
        ("x", "shape"),
        _expand_rule,
        _expand,
        lambda site, bufs: compute(site.out[0].shape, lambda *i: at(bufs[0], i), name="expand"),
        value_args=(1,),
        value=_expand_value,
        doc="x broadcast against the shape",
    )
)


# ---- tile --------------------------------------------------------------------------------------------------
def _repeats(site: Site) -> list[Dim]:
    repeats = [as_dim(d) for d in site.items(1, nonnegative=True).reshape(-1)]
    if len(repeats) != site.rank(0):
        site.fail(f"{len(repeats)} repeats for a tensor of rank {site.rank(0)}")
    return repeats


def _tile_rule(site: Site) -> Type:
    repeats = _repeats(site)
    for axis, r in enumerate(repeats):
        site.require(r, ">=", 0, f"repeats of dimension {axis}")
    return TensorType(tuple(d * r for d, r in zip(site.shape(0), repeats)), site.dtype(0))


def _tile_compute(site: Site, bufs: list) -> Buffer:
    x, repeats = bufs[0], _repeats(site)

    def place(i: Dim, d: Dim, r: Dim) -> Dim:
        return as_dim(0) if d == 1 or d == 0 else i if r == 1 else i % d

    return compute(
        site.out[0].shape,
        lambda *i: x[tuple(place(j, d, r) for j, d, r in zip(i, x.shape, repeats))],
        name="tile",
    )


def _tile_value(site: Site) -> np.ndarray | None:
    found = known(site, 0, 1)
    if found is None or not all(as_dim(d).is_const for d in found[1]):
        return None
    return np.tile(found[0], tuple(int(d) for d in found[1]))


register(
    Operator(
        "tile",
        ("x", "repeats"),
        _tile_rule,
        lambda x, repeats: np.tile(x, tuple(int(r) for r in repeats)),
        _tile_compute,
        value_args=(1,),
        value=_tile_value,
        doc="x repeated along each dimension",
    )
)


# ---- pad ---------------------------------------------------------------------------------------------------
_MODES = ("constant", "reflect", "edge", "wrap")


def _pads(site: Site) -> dict[int, tuple[Dim, Dim]]:
    """axis -> (elements put before, after); negative ones are taken away."""
    rank, pads = site.rank(0), [as_dim(d) for d in site.items(1).reshape(-1)]
    axes = constant_items(site, 3, "the axes of pad") if site.has(3) else tuple(range(rank))
    if len(pads) != 2 * len(axes):
        site.fail(f"{len(pads)} pads for {len(axes)} axes; each needs one before and one after")
    half = len(axes)
    return {a: (pads[k], pads[half + k]) for k, a in enumerate(normal_axes(site, axes, rank))}


def _pad_rule(site: Site) -> Type:
    shape, mode = list(site.shape(0)), site.attrs["mode"]
    if mode not in _MODES:
        site.fail(f"there is no mode {mode}", remedy="one of " + ", ".join(_MODES))
    if site.has(2):
        one_element(site, 2, "the value of pad is one number")
        if site.dtype(2) != site.dtype(0):
            site.fail(f"x is {site.dtype(0)}, but the value is {site.dtype(2)}")
    for axis, (before, after) in _pads(site).items():
        if mode != "constant" and not (before == 0 and after == 0):
            site.require(shape[axis], ">", 0, f"{mode} padding of dimension {axis}")
        shape[axis] = shape[axis] + before + after
        site.require(shape[axis], ">=", 0, f"dimension {axis} after padding")
    return TensorType(tuple(shape), site.dtype(0))


def _pad_compute(site: Site, bufs: list) -> Buffer:
    x, mode, pads = bufs[0], str(site.attrs["mode"]), _pads(site)
    value = bufs[2] if len(bufs) > 2 else None

    def element(*i: Dim) -> Expr:
        places = [j - pads[a][0] if a in pads else j for a, j in enumerate(i)]
        if mode != "constant":
            return x[
                tuple(
                    _mirrored(site, mode, p, x.shape[a], *pads[a]) if a in pads else p
                    for a, p in enumerate(places)
                )
            ]
        inside: Expr | None = None
        for a, (before, after) in pads.items():
            tests = [] if site.bounds.le(before, 0) else [Index(places[a]) >= 0]
            tests += [] if site.bounds.le(after, 0) else [Index(places[a]) < Index(x.shape[a])]
            for t in tests:
                inside = t if inside is None else Binary("and", inside, t)
        loaded = x[tuple(places)]
        outside = zero(x.dtype) if value is None else first(value)
        return loaded if inside is None else Select(inside, loaded, outside)

    return compute(site.out[0].shape, element, name="pad")


def _mirrored(site: Site, mode: str, place: Dim, d: Dim, before: Dim, after: Dim) -> Dim:
    """Where an element comes from that lies at `place`, perhaps outside 0 … d-1."""
    if before == 0 and after == 0:
        return place
    if d == 1:
        return as_dim(0)
    if mode == "edge":
        place = place if site.bounds.le(before, 0) else dmax(place, 0)
        return place if site.bounds.le(after, 0) else dmin(place, d - 1)
    if mode == "wrap":
        return place % d
    if site.bounds.lt(before, d) and site.bounds.lt(after, d):  # at most one reflection at each end
        place = place if site.bounds.le(before, 0) else dmax(place, -place)
        return place if site.bounds.le(after, 0) else dmin(place, 2 * (d - 1) - place)
    period = 2 * (d - 1)
    phase = place % (period if site.bounds.lt(1, d) else dmax(period, 1))
    return dmin(phase, period - phase)


def _pad(
    x: np.ndarray,
    pads: np.ndarray,
    value: np.ndarray | None = None,
    axes: np.ndarray | None = None,
    *,
    mode: str,
) -> np.ndarray:
    chosen = range(x.ndim) if axes is None else [int(a) % x.ndim for a in axes]
    widths = [(0, 0)] * x.ndim
    for k, a in enumerate(chosen):
        widths[a] = (int(pads[k]), int(pads[len(chosen) + k]))
    grown = [(max(b, 0), max(a, 0)) for b, a in widths]
    if mode == "constant":
        fill = x.dtype.type(0) if value is None else value.reshape(()).astype(x.dtype)[()]
        result = np.full([n + b + a for n, (b, a) in zip(x.shape, grown)], fill, x.dtype)
        result[tuple(slice(b, b + n) for n, (b, _) in zip(x.shape, grown))] = x
    else:
        result = np.pad(x, grown, mode)  # type: ignore[call-overload]
    cut = tuple(slice(max(-b, 0), n - max(-a, 0)) for n, (b, a) in zip(result.shape, widths))
    return np.array(result[cut])


register(
    Operator(
        "pad",
        ("x", "pads", "value?", "axes?"),
        _pad_rule,
        _pad,
        _pad_compute,
        attrs={"mode": "constant"},
        value_args=(1, 3),
        doc="elements put around x (a constant, a reflection, the edge, the other side's); negative pads cut",
    )
)


# ---- channels and space ------------------------------------------------------------------------------------
def _block(site: Site) -> int:
    if site.rank(0) != 4:
        site.fail(f"needs a tensor (batch, channels, height, width), not rank {site.rank(0)}")
    block = int(site.attrs["block"])
    if block < 1:
        site.fail(f"the block must be at least 1, not {block}")
    return block


def _depth_to_space_rule(site: Site) -> Type:
    block, (n, c, h, w) = _block(site), site.shape(0)
    if site.attrs["mode"] not in ("DCR", "CRD"):
        site.fail(f"there is no mode {site.attrs['mode']}", remedy="DCR or CRD")
    channels = quotient(site, [c], [as_dim(block * block)], "the number of channels")
    return TensorType((n, channels, h * block, w * block), site.dtype(0))


def _depth_to_space_compute(site: Site, bufs: list) -> Buffer:
    block, channels = _block(site), site.out[0].shape[1]

    def element(n: Dim, c: Dim, h: Dim, w: Dim) -> Expr:
        within = h % block * block + w % block
        channel = within * channels + c if site.attrs["mode"] == "DCR" else c * (block * block) + within
        return bufs[0][n, channel, h // block, w // block]

    return compute(site.out[0].shape, element, name="depth_to_space")


def _depth_to_space(x: np.ndarray, *, block: int, mode: str) -> np.ndarray:
    n, c, h, w = x.shape
    small = c // block**2
    if mode == "DCR":
        parts = x.reshape(n, block, block, small, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, small, block, block, h, w).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(parts).reshape(n, small, h * block, w * block)


register(
    Operator(
        "depth_to_space",
        ("x",),
        _depth_to_space_rule,
        _depth_to_space,
        _depth_to_space_compute,
        attrs={"block": REQUIRED, "mode": "DCR"},
        doc="blocks of channels spread over space; the block's part counts slower (DCR) or faster (CRD)",
    )
)


def _space_to_depth_rule(site: Site) -> Type:
    block, (n, c, h, w) = _block(site), site.shape(0)
    high = quotient(site, [h], [as_dim(block)], "the height")
    wide = quotient(site, [w], [as_dim(block)], "the width")
    return TensorType((n, c * (block * block), high, wide), site.dtype(0))


def _space_to_depth_compute(site: Site, bufs: list) -> Buffer:
    block, channels = _block(site), site.shape(0)[1]

    def element(n: Dim, c: Dim, h: Dim, w: Dim) -> Expr:
        within = c // channels
        return bufs[0][n, c % channels, h * block + within // block, w * block + within % block]

    if channels == 0:
        return compute(site.out[0].shape, lambda *i: zero(bufs[0].dtype), name="space_to_depth")
    return compute(site.out[0].shape, element, name="space_to_depth")


def _space_to_depth(x: np.ndarray, *, block: int) -> np.ndarray:
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // block, block, w // block, block).transpose(0, 3, 5, 1, 2, 4)
    return np.ascontiguousarray(parts).reshape(n, c * block**2, h // block, w // block)


register(
    Operator(
        "space_to_depth",
        ("x",),
        _space_to_depth_rule,
        _space_to_depth,
        _space_to_depth_compute,
        attrs={"block": REQUIRED},
        doc="blocks of space stacked as channels",
    )
)

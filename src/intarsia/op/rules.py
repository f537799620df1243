"""Pieces that the entries of many operators share: dtype families, broadcasting, axes, known contents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps

import numpy as np

from intarsia.dim import Dim, as_dim, dmax, dmin
from intarsia.kernel.compute import compute
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, Load, Select, cast
from intarsia.op.entry import Site

KNOWN_LIMIT = 1024  # integer tensors of more elements are never followed at compile time
HALF = ("float16", "bfloat16")
_FAMILIES: dict[str, tuple[str, Callable[[str], bool]]] = {
    "float": ("a floating-point", lambda t: "float" in t),
    "int": ("an integer", lambda t: "int" in t),
    "signed": ("a signed", lambda t: "float" in t or t.startswith("int")),
    "number": ("a numeric", lambda t: t != "bool"),
    "bool": ("a bool", lambda t: t == "bool"),
    "any": ("a", lambda t: True),
}


# ---- dtypes ------------------------------------------------------------------------------------------------
def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_int(dtype: str) -> bool:
    return "int" in dtype


def need(site: Site, arg: int, family: str) -> str:
    """The dtype of an argument, which must belong to the family: float, int, signed, number, bool or any."""
    dtype = site.dtype(arg)
    words, belongs = _FAMILIES[family]
    if not belongs(dtype):
        site.fail(f"argument {arg + 1} must be {words} tensor, not {dtype}")
    return dtype


def common_dtype(site: Site, args: Iterable[int], family: str = "any") -> str:
    """The dtype that all the given arguments share."""
    args = list(args)
    dtype = need(site, args[0], family)
    for i in args[1:]:
        if site.dtype(i) != dtype:
            site.fail(
                f"argument {args[0] + 1} is {dtype}, but argument {i + 1} is {site.dtype(i)}",
                remedy="a cast of one of them",
            )
    return dtype


def widen(e: Expr) -> Expr:
    """float16 and bfloat16 are computed in float32."""
    return cast(e, "float32") if e.dtype in HALF else e


def wrap(value: int, dtype: str) -> int:
    """An integer as two's complement of the dtype."""
    if dtype == "bool":
        return int(value != 0)
    info = np.iinfo(dtype)
    return (value - info.min) % (1 << info.bits) + info.min


# ---- shapes ------------------------------------------------------------------------------------------------
def broadcast(site: Site, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """NumPy broadcasting. Only a dimension known to be 1 is stretched; others must be equal (checked)."""
    rank = max(map(len, shapes))
    out = []
    for axis in range(rank):
        dims = [s[axis - rank] for s in shapes if axis - rank + len(s) >= 0]
        wide = [d for d in dims if d != 1]
        size = wide[0] if wide else as_dim(1)
        for d in wide[1:]:
            size = site.equal(size, d, f"broadcast of dimension {axis}")
        out.append(size)
    return tuple(out)


def same_shape(site: Site, a: Sequence[Dim], b: Sequence[Dim], what: str) -> tuple[Dim, ...]:
    """Two shapes that must be equal."""
    if len(a) != len(b):
        site.fail(f"{what}: {len(a)} dimensions against {len(b)}")
    return tuple(site.equal(x, y, f"{what}, dimension {i}") for i, (x, y) in enumerate(zip(a, b)))


def normal_axes(site: Site, axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes as 0 … rank-1, in the order given; one that occurs twice is an error."""
    result = tuple(site.axis(int(a), rank) for a in axes)
    if len(set(result)) != len(result):
        site.fail(f"an axis occurs twice in {tuple(map(int, axes))}")
    return result


def constant_items(site: Site, arg: int, what: str) -> tuple[int, ...]:
    """The contents of an integer argument that must be constant at compile time, as ints in a row."""
    value = site.value(arg)
    if value is None or not all(as_dim(d).is_const for d in value.reshape(-1)):
        site.fail(f"{what} must be known at compile time")
    return tuple(int(d) for d in value.reshape(-1))


def one_element(site: Site, arg: int, what: str) -> None:
    """The argument must have exactly one element (rank 0, or all dimensions 1)."""
    for d in site.shape(arg):
        site.equal(d, 1, what)


def clamp(site: Site, d: Dim, low: Dim, high: Dim) -> Dim:
    """d held between low and high (low wins), without the comparisons that the bounds make superfluous."""
    d = d if site.bounds.le(d, high) else dmin(d, high)
    return d if site.bounds.le(low, d) else low if site.bounds.le(d, low) else dmax(d, low)


def not_negative(site: Site, d: Dim) -> Dim:
    """max(d, 0), as d or 0 alone where the bounds tell."""
    return d if site.bounds.le(0, d) else as_dim(0) if site.bounds.le(d, 0) else dmax(d, 0)


# ---- compute definitions -----------------------------------------------------------------------------------
def at(buffer: Buffer, indices: Sequence) -> Load:
    """The element that a place of the broadcast result sees: aligned right, 0 in dimensions of size 1."""
    if not buffer.shape:
        return buffer[()]
    own = indices[len(indices) - len(buffer.shape) :]
    return buffer[tuple(as_dim(0) if d == 1 else i for d, i in zip(buffer.shape, own, strict=True))]


def first(buffer: Buffer) -> Load:
    """The only element of a tensor of one element."""
    return buffer[(as_dim(0),) * len(buffer.shape)]


def elementwise(
    site: Site, buffers: Sequence[Buffer], body: Callable[..., Expr], *, moves: bool = False
) -> Buffer:
    """The tensor of `body(a, b, …)` over broadcast elements.

    Half-precision elements arrive as float32, unless the body only moves them.
    """
    out = site.out[0]
    load = at if moves else lambda buffer, indices: widen(at(buffer, indices))
    return compute(
        out.shape,
        lambda *i: cast(body(*(load(b, i) for b in buffers)), out.dtype),
        name=site.op.name.rpartition(".")[2],
    )


def wrapped(index: Expr, size: Dim) -> Expr:
    """A place that a tensor's contents give: negative ones count from the end, those outside are clamped."""
    i = cast(index, "int64")
    i = Select(i < 0, i + size, i)
    return Binary("max", Binary("min", i, Index(size - 1)), Const(0, "int64"))


def if_any(site: Site, size: Dim, value: Expr) -> Expr:
    """`value`, which reads a dimension at a clamped place; zero where the dimension turns out empty."""
    if site.bounds.lt(0, size):
        return value
    return Select(Index(size) > 0, value, zero(value.dtype))


def zero(dtype: str) -> Const:
    return Const(0.0 if is_float(dtype) else False if dtype == "bool" else 0, dtype)


def one(dtype: str) -> Const:
    return Const(1.0 if is_float(dtype) else True if dtype == "bool" else 1, dtype)


# ---- contents known at compile time ------------------------------------------------------------------------
def known(site: Site, *args: int) -> list[np.ndarray] | None:
    """The contents of the arguments if all are known and small, else None."""
    found = [site.value(i) for i in args]
    if any(v is None or v.size > KNOWN_LIMIT for v in found):
        return None
    return found  # type: ignore[return-value]


def dims_array(values: Iterable, shape: Sequence[int] | None = None) -> np.ndarray:
    """An object array of Dims from a sequence (rank 1 unless a shape is given)."""
    values = [as_dim(v) for v in values]
    out = np.empty(len(values), object)
    out[:] = values
    return out if shape is None else out.reshape(tuple(shape))


def known_elementwise(fn: Callable[..., Dim | int | None]) -> Callable[[Site], np.ndarray | None]:
    """An operator's `value` from `fn(site, dim, …) -> dim or None` over broadcast elements.

    Constants wrap as the first argument's dtype does; sizes are taken to fit it.
    """

    def value(site: Site) -> np.ndarray | None:
        found = known(site, *range(len(site.args)))
        if found is None or not _followed(site.dtype(0)):
            return None
        found = np.broadcast_arrays(*found)
        if found[0].size > KNOWN_LIMIT:
            return None
        out = []
        for places in zip(*(v.reshape(-1) for v in found)):
            d = fn(site, *map(as_dim, places))
            if d is None:
                return None
            d = as_dim(d)
            out.append(wrap(d.value, site.dtype(0)) if d.is_const and is_int(site.dtype(0)) else d)
        return dims_array(out, found[0].shape)

    return value


def known_moved(fn: Callable[..., np.ndarray]) -> Callable[[Site], np.ndarray | None]:
    """An operator's `value` where argument 0's elements get other places: `fn(site, contents)`."""

    def value(site: Site) -> np.ndarray | None:
        found = known(site, 0)
        if found is None:
            return None
        result = np.empty_like(moved := fn(site, found[0]))
        result[...] = moved
        return result

    return value


def truth(site: Site, a: Dim, relation: str, b: Dim) -> bool | None:
    """Whether `a relation b` (== < <=) holds, where that can be decided."""
    low, high = site.bounds.interval(a - b)
    match relation:
        case "==":
            return True if a == b else False if low > 0 or high < 0 else None
        case "<":
            return True if high < 0 else False if low >= 0 else None
    return True if high <= 0 else False if low > 0 else None


def _followed(dtype: str) -> bool:
    """Narrow integers could wrap where a symbol stands for a number: they are not followed."""
    return dtype in ("int64", "int32", "uint64", "uint32", "bool")


# ---- references --------------------------------------------------------------------------------------------
def oracle(fn: Callable) -> Callable:
    """A NumPy reference made quiet about overflow, in float32 for half precision.

    Its result has the first argument's dtype, or is bool.
    """

    @wraps(fn)
    def run(*arrays, **attrs):
        dtype = arrays[0].dtype
        half = dtype.name in HALF
        with np.errstate(all="ignore"):
            wide = [
                a.astype(np.float32) if half and a is not None and a.dtype == dtype else a for a in arrays
            ]
            result = np.asarray(fn(*wide, **attrs))
            return result if result.dtype == bool else result.astype(dtype)

    return run

"""Reductions over axes. Of nothing: the operation's identity (max: -inf or the least integer), NaN for means.

`axes` must be known at compile time; without them all dimensions are reduced, or with `noop_with_empty_axes`
none. float16 and bfloat16 are summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia.dim import Dim, as_dim, dmax, dmin, product
from intarsia.ir.types import TensorType, Type
from intarsia.kernel.compute import compute, reduce, reduce_axis, var
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, Select, Unary, cast, identity_of
from intarsia.op.entry import Operator, Site, register
from intarsia.op.rules import constant_items, dims_array, is_float, known, need, normal_axes, oracle, widen


def reduced_axes(site: Site) -> tuple[int, ...]:
    """The axes that are reduced, ascending."""
    rank = site.rank(0)
    axes = constant_items(site, 1, "the axes of a reduction") if site.has(1) else ()
    if not axes:
        return () if site.attrs["noop_with_empty_axes"] else tuple(range(rank))
    return tuple(sorted(normal_axes(site, axes, rank)))


def _kept(shape: tuple[Dim, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[Dim, ...]:
    if keepdims:
        return tuple(as_dim(1) if a in axes else d for a, d in enumerate(shape))
    return tuple(d for a, d in enumerate(shape) if a not in axes)


def reduction(
    op: str,
    x: Buffer,
    axes: tuple[int, ...],
    keepdims: bool,
    body: Callable[..., Expr] = lambda e: e,
    *more: Buffer,
) -> Buffer:
    """One stage: `op` over the axes of body(x's element, element of each tensor of `more`).

    Tensors of `more` have the result's shape. Elements of x arrive widened (float16 as float32).
    """
    shape = _kept(x.shape, axes, keepdims)

    def element(*i: Dim) -> Expr:
        ranges = {a: reduce_axis(x.shape[a]) for a in axes}
        outer = iter(i if not keepdims else [j for a, j in enumerate(i) if a not in axes])
        places = tuple(var(ranges[a]) if a in ranges else next(outer) for a in range(len(x.shape)))
        inner = body(widen(x[places]), *(b[tuple(i)] for b in more))
        return reduce(op, inner, *(r for r in ranges.values() if r.extent != 1))

    return compute(shape, element, name=op)


def after(x: Buffer, body: Callable[..., Expr], *more: Buffer) -> Buffer:
    """One elementwise stage over tensors of one shape."""
    return compute(x.shape, lambda *i: body(*(b[tuple(i)] for b in (x, *more))), name="after")


def _finish(site: Site, result: Buffer) -> Buffer:
    dtype = site.out[0].dtype
    return result if result.dtype == dtype else after(result, lambda e: cast(e, dtype))


Body = Callable[[Site, Buffer, tuple[int, ...], bool], Buffer]


def _reduction(
    name: str, family: str, body: Body, reference: Callable, doc: str, value: Callable | None = None
) -> None:
    def rule(site: Site) -> Type:
        dtype = need(site, 0, family)
        return TensorType(_kept(site.shape(0), reduced_axes(site), bool(site.attrs["keepdims"])), dtype)

    def run(
        x: np.ndarray, axes: np.ndarray | None = None, *, keepdims: bool, noop_with_empty_axes: bool
    ) -> np.ndarray:
        chosen = None if axes is None or not len(axes) else tuple(int(a) for a in axes)
        if chosen is None:
            chosen = () if noop_with_empty_axes else tuple(range(x.ndim))
        return reference(x, chosen, bool(keepdims))

    def build(site: Site, bufs: list) -> Buffer:
        return _finish(site, body(site, bufs[0], reduced_axes(site), bool(site.attrs["keepdims"])))

    def contents(site: Site) -> np.ndarray | None:
        found = known(site, 0)
        if value is None or found is None:
            return None
        x, axes = found[0], reduced_axes(site)
        kept = [a for a in range(x.ndim) if a not in axes]
        rows = np.transpose(x, (*kept, *axes)).reshape(*(x.shape[a] for a in kept), -1)
        flat = rows.reshape(-1, rows.shape[-1]) if rows.size else np.empty((0, 0), object)
        if not rows.size:
            return None
        items = dims_array([value([as_dim(d) for d in row]) for row in flat])
        shape = (
            [1 if a in axes else d for a, d in enumerate(x.shape)]
            if site.attrs["keepdims"]
            else rows.shape[:-1]
        )
        return items.reshape(tuple(shape))

    register(
        Operator(
            name,
            ("x", "axes?"),
            rule,
            oracle(run),
            build,
            attrs={"keepdims": False, "noop_with_empty_axes": False},
            value_args=(1,),
            value=contents if value else None,
            doc=doc,
        )
    )


# ---- plain ones --------------------------------------------------------------------------------------------
def _plain(
    op: str, inner: Callable[[Expr], Expr] = lambda e: e, outer: Callable[[Expr], Expr] | None = None
) -> Body:
    """op of inner(x), then outer of the result."""

    def body(site: Site, x: Buffer, axes: tuple[int, ...], keepdims: bool) -> Buffer:
        total = reduction(op, x, axes, keepdims, inner)
        return total if outer is None else after(total, outer)

    return body


def _extremum(op: str) -> Body:
    def body(site: Site, x: Buffer, axes: tuple[int, ...], keepdims: bool) -> Buffer:
        logic = {"max": "any", "min": "all"}
        return reduction(logic[op] if x.dtype == "bool" else op, x, axes, keepdims)

    return body


def _mean(site: Site, x: Buffer, axes: tuple[int, ...], keepdims: bool) -> Buffer:
    """The sum times 1 / count; integers are divided, truncating."""
    total, count = reduction("sum", x, axes, keepdims), product(x.shape[a] for a in axes)
    if not is_float(x.dtype):
        divisor = Binary("max", cast(Index(count), total.dtype), Const(1, total.dtype))
        return total if count == 1 else after(total, lambda e: Binary("div", e, divisor))
    if not count.is_const:
        return after(total, lambda e: e / cast(Index(count), total.dtype))
    factor = 1.0 / count.value if count.value else float("nan")
    return total if count == 1 else after(total, lambda e: e * factor)


def _magnitude(x: Expr) -> Expr:
    return x if x.dtype.startswith("uint") else Unary("abs", x)


def _root(x: Expr) -> Expr:
    """Square root; of integers through float64, truncated."""
    return Unary("sqrt", x) if is_float(x.dtype) else cast(Unary("sqrt", cast(x, "float64")), x.dtype)


def _log(x: Expr) -> Expr:
    return Unary("log", x) if is_float(x.dtype) else cast(Unary("log", cast(x, "float64")), x.dtype)


def _log_sum_exp(site: Site, x: Buffer, axes: tuple[int, ...], keepdims: bool) -> Buffer:
    """log(sum(exp(x - m))) + m with m the largest element, or 0 where that is infinite."""
    if not is_float(x.dtype):
        x = compute(x.shape, lambda *i: cast(x[i], "float64"), name="float")
    top = reduction("max", x, axes, keepdims)
    infinity = Const(float("inf"), top.dtype)
    pivot = after(top, lambda m: Select(Unary("abs", m).equals(infinity), Const(0.0, m.dtype), m))
    total = reduction("sum", x, axes, keepdims, lambda e, m: Unary("exp", e - m), pivot)
    return after(total, lambda s, m: Unary("log", s) + m, pivot)


def _sum(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.sum(x, axes, keepdims=keepdims, dtype=x.dtype)


def _mean_reference(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    count = int(np.prod([x.shape[a] for a in axes]))
    total = _sum(x, axes, keepdims)
    if x.dtype.kind == "f":
        return total / np.array(count, x.dtype)
    return np.trunc(total / max(count, 1)) if x.dtype.itemsize < 8 else _truncating(total, max(count, 1))


def _truncating(a: np.ndarray, b: int) -> np.ndarray:
    quotient = np.asarray(a // np.array(b, a.dtype))
    return quotient + ((quotient < 0) & (quotient * np.array(b, a.dtype) != a))


def _extremum_reference(op: str) -> Callable:
    def run(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
        start = identity_of(op, x.dtype.name).value
        return getattr(np, op)(x, axes, keepdims=keepdims, initial=start)

    return run


def _log_sum_exp_reference(x: np.ndarray, axes: tuple[int, ...], keepdims: bool) -> np.ndarray:
    x = x if x.dtype.kind == "f" else x.astype(np.float64)
    top = np.max(x, axes, keepdims=True, initial=-np.inf).astype(x.dtype)
    top = np.where(np.isinf(top), 0, top)
    result = np.log(np.sum(np.exp(x - top), axes, keepdims=True)) + top
    return result if keepdims else np.squeeze(result, axes)


def _times(values: list[Dim]) -> Dim:
    return product(values)


def _plus(values: list[Dim]) -> Dim:
    total = as_dim(0)
    for d in values:
        total = total + d
    return total


def _most(values: list[Dim]) -> Dim:
    return dmax(*values)


def _least(values: list[Dim]) -> Dim:
    return dmin(*values)


_reduction("reduce.sum", "number", _plain("sum"), _sum, "sum", _plus)
_reduction(
    "reduce.prod", "number", _plain("prod"),
    lambda x, axes, keep: np.prod(x, axes, keepdims=keep, dtype=x.dtype), "product", _times,
)  # fmt: skip
_reduction("reduce.mean", "number", _mean, _mean_reference, "arithmetic mean")
_reduction(
    "reduce.max",
    "any",
    _extremum("max"),
    _extremum_reference("max"),
    "largest element; NaN if there is one",
    _most,
)
_reduction(
    "reduce.min",
    "any",
    _extremum("min"),
    _extremum_reference("min"),
    "smallest element; NaN if there is one",
    _least,
)
_reduction(
    "reduce.any",
    "bool",
    _plain("any"),
    lambda x, axes, keep: np.any(x, axes, keepdims=keep),
    "whether any holds",
)
_reduction(
    "reduce.all",
    "bool",
    _plain("all"),
    lambda x, axes, keep: np.all(x, axes, keepdims=keep),
    "whether all hold",
)
_reduction(
    "reduce.l1_norm", "number", _plain("sum", _magnitude), lambda x, axes, keep: _sum(np.abs(x), axes, keep),
    "sum of absolute values",
)  # fmt: skip
_reduction(
    "reduce.l2_norm", "number", _plain("sum", lambda e: e * e, _root),
    lambda x, axes, keep: np.sqrt(_sum(x * x, axes, keep)), "square root of the sum of squares",
)  # fmt: skip
_reduction(
    "reduce.sum_square", "number", _plain("sum", lambda e: e * e), 
    lambda x, axes, keep: _sum(x * x, axes, keep), "sum of squares",
)  # fmt: skip
_reduction(
    "reduce.log_sum", "number", _plain("sum", outer=_log), lambda x, axes, keep: np.log(_sum(x, axes, keep)),
    "logarithm of the sum",
)  # fmt: skip
_reduction(
    "reduce.log_sum_exp", "number", _log_sum_exp, _log_sum_exp_reference, "log(sum(exp(x))), without overflow"
)


# ---- places of extrema -------------------------------------------------------------------------------------
def _place(op: str, doc: str) -> None:
    def axis_of(site: Site) -> int:
        return site.axis(int(site.attrs["axis"]), site.rank(0))

    def rule(site: Site) -> Type:
        need(site, 0, "number")
        x, axis = site.shape(0), axis_of(site)
        site.require(x[axis], ">", 0, f"{op} along an axis that may be empty")
        return TensorType(_kept(x, (axis,), bool(site.attrs["keepdims"])), "int64")

    def build(site: Site, bufs: list) -> Buffer:
        x, axis, keepdims = bufs[0], axis_of(site), bool(site.attrs["keepdims"])
        size, last = x.shape[axis], site.attrs["select_last_index"]

        def element(*i: Dim) -> Expr:
            run = reduce_axis(size)
            place = size - 1 - var(run) if last else var(run)
            rest = [j for a, j in enumerate(i) if a != axis] if keepdims else list(i)
            return reduce(op, widen(x[(*rest[:axis], place, *rest[axis:])]), run)

        found = compute(site.out[0].shape, element, name=op)
        return after(found, lambda e: Index(size - 1) - e) if last else found

    def run(x: np.ndarray, *, axis: int, keepdims: bool, select_last_index: bool) -> np.ndarray:
        find = getattr(np, op)
        x = x.astype(np.float32) if x.dtype.name == "bfloat16" else x
        if not select_last_index:
            return np.asarray(find(x, axis, keepdims=keepdims), np.int64)
        return np.asarray(x.shape[axis] - 1 - find(np.flip(x, axis), axis, keepdims=keepdims), np.int64)

    register(
        Operator(
            f"reduce.{op}",
            ("x",),
            rule,
            run,
            build,
            attrs={"axis": 0, "keepdims": False, "select_last_index": False},
            doc=doc,
        )
    )


_place("argmax", "place of the first (or last) largest element along the axis, int64")
_place("argmin", "place of the first (or last) smallest element along the axis, int64")

"""Running sums and largest elements: computations along one axis that are loops of their own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim, dmin
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.kernel.compute import fresh, opaque
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, Select, Unary, cast
from intarsia.kernel.stmt import If, Stmt, block, loop, store
from intarsia.op.entry import Operator, Site, register
from intarsia.op.rules import constant_items, is_float, need, one_element, oracle, widen, zero


def rows(shape: tuple[Dim, ...], axis: int, body: Callable[[list[Dim]], Stmt], work: Dim) -> Stmt:
    """Loops over all dimensions but the axis, the first parallel; work: nanoseconds of one row.

    body gets the indices of the row, with 0 in the axis' place.
    """
    outer = [a for a in range(len(shape)) if a != axis]
    names = {a: fresh("r") for a in outer}
    statement = body([Symbol(names[a]) if a in names else as_dim(0) for a in range(len(shape))])
    for a in reversed(outer):
        if a == outer[0]:
            return loop(names[a], shape[a], statement, "parallel", work=work)
        statement, work = loop(names[a], shape[a], statement), work * shape[a]
    return statement


def put(places: list[Dim], axis: int, place: Dim) -> tuple[Dim, ...]:
    return (*places[:axis], place, *places[axis + 1 :])


# ---- cumsum ------------------------------------------------------------------------------------------------
def _cumsum_axis(site: Site) -> int:
    (axis,) = constant_items(site, 1, "the axis of cumsum")
    return site.axis(axis, site.rank(0))


def _cumsum_rule(site: Site) -> Type:
    one_element(site, 1, "the axis of cumsum is one number")
    need(site, 0, "number")
    _cumsum_axis(site)
    return site.tensor(0)


def _cumsum_compute(site: Site, bufs: list) -> Buffer:
    x, axis = bufs[0], _cumsum_axis(site)
    exclusive, reverse = bool(site.attrs["exclusive"]), bool(site.attrs["reverse"])
    size = x.shape[axis]

    def build(target, inputs, outputs, scratch) -> Stmt:
        (source, *_), (out,) = inputs, outputs

        def row(i: list[Dim]) -> Stmt:
            step = Symbol(name := fresh("k"))

            def place(k: Dim) -> tuple[Dim, ...]:
                return put(i, axis, size - 1 - k if reverse else k)

            before = widen(out[place(step - 1)])
            started, nothing = Index(step) > 0, zero(before.dtype)
            if exclusive:
                total = Select(started, before + widen(source[place(step - 1)]), nothing)
            else:
                total = Select(started, before, nothing) + widen(source[place(step)])
            return loop(name, size, store(out, place(step), cast(total, out.dtype)))

        return rows(x.shape, axis, row, 2 * size)

    return opaque("cumsum", [x], [(x.shape, x.dtype)], build)[0]


def _cumsum(x: np.ndarray, axis: np.ndarray, *, exclusive: bool, reverse: bool) -> np.ndarray:
    along = int(axis.reshape(()))
    source = np.flip(x, along) if reverse else x
    total = np.cumsum(source, along, dtype=x.dtype)
    if exclusive:
        moved = np.moveaxis(np.zeros_like(total), along, 0)
        moved[1:] = np.moveaxis(total, along, 0)[:-1]
        total = np.moveaxis(moved, 0, along)
    return np.ascontiguousarray(np.flip(total, along) if reverse else total)


register(
    Operator(
        "cumsum",
        ("x", "axis"),
        _cumsum_rule,
        oracle(_cumsum),
        _cumsum_compute,
        attrs={"exclusive": False, "reverse": False},
        value_args=(1,),
        doc="running sums along the axis, each with (or without) its own element, from the front or the back",
    )
)


# ---- topk --------------------------------------------------------------------------------------------------
def _topk_axis(site: Site) -> int:
    return site.axis(int(site.attrs["axis"]), site.rank(0))


def _topk_rule(site: Site) -> Type:
    need(site, 0, "number")
    one_element(site, 1, "k is one number")
    x, axis = site.shape(0), _topk_axis(site)
    k = as_dim(site.items(1, nonnegative=True).reshape(-1)[0])
    site.require(k, ">=", 0, "k of topk")
    site.require(k, "<=", x[axis], "k of topk is at most the dimension's size")
    shape = (*x[:axis], k, *x[axis + 1 :])
    return TupleType((TensorType(shape, site.dtype(0)), TensorType(shape, "int64")))


def _topk_compute(site: Site, bufs: list) -> tuple[Buffer, ...]:
    """Each element goes into the sorted list of the best so far if it belongs there; of equals the first."""
    x, axis = bufs[0], _topk_axis(site)
    shape, size, largest = site.out[0].shape, x.shape[axis], bool(site.attrs["largest"])
    k = shape[axis]

    def beats(a: Expr, b: Expr) -> Expr:
        a, b = widen(a), widen(b)
        better = a > b if largest else a < b
        if not is_float(a.dtype):
            return better
        one, other = (a, b) if largest else (b, a)  # NaN counts as larger than all numbers
        return Binary("or", better, Binary("and", Unary("isnan", one), Unary("not", Unary("isnan", other))))

    def build(target, inputs, outputs, scratch) -> Stmt:
        (source, *_), (values, places) = inputs, outputs

        def row(i: list[Dim]) -> Stmt:
            j, p = Symbol(each := fresh("j")), Symbol(slot := fresh("p"))
            new, last = source[put(i, axis, j)], dmin(j, k - 1)
            here, above = put(i, axis, last - p), put(i, axis, last - p - 1)
            moves = Select(Index(last - p) > 0, beats(new, values[above]), Const(False, "bool"))
            belongs = Select(Index(p) > 0, beats(new, values[here]), Const(True, "bool"))
            shift = block(store(values, here, values[above]), store(places, here, places[above]))
            insert = block(store(values, here, new), store(places, here, Index(j)))
            into = loop(slot, last + 1, If(moves, shift, If(belongs, insert)))
            worst = values[put(i, axis, k - 1)]
            return loop(
                each, size, If(Select(Index(j) < Index(k), Const(True, "bool"), beats(new, worst)), into)
            )

        every = rows(x.shape, axis, row, 3 * size)
        return every if site.bounds.lt(0, k) else If(Index(k) > 0, every)

    if k == 0:
        return opaque("topk", [x], [(shape, x.dtype), (shape, "int64")], lambda *_: block())
    return opaque("topk", [x], [(shape, x.dtype), (shape, "int64")], build)


def _topk(
    x: np.ndarray, k: np.ndarray, *, axis: int, largest: bool, sorted: bool
) -> tuple[np.ndarray, np.ndarray]:
    count, key = int(k.reshape(())), x.astype(np.float32) if x.dtype.name == "bfloat16" else x
    if (
        largest
    ):  # descending, with equals in their own order: the reverse of the reversed row's ascending order
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(key, axis), axis, kind="stable"), axis)
    else:
        order = np.argsort(key, axis, kind="stable")
    order = np.take(order, np.arange(count), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


register(
    Operator(
        "topk",
        ("x", "k"),
        _topk_rule,
        _topk,
        _topk_compute,
        attrs={"axis": -1, "largest": True, "sorted": True},
        value_args=(1,),
        doc="the k largest or smallest elements along the axis, best first, and their places (int64)",
    )
)

"""Reductions, arg-reductions, running sums, top-k, softmax and its kin."""

from __future__ import annotations

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.ir.expr import Expr, TupleGet

_REDUCE = {
    "ReduceSum": ("reduce.sum", 13), "ReduceMean": ("reduce.mean", 18), "ReduceProd": ("reduce.prod", 18),
    "ReduceMax": ("reduce.max", 18), "ReduceMin": ("reduce.min", 18), "ReduceL1": ("reduce.l1_norm", 18),
    "ReduceL2": ("reduce.l2_norm", 18), "ReduceLogSum": ("reduce.log_sum", 18),
    "ReduceLogSumExp": ("reduce.log_sum_exp", 18), "ReduceSumSquare": ("reduce.sum_square", 18),
}  # fmt: skip


def _enter_reduce(op: str, relay: str, axes_input: int) -> None:
    @converts(op, needs=(relay,))
    def convert(b: Builder, node: Node) -> Expr:
        x, axes = node.arg(0), node.maybe(1)
        if node.version < axes_input:
            given = node.ints("axes", None)
            axes = b.ints(given) if given is not None else None
        axes = b.fixed(axes, f"the axes of {op}")
        keepdims, noop = node.flag("keepdims", True), node.flag("noop_with_empty_axes")
        if b.dtype(x) == "bool":  # max is any, min is all
            return b.cast(
                b.op(relay, b.cast(x, "uint8"), axes, keepdims=keepdims, noop_with_empty_axes=noop), "bool"
            )
        return b.op(relay, x, axes, keepdims=keepdims, noop_with_empty_axes=noop)


for _op, (_relay, _version) in _REDUCE.items():
    _enter_reduce(_op, _relay, _version)


@converts("ArgMax", "ArgMin", needs=("reduce.argmax", "reduce.argmin"))
def _arg_reduce(b: Builder, node: Node) -> Expr:
    return b.op(
        "reduce.argmax" if node.op == "ArgMax" else "reduce.argmin",
        node.arg(0),
        axis=node.int("axis", 0),
        keepdims=node.flag("keepdims", True),
        select_last_index=node.flag("select_last_index"),
    )


@converts("CumSum", needs=("cumsum",))
def _cumsum(b: Builder, node: Node) -> Expr:
    axis = b.const(b.known(node.arg(1), "the axis of CumSum")[0], "int64")
    return b.op("cumsum", node.arg(0), axis, exclusive=node.flag("exclusive"), reverse=node.flag("reverse"))


@converts("TopK", needs=("topk",))
def _topk(b: Builder, node: Node) -> tuple[Expr, ...]:
    x = node.arg(0)
    k = node.arg(1) if node.version >= 10 else b.ints([node.int("k")])
    largest, ordered = node.flag("largest", True), node.flag("sorted", True)
    both = b.op("topk", x, b.vector(k), axis=node.int("axis", -1), largest=largest, sorted=ordered)
    return TupleGet(both, 0, span=b.span), TupleGet(both, 1, span=b.span)


def _enter_softmax(op: str, relay: str) -> None:
    @converts(op, needs=(relay,))
    def convert(b: Builder, node: Node) -> Expr:
        x = node.arg(0)
        if node.version >= 13:
            return b.op(relay, x, axis=node.int("axis", -1))
        return as_matrix(b, x, node.int("axis", 1), lambda m: b.op(relay, m, axis=-1))


def as_matrix(b: Builder, x: Expr, axis: int, step) -> Expr:
    """Before operator set 13: dimensions from `axis` on are taken together, then split up again."""
    if b.axis(axis, x) == b.rank(x) - 1:
        return step(x)
    return b.op("reshape", step(b.op("flatten", x, axis=b.axis(axis, x))), b.shape(x))


for _op, _relay in (("Softmax", "nn.softmax"), ("LogSoftmax", "nn.log_softmax")):
    _enter_softmax(_op, _relay)


@converts("Hardmax", needs=("reduce.argmax", "one_hot"))
def _hardmax(b: Builder, node: Node) -> Expr:
    x = node.arg(0)
    if node.version >= 13:
        return _one_at_largest(b, x, b.axis(node.int("axis", -1), x))
    return as_matrix(b, x, node.int("axis", 1), lambda m: _one_at_largest(b, m, b.rank(m) - 1))


def _one_at_largest(b: Builder, x: Expr, axis: int) -> Expr:
    where = b.op("reduce.argmax", x, axis=axis, keepdims=False, select_last_index=False)
    depth = b.scalar(b.op("shape_of", x, start=axis, end=axis + 1))
    return b.op("one_hot", where, depth, b.const([0, 1], b.dtype(x)), axis=axis)


@converts("LpNormalization", needs=("reduce.l1_norm", "reduce.l2_norm", "where", "divide"))
def _lp_normalization(b: Builder, node: Node) -> Expr:
    x, p = node.arg(0), node.int("p", 2)
    if p not in (1, 2):
        raise node.unsupported(f"p must be 1 or 2, not {p}")
    norm = b.op(f"reduce.l{p}_norm", x, b.ints([node.int("axis", -1)]), keepdims=True)
    safe = b.op("where", b.op("equal", norm, b.like(0, x)), b.like(1, x), norm)
    return b.op("divide", x, safe)

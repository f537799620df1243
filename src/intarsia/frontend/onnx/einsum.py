"""Einsum as transposes, sums and matrix products, operands taken from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.ir.expr import Expr
from intarsia.support.errors import ModelError

_NEEDS = (
    "matmul",
    "reduce.sum",
    "transpose",
    "reshape",
    "expand_dims",
    "concatenate",
    "shape_of",
    "take",
    "arange",
)


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor and one label a dimension; labels of '…' are digits counted from the right."""

    value: Expr
    labels: tuple[str, ...]


@converts("Einsum", needs=_NEEDS)
def _einsum(b: Builder, node: Node) -> Expr:
    equation = node.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    if len(terms) != len(node.args):
        raise _bad(node, equation, f"it has {len(terms)} terms for {len(node.args)} inputs")
    operands = [_read(b, node, equation, t, node.arg(i)) for i, t in enumerate(terms)]
    dots = sorted({x for o in operands for x in o.labels if x.isdigit()}, key=int, reverse=True)
    if arrow:
        wanted = tuple(y for x in right.replace("...", ".") for y in (dots if x == "." else x))
    else:
        once = [x for o in operands for x in o.labels]
        wanted = (*dots, *sorted(x for x in set(once) if once.count(x) == 1 and not x.isdigit()))
    unknown = set(wanted) - {x for o in operands for x in o.labels}
    if unknown or len(set(wanted)) != len(wanted):
        raise _bad(
            node, equation, "the result's labels must each occur once there and somewhere in the inputs"
        )
    total = _without_diagonals(b, operands[0])
    for k, o in enumerate(operands[1:], 1):
        later = {x for rest in operands[k + 1 :] for x in rest.labels}
        total = _product(b, total, _without_diagonals(b, o), later.union(wanted))
    total = _summed(b, total, set(wanted))
    order = tuple(total.labels.index(x) for x in wanted)
    return total.value if order == tuple(range(len(order))) else b.op("transpose", total.value, axes=order)


def _bad(node: Node, equation: str, why: str) -> ModelError:
    return ModelError(
        "ONNX-017", f"the equation '{equation}' of Einsum cannot be read: {why}", where=node.where
    )


def _read(b: Builder, node: Node, equation: str, term: str, value: Expr) -> _Operand:
    letters = term.replace("...", "")
    if any(c not in ascii_letters for c in letters) or term.count("...") > 1:
        raise _bad(node, equation, "labels are letters, with one '...' a term at most")
    hidden = b.rank(value) - len(letters)
    if hidden < 0 or hidden and "..." not in term:
        raise _bad(node, equation, f"'{term}' does not fit an input of rank {b.rank(value)}")
    before, _, after = term.partition("...")
    return _Operand(value, (*before, *(str(k) for k in reversed(range(hidden))), *after))


def _without_diagonals(b: Builder, o: _Operand) -> _Operand:
    """A label that occurs twice stands for the diagonal: every (n + 1)-th element of both dimensions."""
    while len(set(o.labels)) != len(o.labels):
        twice = next(x for x in o.labels if o.labels.count(x) > 1)
        i = o.labels.index(twice)
        j = o.labels.index(twice, i + 1)
        rest = [a for a in range(len(o.labels)) if a not in (i, j)]
        moved = b.op("transpose", o.value, axes=(*rest, i, j))
        n = b.scalar(_size(b, o.value, i))
        flat = b.op("reshape", moved, _joined(b, [*(_size(b, o.value, a) for a in rest), b.ints([-1])]))
        step = b.op("add", n, b.const(1, "int64"))
        places = b.op("arange", b.const(0, "int64"), b.op("multiply", n, n), step)
        labels = (*(o.labels[a] for a in rest), twice)
        o = _Operand(b.op("take", flat, places, axis=len(rest)), labels)
    return o


def _summed(b: Builder, o: _Operand, kept: set[str]) -> _Operand:
    axes = [a for a, x in enumerate(o.labels) if x not in kept]
    if not axes:
        return o
    return _Operand(
        b.op("reduce.sum", o.value, b.ints(axes), keepdims=False), tuple(x for x in o.labels if x in kept)
    )


def _product(b: Builder, x: _Operand, y: _Operand, kept: set[str]) -> _Operand:
    """Both as [batch, rows, contracted] and [batch, contracted, columns], multiplied as matrices."""
    x, y = _summed(b, x, kept.union(y.labels)), _summed(b, y, kept.union(x.labels))
    shared = [a for a in x.labels if a in y.labels]
    batch, inner = [a for a in shared if a in kept], [a for a in shared if a not in kept]
    rows, columns = [a for a in x.labels if a not in shared], [a for a in y.labels if a not in shared]
    product = b.op("matmul", _matrix(b, x, batch, rows, inner), _matrix(b, y, batch, inner, columns))
    if len(rows) == len(columns) == 1:
        return _Operand(product, (*batch, *rows, *columns))
    sizes = [_size(b, product, k) for k in range(len(batch))]
    sizes += [_size(b, x.value, x.labels.index(a)) for a in rows]
    sizes += [_size(b, y.value, y.labels.index(a)) for a in columns]
    return _Operand(b.op("reshape", product, _joined(b, sizes)), (*batch, *rows, *columns))


def _matrix(
    b: Builder, o: _Operand, batch: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> Expr:
    order = tuple(o.labels.index(a) for a in (*batch, *first, *second))
    value = o.value if order == tuple(range(len(order))) else b.op("transpose", o.value, axes=order)
    if len(first) == len(second) == 1:
        return value
    sizes = [_size(b, o.value, o.labels.index(a)) for a in batch]
    sizes += [_merged(b, o, first), _merged(b, o, second)]
    return b.op("reshape", value, _joined(b, sizes))


def _merged(b: Builder, o: _Operand, labels: Sequence[str]) -> Expr:
    """The product of the labels' sizes, 1 for none."""
    total: Expr = b.ints([1])
    for a in labels:
        total = b.op("multiply", total, _size(b, o.value, o.labels.index(a)))
    return total


def _size(b: Builder, e: Expr, axis: int) -> Expr:
    return b.op("shape_of", e, start=axis, end=axis + 1)


def _joined(b: Builder, sizes: Sequence[Expr]) -> Expr:
    return b.op("concatenate", *sizes, axis=0) if sizes else b.ints(())

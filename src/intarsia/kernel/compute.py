"""What is computed, apart from how: a small DAG of stages from input buffers to output buffers.

    stage  ::= out[i, j, …] = expr(i, j, …)          every element by one expression (`compute`)
    opaque ::= (out, …) = build(target)(in, …)       a computation that has no such form (recurrence, sort, …)

Operators describe themselves with `compute`; fusing is composing their stages; `kernel/strategy` turns the
DAG into loops.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.dim.expr import DimLike
from intarsia.kernel.expr import Axis, Buffer, Expr, Load, Reduce, lift, substitute

if TYPE_CHECKING:
    from intarsia.kernel.stmt import Stmt
    from intarsia.kernel.target import Target

_fresh = itertools.count()


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """out[axes] = body. axes: one variable name per output dimension, unique in the process.

    hint: what strategies may want to know and cannot see from the body, e.g. {'conv': ConvShape(...)}; never
        needed for a right result.
    """

    axes: tuple[str, ...]
    body: Expr
    hint: dict[str, object] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        from intarsia.kernel.expr import walk

        found: dict[int, Buffer] = {}
        for node in walk(self.body):
            if isinstance(node, Load):
                found[id(node.buffer)] = node.buffer
        return tuple(found.values())


@dataclass(frozen=True, slots=True, eq=False)
class Opaque:
    """A computation written as loops by itself.

    name:      what it is, for people and for cache keys ('lstm', 'topk', …)
    inputs:    buffers read (each complete in memory before this runs)
    outputs:   (shape, dtype) of each result; `outputs_of` makes the buffers
    scratch:   (shape, dtype) of workspaces
    build:     (target, input buffers, output buffers, scratch buffers) -> Stmt
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[tuple[tuple[Dim, ...], str], ...]
    scratch: tuple[tuple[tuple[Dim, ...], str], ...]
    build: Callable[[Target, Sequence[Buffer], Sequence[Buffer], Sequence[Buffer]], Stmt] = field(repr=False)


Producer = Union[Stage, Opaque]


def fresh(prefix: str) -> str:
    """A variable name that no other stage of this process uses."""
    return f"{prefix}.{next(_fresh)}"


def placeholder(name: str, shape: Sequence[DimLike], dtype: str) -> Buffer:
    """An input."""
    return Buffer(name, tuple(as_dim(d) for d in shape), dtype)


def compute(
    shape: Sequence[DimLike],
    element: Callable[..., Expr],
    *,
    dtype: str | None = None,
    name: str = "t",
    hint: dict[str, object] | None = None,
) -> Buffer:
    """The tensor whose element at (i, j, …) is `element(i, j, …)`; the indices are Dims (one symbol each).

    A dimension of constant size 1 gets the index 0, which keeps expressions simple.
    """
    dims = tuple(as_dim(d) for d in shape)
    axes = tuple(fresh("i") for _ in dims)
    indices = [as_dim(0) if d == 1 else Symbol(a) for a, d in zip(axes, dims, strict=True)]
    body = element(*indices)
    body = lift(body, dtype or "int64") if not isinstance(body, Expr) else body
    return Buffer(name, dims, dtype or body.dtype, producer=Stage(axes, body, hint or {}))


def reduce_axis(extent: DimLike) -> Axis:
    return Axis(fresh("k"), as_dim(extent))


def var(axis: Axis) -> Dim:
    """The axis as an index (0 if its extent is 1)."""
    return as_dim(0) if axis.extent == 1 else Symbol(axis.var)


def reduce(op: str, body: Expr, *axes: Axis) -> Expr:
    """`op` over the axes (see kernel.expr.REDUCE). With no axis: the body."""
    return Reduce(op, axes, body) if axes else body


def opaque(
    name: str,
    inputs: Sequence[Buffer],
    outputs: Sequence[tuple[Sequence[DimLike], str]],
    build: Callable[[Target, Sequence[Buffer], Sequence[Buffer], Sequence[Buffer]], Stmt],
    scratch: Sequence[tuple[Sequence[DimLike], str]] = (),
) -> tuple[Buffer, ...]:
    """The results of an opaque computation, one buffer each."""

    def shapes(items):
        return tuple((tuple(as_dim(d) for d in s), t) for s, t in items)

    producer = Opaque(name, tuple(inputs), shapes(outputs), shapes(scratch), build)
    return tuple(Buffer(f"{name}.{i}", s, t, producer=producer) for i, (s, t) in enumerate(producer.outputs))


def element(buffer: Buffer, indices: Sequence) -> Expr:
    """buffer[indices], with an injective producer's expression put in its place (inlining)."""
    stage = buffer.producer
    if isinstance(stage, Stage) and not isinstance(stage.body, Reduce):
        return substitute(stage.body, dict(zip(stage.axes, indices, strict=True)))
    return buffer[tuple(indices)]

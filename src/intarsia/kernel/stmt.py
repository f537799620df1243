"""The loop language: how a kernel runs.

    kernel ::= name(buffer, …; symbol, …) { stmt }
    stmt   ::= for v in 0 … extent: stmt            kind: serial | parallel | vector | unroll
             | buffer[index, …] = expr              Store
             | alloc buffer: stmt                   Allocate   scope stack or register
             | let name = dim | expr: stmt          Bind       a computed integer, usable as a symbol inside
             | if cond: stmt else: stmt             If
             | { stmt; … }                          Block

vector:   extent is a constant (any number of lanes, the code generator splits it); the body is evaluated for
          all at once. `active` (Dim) restricts a vector loop to the lanes below it, for ragged ends.
parallel: iterations are independent and may run on any thread in any order. `work` estimates one iteration's
          cost in nanoseconds at one core; the code generator runs the loop serially if the total is too small
          to share.
unroll:   extent is a constant; the body is repeated with the variable replaced.

A kernel's machine-code signature is `void name(ctx*, void** buffers, int64* symbols)`, buffers in the order
inputs, outputs, workspaces. `verify` is the language's checker; every index is in bounds by construction of
strategies and tests prove it by running `kernel/evaluate.py`, which checks each access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from intarsia.dim import Dim, as_dim
from intarsia.dim.expr import DimLike
from intarsia.kernel.expr import Buffer, Expr, IndexLike


class Stmt:
    """Base of statements."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    var: str
    extent: Dim
    body: Stmt
    kind: str = "serial"
    active: Dim | None = None
    work: Dim | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    buffer: Buffer
    indices: tuple[IndexLike, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Bind(Stmt):
    name: str
    value: Dim | Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    cond: Expr
    then: Stmt
    orelse: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Block(Stmt):
    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """inputs, outputs, workspaces: global buffers in signature order; symbols: names of the dims array, in
    order.

    flops: floating-point operations of one run, None if not estimated.
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    workspaces: tuple[Buffer, ...]
    symbols: tuple[str, ...]
    body: Stmt
    flops: Dim | None = field(default=None)


def loop(
    var: str,
    extent: DimLike,
    body: Stmt,
    kind: str = "serial",
    *,
    active: DimLike | None = None,
    work: DimLike | None = None,
) -> Stmt:
    """A For; a loop of constant extent 1 that is no vector becomes its body with the variable bound to 0."""
    extent = as_dim(extent)
    if extent == 1 and kind != "vector":
        return Bind(var, as_dim(0), body)
    return For(
        var,
        extent,
        body,
        kind,
        None if active is None else as_dim(active),
        None if work is None else as_dim(work),
    )


def block(*stmts: Stmt) -> Stmt:
    """One statement from several; nested blocks are flattened."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Block) else (s,))
    return flat[0] if len(flat) == 1 else Block(tuple(flat))


def store(buffer: Buffer, indices: Sequence, value: Expr) -> Store:
    return Store(buffer, tuple(i if isinstance(i, Expr) else as_dim(i) for i in indices), value)

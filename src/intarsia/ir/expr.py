"""The expressions of Relay.

    expr ::= %x                                 Var              a local; its identity is the object
           | @f                                 GlobalVar        a function of the module, by name
           | tensor literal                     Constant         a NumPy array
           | op.name                            OpRef            a primitive operator, also a value
           | Name                               ConstructorRef   a constructor of an ADT, also a value
           | fn(%x: type, …) -> type { expr }   Function         closure; `primitive` marks a fused kernel
           | expr(expr, …, key=attr, …)         Call
           | let %x = expr; expr                Let              only a Function may name %x in its value
           | if (expr) { expr } else { expr }   If               the condition is a rank-0 bool
           | (expr, …)                          Tuple
           | expr.k                             TupleGet
           | match (expr) { pattern => expr, …} Match
           | ref(expr) | !expr | expr := expr   RefNew, RefRead, RefWrite
    pattern ::= _ | %x | Name(pattern, …) | (pattern, …)        (ir/pattern.py)

An expression is a DAG: a node that is reached twice is computed once. Nodes are immutable, compare by
    identity (`structural_equal` is a function) and carry the place in the user's model they came from. Types
    are not stored on nodes; `intarsia.infer` computes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Union

import numpy as np

from intarsia.dim import Dim
from intarsia.ir.types import Type, TypeVar
from intarsia.support.span import UNKNOWN, Span

if TYPE_CHECKING:
    from intarsia.ir.pattern import Pattern

Attr = Union[None, bool, int, float, str, Dim, tuple["Attr", ...]]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Expr:
    """Base of all expressions. `str` is the text of the whole expression, `repr` names the node only."""

    span: Span = field(default=UNKNOWN, kw_only=True)

    def __str__(self) -> str:
        from intarsia.ir.text.printer import print_expr

        return print_expr(self)

    def __repr__(self) -> str:
        shown = getattr(self, "name", None) or getattr(getattr(self, "op", None), "name", None)
        return f"<{type(self).__name__}{f' {shown}' if shown else ''}>"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    name: str
    type: Type | None = None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GlobalVar(Expr):
    name: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Constant(Expr):
    """value: a C-contiguous array that nobody writes to."""

    value: np.ndarray


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OpRef(Expr):
    name: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConstructorRef(Expr):
    name: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Function(Expr):
    params: tuple[Var, ...]
    body: Expr
    result: Type | None = None
    type_params: tuple[TypeVar, ...] = ()
    attrs: Mapping[str, Attr] = field(default_factory=dict)

    @property
    def primitive(self) -> bool:
        """Whether this function becomes exactly one kernel."""
        return bool(self.attrs.get("primitive"))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    op: Expr
    args: tuple[Expr, ...]
    attrs: Mapping[str, Attr] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Expr):
    var: Var
    value: Expr
    body: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class If(Expr):
    cond: Expr
    then: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tuple(Expr):
    fields: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TupleGet(Expr):
    tuple: Expr
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    pattern: Pattern
    body: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Match(Expr):
    data: Expr
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefNew(Expr):
    value: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefRead(Expr):
    ref: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RefWrite(Expr):
    ref: Expr
    value: Expr


def call(op: str, *args: Expr, span: Span = UNKNOWN, **attrs: Attr) -> Call:
    """Call of a primitive operator by name."""
    return Call(OpRef(op), args, attrs, span=span)

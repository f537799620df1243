"""Names and what they stand for: a graph's scope, the scopes around it, and functions that loops become."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intarsia.dim import Dim, Symbol
from intarsia.ir.expr import Constant, Expr, Var
from intarsia.ir.types import TensorType

if TYPE_CHECKING:
    from onnx import AttributeProto

    from intarsia.frontend.onnx.builder import Builder


@dataclass(slots=True)
class Lifted:
    """The global function that a loop's body becomes: what it captures from outside becomes parameters.

    captures: (outer expression, parameter) in order. A size that is no bare symbol outside gets one of its
        own.
    """

    name: str
    captures: dict[int, tuple[Expr, Var]] = field(default_factory=dict)
    sizes: dict[Dim, Dim] = field(default_factory=dict)

    def capture(self, b: Builder, outer: Expr, hint: str) -> Expr:
        """The outer value inside the function; constants need no parameter."""
        if isinstance(outer, Constant):
            return outer
        if id(outer) not in self.captures:
            self.captures[id(outer)] = outer, Var(hint, self.local(b.type(outer)), span=outer.span)
        return self.captures[id(outer)][1]

    def local(self, t: TensorType) -> TensorType:
        """An outer type in terms of the function's own symbols."""
        return TensorType(tuple(self._size(d) for d in t.shape), t.dtype)

    def _size(self, d: Dim) -> Dim:
        if d.is_const or d.symbol and "$" not in d.symbol:
            return d
        if d not in self.sizes:
            self.sizes[d] = self.fresh()
        return self.sizes[d]

    def fresh(self) -> Dim:
        """A size that the function's caller decides."""
        own = Symbol(f"{self.name}_n{len(self.sizes)}")
        self.sizes.setdefault(own, own)
        return own


@dataclass(slots=True)
class Scope:
    """values: by ONNX name (None: an optional input that was not given); parent: the graph around this one.

    lifted: set where this graph becomes a function of its own; opsets: domain -> version; attributes: of the
        call whose function body this is (for references); path: of outer nodes, unique; span_name: the node
        that is being inlined; inlining: the functions around.
    """

    opsets: Mapping[str, int]
    parent: Scope | None = None
    lifted: Lifted | None = None
    values: dict[str, Expr | None] = field(default_factory=dict)
    attributes: Mapping[str, AttributeProto] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    span_name: str = ""
    inlining: tuple[str, ...] = ()

    def inner(self, lifted: Lifted | None, step: str) -> Scope:
        """The scope of a subgraph of a node."""
        return Scope(
            self.opsets,
            self,
            lifted,
            attributes=self.attributes,
            path=(*self.path, step),
            span_name=self.span_name,
            inlining=self.inlining,
        )

    def lookup(self, b: Builder, name: str) -> Expr | None:
        """The value of a name, captured where functions lie between. KeyError for an unknown name."""
        crossed: list[Scope] = []
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            if scope.lifted is not None:
                crossed.append(scope)
            scope = scope.parent
        if scope is None:
            raise KeyError(name)
        value = scope.values[name]
        for inner in reversed(crossed):
            if value is not None:
                assert inner.lifted is not None
                value = inner.lifted.capture(b, value, name)
                inner.values[name] = value
        return value

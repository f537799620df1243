"""What inference found out: types, known contents, operator sites, checks and where symbols are read at run
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from intarsia.ir.expr import Expr, Let
from intarsia.ir.scopes import Scopes
from intarsia.ir.types import ADTType, FuncType, RefType, TensorType, TupleType, Type
from intarsia.op.entry import Check, Item, Measured, Site

Value = np.ndarray | tuple | None  # of an integer tensor: object array of Dims; of a tuple: a tuple of these


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a symbol comes from, in words, e.g. 'dimension 0 of parameter %x of @main'; order: when it was
    made.
    """

    text: str
    order: int


class Typing:
    """The result of `infer`. Expressions are looked up by identity.

    sites:   operator calls by id: attributes, result types, checks, bindings
    checks:  every check of the module, function by function, in order of evaluation
    origins: (function, symbol) -> where the symbol comes from
    lets:    variable id -> the let that binds it
    """

    def __init__(self) -> None:
        self.sites: dict[int, Site] = {}
        self.checks: list[Check] = []
        self.origins: dict[tuple[str, str], Origin] = {}
        self.lets: dict[int, Let] = {}
        self._types: dict[int, Type] = {}
        self._values: dict[int, Value] = {}
        self._bindings: dict[int, dict[str, Item | Measured]] = {}
        self._checks_at: dict[int, list[Check]] = {}
        self._symbols: dict[str, frozenset[str]] = {}
        self._scopes: dict[str, Scopes] = {}  # these hold every expression, so that ids stay valid

    def type(self, e: Expr) -> Type:
        """The type of an expression that inference saw; KeyError for a stranger."""
        return self._types[id(e)]

    def maybe_type(self, e: Expr) -> Type | None:
        """The type, or None for an expression that inference has not seen."""
        return self._types.get(id(e))

    def value(self, e: Expr) -> np.ndarray | None:
        """Known contents of an integer or bool tensor as an object array of Dims, or None."""
        known = self._values.get(id(e))
        return known if isinstance(known, np.ndarray) else None

    def checks_at(self, e: Expr) -> list[Check]:
        """What must hold right after `e` was computed; for a function: before it returns."""
        site = self.sites.get(id(e))
        return (site.checks if site else []) + self._checks_at.get(id(e), [])

    def bindings(self, e: Expr) -> Mapping[str, Item | Measured]:
        """Symbols that come into being with `e` and where each is read; for a pattern's variable: when it is
        bound.

        `Measured(output, axis)` counts the tensors of the flattened result (`tensor_leaves`).
        """
        site = self.sites.get(id(e))
        return site.bindings if site else self._bindings.get(id(e), {})

    def symbols(self, function: str) -> frozenset[str]:
        """The symbols that the parameters of a global function bind at entry."""
        return self._symbols[function]

    def scopes(self, function: str) -> Scopes:
        """The scopes of a global function, the function itself being the root's only node."""
        return self._scopes[function]

    def origin(self, symbol: str, function: str = "main") -> str:
        """Where a symbol of a global function comes from, in words."""
        known = self.origins.get((function, symbol)) or next(
            (o for (_, s), o in self.origins.items() if s == symbol), None
        )
        return known.text if known else "a size of unknown origin"


def tensor_leaves(t: Type) -> list[TensorType]:
    """The tensors of a type in order, through tuples only."""
    found: list[TensorType] = []
    todo = [t]
    while todo:
        match todo.pop():
            case TensorType() as leaf:
                found.append(leaf)
            case TupleType(fields=fields):
                todo.extend(reversed(fields))
    return found


def type_symbols(t: Type) -> set[str]:
    """All symbols that occur in the dimensions of a type."""
    found: set[str] = set()
    todo: list[Type] = [t]
    while todo:
        match todo.pop():
            case TensorType(shape=shape):
                for d in shape:
                    found |= d.symbols()
            case TupleType(fields=fields):
                todo.extend(fields)
            case FuncType(args=args, result=result):
                todo.extend(args)
                todo.append(result)
            case ADTType(args=args):
                todo.extend(args)
            case RefType(value=value):
                todo.append(value)
    return found

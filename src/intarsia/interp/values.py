"""Values of the evaluator:   value ::= NumPy array | tuple of values | ADTValue | Closure | Cell"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from intarsia.ir.expr import Function


@dataclass(frozen=True, slots=True, eq=False)
class ADTValue:
    """A constructor applied to values."""

    constructor: str
    fields: tuple[Value, ...] = ()


@dataclass(slots=True, eq=False)
class Cell:
    """A mutable reference."""

    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Closure:
    """A function together with the activation it was made in (None for a global function, then `name` says
    which).
    """

    function: Function = field(repr=False)
    frame: object = field(default=None, repr=False)
    name: str = ""


Value = Union[np.ndarray, tuple, ADTValue, Cell, Closure]


def from_list(values: Iterable[Value], cons: str = "Cons", nil: str = "Nil") -> ADTValue:
    """A list of the prelude's shape."""
    result = ADTValue(nil)
    for v in reversed(list(values)):
        result = ADTValue(cons, (v, result))
    return result


def to_list(value: Value) -> list[Value]:
    """The elements of a list of the prelude's shape (head first, tail last)."""
    found = []
    while isinstance(value, ADTValue) and value.fields:
        head, value = value.fields
        found.append(head)
    return found

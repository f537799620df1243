"""The patterns of `match`:   pattern ::= _ | %x | Name(pattern, …) | (pattern, …)"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.ir.expr import Var


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Base of all patterns."""


@dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class PVar(Pattern):
    var: Var


@dataclass(frozen=True, slots=True, eq=False)
class PConstructor(Pattern):
    constructor: str
    fields: tuple[Pattern, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class PTuple(Pattern):
    fields: tuple[Pattern, ...]

"""A module: global functions (mutually recursive through their names) and algebraic data types. The entry is
`main`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from intarsia.dim import Bounds
from intarsia.ir.expr import Function
from intarsia.ir.types import Type, TypeVar


@dataclass(frozen=True, slots=True)
class Constructor:
    """name, argument types (over the ADT's type parameters), position in the ADT."""

    name: str
    inputs: tuple[Type, ...]
    tag: int


@dataclass(frozen=True, slots=True)
class ADT:
    name: str
    type_params: tuple[TypeVar, ...]
    constructors: tuple[Constructor, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IRModule:
    """functions and types by name (without @).

    bounds:        what is known of the symbols in `main`'s signature
    input_names,   names in the user's model for main's parameters and results (by default the Vars' names)
    output_names
    """

    functions: Mapping[str, Function]
    types: Mapping[str, ADT] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()

    @property
    def main(self) -> Function:
        return self.functions["main"]

    def constructor(self, name: str) -> tuple[ADT, Constructor] | None:
        """The ADT and constructor of that name, or None."""
        for adt in self.types.values():
            for c in adt.constructors:
                if c.name == name:
                    return adt, c
        return None

    def __str__(self) -> str:
        from intarsia.ir.text.printer import print_module

        return print_module(self)

    def with_functions(self, functions: Mapping[str, Function]) -> IRModule:
        return replace(self, functions=dict(functions))

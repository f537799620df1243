"""The types of Relay.

    type ::= Tensor[(dim, …), dtype]            TensorType     static rank, symbolic dimensions
           | (type, …)                          TupleType
           | fn[T, …](type, …) -> type          FuncType       polymorphic in the type variables it binds
           | T                                  TypeVar
           | Name[type, …]                      ADTType        an algebraic data type applied to arguments
           | ref(type)                          RefType
    dim  ::= integer expression over named symbols (intarsia.dim)

Types are values: equality is structural.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from intarsia.dim import Dim, as_dim
from intarsia.dim.expr import DimLike

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
)  # fmt: skip


class Type:
    """Base of all types."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    shape: tuple[Dim, ...]
    dtype: str

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        if not self.shape:
            return self.dtype
        dims = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"Tensor[({dims}), {self.dtype}]"


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return "(" + ", ".join(map(str, self.fields)) + ("," if len(self.fields) == 1 else "") + ")"


@dataclass(frozen=True, slots=True)
class FuncType(Type):
    args: tuple[Type, ...]
    result: Type
    type_params: tuple[TypeVar, ...] = ()

    def __str__(self) -> str:
        generics = "[" + ", ".join(p.name for p in self.type_params) + "]" if self.type_params else ""
        return f"fn{generics}({', '.join(map(str, self.args))}) -> {self.result}"


@dataclass(frozen=True, slots=True)
class TypeVar(Type):
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ADTType(Type):
    name: str
    args: tuple[Type, ...] = ()

    def __str__(self) -> str:
        return self.name + ("[" + ", ".join(map(str, self.args)) + "]" if self.args else "")


@dataclass(frozen=True, slots=True)
class RefType(Type):
    value: Type

    def __str__(self) -> str:
        return f"ref({self.value})"


def tensor(shape: Iterable[DimLike] = (), dtype: str = "float32") -> TensorType:
    """TensorType from ints and Dims."""
    return TensorType(tuple(as_dim(d) for d in shape), dtype)

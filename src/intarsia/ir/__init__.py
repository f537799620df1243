"""Relay: a purely functional, statically typed language for models."""

from intarsia.ir.expr import (
    Attr,
    Call,
    Clause,
    Constant,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    OpRef,
    RefNew,
    RefRead,
    RefWrite,
    Tuple,
    TupleGet,
    Var,
    call,
)  # fmt: skip
from intarsia.ir.module import ADT, Constructor, IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar, Wildcard
from intarsia.ir.types import ADTType, FuncType, RefType, TensorType, TupleType, Type, TypeVar, tensor
from intarsia.ir.visit import children, post_order, rebuild, rewrite, uses

__all__ = [
    "ADT", "ADTType", "Attr", "Call", "Clause", "Constant", "Constructor", "ConstructorRef", "Expr",
    "FuncType", "Function", "GlobalVar", "IRModule", "If", "Let", "Match", "OpRef", "PConstructor",
    "PTuple", "PVar", "Pattern", "RefNew", "RefRead", "RefType", "RefWrite", "TensorType", "Tuple",
    "TupleGet", "TupleType", "Type", "TypeVar", "Var", "Wildcard", "call", "children", "post_order",
    "rebuild", "rewrite", "tensor", "uses",
]  # fmt: skip

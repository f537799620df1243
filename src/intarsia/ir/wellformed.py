"""Is a module well formed? Every variable is bound where it is used, every binder binds once, names are
known.

Types and operators are inference's business.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NoReturn

from intarsia.ir.expr import ConstructorRef, Function, GlobalVar, Let, Match, TupleGet, Var
from intarsia.ir.module import IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar
from intarsia.ir.scopes import Scope, scopes_of
from intarsia.ir.visit import children
from intarsia.support.errors import ModelError
from intarsia.support.span import UNKNOWN, Span


def verify(module: IRModule) -> None:
    """Raise ModelError IR-001 … IR-006 for the first fault found, with its place."""
    _verify_types(module)
    bound: dict[int, str] = {}
    for name, f in module.functions.items():
        _verify_function(module, name, f, bound)


def _verify_types(module: IRModule) -> None:
    seen: dict[str, str] = {}
    for name, adt in module.types.items():
        if name != adt.name:
            _fail("IR-006", f"the type {adt.name} is listed as {name}")
        for i, c in enumerate(adt.constructors):
            if c.name in seen:
                _fail("IR-006", f"the constructor {c.name} belongs to both {seen[c.name]} and {name}")
            if c.tag != i:
                _fail("IR-006", f"the constructor {c.name} of {name} has tag {c.tag} at position {i}")
            seen[c.name] = name


def _verify_function(module: IRModule, name: str, f: Function, bound: dict[int, str]) -> None:
    scopes = scopes_of(f, lets=True)
    reach: dict[int, tuple[Scope, ...]] = {}  # variable -> where it may be used

    def bind(var: Var, *where: Scope) -> None:
        if id(var) in bound:
            _fail(
                "IR-002", f"%{var.name} is bound twice: in @{bound[id(var)]} and in @{name}", var.span, name
            )
        bound[id(var)] = name
        reach[id(var)] = where

    for node in scopes.order:
        match node:
            case Function(params=params):
                for p in params:
                    bind(p, scopes.inner[id(node), 0])
            case Let(var=var, value=value):
                own = (scopes.inner[id(node), 0],) if isinstance(value, Function) else ()
                bind(var, scopes.inner[id(node), 1], *own)
            case Match(clauses=clauses):
                if not clauses:
                    _fail("IR-005", "a match needs at least one clause", node.span, name)
                for i, clause in enumerate(clauses):
                    for p in _patterns(clause.pattern):
                        if isinstance(p, PVar):
                            bind(p.var, scopes.inner[id(node), i + 1])
                        elif isinstance(p, PConstructor) and module.constructor(p.constructor) is None:
                            _fail("IR-004", f"there is no constructor {p.constructor}", node.span, name)
            case GlobalVar(name=callee) if callee not in module.functions:
                _fail("IR-003", f"there is no function @{callee}", node.span, name)
            case ConstructorRef(name=constructor) if module.constructor(constructor) is None:
                _fail("IR-004", f"there is no constructor {constructor}", node.span, name)
            case TupleGet(index=index) if index < 0:
                _fail("IR-005", f"field {index} of a tuple; fields count from 0", node.span, name)
    for node in scopes.order:
        for position, child in enumerate(children(node)):
            if isinstance(child, Var):
                here = scopes.inner.get((id(node), position)) or scopes.of[id(node)]
                if not any(here.within(scope) for scope in reach.get(id(child), ())):
                    _fail("IR-001", f"%{child.name} is used where it is not bound", node.span, name)


def _patterns(pattern: Pattern) -> Iterator[Pattern]:
    todo = [pattern]
    while todo:
        p = todo.pop()
        yield p
        if isinstance(p, PConstructor | PTuple):
            todo.extend(reversed(p.fields))


def _fail(code: str, message: str, span: Span = UNKNOWN, function: str = "") -> NoReturn:
    where = ", in ".join(([str(span)] if span != UNKNOWN else []) + ([f"@{function}"] if function else []))
    raise ModelError(code, message, where=where or None)

"""`infer`: the global functions of a module in an order in which every call finds its callee's type."""

from __future__ import annotations

from intarsia.infer.context import Names
from intarsia.infer.function import FunctionTyper
from intarsia.infer.typing import Typing, type_symbols
from intarsia.ir.expr import Function, GlobalVar, Var
from intarsia.ir.module import IRModule
from intarsia.ir.scopes import scopes_of
from intarsia.ir.types import FuncType
from intarsia.support.errors import TypeCheckError


def infer(module: IRModule) -> Typing:
    """Types of all expressions, operator sites, checks and bindings, in time linear in the module's size.

    Raises TypeCheckError (TYPE-…), UnsupportedError OP-001 for an operator that does not exist.
    """
    typing = Typing()
    calls: dict[str, list[str]] = {}
    symbols: set[str] = set(module.bounds.known)
    for name, f in module.functions.items():
        calls[name] = []
        scopes = typing._scopes[name] = scopes_of(f)
        for node in scopes.order:
            match node:
                case GlobalVar(name=callee):
                    calls[name].append(callee)
                case Function(params=params):
                    for p in params:
                        symbols |= _annotated(p)
    names = Names(symbols)
    signatures: dict[str, FuncType] = {}
    for name, f in module.functions.items():
        if f.result is not None and all(p.type is not None for p in f.params):
            signatures[name] = FuncType(tuple(p.type for p in f.params), f.result, f.type_params)  # type: ignore[misc]
    for name in _order(module, calls, signatures):
        typer = FunctionTyper(module, name, typing, names, signatures)
        found = typer.run()
        signatures.setdefault(name, found)
        f = module.functions[name]
        typing._symbols[name] = frozenset().union(*(type_symbols(t) for t in found.args)) - {"?"}
    return typing


def _annotated(p: Var) -> set[str]:
    return type_symbols(p.type) if p.type is not None else set()


def _order(module: IRModule, calls: dict[str, list[str]], known: dict[str, FuncType]) -> list[str]:
    """Callees without a declared type before their callers; a cycle of such functions is an error."""
    order: list[str] = []
    state: dict[str, int] = {}  # 1: on the path from the root, 2: done
    for root in module.functions:
        stack: list[tuple[str, bool]] = [(root, False)]
        while stack:
            name, done = stack.pop()
            if done:
                state[name] = 2
                order.append(name)
                continue
            if state.get(name):
                continue
            state[name] = 1
            stack.append((name, True))
            for callee in calls[name]:
                if callee in known or callee not in module.functions:
                    continue
                if state.get(callee) == 1:
                    raise TypeCheckError(
                        "TYPE-006",
                        f"@{callee} calls itself, so the type of its result cannot be inferred",
                        where=str(module.functions[callee].span),
                        remedy=f"write the result's type: def @{callee}(…) -> type",
                    )
                stack.append((callee, False))
    return order

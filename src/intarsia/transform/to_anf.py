"""Every intermediate value gets a name, in the innermost scope that holds all its uses.

    add(exp(%x), exp(%x)) with one shared exp        before
    let %t0 = exp(%x); let %t1 = add(%t0, %t0); %t1  after

Variables, constants, global names, operators and constructors stay where they are. A primitive function is a
value called in place: its body is left as a graph.
"""

from __future__ import annotations

from intarsia.ir import (
    Constant,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    IRModule,
    Let,
    OpRef,
    RefNew,
    RefRead,
    RefWrite,
    Tuple,
    Var,
    children,
    post_order,
    rebuild,
)  # fmt: skip
from intarsia.ir.scopes import Scope, scopes_of

_ATOMS = (Var, Constant, GlobalVar, OpRef, ConstructorRef)


def to_anf(module: IRModule) -> IRModule:
    """A-normal form of every function; functions that use references or let already are left as they are."""
    return module.with_functions({name: _function(f) for name, f in module.functions.items()})


def _function(f: Function) -> Function:
    if any(isinstance(n, Let | RefNew | RefRead | RefWrite) for n in post_order(f, into=_not_primitive)):
        return f
    scopes = scopes_of(f.body)
    atom: dict[int, Expr] = {}  # node -> what stands for it
    bindings: dict[int, list[tuple[Var, Expr]]] = {}

    def close(scope: Scope, result: Expr) -> Expr:
        bound = bindings.pop(id(scope), [])
        if (
            bound and bound[-1][0] is result
        ):  # the last value is the result: no name, so that a tail call shows as one
            result = bound.pop()[1]
        for var, value in reversed(bound):
            result = Let(var, value, result, span=value.span)
        return result

    count = 0
    inside_primitive: set[int] = set()
    for node in reversed(scopes.order):  # everything below a primitive function belongs to it
        if id(node) in inside_primitive or (isinstance(node, Function) and node.primitive):
            inside_primitive.update(id(c) for c in children(node))
    for node in scopes.order:
        if id(node) in inside_primitive:
            continue
        if isinstance(node, _ATOMS) or (isinstance(node, Function) and node.primitive) or _is_unit(node):
            atom[id(node)] = node
            continue
        parts = []
        for position, child in enumerate(children(node)):
            part = atom.get(id(child), child)  # what a primitive function's body shares with us is an atom
            scope = scopes.inner.get((id(node), position))
            parts.append(part if scope is None else close(scope, part))
        var = Var(f"t{count}", span=node.span)
        count += 1
        bindings.setdefault(id(scopes.of[id(node)]), []).append((var, rebuild(node, tuple(parts))))
        atom[id(node)] = var
    return Function(
        f.params,
        close(scopes.root, atom.get(id(f.body), f.body)),
        f.result,
        f.type_params,
        f.attrs,
        span=f.span,
    )


def _not_primitive(e: Expr) -> bool:
    return not (isinstance(e, Function) and e.primitive)


def _is_unit(e: Expr) -> bool:
    return isinstance(e, Tuple) and not e.fields

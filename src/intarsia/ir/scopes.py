"""Where each node of a graph is computed: the innermost branch or function body that holds all its uses.

A scope is one arm of an `if`, one clause of a `match`, or a function's body; scopes form a tree. Work that is shared
by an arm and its surroundings belongs outside; work of one arm is done only when that arm runs. Whoever types,
evaluates or orders a graph goes scope by scope: `Scope.nodes` lists its nodes, operands before users.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intarsia.ir.expr import Expr, Function, If, Match
from intarsia.ir.visit import children, post_order


@dataclass(slots=True, eq=False)
class Scope:
    parent: Scope | None
    depth: int
    nodes: list[Expr] = field(default_factory=list)


@dataclass(slots=True)
class Scopes:
    """of: node id -> its scope. inner: (owner id, child position) -> the scope of that arm or body. order: post-order."""

    root: Scope
    of: dict[int, Scope]
    inner: dict[tuple[int, int], Scope]
    order: list[Expr]


def scopes_of(body: Expr) -> Scopes:
    """Scopes of a function's body, in time linear in its size times the nesting depth of branches."""
    order = list(post_order(body))
    root = Scope(None, 0)
    of: dict[int, Scope] = {id(body): root}
    inner: dict[tuple[int, int], Scope] = {}
    for node in reversed(order):  # users before operands
        here = of[id(node)]
        first_inner = _first_inner(node)
        for position, child in enumerate(children(node)):
            scope = here
            if position >= first_inner:
                scope = inner[id(node), position] = Scope(here, here.depth + 1)
            known = of.get(id(child))
            of[id(child)] = scope if known is None or known is scope else _common(known, scope)
    for node in order:
        of[id(node)].nodes.append(node)
    return Scopes(root, of, inner, order)


def _first_inner(node: Expr) -> int:
    """Children from this position on have scopes of their own."""
    match node:
        case If() | Match():
            return 1
        case Function():
            return 0
    return 1 << 30


def _common(a: Scope, b: Scope) -> Scope:
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a

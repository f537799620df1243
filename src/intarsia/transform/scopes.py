"""Where each node of a graph has to be computed: the innermost branch or function that holds all its uses.

A scope is one arm of an `if`, one clause of a `match`, or a function's body; scopes form a tree. Passes that place
bindings (`to_anf`) or group nodes (`fuse_ops`) stay within a scope, so that work shared by an arm and its
surroundings is done outside, and work of one arm only when that arm runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intarsia.ir import Expr, Function, If, Match, children, post_order


@dataclass(slots=True, eq=False)
class Scope:
    parent: Scope | None
    depth: int
    nodes: list[Expr] = field(default_factory=list)  # operands before users


@dataclass(slots=True)
class Scopes:
    """of: node id -> its scope. inner: (owner id, child position) -> the scope of that arm or body. order: post-order."""

    root: Scope
    of: dict[int, Scope]
    inner: dict[tuple[int, int], Scope]
    order: list[Expr]


def scopes_of(f: Function) -> Scopes:
    """Scopes of the body of f, in time linear in its size times the nesting depth."""
    order = list(post_order(f.body))
    root = Scope(None, 0)
    of: dict[int, Scope] = {id(f.body): root}
    inner: dict[tuple[int, int], Scope] = {}
    for node in reversed(order):  # users before operands
        here = of[id(node)]
        for position, child in enumerate(children(node)):
            scope = here
            if _opens_scope(node, position):
                scope = Scope(here, here.depth + 1)
                inner[id(node), position] = scope
            of[id(child)] = scope if id(child) not in of else _common(of[id(child)], scope)
    for node in order:
        of[id(node)].nodes.append(node)
    return Scopes(root, of, inner, order)


def _opens_scope(node: Expr, position: int) -> bool:
    match node:
        case If() | Match():
            return position > 0
        case Function():
            return True
    return False


def _common(a: Scope, b: Scope) -> Scope:
    while a is not b:
        if a.depth >= b.depth:
            assert a.parent is not None
            a = a.parent
        else:
            assert b.parent is not None
            b = b.parent
    return a

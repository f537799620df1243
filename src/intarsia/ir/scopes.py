"""Where each node of a graph is computed: the innermost branch or function body that holds all its uses.

A scope is one arm of an `if`, one clause of a `match`, or a function's body; scopes form a tree. Work that is
shared by an arm and its surroundings belongs outside; work of one arm is done only when that arm runs.
Whoever types, evaluates or orders a graph goes scope by scope: `Scope.nodes` lists its nodes, operands before
users.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intarsia.ir.expr import Expr, Function, If, Let, Match
from intarsia.ir.visit import children, post_order

_NEVER = 1 << 30


@dataclass(slots=True, eq=False)
class Scope:
    """jump: an ancestor farther up, chosen so that common ancestors are found in logarithmic time (Myers
    1983).
    """

    parent: Scope | None
    depth: int
    nodes: list[Expr] = field(default_factory=list)
    jump: Scope = field(init=False, repr=False)

    def __post_init__(self) -> None:
        p = self.parent
        if p is None:
            self.jump = self
        else:
            far = p.jump.jump
            self.jump = far if p.depth - p.jump.depth == p.jump.depth - far.depth else p

    def within(self, other: Scope) -> bool:
        """Whether this is `other` or inside it."""
        return common_scope(self, other) is other


@dataclass(slots=True)
class Scopes:
    """of: node id -> its scope. inner: (owner id, child position) -> the scope of that arm or body. order:
    post-order.

    uses: node id -> how many times it is an operand.
    """

    root: Scope
    of: dict[int, Scope]
    inner: dict[tuple[int, int], Scope]
    order: list[Expr]
    uses: dict[int, int]


def scopes_of(body: Expr, *, lets: bool = False) -> Scopes:
    """Scopes of a function's body, in linear time (times log of the depth where sharing crosses scopes).

    lets: the body of a `let` is a scope too, and its value if that is a function: there its variable may be
        used.
    """
    order = list(post_order(body))
    root = Scope(None, 0)
    of: dict[int, Scope] = {id(body): root}
    inner: dict[tuple[int, int], Scope] = {}
    uses: dict[int, int] = {id(body): 0}
    for node in reversed(order):  # users before operands
        here = of[id(node)]
        first_inner = _first_inner(node, lets)
        for position, child in enumerate(children(node)):
            scope = here
            uses[id(child)] = uses.get(id(child), 0) + 1
            if position >= first_inner:
                scope = inner[id(node), position] = Scope(here, here.depth + 1)
            known = of.get(id(child))
            of[id(child)] = scope if known is None or known is scope else common_scope(known, scope)
    for node in order:
        of[id(node)].nodes.append(node)
    return Scopes(root, of, inner, order, uses)


def common_scope(a: Scope, b: Scope) -> Scope:
    """The innermost scope that contains both."""
    while a is not b:
        if a.depth < b.depth:
            a, b = b, a
        if a.depth > b.depth:
            a = a.jump if a.jump.depth >= b.depth else _parent(a)
        elif a.jump is not b.jump:
            a, b = a.jump, b.jump
        else:
            a, b = _parent(a), _parent(b)
    return a


def _parent(s: Scope) -> Scope:
    assert s.parent is not None
    return s.parent


def _first_inner(node: Expr, lets: bool) -> int:
    """Children from this position on have scopes of their own."""
    match node:
        case If() | Match():
            return 1
        case Function():
            return 0
        case Let(value=value) if lets:
            return 0 if isinstance(value, Function) else 1
    return _NEVER

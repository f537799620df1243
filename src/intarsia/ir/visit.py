"""Iterative traversal: no function here recurses over the program, so chains of any length work.

`children` lists a node's direct subexpressions, `rebuild` puts new ones in their place, `post_order` visits
every node of a DAG once, and `rewrite` rebuilds a DAG bottom-up with sharing kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from intarsia.ir import expr as E


def children(e: E.Expr) -> tuple[E.Expr, ...]:
    """Direct subexpressions in evaluation order. Binders (parameters, let variables, pattern variables) are
    not listed.
    """
    match e:
        case E.Call():
            return (e.op, *e.args)
        case E.Function() | E.Let():
            return (e.body,) if isinstance(e, E.Function) else (e.value, e.body)
        case E.If():
            return (e.cond, e.then, e.orelse)
        case E.Tuple():
            return e.fields
        case E.TupleGet():
            return (e.tuple,)
        case E.Match():
            return (e.data, *(c.body for c in e.clauses))
        case E.RefNew():
            return (e.value,)
        case E.RefRead():
            return (e.ref,)
        case E.RefWrite():
            return (e.ref, e.value)
    return ()


def rebuild(e: E.Expr, new: tuple[E.Expr, ...]) -> E.Expr:
    """The node with other subexpressions (as `children` lists them); the same object if none differs."""
    if all(a is b for a, b in zip(children(e), new, strict=True)):
        return e
    match e:
        case E.Call():
            return replace(e, op=new[0], args=new[1:])
        case E.Function():
            return replace(e, body=new[0])
        case E.Let():
            return replace(e, value=new[0], body=new[1])
        case E.If():
            return replace(e, cond=new[0], then=new[1], orelse=new[2])
        case E.Tuple():
            return replace(e, fields=new)
        case E.TupleGet():
            return replace(e, tuple=new[0])
        case E.Match():
            clauses = tuple(E.Clause(c.pattern, b) for c, b in zip(e.clauses, new[1:], strict=True))
            return replace(e, data=new[0], clauses=clauses)
        case E.RefNew():
            return replace(e, value=new[0])
        case E.RefRead():
            return replace(e, ref=new[0])
        case E.RefWrite():
            return replace(e, ref=new[0], value=new[1])
    return e


def post_order(root: E.Expr, *, into: Callable[[E.Expr], bool] | None = None) -> Iterator[E.Expr]:
    """Every node reachable from root once, subexpressions first. `into(node)` False: yield the node, not what
    is below.
    """
    seen: set[int] = set()
    stack: list[tuple[E.Expr, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        if into is None or into(node):
            stack.extend((c, False) for c in reversed(children(node)))


def rewrite(root: E.Expr, step: Callable[[E.Expr], E.Expr]) -> E.Expr:
    """Bottom-up: every node is rebuilt from its rewritten subexpressions, then given to `step`. Sharing is
    kept.
    """
    new: dict[int, E.Expr] = {}
    keep: list[E.Expr] = []  # ids stay valid while their nodes live
    for node in post_order(root):
        keep.append(node)
        new[id(node)] = step(rebuild(node, tuple(new[id(c)] for c in children(node))))
    return new[id(root)]


def uses(root: E.Expr) -> dict[int, int]:
    """How many times each node (by id) is an operand of another node reachable from root."""
    count: dict[int, int] = {id(root): 0}
    for node in post_order(root):
        for c in children(node):
            count[id(c)] = count.get(id(c), 0) + 1
    return count

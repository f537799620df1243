"""Let bindings of pure values become sharing.

    let %a = exp(%x); let %b = add(%a, %a); %b      before
    %0 = exp(%x); add(%0, %0)                       after (one node, used twice)

A let that binds a function (it may be recursive) stays, and so does every let of a function that uses
references: their order is their meaning.
"""

from __future__ import annotations

from intarsia.ir import (
    Expr,
    Function,
    IRModule,
    Let,
    RefNew,
    RefRead,
    RefWrite,
    children,
    post_order,
    rebuild,
)


def to_graph(module: IRModule) -> IRModule:
    """Graph normal form of every function that has no effects."""
    return module.with_functions({name: _function(f) for name, f in module.functions.items()})


def _function(f: Function) -> Function:
    nodes = list(post_order(f))
    if any(isinstance(n, RefNew | RefRead | RefWrite) for n in nodes) or not any(
        isinstance(n, Let) for n in nodes
    ):
        return f
    new: dict[int, Expr] = {}
    stack: list[tuple[Expr, int]] = [(f, 0)]
    while stack:
        node, stage = stack.pop()
        if id(node) in new:
            continue
        if isinstance(node, Let) and not isinstance(node.value, Function):
            # value first; then the variable stands for it; then the body; then the let is its body
            if stage == 0:
                stack += [(node, 1), (node.value, 0)]
            elif stage == 1:
                new[id(node.var)] = new[id(node.value)]
                stack += [(node, 2), (node.body, 0)]
            else:
                new[id(node)] = new[id(node.body)]
        elif stage == 0:
            stack.append((node, 1))
            stack.extend((c, 0) for c in reversed(children(node)))
        else:
            new[id(node)] = rebuild(node, tuple(new[id(c)] for c in children(node)))
    result = new[id(f)]
    assert isinstance(result, Function)
    return result

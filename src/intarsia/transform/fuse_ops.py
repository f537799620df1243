"""Operators that are better run together become one primitive function, later one kernel.

    nn.relu(add(matmul(%x, W), B))
    (fn (%p0, %p1, %p2) { nn.relu(add(matmul(%p0, %p1), %p2)) } primitive)(%x, W, B)

A group starts at one call and grows towards its immediate post-dominator (the first node that every path from
it to the result goes through) while everything in between may join:

    elementwise, injective    + elementwise, injective            one loop
                              + reduction                         computed inside it
    reduction over rows       + elementwise, + such reductions    one pass over each row (softmax, norms)
    contraction               + elementwise of the same shape     on the accumulators
    transpose                 + contraction                       its operand is read in another order
    contraction               + transpose that keeps the last dimension last

The cost model: never compute an expensive element twice (no growth through a broadcast of one), no group of
    more than `_LARGEST` calls, views stay outside (they are free), and known shape arithmetic takes no part.
    A call whose result size depends on a tensor's contents, and one with several results, stays alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from intarsia.infer import Typing, infer
from intarsia.ir import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    OpRef,
    TensorType,
    Tuple,
    Var,
    call,
    children,
    rebuild,
)  # fmt: skip
from intarsia.ir.scopes import Scope, scopes_of
from intarsia.op.entry import Site
from intarsia.op.kind import Behaviour, Kind, behaviour

_LARGEST = 48
_POINTWISE = (Kind.ELEMENTWISE, Kind.INJECTIVE, Kind.REMAP)


def fuse_ops(module: IRModule) -> IRModule:
    """Primitive functions formed in every function of the module."""
    typing = infer(module)
    return module.with_functions(
        {n: _Fuser(f, typing, typing.symbols(n)).run() for n, f in module.functions.items()}
    )


@dataclass(slots=True, eq=False)
class _Group:
    out: Call
    kind: Kind
    rows: bool
    members: list[Call] = field(default_factory=list)


class _Fuser:
    def __init__(self, f: Function, typing: Typing, symbols: frozenset[str]):
        self.f, self.typing, self.symbols = f, typing, symbols
        self.scopes = scopes_of(f.body)
        self.behaviour: dict[int, Behaviour] = {}
        self.users: dict[int, list[Expr]] = {}
        self.group: dict[int, _Group] = {}

    def run(self) -> Function:
        order = self.scopes.order
        for node in order:
            for c in children(node):
                self.users.setdefault(id(c), []).append(node)
            if self._may_fuse(node):
                self.behaviour[id(node)] = behaviour(self.typing.sites[id(node)])
        self.position = {id(n): i for i, n in enumerate(order)}
        self.dominator = self._post_dominators()
        for node in order:
            b = self.behaviour.get(id(node))
            if b is not None and b.kind is not Kind.VIEW:
                assert isinstance(node, Call)
                self.group[id(node)] = _Group(node, b.kind, b.rows, [node])
        for node in order:
            group = self.group.get(id(node))
            if group is not None and group.out is node and self._starts(group, node):
                self._grow(group)
        return self._rebuild()

    def _starts(self, group: _Group, node: Expr) -> bool:
        """Whether a group is yet to grow: it has one call, or one and the transposes of its operands."""
        return all(m is node or self.behaviour[id(m)].kind is Kind.REMAP for m in group.members)

    # ---- what may fuse -------------------------------------------------------------------------------------
    def _may_fuse(self, node: Expr) -> bool:
        if not (isinstance(node, Call) and isinstance(node.op, OpRef) and id(node) in self.typing.sites):
            return False
        site = self.typing.sites[id(node)]
        if (
            self.typing.value(node) is not None
            or site.bindings
            or len(site.out) != 1
            or site.op.compute is None
        ):
            return False
        return all(self._can_write(site, i) for i in site.op.value_args)

    def _can_write(self, site: Site, i: int) -> bool:
        value = site.value(i)
        return value is None or (value.ndim <= 1 and all(v.symbols() <= self.symbols for v in value.flat))

    # ---- post-dominators -----------------------------------------------------------------------------------
    def _post_dominators(self) -> dict[int, Expr | None]:
        """Immediate post-dominator of each fusible call among its scope; None if there is none."""
        result: dict[int, Expr | None] = {}
        depth: dict[int, int] = {}
        for node in reversed(self.scopes.order):
            if id(node) not in self.behaviour:
                continue
            scope: Scope = self.scopes.of[id(node)]
            meet: Expr | None = None
            for k, user in enumerate(self.users.get(id(node), [])):
                inside = id(user) in self.behaviour and self.scopes.of[id(user)] is scope
                candidate = user if inside else None
                meet = candidate if k == 0 else self._meet(meet, candidate, result, depth)
                if meet is None:
                    break
            if node is self.f.body:
                meet = None
            result[id(node)] = meet
            depth[id(node)] = depth[id(meet)] + 1 if meet is not None else 0
        return result

    def _meet(
        self, a: Expr | None, b: Expr | None, up: dict[int, Expr | None], depth: dict[int, int]
    ) -> Expr | None:
        while a is not b and a is not None and b is not None:
            if depth[id(a)] >= depth[id(b)]:
                a = up[id(a)]
            else:
                b = up[id(b)]
        return a if a is b else None

    # ---- growing -------------------------------------------------------------------------------------------
    def _grow(self, group: _Group) -> None:
        while True:
            target = self.dominator[id(group.out)]
            if target is None:
                return
            path = self._between(group.out, target)
            if self._is_operand_order(group, path):
                self._absorb(group, self.group[id(target)])
                return
            if not self._may_join(group, path):
                return
            for node in path:
                self.group[id(node)] = group
            group.members.extend(path)
            group.out = path[-1]
            kinds = [self.behaviour[id(n)] for n in path]
            if any(b.kind is Kind.REDUCTION for b in kinds):
                group.rows = all(b.rows for b in kinds if b.kind is Kind.REDUCTION) and (
                    group.rows or group.kind is not Kind.REDUCTION
                )
                group.kind = Kind.REDUCTION
            elif group.kind in _POINTWISE and any(b.kind is not Kind.ELEMENTWISE for b in kinds):
                group.kind = Kind.INJECTIVE

    def _between(self, start: Expr, target: Expr) -> list[Call]:
        """Calls on the paths from start (excluded) to target (included), operands first."""
        found: dict[int, Expr] = {}
        todo = [start]
        while todo:
            for user in self.users[id(todo.pop())]:
                if id(user) not in found:
                    found[id(user)] = user
                    if user is not target:
                        todo.append(user)
        return sorted(found.values(), key=lambda n: self.position[id(n)])  # type: ignore[return-value]

    def _is_operand_order(self, group: _Group, path: list[Call]) -> bool:
        """Whether the group is one transpose whose only reader is a contraction."""
        if group.kind is not Kind.REMAP or len(group.members) != 1 or len(path) != 1:
            return False
        reader = self.group.get(id(path[0]))
        fits = self.behaviour[id(path[0])].kind is Kind.CONTRACTION
        return (
            fits and reader is not None and reader.kind is Kind.CONTRACTION and len(reader.members) < _LARGEST
        )

    def _absorb(self, group: _Group, reader: _Group) -> None:
        reader.members.extend(group.members)
        for node in group.members:
            self.group[id(node)] = reader

    def _may_join(self, group: _Group, path: list[Call]) -> bool:
        if len(group.members) + len(path) > _LARGEST:
            return False
        if any(id(n) not in self.group or len(self.group[id(n)].members) > 1 for n in path):
            return False  # a view, or taken by another group
        out = self._type(group.out)
        behaviours = [self.behaviour[id(n)] for n in path]
        if group.kind is Kind.CONTRACTION:
            if len(path) == 1 and behaviours[0].kind is Kind.REMAP:
                return behaviours[0].keeps_last
            return all(
                b.kind is Kind.ELEMENTWISE and self._type(n).shape == out.shape
                for n, b in zip(path, behaviours)
            )
        if group.kind is Kind.REDUCTION:
            for n, b in zip(path, behaviours):
                if b.kind is Kind.ELEMENTWISE:
                    if not (self._type(n).shape == out.shape or group.rows):
                        return False
                elif not (b.kind is Kind.REDUCTION and b.rows and group.rows and self._same_rows(n, group)):
                    return False
            return True
        if group.kind in _POINTWISE:
            for n, b in zip(path, behaviours):
                if b.kind not in _POINTWISE and not (b.kind is Kind.REDUCTION and n is path[-1]):
                    return False
                if (
                    b.kind is not Kind.REDUCTION
                    and self._type(n).shape != out.shape
                    and self._repeats(n, out)
                ):
                    return False
            return True
        return False

    def _same_rows(self, reduction: Call, group: _Group) -> bool:
        first = next(m for m in group.members if self.behaviour[id(m)].kind is Kind.REDUCTION)
        a, b = self._type(first.args[0]).shape, self._type(reduction.args[0]).shape
        return a[:-1] == b[:-1]

    def _repeats(self, n: Call, smaller: TensorType) -> bool:
        """Whether n would compute elements of `smaller` more than once each (it broadcasts or gathers)."""
        bigger = [d for d in self._type(n).shape if d != 1]
        return bigger != [d for d in smaller.shape if d != 1] and len(bigger) >= len(
            [d for d in smaller.shape if d != 1]
        )

    def _type(self, e: Expr) -> TensorType:
        t = self.typing.type(e)
        assert isinstance(t, TensorType)
        return t

    # ---- building ------------------------------------------------------------------------------------------
    def _rebuild(self) -> Function:
        new: dict[int, Expr] = {}
        for node in self.scopes.order:
            group = self.group.get(id(node))
            if group is None:
                new[id(node)] = rebuild(node, tuple(new[id(c)] for c in children(node)))
            elif group.out is node:
                new[id(node)] = self._primitive(group, new)
        f = self.f
        return Function(f.params, new[id(f.body)], f.result, f.type_params, f.attrs, span=f.span)

    def _primitive(self, group: _Group, new: dict[int, Expr]) -> Expr:
        params: dict[int, Var] = {}
        arguments: list[Expr] = []
        inside: dict[int, Expr] = {}

        def operand(e: Expr) -> Expr:
            if id(e) in inside:
                return inside[id(e)]
            outer = new[id(e)]
            if (isinstance(outer, Constant) and outer.value.size == 1) or (
                isinstance(outer, Tuple) and not outer.fields
            ):
                return outer
            if id(outer) not in params:
                params[id(outer)] = Var(f"p{len(params)}", span=e.span)
                arguments.append(outer)
            return params[id(outer)]

        for member in sorted(group.members, key=lambda n: self.position[id(n)]):
            site = self.typing.sites[id(member)]
            args = []
            for i, a in enumerate(member.args):
                value = site.value(i) if i in site.op.value_args else None
                if value is not None:  # contents that set the shape belong inside the primitive function
                    args.append(a if isinstance(a, Constant) else self._dims(value, a))
                else:
                    args.append(operand(a))
            inside[id(member)] = Call(member.op, tuple(args), member.attrs, span=member.span)
        function = Function(
            tuple(params.values()), inside[id(group.out)], attrs={"primitive": True}, span=group.out.span
        )
        return Call(function, tuple(arguments), span=group.out.span)

    def _dims(self, value: np.ndarray, e: Expr) -> Expr:
        return call("dims", values=tuple(value.flat) if value.ndim else value.item(), span=e.span)

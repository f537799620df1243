"""Any region, root by root: each root's loops run to their end before the next begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.dim import Dim
from intarsia.kernel.expr import Buffer, Expr, Index, Load, Reduce, walk
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store, block
from intarsia.kernel.strategy.access import Memory
from intarsia.kernel.strategy.injective import injective
from intarsia.kernel.strategy.reduction import reduction
from intarsia.kernel.strategy.region import Loops, Region, Written, plan
from intarsia.kernel.target import Target


def stages(region: Region, target: Target) -> Kernel:
    """The fallback: right for every region."""
    the_plan = plan(region)
    body: list[Stmt] = []
    scratch: list[Buffer] = []
    memory = Memory()
    for root in the_plan.roots:
        if isinstance(root, Written):
            own = [
                Buffer(f"{root.opaque.name}.scratch{i}", s, t) for i, (s, t) in enumerate(root.opaque.scratch)
            ]
            scratch += own
            body.append(root.opaque.build(target, root.opaque.inputs, root.writes, own))
        else:
            stmt, own = schedule(root, memory, target)
            scratch += own
            body.append(stmt)
    return kernel(region, block(*body), [*the_plan.workspaces, *scratch])


def schedule(loops: Loops, memory: Memory, target: Target) -> tuple[Stmt, Sequence[Buffer]]:
    """The loops of one stage, and the workspaces they need."""
    if isinstance(loops.body, Reduce):
        return reduction(loops, memory, target)
    return injective(loops, memory, target), ()


def kernel(region: Region, body: Stmt, workspaces: Sequence[Buffer], *, flops: Dim | None = None) -> Kernel:
    """The region's kernel around a body."""
    buffers = (*region.inputs, *region.outputs, *workspaces)
    return Kernel(
        region.name, region.inputs, region.outputs, tuple(workspaces), symbols_of(body, buffers), body, flops
    )


def symbols_of(body: Stmt, buffers: Iterable[Buffer]) -> tuple[str, ...]:
    """Names that the body and the buffers' shapes use and no loop binds, sorted."""
    used: set[str] = set()
    bound: set[str] = set()
    seen: set[int] = set()

    def dims(*values: Dim | None) -> None:
        for d in values:
            if d is not None:
                used.update(d.symbols())

    def expr(e: Expr) -> None:
        if id(e) in seen:
            return
        for n in walk(e):
            if id(n) in seen:
                continue
            seen.add(id(n))
            if isinstance(n, Load):
                dims(*(i for i in n.indices if isinstance(i, Dim)), *n.buffer.shape)
            elif isinstance(n, Index):
                dims(n.dim)

    for b in buffers:
        dims(*b.shape)
    todo: list[Stmt] = [body]
    while todo:
        match todo.pop():
            case For() as s:
                bound.add(s.var)
                dims(s.extent, s.active, s.work)
                todo.append(s.body)
            case Store() as s:
                dims(*(i for i in s.indices if isinstance(i, Dim)), *s.buffer.shape)
                expr(s.value)
                for i in s.indices:
                    if isinstance(i, Expr):
                        expr(i)
            case Allocate() as s:
                dims(*s.buffer.shape)
                todo.append(s.body)
            case Bind() as s:
                bound.add(s.name)
                if isinstance(s.value, Dim):
                    dims(s.value)
                else:
                    expr(s.value)
                todo.append(s.body)
            case If() as s:
                expr(s.cond)
                todo.append(s.then)
                if s.orelse is not None:
                    todo.append(s.orelse)
            case Block() as s:
                todo.extend(s.stmts)
    return tuple(sorted(used - bound))

"""Any region, root by root: each root's loops run to their end before the next begins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, Load, Reduce, Unary, identity_of, walk
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store, block, loop, store
from intarsia.kernel.strategy.access import Memory
from intarsia.kernel.strategy.injective import injective
from intarsia.kernel.strategy.region import Loops, Region, Written, plan
from intarsia.kernel.target import Target

COMBINE = {"sum": "add", "prod": "mul", "min": "min", "max": "max", "any": "or", "all": "and"}


def stages(region: Region, target: Target) -> Kernel:
    """The fallback: right for every region."""
    the_plan = plan(region)
    body: list[Stmt] = []
    scratch: list[Buffer] = []
    memory = Memory()
    for root in the_plan.roots:
        if isinstance(root, Written):
            own = [Buffer(f"{root.opaque.name}.scratch{i}", s, t) for i, (s, t) in enumerate(root.opaque.scratch)]
            scratch += own
            body.append(root.opaque.build(target, root.opaque.inputs, root.writes, own))
        else:
            body.append(schedule(root, memory, target))
    return kernel(region, block(*body), [*the_plan.workspaces, *scratch])


def schedule(loops: Loops, memory: Memory, target: Target) -> Stmt:
    """The loops of one stage."""
    return naive(loops) if isinstance(loops.body, Reduce) else injective(loops, memory, target)


def naive(loops: Loops) -> Stmt:
    """Plain loops."""
    place = tuple(Symbol(a.var) for a in loops.axes)
    if isinstance(loops.body, Reduce):
        body = _reduction(loops, loops.body, place)
    else:
        body = store(loops.buffer, place, loops.body)
    for a in reversed(loops.axes):
        body = loop(a.var, a.extent, body)
    return body


def _reduction(loops: Loops, reduce: Reduce, place: tuple[Dim, ...]) -> Stmt:
    if reduce.op in ("argmin", "argmax"):
        return _argument(loops, reduce, place)
    total = Buffer("total", (), reduce.dtype, "stack")
    step = store(total, (), combine(reduce.op, total[()], reduce.body))
    for a in reversed(reduce.axes):
        step = loop(a.var, a.extent, step)
    begin = store(total, (), identity_of(reduce.op, reduce.dtype))
    return Allocate(total, block(begin, step, store(loops.buffer, place, total[()])))


def combine(op: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    name = COMBINE[op]
    if a.dtype == "bool":
        name = {"add": "or", "mul": "and", "max": "or", "min": "and"}.get(name, name)
    return Binary(name, a, b)


def _argument(loops: Loops, reduce: Reduce, place: tuple[Dim, ...]) -> Stmt:
    """argmin and argmax: the first extreme; NaN is the most extreme."""
    best = Buffer("best", (), reduce.body.dtype, "stack")
    where = Buffer("where", (), "int64", "stack")
    axis = reduce.axes[0]
    k = Symbol(axis.var)
    better = is_better(reduce.op, reduce.body, best[()])
    step = If(better, block(store(best, (), reduce.body), store(where, (), Index(k))))
    begin = block(store(best, (), identity_of(reduce.op, best.dtype)), store(where, (), Const(0, "int64")))
    first = If(Index(axis.extent) > 0, Bind(axis.var, as_dim(0), block(store(best, (), reduce.body), store(where, (), Const(0, "int64")))))
    rest = loop(axis.var, axis.extent, step)
    return Allocate(best, Allocate(where, block(begin, first, rest, store(loops.buffer, place, where[()]))))


def is_better(op: str, new: Expr, old: Expr) -> Expr:
    """Whether `new`, which comes later, displaces `old`."""
    compared = Binary("gt" if op == "argmax" else "lt", new, old)
    if "float" not in new.dtype:
        return compared
    fresh_nan = Binary("and", Unary("isnan", new), Unary("not", Unary("isnan", old)))
    return Binary("or", compared, fresh_nan)


def kernel(region: Region, body: Stmt, workspaces: Sequence[Buffer], *, flops: Dim | None = None) -> Kernel:
    """The region's kernel around a body."""
    buffers = (*region.inputs, *region.outputs, *workspaces)
    return Kernel(region.name, region.inputs, region.outputs, tuple(workspaces), symbols_of(body, buffers), body, flops)


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

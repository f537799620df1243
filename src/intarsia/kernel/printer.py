"""A kernel as text that people can read.

kernel softmax(x: float32[n, 768]) -> (y: float32[n, 768]); symbols n
  parallel i in n  work 900:
    alloc m: float32[1] register
    m[0] = -inf
    …
"""

from __future__ import annotations

from collections.abc import Iterator

from intarsia.dim import Dim
from intarsia.kernel.expr import (
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    IndexLike,
    LaneReduce,
    Load,
    Reduce,
    Select,
    Unary,
)
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "floordiv": "//", "mod": "%", "eq": "==",
    "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "and", "or": "or", "bitand": "&", "bitor": "|", "bitxor": "^",
    "shl": "<<", "shr": ">>",
}  # fmt: skip
LOOP = {"serial": "for", "parallel": "parallel", "vector": "vector", "unroll": "unroll"}


def print_kernel(kernel: Kernel) -> str:
    """The kernel's text; buffers and variables keep the names they have."""
    names = _Names()
    inputs = ", ".join(map(names.declare, kernel.inputs))
    outputs = ", ".join(map(names.declare, kernel.outputs))
    head = f"kernel {kernel.name}({inputs}) -> ({outputs})"
    if kernel.workspaces:
        head += f"; workspaces {', '.join(map(names.declare, kernel.workspaces))}"
    if kernel.symbols:
        head += f"; symbols {', '.join(kernel.symbols)}"
    return "\n".join([head, *_stmt(kernel.body, 1, names)]) + "\n"


def print_expr(e: Expr) -> str:
    """An expression's text."""
    return _expr(e, _Names())


class _Names:
    """Buffer names, told apart where two buffers share one."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}
        self.taken: dict[str, int] = {}

    def __call__(self, b: Buffer) -> str:
        if id(b) not in self.known:
            count = self.taken.get(b.name, 0)
            self.taken[b.name] = count + 1
            self.known[id(b)] = b.name if not count else f"{b.name}'{count}"
        return self.known[id(b)]

    def declare(self, b: Buffer) -> str:
        view = f" view of {self(b.of)}" if b.of is not None else ""
        return f"{self(b)}: {b.dtype}[{', '.join(map(str, b.shape))}]{view}"


def _stmt(s: Stmt, depth: int, names: _Names) -> Iterator[str]:
    pad = "  " * depth
    match s:
        case Block():
            for inner in s.stmts:
                yield from _stmt(inner, depth, names)
        case For():
            active = f"  active {s.active}" if s.active is not None else ""
            work = f"  work {s.work}" if s.work is not None else ""
            yield f"{pad}{LOOP[s.kind]} {s.var} in {s.extent}{active}{work}:"
            yield from _stmt(s.body, depth + 1, names)
        case Store():
            yield f"{pad}{_element(s.buffer, s.indices, names)} = {_expr(s.value, names)}"
        case Allocate():
            yield f"{pad}alloc {names.declare(s.buffer)} {s.buffer.scope}"
            yield from _stmt(s.body, depth, names)
        case Bind():
            yield f"{pad}let {s.name} = {s.value if isinstance(s.value, Dim) else _expr(s.value, names)}"
            yield from _stmt(s.body, depth, names)
        case If():
            yield f"{pad}if {_expr(s.cond, names)}:"
            yield from _stmt(s.then, depth + 1, names)
            if s.orelse is not None:
                yield f"{pad}else:"
                yield from _stmt(s.orelse, depth + 1, names)


def _element(b: Buffer, indices: tuple[IndexLike, ...], names: _Names) -> str:
    return f"{names(b)}[{', '.join(str(i) if isinstance(i, Dim) else _expr(i, names) for i in indices)}]"


def _expr(e: Expr, names: _Names) -> str:
    match e:
        case Const():
            return str(e.value)
        case Index():
            return str(e.dim) if len(e.dim.terms) <= 1 else f"({e.dim})"
        case Load():
            return _element(e.buffer, e.indices, names)
        case Unary(op="neg"):
            return f"-{_expr(e.x, names)}"
        case Unary():
            return f"{e.op}({_expr(e.x, names)})"
        case Binary():
            a, b = _expr(e.a, names), _expr(e.b, names)
            return f"({a} {INFIX[e.op]} {b})" if e.op in INFIX else f"{e.op}({a}, {b})"
        case Select():
            return f"({_expr(e.then, names)} if {_expr(e.cond, names)} else {_expr(e.orelse, names)})"
        case Cast():
            return f"{e.dtype}({_expr(e.x, names)})"
        case Reduce():
            axes = ", ".join(f"{a.var} in {a.extent}" for a in e.axes)
            return f"{e.op}({_expr(e.body, names)} for {axes})"
        case LaneReduce():
            return f"{e.op}({names(e.buffer)})"
    return repr(e)

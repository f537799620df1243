"""The loop language's checker: what can be said of a kernel without running it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from intarsia.dim import Dim
from intarsia.kernel.evaluate import KernelFault, is_float
from intarsia.kernel.expr import (
    BINARY,
    LOGIC,
    UNARY,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    IndexLike,
    LaneReduce,
    Load,
    Select,
    Unary,
    walk,
)
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store
from intarsia.kernel.target import ITEMSIZE

KINDS = frozenset(["serial", "parallel", "vector", "unroll"])
FLOAT_ONLY = UNARY - frozenset("neg abs sign floor ceil round trunc not bitnot isnan isinf".split())  # noqa: SIM905
INTEGER_ONLY = frozenset(["bitand", "bitor", "bitxor", "shl", "shr"])


@dataclass(frozen=True, slots=True)
class _Scope:
    """variables: name -> 'fixed' (a number after unrolling), 'varying' or 'lane'."""

    variables: dict[str, str]
    buffers: frozenset[int]
    vector: str | None = None
    private: frozenset[int] = field(
        default=frozenset()
    )  # allocated inside the vector loop: one for each lane

    def bind(self, name: str, kind: str) -> _Scope:
        return _Scope({**self.variables, name: kind}, self.buffers, self.vector, self.private)


def verify(kernel: Kernel) -> None:
    """Raise KernelFault if the kernel uses what is not in scope, mixes dtypes, or cannot be generated."""
    buffers = (*kernel.inputs, *kernel.outputs, *kernel.workspaces)
    for b in buffers:
        if b.scope != "global":
            raise KernelFault(f"{kernel.name}: {b.name} is in its signature but of scope {b.scope}")
        _shape(b, {s: "varying" for s in kernel.symbols})
    writable = frozenset(id(b) for b in (*kernel.outputs, *kernel.workspaces))
    scope = _Scope({s: "varying" for s in kernel.symbols}, frozenset(id(b) for b in buffers))
    _Verifier(kernel, writable).stmt(kernel.body, scope)


def _shape(b: Buffer, variables: dict[str, str]) -> None:
    if b.dtype not in ITEMSIZE:
        raise KernelFault(f"{b.name} has unknown dtype {b.dtype}")
    for d in b.shape:
        missing = d.symbols() - variables.keys()
        if missing:
            raise KernelFault(
                f"{b.name}'s shape {d} uses {', '.join(sorted(missing))}, which is not in scope"
            )


class _Verifier:
    def __init__(self, kernel: Kernel, writable: frozenset[int]):
        self.kernel, self.writable = kernel, writable

    def fail(self, message: str) -> None:
        raise KernelFault(f"{self.kernel.name}: {message}")

    def stmt(self, s: Stmt, scope: _Scope) -> None:
        match s:
            case Block():
                for inner in s.stmts:
                    self.stmt(inner, scope)
            case For():
                self.loop(s, scope)
            case Store():
                self.store(s, scope)
            case Allocate():
                self.allocate(s, scope)
            case Bind():
                kind = self.dim(s.value, scope) if isinstance(s.value, Dim) else self.expr(s.value, scope)
                if isinstance(s.value, Expr) and "int" not in s.value.dtype:
                    self.fail(f"{s.name} is bound to a value of {s.value.dtype}")
                self.stmt(s.body, scope.bind(s.name, kind))
            case If():
                self.expr(s.cond, scope)
                if s.cond.dtype != "bool":
                    self.fail(f"a condition is of {s.cond.dtype}")
                self.stmt(s.then, scope)
                if s.orelse is not None:
                    self.stmt(s.orelse, scope)
            case _:
                self.fail(f"unknown statement {type(s).__name__}")

    def loop(self, s: For, scope: _Scope) -> None:
        if s.kind not in KINDS:
            self.fail(f"loop {s.var} is of unknown kind {s.kind}")
        if self.dim(s.extent, scope) == "lane":
            self.fail(f"the extent of loop {s.var} differs between lanes")
        for d in (s.active, s.work):
            if d is not None:
                self.dim(d, scope)
        if s.kind in ("vector", "unroll") and not s.extent.is_const:
            self.fail(f"the extent {s.extent} of {s.kind} loop {s.var} is not constant")
        if s.active is not None and s.kind != "vector":
            self.fail(f"loop {s.var} is {s.kind}, but has active lanes")
        if s.kind in ("vector", "parallel") and scope.vector is not None:
            self.fail(f"{s.kind} loop {s.var} stands inside vector loop {scope.vector}")
        inner = scope.bind(s.var, {"vector": "lane", "unroll": "fixed"}.get(s.kind, "varying"))
        if s.kind == "vector":
            inner = _Scope(inner.variables, inner.buffers, s.var)
        self.stmt(s.body, inner)

    def store(self, s: Store, scope: _Scope) -> None:
        kind = self.access(s.buffer, s.indices, scope)
        root = s.buffer
        while root.of is not None:
            root = root.of
        if root.scope == "global" and id(root) not in self.writable:
            self.fail(f"input {s.buffer.name} is written")
        if self.expr(s.value, scope) == "lane" and kind != "lane" and id(s.buffer) not in scope.private:
            self.fail(f"all lanes of loop {scope.vector} write to one element of {s.buffer.name}")
        if s.value.dtype != s.buffer.dtype:
            self.fail(f"{s.value.dtype} is stored to {s.buffer.name}, which is {s.buffer.dtype}")

    def allocate(self, s: Allocate, scope: _Scope) -> None:
        b = s.buffer
        _shape(b, scope.variables)
        if b.scope not in ("stack", "register"):
            self.fail(f"{b.name} of scope {b.scope} cannot be allocated in a kernel")
        if b.scope == "register" and not all(d.is_const for d in b.shape):
            self.fail(f"register buffer {b.name} has the shape {b.shape}, which is not constant")
        private = scope.private | {id(b)} if scope.vector is not None else scope.private
        self.stmt(s.body, _Scope(scope.variables, scope.buffers | {id(b)}, scope.vector, private))

    def dim(self, d: Dim, scope: _Scope) -> str:
        """'fixed', 'varying' or 'lane'."""
        kinds = set()
        for name in d.symbols():
            if name not in scope.variables:
                self.fail(f"variable {name} is not in scope")
            kinds.add(scope.variables[name])
        return "lane" if "lane" in kinds else "varying" if "varying" in kinds else "fixed"

    def access(self, b: Buffer, indices: Sequence[IndexLike], scope: _Scope) -> str:
        root = b
        while root.of is not None:
            root = root.of
        if id(root) not in scope.buffers:
            self.fail(f"buffer {b.name} is not in scope")
        if len(indices) != len(b.shape):
            self.fail(f"{b.name} has {len(b.shape)} dimensions, {len(indices)} indices are given")
        kinds = {"fixed"}
        for i in indices:
            if isinstance(i, Expr):
                if "int" not in i.dtype:
                    self.fail(f"an index of {b.name} is of {i.dtype}")
                kinds.add(self.expr(i, scope))
            else:
                kinds.add(self.dim(i, scope))
        if b.scope == "register":
            if "varying" in kinds:
                self.fail(f"register buffer {b.name} has an index that is not constant after unrolling")
            for i in indices:  # a vector loop's lanes must be neighbours
                if (
                    isinstance(i, Dim)
                    and scope.vector in i.symbols()
                    and i.coefficient(scope.vector or "") is None
                ):
                    self.fail(
                        f"register buffer {b.name} has the index {i}, which is not linear in {scope.vector}"
                    )
        return "lane" if "lane" in kinds else "varying" if "varying" in kinds else "fixed"

    def expr(self, e: Expr, scope: _Scope) -> str:
        """Checks the expression; 'lane' if it may differ between lanes."""
        kinds = {"varying"}
        for node in walk(e):
            match node:
                case Const():
                    if node.dtype not in ITEMSIZE:
                        self.fail(f"unknown dtype {node.dtype}")
                case Index():
                    kinds.add(self.dim(node.dim, scope))
                case Load():
                    kinds.add(self.access(node.buffer, node.indices, scope))
                    if id(node.buffer) in scope.private:
                        kinds.add("lane")
                case Unary():
                    self.unary(node)
                case Binary():
                    self.binary(node)
                case Select():
                    if node.cond.dtype != "bool" or node.then.dtype != node.orelse.dtype:
                        self.fail(
                            f"a choice by {node.cond.dtype} between {node.then.dtype} and {node.orelse.dtype}"
                        )
                case Cast():
                    if node.dtype not in ITEMSIZE:
                        self.fail(f"unknown dtype {node.dtype}")
                case LaneReduce():
                    if id(node.buffer) not in scope.buffers or node.buffer.scope != "register":
                        self.fail(f"{node.buffer.name} is reduced, but is no register buffer in scope")
                    if id(node.buffer) in scope.private:
                        kinds.add("lane")
                case _:
                    self.fail(f"{type(node).__name__} stands inside a kernel")
        return "lane" if "lane" in kinds else "varying"

    def unary(self, e: Unary) -> None:
        dtype = e.x.dtype
        wrong = (
            e.op not in UNARY
            or (e.op in FLOAT_ONLY and not is_float(dtype))
            or (e.op == "not" and dtype != "bool")
            or (e.op == "bitnot" and is_float(dtype))
            or (dtype == "bool" and e.op not in ("not", "bitnot", "isnan", "isinf"))
        )
        if wrong:
            self.fail(f"there is no {e.op} of {dtype}")

    def binary(self, e: Binary) -> None:
        a, b = e.a.dtype, e.b.dtype
        if a != b:
            self.fail(f"{e.op} of {a} and {b}")
        wrong = (
            e.op not in BINARY
            or (e.op in LOGIC and a != "bool")
            or (e.op in INTEGER_ONLY and is_float(a))
            or (a == "bool" and e.op in ("sub", "div", "floordiv", "mod", "fmod", "pow", "shl", "shr"))
        )
        if wrong:
            self.fail(f"there is no {e.op} of {a}")

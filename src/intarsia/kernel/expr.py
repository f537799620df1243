"""The scalar expressions of kernels: what one element of a tensor is.

    expr  ::= Const(value, dtype)
            | Index(dim)                       an expression over loop variables and symbols, as int64
            | Load(buffer, (index, …))         one element; index ::= Dim | expr (for data-dependent places)
            | Unary(op, expr) | Binary(op, expr, expr) | Select(cond, expr, expr) | Cast(expr, dtype)
            | Reduce(op, axes, expr)           only as the root of a stage's body
            | LaneReduce(op, buffer)           a register buffer combined (written by schedules)

`Select` is lazy: loads in an arm happen only where the condition chooses that arm, so `Select(0 <= i < n,
x[i], 0)` never reads outside x. Integer arithmetic wraps; `div` is true division on floats and truncates on
integers; `floordiv` and `mod` follow Python's sign rule, `fmod` C's; comparison and logic give bool. `min`
and `max` propagate NaN. Shifts by the width or more give 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Union

import numpy as np

from intarsia.dim import Dim, as_dim

if TYPE_CHECKING:
    from intarsia.kernel.compute import Producer

UNARY = frozenset(
    [
        "neg",
        "abs",
        "sign",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "sigmoid",
        "floor",
        "ceil",
        "round",
        "trunc",
        "not",
        "bitnot",
        "isnan",
        "isinf",
    ]
)
COMPARE = frozenset(["eq", "ne", "lt", "le", "gt", "ge"])
LOGIC = frozenset(["and", "or", "xor"])  # on bool
BINARY = (
    frozenset(
        [
            "add",
            "sub",
            "mul",
            "div",
            "floordiv",
            "mod",
            "fmod",
            "min",
            "max",
            "pow",
            "bitand",
            "bitor",
            "bitxor",
            "shl",
            "shr",
        ]
    )
    | COMPARE
    | LOGIC
)
REDUCE = frozenset(["sum", "prod", "min", "max", "any", "all", "argmin", "argmax"])


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A dense row-major tensor that a kernel reads or writes.

    scope: 'global' (memory that the caller gives), 'stack' (small, private to one iteration of the enclosing
        parallel loop), 'register' (constant shape; every index is constant after unrolling, but for the lane
        of a vector loop).
    producer: the computation that defines it, None for a kernel's input.
    of: a view: the memory of another ('global') buffer, seen in a shape of as many elements.
    """

    name: str
    shape: tuple[Dim, ...]
    dtype: str
    scope: str = "global"
    producer: Producer | None = field(default=None, repr=False)
    of: Buffer | None = field(default=None, repr=False)

    def __getitem__(self, indices) -> Load:
        indices = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(i if isinstance(i, Expr) else as_dim(i) for i in indices))


class Expr:
    """Base of kernel expressions, with Python operators for building them."""

    __slots__ = ()
    dtype: str

    def __add__(self, o):
        return Binary("add", self, lift(o, self.dtype))

    def __radd__(self, o):
        return Binary("add", lift(o, self.dtype), self)

    def __sub__(self, o):
        return Binary("sub", self, lift(o, self.dtype))

    def __rsub__(self, o):
        return Binary("sub", lift(o, self.dtype), self)

    def __mul__(self, o):
        return Binary("mul", self, lift(o, self.dtype))

    def __rmul__(self, o):
        return Binary("mul", lift(o, self.dtype), self)

    def __truediv__(self, o):
        return Binary("div", self, lift(o, self.dtype))

    def __rtruediv__(self, o):
        return Binary("div", lift(o, self.dtype), self)

    def __neg__(self):
        return Unary("neg", self)

    def __lt__(self, o):
        return Binary("lt", self, lift(o, self.dtype))

    def __le__(self, o):
        return Binary("le", self, lift(o, self.dtype))

    def __gt__(self, o):
        return Binary("gt", self, lift(o, self.dtype))

    def __ge__(self, o):
        return Binary("ge", self, lift(o, self.dtype))

    def equals(self, o) -> Binary:
        return Binary("eq", self, lift(o, self.dtype))

    def __and__(self, o):
        return Binary("and" if self.dtype == "bool" else "bitand", self, lift(o, self.dtype))

    def __or__(self, o):
        return Binary("or" if self.dtype == "bool" else "bitor", self, lift(o, self.dtype))


IndexLike = Union[Dim, Expr]


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    value: int | float | bool
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Index(Expr):
    dim: Dim

    @property
    def dtype(self) -> str:
        return "int64"


@dataclass(frozen=True, slots=True, eq=False)
class Load(Expr):
    buffer: Buffer
    indices: tuple[IndexLike, ...]

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expr):
    op: str
    x: Expr

    @property
    def dtype(self) -> str:
        return "bool" if self.op in ("not", "isnan", "isinf") else self.x.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expr):
    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return "bool" if self.op in COMPARE else self.a.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Select(Expr):
    cond: Expr
    then: Expr
    orelse: Expr

    @property
    def dtype(self) -> str:
        return self.then.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Cast(Expr):
    """Float to integer truncates and saturates, NaN gives 0; integer to narrower integer wraps; anything to
    bool is != 0.
    """

    x: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Axis:
    """A reduction axis: var counts 0 … extent-1."""

    var: str
    extent: Dim


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Expr):
    """op over all values of the axes, in the body's dtype (`argmin`/`argmax`: the first place on the only
    axis, int64).
    """

    op: str
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def dtype(self) -> str:
        return "int64" if self.op.startswith("arg") else self.body.dtype


@dataclass(frozen=True, slots=True, eq=False)
class LaneReduce(Expr):
    op: str
    buffer: Buffer

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


def lift(value, dtype: str) -> Expr:
    """An Expr as it is; a Dim as Index (cast to dtype); a Python number as Const of dtype."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Dim):
        return cast(Index(value), dtype)
    return Const(np.dtype(bool).type(value).item() if dtype == "bool" else value, dtype)


def cast(x: Expr, dtype: str) -> Expr:
    return x if x.dtype == dtype else Cast(x, dtype)


def identity_of(op: str, dtype: str) -> Const:
    """The value that changes nothing under a reduction."""
    floating = "float" in dtype
    if op in ("sum", "any"):
        return Const(False if dtype == "bool" else 0.0 if floating else 0, dtype)
    if op in ("prod", "all"):
        return Const(True if dtype == "bool" else 1.0 if floating else 1, dtype)
    low = op in ("max", "argmax")
    if dtype == "bool":
        return Const(not low, dtype)
    if floating:
        return Const(float("-inf") if low else float("inf"), dtype)
    info = np.iinfo(dtype)
    return Const(int(info.min if low else info.max), dtype)


def subexpressions(e: Expr) -> tuple[Expr, ...]:
    """Direct subexpressions, data-dependent indices included."""
    match e:
        case Load():
            return tuple(i for i in e.indices if isinstance(i, Expr))
        case Unary() | Cast():
            return (e.x,)
        case Binary():
            return (e.a, e.b)
        case Select():
            return (e.cond, e.then, e.orelse)
        case Reduce():
            return (e.body,)
    return ()


def walk(e: Expr) -> Iterator[Expr]:
    """Every node of the expression, each once (shared nodes are visited once)."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(subexpressions(node))


def transform(e: Expr, leaf: Callable[[Expr], Expr | None]) -> Expr:
    """Rebuild bottom-up. `leaf(node)` sees each node after its children were rebuilt; None keeps it. Sharing
    is kept.

    Kernel expressions are as deep as a fused function is long, which the fusion pass bounds; recursion is
    safe here.
    """
    memo: dict[int, Expr] = {}

    def go(node: Expr) -> Expr:
        if id(node) in memo:
            return memo[id(node)]
        match node:
            case Load():
                indices = tuple(go(i) if isinstance(i, Expr) else i for i in node.indices)
                new: Expr = (
                    node
                    if all(a is b for a, b in zip(indices, node.indices))
                    else replace(node, indices=indices)
                )
            case Unary() | Cast():
                x = go(node.x)
                new = node if x is node.x else replace(node, x=x)
            case Binary():
                a, b = go(node.a), go(node.b)
                new = node if a is node.a and b is node.b else replace(node, a=a, b=b)
            case Select():
                c, t, o = go(node.cond), go(node.then), go(node.orelse)
                same = c is node.cond and t is node.then and o is node.orelse
                new = node if same else replace(node, cond=c, then=t, orelse=o)
            case Reduce():
                body = go(node.body)
                new = node if body is node.body else replace(node, body=body)
            case _:
                new = node
        changed = leaf(new)
        memo[id(node)] = new = new if changed is None else changed
        return new

    return go(e)


def substitute(e: Expr, env: Mapping[str, IndexLike]) -> Expr:
    """Replace loop variables and symbols in all indices by Dims or (data-dependent) integer expressions."""
    dims = {k: v for k, v in env.items() if isinstance(v, Dim)}

    def index(i: IndexLike) -> IndexLike:
        if isinstance(i, Expr):
            return i
        if any(s in env and not isinstance(env[s], Dim) for s in i.symbols()):
            return _dim_as_expr(i, env)
        return i.subst(dims)

    def leaf(node: Expr) -> Expr | None:
        if isinstance(node, Load):
            indices = tuple(index(i) for i in node.indices)
            return (
                None if all(a is b for a, b in zip(indices, node.indices)) else replace(node, indices=indices)
            )
        if isinstance(node, Index):
            i = index(node.dim)
            return i if isinstance(i, Expr) else None if i is node.dim else Index(i)
        if isinstance(node, Reduce):
            axes = tuple(Axis(a.var, a.extent.subst(dims)) for a in node.axes)
            return None if axes == node.axes else replace(node, axes=axes)
        return None

    return transform(e, leaf)


def _dim_as_expr(d: Dim, env: Mapping[str, IndexLike]) -> Expr:
    """d as integer arithmetic, with the variables of env replaced."""

    def atom(a) -> Expr:
        if a.kind == "sym":
            value = env.get(a.name)
            return (
                value
                if isinstance(value, Expr)
                else Index(value if value is not None else Dim({((a, 1),): 1}))
            )
        args = [_dim_as_expr(x, env) for x in a.args]
        result = args[0]
        for x in args[1:]:
            result = Binary(a.kind, result, x)
        return result

    total: Expr | None = None
    for monomial, c in d.terms.items():
        term: Expr = Const(c, "int64")
        for a, power in monomial:
            for _ in range(power):
                term = (
                    atom(a) if isinstance(term, Const) and term.value == 1 else Binary("mul", term, atom(a))
                )
        total = term if total is None else Binary("add", total, term)
    return total if total is not None else Const(0, "int64")

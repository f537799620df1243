"""Random well-typed modules over most operators, made from a seed.

Each value carries what keeps comparisons meaningful:

bits:   how many binary digits it has if it is exact (above EXACT it is rounded); operators with jumps (floor,
        less, argmax, casts to integers) see exact values only
bound:  how large it may get, so that nothing overflows
wild:   whether it may hold NaN or infinity
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    TensorType,
    Tuple,
    TupleGet,
    TupleType,
    Var,
    call,
    tensor,
)  # fmt: skip
from intarsia.ir.visit import children
from intarsia.op import entry
from intarsia.op.entry import Arg, Site
from intarsia.support.errors import TypeCheckError, UnsupportedError

EXACT = 22
ROUNDED = 99
LIMIT = 60_000  # elements
LARGEST = {"n": 33, "m": 17}
N, M = Symbol("n"), Symbol("m")
DIMS: list[Dim] = [N, N, N, M, N + 1, N * 2, *map(as_dim, (1, 1, 2, 3, 4, 5, 8, 16, 17))]
FLOATS = ["float32"] * 6 + ["float64"] * 2 + ["float16"]
KINDS = FLOATS + ["int32", "int64", "int64", "bool", "uint8"]


@dataclass(frozen=True)
class Node:
    """A value of the module under construction."""

    expr: Expr
    type: TensorType
    bits: int
    bound: float
    wild: bool = False
    known: np.ndarray | None = None

    @property
    def shape(self) -> tuple[Dim, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def exact(self) -> bool:
        return self.bits <= (9 if self.dtype == "float16" else EXACT)


@dataclass
class Case:
    """A module and how to call it: its parameters and results; `nodes` are all its tensors in order."""

    seed: int
    params: list[Var]
    nodes: list[Expr]
    outputs: list[Expr]
    functions: dict[str, Function] = field(default_factory=dict)
    types: dict[int, TensorType] = field(default_factory=dict)

    def module(self) -> IRModule:
        body = self.outputs[0] if len(self.outputs) == 1 else Tuple(tuple(self.outputs))
        return IRModule({**self.functions, "main": Function(tuple(self.params), body)})


def arguments(params: Sequence[Var], sizes: dict[str, int], seed: int) -> list[np.ndarray]:
    """Arrays for parameters: eighths between -2 and 2, small integers."""
    rng = np.random.default_rng(seed)
    found = []
    for p in params:
        assert isinstance(p.type, TensorType)
        shape = tuple(d.evaluate(sizes) for d in p.type.shape)
        if p.type.dtype == "bool":
            a = rng.integers(0, 2, shape) > 0
        elif "float" in p.type.dtype:
            a = rng.integers(-16, 16, shape) / 8
        else:
            a = rng.integers(0 if p.type.dtype == "uint8" else -8, 9, shape)
        found.append(np.asarray(a, p.type.dtype))
    return found


def make(seed: int) -> Case:
    """The module of a seed."""
    return _Maker(seed).run()


class _Maker:
    def __init__(self, seed: int):
        self.r = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.seed = seed
        self.params: list[Var] = []
        self.pool: list[Node] = []
        self.made: list[Node] = []
        self.functions: dict[str, Function] = {}
        self.depth = 0
        self.float = self.r.choice(FLOATS)
        self.wild = self.r.random() < 0.15
        big = seed % 5 == 4  # sizes at which work is cut into parts and shared
        self.dims = [*DIMS, *map(as_dim, (64, 100, 130, 257))] if big else DIMS
        self.limit = 5 * LIMIT if big else LIMIT

    def run(self) -> Case:
        self.param((N, M), self.float)
        pictures = self.r.random() < 0.3
        if pictures:
            c = self.r.choice([1, 3, 4, 6, 8, 16])
            side = self.r.choice([N + 1, N * 2 + 3, as_dim(9), M + 4])
            self.first(
                (self.r.choice([as_dim(1), as_dim(2), N]), as_dim(c), side, self.r.choice([side, as_dim(7)])),
                self.float,
            )
        for _ in range(self.r.randint(0, 2)):
            self.first(
                tuple(self.r.choice(self.dims) for _ in range(self.r.choice([0, 1, 2, 2, 3, 3, 4, 5]))),
                self.kind(),
            )
        self.steps(self.r.randint(5, 25))
        made = self.made or self.pool
        used = {
            id(c) for n in made for c in children(n.expr.tuple if isinstance(n.expr, TupleGet) else n.expr)
        }
        outputs = [n.expr for n in made if id(n.expr) not in used][-self.r.randint(1, 8) :]
        for _ in range(self.r.choice([0, 0, 1, 2])):
            outputs.append(self.r.choice(self.pool).expr)  # may be an input, a view, or the same again
        types = {id(n.expr): n.type for n in self.made + self.pool}
        return Case(self.seed, self.params, [n.expr for n in self.made], outputs, self.functions, types)

    def first(self, shape: Sequence[Dim], dtype: str) -> None:
        while self.size_of(shape) > self.limit:
            shape = [d if self.r.random() < 0.7 else as_dim(2) for d in shape]
        self.param(shape, dtype)

    def kind(self) -> str:
        return self.float if self.r.random() < 0.7 else self.r.choice(KINDS)

    def steps(self, count: int) -> None:
        """`count` operators more in the pool, of whatever fits."""
        templates: list[tuple[int, Callable[[], Node | None]]] = [
            (10, self.unary), (9, self.binary), (3, self.compare), (2, self.where), (2, self.logic),
            (2, self.cast), (1, self.clip), (5, self.reduce), (1, self.arg), (3, self.softmax),
            (3, self.norm), (6, self.matmul), (4, self.conv), (2, self.pooling), (1, self.conv_transpose),
            (2, self.take), (4, self.slice), (3, self.concat), (2, self.split), (2, self.pad),
            (4, self.view), (4, self.transpose), (2, self.expand), (1, self.cumsum), (1, self.trilu),
            (1, self.flip), (1, self.resize), (1, self.one_hot), (1, self.topk), (1, self.gather),
            (1, self.scatter), (1, self.depth_space), (2, self.integers), (2, self.branch), (1, self.loop),
            (1, self.size), (1, self.diamond), (1, self.eye), (1, self.filled), (1, self.points),
            (1, self.recurrent), (1, self.reversed), (1, self.maxima),
        ]  # fmt: skip
        weights, functions = zip(*templates)
        goal, tries = len(self.made) + count, 0
        while len(self.made) < goal and tries < 12 * count:
            tries += 1
            try:
                self.r.choices(functions, weights)[0]()
            except (TypeCheckError, UnsupportedError):
                continue

    # ---- material --------------------------------------------------------------------------------------
    def param(self, shape: Sequence[Dim], dtype: str) -> Node:
        var = Var(f"p{len(self.params)}", tensor(shape, dtype))
        node = Node(var, tensor(shape, dtype), 5 if dtype != "bool" else 1, 16 if "int" in dtype else 2)
        if self.depth == 0 and self.size_of(shape) <= self.limit:
            self.params.append(var)
            self.pool.append(node)
            return node
        raise TypeCheckError("TYPE-001", "too large, or not the place")

    def constant(self, shape: Sequence[int], dtype: str) -> Node:
        if dtype == "bool":
            a = self.np.integers(0, 2, shape) > 0
        elif "float" in dtype:
            a = self.np.integers(-8, 8, shape) / 8
        else:
            a = self.np.integers(0 if dtype == "uint8" else -4, 5, shape)
        return self.literal(np.asarray(a, dtype))

    def literal(self, array: np.ndarray) -> Node:
        largest = float(abs(array.astype(np.float64)).max()) if array.size else 0.0
        return Node(Constant(array), tensor(array.shape, array.dtype.name), 5, max(1.0, largest))

    def ints(self, *values: int) -> Node:
        return self.literal(np.array(values, np.int64))

    def scalar(self, value: float, dtype: str) -> Node:
        return self.literal(np.array(value, dtype))

    def pick(self, wanted: Callable[[Node], bool] = lambda n: True) -> Node:
        fitting = [n for n in self.pool if wanted(n)]
        if not fitting:
            raise TypeCheckError("TYPE-001", "nothing fits")
        return fitting[-1] if self.r.random() < 0.5 else self.r.choice(fitting)

    def number(self, n: Node) -> bool:
        return "float" in n.dtype

    def pick_float(self, rank: int = 0, bound: float = 1e4) -> Node:
        return self.pick(lambda n: self.number(n) and len(n.shape) >= rank and n.bound <= bound)

    def size_of(self, shape: Sequence[Dim]) -> int:
        return math.prod(d.evaluate(LARGEST) for d in shape)

    def partner(self, x: Node) -> Node:
        """Something of x's dtype that broadcasts with it."""
        kind = self.r.random()
        if kind < 0.5:
            fitting = [n for n in self.pool if n.dtype == x.dtype and _broadcasts(n.shape, x.shape)]
            return self.r.choice(fitting) if fitting else x
        drop = self.r.randint(0, len(x.shape)) if self.r.random() < 0.5 else 0
        dims = [d if self.r.random() < 0.7 else as_dim(1) for d in x.shape[drop:]]
        if kind < 0.7 and self.depth == 0 and len(self.params) < 6:
            return self.param(dims, x.dtype)
        return self.constant([d.value if d.is_const else 1 for d in dims], x.dtype)

    def emit(
        self, op: str, *args: Node | None, bits: int = ROUNDED, bound: float, wild: bool = False, **attrs
    ) -> Node:
        """The call, if it type-checks without run-time checks and is not too large."""
        found = self.typed(op, args, attrs)
        if not isinstance(found, TensorType):
            raise TypeCheckError("TYPE-001", "a tuple")
        e = Call(entry_ref(op), tuple(a.expr if a else Tuple(()) for a in args), attrs)
        wild = wild or any(a.wild for a in args if a)
        return self.add(Node(e, found, bits, bound, wild))

    def typed(self, op: str, args: Sequence[Node | None], attrs: dict):
        site = Site(entry.get(op), [_arg(a) for a in args], attrs)
        found = site.op.rule(site)
        if site.checks or site.bindings:
            raise TypeCheckError("TYPE-001", "not proved")
        return found

    def add(self, node: Node) -> Node:
        if self.size_of(node.shape) > self.limit or len(node.shape) > 6 or node.bound > 1e6:
            raise TypeCheckError("TYPE-001", "too large")
        if any(d.evaluate({"n": 0, "m": 0}) < 0 for d in node.shape):
            raise TypeCheckError("TYPE-001", "may be negative")
        self.pool.append(node)
        self.made.append(node)
        return node

    # ---- elementwise -----------------------------------------------------------------------------------
    def unary(self) -> Node:
        x = self.pick(self.number)
        name = self.r.choice(_SMOOTH + _JUMPS + _GUARDED + _GROWING)
        if name in _SMOOTH:
            squash = name in (
                "tanh",
                "sigmoid",
                "erf",
                "sin",
                "cos",
                "atan",
                "nn.softsign",
                "nn.hard_sigmoid",
            )
            keep = name in ("negative", "abs", "nn.relu", "copy")
            return self.emit(name, x, bound=2 if squash else x.bound + 1, bits=x.bits if keep else ROUNDED)
        if name in _JUMPS:
            x = self.pick(lambda n: self.number(n) and n.exact)
            return self.emit(name, x, bits=x.bits, bound=x.bound + 1)
        if name in _GUARDED:
            if self.wild and x.exact:
                return self.emit(name, x, bound=1e3, wild=True)
            y = self.emit(
                "add", self.emit("abs", x, bound=x.bound), self.scalar(1.0, x.dtype), bound=x.bound + 1
            )
            return self.emit(name, y, bound=x.bound + 1)
        x = self.pick(lambda n: self.number(n) and n.bound <= 5)
        return self.emit(name, x, bound=math.exp(x.bound))

    def binary(self) -> Node:
        x = self.pick(lambda n: n.dtype != "bool")
        y = self.partner(x)
        a, b = (x, y) if self.r.random() < 0.7 else (y, x)
        name = self.r.choice(["add", "subtract", "multiply", "maximum", "minimum", "divide", "nn.prelu"])
        if x.dtype == "uint8" and name in ("subtract", "nn.prelu"):
            name = "bitwise_xor"
        if name == "multiply":
            return self.emit(name, a, b, bits=a.bits + b.bits, bound=a.bound * b.bound)
        if name in ("divide", "nn.prelu"):
            if not self.number(x):
                return self.emit("maximum", a, b, bits=max(a.bits, b.bits), bound=max(a.bound, b.bound))
            if name == "nn.prelu":
                return self.emit(name, x, y, bound=x.bound * max(y.bound, 1))
            b = self.emit(
                "add",
                self.emit("multiply", b, b, bound=b.bound**2),
                self.scalar(1, x.dtype),
                bound=b.bound**2 + 1,
            )
            return self.emit("divide", a, b, bound=a.bound)
        if name in ("add", "subtract"):
            return self.emit(name, a, b, bits=max(a.bits, b.bits) + 1, bound=a.bound + b.bound)
        return self.emit(name, a, b, bits=max(a.bits, b.bits), bound=max(a.bound, b.bound))

    def compare(self) -> Node:
        x = self.pick(lambda n: n.exact and n.dtype != "bool")
        y = self.partner(x)
        if not y.exact:
            y = x
        name = self.r.choice(["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
        return self.emit(name, x, y, bits=1, bound=1)

    def where(self) -> Node:
        c = self.pick(lambda n: n.dtype == "bool")
        x = self.pick(lambda n: _broadcasts(n.shape, c.shape))
        y = self.partner(x)
        return self.emit("where", c, x, y, bits=max(x.bits, y.bits), bound=max(x.bound, y.bound))

    def logic(self) -> Node:
        x = self.pick(lambda n: n.dtype == "bool")
        if self.r.random() < 0.3:
            return self.emit("logical_not", x, bits=1, bound=1)
        name = self.r.choice(["logical_and", "logical_or", "logical_xor", "equal"])
        return self.emit(name, x, self.partner(x), bits=1, bound=1)

    def cast(self) -> Node:
        dtype = self.r.choice([self.float, self.float, *KINDS])
        x = self.pick(lambda n: n.dtype != dtype)
        if not self.number(Node(x.expr, tensor((), dtype), 0, 0)) and not (x.exact and not x.wild):
            raise TypeCheckError("TYPE-001", "a rounded value would jump")
        if dtype == "uint8":
            x = self.emit("abs", x, bits=x.bits, bound=x.bound) if x.dtype not in ("bool", "uint8") else x
            if x.bound > 100:
                raise TypeCheckError("TYPE-001", "too large")
        bits = x.bits if dtype != "float16" or x.bits <= 9 else ROUNDED
        return self.emit("cast", x, bits=bits, bound=x.bound, dtype=dtype)

    def clip(self) -> Node:
        x = self.pick(lambda n: n.dtype not in ("bool", "uint8"))
        low = None if self.r.random() < 0.3 else self.scalar(-1, x.dtype)
        high = None if low is not None and self.r.random() < 0.3 else self.scalar(3, x.dtype)
        return self.emit("clip", x, low, high, bits=x.bits, bound=x.bound)

    def integers(self) -> Node:
        x = self.pick(lambda n: "int" in n.dtype)
        name = self.r.choice(
            [
                "bitwise_and",
                "bitwise_or",
                "bitwise_xor",
                "floor_divide",
                "mod",
                "fmod",
                "left_shift",
                "right_shift",
                "divide",
                "negative",
            ]
        )
        if name == "negative":
            return self.emit(
                "bitwise_not" if x.dtype == "uint8" else name, x, bits=x.bits, bound=max(x.bound, 256)
            )
        if name in ("floor_divide", "mod", "fmod", "divide"):
            d = self.r.choice([1, 2, 3, 4, 7] + ([-1, -2, -3] if x.dtype != "uint8" else []))
            return self.emit(name, x, self.scalar(d, x.dtype), bits=x.bits, bound=x.bound + 8)
        if "shift" in name:
            return self.emit(
                name, x, self.scalar(self.r.randint(0, 3), x.dtype), bits=x.bits + 3, bound=x.bound * 8
            )
        y = self.partner(x)
        return self.emit(name, x, y, bits=max(x.bits, y.bits) + 1, bound=2 * max(x.bound, y.bound))

    def diamond(self) -> Node:
        x = self.pick_float(bound=100)
        a = self.emit(self.r.choice(["tanh", "sigmoid", "nn.relu"]), x, bound=x.bound)
        b = self.emit(self.r.choice(["negative", "nn.silu", "cos"]), x, bound=x.bound + 1)
        return self.emit(
            self.r.choice(["add", "multiply", "subtract"]), a, b, bound=a.bound * b.bound + a.bound + b.bound
        )

    # ---- reductions and norms --------------------------------------------------------------------------
    def axes(self, x: Node) -> list[int]:
        rank = len(x.shape)
        count = self.r.choice([1, 1, 1, 2, rank])
        return sorted(self.r.sample(range(rank), min(count, rank)))

    def reduce(self) -> Node:
        x = self.pick(lambda n: len(n.shape) > 0 and n.bound < 100)
        axes = self.axes(x)
        size = self.size_of([x.shape[a] for a in axes])
        keep = self.r.random() < 0.5
        shown = self.ints(*(a - len(x.shape) if self.r.random() < 0.3 else a for a in axes))
        if len(axes) == len(x.shape) and self.r.random() < 0.5:
            shown = None
        empty = any(d.evaluate({"n": 0, "m": 0}) == 0 for d in (x.shape[a] for a in axes))
        if x.dtype == "bool":
            return self.emit(
                self.r.choice(["reduce.all", "reduce.any"]), x, shown, bits=1, bound=1, keepdims=keep
            )
        name = self.r.choice(
            [
                "sum",
                "sum",
                "sum",
                "mean",
                "mean",
                "max",
                "max",
                "min",
                "sum_square",
                "l1_norm",
                "l2_norm",
                "log_sum_exp",
                "prod",
            ]
        )
        if not self.number(x) and name not in ("sum", "max", "min"):
            name = "sum"
        if x.dtype == "uint8":
            name = "max"
        grow = math.ceil(math.log2(size + 1))
        bits = {"sum": x.bits + grow, "max": x.bits, "min": x.bits}.get(name, ROUNDED)
        bound = {
            "mean": x.bound,
            "max": x.bound,
            "min": x.bound,
            "log_sum_exp": x.bound + 10,
            "sum_square": x.bound**2 * size,
            "l2_norm": x.bound * size,
        }.get(name, x.bound * size)
        if name == "prod":
            x = self.emit("tanh", x, bound=1)
            bound = 1
        if empty and not self.number(x) and name in ("max", "min"):
            raise TypeCheckError("TYPE-001", "no largest integer of none")
        wild = empty and name in ("mean", "max", "min", "log_sum_exp")
        return self.emit(f"reduce.{name}", x, shown, bits=bits, bound=bound, wild=wild, keepdims=keep)

    def sure(self, d: Dim) -> bool:
        return d.evaluate({"n": 0, "m": 0}) > 0

    def arg(self) -> Node:
        x = self.pick(lambda n: n.exact and not n.wild and n.dtype != "bool" and any(map(self.sure, n.shape)))
        axis = self.r.choice([i for i, d in enumerate(x.shape) if self.sure(d)])
        return self.emit(self.r.choice(["reduce.argmax", "reduce.argmin"]), x, axis=axis, bits=8, bound=100,
                         keepdims=self.r.random() < 0.5, select_last_index=self.r.random() < 0.3)  # fmt: skip

    def softmax(self) -> Node:
        x = self.pick_float(1, 100)
        return self.emit(
            self.r.choice(["nn.softmax", "nn.softmax", "nn.log_softmax"]),
            x,
            axis=self.r.randrange(-len(x.shape), len(x.shape)),
            bound=200,
        )

    def vector(self, d: Dim, dtype: str) -> Node:
        if d.is_const and self.r.random() < 0.8:
            return self.constant([d.value], dtype)
        return self.param([d], dtype)

    def norm(self) -> Node:
        x = self.pick(
            lambda n: self.number(n) and len(n.shape) > 0 and n.bound <= 1e3 and n.dtype != "float16"
        )
        name = self.r.choice(
            [
                "nn.layer_norm",
                "nn.layer_norm",
                "nn.rms_norm",
                "nn.batch_norm",
                "nn.instance_norm",
                "nn.group_norm",
                "nn.lrn",
            ]
        )
        if name in ("nn.layer_norm", "nn.rms_norm"):
            scale = self.vector(x.shape[-1], x.dtype)
            bias = (
                [self.vector(x.shape[-1], x.dtype)]
                if name == "nn.layer_norm" and self.r.random() < 0.7
                else []
            )
            return self.emit(name, x, scale, *bias, axis=-1, epsilon=1e-2, bound=30)
        x = self.pick(
            lambda n: (
                self.number(n)
                and len(n.shape) >= 3
                and n.shape[1].is_const
                and n.shape[1].value > 0
                and n.bound <= 1e3
                and n.dtype != "float16"
            )
        )
        c = x.shape[1]
        if name == "nn.batch_norm":
            some = [self.constant([c.value], x.dtype) for _ in range(3)]
            var = self.literal(np.asarray(self.np.integers(2, 16, c.value) / 4, x.dtype))
            return self.emit(name, x, *some, var, bound=x.bound * 4 + 4)
        if name == "nn.lrn":
            return self.emit(name, x, size=self.r.choice([1, 3, 5]), bound=x.bound)
        a, b = self.constant([c.value], x.dtype), self.constant([c.value], x.dtype)
        if name == "nn.instance_norm":
            return self.emit(name, x, a, b, epsilon=1e-2, bound=30, wild=True)
        groups = self.r.choice([g for g in (1, 2, 3, 4) if c.value % g == 0])
        return self.emit(name, x, a, b, groups=groups, epsilon=1e-2, bound=30, wild=True)

    # ---- contractions ----------------------------------------------------------------------------------
    def matmul(self) -> Node:
        a = self.pick_float(1, 50)
        k, rank = a.shape[-1], len(a.shape)
        ta, tb = rank >= 2 and self.r.random() < 0.2, self.r.random() < 0.3
        if ta:
            k = a.shape[-2]
        out = self.r.choice([*map(as_dim, (1, 3, 8, 16, 19, 33)), N, M, *self.dims[-3:]])
        batch: list[Dim] = []
        if rank > 2 and self.r.random() < 0.5:
            batch = [d if self.r.random() < 0.7 else as_dim(1) for d in a.shape[:-2]]
        dims = [*batch, out, k] if tb else [*batch, k, out]
        fitting = [
            n
            for n in self.pool
            if n.dtype == a.dtype and len(n.shape) >= 2 and n.shape[-1 if tb else -2] == k and n.bound < 50
        ]
        bound_b = 1.0
        if fitting and self.r.random() < 0.4:
            b = self.r.choice(fitting)
        elif all(d.is_const for d in dims) and self.r.random() < 0.7:
            b = self.constant([d.value for d in dims], a.dtype)
        else:
            b = self.param(dims, a.dtype)
        if self.r.random() < 0.15 and not ta and not tb and len(b.shape) == 2:
            b = self.vector(k, a.dtype)
        bound_b = b.bound
        size = k.evaluate(LARGEST)
        if size * self.size_of(a.shape) > 10 * self.limit:
            raise TypeCheckError("TYPE-001", "too slow")
        y = self.emit(
            "matmul",
            a,
            b,
            bits=a.bits + b.bits + 6,
            bound=a.bound * bound_b * size,
            transpose_a=ta,
            transpose_b=tb,
        )
        while self.r.random() < 0.4 and y.bound < 1e4:
            y = (
                self.emit("add", y, self.partner(y), bound=y.bound + 20)
                if self.r.random() < 0.6
                else self.emit(self.r.choice(["nn.relu", "tanh", "nn.gelu"]), y, bound=y.bound)
            )
        return y

    def picture(self) -> Node:
        return self.pick(
            lambda n: (
                self.number(n)
                and len(n.shape) in (3, 4, 4, 4, 5)
                and n.shape[1].is_const
                and n.shape[1].value > 0
                and n.bound <= 50
                and all(self.sure(d) for d in n.shape[2:])
            )
        )

    def window(self, x: Node) -> dict:
        s = len(x.shape) - 2
        one = lambda *c: tuple(self.r.choice(c) for _ in range(s))  # noqa: E731
        kernel, pads = one(1, 2, 3, 3, 5), one(0, 0, 1, 2)
        return {
            "kernel": kernel,
            "strides": one(1, 1, 2, 3),
            "padding": pads + (pads if self.r.random() < 0.7 else one(0, 1)),
            "dilation": one(1, 1, 1, 2),
        }

    def conv(self) -> Node:
        x = self.picture()
        c = x.shape[1].value
        w = self.window(x)
        groups = self.r.choice([1, 1, 1, c, c, *[g for g in (2, 3, 4) if c % g == 0]])
        out = groups * self.r.choice([1, 1, 2, 3]) if groups > 1 else self.r.choice([1, 3, 4, 8, 13, 16])
        kernel = w.pop("kernel")
        if self.r.random() < 0.3:
            kernel = (1,) * len(kernel)
        if self.r.random() < 0.15:
            w = {"strides": w["strides"], "auto_pad": self.r.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])}
        shape = (out, c // groups, *kernel)
        weight = (
            self.constant(shape, x.dtype)
            if self.r.random() < 0.8
            else self.param(tuple(map(as_dim, shape)), x.dtype)
        )
        bias = [self.constant((out,), x.dtype)] if self.r.random() < 0.5 else []
        size = math.prod(shape[1:])
        y = self.emit(
            "nn.conv",
            x,
            weight,
            *bias,
            groups=groups,
            bits=x.bits + 12,
            bound=x.bound * weight.bound * size + 1,
            **w,
        )
        if self.r.random() < 0.4:
            scale = [self.constant([out], x.dtype) for _ in range(3)]
            y = self.emit(
                "nn.batch_norm",
                y,
                *scale,
                self.literal(np.asarray(self.np.integers(2, 16, out) / 4, x.dtype)),
                bound=y.bound * 4 + 4,
            )
        if self.r.random() < 0.5:
            y = self.emit(self.r.choice(["nn.relu", "nn.silu", "nn.hard_swish", "tanh"]), y, bound=y.bound)
        same = [n for n in self.pool if n.shape == y.shape and n.dtype == y.dtype and n is not y]
        if same and self.r.random() < 0.5:
            y = self.emit("add", y, self.r.choice(same), bound=y.bound * 2)
        return y

    def conv_transpose(self) -> Node:
        x = self.picture()
        c, s = x.shape[1].value, len(x.shape) - 2
        w = self.window(x)
        groups = self.r.choice([1, 1, *[g for g in (2, 3) if c % g == 0]])
        out = self.r.choice([1, 2, 5])
        shape = (c, out, *w.pop("kernel"))
        w["padding"] = (0,) * (2 * s) if self.r.random() < 0.5 else w["padding"]
        w["output_padding"] = tuple(self.r.choice([0, st - 1]) for st in w["strides"])
        return self.emit(
            "nn.conv_transpose",
            x,
            self.constant(shape, x.dtype),
            groups=groups,
            bound=x.bound * math.prod(shape),
            **w,
        )

    def pooling(self) -> Node:
        x = self.picture()
        w = self.window(x)
        w["padding"] = tuple(min(p, k - 1) for p, k in zip(w["padding"], w["kernel"] * 2))
        name = self.r.choice(["nn.max_pool", "nn.avg_pool"])
        if name == "nn.avg_pool":
            w["count_include_pad"] = self.r.random() < 0.5
        return self.emit(
            name,
            x,
            bits=x.bits if name == "nn.max_pool" else ROUNDED,
            bound=x.bound,
            ceil_mode=self.r.random() < 0.3,
            wild=True,
            **w,
        )

    # ---- moving ----------------------------------------------------------------------------------------
    def some(self) -> Node:
        return self.pick(lambda n: len(n.shape) > 0)

    def moved(self, op: str, x: Node, *args: Node | None, **attrs) -> Node:
        return self.emit(op, x, *args, bits=x.bits, bound=x.bound, **attrs)

    def take(self) -> Node:
        x = self.pick(lambda n: any(self.sure(d) for d in n.shape))
        axis = self.r.choice([i for i, d in enumerate(x.shape) if self.sure(d)])
        d = x.shape[axis]
        if d.is_const and self.r.random() < 0.6 and (self.depth == 0):
            raw = self.param([self.r.choice([N, M, as_dim(3)])] * self.r.choice([0, 1, 1, 2]), "int64")
            index = self.emit("mod", raw, self.scalar(d.value, "int64"), bits=5, bound=d.value)
            if self.r.random() < 0.3:
                index = self.emit("subtract", index, self.scalar(d.value, "int64"), bits=5, bound=d.value)
        else:
            top = d.value if d.is_const else 1
            shape = self.r.choice([(), (1,), (3,), (2, 2)])
            index = self.literal(np.asarray(self.np.integers(-top, top, shape), np.int64))
        return self.moved("take", x, index, axis=axis)

    def slice(self) -> Node:
        x = self.some()
        axes = self.axes(x)
        starts, ends, steps = [], [], []
        for a in axes:
            kind = self.r.randrange(6)
            start, end, step = [
                (0, 2**31, 1),
                (1, 2**31, 1),
                (0, -1, 1),
                (0, 2**31, 2),
                (-1, -(2**31), -1),
                (-3, 2**31, 1),
            ][kind]
            if x.shape[a].is_const and self.r.random() < 0.5:
                start, end, step = (
                    self.r.randint(0, x.shape[a].value),
                    self.r.randint(0, x.shape[a].value),
                    self.r.choice([1, 2]),
                )
            starts.append(start)
            ends.append(end)
            steps.append(step)
        return self.moved(
            "slice", x, self.ints(*starts), self.ints(*ends), self.ints(*axes), self.ints(*steps)
        )

    def concat(self) -> Node:
        x = self.some()
        axis = self.r.randrange(len(x.shape))
        fitting = [n for n in self.pool if n.dtype == x.dtype and len(n.shape) == len(x.shape) and all(
            a == b for i, (a, b) in enumerate(zip(n.shape, x.shape)) if i != axis)]  # fmt: skip
        parts = [x, *(self.r.choice(fitting) for _ in range(self.r.choice([1, 1, 2, 3])))]
        self.r.shuffle(parts)
        return self.emit(
            "concatenate",
            *parts,
            bits=max(p.bits for p in parts),
            bound=max(p.bound for p in parts),
            axis=axis - (len(x.shape) if self.r.random() < 0.3 else 0),
        )

    def split(self) -> Node:
        x = self.some()
        axis = self.r.randrange(len(x.shape))
        d = x.shape[axis]
        if d.is_const and d.value > 1 and self.r.random() < 0.5:
            cut = self.r.randint(1, d.value - 1)
            args: list[Node | None] = [x, self.ints(cut, d.value - cut)]
            attrs: dict = {"axis": axis}
        else:
            args, attrs = [x], {"axis": axis, "parts": self.r.choice([2, 3])}
        found = self.typed("split", args, attrs)
        whole = Call(entry_ref("split"), tuple(a.expr for a in args if a), attrs)
        made = [Node(TupleGet(whole, i), t, x.bits, x.bound, x.wild) for i, t in enumerate(found.fields)]
        return [self.add(n) for n in made if self.r.random() < 0.8 or n is made[-1]][-1]

    def pad(self) -> Node:
        x = self.some()
        mode = self.r.choice(["constant", "constant", "edge", "reflect", "wrap"])
        axes = self.axes(x)
        if mode != "constant":
            axes = [a for a in axes if x.shape[a].evaluate({"n": 0, "m": 0}) > 2]
            if not axes:
                raise TypeCheckError("TYPE-001", "nothing to reflect")
        low = -1 if mode == "constant" and all(x.shape[a].evaluate({"n": 0, "m": 0}) > 2 for a in axes) else 0
        pads = [self.r.randint(low, 2) for _ in range(2 * len(axes))]
        value = self.scalar(1, x.dtype) if mode == "constant" and self.r.random() < 0.5 else None
        return self.moved("pad", x, self.ints(*pads), value, self.ints(*axes), mode=mode)

    def view(self) -> Node:
        x = self.pick()
        rank = len(x.shape)
        match self.r.randrange(5):
            case 0:
                return self.moved("expand_dims", x, axes=(self.r.randint(0, rank),))
            case 1:
                ones = tuple(i for i, d in enumerate(x.shape) if d == 1)
                return self.moved("squeeze", x, axes=ones[: self.r.randint(1, max(1, len(ones)))])
            case 2:
                return self.moved("flatten", x, axis=self.r.randint(0, rank))
            case 3:
                i = self.r.randrange(rank - 1) if rank > 1 else 0
                codes = (
                    [0] * i
                    + [-1]
                    + (
                        [d.value for d in x.shape[i + 2 :]]
                        if all(d.is_const and d.value > 0 for d in x.shape[i + 2 :])
                        else []
                    )
                )
                return self.moved("reshape", x, self.ints(*codes))
        last = x.shape[-1] if rank else None
        if last is None or not last.is_const or last.value % 2 or last.value < 2:
            return self.moved("reshape", x, self.ints(*[0] * rank, 1))
        return self.moved("reshape", x, self.ints(*[0] * (rank - 1), 2, last.value // 2))

    def transpose(self) -> Node:
        x = self.pick(lambda n: len(n.shape) >= 2)
        axes = list(range(len(x.shape)))
        self.r.shuffle(axes)
        if self.r.random() < 0.4:
            axes = [*range(len(axes) - 2), len(axes) - 1, len(axes) - 2]
        return self.moved("transpose", x, axes=tuple(axes))

    def expand(self) -> Node:
        x = self.some()
        if self.r.random() < 0.5:
            return self.moved("tile", x, self.ints(*(self.r.choice([1, 1, 2, 3]) for _ in x.shape)))
        shape = [self.r.choice([1, 3]) if d == 1 else (d.value if d.is_const else 1) for d in x.shape]
        return self.moved("expand", x, self.ints(*([2] * self.r.randint(0, 1)), *shape))

    def cumsum(self) -> Node:
        x = self.pick(lambda n: n.dtype not in ("bool", "uint8") and n.bound < 50 and len(n.shape) > 0)
        axis = self.r.randrange(len(x.shape))
        size = x.shape[axis].evaluate(LARGEST)
        return self.emit(
            "cumsum",
            x,
            self.literal(np.array(axis)),
            exclusive=self.r.random() < 0.5,
            reverse=self.r.random() < 0.5,
            bits=x.bits + 7,
            bound=x.bound * size,
        )

    def trilu(self) -> Node:
        x = self.pick(lambda n: len(n.shape) >= 2)
        return self.moved(
            "trilu", x, self.literal(np.array(self.r.randint(-2, 2))), upper=self.r.random() < 0.5
        )

    def flip(self) -> Node:
        x = self.some()
        return self.moved("flip", x, axes=tuple(self.axes(x)))

    def resize(self) -> Node:
        x = self.pick(
            lambda n: (
                self.number(n)
                and len(n.shape) == 4
                and all(self.sure(d) and d.is_const for d in n.shape[2:])
                and n.dtype != "float16"
            )
        )
        sizes = [self.r.choice([1, 3, 8, 14]) for _ in range(2)]
        mode = self.r.choice(["nearest", "linear", "cubic"])
        how = self.r.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
        return self.emit(
            "image.resize",
            x,
            None,
            None,
            self.ints(*sizes),
            mode=mode,
            axes=(2, 3),
            coordinate_transformation=how,
            bits=x.bits if mode == "nearest" else ROUNDED,
            bound=2 * x.bound,
        )

    def one_hot(self) -> Node:
        x = self.pick(lambda n: n.dtype in ("int32", "int64") and len(n.shape) < 3)
        return self.emit(
            "one_hot",
            x,
            self.literal(np.array(5)),
            self.literal(np.array([0, 1], self.float)),
            axis=self.r.choice([-1, 0]),
            bits=1,
            bound=1,
        )

    def topk(self) -> Node:
        x = self.pick(
            lambda n: (
                n.exact and not n.wild and n.dtype in ("float32", "float64", "int64") and len(n.shape) > 0
            )
        )
        axis = self.r.randrange(len(x.shape))
        args = [x, self.ints(self.r.choice([1, 2, 3]))]
        if x.shape[axis].evaluate({"n": 0, "m": 0}) < 3:
            raise TypeCheckError("TYPE-001", "too few")
        attrs = {"axis": axis, "largest": self.r.random() < 0.5, "sorted": True}
        found = self.typed("topk", args, attrs)
        whole = Call(entry_ref("topk"), tuple(a.expr for a in args), attrs)
        self.add(Node(TupleGet(whole, 1), found.fields[1], 6, 64))
        return self.add(Node(TupleGet(whole, 0), found.fields[0], x.bits, x.bound))

    def gather(self) -> Node:
        x = self.pick(lambda n: len(n.shape) > 0 and any(d.is_const and d.value > 0 for d in n.shape))
        axis = self.r.choice([i for i, d in enumerate(x.shape) if d.is_const and d.value > 0])
        d = x.shape[axis].value
        dims = [*x.shape[:axis], self.r.choice([as_dim(1), as_dim(3), N]), *x.shape[axis + 1 :]]
        index = self.emit("mod", self.param(dims, "int64"), self.scalar(d, "int64"), bits=5, bound=d)
        return self.moved("take_along_axis", x, index, axis=axis)

    def scatter(self) -> Node:
        x = self.pick(
            lambda n: (
                n.dtype in ("float32", "int64")
                and len(n.shape) > 0
                and any(d.is_const and d.value > 0 for d in n.shape)
            )
        )
        axis = self.r.choice([i for i, d in enumerate(x.shape) if d.is_const and d.value > 0])
        d = x.shape[axis].value
        dims = [*x.shape[:axis], as_dim(1), *x.shape[axis + 1 :]]
        index = self.emit("mod", self.param(dims, "int64"), self.scalar(d, "int64"), bits=5, bound=d)
        return self.emit(
            "scatter_elements",
            x,
            index,
            self.param(dims, x.dtype),
            axis=axis,
            reduction=self.r.choice(["none", "add", "max"]),
            bits=x.bits + 1,
            bound=x.bound + 16,
        )

    def depth_space(self) -> Node:
        x = self.pick(lambda n: len(n.shape) == 4)
        if x.shape[1].is_const and x.shape[1].value % 4 == 0 and x.shape[1].value:
            return self.moved("depth_to_space", x, block=2, mode=self.r.choice(["DCR", "CRD"]))
        return self.moved("space_to_depth", x, block=2)

    def size(self) -> Node:
        x = self.some()
        s = self.emit("shape_of", x, bits=10, bound=1e4)
        if self.r.random() < 0.5:
            return self.emit("cast", s, bits=ROUNDED, bound=1e4, dtype=self.float)
        return self.emit("reduce.sum", s, self.ints(0), keepdims=self.r.random() < 0.5, bits=16, bound=1e5)

    def eye(self) -> Node:
        x = self.pick(lambda n: len(n.shape) == 2)
        return self.emit(
            "eye_like",
            x,
            k=self.r.randint(-2, 2),
            dtype=self.r.choice([self.float, "int64", "bool"]),
            bits=1,
            bound=1,
        )

    def filled(self) -> Node:
        """A constant of x's shape, or the numbers up to one of x's sizes."""
        x = self.some()
        if self.r.random() < 0.5:
            whole = self.shaped("shape_of", x)
            return self.emit("full", whole, self.constant((), self.float), bits=5, bound=2)
        axis = self.r.randrange(len(x.shape))
        size = self.shaped("shape_of", x, start=axis, end=axis + 1)
        one = self.shaped("squeeze", size, axes=(0,))
        zero, step = (self.literal(np.array(v)) for v in (0, self.r.choice([1, 1, 2])))
        return self.emit("arange", zero, one, step, bits=6, bound=64)

    def shaped(self, op: str, x: Node, **attrs) -> Node:
        """A call whose contents are known from the types."""
        site = Site(entry.get(op), [_arg(x)], attrs)
        found = site.op.rule(site)
        assert isinstance(found, TensorType) and site.op.value is not None
        contents = site.op.value(site)
        assert isinstance(contents, np.ndarray)
        return Node(Call(entry_ref(op), (x.expr,), attrs), found, 10, 1e4, known=contents)

    def points(self) -> Node:
        x = self.pick(lambda n: len(n.shape) > 0 and n.shape[0].is_const and n.shape[0].value > 0)
        raw = self.param([self.r.choice([N, as_dim(3)]), as_dim(1)], "int64")
        index = self.emit("mod", raw, self.scalar(x.shape[0].value, "int64"), bits=5, bound=x.shape[0].value)
        if x.dtype in ("float32", "float64", "int64") and self.r.random() < 0.4:
            updates = self.param([index.shape[0], *x.shape[1:]], x.dtype)
            return self.emit(
                "scatter_nd", x, index, updates, reduction="add", bits=x.bits + 6, bound=x.bound + 70
            )
        return self.moved("gather_nd", x, index)

    def reversed(self) -> Node:
        x = self.pick(
            lambda n: (
                len(n.shape) >= 2 and n.shape[0].is_const and n.shape[1].is_const and n.shape[0].value > 0
            )
        )
        lengths = self.np.integers(1, x.shape[0].value + 1, x.shape[1].value)
        return self.moved("reverse_sequence", x, self.literal(lengths), time_axis=0, batch_axis=1)

    def maxima(self) -> Node:
        x = self.pick(
            lambda n: (
                n.exact
                and not n.wild
                and n.dtype in ("float32", "float64")
                and len(n.shape) == 4
                and all(self.sure(d) for d in n.shape[2:])
            )
        )
        return self.emit(
            "nn.max_pool_indices", x, kernel=(2, 2), strides=(self.r.choice([1, 2]), 2), bits=20, bound=1e5
        )

    def recurrent(self) -> Node:
        x = self.pick(
            lambda n: (
                n.dtype in ("float32", "float64")
                and len(n.shape) == 3
                and n.shape[-1].is_const
                and n.bound < 20
            )
        )
        gates, name = self.r.choice([(4, "nn.lstm"), (3, "nn.gru"), (1, "nn.rnn")])
        hidden, ways = self.r.choice([1, 3, 8, 17]), self.r.choice([1, 1, 2])
        direction = "bidirectional" if ways == 2 else self.r.choice(["forward", "reverse"])
        w = self.constant((ways, gates * hidden, x.shape[-1].value), x.dtype)
        r, b = (
            self.constant((ways, gates * hidden, hidden), x.dtype),
            self.constant((ways, 2 * gates * hidden), x.dtype),
        )
        args = [x, w, r, b]
        attrs = {"hidden": hidden, "direction": direction}
        attrs |= {
            "activations": {
                "nn.lstm": ("sigmoid", "tanh", "tanh"),
                "nn.gru": ("sigmoid", "tanh"),
                "nn.rnn": ("tanh",),
            }[name]
            * ways
        }
        found = self.typed(name, args, attrs)
        whole = Call(entry_ref(name), tuple(a.expr for a in args), attrs)
        made = [Node(TupleGet(whole, i), t, ROUNDED, 50, x.wild) for i, t in enumerate(found.fields)]
        return [self.add(n) for n in made[: self.r.randint(1, len(made))]][-1]

    # ---- control ---------------------------------------------------------------------------------------
    def condition(self) -> Node:
        scalars = [n for n in self.pool if n.dtype == "bool" and not n.shape]
        if scalars and self.r.random() < 0.5:
            return self.r.choice(scalars)
        x = self.pick(
            lambda n: n.exact and not n.wild and n.dtype in ("float32", "float64", "int64") and n.bits < 12
        )
        sum_ = x if not x.shape else self.emit("reduce.sum", x, None, bits=x.bits + 10, bound=1e5)
        return self.emit("greater", sum_, self.scalar(0, x.dtype), bits=1, bound=1)

    def same_type(self, x: Node, steps: int) -> Node:
        """Something of x's type, made from it and the pool by elementwise operators, reductions, products."""
        y = x
        for _ in range(steps):
            kind = self.r.random()
            if kind < 0.07:  # another name of the same memory
                y = self.moved("squeeze", self.moved("expand_dims", y, axes=(0,)), axes=(0,))
            elif kind < 0.15:
                y = self.r.choice([n for n in self.pool if n.type == x.type] or [y])
            elif y.dtype == "bool":
                y = self.emit("logical_not", y, bits=1, bound=1)
            elif kind < 0.4 and self.number(y):
                y = self.emit(
                    self.r.choice(["tanh", "sigmoid", "sin", "nn.relu", "negative"]), y, bound=y.bound + 1
                )
            elif kind < 0.6 and self.number(y) and y.shape:
                s = self.emit(
                    "reduce.mean",
                    self.emit("tanh", y, bound=1),
                    self.ints(self.r.randrange(len(y.shape))),
                    keepdims=True,
                    bound=1,
                    wild=True,
                )
                y = self.emit("subtract", y, s, bound=y.bound + 1)
            elif kind < 0.7 and self.number(y) and y.shape and y.shape[-1].is_const and y.bound < 50:
                d = y.shape[-1].value
                y = self.emit(
                    "tanh",
                    self.emit("matmul", y, self.constant((d, d), y.dtype), bound=y.bound * d)
                    if len(y.shape) > 1
                    else y,
                    bound=1,
                )
            else:
                fitting = [n for n in self.pool if n.type == x.type]
                y = self.emit(
                    self.r.choice(["maximum", "minimum"]),
                    y,
                    self.r.choice(fitting),
                    bits=y.bits,
                    bound=y.bound,
                )
        return y

    def branch(self) -> Node:
        if self.depth > 1:
            raise TypeCheckError("TYPE-001", "deep enough")
        c = self.condition()
        x = self.pick(lambda n: n.bound < 1e4)
        if self.depth == 0 and self.r.random() < 0.3 and len(self.params) < 7:
            c = self.param((), "bool")
        arms = []
        pool, made = list(self.pool), list(self.made)
        two = self.r.random() < 0.3
        for _ in range(2):
            self.depth += 1
            try:
                y = self.same_type(x, self.r.randint(0, 4))
                if self.r.random() < 0.3 and y is not x:
                    inner = self.branch()
                    y = inner if inner.type == x.type else y
                arms.append((y, self.same_type(x, self.r.randint(0, 2))))
            finally:
                self.depth -= 1
                self.pool[:], self.made[:] = pool, made
        wild = any(n.wild for a in arms for n in a)
        bound = max(n.bound for a in arms for n in a)
        if two:
            e = If(c.expr, *(Tuple((a.expr, b.expr)) for a, b in arms))
            self.add(Node(TupleGet(e, 0), x.type, ROUNDED, bound, wild))
            return self.add(Node(TupleGet(e, 1), x.type, ROUNDED, bound, wild))
        return self.add(Node(If(c.expr, arms[0][0].expr, arms[1][0].expr), x.type, ROUNDED, bound, wild))

    def loop(self) -> Node:
        if self.depth:
            raise TypeCheckError("TYPE-001", "loops are made by main")
        xs = [self.pick(lambda n: n.bound < 100 and self.resolved(n)) for _ in range(self.r.randint(1, 3))]
        fixed = self.pick(self.resolved)
        name = f"loop{len(self.functions)}"
        i = Var("i", tensor((), "int64"))
        states = [Var(f"s{k}", x.type) for k, x in enumerate(xs)]
        inner = Var("c", fixed.type)
        pool, made = self.pool, self.made
        inside = [Node(v, x.type, ROUNDED, x.bound, True) for v, x in zip(states, xs)]
        self.pool, self.made = [*inside, Node(inner, fixed.type, ROUNDED, fixed.bound, True)], []
        self.depth += 2
        try:
            new = [self.same_type(n, self.r.randint(0, 3)) for n in inside]
        finally:
            self.depth -= 2
            self.pool, self.made = pool, made
        if len(new) > 1 and new[0].type == new[1].type and self.r.random() < 0.5:
            new[0], new[1] = new[1], new[0]
        count = self.r.choice([0, 1, 2, 5])
        again = Call(GlobalVar(name), (call("add", i, Constant(np.array(1))), *(n.expr for n in new), inner))
        body = If(call("less", i, Constant(np.array(count))), again, Tuple(tuple(states)))
        result = TupleType(tuple(x.type for x in xs))
        self.functions[name] = Function((i, *states, inner), body, result)
        e = Call(GlobalVar(name), (Constant(np.array(0)), *(x.expr for x in xs), fixed.expr))
        nodes = [Node(TupleGet(e, k), x.type, ROUNDED, x.bound + 10, True) for k, x in enumerate(xs)]
        return [self.add(n) for n in nodes][-1]

    def resolved(self, n: Node) -> bool:
        """Whether the symbols of n's type can be read from a parameter of that type alone."""
        plain = {s for d in n.shape if d in (N, M) for s in d.symbols()}
        return all(d.symbols() <= plain for d in n.shape)


def _broadcasts(a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    return all(x == y or x == 1 or y == 1 for x, y in zip(reversed(a), reversed(b)))


def _arg(a: Node | None) -> Arg:
    if a is None:
        return Arg(TupleType(()))
    if isinstance(a.expr, Constant):
        array = a.expr.value
        known = None
        if "int" in array.dtype.name and array.size <= 1024:
            known = np.empty(array.shape, object)
            known.reshape(-1)[:] = [as_dim(int(v)) for v in array.reshape(-1)]
        return Arg(a.type, known, array if array.size <= 1024 else None)
    return Arg(a.type, a.known)


def entry_ref(op: str):
    from intarsia.ir import OpRef

    return OpRef(op)


_SMOOTH = [
    "negative", "abs", "sin", "cos", "tanh", "sigmoid", "erf", "atan", "asinh", "copy",
    "nn.relu", "nn.leaky_relu", "nn.elu", "nn.selu", "nn.celu", "nn.gelu", "nn.silu", "nn.mish",
    "nn.hard_sigmoid", "nn.hard_swish", "nn.softplus", "nn.softsign",
]  # fmt: skip
_JUMPS = ["floor", "ceil", "round", "trunc", "sign", "nn.thresholded_relu"]
_GUARDED = ["log", "sqrt", "rsqrt", "reciprocal", "acosh"]
_GROWING = ["exp", "sinh", "cosh"]

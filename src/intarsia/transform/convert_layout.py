"""Convolutional parts of a model run channels-last.

    nn.relu(nn.conv(%x, W))                                                                before
    transpose(nn.relu(nn.conv(transpose(%x, (0, 2, 3, 1)), W, layout="NHWC")), (0, 3, 1, 2))   after

Channels-last makes a 1x1 convolution a plain matrix product, keeps channels contiguous for vector units in
every other kernel, and needs no padding of odd channel counts. Convolutions and pools start it; element by
element operators, reductions, concatenation and splits carry it on; whatever else needs a value gets it back
in its old layout through one transpose. Weights keep their layout: the kernels pack them anyway.
"""

from __future__ import annotations

from collections.abc import Callable

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
    call,
    children,
    post_order,
    rebuild,
)  # fmt: skip
from intarsia.ir.scopes import Scopes, scopes_of
from intarsia.transform.rewriting import is_unit

_SPATIAL = ("nn.conv", "nn.conv_transpose", "nn.max_pool", "nn.avg_pool")
_ELEMENTWISE = frozenset(
    [
        "negative",
        "abs",
        "sign",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "reciprocal",
        "sin",
        "cos",
        "tanh",
        "erf",
        "sigmoid",
        "floor",
        "ceil",
        "round",
        "clip",
        "cast",
        "nn.relu",
        "nn.leaky_relu",
        "nn.elu",
        "nn.selu",
        "nn.celu",
        "nn.gelu",
        "nn.silu",
        "nn.hard_sigmoid",
        "nn.hard_swish",
        "nn.softplus",
        "nn.mish",
        "add",
        "subtract",
        "multiply",
        "divide",
        "power",
        "maximum",
        "minimum",
        "equal",
        "less",
        "greater",
        "where",
        "nn.prelu",
    ]
)
_REDUCE = frozenset(
    f"reduce.{n}" for n in ["sum", "mean", "max", "min", "prod", "l1_norm", "l2_norm", "sum_square"]
)


def convert_layout(module: IRModule) -> IRModule:
    """Channels-last for everything that convolutions feed, in every function that holds a convolution."""
    if not any(_has_conv(f) for f in module.functions.values()):
        return module
    typing = infer(module)
    return module.with_functions(
        {n: _Converter(f, typing).run() if _has_conv(f) else f for n, f in module.functions.items()}
    )


def _has_conv(f: Function) -> bool:
    return any(isinstance(n, OpRef) and n.name in _SPATIAL for n in post_order(f))


class _Converter:
    """old: node -> same layout; last: node -> channels-last (either may be made from the other, once)."""

    def __init__(self, f: Function, typing: Typing):
        self.f, self.typing = f, typing
        self.scopes: Scopes = scopes_of(f.body)
        self.old: dict[int, Expr] = {}
        self.last: dict[int, Expr] = {}

    def run(self) -> Function:
        for node in self.scopes.order:
            step = self._step_for(node)
            if step is None or not step(node):  # type: ignore[arg-type]
                self.old[id(node)] = rebuild(node, tuple(self.as_old(c) for c in children(node)))
        body = self.as_old(self.f.body)
        return Function(
            self.f.params, body, self.f.result, self.f.type_params, self.f.attrs, span=self.f.span
        )

    def _step_for(self, node: Expr) -> Callable[[Call], bool] | None:
        if not (isinstance(node, Call) and isinstance(node.op, OpRef) and id(node) in self.typing.sites):
            return None
        match node.op.name:
            case "concatenate":
                return self._concatenate
            case "image.resize":
                return self._resize
            case "slice":
                return self._slice
            case name if name in _SPATIAL:
                return self._spatial
            case name if name in _ELEMENTWISE:
                return self._elementwise
            case name if name in _REDUCE:
                return self._reduce
        return None

    # ---- the two forms of a value --------------------------------------------------------------------------
    def rank(self, node: Expr) -> int:
        t = self.typing.type(node)
        return t.rank if isinstance(t, TensorType) else 0

    def as_old(self, node: Expr) -> Expr:
        if id(node) not in self.old:
            if id(node) not in self.last:
                self.old[id(node)] = node  # an operator reference, global or literal
            else:
                self.old[id(node)] = call(
                    "transpose", self.last[id(node)], axes=to_first(self.rank(node)), span=node.span
                )
        return self.old[id(node)]

    def as_last(self, node: Expr) -> Expr:
        if id(node) not in self.last:
            axes = to_last(self.rank(node))
            if isinstance(node, Constant):
                self.last[id(node)] = Constant(
                    np.ascontiguousarray(node.value.transpose(axes)), span=node.span
                )
            else:
                self.last[id(node)] = call("transpose", self.as_old(node), axes=axes, span=node.span)
        return self.last[id(node)]

    # ---- operators -----------------------------------------------------------------------------------------
    def _spatial(self, node: Call) -> bool:
        layout = node.attrs.get("layout", "NCHW")
        if self.rank(node) < 3 or not str(layout).startswith("NC"):
            return False
        rest = tuple(self.as_old(a) for a in node.args[1:])
        attrs = {**node.attrs, "layout": "NHWC"}
        self.last[id(node)] = Call(node.op, (self.as_last(node.args[0]), *rest), attrs, span=node.span)
        return True

    def _elementwise(self, node: Call) -> bool:
        rank = self.rank(node)
        tensors = [a for a in node.args if self._is_tensor(a)]
        if rank < 3 or not any(id(a) in self.last and self.rank(a) == rank for a in tensors):
            return False
        for a in tensors:
            if 0 < self.rank(a) < rank and self._needs_spreading(a) and not isinstance(a, Constant):
                return False
        args = tuple(self._spread(a, rank) if self._is_tensor(a) else self.as_old(a) for a in node.args)
        self.last[id(node)] = Call(node.op, args, node.attrs, span=node.span)
        return True

    def _is_tensor(self, a: Expr) -> bool:
        return isinstance(self.typing.type(a), TensorType)

    def _needs_spreading(self, a: Expr) -> bool:
        t = self.typing.type(a)
        assert isinstance(t, TensorType)
        return any(d != 1 for d in t.shape)

    def _spread(self, a: Expr, rank: int) -> Expr:
        """Operand of an element by element operator of that rank, channels-last."""
        if self.rank(a) == rank:
            return self.as_last(a)
        if isinstance(a, Constant) and self._needs_spreading(a):
            value = a.value.reshape((1,) * (rank - a.value.ndim) + a.value.shape).transpose(to_last(rank))
            return Constant(np.ascontiguousarray(value), span=a.span)
        return self.as_old(a)

    def _reduce(self, node: Call) -> bool:
        x = node.args[0]
        rank = self.rank(x)
        axes = self.typing.value(node.args[1]) if len(node.args) > 1 else None
        if id(x) not in self.last or axes is None:
            return False
        numbers = [int(a) % rank for a in axes.flat]
        place = {axis: i for i, axis in enumerate(to_last(rank))}
        moved = Constant(np.array(sorted(place[a] for a in numbers), np.int64), span=node.span)
        made = Call(node.op, (self.last[id(x)], moved), node.attrs, span=node.span)
        if node.attrs.get("keepdims", False):
            self.last[id(node)] = made
            return True
        left = [a for a in to_last(rank) if a not in numbers]
        if left != sorted(left):  # what is left would come out in another order
            return False
        self.old[id(node)] = made
        return True

    def _resize(self, node: Call) -> bool:
        rank = self.rank(node)
        if rank < 3 or node.attrs.get("axes") is not None:
            return False
        args: list[Expr] = [self.as_last(node.args[0])]
        for a in node.args[1:]:
            if not isinstance(a, Constant) or a.value.size not in (rank, 2 * rank):
                if not is_unit(a):
                    return False
                args.append(a)
                continue
            value = a.value.reshape(-1, rank)[:, to_last(rank)].reshape(a.value.shape)
            args.append(Constant(np.ascontiguousarray(value), span=a.span))
        self.last[id(node)] = Call(node.op, tuple(args), node.attrs, span=node.span)
        return True

    def _slice(self, node: Call) -> bool:
        args = [self.as_old(a) for a in node.args]
        axes = args[3] if len(args) > 3 else None
        if id(node.args[0]) not in self.last or not isinstance(axes, Constant):
            return False
        rank = self.rank(node)
        place = {a: i for i, a in enumerate(to_last(rank))}
        moved = np.array([place[int(a) % rank] for a in axes.value], axes.value.dtype)
        args[0], args[3] = self.last[id(node.args[0])], Constant(moved, span=axes.span)
        self.last[id(node)] = Call(node.op, tuple(args), node.attrs, span=node.span)
        return True

    def _concatenate(self, node: Call) -> bool:
        rank = self.rank(node)
        if rank < 3 or not any(id(a) in self.last for a in node.args):
            return False
        axis = int(node.attrs["axis"]) % rank  # type: ignore[arg-type]
        place = {a: i for i, a in enumerate(to_last(rank))}
        args = tuple(self.as_last(a) for a in node.args)
        self.last[id(node)] = Call(node.op, args, {**node.attrs, "axis": place[axis]}, span=node.span)
        return True


def to_last(rank: int) -> tuple[int, ...]:
    """Axes of the transpose from channels-first to channels-last."""
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    """Axes of the transpose from channels-last to channels-first."""
    return (0, rank - 1, *range(1, rank - 1))

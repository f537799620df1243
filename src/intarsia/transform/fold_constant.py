"""What can be computed at compile time, is.

    add(const(1f), const(2f))                   const(3f)
    shape_of(%x) where %x: Tensor[(2, 3), …]    const([2, 3])
    if (True) { a } else { b }                  a

A fold that would make the program's constants much larger (an `expand` or `tile` of a scalar to megabytes) is
left to run time, unless it makes the weights of a contraction, which kernels want to rearrange at compile
time.
"""

from __future__ import annotations

from math import prod

import numpy as np

from intarsia.dim import Dim
from intarsia.infer import Typing, infer
from intarsia.ir import (
    Attr,
    Call,
    Constant,
    Expr,
    Function,
    If,
    IRModule,
    OpRef,
    TensorType,
    Tuple,
    TupleGet,
    children,
    post_order,
    rebuild,
)  # fmt: skip
from intarsia.op import get
from intarsia.transform.rewriting import is_call, is_unit

_ALWAYS_FINE = 1 << 16  # bytes
_NEVER_FINE = 1 << 34
_WEIGHTED = ("nn.conv", "nn.conv_transpose", "matmul", "nn.lstm", "nn.gru", "nn.rnn")


def fold_constant(module: IRModule) -> IRModule:
    """Constants and known shape arithmetic folded in every function."""
    typing = infer(module)
    return module.with_functions({n: _function(f, typing) for n, f in module.functions.items()})


def _function(f: Function, typing: Typing) -> Function:
    new: dict[int, Expr] = {}
    order = list(post_order(f))
    weights = {id(w) for n in order if is_call(n, *_WEIGHTED) for w in children(n)[2:]}
    for node in order:
        made = rebuild(node, tuple(new[id(c)] for c in children(node)))
        new[id(node)] = _fold(made, node, typing, is_weight=id(node) in weights)
    result = new[id(f)]
    assert isinstance(result, Function)
    return result


def _fold(new: Expr, old: Expr, typing: Typing, is_weight: bool) -> Expr:
    match new:
        case Call(op=OpRef(name=name)):
            known = _known(old, typing)
            if known is not None:
                return Constant(known, span=new.span)
            if all(isinstance(a, Constant) or is_unit(a) for a in new.args):
                return _evaluate(name, new, old, typing, is_weight)
        case TupleGet(tuple=Tuple(fields=fields)):
            return fields[new.index]
        case If(cond=Constant(value=value)):
            return new.then if bool(value) else new.orelse
    return new


def _known(old: Expr, typing: Typing) -> np.ndarray | None:
    """The contents of an integer tensor whose elements are all known numbers."""
    value, t = typing.value(old), typing.type(old)
    if value is None or not isinstance(t, TensorType) or not all(_number(v) is not None for v in value.flat):
        return None
    return np.array([_number(v) for v in value.flat], dtype=np.int64).astype(t.dtype).reshape(value.shape)


def _number(v: object) -> int | None:
    if isinstance(v, Dim):
        return v.value if v.is_const else None
    return int(v)  # type: ignore[call-overload]


def _evaluate(name: str, call: Call, old: Expr, typing: Typing, is_weight: bool) -> Expr:
    site = typing.sites[id(old)]
    if site.bindings or any(_symbolic(a) for a in site.attrs.values()):
        return call
    types = site.out
    if not types or not all(d.is_const for t in types for d in t.shape):
        return call
    inputs = [a.value if isinstance(a, Constant) else None for a in call.args]
    before = sum(a.nbytes for a in inputs if a is not None)
    after = sum(prod(d.value for d in t.shape) * 8 for t in types)
    if after > _NEVER_FINE or (not is_weight and after > _ALWAYS_FINE and after > 16 * before):
        # int8 weights widen eightfold to float64; an expand may grow by more
        return call
    with np.errstate(all="ignore"):
        result = get(name).reference(*inputs, **site.attrs)
    if isinstance(result, tuple):
        return Tuple(tuple(_constant(r, t, call) for r, t in zip(result, types, strict=True)), span=call.span)
    return _constant(result, types[0], call)


def _constant(value: object, t: TensorType, call: Call) -> Constant:
    from intarsia.op.entry import numpy_dtype

    array = np.asarray(value, numpy_dtype(t.dtype))
    return Constant(np.ascontiguousarray(array).reshape(array.shape), span=call.span)


def _symbolic(a: Attr) -> bool:
    if isinstance(a, tuple):
        return any(_symbolic(x) for x in a)
    return isinstance(a, Dim) and not a.is_const

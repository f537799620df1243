"""Equal pure computations are done once.

    %0 = exp(%x); %1 = exp(%x); add(%0, %1)     %0 = exp(%x); add(%0, %0)

Two nodes are equal if they are the same constructor over the same (already merged) operands with equal
attributes. Functions, matches and reads or writes of references are never merged.
"""

from __future__ import annotations

import hashlib

from intarsia.ir import (
    Call,
    Constant,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    OpRef,
    RefNew,
    RefRead,
    RefWrite,
    Tuple,
    TupleGet,
    children,
    post_order,
    rebuild,
)  # fmt: skip

_HASHED_BYTES = 1 << 20  # larger constants are compared by identity


def eliminate_common(module: IRModule) -> IRModule:
    """Hash-consing of every function that has no effects."""
    return module.with_functions({n: _function(f) for n, f in module.functions.items()})


def _function(f: Function) -> Function:
    if any(isinstance(n, RefNew | RefRead | RefWrite) for n in post_order(f)):
        return f
    new: dict[int, Expr] = {}
    seen: dict[object, Expr] = {}
    for node in post_order(f):
        made = rebuild(node, tuple(new[id(c)] for c in children(node)))
        key = _key(made)
        new[id(node)] = made if key is None else seen.setdefault(key, made)
    result = new[id(f)]
    assert isinstance(result, Function)
    return result


def _key(e: Expr) -> object:
    operands = tuple(id(c) for c in children(e))
    match e:
        case OpRef() | GlobalVar() | ConstructorRef():
            return type(e).__name__, e.name
        case Constant():
            if e.value.nbytes > _HASHED_BYTES:
                return None
            digest = hashlib.blake2b(e.value.tobytes(), digest_size=16).digest()
            return "const", str(e.value.dtype), e.value.shape, digest
        case Call():
            return "call", operands, tuple(sorted(e.attrs.items()))
        case TupleGet():
            return "get", operands, e.index
        case Tuple():
            return "tuple", operands
        case If():
            return "if", operands
    return None

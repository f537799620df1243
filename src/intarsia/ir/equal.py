"""Structural equality and hashing: the same program up to the names of variables, with the same sharing.

Variables and constants have no identity of their own (a constant used twice equals two equal constants);
every other node that is used twice on one side must be used twice on the other. Spans do not count.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np

from intarsia.dim import Dim
from intarsia.ir.expr import (
    Attr,
    Call,
    Constant,
    ConstructorRef,
    Expr,
    Function,
    GlobalVar,
    Let,
    Match,
    OpRef,
    Tuple,
    TupleGet,
    Var,
)  # fmt: skip
from intarsia.ir.module import IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar
from intarsia.ir.visit import children, post_order

_ATOMS = (Var, Constant, GlobalVar, OpRef, ConstructorRef)


def structural_equal(a: Expr | IRModule, b: Expr | IRModule) -> bool:
    """Whether two expressions or modules are the same up to variable names and spans; free variables by
    identity.
    """
    if isinstance(a, IRModule) or isinstance(b, IRModule):
        return isinstance(a, IRModule) and isinstance(b, IRModule) and _equal_modules(a, b)
    return _equal(a, b)


def structural_hash(e: Expr | IRModule) -> int:
    """64 bits, equal for structurally equal programs, the same in every process."""
    digest = hashlib.blake2b(digest_size=8)
    if isinstance(e, IRModule):
        for name in sorted(e.types):
            digest.update(repr(e.types[name]).encode())
        for name in sorted(e.functions):
            digest.update(name.encode() + _digest(e.functions[name]))
    else:
        digest.update(_digest(e))
    return int.from_bytes(digest.digest(), "little")


def _equal_modules(a: IRModule, b: IRModule) -> bool:
    return (
        a.functions.keys() == b.functions.keys()
        and dict(a.types) == dict(b.types)
        and a.bounds.known == b.bounds.known
        and (a.input_names, a.output_names) == (b.input_names, b.output_names)
        and all(_equal(f, b.functions[name]) for name, f in a.functions.items())
    )


def _equal(a: Expr, b: Expr) -> bool:
    partner: dict[int, int] = {}
    back: dict[int, int] = {}
    todo: list[tuple[Expr, Expr]] = [(a, b)]

    def pair(x: Expr, y: Expr) -> bool:
        return partner.setdefault(id(x), id(y)) == id(y) and back.setdefault(id(y), id(x)) == id(x)

    def bind(x: Var, y: Var) -> bool:
        return x.type == y.type and pair(x, y)

    while todo:
        x, y = todo.pop()
        if type(x) is not type(y):
            return False
        if isinstance(x, Var):  # binders come before uses: their partners are set
            if id(x) in partner or id(y) in back:
                if partner.get(id(x)) != id(y):
                    return False
            elif x is not y:
                return False
            continue
        if not isinstance(x, _ATOMS):
            if id(x) in partner or id(y) in back:
                if not pair(x, y):
                    return False
                continue
            pair(x, y)
        below = (children(x), children(y))
        if len(below[0]) != len(below[1]) or not _same_fields(x, y, bind):
            return False
        todo.extend(zip(reversed(below[0]), reversed(below[1])))
    return True


def _same_fields(x: Expr, y: Expr, bind) -> bool:
    match x, y:
        case Constant(value=v), Constant(value=w):
            return v.dtype == w.dtype and v.shape == w.shape and v.tobytes() == w.tobytes()
        case (GlobalVar(), GlobalVar()) | (OpRef(), OpRef()) | (ConstructorRef(), ConstructorRef()):
            return x.name == y.name
        case Function(), Function():
            return (
                len(x.params) == len(y.params)
                and all(bind(p, q) for p, q in zip(x.params, y.params))
                and (x.result, x.type_params) == (y.result, y.type_params)
                and _same_attrs(x.attrs, y.attrs)
            )
        case Call(), Call():
            return _same_attrs(x.attrs, y.attrs)
        case Let(), Let():
            return bind(x.var, y.var)
        case TupleGet(), TupleGet():
            return x.index == y.index
        case Match(), Match():
            return all(_same_pattern(c.pattern, d.pattern, bind) for c, d in zip(x.clauses, y.clauses))
    return True


def _same_pattern(p: Pattern, q: Pattern, bind) -> bool:
    todo = [(p, q)]
    while todo:
        p, q = todo.pop()
        if type(p) is not type(q):
            return False
        match p, q:
            case PVar(), PVar():
                if not bind(p.var, q.var):
                    return False
            case PConstructor(), PConstructor():
                if p.constructor != q.constructor or len(p.fields) != len(q.fields):
                    return False
                todo.extend(zip(p.fields, q.fields))
            case PTuple(), PTuple():
                if len(p.fields) != len(q.fields):
                    return False
                todo.extend(zip(p.fields, q.fields))
    return True


def _same_attrs(a: Mapping[str, Attr], b: Mapping[str, Attr]) -> bool:
    return a.keys() == b.keys() and all(attr_key(a[k]) == attr_key(b[k]) for k in a)


def attr_key(attr: Attr) -> object:
    """A hashable form in which 1, 1.0 and True differ, NaN equals itself, and a constant dimension is its
    integer.
    """
    if isinstance(attr, tuple):
        return tuple(attr_key(x) for x in attr)
    if isinstance(attr, Dim):
        return ("int", attr.value) if attr.is_const else ("dim", str(attr))
    if isinstance(attr, bool | np.bool_):
        return "bool", bool(attr)
    if isinstance(attr, int | np.integer):
        return "int", int(attr)
    if isinstance(attr, float | np.floating):
        return "float", float(attr).hex()
    return type(attr).__name__, attr


def _digest(root: Expr) -> bytes:
    binders: dict[int, int] = {}
    made: dict[int, bytes] = {}

    def bind(v: Var) -> str:
        return f"%{binders.setdefault(id(v), len(binders))}:{v.type}"

    for node in _pre_order(root):  # binders are numbered users first, as `_equal` meets them
        match node:
            case Function(params=params):
                for p in params:
                    bind(p)
            case Let(var=var):
                bind(var)
            case Match(clauses=clauses):
                for c in clauses:
                    _pattern_text(c.pattern, bind)
    for node in post_order(root):
        digest = hashlib.blake2b(_label(node, binders, bind).encode(), digest_size=16)
        if isinstance(node, Constant):
            digest.update(node.value.tobytes())
        for c in children(node):
            digest.update(made[id(c)])
        made[id(node)] = digest.digest()
    return made[id(root)]


def _pre_order(root: Expr) -> list[Expr]:
    seen: set[int] = set()
    order: list[Expr] = []
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen.add(id(node))
            order.append(node)
            stack.extend(reversed(children(node)))
    return order


def _label(node: Expr, binders: dict[int, int], bind) -> str:
    kind = type(node).__name__
    match node:
        case Var():
            return f"{kind} {binders[id(node)] if id(node) in binders else 'free ' + node.name}"
        case Constant(value=value):
            return f"{kind} {value.dtype.name} {value.shape}"
        case GlobalVar(name=name) | OpRef(name=name) | ConstructorRef(name=name):
            return f"{kind} {name}"
        case Function():
            params = [bind(p) for p in node.params]
            return f"{kind} {params} {node.result} {node.type_params} {_attrs_text(node.attrs)}"
        case Call():
            return f"{kind} {len(node.args)} {_attrs_text(node.attrs)}"
        case Let(var=var):
            return f"{kind} {bind(var)}"
        case Tuple(fields=fields):
            return f"{kind} {len(fields)}"
        case TupleGet(index=index):
            return f"{kind} {index}"
        case Match(clauses=clauses):
            return f"{kind} {[_pattern_text(c.pattern, bind) for c in clauses]}"
    return kind


def _pattern_text(p: Pattern, bind) -> str:
    match p:
        case PVar(var=var):
            return bind(var)
        case PConstructor(constructor=name, fields=fields):
            return f"{name}({', '.join(_pattern_text(f, bind) for f in fields)})"
        case PTuple(fields=fields):
            return f"({', '.join(_pattern_text(f, bind) for f in fields)},)"
    return "_"


def _attrs_text(attrs: Mapping[str, Attr]) -> str:
    return repr(sorted((k, attr_key(v)) for k, v in attrs.items()))

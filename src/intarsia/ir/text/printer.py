"""Module → Relay text, deterministic; `parse` gives back a structurally equal module.

A node that is used more than once, or is too long to stand inside its user, gets a line `%n = …;` in the
innermost block that holds its uses. Blocks are visited by generators on a trampoline, and a chain of lets is
one block.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

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
    If,
    Let,
    Match,
    OpRef,
    RefNew,
    RefRead,
    RefWrite,
    Tuple,
    TupleGet,
    Var,
)  # fmt: skip
from intarsia.ir.module import ADT, IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar
from intarsia.ir.scopes import Scope, Scopes, scopes_of
from intarsia.ir.text.names import dim, global_name, local, symbol
from intarsia.ir.types import ADTType, FuncType, RefType, TensorType, TupleType, Type

if TYPE_CHECKING:
    from intarsia.infer import Typing

Steps = Generator["Steps", Any, Any]
_INLINE = 60  # characters of an operand that still stands inside its user
_SMALL = 64  # elements of a constant that is written out
_ATOMS = (Var, Constant, GlobalVar, OpRef, ConstructorRef)
_SUFFIX = {"float32": "f", "float64": "f64", "float16": "f16", "bfloat16": "bf16"}


def print_module(
    module: IRModule, weights: dict[str, np.ndarray] | None = None, typing: Typing | None = None
) -> str:
    """The text of a module.

    weights: filled with the constants of more than 64 elements, which the text refers to as
        `@weights["key"]`.
    typing: types are added as comments.
    """
    printer = _Printer(weights if weights is not None else {}, typing)
    parts = [_adt(t) for t in module.types.values()]
    for name, (low, high) in module.bounds.known.items():
        parts.append(f"where {symbol(name)} in {_bound(low)}..{_bound(high)};")
    for keyword, names in (("inputs", module.input_names), ("outputs", module.output_names)):
        if names:
            parts.append(f"{keyword}({', '.join(json.dumps(n) for n in names)});")
    parts += [printer.definition(name, f) for name, f in module.functions.items()]
    return "\n".join(parts) + "\n" if parts else ""


def print_expr(e: Expr, weights: dict[str, np.ndarray] | None = None, typing: Typing | None = None) -> str:
    """The text of an expression: `%n = …;` lines for what is shared, then the expression. Free variables
    print as %name.
    """
    return "\n".join(_Printer(weights if weights is not None else {}, typing).body(e))


def print_type(t: Type) -> str:
    match t:
        case TensorType(shape=shape, dtype=dtype):
            return f"Tensor[({_comma(dim(d) for d in shape)}), {dtype}]" if shape else dtype
        case TupleType(fields=fields):
            return f"({_comma(print_type(f) for f in fields)})"
        case FuncType(args=args, result=result):
            return f"fn{_generics(t.type_params)}({', '.join(map(print_type, args))}) -> {print_type(result)}"
        case ADTType(name=name, args=args):
            return name + (f"[{', '.join(map(print_type, args))}]" if args else "")
        case RefType(value=value):
            return f"ref({print_type(value)})"
    return str(t)


class _Printer:
    def __init__(self, weights: dict[str, np.ndarray], typing: Typing | None):
        self.weights, self.typing = weights, typing
        self.keys: dict[int, str] = {}  # array -> key
        self.texts: dict[int, str] = {}
        self.names: dict[int, str] = {}
        self.taken: set[str] = set()
        self.count = 0
        self.scopes: Scopes
        self.whole: set[int] = set()  # nodes that stand alone: values of lets, results of blocks

    def definition(self, name: str, f: Function) -> str:
        self.texts, self.names, self.taken, self.count, self.whole = {}, {}, set(), 0, set()
        self._survey(f)
        return _trampoline(self._function(f, f"def {global_name(name)}"))

    def body(self, e: Expr) -> list[str]:
        self._survey(e)
        self.whole.add(id(e))
        return _trampoline(self._block(self.scopes.root, e))

    def _survey(self, root: Expr) -> None:
        self.scopes = scopes_of(root, lets=True)
        for node in self.scopes.order:
            match node:
                case Let(value=value, body=body):
                    self.whole |= {id(value), id(body)}
                case Function(body=body):
                    self.whole.add(id(body))
                case If(then=then, orelse=orelse):
                    self.whole |= {id(then), id(orelse)}
                case Match(clauses=clauses):
                    self.whole |= {id(c.body) for c in clauses}

    # ---- blocks --------------------------------------------------------------------------------------------
    def _block(self, scope: Scope, result: Expr) -> Steps:
        """Lines of a block: statements, then its value."""
        lines: list[str] = []
        while True:
            following: Let | None = None
            for node in scope.nodes:
                if isinstance(node, _ATOMS):
                    continue
                if isinstance(node, Let) and node is result and self.scopes.uses[id(node)] <= 1:
                    following = node  # comes last: the rest of the block is its body
                    continue
                text = yield self._text(node)
                self._place(node, text, lines)
            if following is None:
                return [*lines, self._operand(result)]
            let = following
            binder = self._binder(let.var)
            if any(n is let.value for n in getattr(self.scopes.inner.get((id(let), 0)), "nodes", ())):
                self.texts[id(let.value)] = yield self._text(let.value)  # a function: alone in its scope
            lines.append(f"let {binder} = {self._operand(let.value)};{self._comment(let.value)}")
            scope, result = self.scopes.inner[id(let), 1], let.body

    def _place(self, node: Expr, text: str, lines: list[str]) -> None:
        alone = self.scopes.uses[id(node)] <= 1
        if alone and (id(node) in self.whole or (len(text) <= _INLINE and "\n" not in text)):
            self.texts[id(node)] = text
            return
        self.texts[id(node)] = f"%{self.count}"
        self.count += 1
        lines.append(f"{self.texts[id(node)]} = {text};{self._comment(node)}")

    def _braced(self, scope: Scope, result: Expr, head: str) -> Steps:
        lines = yield self._block(scope, result)
        text = "\n".join(lines)
        if len(lines) == 1 and "\n" not in text and len(head) + len(text) <= 96:
            return f"{head}{text}" if head.endswith("=> ") else f"{head}{{ {text} }}"
        return head + "{\n" + _indent(text) + "\n}"

    def _function(self, f: Function, head: str) -> Steps:
        params = [self._binder(p) for p in f.params]
        params += [f"{k}={_attr(v)}" for k, v in sorted(f.attrs.items())]
        result = f" -> {print_type(f.result)}" if f.result is not None else ""
        head = f"{head}{_generics(f.type_params)}({', '.join(params)}){result} "
        lines = yield self._block(self.scopes.inner[id(f), 0], f.body)
        text = "\n".join(lines)
        if head.startswith("fn") and len(lines) == 1 and "\n" not in text and len(head) + len(text) <= 96:
            return f"{head}{{ {text} }}"
        return head + "{\n" + _indent(text) + "\n}"

    # ---- expressions ---------------------------------------------------------------------------------------
    def _text(self, node: Expr) -> Steps:
        """The text of a node whose operands have theirs."""
        inner = self.scopes.inner
        match node:
            case Call(op=op, args=args):
                parts = [self._operand(a) for a in args] + [
                    f"{k}={_attr(v)}" for k, v in sorted(node.attrs.items())
                ]
                return f"{self._callee(op)}({', '.join(parts)})"
            case Function():
                return (yield self._function(node, "fn"))
            case Let():
                lines = yield self._block(_Alone(node), node)  # type: ignore[arg-type]
                return "{\n" + _indent("\n".join(lines)) + "\n}"
            case If():
                head = f"if ({self._operand(node.cond)}) "
                then = yield self._braced(inner[id(node), 1], node.then, head)
                return (yield self._braced(inner[id(node), 2], node.orelse, then + " else "))
            case Tuple(fields=fields):
                return f"({_comma(self._operand(f) for f in fields)})"
            case TupleGet(tuple=operand, index=index):
                return f"{self._operand(operand, tight=True)}.{index}"
            case Match(data=data, clauses=clauses):
                lines = [f"match ({self._operand(data)}) {{"]
                for i, c in enumerate(clauses):
                    pattern = self._pattern(c.pattern)
                    lines.append(
                        _indent((yield self._braced(inner[id(node), i + 1], c.body, f"{pattern} => "))) + ","
                    )
                return "\n".join([*lines, "}"])
            case RefNew(value=value):
                return f"ref({self._operand(value)})"
            case RefRead(ref=ref):
                return f"!{self._operand(ref, tight=True)}"
            case RefWrite(ref=ref, value=value):
                return f"({self._operand(ref)} := {self._operand(value)})"
        raise AssertionError(type(node))

    def _callee(self, op: Expr) -> str:
        return op.name if isinstance(op, OpRef | ConstructorRef) else self._operand(op, tight=True)

    def _operand(self, e: Expr, tight: bool = False) -> str:
        """How a node appears inside another; `tight`: before `(…)` or `.k`, or after `!`."""
        match e:
            case Var():
                return self._variable(e)
            case Constant(value=value):
                return f"({self._constant(value)})" if tight else self._constant(value)
            case GlobalVar(name=name):
                return global_name(name)
            case OpRef(name=name) | ConstructorRef(name=name):
                return name
        text = self.texts[id(e)]
        return f"({text})" if tight and text.startswith("!") else text

    def _variable(self, v: Var) -> str:
        if id(v) not in self.names:
            name, n = v.name, 0
            while name in self.taken:
                n += 1
                name = f"{v.name}_{n}"
            self.taken.add(name)
            self.names[id(v)] = local(name)
        return self.names[id(v)]

    def _binder(self, v: Var) -> str:
        return self._variable(v) + (f": {print_type(v.type)}" if v.type is not None else "")

    def _pattern(self, p: Pattern) -> str:
        match p:
            case PVar(var=var):
                return self._binder(var)
            case PConstructor(constructor=name, fields=fields):
                return name + (f"({', '.join(self._pattern(f) for f in fields)})" if fields else "")
            case PTuple(fields=fields):
                return f"({_comma(self._pattern(f) for f in fields)})"
        return "_"

    def _comment(self, e: Expr) -> str:
        t = self.typing.maybe_type(e) if self.typing else None
        return f"  /* {print_type(t)} */" if t is not None else ""

    # ---- constants -----------------------------------------------------------------------------------------
    def _constant(self, value: np.ndarray) -> str:
        dtype = value.dtype.name
        if value.size <= _SMALL and _is_plain(value):
            if value.ndim == 0:
                return _scalar(value, dtype)
            shape = f", shape={_attr(value.shape)}" if value.size == 0 else ""
            return f"const({_nested(value) if value.size else '[]'}, {dtype}{shape})"
        if id(value) not in self.keys:
            key = f"k{len(self.keys)}"
            self.keys[id(value)] = key
            self.weights[key] = value
        dims = _comma(map(str, value.shape))
        kind = f"Tensor[({dims}), {dtype}]" if value.ndim else dtype
        return f'const(@weights["{self.keys[id(value)]}"], {kind})'


class _Alone:
    """A scope that holds one node: a let that does not end the block it stands in."""

    __slots__ = ("nodes",)

    def __init__(self, node: Expr):
        self.nodes = [node]


def _scalar(value: np.ndarray, dtype: str) -> str:
    if dtype == "bool":
        return str(bool(value))
    if dtype in _SUFFIX:
        return _number(value[()], dtype).removesuffix(".0") + _SUFFIX[dtype]
    return str(int(value)) + ("" if dtype == "int32" else dtype.replace("uint", "u").replace("int", "i"))


def _nested(value: np.ndarray) -> str:
    if value.ndim == 0:
        return _number(value[()], value.dtype.name)
    return "[" + ", ".join(_nested(v) for v in value) + "]"


def _number(x: Any, dtype: str) -> str:
    """The shortest decimal that gives the same number of its dtype."""
    if dtype in ("float32", "float64", "float16"):
        text = str(np.dtype(dtype).type(x))
        return text if any(c in text for c in ".en") else f"{text}.0"
    return repr(float(x)) if dtype == "bfloat16" else str(x)


def _is_plain(value: np.ndarray) -> bool:
    """Whether decimals say all: no NaN other than the usual one."""
    if value.dtype.kind in "biu":
        return True
    nan = value != value
    return (
        not nan.any() or value[nan].tobytes() == np.full(int(nan.sum()), np.nan).astype(value.dtype).tobytes()
    )


def _attr(a: Attr) -> str:
    match a:
        case tuple():
            return f"({_comma(_attr(x) for x in a)})"
        case Dim():
            return dim(a)
        case bool() | np.bool_():
            return str(bool(a))
        case str():
            return json.dumps(a)
        case int() | np.integer():
            return str(int(a))
        case float() | np.floating():
            return repr(float(a)) if any(c in repr(float(a)) for c in ".en") else f"{float(a)!r}.0"
    return "None"


def _adt(t: ADT) -> str:
    made = [
        c.name + (f"({', '.join(map(print_type, c.inputs))})" if c.inputs else "") for c in t.constructors
    ]
    return f"type {t.name}{_generics(t.type_params)} {{ {', '.join(made)} }}"


def _generics(variables) -> str:
    return f"[{', '.join(v.name for v in variables)}]" if variables else ""


def _bound(x: float) -> str:
    return "" if x in (float("inf"), float("-inf")) else f"{int(x)}" if float(x).is_integer() else f"{x!r}"


def _comma(parts) -> str:
    """Fields of a tuple: a single one keeps its comma."""
    items = list(parts)
    return ", ".join(items) + ("," if len(items) == 1 else "")


def _indent(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _trampoline(first: Steps) -> Any:
    stack: list[Steps] = [first]
    value: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(value))
            value = None
        except StopIteration as done:
            stack.pop()
            value = done.value
    return value

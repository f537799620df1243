"""Relay text → module. The grammar is relay.lark; names are resolved here, with generators on a trampoline,
so that neither long chains nor deep nesting need Python stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim, dmax, dmin
from intarsia.ir.expr import (
    Attr,
    Call,
    Clause,
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
from intarsia.ir.module import ADT, Constructor, IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar, Wildcard
from intarsia.ir.text.names import numpy_dtype, unquote
from intarsia.ir.types import DTYPES, ADTType, FuncType, RefType, TensorType, TupleType, Type, TypeVar
from intarsia.support.errors import ModelError
from intarsia.support.span import Span

if TYPE_CHECKING:
    from lark import Lark, Token

Steps = Generator["Steps", Any, Any]
_INFIX = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "<": "less", "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal", "==": "equal", "!=": "not_equal",
}  # fmt: skip
_STRENGTH = {
    ":=": 0,
    "<": 1,
    "<=": 1,
    ">": 1,
    ">=": 1,
    "==": 1,
    "!=": 1,
    "+": 2,
    "-": 2,
    "*": 3,
    "/": 3,
    "//": 3,
    "%": 3,
}
_SUFFIX = {"f": "float32", "f16": "float16", "f64": "float64", "bf16": "bfloat16", "i": "int", "u": "uint"}
_FLOAT = re.compile(r"(inf|nan|[0-9.]+(?:[eE][+-]?[0-9]+)?)(bf16|f16|f64|f)?$")


def parse(text: str, source: str = "<text>", weights: Mapping[str, np.ndarray] | None = None) -> IRModule:
    """A module from its text.

    source: name for error messages and spans. weights: arrays for `@weights["key"]`.
    Raises ModelError TEXT-001 (syntax: line, column, what was expected) … TEXT-006.
    """
    return _Builder(source, weights or {}).module(_tree(text, source, "start"))


def parse_expr(
    text: str,
    source: str = "<text>",
    weights: Mapping[str, np.ndarray] | None = None,
    variables: Mapping[str, Var] | None = None,
    constructors: Mapping[str, int] | None = None,
) -> Expr:
    """An expression from its text.

    variables: meanings of free variables by name; constructors: how many fields each constructor has.
    """
    builder = _Builder(source, weights or {})
    builder.scope = {f"%{name}": [v] for name, v in (variables or {}).items()}
    builder.constructors = dict(constructors or {})
    return _trampoline(builder.expr(_tree(text, source, "expression").children[0]))


class _Node:
    """A parsed rule; it stands where its first token stands."""

    __slots__ = ("data", "children", "line", "column")

    def __init__(self, data: str, children: list):
        self.data, self.children = data, children
        first = next((c for c in children if c is not None), None)
        self.line, self.column = (first.line, first.column) if first is not None else (0, 0)


@cache
def _grammar() -> Lark:
    from lark import Lark

    text = Path(__file__).with_name("relay.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", start=["start", "expression"], tree_class=_Node, maybe_placeholders=True)


def _tree(text: str, source: str, start: str) -> _Node:
    from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

    try:
        return _grammar().parse(text, start=start)  # type: ignore[return-value]
    except UnexpectedInput as e:
        match e:
            case UnexpectedToken():
                found, expected = (
                    ("the end of the text" if e.token.type == "$END" else f"'{e.token}'"),
                    e.expected,
                )
            case UnexpectedCharacters():
                found, expected = f"'{text[e.pos_in_stream or 0]}'", e.allowed or set()
            case UnexpectedEOF():
                found, expected = "the end of the text", set(e.expected)
            case _:
                found, expected = "this", set()
        line, column = (
            (e.line, e.column) if e.line > 0 else (text.count("\n") + 1, len(text) - text.rfind("\n"))
        )
        words = sorted({_human(t) for t in expected})
        remedy = f"{', '.join(words)} there" if 0 < len(words) <= 12 else None
        where = str(Span(source, "", line, column))
    raise ModelError("TEXT-001", f"{found} cannot stand here", where=where, remedy=remedy)


def _human(terminal: str) -> str:
    words = {"LOCAL": "%name", "GLOBAL": "@name", "NAME": "a name", "STRING": "a string",
             "NUMBER": "a number",
             "FLOAT": "a number", "BOOL": "True or False", "QUOTED_SYMBOL": "a symbol",
             "COMPARE": "a comparison",
             "QUESTION": "?", "NONE": "None", "$END": "the end of the text"}  # fmt: skip
    if terminal in words:
        return words[terminal]
    pattern = next((t.pattern.value for t in _grammar().terminals if t.name == terminal), terminal)
    return f"'{pattern}'"


class _Builder:
    """The state of one parse: what names mean at this point of the text."""

    def __init__(self, source: str, weights: Mapping[str, np.ndarray]):
        self.source, self.weights = source, weights
        self.scope: dict[str, list[Expr]] = {}
        self.type_vars: list[str] = []
        self.constructors: dict[str, int] = {}

    # ---- modules -------------------------------------------------------------------------------------------
    def module(self, tree: _Node) -> IRModule:
        functions: dict[str, Function] = {}
        types: dict[str, ADT] = {}
        bounds = Bounds()
        names: dict[str, tuple[str, ...]] = {"inputs": (), "outputs": ()}
        for item in tree.children:
            if item.data == "typedef":
                name, params, *constructors = item.children
                if name in types:
                    self._fail("TEXT-004", f"the type {name} is defined twice", item)
                types[str(name)] = self._adt(str(name), params, [c for c in constructors if c is not None])
        for item in tree.children:
            match item.data:
                case "def":
                    name = unquote(item.children[0])
                    if name in functions:
                        self._fail("TEXT-004", f"the function @{name} is defined twice", item)
                    functions[name] = _trampoline(self._function(item, item.children[1:]))
                case "bounds":
                    symbol, low, high = item.children
                    bounds.known[self._symbol(symbol)] = (
                        self._bound(low, float("-inf")),
                        self._bound(high, float("inf")),
                    )
                case "inputs" | "outputs":
                    names[item.data] = tuple(json.loads(s) for s in item.children)
        return IRModule(functions, types, bounds, names["inputs"], names["outputs"])

    def _bound(self, tree: Any, missing: float) -> float:
        value = missing if tree is None else self.attr(tree)
        if not isinstance(value, int | float):
            self._fail("TEXT-006", "a bound is a number", tree)
        return value

    def _adt(self, name: str, params: _Node | None, constructors: list[_Node]) -> ADT:
        variables = tuple(TypeVar(str(p)) for p in params.children) if params else ()
        self.type_vars = [v.name for v in variables]
        made = []
        for tag, c in enumerate(constructors):
            inputs = tuple(self.type(t) for t in c.children[1:] if t is not None)
            if str(c.children[0]) in self.constructors:
                self._fail("TEXT-004", f"the constructor {c.children[0]} is defined twice", c)
            self.constructors[str(c.children[0])] = len(inputs)
            made.append(Constructor(str(c.children[0]), inputs, tag))
        self.type_vars = []
        return ADT(name, variables, tuple(made))

    def _function(self, tree: _Node, parts: list) -> Steps:
        type_params, params, result, body = parts
        variables = tuple(TypeVar(str(p)) for p in type_params.children) if type_params else ()
        mark = len(self.type_vars)
        self.type_vars += [v.name for v in variables]
        made: list[Var] = []
        attrs: dict[str, Attr] = {}
        for p in params.children if params else ():
            if p.data == "keyword":
                attrs[str(p.children[0])] = self.attr(p.children[1])
            else:
                made.append(self._var(p, p.children[0], p.children[1]))
        for v, p in zip(made, (p for p in (params.children if params else ()) if p.data == "param")):
            self._bind(p.children[0], v)
        value = yield self.expr(body)
        for p in params.children if params else ():
            if p.data == "param":
                self._unbind(p.children[0])
        f = Function(
            tuple(made), value, self.type(result) if result else None, variables, attrs, span=self._span(tree)
        )
        del self.type_vars[mark:]
        return f

    # ---- names ---------------------------------------------------------------------------------------------
    def _var(self, tree: Any, name: Token, annotation: _Node | None) -> Var:
        return Var(
            unquote(name), self.type(annotation) if annotation is not None else None, span=self._span(tree)
        )

    def _bind(self, name: str, value: Expr) -> None:
        self.scope.setdefault(_key(name), []).append(value)

    def _unbind(self, name: str) -> None:
        self.scope[_key(name)].pop()

    def _lookup(self, tree: _Node) -> Expr:
        name = tree.children[0]
        meanings = self.scope.get(_key(name))
        if not meanings:
            import difflib

            near = difflib.get_close_matches(_key(name), [n for n, m in self.scope.items() if m], 1)
            self._fail("TEXT-002", f"{name} is not bound here", tree, near[0] if near else None)
        return meanings[-1]

    def _name(self, tree: _Node, *, called: bool) -> Expr:
        name, span = str(tree.children[0]), self._span(tree)
        if name not in self.constructors:
            return OpRef(name, span=span)
        made = ConstructorRef(name, span=span)
        return Call(made, (), span=span) if not called and not self.constructors[name] else made

    def _symbol(self, tree: _Node) -> str:
        return str(tree.children[0]).strip("`")

    # ---- expressions ---------------------------------------------------------------------------------------
    def expr(self, tree: _Node) -> Steps:
        """Steps that end with the expression of a tree."""
        span, parts = self._span(tree), tree.children
        match tree.data:
            case "local":
                return self._lookup(tree)
            case "block":
                return (yield self._block(tree))
            case "call":
                return (yield self._call(tree))
            case "global":
                return GlobalVar(unquote(parts[0]), span=span)
            case "name":
                return self._name(tree, called=False)
            case "literal":
                return Constant(self._literal(tree), span=span)
            case "const":
                return Constant(self._array(tree), span=span)
            case "weight":
                return Constant(self._weight(tree), span=span)
            case "tuple":
                fields = []
                for p in parts:
                    if p is not None:
                        fields.append((yield self.expr(p)))
                return Tuple(tuple(fields), span=span)
            case "get":
                return TupleGet((yield self.expr(parts[0])), int(parts[1]), span=span)
            case "infix":
                operands = []
                for p in parts[::2]:
                    operands.append((yield self.expr(p)))
                return _by_precedence(operands, parts[1::2], self._infix)
            case "if":
                cond = yield self.expr(parts[0])
                then = yield self.expr(parts[1])
                return If(cond, then, (yield self.expr(parts[2])), span=span)
            case "match":
                return (yield self._match(tree))
            case "fn":
                return (yield self._function(tree, parts))
            case "ref":
                return RefNew((yield self.expr(parts[0])), span=span)
            case "read":
                return RefRead((yield self.expr(parts[0])), span=span)
        raise AssertionError(tree.data)

    def _infix(self, operator: Token, left: Expr, right: Expr) -> Expr:
        span = left.span
        if operator == ":=":
            return RefWrite(left, right, span=span)
        return Call(OpRef(_INFIX[str(operator)], span=span), (left, right), span=span)

    def _block(self, tree: _Node) -> Steps:
        *statements, last = tree.children
        bound: list[str] = []
        lets: list[tuple[Var, Expr, Span]] = []
        for s in statements:
            span = self._span(s)
            match s.data:
                case "let":
                    name, annotation, value = s.children
                    var = self._var(s, name, annotation)
                    recursive = getattr(value, "data", None) == "fn"
                    if recursive:
                        self._bind(name, var)
                        bound.append(name)
                    lets.append((var, (yield self.expr(value)), span))
                    if not recursive:
                        self._bind(name, var)
                        bound.append(name)
                case "bind":
                    value = yield self.expr(s.children[1])
                    self._bind(s.children[0], value)
                    bound.append(s.children[0])
                case _:
                    lets.append((Var("_", span=span), (yield self.expr(s.children[0])), span))
        result = yield self.expr(last)
        for name in bound:
            self._unbind(name)
        for var, value, span in reversed(lets):
            result = Let(var, value, result, span=span)
        return result

    def _call(self, tree: _Node) -> Steps:
        callee, arguments = tree.children
        op = self._name(callee, called=True) if callee.data == "name" else (yield self.expr(callee))
        args: list[Expr] = []
        attrs: dict[str, Attr] = {}
        for a in arguments.children if arguments else ():
            if a is None:
                continue
            if a.data == "keyword":
                key = str(a.children[0])
                if key in attrs:
                    self._fail("TEXT-004", f"the attribute {key} is given twice", a)
                attrs[key] = self.attr(a.children[1])
            elif attrs:
                self._fail("TEXT-006", "arguments come before attributes", a)
            else:
                args.append((yield self.expr(a)))
        return Call(op, tuple(args), attrs, span=self._span(tree))

    def _match(self, tree: _Node) -> Steps:
        data, *clauses = tree.children
        value = yield self.expr(data)
        made: list[Clause] = []
        for c in clauses:
            if c is None:
                continue
            bound: list[str] = []
            pattern = self._pattern(c.children[0], bound)
            body = yield self.expr(c.children[1])
            for name in bound:
                self._unbind(name)
            made.append(Clause(pattern, body))
        return Match(value, tuple(made), span=self._span(tree))

    def _pattern(self, tree: _Node, bound: list[str]) -> Pattern:
        parts = [p for p in tree.children if p is not None]
        match tree.data:
            case "pattern_var":
                var = self._var(tree, *tree.children)
                self._bind(parts[0], var)
                bound.append(parts[0])
                return PVar(var)
            case "pattern_constructor":
                if str(parts[0]) not in self.constructors:
                    self._fail("TEXT-003", f"there is no constructor {parts[0]}", tree)
                return PConstructor(str(parts[0]), tuple(self._pattern(p, bound) for p in parts[1:]))
            case "pattern_tuple":
                return PTuple(tuple(self._pattern(p, bound) for p in parts))
        return Wildcard()

    # ---- constants -----------------------------------------------------------------------------------------
    def _literal(self, tree: _Node) -> np.ndarray:
        *sign, token = tree.children
        text = str(token)
        if token.type == "BOOL":
            return np.array(text == "True")
        if token.type == "FLOAT":
            number, suffix = _FLOAT.match(text).groups()  # type: ignore[union-attr]
            dtype, value = _SUFFIX[suffix or "f"], float(number)
        else:
            number, kind, bits = re.match(r"([0-9]+)(?:([iu])([0-9]+))?$", text).groups()  # type: ignore[union-attr]
            dtype, value = (_SUFFIX[kind] + bits if kind else "int32"), int(number)
        return self._numbers(-value if sign else value, dtype, tree)

    def _array(self, tree: _Node) -> np.ndarray:
        values, dtype, shape = tree.children
        if str(dtype) not in DTYPES:
            self._fail("TEXT-006", f"{dtype} is not a dtype", tree)
        array = self._numbers(self.attr(values), str(dtype), tree)
        if shape is not None:
            sizes = self.attr(shape.children[1])
            sizes = sizes if isinstance(sizes, tuple) else (sizes,)
            numbers = [s for s in sizes if isinstance(s, int)]
            if shape.children[0] != "shape" or len(numbers) != len(sizes) or prod(numbers) != array.size:
                self._fail("TEXT-006", f"{array.size} elements do not make that shape", shape)
            array = array.reshape(numbers)
        return array

    def _numbers(self, values: Attr, dtype: str, tree: _Node) -> np.ndarray:
        wanted = numpy_dtype(dtype)
        try:
            if wanted.kind in "iu":
                exact = np.array(values, object)
                if not all(
                    isinstance(v, int) and np.iinfo(wanted).min <= v <= np.iinfo(wanted).max
                    for v in exact.flat
                ):
                    self._fail("TEXT-006", f"not all of these are numbers of {dtype}", tree)
                return exact.astype(wanted)
            array = np.array(values)
            if array.dtype.kind in "biuf":
                return array.astype(wanted)
        except ValueError:
            pass  # rows of different lengths
        self._fail("TEXT-006", "a constant is nested lists of numbers, all of one length at each depth", tree)

    def _weight(self, tree: _Node) -> np.ndarray:
        key, wanted = json.loads(tree.children[1]), self.type(tree.children[2])
        array = self.weights.get(key)
        if array is None:
            self._fail(
                "TEXT-005", f"there is no weight '{key}'", tree, "pass the weights that belong to this text"
            )
        found = TensorType(tuple(as_dim(d) for d in array.shape), array.dtype.name)
        if found != wanted:
            self._fail("TEXT-005", f"the weight '{key}' is a {found}, the text says {wanted}", tree)
        return array

    # ---- attributes and dimensions -------------------------------------------------------------------------
    def attr(self, tree: _Node) -> Attr:
        """The value of an attribute; nesting is as deep as the text's brackets."""
        parts = [p for p in tree.children if p is not None]
        match tree.data:
            case "value":
                return self._value(parts[0], tree) if parts else None
            case "symbol":
                name = self._symbol(tree)
                return {"inf": float("inf"), "nan": float("nan")}.get(name) or Symbol(name)
            case "attr_tuple":
                return tuple(self.attr(p) for p in parts)
            case "extremum":
                step = {"min": dmin, "max": dmax}.get(str(parts[0]))
                if step is None:
                    self._fail(
                        "TEXT-006", f"{parts[0]} is not a function of dimensions: they are min and max", tree
                    )
                return _plain(step(*(self._number(p) for p in parts[1:])))
            case "negative":
                value = self.attr(parts[1])
                return -value if isinstance(value, float) else _plain(-as_dim(self._checked(value, tree)))
            case "power":
                base, result = self._number(parts[0]), as_dim(1)
                for _ in range(int(parts[1])):
                    result = result * base
                return _plain(result)
        return _plain(
            _by_precedence(
                [self._number(p) for p in parts[::2]], parts[1::2], partial(self._arithmetic, tree)
            )
        )

    def _arithmetic(self, tree: _Node, operator: Token, a: Dim, b: Dim) -> Dim:
        match str(operator):
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
        if b == 0:
            self._fail("TEXT-006", "division by zero", tree)
        return a // b if operator == "//" else a % b

    def _value(self, token: Token, tree: _Node) -> Attr:
        match token.type:
            case "STRING":
                return json.loads(token)
            case "BOOL":
                return str(token) == "True"
            case "NONE":
                return None
            case "QUESTION":
                return Symbol("?")
            case "NUMBER" if str(token).isdigit():
                return int(token)
            case "FLOAT":
                number, suffix = _FLOAT.match(str(token)).groups()  # type: ignore[union-attr]
                if suffix is None:
                    return float(number)
        self._fail("TEXT-006", f"{token} needs no suffix here", tree)

    def _number(self, tree: _Node) -> Dim:
        return as_dim(self._checked(self.attr(tree), tree))

    def _checked(self, value: Attr, tree: _Node) -> Dim | int:
        if isinstance(value, bool) or not isinstance(value, int | Dim):
            self._fail("TEXT-006", "this must be a whole number or a symbol", tree)
        return value

    # ---- types ---------------------------------------------------------------------------------------------
    def type(self, tree: _Node) -> Type:
        parts = [p for p in tree.children if p is not None]
        match tree.data:
            case "tensor":
                dims = self.attr(parts[0])
                if str(parts[1]) not in DTYPES:
                    self._fail("TEXT-006", f"{parts[1]} is not a dtype", tree)
                sizes = dims if isinstance(dims, tuple) else (dims,)
                return TensorType(tuple(as_dim(self._checked(d, parts[0])) for d in sizes), str(parts[1]))
            case "named":
                name = str(parts[0])
                if len(parts) == 1 and name in DTYPES:
                    return TensorType((), name)
                if len(parts) == 1 and name in self.type_vars:
                    return TypeVar(name)
                return ADTType(name, tuple(self.type(p) for p in parts[1:]))
            case "tuple_type":
                return TupleType(tuple(self.type(p) for p in parts))
            case "fn_type":
                params, *rest = tree.children
                variables = tuple(TypeVar(str(p)) for p in params.children) if params else ()
                mark = len(self.type_vars)
                self.type_vars += [v.name for v in variables]
                *args, result = [self.type(p) for p in rest if p is not None]
                del self.type_vars[mark:]
                return FuncType(tuple(args), result, variables)
        return RefType(self.type(parts[0]))

    # ---- places --------------------------------------------------------------------------------------------
    def _span(self, tree: Any) -> Span:
        return Span(self.source, "", tree.line, tree.column)

    def _fail(self, code: str, message: str, tree: _Node | None, remedy: str | None = None) -> NoReturn:
        raise ModelError(code, message, where=str(self._span(tree)) if tree else self.source, remedy=remedy)


def _key(name: str) -> str:
    """What a name is looked up by; `%0`, a shared node, is not `%"0"`, a variable."""
    if '"' in name:
        return f"%{unquote(name)}"
    return f"#{name}" if name[1:].isdigit() else str(name)


def _by_precedence(operands: list, operators: list, combine: Callable[[Any, Any, Any], Any]) -> Any:
    """Operands joined by left-associative operators of several strengths (Dijkstra's shunting yard)."""
    values, waiting = [operands[0]], []
    for operator, operand in zip(operators, operands[1:]):
        while waiting and _STRENGTH[waiting[-1]] >= _STRENGTH[operator]:
            right = values.pop()
            values.append(combine(waiting.pop(), values.pop(), right))
        waiting.append(operator)
        values.append(operand)
    while waiting:
        right = values.pop()
        values.append(combine(waiting.pop(), values.pop(), right))
    return values[0]


def _plain(d: Dim) -> Dim | int:
    return d.value if d.is_const else d


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

"""Evaluation over NumPy: slow, simple, and right. Every other way of running a program is compared with this
one.

A function's graph is evaluated scope by scope (`ir/scopes.py`), so a node is computed once an activation, and
work inside a branch only when the branch is taken. Branches and calls are generators run by a trampoline; a
call in tail position replaces its caller. Sizes that inference could not prove are checked where they arise.
"""

from __future__ import annotations

import operator
from collections.abc import Generator, Mapping

import numpy as np

from intarsia.dim import Dim
from intarsia.infer import Typing, infer, tensor_leaves
from intarsia.infer.entry import Bind, entry_plan
from intarsia.interp.values import ADTValue, Cell, Closure, Value
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
from intarsia.ir.module import IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar
from intarsia.ir.scopes import Scope, Scopes
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.op.entry import Check, Item, Measured, Site, numpy_dtype
from intarsia.support.errors import Error, InputError

_HOLDS = {"==": operator.eq, "<=": operator.le, "<": operator.lt, ">=": operator.ge, ">": operator.gt}
Steps = Generator["Steps", "Value", "Value"]


def evaluate(module: IRModule, *args: object, function: str = "main", typing: Typing | None = None) -> Value:
    """The value of a global function for arguments (arrays, numbers, tuples, ADTValue, Closure).

    Returns an array, a tuple of values, an ADTValue, …. Raises InputError CALL-… where arguments do not fit
    the function's type or a size check fails at run time, and all that `infer` raises.
    """
    typing = typing or infer(module)
    f = module.functions[function]
    machine = _Machine(module, typing)
    params = [typing.type(p) for p in f.params]
    if len(args) != len(params):
        raise InputError("CALL-001", f"@{function} takes {len(params)} arguments, not {len(args)}")
    values = tuple(_input(a, t, f"%{p.name}") for a, t, p in zip(args, params, f.params))
    return _trampoline(machine.apply(Closure(f, None, function), values))


class _Frame:
    """One activation of a function: values of its nodes by id, values of its symbols, the activation around
    it.
    """

    __slots__ = ("values", "symbols", "parent", "scopes", "lets", "function")

    def __init__(self, parent: _Frame | None, scopes: Scopes, lets: Mapping[int, Let], function: str):
        self.values: dict[int, Value] = {}
        self.symbols: dict[str, int] = dict(parent.symbols) if parent else {}
        self.parent, self.scopes, self.lets, self.function = parent, scopes, lets, function

    def __getitem__(self, e: Expr) -> Value:
        while True:
            frame: _Frame | None = self
            while frame is not None:
                if id(e) in frame.values:
                    return frame.values[id(e)]
                frame = frame.parent
            e = self.lets[id(e)].value  # a variable that a let binds is the let's value


class _TailCall:
    __slots__ = ("closure", "args")

    def __init__(self, closure: Closure, args: tuple[Value, ...]):
        self.closure, self.args = closure, args


class _Machine:
    def __init__(self, module: IRModule, typing: Typing):
        self.module, self.typing = module, typing
        self.tails: dict[int, frozenset[int]] = {}
        self.plans: dict[int, list] = {}

    def apply(self, closure: Value, args: tuple[Value, ...]) -> Steps:
        """Call a closure; a result that is again a call is made here, so that loops need no stack."""
        while True:
            assert isinstance(closure, Closure)
            f = closure.function
            parent = closure.frame if isinstance(closure.frame, _Frame) else None
            name = parent.function if parent else closure.name
            scopes = self.typing.scopes(name)
            frame = _Frame(parent, scopes, self.typing.lets, name)
            for p, a in zip(f.params, args, strict=True):
                frame.values[id(p)] = a
            self._enter(f, frame, args)
            result = yield self._visit(scopes.inner[id(f), 0], frame, self._tail_calls(f, scopes), f.body)
            if not isinstance(result, _TailCall):
                self._check(self.typing.checks_at(f), frame, last=True)
                return result
            closure, args = result.closure, result.args

    def _enter(self, f: Function, frame: _Frame, args: tuple[Value, ...]) -> None:
        if id(f) not in self.plans:
            self.plans[id(f)] = entry_plan([self.typing.type(p) for p in f.params], frame.symbols)
        leaves = [x for a in args for x in _arrays(a)]
        for step in self.plans[id(f)]:
            size = leaves[step.leaf].shape[step.axis]
            if isinstance(step, Bind):
                frame.symbols[step.symbol] = (size - step.offset.evaluate(frame.symbols)) // step.factor
                if frame.symbols[step.symbol] >= 0:
                    continue
                raise InputError(
                    "CALL-003",
                    f"a size of {size} makes {step.symbol} negative{self._origins(frame, step.symbol)}",
                )
            wanted = step.dim.evaluate(frame.symbols)
            if size != wanted:
                symbols = sorted(step.dim.symbols())
                wanted_text = f"{step.dim} = {wanted}" if symbols else f"{wanted}"
                name = _parameter(f, step.leaf, self.typing)
                raise InputError(
                    "CALL-002",
                    f"dimension {step.axis} of {name} must be {wanted_text}, but it is {size}"
                    + self._origins(frame, *symbols),
                )

    def _visit(self, scope: Scope, frame: _Frame, tails: frozenset[int], result: Expr) -> Steps:
        values, typing = frame.values, self.typing
        for node in scope.nodes:
            if isinstance(node, Call) and isinstance(node.op, OpRef):
                values[id(node)] = self._operator(node, frame)
                continue
            checks = self._check(typing.checks_at(node), frame) if not isinstance(node, Function) else []
            match node:
                case Constant(value=value):
                    values[id(node)] = value
                case Call(op=ConstructorRef(name=name), args=args):
                    values[id(node)] = ADTValue(name, tuple(frame[a] for a in args))
                case Call(op=op, args=args):
                    callee, given = frame[op], tuple(frame[a] for a in args)
                    if isinstance(callee, ADTValue):  # a constructor that was passed as a function
                        values[id(node)] = ADTValue(callee.constructor, given)
                    elif id(node) in tails:
                        assert isinstance(callee, Closure)
                        values[id(node)] = _TailCall(callee, given)  # type: ignore[assignment]
                        continue
                    else:
                        values[id(node)] = yield self.apply(callee, given)
                case Tuple(fields=fields):
                    values[id(node)] = tuple(frame[x] for x in fields)
                case TupleGet(tuple=operand, index=index):
                    values[id(node)] = frame[operand][index]  # type: ignore[index]
                case Function():
                    values[id(node)] = Closure(node, frame)
                case Let(body=body):
                    values[id(node)] = frame[body]
                case If(cond=cond, then=then, orelse=orelse):
                    position, arm = (1, then) if bool(frame[cond]) else (2, orelse)
                    values[id(node)] = yield self._visit(
                        frame.scopes.inner[id(node), position], frame, tails, arm
                    )
                case Match(data=data, clauses=clauses):
                    position = self._choose(node, frame[data], frame)
                    scope = frame.scopes.inner[id(node), position + 1]
                    values[id(node)] = yield self._visit(scope, frame, tails, clauses[position].body)
                case GlobalVar(name=name):
                    values[id(node)] = Closure(self.module.functions[name], None, name)
                case ConstructorRef(name=name):
                    values[id(node)] = ADTValue(name)
                case RefNew(value=value):
                    values[id(node)] = Cell(frame[value])
                case RefRead(ref=ref):
                    values[id(node)] = frame[ref].value  # type: ignore[union-attr]
                case RefWrite(ref=ref, value=value):
                    frame[ref].value = frame[value]  # type: ignore[union-attr]
                    values[id(node)] = ()
            self._measure(node, values.get(id(node)), frame)
            if checks:
                self._check(checks, frame, last=True)
        return frame[result]

    # ---- operators -----------------------------------------------------------------------------------------
    def _operator(self, call: Call, frame: _Frame) -> Value:
        site = self.typing.sites[id(call)]
        args = [frame[a] for a in call.args]
        for symbol, b in site.bindings.items():
            if isinstance(b, Item):
                frame.symbols[symbol] = int(np.asarray(args[b.arg]).reshape(-1)[b.index])
        checks = self._check(self.typing.checks_at(call), frame)
        attrs = {k: _number(v, frame.symbols) for k, v in site.attrs.items()}
        with np.errstate(all="ignore"):
            found = site.op.reference(*(None if isinstance(a, tuple) and not a else a for a in args), **attrs)
        result = _results(site, found, self.typing.type(call))
        self._measure(call, result, frame)
        self._check(checks, frame, last=True)
        self._compare(site, result, frame)
        return result

    def _compare(self, site: Site, result: Value, frame: _Frame) -> None:
        """The types must tell the truth about the sizes."""
        for array, t in zip(_arrays(result), site.out):
            wanted = tuple(d.evaluate(frame.symbols) for d in t.shape)
            if array.shape != wanted:
                raise Error(
                    "EVAL-001",
                    f"the reference of {site.op.name} gave shape {array.shape} where its rule says {wanted}",
                    where=str(site.span),
                )

    # ---- patterns ------------------------------------------------------------------------------------------
    def _choose(self, node: Match, value: Value, frame: _Frame) -> int:
        """The position of the first clause that fits; its variables are bound."""
        for i, clause in enumerate(node.clauses):
            found: list[tuple[Var, Value]] = []
            if _matches(clause.pattern, value, found):
                for var, v in found:
                    frame.values[id(var)] = v
                    self._measure(var, v, frame)
                    self._check(self.typing.checks_at(var), frame, last=True)
                return i
        raise Error("EVAL-002", f"no clause of the match fits {value}", where=str(node.span))

    # ---- symbols and checks --------------------------------------------------------------------------------
    def _measure(self, e: Expr, value: Value | None, frame: _Frame) -> None:
        bindings = self.typing.bindings(e)
        if bindings and value is not None and not isinstance(value, _TailCall):
            leaves = _arrays(value)
            for symbol, b in bindings.items():
                if isinstance(b, Measured):
                    frame.symbols[symbol] = leaves[b.output].shape[b.axis]

    def _check(self, checks: list[Check], frame: _Frame, *, last: bool = False) -> list[Check]:
        """Check what can be checked already; the rest is returned. `last`: everything must be known now."""
        later: list[Check] = []
        for c in checks:
            symbols = sorted(c.left.symbols() | c.right.symbols())
            if not last and any(s not in frame.symbols for s in symbols):
                later.append(c)
                continue
            left, right = c.left.evaluate(frame.symbols), c.right.evaluate(frame.symbols)
            if not _HOLDS[c.relation](left, right):
                text = f"{c.what}: {c.left} {c.relation} {c.right} does not hold: {left} and {right}"
                raise InputError("CALL-004", text + self._origins(frame, *symbols), where=str(c.span))
        return later

    def _origins(self, frame: _Frame, *symbols: str) -> str:
        known = ((s, frame.symbols[s], self.typing.origin(s, frame.function)) for s in symbols)
        return "".join(f"\n    {s} = {value} is {origin}" for s, value, origin in known)

    def _tail_calls(self, f: Function, scopes: Scopes) -> frozenset[int]:
        """Calls whose result is the function's result and nothing else."""
        if id(f) not in self.tails:
            found: set[int] = set()
            todo = [] if self.typing.checks_at(f) else [f.body]
            while todo:
                node = todo.pop()
                if scopes.uses[id(node)] != 1:
                    continue
                match node:
                    case Call(op=op) if not isinstance(op, OpRef | ConstructorRef):
                        found.add(id(node))
                    case Let(body=body):
                        todo.append(body)
                    case If(then=then, orelse=orelse):
                        todo += [then, orelse]
                    case Match(clauses=clauses):
                        todo += [c.body for c in clauses]
            self.tails[id(f)] = frozenset(found)
        return self.tails[id(f)]


def _trampoline(first: Steps) -> Value:
    stack: list[Steps] = [first]
    value: Value | None = None  # what the step that just ended has returned
    while stack:
        try:
            stack.append(stack[-1].send(value))  # type: ignore[arg-type]
            value = None
        except StopIteration as done:
            stack.pop()
            value = done.value
    assert value is not None
    return value


def _matches(pattern: Pattern, value: Value, found: list[tuple[Var, Value]]) -> bool:
    todo = [(pattern, value)]
    while todo:
        p, v = todo.pop()
        match p:
            case PVar(var=var):
                found.append((var, v))
            case PTuple(fields=fields):
                todo += zip(fields, v, strict=True)  # type: ignore[arg-type]
            case PConstructor(constructor=name, fields=fields):
                if not isinstance(v, ADTValue) or v.constructor != name:
                    return False
                todo += zip(fields, v.fields, strict=True)
    return True


def _input(value: object, t: Type, name: str) -> Value:
    """An argument as a value of its type; no dtype is converted except that of Python numbers."""
    if isinstance(t, TensorType):
        dtype = numpy_dtype(t.dtype)
        array = np.asarray(value, dtype) if isinstance(value, int | float | bool) else np.asarray(value)
        if array.dtype != dtype:
            raise InputError("CALL-005", f"{name} must have dtype {t.dtype}, not {array.dtype.name}")
        if array.ndim != t.rank:
            raise InputError(
                "CALL-006", f"{name} must have {t.rank} dimensions, {t}, not {array.ndim}: {array.shape}"
            )
        return array
    if isinstance(t, TupleType):
        if not isinstance(value, tuple | list) or len(value) != len(t.fields):
            raise InputError("CALL-007", f"{name} must be a tuple of {len(t.fields)}: {t}")
        return tuple(_input(v, f, f"{name}.{i}") for i, (v, f) in enumerate(zip(value, t.fields)))
    return value  # type: ignore[return-value]


def _results(site: Site, found: object, t: Type) -> Value:
    if not isinstance(t, TupleType):
        return np.asarray(found, numpy_dtype(site.out[0].dtype))
    assert isinstance(found, tuple | list)
    return tuple(np.asarray(x, numpy_dtype(o.dtype)) for x, o in zip(found, site.out, strict=True))


def _arrays(value: Value) -> list[np.ndarray]:
    """The tensors of a value in order, through tuples only."""
    found: list[np.ndarray] = []
    todo: list[Value] = [value]
    while todo:
        v = todo.pop()
        if isinstance(v, tuple):
            todo.extend(reversed(v))
        elif isinstance(v, np.ndarray | np.generic):
            found.append(np.asarray(v))
    return found


def _number(attr: Attr, symbols: Mapping[str, int]) -> Attr:
    if isinstance(attr, tuple):
        return tuple(_number(a, symbols) for a in attr)
    return attr.evaluate(symbols) if isinstance(attr, Dim) else attr


def _parameter(f: Function, leaf: int, typing: Typing) -> str:
    """The name of the parameter that holds tensor `leaf`."""
    for p in f.params:
        n = len(tensor_leaves(typing.type(p)))
        if leaf < n:
            return f"%{p.name}" + (f".{leaf}" if n > 1 else "")
        leaf -= n
    return "a parameter"

"""Types of one global function: a walk over its scopes, operands before users, without recursion.

Branches and closure bodies are visited by generators that a trampoline runs, so nesting costs no Python
stack. An equality learnt from a run-time check holds from there to the end of the scope in which it is
checked.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cache

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim
from intarsia.infer.contents import attr_dims, known_contents, map_attr, map_contents, same_contents
from intarsia.infer.context import Context, Names, at_place, count_of, identifier, known_span, listed
from intarsia.infer.typing import Typing, type_symbols
from intarsia.infer.unify import (
    ANY,
    Hole,
    Mismatch,
    Pairs,
    freeze,
    has_hole,
    instantiate,
    join,
    map_top,
    map_type,
    named_leaves,
    relate,
    resolve,
    with_sizes,
)  # fmt: skip
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
from intarsia.ir.types import ADTType, FuncType, RefType, TensorType, TupleType, Type, TypeVar
from intarsia.op.entry import Arg, Item, Measured, Site, get
from intarsia.support.errors import TypeCheckError
from intarsia.support.span import Span

Steps = Generator["Steps", None, None]
_UNIT = TupleType(())
_KNOWN_ELEMENTS = 64  # integer constants up to this size are known contents


class FunctionTyper(Context):
    """Types the body of one global function into a `Typing` that is shared by the module."""

    def __init__(
        self, module: IRModule, name: str, typing: Typing, names: Names, signatures: Mapping[str, FuncType]
    ):
        super().__init__(module, name, typing, names, signatures)
        self.bounds = Bounds(module.bounds.known if name == "main" else None)
        self.pending: list[Call] = []
        self.scopes: Scopes = typing.scopes(name)
        self.direct: set[int] = set()
        self.called: dict[int, int] = {}  # how often an operator's name stands where it is called
        self.lets = typing.lets
        self.lets_of: dict[int, list[Let]] = {}  # by the value they bind
        self.passed: dict[int, Expr] = {}  # what a closure's parameter stands for, in the one call of it
        self.annotated: dict[
            int, list[Let]
        ] = {}  # lets whose annotation may name sizes, by the value they bind
        self.latent: set[str] = set()  # symbols that no parameter's size determines

    # ---- functions -----------------------------------------------------------------------------------------
    def run(self) -> FuncType:
        """Type the function's parameters and body; its type with the parameters' symbols."""
        f = self.module.functions[self.name]
        self._prepare()
        _trampoline(self._function(f, None))
        self._finish_pending()
        self._fill_holes()
        result = self.types[id(f)]
        assert isinstance(result, FuncType)
        return result

    def _prepare(self) -> None:
        for node in self.scopes.order:
            match node:
                case Call(op=OpRef() as op):
                    self.called[id(op)] = self.called.get(id(op), 0) + 1
                case Call(op=Function() as callee):
                    self.direct.add(id(callee))
                case Let(var=var, value=value):
                    self.lets[id(var)] = node
                    if isinstance(value, Function):
                        self.lets_of.setdefault(id(value), []).append(node)
                    elif var.type is not None:
                        self.annotated.setdefault(id(value), []).append(node)

    def _function(self, f: Function, args: Sequence[Expr] | None) -> Steps:
        """Type a closure; `args`: of the call it stands in, for parameters without annotation."""
        mark, env = len(self.scope_order), dict(self.equal.env)
        self.passed.update((id(p), a) for p, a in zip(f.params, args or ()))
        for i, p in enumerate(f.params):
            if p.type is not None:
                t = self._declare(p, p.type)
            elif args is not None and i < len(args):
                t = self.types[id(args[i])]
                self._set_value(p, self.values.get(id(args[i])))
            elif f is self.module.functions[self.name]:
                self._fail(
                    "TYPE-006",
                    f"parameter %{p.name} of @{self.name} needs a type",
                    known_span(p.span, f.span),
                )
            else:
                t = Hole()
            self._set(p, t)
        params = tuple(self.types[id(p)] for p in f.params)
        yield self._visit(self.scopes.inner[id(f), 0])
        result = self.types[id(f.body)]
        if f.result is not None:
            checks = self._fit(f.result, result, f"the result of {self._called(f)}", f.span, free=True)
            if checks:
                self._state(f, checks)
            result = with_sizes(f.result, result)
        self.equal.env = env
        self._leave(mark)
        self._set(f, FuncType(params, result, f.type_params))
        for let in self.lets_of.get(id(f), ()):
            if id(let.var) in self.types:  # it was used before its type was known
                self._bind_let(let)

    def _declare(self, p: Var, t: Type) -> Type:
        """A parameter's annotated type: new symbols come into scope, `?` becomes one of them."""
        where = f"of parameter %{p.name} of {self._called(None)}"

        def open_any(d: Dim) -> Dim:
            return (
                Symbol(self._new_symbol(f"{identifier(p.name)}", f"a dimension {where}")) if d == ANY else d
            )

        t = map_top(t, lambda d, leaf, axis: open_any(d))
        for path, tensor in named_leaves(t):
            for axis, d in enumerate(tensor.shape):
                for s in sorted(d.symbols() - self.scope):
                    self._enter(s, f"dimension {axis} {where}{path}")
        for s in sorted(type_symbols(t) - self.scope - {"?"}):
            self._enter(s, f"the type {where}")
            self.latent.add(s)
        return t

    # ---- scopes --------------------------------------------------------------------------------------------
    def _visit(self, scope: Scope) -> Steps:
        types, annotated = self.types, self.annotated
        for node in scope.nodes:
            if id(node) in types and not isinstance(node, Function):
                for symbol in self.typing.bindings(node):  # a closed expression that another function shares
                    self._enter(symbol, "another function")
                continue
            match node:
                case Var():
                    self._variable(node)
                case Constant(value=value):
                    types[id(node)] = TensorType(tuple(as_dim(d) for d in value.shape), value.dtype.name)
                    if value.size <= _KNOWN_ELEMENTS and value.dtype.kind in "iub":
                        self.values[id(node)] = known_contents(value)
                case Call(op=OpRef()):
                    self._operator(node)
                case Call():
                    if isinstance(node.op, Function) and id(node.op) not in types:
                        yield self._function(node.op, node.args)
                    self._call(node)
                case Tuple(fields=fields):
                    self._set(node, TupleType(tuple(types[id(x)] for x in fields)))
                    if any(self.values.get(id(x)) is not None for x in fields):
                        self.values[id(node)] = tuple(self.values.get(id(x)) for x in fields)
                case TupleGet():
                    self._projection(node)
                case Function():
                    if id(node) not in self.direct and id(node) not in types:
                        yield self._function(node, None)
                case Let():
                    self._let(node)
                case If():
                    yield self._if(node)
                case Match():
                    yield self._match(node)
                case GlobalVar(name=name):
                    if name not in self.signatures:
                        self._fail("TYPE-007", f"there is no function @{name}", node.span)
                    types[id(node)] = self.signatures[name]
                case ConstructorRef():
                    self._set(node, self._constructor(node.name, node.span)[0])
                case RefNew(value=value):
                    self._set(node, RefType(types[id(value)]))
                case RefRead(ref=ref):
                    self._set(
                        node, self._open(node, self._ref(ref, node.span), "the contents of a reference")
                    )
                case RefWrite(ref=ref, value=value):
                    checks = self._fit(
                        self._ref(ref, node.span), types[id(value)], "a write to a reference", node.span
                    )
                    self._state(node, checks)
                    types[id(node)] = _UNIT
                case OpRef(name=name):  # typed at its calls
                    if self.scopes.uses[id(node)] != self.called.get(id(node), 0):
                        self._fail(
                            "TYPE-006",
                            f"the operator {name} is used as a value",
                            node.span,
                            f"write a function: fn (%x) {{ {name}(%x) }}",
                        )

            if id(node) in annotated:
                for let in annotated[id(node)]:
                    self._bind_let(let)

    def _arm(self, owner: Expr, position: int) -> Steps:
        env = dict(self.equal.env)
        yield self._visit(self.scopes.inner[id(owner), position])
        self.equal.env = env

    def _if(self, node: If) -> Steps:
        cond = resolve(self.types[id(node.cond)])
        if isinstance(cond, Hole):
            cond.type = cond = TensorType((), "bool")
        if cond != TensorType((), "bool"):
            self._fail(
                "TYPE-012",
                f"the condition of an if must be a rank-0 bool, not {cond}",
                known_span(node.span, node.cond.span),
            )
        yield self._arm(node, 1)
        yield self._arm(node, 2)
        arms = [("the first branch", node.then), ("the second branch", node.orelse)]
        self._join(node, arms, "the branches of an if")

    def _match(self, node: Match) -> Steps:
        from intarsia.infer.patterns import missing_pattern

        data = self.types[id(node.data)]
        freeze(data)
        for i, clause in enumerate(node.clauses):
            self._pattern(clause.pattern, data, node.span)
            yield self._arm(node, i + 1)
        missing = missing_pattern(self.module, [c.pattern for c in node.clauses])
        if missing is not None:
            self._fail(
                "TYPE-009",
                f"the match has no clause for {missing}",
                node.span,
                "add a clause for it, or for _",
            )
        arms = [(f"clause {i + 1}", c.body) for i, c in enumerate(node.clauses)]
        self._join(node, arms, "the clauses of a match")

    def _join(self, node: Expr, arms: list[tuple[str, Expr]], what: str) -> None:
        (first, body), *others = arms
        t, value = self.types[id(body)], self.values.get(id(body))
        for name, other in others:
            t, o = self._canonical(t), self._canonical(self.types[id(other)])
            try:
                t = join(t, o, lambda _a, _b: ANY)
            except Mismatch as m:
                self._fail(
                    "TYPE-005",
                    f"{what} have different types: {m.detail}\n    {first}: {t}{at_place(body.span)}\n"
                    f"    {name}: {o}{at_place(other.span)}",
                    node.span,
                )
            value = value if same_contents(value, self.values.get(id(other))) else None
        self._set(node, self._open(node, t, what))
        self._set_value(node, value)

    # ---- expressions ---------------------------------------------------------------------------------------
    def _variable(self, v: Var) -> None:
        let = self.lets.get(id(v))
        if let is None:
            self._fail("TYPE-007", f"the variable %{v.name} is not bound here", v.span)
        if id(let.value) in self.types:
            self._bind_let(let)
        elif isinstance(let.value, Function):  # the function calls itself
            f = let.value
            params = tuple(p.type if p.type is not None else Hole() for p in f.params)
            self._set(v, FuncType(params, f.result if f.result is not None else Hole(), f.type_params))
        else:
            self._fail("TYPE-007", f"the value of %{v.name} uses %{v.name} itself", v.span)

    def _bind_let(self, let: Let) -> None:
        """The value's type for the variable; what an annotation or an earlier use asks for becomes checks of
        the value.
        """
        t, what, span = (
            self.types[id(let.value)],
            f"the value of %{let.var.name}",
            known_span(let.var.span, let.span),
        )
        used = self.types.get(id(let.var))
        if used is not None and used is not t:
            self._state(let.value, self._fit(used, t, what, span))
        if let.var.type is not None:
            self._state(let.value, self._fit(let.var.type, t, what, span, free=True, keep=True))
        self._set(let.var, t)
        self._set_value(let.var, self.values.get(id(let.value)))

    def _let(self, let: Let) -> None:
        if id(let.var) not in self.types:
            self._bind_let(let)
        self._set(let, self.types[id(let.body)])
        self._set_value(let, self.values.get(id(let.body)))

    def _projection(self, node: TupleGet) -> None:
        t = resolve(self.types[id(node.tuple)])
        if isinstance(t, Hole):
            self._fail(
                "TYPE-006",
                f"the type of the tuple whose field {node.index} is taken is not known here",
                node.span,
                "give the parameter it comes from a type",
            )
        if not isinstance(t, TupleType):
            self._fail("TYPE-010", f"field {node.index} is taken of a {t}, which is not a tuple", node.span)
        if not 0 <= node.index < len(t.fields):
            self._fail(
                "TYPE-010", f"field {node.index} of a tuple with {len(t.fields)} fields: {t}", node.span
            )
        self._set(node, t.fields[node.index])
        value = self.values.get(id(node.tuple))
        if isinstance(value, tuple):
            self._set_value(node, value[node.index])

    def _ref(self, ref: Expr, span: Span) -> Type:
        t = resolve(self.types[id(ref)])
        if isinstance(t, Hole):
            t.type = t = RefType(Hole())
        if not isinstance(t, RefType):
            self._fail("TYPE-010", f"a {t} is used as a reference", span)
        return t.value

    # ---- operators -----------------------------------------------------------------------------------------
    def _operator(self, call: Call) -> None:
        assert isinstance(call.op, OpRef)
        if call.args and any(isinstance(resolve(self.types[id(a)]), Hole) for a in call.args):
            self._set(call, Hole())
            self.pending.append(call)
            return
        self._set(call, self._site(call))

    def _site(self, call: Call) -> Type:
        assert isinstance(call.op, OpRef)
        op = get(call.op.name, call.span)
        _check_arity(op.name, op.params, len(call.args), call.span)
        env = self.equal.env
        args = [self._argument(a, env) for a in call.args]
        attrs = self._attrs(call) if call.attrs else call.attrs
        made: list[str] = []

        def fresh(hint: str) -> str:
            made.append(self._new_symbol(hint, f"made by {op.name}{at_place(call.span)}"))
            return made[-1]

        try:
            site = Site(
                op,
                args,
                attrs,
                span=call.span,
                bounds=self.bounds,
                canonical=self.equal.canonical,
                fresh_name=fresh,
            )
            result = op.rule(site)
            contents = op.value(site) if op.value is not None else None
        except TypeCheckError as e:
            raise self._explained(e, call, args) from None
        self.typing.sites[id(call)] = site
        if site.checks:
            self.typing.checks += site.checks
            for c in site.checks:
                if c.relation == "==":
                    self.equal.assume(c.left, c.right)
            result = self._canonical(result)
        site.out = result.fields if isinstance(result, TupleType) else (result,)  # type: ignore[assignment]
        if site.bindings:
            self._remember_items(call, site)
        if contents is not None and (isinstance(contents, tuple) or contents.size <= _KNOWN_ELEMENTS):
            self.values[id(call)] = contents
        return result

    def _argument(self, a: Expr, env: Mapping[str, Dim]) -> Arg:
        t, value = resolve(self.types[id(a)]), self.values.get(id(a))
        if isinstance(t, TupleType) and t.fields and has_hole(t):
            t = map_type(t, lambda d: d)
        if env:
            t = self._canonical(t)
            if isinstance(value, np.ndarray):
                value = map_contents(value, self.equal.canonical)
        return Arg(t, value if isinstance(value, np.ndarray) else None, self._constant(a))

    def _constant(self, a: Expr) -> np.ndarray | None:
        """The contents of a small constant of any dtype, also behind variables: operators may need floats to
        know a size.
        """
        while isinstance(a, Var):
            let = self.lets.get(id(a))
            following = let.value if let is not None else self.passed.get(id(a))
            if following is None:
                return None
            a = following
        return a.value if isinstance(a, Constant) and a.value.size <= _KNOWN_ELEMENTS else None

    def _attrs(self, call: Call) -> Mapping[str, Attr]:
        """Attributes with their dimensions in canonical form; symbols that are not in scope are errors."""
        changed: dict[str, Attr] = {}
        for key, attr in call.attrs.items():
            for d in attr_dims(attr):
                unknown = sorted(d.symbols() - self.scope)
                if unknown:
                    self._fail(
                        "TYPE-011",
                        f"the symbol {unknown[0]} in attribute {key} is not bound here",
                        call.span,
                        "use symbols of the parameters' types",
                    )
                if self.equal.env or d.is_const:
                    changed[key] = map_attr(attr, self.equal.canonical)
        return {**call.attrs, **changed} if changed else call.attrs

    def _remember_items(self, call: Call, site: Site) -> None:
        """Elements that the rule asked for have names now: later operators that read the same tensor use them
        too.
        """
        found: dict[int, dict[int, str]] = {}
        for name, b in site.bindings.items():
            if isinstance(b, Item):
                found.setdefault(b.arg, {})[b.index] = name
        for arg, items in found.items():
            shape = site.shape(arg)
            if all(d.is_const for d in shape) and self.values.get(id(call.args[arg])) is None:
                array = np.empty(tuple(d.value for d in shape), object)
                if array.size == len(items) and self._same_scope(call, call.args[arg]):
                    array.reshape(-1)[:] = [Symbol(items[i]) for i in range(array.size)]
                    self.values[id(call.args[arg])] = array

    def _same_scope(self, a: Expr, b: Expr) -> bool:
        return self.scopes.of.get(id(a)) is self.scopes.of.get(id(b))

    # ---- calls of functions --------------------------------------------------------------------------------
    def _call(self, call: Call) -> None:
        callee = resolve(self.types[id(call.op)])
        args = [self.types[id(a)] for a in call.args]
        if isinstance(callee, Hole):
            callee.type = callee = FuncType(tuple(args), Hole())
        if not isinstance(callee, FuncType):
            self._fail("TYPE-010", f"a {callee} is called", call.span)
        what = f"the call of {self._called(call.op)}"
        if len(args) != len(callee.args):
            self._fail(
                "TYPE-004",
                f"{what} has {count_of(len(args), 'argument')} where {len(callee.args)} are needed",
                call.span,
            )
        wanted = self._flexible(callee)
        if callee.type_params:
            variables: dict[TypeVar, Type] = {v: Hole() for v in callee.type_params}
            wanted = FuncType(
                tuple(instantiate(a, variables) for a in wanted.args), instantiate(wanted.result, variables)
            )
        pairs: Pairs = []
        for i, (e, a) in enumerate(zip(wanted.args, args)):
            try:
                relate(e, self._flexible_function(a), pairs)
            except Mismatch as m:
                self._mismatch(
                    m,
                    callee.args[i],
                    a,
                    f"argument {i + 1} of {what}",
                    known_span(call.args[i].span, call.span),
                    call.span,
                )
        env, checks = self._settle(pairs, what, call.span, lambda: listed(callee.args, args))
        self._state(call, checks)
        result = self._open(
            call, map_type(wanted.result, lambda d: d.subst(env)) if env else wanted.result, what
        )
        self._set(call, self._canonical(result))

    def _constructor(self, name: str, span: Span) -> tuple[FuncType, ADTType]:
        found = self.module.constructor(name)
        if found is None:
            self._fail("TYPE-008", f"there is no constructor {name}", span)
        adt, c = found
        variables: dict[TypeVar, Type] = {v: Hole() for v in adt.type_params}
        made = ADTType(adt.name, tuple(variables.values()))
        return FuncType(tuple(instantiate(t, variables) for t in c.inputs), made), made

    # ---- patterns ------------------------------------------------------------------------------------------
    def _pattern(self, pattern: Pattern, data: Type, span: Span) -> None:
        todo: list[tuple[Pattern, Type]] = [(pattern, data)]
        while todo:
            p, t = todo.pop()
            match p:
                case PVar(var=var):
                    t = self._open(var, t, f"what a match binds to %{var.name}")
                    if self.latent:
                        self._measure_latent(var, t)
                    if var.type is not None:
                        self._state(var, self._fit(var.type, t, f"%{var.name}", span, free=True, keep=True))
                    self._set(var, t)
                case PTuple(fields=fields):
                    tuple_type = resolve(t)
                    if isinstance(tuple_type, Hole):
                        tuple_type.type = tuple_type = TupleType(tuple(Hole() for _ in fields))
                    if not isinstance(tuple_type, TupleType) or len(tuple_type.fields) != len(fields):
                        self._fail(
                            "TYPE-008", f"a pattern of {len(fields)} fields cannot match a {tuple_type}", span
                        )
                    todo += zip(fields, tuple_type.fields)
                case PConstructor(constructor=name, fields=fields):
                    f, adt = self._constructor(name, span)
                    if len(f.args) != len(fields):
                        self._fail(
                            "TYPE-008",
                            f"{name} has {count_of(len(f.args), 'field')}, the pattern {len(fields)}",
                            span,
                        )
                    self._fit(t, adt, f"the pattern {name}", span)
                    actual = resolve(t)
                    if isinstance(actual, ADTType):
                        declared = self.module.types[adt.name]
                        own = dict(zip(declared.type_params, actual.args))
                        inputs = declared.constructors[_tag(declared.constructors, name)].inputs
                        f = FuncType(tuple(instantiate(i, own) for i in inputs), actual)
                    freeze(actual)
                    todo += zip(fields, f.args)

    def _measure_latent(self, var: Var, t: Type) -> None:
        """A symbol that occurs only inside an ADT's type gets its value where an element is taken out."""
        for leaf, (_, tensor) in enumerate(named_leaves(t)):
            for axis, d in enumerate(tensor.shape):
                if d.symbol in self.latent:
                    self.typing._bindings.setdefault(id(var), {}).setdefault(d.symbol, Measured(leaf, axis))

    def _finish_pending(self) -> None:
        """Operator calls whose arguments had no type yet: again, as long as that helps."""
        while self.pending:
            waiting, self.pending = self.pending, []
            for call in waiting:
                if any(isinstance(resolve(self.types[id(a)]), Hole) for a in call.args):
                    self.pending.append(call)
                    continue
                hole = self.types[id(call)]
                try:
                    relate(hole, self._site(call), [])
                except Mismatch as m:
                    self._mismatch(m, hole, m.actual, f"the result of {call.op}", call.span, call.span)
            if len(self.pending) == len(waiting):
                name = self.pending[0].op.name  # type: ignore[attr-defined]
                self._fail(
                    "TYPE-006",
                    f"the type of an argument of {name} cannot be inferred",
                    self.pending[0].span,
                    "give the parameter it comes from a type",
                )

    def _fill_holes(self) -> None:
        """Replace filled holes by their types; a hole that nothing fills holds no value and becomes unit."""
        for key in self.holed:
            self.types[key] = map_type(
                self.types[key], self.equal.canonical, lambda v: _UNIT if isinstance(v, Hole) else v
            )


def _trampoline(first: Steps) -> None:
    stack = [first]
    while stack:
        try:
            stack.append(next(stack[-1]))
        except StopIteration:
            stack.pop()


@cache
def _arity(params: tuple[str, ...]) -> tuple[int, float]:
    """Least and greatest number of arguments."""
    least = sum(not p.endswith("?") and not p.startswith("*") for p in params)
    return least, float("inf") if params and params[-1].startswith("*") else len(params)


def _check_arity(name: str, params: tuple[str, ...], given: int, span: Span) -> None:
    least, most = _arity(params)
    if not least <= given <= most:
        wanted = (
            f"{least}"
            if most == least
            else f"{least} or more"
            if most == float("inf")
            else f"{least} to {most}"
        )
        listed = ", ".join(params)
        raise TypeCheckError(
            "TYPE-004", f"{name} takes {wanted} arguments ({listed}), not {given}", where=str(span)
        )


def _tag(constructors, name: str) -> int:
    return next(i for i, c in enumerate(constructors) if c.name == name)

"""Types of one global function: a walk over its scopes, operands before users, without recursion.

Branches and closure bodies are visited by generators that a trampoline runs, so nesting costs no Python stack.
An equality learnt from a run-time check holds from there to the end of the scope in which it is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim
from intarsia.infer.typing import Origin, Typing, Value, type_symbols
from intarsia.infer.unify import (
    ANY, FLEXIBLE, Equalities, Hole, Mismatch, Pairs, freeze, has_hole, instantiate, join, map_type, relate, resolve, solve,
)  # fmt: skip
from intarsia.ir.expr import (
    Attr, Call, Constant, ConstructorRef, Expr, Function, GlobalVar, If, Let, Match, OpRef, RefNew, RefRead, RefWrite,
    Tuple, TupleGet, Var,
)  # fmt: skip
from intarsia.ir.module import IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, PVar
from intarsia.ir.scopes import Scope, Scopes
from intarsia.ir.types import ADTType, FuncType, RefType, TensorType, TupleType, Type, TypeVar
from intarsia.op.entry import Arg, Check, Item, Measured, Site, get
from intarsia.support.errors import TypeCheckError
from intarsia.support.span import UNKNOWN, Span

Steps = Generator["Steps", None, None]
_UNIT = TupleType(())
_KNOWN_ELEMENTS = 64  # integer constants up to this size are known contents


class Names:
    """Fresh symbol names, different from every name in the program."""

    def __init__(self, taken: Iterable[str]):
        self._taken = set(taken)
        self._count: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        while True:
            self._count[hint] = self._count.get(hint, 0) + 1
            name = f"{hint}_{self._count[hint]}"
            if name not in self._taken:
                return name


class FunctionTyper:
    """Types the body of one global function into a `Typing` that is shared by the module."""

    def __init__(self, module: IRModule, name: str, typing: Typing, names: Names, signatures: Mapping[str, FuncType]):
        self.module, self.name, self.typing, self.names, self.signatures = module, name, typing, names, signatures
        self.types, self.values = typing._types, typing._values
        self.equal = Equalities()
        self.global_types = {id(s) for s in signatures.values()}
        self.bounds = Bounds(module.bounds.known if name == "main" else None)
        self.scope: set[str] = set()
        self.scope_order: list[str] = []
        self.pending: list[Call] = []
        self.holed: list[int] = []
        self.scopes: Scopes = typing.scopes(name)
        self.direct: set[int] = set()
        self.called: dict[int, int] = {}  # how often an operator's name stands where it is called
        self.lets = typing.lets
        self.lets_of: dict[int, list[Let]] = {}  # by the value they bind
        self.passed: dict[int, Expr] = {}  # what a closure's parameter stands for, in the one call of it
        self.annotated: dict[int, list[Let]] = {}  # lets whose annotation may name sizes, by the value they bind
        self.latent: set[str] = set()  # symbols that no parameter's size determines

    # ---- functions --------------------------------------------------------------------------------------------
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
                self._fail("TYPE-006", f"parameter %{p.name} of @{self.name} needs a type", _known_span(p.span, f.span))
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
            result = _with_sizes(f.result, result)
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
            return Symbol(self._new_symbol(f"{_identifier(p.name)}", f"a dimension {where}")) if d == ANY else d

        t = _map_top(t, lambda d, leaf, axis: open_any(d))
        for path, tensor in _leaves(t):
            for axis, d in enumerate(tensor.shape):
                for s in sorted(d.symbols() - self.scope):
                    self._enter(s, f"dimension {axis} {where}{path}")
        for s in sorted(type_symbols(t) - self.scope - {"?"}):
            self._enter(s, f"the type {where}")
            self.latent.add(s)
        return t

    # ---- scopes -----------------------------------------------------------------------------------------------
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
                        self.values[id(node)] = _known(value)
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
                    self._set(node, self._open(node, self._ref(ref, node.span), "the contents of a reference"))
                case RefWrite(ref=ref, value=value):
                    checks = self._fit(self._ref(ref, node.span), types[id(value)], "a write to a reference", node.span)
                    self._state(node, checks)
                    types[id(node)] = _UNIT
                case OpRef(name=name):  # typed at its calls
                    if self.scopes.uses[id(node)] != self.called.get(id(node), 0):
                        self._fail("TYPE-006", f"the operator {name} is used as a value", node.span,
                                   f"write a function: fn (%x) {{ {name}(%x) }}")

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
            self._fail("TYPE-012", f"the condition of an if must be a rank-0 bool, not {cond}", _known_span(node.span, node.cond.span))
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
            self._fail("TYPE-009", f"the match has no clause for {missing}", node.span, "add a clause for it, or for _")
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
                self._fail("TYPE-005", f"{what} have different types: {m.detail}\n    {first}: {t}{_at(body.span)}\n"
                           f"    {name}: {o}{_at(other.span)}", node.span)
            value = value if _same_value(value, self.values.get(id(other))) else None
        self._set(node, self._open(node, t, what))
        self._set_value(node, value)

    # ---- expressions ------------------------------------------------------------------------------------------
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
        """The value's type for the variable; what an annotation or an earlier use asks for becomes checks of the value."""
        t, what, span = self.types[id(let.value)], f"the value of %{let.var.name}", _known_span(let.var.span, let.span)
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
            self._fail("TYPE-006", f"the type of the tuple whose field {node.index} is taken is not known here", node.span,
                       "give the parameter it comes from a type")
        if not isinstance(t, TupleType):
            self._fail("TYPE-010", f"field {node.index} is taken of a {t}, which is not a tuple", node.span)
        if not 0 <= node.index < len(t.fields):
            self._fail("TYPE-010", f"field {node.index} of a tuple with {len(t.fields)} fields: {t}", node.span)
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

    # ---- operators --------------------------------------------------------------------------------------------
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
            made.append(self._new_symbol(hint, f"made by {op.name}{_at(call.span)}"))
            return made[-1]

        try:
            site = Site(op, args, attrs, span=call.span, bounds=self.bounds, canonical=self.equal.canonical, fresh_name=fresh)
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
                value = _map_value(value, self.equal.canonical)
        return Arg(t, value if isinstance(value, np.ndarray) else None, self._constant(a))

    def _constant(self, a: Expr) -> np.ndarray | None:
        """The contents of a small constant of any dtype, also behind variables: operators may need floats to know a size."""
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
            for d in _attr_dims(attr):
                unknown = sorted(d.symbols() - self.scope)
                if unknown:
                    self._fail("TYPE-011", f"the symbol {unknown[0]} in attribute {key} is not bound here", call.span,
                               "use symbols of the parameters' types")
                if self.equal.env or d.is_const:
                    changed[key] = _map_attr(attr, self.equal.canonical)
        return {**call.attrs, **changed} if changed else call.attrs

    def _remember_items(self, call: Call, site: Site) -> None:
        """Elements that the rule asked for have names now: later operators that read the same tensor use them too."""
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

    # ---- calls of functions -----------------------------------------------------------------------------------
    def _call(self, call: Call) -> None:
        callee = resolve(self.types[id(call.op)])
        args = [self.types[id(a)] for a in call.args]
        if isinstance(callee, Hole):
            callee.type = callee = FuncType(tuple(args), Hole())
        if not isinstance(callee, FuncType):
            self._fail("TYPE-010", f"a {callee} is called", call.span)
        what = f"the call of {self._called(call.op)}"
        if len(args) != len(callee.args):
            self._fail("TYPE-004", f"{what} has {_count(len(args), 'argument')} where {len(callee.args)} are needed", call.span)
        wanted = self._flexible(callee)
        if callee.type_params:
            variables: dict[TypeVar, Type] = {v: Hole() for v in callee.type_params}
            wanted = FuncType(tuple(instantiate(a, variables) for a in wanted.args), instantiate(wanted.result, variables))
        pairs: Pairs = []
        for i, (e, a) in enumerate(zip(wanted.args, args)):
            try:
                relate(e, self._flexible_function(a), pairs)
            except Mismatch as m:
                self._mismatch(m, callee.args[i], a, f"argument {i + 1} of {what}", _known_span(call.args[i].span, call.span), call.span)
        env, checks = self._settle(pairs, what, call.span, lambda: _listed(callee.args, args))
        self._state(call, checks)
        result = self._open(call, map_type(wanted.result, lambda d: d.subst(env)) if env else wanted.result, what)
        self._set(call, self._canonical(result))

    def _flexible(self, f: FuncType) -> FuncType:
        """A function's type with the symbols that it binds itself renamed to flexible ones."""
        own = type_symbols(map_type(f, lambda d: d)) - {"?"}
        if id(f) not in self.global_types:  # a global function binds all of its symbols, whatever their names
            own -= self.scope
        return map_type(f, _renamer(own)) if own else f  # type: ignore[return-value]

    def _flexible_function(self, t: Type) -> Type:
        inner = resolve(t)
        return self._flexible(inner) if isinstance(inner, FuncType) else t

    def _constructor(self, name: str, span: Span) -> tuple[FuncType, ADTType]:
        found = self.module.constructor(name)
        if found is None:
            self._fail("TYPE-008", f"there is no constructor {name}", span)
        adt, c = found
        variables: dict[TypeVar, Type] = {v: Hole() for v in adt.type_params}
        made = ADTType(adt.name, tuple(variables.values()))
        return FuncType(tuple(instantiate(t, variables) for t in c.inputs), made), made

    # ---- patterns ---------------------------------------------------------------------------------------------
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
                        self._fail("TYPE-008", f"a pattern of {len(fields)} fields cannot match a {tuple_type}", span)
                    todo += zip(fields, tuple_type.fields)
                case PConstructor(constructor=name, fields=fields):
                    f, adt = self._constructor(name, span)
                    if len(f.args) != len(fields):
                        self._fail("TYPE-008", f"{name} has {_count(len(f.args), 'field')}, the pattern {len(fields)}", span)
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
        for leaf, (_, tensor) in enumerate(_leaves(t)):
            for axis, d in enumerate(tensor.shape):
                if d.symbol in self.latent:
                    self.typing._bindings.setdefault(id(var), {}).setdefault(d.symbol, Measured(leaf, axis))

    # ---- relating types ---------------------------------------------------------------------------------------
    def _fit(self, expected: Type, actual: Type, what: str, span: Span, *, free: bool = False, keep: bool = False) -> list[Check]:
        """Checks that make `actual` usable as `expected`; `free`: expected's unbound symbols stand for actual's sizes."""
        own = type_symbols(map_type(expected, lambda d: d)) - self.scope - {"?"} if free else set()
        pairs: Pairs = []
        try:
            relate(map_type(expected, _renamer(own)) if own else expected, self._flexible_function(actual), pairs)
        except Mismatch as m:
            self._mismatch(m, expected, actual, what, span, span)
        env, checks = self._settle(pairs, what, span, lambda: _listed([expected], [actual]))
        if keep:
            for s in own:
                if FLEXIBLE + s in env:
                    self._enter(s, f"the type of {what}")
                    self.equal.env[s] = env[FLEXIBLE + s]
        return checks

    def _settle(self, pairs: Pairs, what: str, span: Span, types: Callable[[], str]) -> tuple[dict[str, Dim], list[Check]]:
        """Values of the flexible symbols, and the checks that remain."""
        if not pairs:
            return {}, []
        canonical = self.equal.canonical
        env, left = solve([(canonical(a), canonical(b)) for a, b in pairs])
        checks: list[Check] = []
        for a, b in left:
            a, b = canonical(a), canonical(b)
            if a == b:
                continue
            if (a - b).is_const:
                self._fail("TYPE-013", f"{what}: {_plain(b)} does not equal {_plain(a)}" + types() + self._origins(a, b), span)
            if any(s.startswith(FLEXIBLE) for s in (a.symbols() | b.symbols())):
                continue  # a size that only the callee knows; it checks its own
            checks.append(Check(b, "==", a, what, span))
            self.equal.assume(a, b)
        return env, checks

    def _open(self, key: Expr, t: Type, what: str) -> Type:
        """Sizes that nobody outside can name (`?`, the callee's own symbols) become symbols measured on the value."""
        t = resolve(t)
        if isinstance(t, TensorType) and not any("?" in d.symbols() or _is_flexible(d) for d in t.shape):
            return t
        renamed: dict[str, Dim] = {}
        hint = _hint(key)

        def fresh(leaf: int, axis: int) -> Dim:
            name = self._new_symbol(hint, f"dimension {axis} of {what}{_at(key.span)}")
            self.typing._bindings.setdefault(id(key), {})[name] = Measured(leaf, axis)
            return Symbol(name)

        def bare(d: Dim, leaf: int, axis: int) -> Dim:
            if d == ANY:
                return fresh(leaf, axis)
            if d.symbol and _is_flexible(d):
                if d.symbol not in renamed:
                    renamed[d.symbol] = fresh(leaf, axis)
                return renamed[d.symbol]
            return d

        def rest(d: Dim, leaf: int, axis: int) -> Dim:
            d = d.subst(renamed)
            return fresh(leaf, axis) if _is_flexible(d) else d

        opened = _map_top(_map_top(t, bare), rest)
        return map_type(opened, lambda d: ANY if _is_flexible(d.subst(renamed)) else d.subst(renamed))

    def _canonical(self, t: Type) -> Type:
        return map_type(t, self.equal.canonical) if self.equal.env else t

    # ---- bookkeeping ------------------------------------------------------------------------------------------
    def _set(self, e: Expr, t: Type) -> None:
        self.types[id(e)] = t
        if not isinstance(t, TensorType) and has_hole(t):
            self.holed.append(id(e))

    def _set_value(self, e: Expr, value: Value) -> None:
        if value is not None:
            self.values[id(e)] = value

    def _state(self, e: Expr, checks: list[Check]) -> None:
        if checks:
            self.typing._checks_at.setdefault(id(e), []).extend(checks)
            self.typing.checks += checks

    def _new_symbol(self, hint: str, origin: str) -> str:
        name = self.names.fresh(hint)
        self._enter(name, origin)
        return name

    def _enter(self, symbol: str, origin: str) -> None:
        self.scope.add(symbol)
        self.scope_order.append(symbol)
        order = self.equal.order[symbol] = len(self.equal.order)
        self.typing.origins[self.name, symbol] = Origin(origin, order)

    def _leave(self, mark: int) -> None:
        for s in self.scope_order[mark:]:
            self.scope.discard(s)
        del self.scope_order[mark:]

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
                self._fail("TYPE-006", f"the type of an argument of {name} cannot be inferred", self.pending[0].span,
                           "give the parameter it comes from a type")

    def _fill_holes(self) -> None:
        """Replace filled holes by their types; a hole that nothing fills holds no value and becomes unit."""
        for key in self.holed:
            self.types[key] = map_type(self.types[key], self.equal.canonical, lambda v: _UNIT if isinstance(v, Hole) else v)

    # ---- errors -----------------------------------------------------------------------------------------------
    def _called(self, f: Expr | None) -> str:
        match f:
            case GlobalVar(name=name):
                return f"@{name}"
            case Var(name=name):
                return f"%{name}"
            case ConstructorRef(name=name):
                return name
            case Function() if f is not self.module.functions[self.name]:
                return f"a function in @{self.name}"
        return f"@{self.name}" if f is None or isinstance(f, Function) else "a function value"

    def _origins(self, *dims: Dim) -> str:
        symbols = sorted({s for d in dims for s in d.symbols() if (self.name, s) in self.typing.origins})
        return "".join(f"\n    {s} is {self.typing.origin(s, self.name)}" for s in symbols)

    def _explained(self, e: TypeCheckError, call: Call, args: Sequence[Arg]) -> TypeCheckError:
        """The error of an operator's rule with the arguments' types and the symbols' origins added."""
        names = [_name_of(a) for a in call.args]
        lines = [f"\n    argument {i + 1}{n}: {a.type}{_at(x.span) if n == '' else ''}"
                 for i, (n, a, x) in enumerate(zip(names, args, call.args)) if a.type != _UNIT]
        dims = [d for a in args for _, t in _leaves(a.type) for d in t.shape]
        text = e.message + "".join(lines) + self._origins(*dims)
        return TypeCheckError(e.code, text, where=str(call.span), remedy=e.remedy)

    def _mismatch(self, m: Mismatch, expected: Type, actual: Type, what: str, span: Span, where: Span) -> None:
        dims = [d for t in (expected, actual) for _, leaf in _leaves(resolve(t)) for d in leaf.shape]
        self._fail("TYPE-003", f"{what} has the wrong type: {m.detail}\n    expected: {expected}\n"
                   f"    found:    {actual}{_at(span) if span is not where else ''}" + self._origins(*dims), where)

    def _fail(self, code: str, message: str, span: Span, remedy: str | None = None):
        where = f"{span}, in @{self.name}" if span != UNKNOWN else f"@{self.name}"
        raise TypeCheckError(code, message, where=where, remedy=remedy)


def _with_sizes(declared: Type, found: Type) -> Type:
    """The declared type of a result, with the sizes that it leaves open (`?`) as they were found."""
    declared, found = resolve(declared), resolve(found)
    match declared, found:
        case TensorType(), TensorType():
            return TensorType(tuple(f if d == ANY else d for d, f in zip(declared.shape, found.shape)), declared.dtype)
        case TupleType(), TupleType():
            return TupleType(tuple(_with_sizes(d, f) for d, f in zip(declared.fields, found.fields)))
    return declared


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
        wanted = f"{least}" if most == least else f"{least} or more" if most == float("inf") else f"{least} to {most}"
        listed = ", ".join(params)
        raise TypeCheckError("TYPE-004", f"{name} takes {wanted} arguments ({listed}), not {given}", where=str(span))


def _known(value: np.ndarray) -> np.ndarray:
    out = np.empty(value.shape, object)
    flat = out.reshape(-1)
    for i, v in enumerate(value.reshape(-1).tolist()):
        flat[i] = as_dim(v)
    return out


def _map_value(value: np.ndarray, step) -> np.ndarray:
    out = np.empty(value.shape, object)
    flat = out.reshape(-1)
    for i, v in enumerate(value.reshape(-1)):
        flat[i] = step(as_dim(v))
    return out


def _same_value(a: Value, b: Value) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(x is y or _same_value(x, y) for x, y in zip(a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and all(as_dim(x) == as_dim(y) for x, y in zip(a.flat, b.flat))
    return False


def _attr_dims(attr: Attr) -> list[Dim]:
    if isinstance(attr, Dim):
        return [attr]
    return [d for a in attr for d in _attr_dims(a)] if isinstance(attr, tuple) else []


def _map_attr(attr: Attr, step) -> Attr:
    if isinstance(attr, tuple):
        return tuple(_map_attr(a, step) for a in attr)
    if isinstance(attr, Dim):
        d = step(attr)
        return d.value if d.is_const else d
    return attr


def _map_top(t: Type, step) -> Type:
    """Dimensions of the tensors of a (nested) tuple type replaced by step(dim, leaf, axis)."""
    count = 0

    def go(t: Type) -> Type:
        nonlocal count
        t = resolve(t)
        if isinstance(t, TensorType):
            leaf, count = count, count + 1
            return TensorType(tuple(step(d, leaf, axis) for axis, d in enumerate(t.shape)), t.dtype)
        return TupleType(tuple(go(f) for f in t.fields)) if isinstance(t, TupleType) else t

    return go(t)


def _leaves(t: Type, path: str = "") -> list[tuple[str, TensorType]]:
    if isinstance(t, TensorType):
        return [(path, t)]
    return [x for i, f in enumerate(t.fields) for x in _leaves(f, f"{path}.{i}")] if isinstance(t, TupleType) else []


def _renamer(own: set[str]):
    env = {s: Symbol(FLEXIBLE + s) for s in own}
    return lambda d: d.subst(env)


def _is_flexible(d: Dim) -> bool:
    return any(s.startswith(FLEXIBLE) for s in d.symbols())


def _plain(d: Dim) -> str:
    return str(d).replace(FLEXIBLE, "")


def _hint(key: Expr) -> str:
    match key:
        case Call(op=GlobalVar(name=name) | Var(name=name)) | Var(name=name):
            return _identifier(name)
        case If():
            return "if"
        case Match():
            return "match"
    return "size"


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text and not text[0].isdigit() else f"_{text}"


def _tag(constructors, name: str) -> int:
    return next(i for i, c in enumerate(constructors) if c.name == name)


def _name_of(e: Expr) -> str:
    return f" (%{e.name})" if isinstance(e, Var) else ""


def _listed(expected: Sequence[Type], found: Sequence[Type]) -> str:
    return "".join(f"\n    expected: {e}\n    found:    {f}" for e, f in zip(expected, found) if str(e) != str(f))


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")


def _known_span(*spans: Span) -> Span:
    return next((s for s in spans if s != UNKNOWN), UNKNOWN)


def _at(span: Span) -> str:
    return f" at {span}" if span.line or span.name else ""

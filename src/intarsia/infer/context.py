"""What is known while a function is typed: symbols in scope, equalities, and how types are made to agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NoReturn

from intarsia.dim import Dim, Symbol
from intarsia.infer.typing import Origin, Typing, Value, type_symbols
from intarsia.infer.unify import (
    ANY,
    FLEXIBLE,
    Equalities,
    Mismatch,
    Pairs,
    has_hole,
    is_flexible,
    map_top,
    map_type,
    named_leaves,
    relate,
    renamer,
    resolve,
    solve,
)  # fmt: skip
from intarsia.ir.expr import Call, ConstructorRef, Expr, Function, GlobalVar, If, Match, Var
from intarsia.ir.module import IRModule
from intarsia.ir.types import FuncType, TensorType, TupleType, Type
from intarsia.op.entry import Arg, Check, Measured
from intarsia.support.errors import TypeCheckError
from intarsia.support.span import UNKNOWN, Span


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


class Context:
    """The part of a function's typing that knows no expressions: `FunctionTyper` walks, this relates and
    records.
    """

    def __init__(
        self, module: IRModule, name: str, typing: Typing, names: Names, signatures: Mapping[str, FuncType]
    ):
        self.module, self.name, self.typing, self.names, self.signatures = (
            module,
            name,
            typing,
            names,
            signatures,
        )
        self.types, self.values = typing._types, typing._values
        self.equal = Equalities()
        self.global_types = {id(s) for s in signatures.values()}
        self.scope: set[str] = set()
        self.scope_order: list[str] = []
        self.holed: list[int] = []

    # ---- relating types ------------------------------------------------------------------------------------
    def _fit(
        self, expected: Type, actual: Type, what: str, span: Span, *, free: bool = False, keep: bool = False
    ) -> list[Check]:
        """Checks that make `actual` usable as `expected`; `free`: expected's unbound symbols stand for
        actual's sizes.
        """
        own = type_symbols(map_type(expected, lambda d: d)) - self.scope - {"?"} if free else set()
        pairs: Pairs = []
        try:
            relate(
                map_type(expected, renamer(own)) if own else expected, self._flexible_function(actual), pairs
            )
        except Mismatch as m:
            self._mismatch(m, expected, actual, what, span, span)
        env, checks = self._settle(pairs, what, span, lambda: listed([expected], [actual]))
        if keep:
            for s in own:
                if FLEXIBLE + s in env:
                    self._enter(s, f"the type of {what}")
                    self.equal.env[s] = env[FLEXIBLE + s]
        return checks

    def _settle(
        self, pairs: Pairs, what: str, span: Span, types: Callable[[], str]
    ) -> tuple[dict[str, Dim], list[Check]]:
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
                self._fail(
                    "TYPE-013",
                    f"{what}: {plain(b)} does not equal {plain(a)}" + types() + self._origins(a, b),
                    span,
                )
            if any(s.startswith(FLEXIBLE) for s in (a.symbols() | b.symbols())):
                continue  # a size that only the callee knows; it checks its own
            checks.append(Check(b, "==", a, what, span))
            self.equal.assume(a, b)
        return env, checks

    def _open(self, key: Expr, t: Type, what: str) -> Type:
        """Sizes that nobody outside can name (`?`, the callee's own symbols) become symbols measured on the
        value.
        """
        t = resolve(t)
        if isinstance(t, TensorType) and not any("?" in d.symbols() or is_flexible(d) for d in t.shape):
            return t
        renamed: dict[str, Dim] = {}
        hint = hint_of(key)

        def fresh(leaf: int, axis: int) -> Dim:
            name = self._new_symbol(hint, f"dimension {axis} of {what}{at_place(key.span)}")
            self.typing._bindings.setdefault(id(key), {})[name] = Measured(leaf, axis)
            return Symbol(name)

        def bare(d: Dim, leaf: int, axis: int) -> Dim:
            if d == ANY:
                return fresh(leaf, axis)
            if d.symbol and is_flexible(d):
                if d.symbol not in renamed:
                    renamed[d.symbol] = fresh(leaf, axis)
                return renamed[d.symbol]
            return d

        def rest(d: Dim, leaf: int, axis: int) -> Dim:
            d = d.subst(renamed)
            return fresh(leaf, axis) if is_flexible(d) else d

        opened = map_top(map_top(t, bare), rest)
        return map_type(opened, lambda d: ANY if is_flexible(d.subst(renamed)) else d.subst(renamed))

    def _canonical(self, t: Type) -> Type:
        return map_type(t, self.equal.canonical) if self.equal.env else t

    def _flexible(self, f: FuncType) -> FuncType:
        """A function's type with the symbols that it binds itself renamed to flexible ones."""
        own = type_symbols(map_type(f, lambda d: d)) - {"?"}
        if id(f) not in self.global_types:  # a global function binds all of its symbols, whatever their names
            own -= self.scope
        return map_type(f, renamer(own)) if own else f  # type: ignore[return-value]

    def _flexible_function(self, t: Type) -> Type:
        inner = resolve(t)
        return self._flexible(inner) if isinstance(inner, FuncType) else t

    # ---- bookkeeping ---------------------------------------------------------------------------------------
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

    # ---- errors --------------------------------------------------------------------------------------------
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
        names = [name_of(a) for a in call.args]
        lines = [
            f"\n    argument {i + 1}{n}: {a.type}{at_place(x.span) if n == '' else ''}"
            for i, (n, a, x) in enumerate(zip(names, args, call.args))
            if a.type != TupleType(())
        ]
        dims = [d for a in args for _, t in named_leaves(a.type) for d in t.shape]
        text = e.message + "".join(lines) + self._origins(*dims)
        return TypeCheckError(e.code, text, where=str(call.span), remedy=e.remedy)

    def _mismatch(
        self, m: Mismatch, expected: Type, actual: Type, what: str, span: Span, where: Span
    ) -> None:
        dims = [d for t in (expected, actual) for _, leaf in named_leaves(resolve(t)) for d in leaf.shape]
        self._fail(
            "TYPE-003",
            f"{what} has the wrong type: {m.detail}\n    expected: {expected}\n"
            f"    found:    {actual}{at_place(span) if span is not where else ''}" + self._origins(*dims),
            where,
        )

    def _fail(self, code: str, message: str, span: Span, remedy: str | None = None) -> NoReturn:
        where = f"{span}, in @{self.name}" if span != UNKNOWN else f"@{self.name}"
        raise TypeCheckError(code, message, where=where, remedy=remedy)


def plain(d: Dim) -> str:
    return str(d).replace(FLEXIBLE, "")


def hint_of(key: Expr) -> str:
    match key:
        case Call(op=GlobalVar(name=name) | Var(name=name)) | Var(name=name):
            return identifier(name)
        case If():
            return "if"
        case Match():
            return "match"
    return "size"


def identifier(name: str) -> str:
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return text if text and not text[0].isdigit() else f"_{text}"


def name_of(e: Expr) -> str:
    return f" (%{e.name})" if isinstance(e, Var) else ""


def listed(expected: Sequence[Type], found: Sequence[Type]) -> str:
    return "".join(
        f"\n    expected: {e}\n    found:    {f}" for e, f in zip(expected, found) if str(e) != str(f)
    )


def count_of(n: int, noun: str) -> str:
    return f"{n} {noun}" + ("" if n == 1 else "s")


def known_span(*spans: Span) -> Span:
    return next((s for s in spans if s != UNKNOWN), UNKNOWN)


def at_place(span: Span) -> str:
    return f" at {span}" if span.line or span.name else ""

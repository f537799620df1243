"""Equality of types and dimensions: types with holes, joined and related; dimensions by a substitution of
symbols.

`relate(expected, actual)` makes `actual` usable where `expected` is asked for. It fills holes and lists the
pairs of dimensions that must be equal; `solve` then finds values for the flexible symbols among them. Type
arguments of ADTs are covariant (ADTs are immutable): there `?` stands for "any size", and a hole that was
filled with two sizes widens to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.ir.types import ADTType, FuncType, RefType, TensorType, TupleType, Type, TypeVar

ANY = Symbol("?")
FLEXIBLE = "'"  # first character of the names of symbols that `solve` may choose


class Hole(Type):
    """A type that is not known yet. Compared by identity."""

    __slots__ = ("type", "frozen")

    def __init__(self) -> None:
        self.type: Type | None = None
        self.frozen = False  # somebody relies on the present filling: it may not widen any more

    def __str__(self) -> str:
        return "_" if self.type is None else str(self.type)


class Mismatch(Exception):  # noqa: N818 - never leaves this package
    """Two types that cannot be the same; `detail` says in which respect."""

    def __init__(self, expected: Type, actual: Type, detail: str):
        super().__init__(detail)
        self.expected, self.actual, self.detail = expected, actual, detail


Pairs = list[tuple[Dim, Dim]]


def resolve(t: Type) -> Type:
    """The type with its outermost holes followed."""
    while isinstance(t, Hole) and t.type is not None:
        t = t.type
    return t


def map_type(t: Type, dim: Callable[[Dim], Dim], leaf: Callable[[Type], Type] = lambda t: t) -> Type:
    """A type with dimensions and leaves (variables, unfilled holes) replaced; filled holes are followed."""
    t = resolve(t)
    match t:
        case TensorType(shape=shape, dtype=dtype):
            new = tuple(dim(d) for d in shape)
            return t if all(a is b for a, b in zip(new, shape)) else TensorType(new, dtype)
        case TupleType(fields=fields):
            return TupleType(tuple(map_type(f, dim, leaf) for f in fields))
        case FuncType(args=args, result=result, type_params=params):
            new_args = tuple(map_type(a, dim, leaf) for a in args)
            return FuncType(new_args, map_type(result, dim, leaf), params)
        case ADTType(name=name, args=args):
            return ADTType(name, tuple(map_type(a, dim, leaf) for a in args)) if args else t
        case RefType(value=value):
            return RefType(map_type(value, dim, leaf))
    return leaf(t)


def instantiate(t: Type, variables: Mapping[TypeVar, Type]) -> Type:
    """Type variables replaced."""
    return (
        map_type(t, lambda d: d, lambda v: variables.get(v, v) if isinstance(v, TypeVar) else v)
        if variables
        else t
    )


def has_hole(t: Type) -> bool:
    """Whether any hole, filled or not, occurs."""
    todo = [t]
    while todo:
        match todo.pop():
            case Hole():
                return True
            case TupleType(fields=parts) | ADTType(args=parts):
                todo.extend(parts)
            case FuncType(args=args, result=result):
                todo += [*args, result]
            case RefType(value=value):
                todo.append(value)
    return False


def freeze(t: Type) -> None:
    """From now on the holes of t keep what they are filled with."""
    todo = [t]
    while todo:
        match todo.pop():
            case Hole() as hole:
                hole.frozen = hole.frozen or hole.type is not None
                if hole.type is not None:
                    todo.append(hole.type)
            case TupleType(fields=parts) | ADTType(args=parts):
                todo.extend(parts)
            case FuncType(args=args, result=result):
                todo += [*args, result]
            case RefType(value=value):
                todo.append(value)


def relate(expected: Type, actual: Type, pairs: Pairs, *, inner: bool = False) -> None:
    """Make `actual` fit `expected`: fill holes, append to `pairs` the dimensions that must be equal; or
    Mismatch.
    """
    if isinstance(expected, Hole) and expected.type is not None and not expected.frozen:
        if _last(expected) is not _last(actual):
            _widen(expected, actual, pairs)
        return
    expected, actual = resolve(expected), resolve(actual)
    if expected is actual:
        return
    match expected, actual:
        case Hole(), _:
            _fill(expected, actual)
        case _, Hole():
            _fill(actual, expected)
        case TensorType(), TensorType():
            _same_kind(expected, actual)
            for e, a in zip(expected.shape, actual.shape):
                if e == ANY:
                    continue
                if a == ANY and inner:
                    raise Mismatch(
                        expected, actual, f"a size that may differ from element to element is not always {e}"
                    )
                if e != a:
                    pairs.append((e, a))
        case TupleType(fields=es), TupleType(fields=actuals):
            if len(es) != len(actuals):
                raise Mismatch(expected, actual, f"{len(es)} and {len(actuals)} fields")
            for e, a in zip(es, actuals):
                relate(e, a, pairs, inner=inner)
        case ADTType(), ADTType():
            if expected.name != actual.name or len(expected.args) != len(actual.args):
                raise Mismatch(expected, actual, f"{expected.name} and {actual.name} are different types")
            for e, a in zip(expected.args, actual.args):
                relate(e, a, pairs, inner=True)
        case RefType(value=e), RefType(value=a):
            relate(e, a, pairs, inner=True)
            relate(a, e, pairs, inner=True)
        case FuncType(), FuncType():
            _relate_functions(expected, actual, pairs)
        case _:
            if expected != actual:
                raise Mismatch(expected, actual, "they are different kinds of type")


def join(a: Type, b: Type, differ: Callable[[Dim, Dim], Dim]) -> Type:
    """The type of a value that is one of two: dimensions that differ become `differ(one, other)`, inside ADTs
    `?`.
    """
    if a is b:
        return a
    ra, rb = resolve(a), resolve(b)
    match ra, rb:
        case Hole(), _:
            _fill(ra, rb)
            return b
        case _, Hole():
            _fill(rb, ra)
            return a
        case TensorType(), TensorType():
            _same_kind(ra, rb)
            return TensorType(
                tuple(x if x == y else differ(x, y) for x, y in zip(ra.shape, rb.shape)), ra.dtype
            )
        case TupleType(fields=xs), TupleType(fields=ys):
            if len(xs) != len(ys):
                raise Mismatch(ra, rb, f"{len(xs)} and {len(ys)} fields")
            return TupleType(tuple(join(x, y, differ) for x, y in zip(xs, ys)))
        case ADTType(), ADTType() if ra.name == rb.name and len(ra.args) == len(rb.args):
            return ADTType(ra.name, tuple(join(x, y, _any_size) for x, y in zip(ra.args, rb.args)))
    pairs: Pairs = []
    relate(ra, rb, pairs, inner=True)
    if any(x != y for x, y in pairs):
        raise Mismatch(ra, rb, "functions and references must agree in every dimension")
    return ra


def _any_size(_a: Dim, _b: Dim) -> Dim:
    return ANY


def _last(t: Type) -> Type:
    """The last hole of a chain of holes, or the type itself."""
    while isinstance(t, Hole) and isinstance(t.type, Hole):
        t = t.type
    return t


def _widen(expected: Hole, actual: Type, pairs: Pairs) -> None:
    hole = _last(expected)
    assert isinstance(hole, Hole)
    if hole.type is None:
        _fill(hole, actual)
    elif hole.frozen:
        relate(hole.type, actual, pairs, inner=True)
    else:
        hole.type = join(hole.type, actual, _any_size)


def _fill(hole: Type, t: Type) -> None:
    assert isinstance(hole, Hole) and hole.type is None
    t = _last(t)
    if t is hole:
        return
    todo = [t]
    while todo:
        part = todo.pop()
        if part is hole:
            raise Mismatch(hole, t, "a type cannot contain itself")
        match part:
            case Hole(type=inside) if inside is not None:
                todo.append(inside)
            case TupleType(fields=parts) | ADTType(args=parts):
                todo.extend(parts)
            case FuncType(args=args, result=result):
                todo += [*args, result]
            case RefType(value=value):
                todo.append(value)
    hole.type = t


def _same_kind(a: TensorType, b: TensorType) -> None:
    if a.rank != b.rank:
        raise Mismatch(a, b, f"rank {a.rank} is not rank {b.rank}")
    if a.dtype != b.dtype:
        raise Mismatch(a, b, f"{a.dtype} is not {b.dtype}")


def _relate_functions(expected: FuncType, actual: FuncType, pairs: Pairs) -> None:
    if len(expected.args) != len(actual.args):
        raise Mismatch(expected, actual, f"{len(expected.args)} and {len(actual.args)} parameters")
    variables: dict[TypeVar, Type] = {v: Hole() for v in actual.type_params}
    for e, a in zip(expected.args, actual.args):
        relate(instantiate(a, variables), e, pairs, inner=True)
    relate(expected.result, instantiate(actual.result, variables), pairs, inner=True)


def with_sizes(declared: Type, found: Type) -> Type:
    """The declared type of a result, with the sizes that it leaves open (`?`) as they were found."""
    declared, found = resolve(declared), resolve(found)
    match declared, found:
        case TensorType(), TensorType():
            return TensorType(
                tuple(f if d == ANY else d for d, f in zip(declared.shape, found.shape)), declared.dtype
            )
        case TupleType(), TupleType():
            return TupleType(tuple(with_sizes(d, f) for d, f in zip(declared.fields, found.fields)))
    return declared


def map_top(t: Type, step) -> Type:
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


def named_leaves(t: Type, path: str = "") -> list[tuple[str, TensorType]]:
    if isinstance(t, TensorType):
        return [(path, t)]
    return (
        [x for i, f in enumerate(t.fields) for x in named_leaves(f, f"{path}.{i}")]
        if isinstance(t, TupleType)
        else []
    )


def renamer(own: set[str]):
    env = {s: Symbol(FLEXIBLE + s) for s in own}
    return lambda d: d.subst(env)


def is_flexible(d: Dim) -> bool:
    return any(s.startswith(FLEXIBLE) for s in d.symbols())


# ---- dimensions --------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Equalities:
    """What is assumed equal: a substitution of symbols, idempotent. `order`: symbols made later give way to
    earlier ones.
    """

    env: dict[str, Dim] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)

    def canonical(self, d: Dim) -> Dim:
        return d.subst(self.env) if self.env else d

    def assume(self, a: Dim, b: Dim) -> None:
        """Use one representative from now on, where one side is a bare symbol that the other does not
        contain.
        """
        a, b = self.canonical(a), self.canonical(b)
        candidates = [
            (s, other) for s, other in ((a.symbol, b), (b.symbol, a)) if s and s not in other.symbols()
        ]
        candidates = [(s, d) for s, d in candidates if all(self._age(s) >= self._age(x) for x in d.symbols())]
        if not candidates:
            return
        symbol, d = max(candidates, key=lambda c: self._age(c[0]))
        for name, old in self.env.items():
            self.env[name] = old.subst({symbol: d})
        self.env[symbol] = d

    def _age(self, symbol: str) -> int:
        return self.order.get(symbol, 0)


def solve(pairs: Iterable[tuple[Dim, Dim]]) -> tuple[dict[str, Dim], list[tuple[Dim, Dim]]]:
    """Values for the flexible symbols in pairs of equal dimensions, and the pairs that remain to be shown
    equal.
    """
    env: dict[str, Dim] = {}
    todo = list(pairs)
    for linear in (False, True):  # bare symbols first: `n` before `2*n + 1`
        rest: list[tuple[Dim, Dim]] = []
        for a, b in todo:
            a, b = a.subst(env), b.subst(env)
            solution = _solve_one(a, b, linear)
            if solution is None:
                rest.append((a, b))
                continue
            name, d = solution
            env = {k: v.subst({name: d}) for k, v in env.items()}
            env[name] = d
            if linear:
                rest.append((a, b))
        todo = rest
    left = [(a.subst(env), b.subst(env)) for a, b in todo]
    return env, [(a, b) for a, b in left if a != b]


def _solve_one(a: Dim, b: Dim, linear: bool) -> tuple[str, Dim] | None:
    for x, y in ((a, b), (b, a)):
        s = x.symbol
        if s and s.startswith(FLEXIBLE) and s not in y.symbols():
            return s, y
    if linear:
        difference = a - b
        for s in sorted(difference.symbols()):
            c = difference.coefficient(s) if s.startswith(FLEXIBLE) else None
            if c is not None and c.is_const and c.value:
                rest = (
                    (as_dim(0) - (difference - c * Symbol(s))) if c.value > 0 else difference - c * Symbol(s)
                )
                return s, rest // abs(c.value)
    return None

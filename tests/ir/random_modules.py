"""Random well-scoped modules for hypothesis: they need not type-check, only print, parse, compare and verify."""

import numpy as np
from hypothesis import strategies as st

from intarsia.dim import Symbol, dmax, dmin
from intarsia.ir import (
    ADT,
    ADTType,
    Call,
    Clause,
    Constant,
    Constructor,
    ConstructorRef,
    Function,
    FuncType,
    GlobalVar,
    If,
    IRModule,
    Let,
    Match,
    OpRef,
    PConstructor,
    PTuple,
    PVar,
    RefNew,
    RefRead,
    RefType,
    RefWrite,
    Tuple,
    TupleGet,
    TupleType,
    TypeVar,
    Var,
    Wildcard,
    tensor,
)  # fmt: skip
from intarsia.ir.types import DTYPES
from intarsia.op.entry import numpy_dtype

T = TypeVar("T")
LIST = ADT("List", (T,), (Constructor("Cons", (T, ADTType("List", (T,))), 0), Constructor("Nil", (), 1)))
NAMES = ["x", "y_1", "_", "input.1", "0", "a b", 'say "hi"', "naïve", "/layer/0"]
SYMBOLS = [Symbol(s) for s in ("n", "m", "batch size", "min", "True", "?")]


def _dim(draw):
    a, b = draw(st.sampled_from(SYMBOLS)), draw(st.sampled_from(SYMBOLS[:5]))
    k = draw(st.integers(-3, 9))
    return draw(
        st.sampled_from(
            [a, a + k, k * a * b - b, a // 3, (a + 1) % 4, dmin(a, b + k), dmax(a * a, 2), a * 0 + k]
        )
    )


def _type(draw, depth=2):
    kind = draw(st.integers(0, 5 if depth else 0))
    if kind == 1:
        return TupleType(tuple(_type(draw, depth - 1) for _ in range(draw(st.integers(0, 3)))))
    if kind == 2:
        return FuncType((_type(draw, depth - 1),), _type(draw, depth - 1))
    if kind == 3:
        return ADTType("List", (_type(draw, depth - 1),))
    if kind == 4:
        return RefType(_type(draw, depth - 1))
    return tensor([_dim(draw) for _ in range(draw(st.integers(0, 3)))], draw(st.sampled_from(DTYPES)))


def _constant(draw):
    shape = draw(st.sampled_from([(), (1,), (3,), (2, 3), (0, 2), (1, 1, 1), (65,)]))
    dtype = numpy_dtype(draw(st.sampled_from(DTYPES)))
    bits = np.random.default_rng(draw(st.integers(0, 99))).integers(
        0, 255, int(np.prod(shape)) * dtype.itemsize, np.uint8
    )
    values = (bits & 1).view(bool) if dtype.kind == "b" else bits.view(dtype)
    return Constant(values.reshape(shape).copy())


def _attr(draw, depth=2):
    leaf = st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63), st.floats(), st.text(max_size=5))
    kind = draw(st.integers(0, 4 if depth else 2))
    if kind == 0:
        return _dim(draw)
    return tuple(_attr(draw, depth - 1) for _ in range(draw(st.integers(0, 3)))) if kind > 2 else draw(leaf)


def _attrs(draw):
    return {
        k: _attr(draw)
        for k in draw(st.sets(st.sampled_from(["axis", "type", "mode", "in", "shape"]), max_size=2))
    }


def _var(draw):
    return Var(draw(st.sampled_from(NAMES)), _type(draw) if draw(st.booleans()) else None)


def _body(draw, scope, depth):
    """A graph over the expressions in scope: each new node may use any earlier one, so sharing is common."""
    nodes = list(scope)
    pick = lambda: draw(st.sampled_from(nodes)) if nodes else _constant(draw)  # noqa: E731
    for _ in range(draw(st.integers(1, 5))):
        nodes.append(_node(draw, pick, nodes, depth))
    result = nodes[-1]
    if depth and draw(st.booleans()):
        var = _var(draw)
        value = _function(draw, [*scope, var], depth - 1) if draw(st.booleans()) else result
        result = Let(var, value, _body(draw, [*scope, var], depth - 1))
    return result


def _function(draw, scope, depth):
    params = tuple(_var(draw) for _ in range(draw(st.integers(0, 2))))
    result = _type(draw) if draw(st.booleans()) else None
    variables = (T,) if draw(st.booleans()) else ()
    return Function(params, _body(draw, [*scope, *params], depth), result, variables, _attrs(draw))


def _node(draw, pick, scope, depth):
    match draw(st.integers(0, 12 if depth else 6)):
        case 0:
            return _constant(draw)
        case 1:
            return Tuple(tuple(pick() for _ in range(draw(st.integers(0, 3)))))
        case 2:
            return TupleGet(pick(), draw(st.integers(0, 3)))
        case 3:
            op = draw(
                st.sampled_from(
                    [GlobalVar("main"), GlobalVar("odd name"), ConstructorRef("Cons"), OpRef("add")]
                )
            )
            return Call(op, (pick(), pick()), _attrs(draw))
        case 4:
            return Call(pick(), (pick(),))
        case 7:
            return If(pick(), _body(draw, scope, depth - 1), _body(draw, scope, depth - 1))
        case 8:
            return _function(draw, scope, depth - 1)
        case 9:
            a, b = _var(draw), _var(draw)
            clauses = (
                Clause(
                    PConstructor("Cons", (PVar(a), PTuple((PVar(b), Wildcard())))),
                    _body(draw, [*scope, a, b], depth - 1),
                ),
                Clause(PConstructor("Nil"), _body(draw, scope, depth - 1)),
                Clause(Wildcard(), pick()),
            )
            return Match(pick(), clauses)
        case 10:
            return RefNew(pick())
        case 11:
            return RefRead(pick())
        case 12:
            return RefWrite(pick(), pick())
    return Call(OpRef(draw(st.sampled_from(["exp", "nn.conv"]))), (pick(),), _attrs(draw))


class Drawn:
    """A module that a failing test shows as text."""

    def __init__(self, module: IRModule):
        self.module = module

    def __repr__(self) -> str:
        return str(self.module)


@st.composite
def modules(draw):
    functions = {"main": _function(draw, [], 2), "odd name": _function(draw, [], 1)}
    m = IRModule(functions, {"List": LIST}, input_names=("a b",), output_names=("y",))
    m.bounds.known.update({"n": (1, 512), "batch size": (0, float("inf"))})
    return Drawn(m)

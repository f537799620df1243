"""If, Loop and Scan. A loop becomes a global function that calls itself last:

    def @loop_0(%i, %trip, %cond, %state: Tensor[(n,), float32], %scan: …, %captured: …) -> (…) {
      if (logical_and(%cond, less(%i, %trip))) {
        …body…
        @loop_0(%i + 1, %trip, cond', state', concatenate(%scan, out), %captured)
      } else { (%state, %scan) }
    }

What the body uses from outside becomes parameters. Sizes of states that the body changes become sizes of
their own, found by converting the body again until nothing more changes. Results of all iterations are joined
one at a time, which copies what is there already (quadratic in the number of iterations).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.frontend.onnx.scope import Lifted, Scope
from intarsia.frontend.onnx.types import join
from intarsia.ir.expr import Call, Expr, Function, GlobalVar, If, OpRef, Tuple, TupleGet, Var
from intarsia.ir.types import TensorType, TupleType
from intarsia.support.errors import ModelError

if TYPE_CHECKING:
    from onnx import GraphProto

_ANY = Symbol("?")
_FOREVER = np.iinfo(np.int64).max
_JOINS = ("concatenate", "expand_dims", "full", "shape_of", "less", "add")


# ---- If ----------------------------------------------------------------------------------------------------
@converts("If")
def _if(b: Builder, node: Node) -> tuple[Expr, ...]:
    """A condition that is known (it often asks for a rank) picks its branch; the other need not even fit."""
    cond = b.scalar(node.arg(0))
    known = b.types.contents(cond)
    if known is not None and as_dim(known.item()).is_const:
        return tuple(_branch(b, node, "then_branch" if as_dim(known.item()) != 0 else "else_branch"))
    then, orelse = _branch(b, node, "then_branch"), _branch(b, node, "else_branch")
    if len(then) != len(orelse):
        raise ModelError(
            "ONNX-011", f"the branches give {len(then)} and {len(orelse)} results", where=node.where
        )
    for i, (x, y) in enumerate(zip(then, orelse)):
        if join(b.types.of(x), b.types.of(y), lambda: _ANY) is None:
            squeezed = _checked_by_squeeze(b, cond, x) if len(then) == 1 else None
            if squeezed is not None:
                return (squeezed,)
            raise node.unsupported(
                f"its branches give result {i + 1} different types: {b.types.of(x)} and {b.types.of(y)}",
                remedy="export the model so that ranks do not depend on the input",
            )
    if len(then) == 1:
        return (If(cond, then[0], orelse[0], span=b.span),)
    whole = If(cond, Tuple(tuple(then), span=b.span), Tuple(tuple(orelse), span=b.span), span=b.span)
    return tuple(TupleGet(whole, i, span=b.span) for i in range(len(then)))


def _branch(b: Builder, node: Node, name: str) -> list[Expr]:
    outer, span = b.scope, b.span
    assert outer is not None
    scope = outer.inner(None, f"{_step(node)}.{name}")
    results = b.importer.graph(node.graph(name), scope)
    b.scope, b.span = outer, span
    if len(results) < len(node.outputs):
        message = f"the {name} gives {len(results)} results where {len(node.outputs)} are needed"
        raise ModelError("ONNX-011", message, where=node.where)
    return results


def _checked_by_squeeze(b: Builder, cond: Expr, then: Expr) -> Expr | None:
    """`if (size == 1) squeeze(x) else x` has no static rank. The squeeze alone checks the size when it runs.

    The other branch, of another rank, is given up: a size that would take it is refused with an error.
    """
    while isinstance(cond, Call) and isinstance(cond.op, OpRef) and cond.op.name == "reshape":
        cond = cond.args[0]
    if not (_calls(cond, "equal") and _calls(then, "squeeze")):
        return None
    assert isinstance(cond, Call) and isinstance(then, Call)
    sides = [b.types.contents(a) for a in cond.args]
    axes = then.attrs.get("axes")
    if any(s is None or s.size != 1 for s in sides) or not isinstance(axes, tuple) or len(axes) != 1:
        return None
    left, right = (as_dim(s.item()) for s in sides if s is not None)
    shape = b.type(then.args[0]).shape
    asked = {left, right} == {as_dim(1), shape[int(axes[0])]}  # type: ignore[arg-type]
    return then if asked else None


def _calls(e: Expr, op: str) -> bool:
    return isinstance(e, Call) and isinstance(e.op, OpRef) and e.op.name == op


def _step(node: Node) -> str:
    return next((o for o in node.outputs if o), node.span.name)


# ---- loops in general --------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Body:
    """A loop's body as a function: its parameters for the states, and the results of one iteration."""

    lifted: Lifted
    initial: list[Expr]
    states: list[Var]
    results: list[Expr]
    varying: set[tuple[int, int]]


def _convert_body(
    b: Builder,
    node: Node,
    graph: GraphProto,
    initial: list[Expr],
    first: int,
    bind: Callable[[Scope, Lifted, list[Var]], None],
) -> _Body:
    """The body with states' types that hold for every iteration; result `first` of the graph is the first
    state.
    """
    outer, importer = b.scope, b.importer
    assert outer is not None
    step = _step(node)
    varying = importer.varying.setdefault((*outer.path, step), set())
    name = b.function_name(node.op.lower())
    while True:
        functions, taken = dict(b.functions), set(b.taken_names)
        lifted = Lifted(name)
        states = [_state(b, lifted, f"{name}_s{i}", e, i, varying) for i, e in enumerate(initial)]
        scope = outer.inner(lifted, step)
        bind(scope, lifted, states)
        results = importer.graph(graph, scope)
        b.scope, b.span = outer, node.span
        changed = _changed(b, node, states, results[first : first + len(states)]) - varying
        if not changed:
            return _Body(lifted, initial, states, results, varying)
        varying |= changed
        b.functions, b.taken_names = functions, taken


def _state(
    b: Builder, lifted: Lifted, name: str, initial: Expr, i: int, varying: set[tuple[int, int]]
) -> Var:
    t = lifted.local(b.type(initial))
    shape = tuple(Symbol(f"{name}_{axis}") if (i, axis) in varying else d for axis, d in enumerate(t.shape))
    return Var(name, TensorType(shape, t.dtype), span=b.span)


def _changed(b: Builder, node: Node, states: list[Var], results: list[Expr]) -> set[tuple[int, int]]:
    """(state, axis) of the sizes that one iteration may change."""
    found: set[tuple[int, int]] = set()
    for i, (p, e) in enumerate(zip(states, results)):
        before, after = b.type(p), b.type(e)
        if before.rank != after.rank or before.dtype != after.dtype:
            raise node.unsupported(f"state {i + 1} is a {before} before an iteration and a {after} after it")
        found |= {(i, axis) for axis, (x, y) in enumerate(zip(before.shape, after.shape)) if x != y}
    return found


@dataclass(slots=True)
class _Gathered:
    """A result of all iterations: the parameter with those so far, its start, its value after one more."""

    param: Var
    start: Expr
    grown: Expr
    result: TensorType


def _gather(
    b: Builder, body: _Body, number: int, index: Expr, piece: Expr, axis: int, prepend: bool
) -> _Gathered:
    """Sizes that are arguments' sizes are known before the first iteration; others are set by it."""
    name, t = f"{body.lifted.name}_all{number}", b.type(piece)
    axis = axis + t.rank + 1 if axis < 0 else axis
    sources = _sources(body)
    known = all(d.is_const or d.symbol in sources for d in t.shape)
    sizes = [d if d.is_const or d.symbol in sources else Symbol(f"{name}_{k}") for k, d in enumerate(t.shape)]
    shape = [*sizes[:axis], Symbol(f"{name}_n"), *sizes[axis:]]
    param = Var(name, TensorType(tuple(shape), t.dtype), span=b.span)
    one = b.op("expand_dims", piece, axes=(axis,))
    pair = (one, param) if prepend else (param, one)
    grown: Expr = b.op("concatenate", *pair, axis=axis)
    if not known:
        grown = If(b.op("equal", index, b.const(0, "int64")), one, grown, span=b.span)
    parts: list[Expr] = []
    for d in shape:
        if d.is_const:
            parts.append(b.ints([d.value]))
        elif d.symbol in sources:
            outer, place = sources[d.symbol]
            parts.append(b.op("shape_of", outer, start=place, end=place + 1))
        else:
            parts.append(b.ints([0]))
    start = b.op("full", b.op("concatenate", *parts, axis=0), b.const(0, t.dtype))
    result = tuple(
        _ANY if k == axis or not d.is_const and d.symbol not in sources else d for k, d in enumerate(shape)
    )
    return _Gathered(param, start, grown, TensorType(result, t.dtype))


def _sources(body: _Body) -> dict[str | None, tuple[Expr, int]]:
    """Where outside the function the sizes that all iterations share can be read: symbol -> (value, axis)."""
    found: dict[str | None, tuple[Expr, int]] = {}
    for i, (outer, param) in enumerate([*zip(body.initial, body.states), *body.lifted.captures.values()]):
        assert isinstance(param.type, TensorType)
        for axis, d in enumerate(param.type.shape):
            if d.symbol and (i, axis) not in body.varying:
                found.setdefault(d.symbol, (outer, axis))
    return found


def _close(
    b: Builder,
    body: _Body,
    controls: list[tuple[Var, Expr, Expr]],
    next_states: list[Expr],
    gathered: list[_Gathered],
    go_on: Expr,
) -> list[Expr]:
    """Define the function and call it. controls: (parameter, first value, next value)."""
    name, captures = body.lifted.name, list(body.lifted.captures.values())
    params = [c[0] for c in controls] + body.states + [g.param for g in gathered] + [p for _, p in captures]
    again = [c[2] for c in controls] + next_states + [g.grown for g in gathered] + [p for _, p in captures]
    first = (
        [c[1] for c in controls]
        + body.initial
        + [g.start for g in gathered]
        + [outer for outer, _ in captures]
    )
    done = Tuple(tuple(body.states) + tuple(g.param for g in gathered), span=b.span)
    repeat = Call(GlobalVar(name, span=b.span), tuple(again), span=b.span)
    results = [_result(p, i, body.varying) for i, p in enumerate(body.states)] + [g.result for g in gathered]
    b.functions[name] = Function(
        tuple(params), If(go_on, repeat, done, span=b.span), TupleType(tuple(results)), span=b.span
    )
    call = Call(GlobalVar(name, span=b.span), tuple(first), span=b.span)
    b.types.set(call, TupleType(tuple(_seen_outside(b, r, params, first) for r in results)))
    return [TupleGet(call, i, span=b.span) for i in range(len(results))]


def _result(p: Var, i: int, varying: set[tuple[int, int]]) -> TensorType:
    assert isinstance(p.type, TensorType)
    shape = tuple(_ANY if (i, axis) in varying else d for axis, d in enumerate(p.type.shape))
    return TensorType(shape, p.type.dtype)


def _seen_outside(b: Builder, t: TensorType, params: list[Var], args: list[Expr]) -> TensorType:
    """A type of the function's result in the caller's symbols."""
    env: dict[str, Dim] = {}
    for p, a in zip(params, args):
        assert isinstance(p.type, TensorType)
        for inner, outer in zip(p.type.shape, b.type(a).shape):
            if inner.symbol:
                env.setdefault(inner.symbol, outer)
    return TensorType(tuple(b.types.symbol("loop") if d == _ANY else d.subst(env) for d in t.shape), t.dtype)


# ---- Loop --------------------------------------------------------------------------------------------------
@converts("Loop", needs=(*_JOINS, "logical_and"))
def _loop(b: Builder, node: Node) -> tuple[Expr, ...]:
    graph = node.graph("body")
    trip, cond = node.maybe(0), node.maybe(1)
    initial = [node.arg(i) for i in range(2, len(node.args))]
    count = len(initial)
    _expect(node, graph, inputs=2 + count, results=1 + count)
    trip = b.cast(b.scalar(trip), "int64") if trip is not None else b.const(_FOREVER, "int64")
    cond = b.scalar(cond) if cond is not None else b.const(True, "bool")
    scalar = TensorType((), "int64")
    i, n, on = (
        Var("i", scalar, span=b.span),
        Var("trip", scalar, span=b.span),
        Var("cond", TensorType((), "bool"), span=b.span),
    )

    def bind(scope: Scope, lifted: Lifted, states: list[Var]) -> None:
        scope.values.update(zip((x.name for x in graph.input), (i, on, *states)))

    body = _convert_body(b, node, graph, initial, 1, bind)
    pieces = body.results[1 + count :]
    gathered = [_gather(b, body, k, i, e, 0, False) for k, e in enumerate(pieces)]
    step = b.op("add", i, b.const(1, "int64"))
    controls: list[tuple[Var, Expr, Expr]] = [
        (i, b.const(0, "int64"), step), (n, trip, n), (on, cond, b.scalar(body.results[0])),
    ]  # fmt: skip
    go_on = b.op("logical_and", on, b.op("less", i, n))
    return tuple(_close(b, body, controls, body.results[1 : 1 + count], gathered, go_on))


def _expect(node: Node, graph: GraphProto, inputs: int, results: int) -> None:
    if len(graph.input) != inputs or len(graph.output) < results:
        has = f"the body has {len(graph.input)} inputs and {len(graph.output)} outputs"
        message = f"{has}; {inputs} and at least {results} are needed"
        raise ModelError("ONNX-011", message, where=node.where)


# ---- Scan --------------------------------------------------------------------------------------------------
def _scan_limit(node: Node) -> str | None:
    return "operator set 8" if node.version < 9 else None


@converts("Scan", needs=(*_JOINS, "take", "subtract"), limit=_scan_limit)
def _scan(b: Builder, node: Node) -> tuple[Expr, ...]:
    graph, scanned = node.graph("body"), node.int("num_scan_inputs")
    count = len(node.args) - scanned
    if scanned < 1 or count < 0:
        raise ModelError(
            "ONNX-011", f"num_scan_inputs is {scanned} with {len(node.args)} inputs", where=node.where
        )
    _expect(node, graph, inputs=len(node.args), results=count)
    initial, xs = [node.arg(i) for i in range(count)], [node.arg(count + i) for i in range(scanned)]
    joined = len(graph.output) - count
    axes = [b.axis(a, x) for a, x in zip(_per(node, "scan_input_axes", scanned), xs)]
    backwards = _per(node, "scan_input_directions", scanned)
    out_axes, out_backwards = (
        _per(node, "scan_output_axes", joined),
        _per(node, "scan_output_directions", joined),
    )
    scalar = TensorType((), "int64")
    i, n = Var("i", scalar, span=b.span), Var("n", scalar, span=b.span)
    one = b.const(1, "int64")
    last = b.op("subtract", b.op("subtract", n, one), i)

    def bind(scope: Scope, lifted: Lifted, states: list[Var]) -> None:
        names = [x.name for x in graph.input]
        scope.values.update(zip(names, states))
        for name, x, axis, back in zip(names[count:], xs, axes, backwards):
            inside = lifted.capture(b, x, name)
            scope.values[name] = b.op("take", inside, last if back else i, axis=axis)

    body = _convert_body(b, node, graph, initial, 0, bind)
    gathered = [
        _gather(b, body, k, i, e, out_axes[k], bool(out_backwards[k]))
        for k, e in enumerate(body.results[count:])
    ]
    size = b.scalar(b.op("shape_of", xs[0], start=axes[0], end=axes[0] + 1))
    controls: list[tuple[Var, Expr, Expr]] = [(i, b.const(0, "int64"), b.op("add", i, one)), (n, size, n)]
    return tuple(_close(b, body, controls, body.results[:count], gathered, b.op("less", i, n)))


def _per(node: Node, name: str, count: int) -> tuple[int, ...]:
    """An attribute with one integer an input or output; all 0 where it is not given."""
    given = node.ints(name, None) or (0,) * count
    if len(given) != count:
        raise ModelError("ONNX-017", f"{name} must have {count} numbers, not {len(given)}", where=node.where)
    return given

"""Runs an operator's compute definition by the meaning of the loop language and compares the references.

Each stage becomes plain loops, written out here in the simplest way; `kernel/evaluate.py` runs them one
scalar at a time and refuses accesses out of bounds and reads of what nothing has written. Opaque
computations run as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.dim.bounds import Bounds
from intarsia.ir.types import TensorType, TupleType
from intarsia.kernel.compute import Opaque, Stage, fresh, placeholder
from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.kernel.expr import Binary, Buffer, Index, Reduce, identity_of
from intarsia.kernel.stmt import Allocate, For, If, Kernel, Stmt, block, store
from intarsia.kernel.target import Target
from intarsia.op import Arg, Item, Site, get

COMBINE = {"sum": "add", "prod": "mul", "any": "or", "all": "and", "min": "min", "max": "max"}


def run_stages(
    outputs: list[Buffer], inputs: list[Buffer], arrays: list[np.ndarray], symbols: dict[str, int]
) -> list:
    """The contents of the output buffers."""
    order: list[Buffer] = []
    made: set[int] = {id(b) for b in inputs}
    statements: list[Stmt] = []
    workspaces: list[Buffer] = []
    opaque_outputs: dict[int, tuple[Buffer, ...]] = {}

    def need(b: Buffer) -> None:
        if id(b) in made:
            return
        match b.producer:
            case Stage() as stage:
                for source in stage.inputs:
                    need(source)
                made.add(id(b))
                order.append(b)
                statements.append(loops_of(b, stage))
            case Opaque() as op:
                for source in op.inputs:
                    need(source)
                if id(op) not in opaque_outputs:
                    results = tuple(Buffer(f"{op.name}.{i}", s, t) for i, (s, t) in enumerate(op.outputs))
                    scratch = [Buffer(f"{op.name}.s{i}", s, t) for i, (s, t) in enumerate(op.scratch)]
                    workspaces.extend(scratch)
                    opaque_outputs[id(op)] = results
                    statements.append(op.build(Target(), op.inputs, results, scratch))
                    workspaces.extend(results)
                made.add(id(b))
                result = opaque_outputs[id(op)][int(b.name.rpartition(".")[2])]
                names = [fresh("c") for _ in b.shape]
                here = [Symbol(n) for n in names]
                statements.append(around(names, b.shape, store(b, here, result[tuple(here)])))
                order.append(b)

    for b in outputs:
        need(b)
    inner = [b for b in order if all(b is not o for o in outputs)]
    body = block(*statements) if statements else block()
    kernel = Kernel("test", tuple(inputs), tuple(outputs), (*inner, *workspaces), tuple(symbols), body)
    results = evaluate_kernel(kernel, arrays, symbols)
    backwards = evaluate_kernel(kernel, arrays, symbols, backwards=True)
    for one, other in zip(results, backwards):
        assert one.tobytes() == other.tobytes(), "iterations of a parallel loop depend on each other"
    return results


def around(names, shape, statement: Stmt) -> Stmt:
    for name, d in reversed(list(zip(names, shape))):
        statement = For(name, d, statement)
    return statement


def loops_of(b: Buffer, stage: Stage) -> Stmt:
    here = [Symbol(a) for a in stage.axes]
    body = stage.body
    if not isinstance(body, Reduce):
        return around(stage.axes, b.shape, store(b, here, body))
    names, extents = [a.var for a in body.axes], [a.extent for a in body.axes]
    acc = Buffer("acc", (as_dim(1),), body.body.dtype, "stack")
    if body.op in COMBINE:
        update = store(acc, [0], Binary(COMBINE[body.op], acc[0], body.body))
        init = store(acc, [0], identity_of(body.op, acc.dtype))
        inner: Stmt = block(init, around(names, extents, update), store(b, here, acc[0]))
        return around(stage.axes, b.shape, Allocate(acc, inner))
    (k,) = names
    better = body.body > acc[0] if body.op == "argmax" else body.body < acc[0]
    first = Index(Symbol(k)).equals(0)
    found = block(store(acc, [0], body.body), store(b, here, Index(Symbol(k))))
    search = For(k, extents[0], If(first, found, If(better, found)))
    return around(stage.axes, b.shape, Allocate(acc, search))


@dataclass
class Case:
    """One call of an operator: arrays (None: missing), attributes, and what the rule is told.

    symbols: argument -> names of its dimensions, None for a constant one: {0: ('n', None)}
    values:  arguments whose contents the rule knows (all integer `value_args` unless given)
    """

    name: str
    arrays: list
    attrs: dict = field(default_factory=dict)
    symbols: dict[int, tuple] = field(default_factory=dict)
    values: tuple[int, ...] | None = None


def dims(shape, names) -> tuple[Dim, ...]:
    names = names or (None,) * len(shape)
    return tuple(as_dim(d) if n is None else Symbol(n) for d, n in zip(shape, names, strict=True))


def contents(array) -> np.ndarray:
    out = np.empty(np.shape(array), object)
    for place in np.ndindex(*out.shape):
        out[place] = as_dim(int(array[place]))
    return out


def site_of(case: Case) -> tuple[Site, dict[str, int]]:
    """The site after its rule has run, and the symbols' values; every check must hold."""
    op = get(case.name)
    known = op.value_args if case.values is None else case.values
    env: dict[str, int] = {}
    args = []
    for i, a in enumerate(case.arrays):
        if a is None:
            args.append(Arg(TupleType(())))
            continue
        shape = dims(a.shape, case.symbols.get(i))
        for d, n in zip(shape, a.shape):
            if d.symbol:
                assert env.setdefault(d.symbol, n) == n
        value = contents(a) if i in known and a.dtype.kind in "iub" else None
        args.append(Arg(TensorType(shape, a.dtype.name), value))
    site = Site(op, args, case.attrs, bounds=Bounds())
    result = op.rule(site)
    site.out = result.fields if isinstance(result, TupleType) else (result,)
    bind_items(site, case.arrays, env)
    check(site, env)
    return site, env


def bind_items(site: Site, arrays, env) -> None:
    for name, source in site.bindings.items():
        if isinstance(source, Item):
            env[name] = int(np.asarray(arrays[source.arg]).reshape(-1)[source.index])


def check(site: Site, env) -> None:
    relations = {"==": int.__eq__, "<=": int.__le__, "<": int.__lt__, ">=": int.__ge__, ">": int.__gt__}
    for c in site.checks:
        left, right = int(c.left.evaluate(env)), int(c.right.evaluate(env))
        assert relations[c.relation](left, right), f"{c.what}: {left} {c.relation} {right}"


def agree(case: Case, expected=None, rtol: float = 1e-5, atol: float = 1e-6) -> list[np.ndarray]:
    """Rule, reference and compute definition of a call agree, and with `expected` where given."""
    site, env = site_of(case)
    op = site.op
    wanted = op.reference(*case.arrays, **site.attrs)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for t, w in zip(site.out, wanted, strict=True):
        assert tuple(d.evaluate(env) for d in t.shape) == np.shape(w), f"{t} is not {np.shape(w)}"
        assert t.dtype == w.dtype.name
    if expected is not None:
        for e, w in zip(expected if isinstance(expected, (list, tuple)) else [expected], wanted, strict=True):
            same(w, e, rtol, atol)
    if op.compute is None:
        return wanted
    given = [
        i
        for i, a in enumerate(case.arrays)
        if a is not None and site.value(i) is None or i not in op.value_args
    ]
    buffers = [
        placeholder(f"a{i}", site.shape(i), site.dtype(i))
        if i in given and case.arrays[i] is not None
        else None
        for i in range(len(case.arrays))
    ]
    built = op.compute(site, list(buffers))
    built = list(built) if isinstance(built, tuple) else [built]
    for b, t in zip(built, site.out, strict=True):
        assert b.shape == t.shape and b.dtype == t.dtype, f"{b} is not {t}"
    inputs = [b for b in buffers if b is not None]
    arrays = [np.asarray(a) for a, b in zip(case.arrays, buffers) if b is not None]
    for got, w in zip(run_stages(built, inputs, arrays, env), wanted, strict=True):
        same(got, w, rtol, atol)
    return wanted


def same(got, wanted, rtol: float, atol: float) -> None:
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.shape == wanted.shape and got.dtype == wanted.dtype, (
        got.shape,
        got.dtype,
        wanted.shape,
        wanted.dtype,
    )
    if got.dtype.kind in "iub":
        np.testing.assert_array_equal(got, wanted)
    else:
        half = got.dtype.itemsize == 2
        np.testing.assert_allclose(
            got.astype(np.float64), wanted.astype(np.float64), 1e-2 if half else rtol, 1e-2 if half else atol
        )


def known_value(name: str, args: list, attrs: dict | None = None) -> object:
    """What an operator's `value` says; args are (shape, dtype, contents or None)."""
    op = get(name)
    site = Site(op, [Arg(TensorType(tuple(as_dim(d) for d in s), t), v) for s, t, v in args], attrs or {})
    op.rule(site)
    assert op.value is not None
    return op.value(site)

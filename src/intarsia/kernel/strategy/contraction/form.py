"""Contractions in one normal form: which loops there are, what is multiplied, what becomes of each sum.

    for outer …: for rows …: for column:  sum over inner … of A(outer, rows, inner) * B(outer, column, inner)

A matrix product, a batch of them and a convolution (rows: places of the image, inner: window and channels)
differ only in the addresses of A. Buffers are seen as one-dimensional and indices as dense addresses, so that
two axes that lie behind one another in memory become one (`merged`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.kernel.compute import Stage, fresh
from intarsia.kernel.expr import (
    Axis,
    Binary,
    Buffer,
    Expr,
    Index,
    IndexLike,
    Load,
    Reduce,
    substitute,
    transform,
    walk,
)
from intarsia.kernel.simplify import Ranges, Simplifier
from intarsia.kernel.views import Flat


def flattened(flat: Flat, e: Expr) -> Expr:
    """e with every load from its buffer's flat view."""
    return transform(e, lambda n: flat.load(n) if isinstance(n, Load) and n.indices else None)


def address(buffer: Buffer, indices: Sequence) -> Dim:
    """Where an element lies in a dense row-major buffer. Indices must be Dims."""
    total = as_dim(0)
    for i, d in zip(indices, buffer.shape, strict=True):
        total = total * d + i
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """buffer[place] = value, where `value` loads the form's `sums` (no index) in place of the sum."""

    buffer: Buffer
    place: Dim
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """See the module. The last of `rows` is the one that tiles run along; `inner` is in loop order.

    a:        element of A, a load of a flat buffer
    b:        element of B, an expression over loads of the region's own buffers; None: A alone is combined
    op:       what combines the products
    parts:    the inner axes before neighbours were joined, in the same order: those that B is written in
    sums:     stands for the sum in the results' values
    prologue: stages that must be in memory before
    """

    outer: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    column: Axis
    inner: tuple[Axis, ...]
    a: Load
    b: Expr | None
    results: tuple[Result, ...]
    sums: Buffer
    flat: Flat
    prologue: tuple[Buffer, ...] = ()
    op: str = "sum"
    parts: tuple[Axis, ...] = ()

    @property
    def dtype(self) -> str:
        return self.a.dtype


@dataclass(slots=True)
class Anchor:
    """The one reduction of a region and the elementwise expressions of its outputs over its sum.

    stage:   the reduction. axes: its axes, those of extent 1 left out
    values:  (output, indices in terms of the anchor's axes, value with a load of `sums` for the sum)
    """

    buffer: Buffer
    stage: Stage
    axes: tuple[Axis, ...]
    values: list[tuple[Buffer, tuple[Dim, ...], Expr]]
    sums: Buffer = field(init=False)

    @property
    def reduce(self) -> Reduce:
        assert isinstance(self.stage.body, Reduce)
        return self.stage.body


def inline(e: Expr, stop: Buffer | None = None) -> Expr:
    """e in terms of inputs and of `stop`: every other stage's expression is put in its place."""

    def leaf(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer is stop:
            return None
        stage = node.buffer.producer
        if not isinstance(stage, Stage) or isinstance(stage.body, Reduce):
            return None
        return inline(substitute(stage.body, dict(zip(stage.axes, node.indices, strict=True))), stop)

    return transform(e, leaf)


def reductions(outputs: Iterable[Buffer]) -> list[Buffer] | None:
    """The buffers of the region that are reductions, each once; None if something is opaque."""
    found: dict[int, Buffer] = {}
    seen: set[int] = set()
    todo = list(outputs)
    while todo:
        b = todo.pop()
        if id(b) in seen or b.producer is None:
            continue
        seen.add(id(b))
        if not isinstance(b.producer, Stage):
            return None
        if isinstance(b.producer.body, Reduce):
            found[id(b)] = b
        todo.extend(b.producer.inputs)
    return list(found.values())


def find_anchor(outputs: Sequence[Buffer], op: str = "sum") -> Anchor | None:
    """The region's only reduction, if it is an `op` and all outputs are elementwise over it (axes may be
    permuted).
    """
    found = reductions(outputs)
    if not found or len(found) != 1:
        return None
    buffer = found[0]
    stage = buffer.producer
    assert isinstance(stage, Stage) and isinstance(stage.body, Reduce)
    if stage.body.op != op:
        return None
    axes = tuple(Axis(v, d) for v, d in zip(stage.axes, buffer.shape, strict=True) if d != 1)
    anchor = Anchor(buffer, stage, axes, [])
    anchor.sums = Buffer("sum", (), buffer.dtype, "register")
    for out in outputs:
        value = over_sum(anchor, out)
        if value is None:
            return None
        anchor.values.append(value)
    return anchor


def over_sum(anchor: Anchor, out: Buffer) -> tuple[Buffer, tuple[Dim, ...], Expr] | None:
    """The output's indices and value in terms of the anchor's axes; None if it is not elementwise over the
    sum.
    """
    places = tuple(as_dim(0) if d == 1 else Symbol(v) for v, d in zip(anchor.stage.axes, anchor.buffer.shape))
    if out is anchor.buffer:
        return out, places, Load(anchor.sums, ())
    stage = out.producer
    if not isinstance(stage, Stage):
        return None
    value = inline(stage.body, anchor.buffer)
    used = [n for n in walk(value) if isinstance(n, Load) and n.buffer is anchor.buffer]
    if any(not isinstance(i, Dim) for n in walk(value) if isinstance(n, Load) for i in n.indices):
        return None
    env: dict[str, Dim] = {}
    for index, place, d in zip(used[0].indices if used else (), places, anchor.buffer.shape):
        assert isinstance(index, Dim)
        if d == 1:
            if index != 0:
                return None
            continue
        if index.symbol is None or index.symbol in env:
            return None
        env[index.symbol] = place
    own = {v: d for v, d in zip(stage.axes, out.shape) if d != 1}
    if not used or own.keys() != env.keys():
        return None
    extents = {a.var: a.extent for a in anchor.axes}
    if any(extents[str(env[v].symbol)] != d for v, d in own.items()):
        return None
    if any(n.indices != used[0].indices for n in used):
        return None

    def sums(node: Expr) -> Expr | None:
        return Load(anchor.sums, ()) if isinstance(node, Load) and node.buffer is anchor.buffer else None

    value = substitute(transform(value, sums), env)
    return out, tuple(as_dim(0) if d == 1 else env[v] for v, d in zip(stage.axes, out.shape)), value


def variables(e: Expr) -> frozenset[str]:
    """Names of all loop variables and symbols in e's indices."""
    found: set[str] = set()
    for node in walk(e):
        if isinstance(node, Load):
            found.update(s for i in node.indices if isinstance(i, Dim) for s in i.symbols())
        elif isinstance(node, Index):
            found.update(node.dim.symbols())
    return frozenset(found)


def factors(reduce: Reduce) -> tuple[Expr, Expr] | None:
    """The two factors of a sum of products."""
    match reduce.body:
        case Binary(op="mul", a=a, b=b) if reduce.op == "sum":
            return a, b
    return None


def plain(e: Expr, dtype: str) -> bool:
    """Whether e is one element of an input, as it is in memory."""
    return isinstance(e, Load) and e.dtype == dtype and all(isinstance(i, Dim) for i in e.indices)


def build(
    anchor: Anchor, a: Expr, b: Expr, column: Axis, axes: Sequence[Axis], inner: Sequence[Axis]
) -> Form | None:
    """The form of sum(a * b): axes are classified by what uses them. None if A is not affine in rows and
    inner axes.

    An A that is not a plain element of an input, at an affine address, is put into memory first: its whole
    buffer, if it is a stage of its own.
    """
    inlined = _simplifier([*axes, *inner])(inline(a))
    if plain(inlined, anchor.buffer.dtype):
        form = _classified(anchor, inlined, b, column, axes, inner, ())
        if form is not None:
            return form
    if isinstance(a, Load) and a.buffer.producer is not None and plain(a, anchor.buffer.dtype):
        return _classified(anchor, a, b, column, axes, inner, (a.buffer,))
    return None


def _simplifier(axes: Sequence[Axis]) -> Simplifier:
    return Simplifier(Ranges({x.var: (as_dim(0), x.extent - 1) for x in axes}))


def _classified(
    anchor: Anchor,
    a: Expr,
    b: Expr,
    column: Axis,
    axes: Sequence[Axis],
    inner: Sequence[Axis],
    prologue: tuple[Buffer, ...],
) -> Form | None:
    """See `build`. A load of a reshaped operand divides an axis by a constant: that axis becomes two."""
    flat = Flat()
    assert isinstance(a, Load)
    axes, inner, env = _split(flat.load(a).indices[0], axes, inner)
    simple = _simplifier([*axes, *inner])
    moved = simple(substitute(a, env))
    assert isinstance(moved, Load)
    left, right = simple(flat.load(moved)), simple(substitute(inline(b), env))
    of_a, of_b = variables(left), variables(right)
    if column.var in of_a or column.var not in of_b:
        return None
    outer = tuple(x for x in axes if x.var in of_b or x.var not in of_a)
    rows = tuple(x for x in axes if x not in outer)
    outer = tuple(x for x in outer if x.var != column.var)
    inner = tuple(x for x in inner if x.extent != 1)
    assert isinstance(left, Load)
    place = left.indices[0]
    if not isinstance(place, Dim) or any(place.coefficient(x.var) is None for x in (*rows, *inner)):
        return None
    results = []
    for out, indices, value in anchor.values:
        at = address(out, [i.subst(env) for i in indices])
        results.append(Result(flat.view(out), at, flattened(flat, simple(substitute(value, env)))))
    return merged(Form(outer, rows, column, inner, left, right, tuple(results), anchor.sums, flat, prologue))


def _split(
    place: IndexLike, axes: Sequence[Axis], inner: Sequence[Axis]
) -> tuple[Sequence[Axis], Sequence[Axis], dict[str, Dim]]:
    """The axes, with v cut into (v // c, v % c) where `place` divides v by a constant c that divides its
    extent.
    """
    divisors: dict[str, int] = {}
    for monomial in place.terms if isinstance(place, Dim) else ():
        for atom, _ in monomial:
            if atom.kind in ("floordiv", "mod") and atom.args[0].symbol is not None and atom.args[1].is_const:
                divisors.setdefault(atom.args[0].symbol, atom.args[1].value)
    env: dict[str, Dim] = {}

    def cut(x: Axis) -> list[Axis]:
        c = divisors.get(x.var)
        if c is None or not x.extent.is_const or x.extent.value % c:
            return [x]
        high, low = Axis(fresh(x.var), x.extent // c), Axis(fresh(x.var), as_dim(c))
        env[x.var] = Symbol(high.var) * c + Symbol(low.var)
        return [high, low]

    return [y for x in axes for y in cut(x)], [y for x in inner for y in cut(x)], env


def places(form: Form) -> list[Dim]:
    """Every address that a row or outer axis occurs in, other than B's."""
    found = [form.a.indices[0], *(r.place for r in form.results)]
    for r in form.results:
        found += [n.indices[0] for n in walk(r.value) if isinstance(n, Load) and n.indices]
    return [p for p in found if isinstance(p, Dim)]


def adjacent(addresses: Iterable[Dim], first: Axis, second: Axis) -> bool:
    """Whether in every address a step of `first` is `second.extent` steps of `second`."""
    for p in addresses:
        x, y = p.coefficient(first.var), p.coefficient(second.var)
        if x is None or y is None or x != y * second.extent:
            return False
    return True


def merged(form: Form) -> Form:
    """Neighbouring rows, and neighbouring inner axes, become one axis where memory allows it."""
    addresses = places(form)
    counted = {
        s for r in form.results for n in walk(r.value) if isinstance(n, Index) for s in n.dim.symbols()
    }
    rows = list(form.rows)
    env: dict[str, Dim] = {}
    i = 0
    while i + 1 < len(rows):
        first, second = rows[i], rows[i + 1]
        if counted & {first.var, second.var} or not adjacent(addresses, first, second):
            i += 1
            continue
        joint = Axis(fresh("m"), first.extent * second.extent)
        step = {first.var: as_dim(0), second.var: Symbol(joint.var)}
        addresses = [p.subst(step) for p in addresses]
        env = {**{v: d.subst(step) for v, d in env.items()}, **step}
        rows[i : i + 2] = [joint]
    form = replace(
        form,
        rows=tuple(rows),
        a=substitute(form.a, env),
        results=tuple(Result(r.buffer, r.place.subst(env), substitute(r.value, env)) for r in form.results),
    )
    return _merge_inner(form)


def _merge_inner(form: Form) -> Form:
    """Inner axes in the order of A's memory, adjacent ones joined."""
    place = form.a.indices[0]
    assert isinstance(place, Dim)

    def stride(x: Axis, place: Dim = place) -> tuple[int, int]:
        c = place.coefficient(x.var)
        assert c is not None
        return (0, -c.value) if c.is_const else (-1, 0)

    parts = sorted(form.inner, key=stride)
    inner = list(parts)
    env: dict[str, Dim] = {}
    i = 0
    while i + 1 < len(inner):
        first, second = inner[i], inner[i + 1]
        if not adjacent([place], first, second):
            i += 1
            continue
        joint = Axis(fresh("k"), first.extent * second.extent)
        step = {first.var: as_dim(0), second.var: Symbol(joint.var)}
        place = place.subst(step)
        env = {**{v: d.subst(step) for v, d in env.items()}, **step}
        inner[i : i + 2] = [joint]
    return replace(form, inner=tuple(inner), a=substitute(form.a, env), parts=tuple(parts))

"""Where the columns' operand B comes from: packed at compile time, packed by the kernel, or read as it lies.

Packed, a panel of `width` columns is contiguous: [outer axes of B][panel][inner …][width], the last panel
padded with zeros. Constant weights are packed once at compile time; other operands by the kernel into a
workspace, where rows of B are not contiguous or are read often.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmin, product
from intarsia.kernel.compute import Stage, compute, fresh
from intarsia.kernel.expr import Axis, Buffer, Expr, Index, Load, Select, identity_of, substitute
from intarsia.kernel.stmt import Bind, For, If, Stmt, block, loop, store
from intarsia.kernel.strategy.contraction.form import Form, address, flattened, variables
from intarsia.kernel.strategy.fold import evaluate
from intarsia.kernel.target import Target


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Rows of B for one panel: element (inner k, lane j) is buffer[start(outer, panel) + k · strides + j].

    padded: whether lanes past the last column may be read (they are 0)
    packed: whether `panel` counts panels; else it counts columns
    """

    buffer: Buffer
    start: Dim  # in terms of the outer axes' variables and `panel`
    panel: str
    strides: tuple[Dim, ...]
    padded: bool
    packed: bool = False

    def panel_start(self, panel: Dim) -> Dim:
        return self.start.subst({self.panel: panel})

    def element(self, start: Dim, inner: Sequence[Dim], lane: Dim) -> Expr:
        return self.buffer[start + sum((k * s for k, s in zip(inner, self.strides)), as_dim(0)) + lane]


def outer_of_b(form: Form) -> tuple[Axis, ...]:
    """The outer axes that B depends on."""
    used = variables(form.b) if form.b is not None else frozenset()
    return tuple(x for x in form.outer if x.var in used)


def direct(form: Form) -> Source | None:
    """B as it lies in memory, if its columns are contiguous and A joins no inner axes."""
    b = form.b
    if not isinstance(b, Load) or not all(isinstance(i, Dim) for i in b.indices) or b.dtype != form.dtype:
        return None
    place = address(b.buffer, b.indices)
    if place.coefficient(form.column.var) != 1 or len(form.parts) != len(form.inner):
        return None
    strides = [place.coefficient(x.var) for x in form.parts]
    panel = fresh("p")
    zero = {x.var: as_dim(0) for x in form.parts}
    start = place.subst({**zero, form.column.var: Symbol(panel)})
    if any(s is None for s in strides) or place.coefficient(form.column.var) != 1:
        return None
    return Source(form.flat.view(b.buffer), start, panel, tuple(s for s in strides if s is not None), False)


def packed(form: Form, width: int) -> tuple[Buffer, Source]:
    """B in panels: the stage that computes the packed tensor, and how to read it (through a flat view)."""
    assert form.b is not None
    b, outer, columns = form.b, outer_of_b(form), form.column.extent
    shape = (
        *(x.extent for x in outer),
        ceildiv(columns, width),
        *(x.extent for x in form.parts),
        as_dim(width),
    )

    def element(*index: Dim) -> Expr:
        o, p, inner, j = index[: len(outer)], index[len(outer)], index[len(outer) + 1 : -1], index[-1]
        env = {x.var: i for x, i in zip((*outer, *form.parts), (*o, *inner))}
        value = substitute(b, {**env, form.column.var: p * width + j})
        if columns.is_const and columns.value % width == 0:
            return value
        return Select(Index(p * width + j) < columns, value, identity_of("sum", value.dtype))

    buffer = compute(shape, element, dtype=form.dtype, name="packed")
    return buffer, source(buffer, form, outer, width)


def source(buffer: Buffer, form: Form, outer: Sequence[Axis], width: int) -> Source:
    """How a tile reads a packed buffer [outer …, panel, inner …, width]."""
    panel = fresh("p")
    zeros = [as_dim(0)] * (len(form.parts) + 1)
    start = address(buffer, (*(Symbol(x.var) for x in outer), Symbol(panel), *zeros))
    view = form.flat.view(buffer)
    return Source(view, start, panel, dense_strides(form.inner, width), padded=True, packed=True)


def dense_strides(axes: Sequence[Axis], width: int) -> tuple[Dim, ...]:
    """Strides of axes in front of a row of `width`."""
    strides = []
    stride = as_dim(width)
    for x in reversed(axes):
        strides.append(stride)
        stride = stride * x.extent
    return tuple(reversed(strides))


def rearrange(form: Form, weight: Buffer, width: int) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    """(key, function) that packs a constant weight: the compile-time twin of `packed`."""
    stage, _ = packed(form, width)
    b, outer = form.b, outer_of_b(form)
    order = [*outer, *form.parts, form.column]
    names = (
        [i.symbol for i in b.indices if isinstance(i, Dim) and not i.is_const] if isinstance(b, Load) else []
    )
    bare = (
        isinstance(b, Load) and None not in names and sorted(map(str, names)) == sorted(x.var for x in order)
    )
    if not bare:
        return f"{canonical(stage)}", lambda a: evaluate(stage, {id(weight): a})
    assert isinstance(b, Load)
    kept = tuple(0 if isinstance(i, Dim) and i.is_const else slice(None) for i in b.indices)
    axes = tuple(names.index(x.var) for x in order)
    panels = ceildiv(form.column.extent, width).value

    def apply(a: np.ndarray) -> np.ndarray:
        rows = a[kept].transpose(axes)
        wide = np.zeros((*rows.shape[:-1], panels * width), a.dtype)
        wide[..., : rows.shape[-1]] = rows
        panelled = wide.reshape(*rows.shape[:-1], panels, width)
        return np.ascontiguousarray(np.moveaxis(panelled, -2, len(outer)))

    constants = [i.value if isinstance(i, Dim) and i.is_const else -1 for i in b.indices]
    return f"panels of {width}: {len(outer)} of {axes} at {constants}", apply


def canonical(stage: Buffer) -> str:
    """The stage as text that does not depend on the names of its variables."""
    producer = stage.producer
    assert isinstance(producer, Stage)
    env = {v: Symbol(f"i{n}") for n, v in enumerate(producer.axes)}
    return f"{stage.shape} {substitute(producer.body, env)!r}"


def pack_loops(form: Form, src: Source, width: int, target: Target) -> Stmt:
    """Fill a packed workspace inside the kernel: one iteration of the parallel loop per panel."""
    assert form.b is not None
    outer, columns = outer_of_b(form), form.column.extent
    panel, lane = Symbol(fresh("p")), fresh("j")
    assert panel.symbol is not None
    offset = sum((Symbol(x.var) * s for x, s in zip(form.parts, dense_strides(form.parts, width))), as_dim(0))
    where = src.panel_start(panel) + offset + Symbol(lane)
    value = flattened(form.flat, substitute(form.b, {form.column.var: panel * width + Symbol(lane)}))

    def lanes(value: Expr, active: Dim | None = None) -> Stmt:
        return For(lane, as_dim(width), store(src.buffer, (where,), value), "vector", active=active)

    def inner(body: Stmt) -> Stmt:
        for x in reversed(form.parts):
            body = loop(x.var, x.extent, body)
        return body

    body = inner(lanes(value))
    if not (columns.is_const and columns.value % width == 0):
        left = columns - panel * width
        some = block(lanes(identity_of("sum", form.dtype)), lanes(value, dmin(width, left)))
        body = If(Index(left) >= width, body, inner(some))
    size = product(x.extent for x in form.parts) * width
    return parallel(
        [*outer, Axis(panel.symbol, ceildiv(columns, width))], body, size // max(1, target.lanes(form.dtype))
    )


def parallel(axes: Sequence[Axis], body: Stmt, work: Dim) -> Stmt:
    """One parallel loop over all axes (the last fastest); `work` nanoseconds an iteration."""
    for x in axes:
        body = Bind(x.var, as_dim(0), body) if x.extent == 1 else body
    axes = [x for x in axes if x.extent != 1] or [Axis(fresh("c"), as_dim(1))]
    if len(axes) == 1:
        return For(axes[0].var, axes[0].extent, body, "parallel", work=work)
    index = fresh("c")
    total = as_dim(1)
    rest = Symbol(index)
    binds: list[tuple[str, Dim]] = []
    for x in reversed(axes):
        binds.append((x.var, rest % x.extent if x is not axes[0] else rest))
        rest = rest // x.extent
        total = total * x.extent
    for var, value in binds:
        body = Bind(var, value, body)
    return For(index, total, body, "parallel", work=work)

"""Matrix products, and every other sum of products that has the same form (1x1 convolutions among them)."""

from __future__ import annotations

from dataclasses import dataclass, field

from intarsia.dim import Dim, product
from intarsia.kernel.expr import Axis, Buffer, Index, Load, walk
from intarsia.kernel.stmt import If, Kernel, Stmt, block
from intarsia.kernel.strategy import Lowered, Pack
from intarsia.kernel.strategy.contraction.dot import ROWS, dots, dottable
from intarsia.kernel.strategy.contraction.fill import fill_stage
from intarsia.kernel.strategy.contraction.form import Anchor, Form, build, factors, find_anchor, variables
from intarsia.kernel.strategy.contraction.nest import nest
from intarsia.kernel.strategy.contraction.pack import Source, direct, pack_loops, packed, rearrange
from intarsia.kernel.strategy.contraction.tile import tile_shape
from intarsia.kernel.strategy.region import Region
from intarsia.kernel.strategy.staged import symbols_of
from intarsia.kernel.target import ITEMSIZE, Target

PACKED_ROWS = 48  # rows from which on a large B that varies is worth packing


@dataclass(slots=True)
class Plan:
    """A kernel in the making.

    stmts:      run one after the other
    workspaces: buffers that the kernel fills for itself
    packs:      constant input -> (the packed tensor, rearrangement)
    """

    form: Form
    stmts: list[Stmt] = field(default_factory=list)
    workspaces: list[Buffer] = field(default_factory=list)
    packs: dict[Buffer, tuple[Buffer, Pack]] = field(default_factory=dict)

    def lowered(self, region: Region) -> Lowered:
        """The kernel."""
        inputs = tuple(self.packs[b][0] if b in self.packs else b for b in region.inputs)
        outputs = region.outputs
        packs = {i: self.packs[b][1] for i, b in enumerate(region.inputs) if b in self.packs}
        body = block(*self.stmts)
        symbols = symbols_of(body, (*inputs, *outputs, *self.workspaces))
        return Lowered(
            Kernel(region.name, inputs, outputs, tuple(self.workspaces), symbols, body, self.flops()), packs
        )

    def flops(self) -> Dim:
        form = self.form
        axes = (*form.outer, *form.rows, form.column, *form.inner)
        return product(x.extent for x in axes) * (2 if form.b is not None else 1)


def matmul(region: Region, target: Target) -> Lowered | None:
    """The kernel for a region whose only reduction is like a matrix product's; else None."""
    anchor = find_anchor(region.outputs)
    form = matmul_form(anchor) if anchor else None
    return plan(form, region, target).lowered(region) if form else None


def matmul_form(anchor: Anchor) -> Form | None:
    """The form of the anchor; the factor that holds the result's innermost axis becomes B."""
    pair = factors(anchor.reduce)
    column = column_of(anchor)
    if pair is None or column is None:
        return None
    a, b = pair
    if column.var in variables(a):
        a, b = b, a
    if column.var in variables(a) or not anchor.reduce.axes:
        return None
    return build(anchor, a, b, column, anchor.axes, anchor.reduce.axes)


def column_of(anchor: Anchor) -> Axis | None:
    """The anchor's axis that is contiguous in all results."""
    found: Axis | None = None
    for _, indices, _ in anchor.values:
        varying = [i for i in indices if not i.is_const]
        if not varying:
            return None
        axis = next((x for x in anchor.axes if x.var == varying[-1].symbol), None)
        if found is not None and axis != found:
            return None
        found = axis
    return found


def begin(form: Form, target: Target) -> Plan:
    """A plan that puts the form's prologue into memory."""
    result = Plan(form)
    for buffer in form.prologue:
        result.workspaces.append(buffer)
        result.stmts.append(fill_stage(buffer, form.flat, target))
    return result


def plan(form: Form, region: Region, target: Target) -> Plan:
    """How A and B get where the tiles want them, then the tiles; inner products instead where there are few
    rows.
    """
    result = begin(form, target)
    shape = tile_shape(target, form.dtype, form.column.extent)
    src = packed_weight(result, region, shape.width)
    rows = product(x.extent for x in form.rows)
    few = src is None and dottable(form) and not (rows.is_const and rows.value >= ROWS)
    if few and rows.is_const:
        result.stmts.append(dots(form, target))
        return result
    before = len(result.stmts)
    if src is None and form.column.extent.is_const:
        src = direct(form)
        src = src if src is not None and readable(src, form, rows, target) else None
    if src is None:
        src = packed_here(result, shape.width, target)
    loops, workspaces = nest(form, src, shape, target)
    result.workspaces += workspaces
    result.stmts.append(loops)
    if few:
        many = block(*result.stmts[before:])
        result.stmts[before:] = [If(Index(rows) < ROWS, dots(form, target), many)]
    return result


def readable(src: Source, form: Form, rows: Dim, target: Target) -> bool:
    """Whether tiles may read B as it lies: few rows do so, or the pages that a panel touches are few."""
    if rows.is_const and rows.value < PACKED_ROWS:
        return True
    reach = sum((s * x.extent for s, x in zip(src.strides, form.inner)), Dim({})) * ITEMSIZE[form.dtype]
    return not reach.is_const or reach.value <= target.l2


def packed_weight(result: Plan, region: Region, width: int) -> Source | None:
    """B packed at compile time, if it is one constant that nothing else reads."""
    form = result.form
    assert form.b is not None
    buffers = {id(n.buffer): n.buffer for n in walk(form.b) if isinstance(n, Load)}
    weight = next(iter(buffers.values()))
    if len(buffers) != 1 or weight not in region.constants or weight in read_elsewhere(form):
        return None
    buffer, src = packed(form, width)
    result.packs[weight] = (buffer, Pack(*rearrange(form, weight, width)))
    return src


def packed_here(result: Plan, width: int, target: Target) -> Source:
    """B packed by the kernel into a workspace."""
    buffer, src = packed(result.form, width)
    result.workspaces.append(buffer)
    result.stmts.append(pack_loops(result.form, src, width, target))
    return src


def read_elsewhere(form: Form) -> set[Buffer]:
    """Buffers that A or the results read."""
    loads = [form.a, *(n for r in form.results for n in walk(r.value) if isinstance(n, Load))]
    return {n.buffer.of or n.buffer for n in loads}

"""Regions of several roots of which some are matrix products: those by tiles, the others by their own loops.

An operator that is more than one sum (a transposed convolution: products, then what overlaps) lowers to such
a region.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.compute import Stage
from intarsia.kernel.expr import Axis, Buffer, Load, Reduce
from intarsia.kernel.stmt import Kernel, Stmt, block
from intarsia.kernel.strategy import Lowered
from intarsia.kernel.strategy.access import Memory
from intarsia.kernel.strategy.contraction.form import Anchor, Form
from intarsia.kernel.strategy.contraction.matmul import matmul_form
from intarsia.kernel.strategy.contraction.matmul import plan as tiles
from intarsia.kernel.strategy.region import Loops, Region, Written, plan
from intarsia.kernel.strategy.staged import schedule, symbols_of
from intarsia.kernel.target import Target


def composed(region: Region, target: Target) -> Lowered | None:
    """The kernel of a region in which some root, but not the whole, is a matrix product; else None."""
    the_plan = plan(region)
    forms = {id(r): _form(r) for r in the_plan.roots if isinstance(r, Loops)}
    if not any(forms.values()):
        return None
    body: list[Stmt] = []
    workspaces = list(the_plan.workspaces)
    readers = Counter(b for r in the_plan.roots for b in {x.of or x for x in r.reads})
    lonely = {
        b: a for b, a in region.constants.items() if readers[b] == 1
    }  # may be packed for their one reader
    own = replace(region, constants=lonely)
    lowered_inputs = {b: b for b in region.inputs}
    packs = {}
    memory = Memory()
    for root in the_plan.roots:
        if isinstance(root, Written):
            scratch = [
                Buffer(f"{root.opaque.name}.scratch{i}", s, t) for i, (s, t) in enumerate(root.opaque.scratch)
            ]
            workspaces += scratch
            body.append(root.opaque.build(target, root.opaque.inputs, root.writes, scratch))
            continue
        form = forms[id(root)]
        if form is None:
            stmt, scratch = schedule(root, memory, target)
            workspaces += scratch
            body.append(stmt)
            continue
        made = tiles(form, own, target)
        body += made.stmts
        workspaces += made.workspaces
        for b, (packed, pack) in made.packs.items():
            lowered_inputs[b] = packed
            packs[region.inputs.index(b)] = pack
    inputs = tuple(lowered_inputs.values())
    scratch = tuple({id(w): w for w in workspaces}.values())
    whole = block(*body)
    symbols = symbols_of(whole, (*inputs, *region.outputs, *scratch))
    return Lowered(Kernel(region.name, inputs, region.outputs, scratch, symbols, whole), packs)


def _form(root: Loops) -> Form | None:
    """The root as a matrix product that writes its own buffer."""
    if not isinstance(root.body, Reduce) or root.body.op != "sum":
        return None
    names = tuple(a.var for a in root.axes)
    axes = tuple(Axis(a.var, a.extent) for a in root.axes if a.extent != 1)
    anchor = Anchor(root.buffer, Stage(names, root.body), axes, [])
    anchor.sums = Buffer("sum", (), root.buffer.dtype, "register")
    places = tuple(as_dim(0) if a.extent == 1 else Symbol(a.var) for a in root.axes)
    anchor.values.append((root.buffer, places, Load(anchor.sums, ())))
    return matmul_form(anchor)

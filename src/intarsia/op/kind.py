"""How an operator call fuses, derived from its compute definition.

VIEW         same elements in the same order: costs nothing
ELEMENTWISE  every output element from operand elements at the same place (operands may broadcast)
REMAP        a pure rearrangement: one load, no arithmetic (transpose)
INJECTIVE    every output element by one expression without reduction (slice, concatenate, take, resize, …)
REDUCTION    a reduction, or a chain of them (softmax, layer_norm)
CONTRACTION  a sum of products of two tensors (matmul, conv)
OPAQUE       anything else
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from intarsia.dim import Dim, Symbol
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import Opaque, Stage, placeholder
from intarsia.kernel.expr import Binary, Buffer, Expr, Load, Reduce, walk
from intarsia.op.entry import Site


class Kind(Enum):
    VIEW = "view"
    ELEMENTWISE = "elementwise"
    REMAP = "remap"
    INJECTIVE = "injective"
    REDUCTION = "reduction"
    CONTRACTION = "contraction"
    OPAQUE = "opaque"


@dataclass(frozen=True, slots=True)
class Behaviour:
    """kind, and

    rows:       for a REDUCTION, whether it reduces trailing axes only (its rows can be worked on one by one)
    keeps_last: for a REMAP, whether the last dimension stays last
    """

    kind: Kind
    rows: bool = False
    keeps_last: bool = False


def behaviour(site: Site) -> Behaviour:
    """How the call at this site fuses. A call without compute definition is OPAQUE."""
    if site.op.view:
        return Behaviour(Kind.VIEW)
    if site.op.compute is None:
        return Behaviour(Kind.OPAQUE)
    inputs = placeholders(site)
    result = site.op.compute(site, inputs)
    outputs = result if isinstance(result, tuple) else (result,)
    stages = _stages(outputs)
    if len(outputs) != 1 or any(isinstance(b.producer, Opaque) for b in stages):
        return Behaviour(Kind.OPAQUE)
    reducing = [b for b in stages if isinstance(b.producer, Stage) and isinstance(b.producer.body, Reduce)]
    if any(_is_contraction(b) for b in reducing):
        return Behaviour(Kind.CONTRACTION)
    if reducing:
        return Behaviour(Kind.REDUCTION, rows=all(_reduces_trailing(b) for b in reducing))
    if len(stages) != 1:
        return Behaviour(Kind.INJECTIVE)
    kind = _injective_kind(outputs[0])
    return Behaviour(kind, keeps_last=kind is Kind.REMAP and _keeps_last(outputs[0]))


def placeholders(site: Site) -> list[Buffer | None]:
    """Input buffers for a site's arguments: None for a missing one, and for known contents that only the
    shape needs.
    """
    buffers: list[Buffer | None] = []
    for i, arg in enumerate(site.args):
        known = i in site.op.value_args and site.value(i) is not None
        if isinstance(arg.type, TensorType) and not known:
            buffers.append(placeholder(f"x{i}", arg.type.shape, arg.type.dtype))
        else:
            buffers.append(None)
    return buffers


def _stages(outputs: tuple[Buffer, ...]) -> list[Buffer]:
    found: dict[int, Buffer] = {}
    todo = list(outputs)
    while todo:
        b = todo.pop()
        if b.producer is None or id(b) in found:
            continue
        found[id(b)] = b
        todo.extend(b.producer.inputs)
    return list(found.values())


def _is_contraction(b: Buffer) -> bool:
    assert isinstance(b.producer, Stage) and isinstance(b.producer.body, Reduce)
    body = b.producer.body
    if "conv" in b.producer.hint:
        return True
    match body.body:
        case Binary(op="mul", a=a, b=c):
            return (
                body.op == "sum"
                and a is not c
                and bool(_buffers(a))
                and bool(_buffers(c))
                and _buffers(a) != _buffers(c)
            )
    return False


def _buffers(e: Expr) -> set[int]:
    return {id(n.buffer) for n in walk(e) if isinstance(n, Load)}


def _reduces_trailing(b: Buffer) -> bool:
    """Whether in every load the reduction variables are the last indices, in order."""
    stage = b.producer
    assert isinstance(stage, Stage) and isinstance(stage.body, Reduce)
    variables = [Symbol(a.var) for a in stage.body.axes if a.extent != 1]
    for node in walk(stage.body.body):
        if isinstance(node, Load):
            last = [i for i in node.indices if isinstance(i, Dim) and not i.is_const]
            used = [v for v in variables if any(v == i for i in last)]
            if used and last[-len(used) :] != used:
                return False
    return True


def _keeps_last(out: Buffer) -> bool:
    stage = out.producer
    assert isinstance(stage, Stage) and isinstance(stage.body, Load)
    return stage.body.indices[-1] == Symbol(stage.axes[-1])


def _injective_kind(out: Buffer) -> Kind:
    stage = out.producer
    assert isinstance(stage, Stage)
    place = [Symbol(a) if d != 1 else None for a, d in zip(stage.axes, out.shape)]
    if isinstance(stage.body, Load) and all(isinstance(i, Dim) for i in stage.body.indices):
        used = [i for i in stage.body.indices if not (isinstance(i, Dim) and i.is_const)]
        if sorted(map(str, used)) == sorted(str(p) for p in place if p is not None) and used != [
            p for p in place if p is not None
        ]:
            return Kind.REMAP
    for node in walk(stage.body):
        if isinstance(node, Load):
            for k, i in enumerate(reversed(node.indices), 1):
                if not isinstance(i, Dim) or k > len(place) or not (i == 0 or i == place[-k]):
                    return Kind.INJECTIVE
    return Kind.ELEMENTWISE

"""A kernel's computation in normal form: what is inlined, and what must stand in memory.

Injective stages disappear into their consumers unless they are results, feed an opaque computation, or are
costly and would be evaluated more often than they have elements. What is left are roots, in order: every
root's expression reads only inputs and buffers of earlier roots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from intarsia.dim import Dim, product
from intarsia.kernel.compute import Opaque, Stage, compute
from intarsia.kernel.expr import Axis, Buffer, Expr, Load, Reduce, substitute, transform, walk
from intarsia.kernel.simplify import Ranges, Simplifier
from intarsia.kernel.strategy.cost import cost, guess

_LARGEST = 600  # nodes of one root's expression; beyond, operands are put into memory


@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """What becomes one kernel.

    inputs:    placeholders in the kernel's order, those of folded constants last
    outputs:   results; each has a producer, none occurs twice
    constants: contents of inputs that are known
    """

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: Mapping[Buffer, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Loops:
    """buffer[axes] = body, for all elements. axes: one for each dimension, those of extent 1 too."""

    buffer: Buffer
    axes: tuple[Axis, ...]
    body: Expr

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return loaded(self.body)

    @property
    def writes(self) -> tuple[Buffer, ...]:
        return (self.buffer,)


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """An opaque computation, with buffers for all its results."""

    opaque: Opaque
    writes: tuple[Buffer, ...]

    @property
    def reads(self) -> tuple[Buffer, ...]:
        return self.opaque.inputs


Root = Union[Loops, Written]


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """roots in an order in which they can run; workspaces: their buffers that are not results."""

    region: Region
    roots: tuple[Root, ...]
    workspaces: tuple[Buffer, ...]


def copied(buffer: Buffer) -> Buffer:
    """A new buffer with the same elements."""
    return compute(buffer.shape, lambda *i: buffer[i], dtype=buffer.dtype, name=f"{buffer.name}.copy")


def region_of(
    name: str, inputs: Sequence[Buffer], outputs: Sequence[Buffer], constants: Mapping[Buffer, np.ndarray]
) -> Region:
    """The region; a result that is an input or another result is copied."""
    results: list[Buffer] = []
    for out in outputs:
        again = out.producer is None or any(out is r for r in results)
        results.append(copied(out) if again else out)
    return Region(name, tuple(inputs), tuple(results), constants)


def loaded(e: Expr) -> tuple[Buffer, ...]:
    """Buffers that e reads, each once."""
    return tuple({id(n.buffer): n.buffer for n in walk(e) if isinstance(n, Load)}.values())


def producers(outputs: Sequence[Buffer]) -> list[Buffer]:
    """All computed buffers that the outputs need, operands first."""
    order: list[Buffer] = []
    seen: set[int] = set()
    todo: list[tuple[Buffer, bool]] = [(b, False) for b in reversed(outputs)]
    while todo:
        b, ready = todo.pop()
        if ready:
            order.append(b)
            continue
        if id(b) in seen or b.producer is None:
            continue
        seen.add(id(b))
        todo.append((b, True))
        todo.extend((x, False) for x in b.producer.inputs)
    return order


def plan(region: Region) -> Plan:
    """The roots of a region."""
    return _Planner(region).run()


class _Planner:
    def __init__(self, region: Region):
        self.region = region
        self.order = producers(region.outputs)
        self.results = {id(b) for b in region.outputs}
        self.body: dict[int, Expr] = {}  # of injective stages and roots, in terms of what stays
        self.cost: dict[int, float] = {}
        self.kept: set[int] = set()

    def run(self) -> Plan:
        uses = self._uses()
        roots: list[Root] = []
        written: dict[int, Written] = {}
        for b in self.order:
            producer = b.producer
            if isinstance(producer, Opaque):
                if id(producer) not in written:
                    written[id(producer)] = Written(producer, self._results_of(producer))
                    roots.append(written[id(producer)])
                continue
            assert isinstance(producer, Stage)
            axes = tuple(map(Axis, producer.axes, b.shape))
            body = self._inlined(producer, axes)
            stays = (
                id(b) in self.results
                or isinstance(body, Reduce)
                or self._must_stay(b, body, uses.get(id(b), []))
            )
            if stays:
                roots.append(Loops(b, axes, body))
            else:
                self.body[id(b)] = body
        workspaces = [w for r in roots for w in r.writes if id(w) not in self.results]
        return Plan(self.region, tuple(roots), tuple(workspaces))

    def _results_of(self, producer: Opaque) -> tuple[Buffer, ...]:
        """A buffer for every result; those that nobody reads get one as well."""
        mine = {int(b.name.rpartition(".")[2]): b for b in self.order if b.producer is producer}
        return tuple(
            mine.get(i) or Buffer(f"{producer.name}.{i}", s, t, producer=producer)
            for i, (s, t) in enumerate(producer.outputs)
        )

    def _uses(self) -> dict[int, list[tuple[Buffer, int]]]:
        """buffer -> (consumer, how many loads it has of the buffer)."""
        uses: dict[int, list[tuple[Buffer, int]]] = {}
        for b in self.order:
            if isinstance(b.producer, Opaque):
                for x in b.producer.inputs:
                    uses.setdefault(id(x), []).append((b, 1))
                continue
            assert isinstance(b.producer, Stage)
            count: dict[int, set] = {}
            for n in walk(b.producer.body):
                if isinstance(n, Load):
                    place = tuple(i if isinstance(i, Dim) else id(i) for i in n.indices)
                    count.setdefault(id(n.buffer), set()).add(place)
            for key, places in count.items():
                uses.setdefault(key, []).append((b, len(places)))
        return uses

    def _inlined(self, stage: Stage, axes: Sequence[Axis]) -> Expr:
        def leaf(node: Expr) -> Expr | None:
            if isinstance(node, Load) and id(node.buffer) in self.body:
                inner = node.buffer.producer
                assert isinstance(inner, Stage)
                return substitute(
                    self.body[id(node.buffer)], dict(zip(inner.axes, node.indices, strict=True))
                )
            return None

        body = transform(stage.body, leaf)
        loops = [*axes, *(body.axes if isinstance(body, Reduce) else ())]
        ranges = Ranges({a.var: (a.extent * 0, a.extent - 1) for a in loops})
        return Simplifier(ranges)(body)

    def _must_stay(self, b: Buffer, body: Expr, uses: list[tuple[Buffer, int]]) -> bool:
        if any(isinstance(user.producer, Opaque) for user, _ in uses):
            return True
        if sum(1 for _ in walk(body)) > _LARGEST:
            return True
        own = max(1.0, guess(product(b.shape)))
        times = sum(count * _iterations(user) for user, count in uses) / own
        return (times - 1) * cost(body) > 1.0


def _iterations(user: Buffer) -> float:
    """How often the body of a stage is evaluated."""
    stage = user.producer
    assert isinstance(stage, Stage)
    total = guess(product(user.shape))
    if isinstance(stage.body, Reduce):
        total *= guess(product(a.extent for a in stage.body.axes))
    return total

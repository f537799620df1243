"""From operator calls to kernels: one request per bare call or primitive function.

A `Region` is what becomes one kernel: the calls, their sites, and the values they read. Regions that differ
only in the names of their symbols and in the contents of large constants are lowered once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Union

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim
from intarsia.ir.expr import Attr, Call, Expr
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, placeholder
from intarsia.kernel.expr import Binary, Buffer, Cast, Const, Index, Select
from intarsia.kernel.expr import Expr as KernelExpr
from intarsia.kernel.strategy import Lowered, Pack, lower
from intarsia.kernel.target import Target
from intarsia.op.entry import Site
from intarsia.vm.isa import MAX_RANK, KernelRef, Spec
from intarsia.vm.sizes import Sizes

_INLINE = 1  # constants and known contents of at most so many elements are written into the kernel


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A tensor in an object register."""

    index: int
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A tensor whose contents are a constant."""

    array: np.ndarray
    type: TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """An integer tensor whose contents are expressions over symbols (object array of Dims)."""

    contents: np.ndarray
    type: TensorType


Operand = Union[Register, Literal, Known]


@dataclass(slots=True, eq=False)
class Region:
    """calls: operands first, the last one's result is the region's. sites: of each call. outer: what the
    calls read.

    outer maps an expression to its value; None is a missing optional argument. given: by rewritten operand,
    the one it was made from.
    """

    calls: list[Call]
    sites: list[Site]
    outer: dict[int, Operand | None]
    name: str
    given: dict[int, Operand] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Packed:
    """A constant input: the array, rearranged by `pack` (None: as it is)."""

    array: np.ndarray
    pack: Pack | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """How to launch a region's kernel. workspaces: (dims, dtype). symbols: their values, in the kernel's
    order.
    """

    kernel: int
    inputs: tuple[Operand | Packed, ...]
    workspaces: tuple[tuple[tuple[Dim, ...], str], ...]
    symbols: tuple[Dim, ...]


@dataclass(slots=True)
class _Entry:
    """A lowered region. inputs: positions in the region's operands, in the kernel's order."""

    kernel: int
    lowered: Lowered
    inputs: tuple[int, ...]
    canonical: dict[str, str]


class Kernels:
    """The kernels of a program, each once."""

    def __init__(self, target: Target):
        self.target = target
        self.refs: list[KernelRef] = []
        self._entries: dict[object, _Entry] = {}

    def request(self, region: Region) -> Request:
        """The kernel of a region, lowered now if no equal region was before."""
        sizes = Sizes(region.sites[0].bounds)
        region = _sized(region, sizes)
        renaming = _Renaming()
        operands = _operands(region)
        key = _key(region, operands, renaming)
        entry = self._entries.get(key)
        if entry is None or entry.lowered.extra_constants:  # these depend on the constants' contents
            entry = self._entries[key] = self._lower(region, operands, renaming)
        back = {k: Symbol(name) for name, k in renaming.canonical.items()}
        forth = {name: Symbol(k) for name, k in entry.canonical.items()}
        lowered = entry.lowered
        kernel = lowered.kernel

        def translate(d: Dim) -> Dim:
            return sizes.original(d.subst(forth).subst(back))

        inputs: list[Operand | Packed] = []
        for k, position in enumerate(entry.inputs):
            operand = operands[position][1]
            if isinstance(operand, Literal):
                inputs.append(Packed(operand.array, lowered.packs.get(k)))
            else:
                inputs.append(region.given.get(id(operand), operand))
        for k, array in enumerate(lowered.extra_constants, len(entry.inputs)):
            inputs.append(Packed(array, lowered.packs.get(k)))
        return Request(
            entry.kernel,
            tuple(inputs),
            tuple((tuple(map(translate, w.shape)), w.dtype) for w in kernel.workspaces),
            tuple(translate(Symbol(s)) for s in kernel.symbols),
        )

    def known(self, contents: np.ndarray, type: TensorType, bounds: Bounds) -> Request:
        """A kernel that stores known contents."""
        sizes = Sizes(bounds)
        contents, type = sizes.contents(contents), sizes.type(type)
        key = ("known", tuple(contents.flat), contents.shape, type.dtype)
        entry = self._entries.get(key)
        if entry is None:
            lowered = lower("dims", [], [known_buffer(contents, type)], self.target)
            entry = self._entries[key] = _Entry(self._add("dims", lowered), lowered, (), {})
        return Request(
            entry.kernel, (), (), tuple(sizes.original(Symbol(s)) for s in entry.lowered.kernel.symbols)
        )

    def _lower(self, region: Region, operands: Sequence[tuple[Expr, Operand]], renaming: _Renaming) -> _Entry:
        inputs, outputs, constants = build(region, operands)
        lowered = lower(region.name, inputs, outputs, self.target, constants=constants)
        positions = tuple(int(b.name[1:]) for b in inputs)
        return _Entry(self._add(region.name, lowered), lowered, positions, dict(renaming.canonical))

    def _add(self, name: str, lowered: Lowered) -> int:
        kernel = lowered.kernel

        def specs(buffers: Sequence[Buffer]) -> tuple[Spec, ...]:
            return tuple(Spec(b.dtype, min(len(b.shape), MAX_RANK)) for b in buffers)

        self.refs.append(
            KernelRef(
                f"{name}_{len(self.refs)}",
                specs(kernel.inputs),
                specs(kernel.outputs),
                specs(kernel.workspaces),
                len(kernel.symbols),
                kernel,
            )  # fmt: skip
        )
        return len(self.refs) - 1


def build(
    region: Region, operands: Sequence[tuple[Expr, Operand]]
) -> tuple[list[Buffer], list[Buffer], dict[int, np.ndarray]]:
    """The region's computation: placeholders it really reads (named x<operand>), results, contents of
    constant inputs.
    """
    value: dict[int, Buffer | None] = {k: None for k, v in region.outer.items() if v is None}
    inputs: dict[int, int] = {}
    for position, (e, operand) in enumerate(operands):
        value[id(e)] = buffer = _operand_buffer(position, operand)
        inputs[id(buffer)] = position
    outputs: tuple[Buffer, ...] = ()
    for c, site in zip(region.calls, region.sites):
        buffers = [
            None if i in site.op.value_args and site.value(i) is not None else value[id(a)]
            for i, a in enumerate(c.args)
        ]
        assert site.op.compute is not None
        result = site.op.compute(site, buffers + [None] * (len(site.args) - len(buffers)))
        outputs = result if isinstance(result, tuple) else (result,)
        value[id(c)] = outputs[0]
    read = [b for b in _reachable(outputs) if b.producer is None]
    read.sort(key=lambda b: inputs[id(b)])
    given = [operands[inputs[id(b)]][1] for b in read]
    return read, list(outputs), {k: o.array for k, o in enumerate(given) if isinstance(o, Literal)}


def _operand_buffer(position: int, operand: Operand) -> Buffer:
    if isinstance(operand, Literal) and operand.array.size == 1:
        item = operand.array.reshape(-1)[0]
        value = float(item) if "float" in operand.type.dtype else item.item()
        return compute(
            operand.type.shape, lambda *_: Const(value, operand.type.dtype), dtype=operand.type.dtype
        )
    if isinstance(operand, Known) and operand.contents.size <= _INLINE:
        return known_buffer(operand.contents, operand.type)
    return placeholder(f"x{position}", operand.type.shape, operand.type.dtype)


def known_buffer(contents: np.ndarray, type: TensorType) -> Buffer:
    """A tensor of known contents, as a chain of selections over the element's place."""
    flat = list(contents.flat)

    def element(*indices: Dim) -> KernelExpr:
        place = as_dim(0)
        for i, n in zip(indices, contents.shape):
            place = place * n + i
        if not flat:
            return Const(0, "int64")
        result: KernelExpr = Index(as_dim(flat[-1]))
        for k in range(len(flat) - 2, -1, -1):
            result = Select(Binary("eq", Index(place), Index(as_dim(k))), Index(as_dim(flat[k])), result)
        return result if type.dtype == "int64" else Cast(result, type.dtype)

    return compute(type.shape, element, dtype=type.dtype)


def _reachable(outputs: Sequence[Buffer]) -> list[Buffer]:
    found: dict[int, Buffer] = {}
    todo = list(outputs)
    while todo:
        b = todo.pop()
        if id(b) not in found:
            found[id(b)] = b
            if b.producer is not None:
                todo.extend(b.producer.inputs)
    return list(found.values())


def _sized(region: Region, sizes: Sizes) -> Region:
    """The region with all symbols non-negative."""
    sites = [sizes.site(s) for s in region.sites]
    outer: dict[int, Operand | None] = {}
    given: dict[int, Operand] = {}
    for k, operand in region.outer.items():
        match operand:
            case Register(index=index, type=t) if (new := sizes.type(t)) is not t:
                outer[k] = Register(index, new)
            case Known(contents=contents, type=t):
                outer[k] = Known(sizes.contents(contents), sizes.type(t))
            case _:
                outer[k] = operand
        if outer[k] is not operand and operand is not None:
            given[id(outer[k])] = operand
    return Region(region.calls, sites, outer, region.name, given)


# ---- equal regions -----------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Renaming:
    """Symbols by order of appearance."""

    canonical: dict[str, str] = field(default_factory=dict)

    def dim(self, d: Dim) -> str:
        for monomial in d.terms:
            for atom, _ in monomial:
                for name in (
                    [atom.name]
                    if atom.kind == "sym"
                    else sorted(set().union(*(a.symbols() for a in atom.args)))
                ):
                    self.canonical.setdefault(name, f"${len(self.canonical)}")
        return str(d.subst({s: Symbol(self.canonical[s]) for s in d.symbols()}))

    def type(self, t: TensorType) -> object:
        return tuple(self.dim(d) for d in t.shape), t.dtype

    def attr(self, a: Attr) -> object:
        if isinstance(a, Dim):
            return self.dim(a)
        return tuple(self.attr(x) for x in a) if isinstance(a, tuple) else repr(a)


def _operands(region: Region) -> list[tuple[Expr, Operand]]:
    """What the calls read from outside, in order of first use."""
    found: dict[int, tuple[Expr, Operand]] = {}
    for c in region.calls:
        for a in c.args:
            operand = region.outer.get(id(a))
            if operand is not None and id(a) not in found:
                found[id(a)] = (a, operand)
    return list(found.values())


def _key(region: Region, operands: Sequence[tuple[Expr, Operand]], renaming: _Renaming) -> object:
    number: dict[int, object] = {}
    parts: list[object] = []
    for k, (e, operand) in enumerate(operands):
        number[id(e)] = k
        kind: object = type(operand).__name__
        if isinstance(operand, Literal) and operand.array.size <= 64:
            kind = operand.array.tobytes()
        if isinstance(operand, Known):
            kind = tuple(renaming.dim(as_dim(d)) for d in operand.contents.flat)
        parts.append((kind, renaming.type(operand.type)))
    for k, (c, site) in enumerate(zip(region.calls, region.sites)):
        args = tuple(number.get(id(a), "-") for a in c.args)
        attrs = tuple((n, renaming.attr(v)) for n, v in sorted(site.attrs.items()))  # type: ignore[arg-type]
        types = tuple(renaming.type(a.type) if isinstance(a.type, TensorType) else None for a in site.args)
        values = []
        for i in site.op.value_args:
            v = site.value(i)
            values.append(None if v is None else (v.shape, tuple(renaming.dim(as_dim(d)) for d in v.flat)))
        parts.append(
            (site.op.name, args, attrs, types, tuple(values), tuple(renaming.type(t) for t in site.out))
        )
        number[id(c)] = ("call", k)
    if region.sites:
        bounds = region.sites[0].bounds
        parts.append(tuple((k, bounds.interval(Symbol(name))) for name, k in renaming.canonical.items()))
    return tuple(parts)

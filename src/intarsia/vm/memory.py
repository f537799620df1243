"""Where tensors live: the frame of their function, or the heap.

A tensor whose size is an expression over the function's own symbols, and that does not leave the function,
gets a place in the frame; places are shared by tensors whose lifetimes do not overlap. Others come from the
heap and are freed where they die (liveness over the control-flow graph, whose jumps all go forward).

Sizes are `coefficient * unit` bytes with a symbolic unit (1 for a constant size). Tensors of one unit are
packed together, largest first, each at the lowest offset where it meets no other living tensor: as good as
for constant sizes, whatever the unit's value will be. Units are laid one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Annotated

from intarsia.dim import Bounds, Dim, as_dim, dmax
from intarsia.vm.isa import (
    Branch,
    Call,
    Free,
    Heap,
    Instr,
    Jump,
    Move,
    Return,
    Role,
    Slot,
    TailCall,
    View,
    registers,
)

ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Label(Instr):
    """Stands before the instruction that jumps name by `name`; `resolve` removes it."""

    name: Annotated[int, Role("label")]


@dataclass(frozen=True, slots=True)
class Plan:
    """offsets: of each frame tensor (by register), in bytes; size: of the frame."""

    offsets: Mapping[int, Dim]
    size: Dim


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor to be placed: its register, its size, the first and the last place in the code it lives at."""

    register: int
    size: Dim
    first: int
    last: int


def plan(code: Sequence[Instr], sizes: Mapping[int, Dim], bounds: Bounds) -> Plan:
    """Offsets for those tensors that `code` takes from the heap and that may live in the frame.

    sizes: bytes of the tensors whose size is known at entry, by register.
    """
    return pack(_places(code, sizes), bounds)


def _places(code: Sequence[Instr], sizes: Mapping[int, Dim]) -> list[Place]:
    origin: dict[int, set[int]] = {}  # register -> heap tensors whose memory it may name
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    escaping: set[int] = set()
    for at, instr in enumerate(code):
        for r in registers(instr, "object", "use"):
            for tensor in origin.get(r, ()):
                last[tensor] = at
        match instr:
            case Heap(dst=dst):
                origin[dst] = {dst}
                first[dst] = last[dst] = at
            case Move(dst=dst, src=src) | View(dst=dst, src=src):
                origin.setdefault(dst, set()).update(origin.get(src, ()))
            case Return() | TailCall():
                for r in registers(instr, "object", "use"):
                    escaping |= origin.get(r, set())
    return [Place(r, sizes[r], first[r], last[r]) for r in first if r in sizes and r not in escaping]


def pack(places: Sequence[Place], bounds: Bounds) -> Plan:
    """Offsets such that tensors alive together never overlap, whatever the symbols' values."""
    units: dict[Dim, list[tuple[int, Place]]] = {}
    for place in places:
        coefficient, unit = _split(place.size)
        if unit == 1:
            coefficient = -(-coefficient // ALIGNMENT) * ALIGNMENT
        units.setdefault(unit, []).append((coefficient, place))
    offsets: dict[int, Dim] = {}
    base = as_dim(0)
    for unit, members in units.items():
        unit = (
            unit if bounds.interval(unit)[0] >= 0 else dmax(unit, 0)
        )  # sizes on a path not taken may come out negative
        packed, height = _first_fit(members)
        if all(c % ALIGNMENT == 0 for c, _ in members):
            offsets |= {register: base + unit * o for register, o in packed.items()}
            base = base + unit * height
            continue
        # Rounding offset o up to `level` lines more keeps neighbours apart: each has at least one level less
        # or more.
        level = {o: i for i, o in enumerate(sorted(set(packed.values())))}
        offsets |= {r: base + ((unit * o) // ALIGNMENT + level[o]) * ALIGNMENT for r, o in packed.items()}
        base = base + ((unit * height) // ALIGNMENT + len(level) + 1) * ALIGNMENT
    return Plan(offsets, base)


def _split(size: Dim) -> tuple[int, Dim]:
    """size as coefficient * unit, the unit's coefficients having no common factor."""
    common = gcd(*size.terms.values()) if size.terms else 0
    if common == 0:
        return 0, as_dim(1)
    return common, Dim({m: c // common for m, c in size.terms.items()})


def _first_fit(members: Sequence[tuple[int, Place]]) -> tuple[dict[int, int], int]:
    """Offsets by register, and the height of the pile."""
    placed: list[tuple[int, int, Place]] = []  # offset, end, place; in order of offset
    offsets: dict[int, int] = {}
    for size, place in sorted(members, key=lambda m: (-m[0], m[1].first)):
        at = 0
        for offset, end, other in placed:
            if other.first <= place.last and place.first <= other.last:
                if offset - at >= size:
                    break
                at = max(at, end)
        offsets[place.register] = at
        placed.append((at, at + size, place))
        placed.sort(key=lambda p: p[0])
    return offsets, max((end for _, end, _ in placed), default=0)


def settle(code: Sequence[Instr], offsets: Mapping[int, int]) -> list[Instr]:
    """Heap tensors that have an offset (in an integer register) become slots of the frame."""
    return [
        Slot(i.dst, offsets[i.dst], i.dtype, i.dims) if isinstance(i, Heap) and i.dst in offsets else i
        for i in code
    ]


# ---- frees -------------------------------------------------------------------------------------------------
def insert_frees(code: Sequence[Instr], params: int) -> list[Instr]:
    """`free` wherever a register that may own memory dies before the function ends."""
    owners = _owners(code, params)
    live_in: dict[int, set[int]] = {}  # by label
    before: list[set[int]] = [set()] * (len(code) + 1)
    after: list[set[int]] = [set()] * len(code)
    live: set[int] = set()
    for at in range(len(code) - 1, -1, -1):
        instr = code[at]
        match instr:
            case Label(name=name):
                live_in[name] = live
            case Jump(target=target):
                live = live_in[target]
            case Branch(orelse=orelse):
                live = live | live_in[orelse]
            case Return() | TailCall():
                live = set()
        after[at] = live
        used = owners.intersection(registers(instr, "object", "use"))
        defined = owners.intersection(registers(instr, "object", "def"))
        if used or defined:
            live = (live - defined) | used
        before[at] = live
    out: list[Instr] = [Free(r) for r in sorted(owners.intersection(range(params)) - before[0])]
    arriving: dict[int, set[int]] = {}  # a branch leaves more alive than the arm it leads to needs
    for at, instr in enumerate(code):
        out.append(instr)
        match instr:
            case Return() | TailCall() | Jump():
                dying: set[int] = set()
            case Branch(orelse=orelse):
                arriving[orelse] = before[at]
                dying = before[at] - before[at + 1]
            case Label(name=name):
                dying = arriving.get(name, before[at]) - before[at]
            case _:
                dying = (before[at] | owners.intersection(registers(instr, "object", "def"))) - after[at]
        out += [Free(r) for r in sorted(dying)]
    return out


def _owners(code: Sequence[Instr], params: int) -> set[int]:
    owners = set(range(params))
    for instr in code:
        match instr:
            case Heap(dst=dst):
                owners.add(dst)
            case Call(dsts=dsts):
                owners.update(dsts)
            case Move(dst=dst, src=src) | View(dst=dst, src=src):
                if src in owners:
                    owners.add(dst)
    return owners


def resolve(code: Sequence[Instr]) -> tuple[Instr, ...]:
    """Labels removed, jumps by position."""
    position: dict[int, int] = {}
    count = 0
    for instr in code:
        if isinstance(instr, Label):
            position[instr.name] = count
        else:
            count += 1
    out: list[Instr] = []
    for instr in code:
        match instr:
            case Label():
                continue
            case Jump(target=target):
                out.append(replace(instr, target=position[target]))
            case Branch(orelse=orelse):
                out.append(replace(instr, orelse=position[orelse]))
            case _:
                out.append(instr)
    return tuple(out)

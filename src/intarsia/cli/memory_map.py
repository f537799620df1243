"""The memory of a program: which tensor lives where and when, read off the bytecode.

Integer registers are evaluated as expressions over the sizes of the inputs, so that offsets and sizes
come out as the planner's own formula; an artifact shows the same as the model it was compiled from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from intarsia.dim import Dim, Symbol, as_dim, dmax, dmin, product
from intarsia.kernel.target import ITEMSIZE
from intarsia.runtime.tensor import Signature
from intarsia.vm import isa
from intarsia.vm.isa import Function, Program

_WIDTH = 40  # characters of the drawing over time
_LONG = 44  # characters of an expression in the table


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tensor in memory.

    register:    its object register
    offset:      bytes into the frame, None for the heap
    first, last: the positions in the code between which it is in use
    writer:      the kernel that first writes it
    """

    register: int
    dtype: str
    dims: tuple[Dim, ...]
    offset: Dim | None
    first: int
    last: int
    writer: str

    @property
    def bytes(self) -> Dim:
        return product(self.dims) * ITEMSIZE[self.dtype]


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The tensors of one function in order of their making. frame: its bytes; steps: instructions in all."""

    function: str
    frame: Dim
    tenants: tuple[Tenant, ...]
    steps: int

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that some size or offset depends on."""
        dims = [d for t in self.tenants for d in (*t.dims, t.offset) if d is not None]
        return frozenset().union(self.frame.symbols(), *(d.symbols() for d in dims))


def of_program(program: Program, inputs: Sequence[Signature]) -> list[MemoryMap]:
    """The map of every function; sizes of `main` use the names of the model's own symbols."""
    return [_of_function(program, f, inputs if k == 0 else ()) for k, f in enumerate(program.functions)]


def _of_function(program: Program, f: Function, inputs: Sequence[Signature]) -> MemoryMap:
    ints = _integers(f, inputs)
    frame = as_dim(0)
    made: dict[int, tuple[int, isa.Slot | isa.Heap]] = {}
    last: dict[int, int] = {}
    writer: dict[int, str] = {}
    memory: dict[int, set[int]] = {}  # register -> tensors whose memory it names
    for at, instr in enumerate(f.code):
        if not isinstance(instr, isa.Free):
            for r in isa.registers(instr, "object", "use"):
                last.update(dict.fromkeys(memory.get(r, ()), at))
        match instr:
            case isa.Frame(size=size):
                frame = ints[size]
            case isa.Slot(dst=dst) | isa.Heap(dst=dst):
                made[dst] = at, instr
                memory[dst], last[dst] = {dst}, at
            case isa.View(dst=dst, src=src) | isa.Move(dst=dst, src=src):
                memory.setdefault(dst, set()).update(memory.get(src, ()))
            case isa.Launch(kernel=kernel, outputs=outputs, workspaces=workspaces):
                for r in (*outputs, *workspaces):
                    for tensor in memory.get(r, ()):
                        last[tensor] = at
                        note = program.kernels[kernel].symbol + (" (workspace)" if r in workspaces else "")
                        writer.setdefault(tensor, f"k{kernel} {note}")
    tenants = [
        Tenant(
            r,
            i.dtype,
            tuple(ints[d] for d in i.dims),
            ints[i.offset] if isinstance(i, isa.Slot) else None,
            at,
            last[r],
            writer.get(r, ""),
        )
        for r, (at, i) in made.items()
    ]
    return MemoryMap(f.name, frame, tuple(tenants), len(f.code))


def _integers(f: Function, inputs: Sequence[Signature]) -> dict[int, Dim]:
    """Every integer register as an expression over sizes of parameters and numbers read at run time."""
    ints: dict[int, Dim] = {}
    for instr in f.code:
        match instr:
            case isa.Imm(dst=dst, value=value):
                ints[dst] = as_dim(value)
            case isa.DimOf(dst=dst, src=src, axis=axis):
                ints[dst] = _size(src, axis, f, inputs)
            case isa.Item(dst=dst, src=src, index=index):
                ints[dst] = Symbol(f"t{src}[{index}]")
            case isa.Arith(dst=dst, op=op, a=a, b=b):
                ints[dst] = _arith(op, ints[a], ints[b])
    return ints


def _size(register: int, axis: int, f: Function, inputs: Sequence[Signature]) -> Dim:
    if register >= len(f.params):
        return Symbol(f"t{register}.{axis}")
    if register >= len(inputs):
        return Symbol(f"argument{register}.{axis}")
    stated = inputs[register].shape[axis]
    if isinstance(stated, int):
        return as_dim(stated)
    return Symbol(stated if stated.isidentifier() else f"{inputs[register].name}.{axis}")


def _arith(op: str, a: Dim, b: Dim) -> Dim:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "floordiv":
            return a // b if b != 0 else as_dim(0)
        case "mod":
            return a % b if b != 0 else as_dim(0)
        case "min":
            return dmin(a, b)
    return dmax(a, b)


# ---- as text ------------------------------------------------------------------------------------------
def draw(program: Program, maps: Sequence[MemoryMap], sizes: Mapping[str, int]) -> str:
    """A table per function: each tensor's contents, bytes, place, and life from the start to the end.

    sizes: values of symbols; what depends on others stays an expression.
    """
    known = {s: as_dim(n) for s, n in sizes.items()}
    constants = sum(c.nbytes for c in program.constants)
    parts = [f"constants: {len(program.constants)}, {constants} bytes, shared by all calls"]
    for m in maps:
        if not m.tenants and len(maps) > 1:
            continue
        frame = [t for t in m.tenants if t.offset is not None]
        unshared = sum((t.bytes for t in frame), as_dim(0)).subst(known)
        parts.append(
            f"\n@{m.function}: frame of {m.frame.subst(known)} bytes for {len(frame)} tensors"
            + (f" ({unshared} bytes if none shared a place)" if unshared.is_const else "")
            + f"; {len(m.tenants) - len(frame)} on the heap"
        )
        rows = [_row(m, t, known) for t in m.tenants]
        if rows:
            parts += _table([("tensor", "holds", "bytes", "place", "life", "written by"), *rows])
    open_symbols = sorted(frozenset().union(*(m.symbols for m in maps)) - known.keys())
    if open_symbols:
        parts.append(f"\nin numbers: --dim {' --dim '.join(f'{s}=…' for s in open_symbols)}")
    return "\n".join(parts)


def _row(m: MemoryMap, t: Tenant, known: Mapping[str, Dim]) -> tuple[str, ...]:
    shape = ", ".join(_short(d.subst(known)) for d in t.dims)
    place = "heap" if t.offset is None else f"+{_short(t.offset.subst(known))}"
    return f"t{t.register}", f"{t.dtype}[{shape}]", _short(t.bytes.subst(known)), place, _life(m, t), t.writer


def _life(m: MemoryMap, t: Tenant) -> str:
    width = min(_WIDTH, m.steps)
    start = t.first * width // m.steps
    end = max(start + 1, -(-(t.last + 1) * width // m.steps))
    return "·" * start + "█" * (end - start) + "·" * (width - end)


def _short(d: Dim) -> str:
    text = str(d)
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows]


# ---- as JSON ------------------------------------------------------------------------------------------
def as_json(program: Program, maps: Sequence[MemoryMap], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Sizes and offsets as integers where they are known, otherwise as the text of an expression."""
    known = {s: as_dim(n) for s, n in sizes.items()}

    def number(d: Dim) -> int | str:
        d = d.subst(known)
        return d.value if d.is_const else str(d)

    return {
        "stage": "memory",
        "constants": {"count": len(program.constants), "bytes": sum(c.nbytes for c in program.constants)},
        "functions": [
            {
                "name": m.function,
                "frame_bytes": number(m.frame),
                "instructions": m.steps,
                "tensors": [
                    {
                        "register": t.register,
                        "dtype": t.dtype,
                        "shape": [number(d) for d in t.dims],
                        "bytes": number(t.bytes),
                        "place": "heap" if t.offset is None else "frame",
                        "offset": None if t.offset is None else number(t.offset),
                        "first": t.first,
                        "last": t.last,
                        "written_by": t.writer,
                    }
                    for t in m.tenants
                ],
            }
            for m in maps
        ],
    }

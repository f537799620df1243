"""Programs as bytes: instructions in a compact code, everything else as JSON, constants as raw memory.

    instruction ::= opcode(byte) operand …       in the order of the instruction's fields
    operand     ::= number (LEB128; immediates zigzag) | count number …   names by their place in isa

Decoding trusts nothing: whatever is not a program raises ArtifactError, never anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from intarsia.ir.types import DTYPES
from intarsia.runtime.tensor import numpy_dtype
from intarsia.support.errors import ArtifactError
from intarsia.vm.isa import (
    INSTRUCTIONS,
    MAX_RANK,
    OPS,
    RELATIONS,
    Function,
    Instr,
    KernelRef,
    Message,
    Program,
    Spec,
    operands,
)  # fmt: skip

_OPCODE = {kind: i for i, kind in enumerate(INSTRUCTIONS)}
_TABLES: dict[str, tuple[str, ...]] = {"dtype": DTYPES, "op": OPS, "relation": RELATIONS}
_ALIGNMENT = 64
_LARGEST = 1 << 24


def encode_code(code: tuple[Instr, ...]) -> bytes:
    out = bytearray()
    for instr in code:
        out.append(_OPCODE[type(instr)])
        for name, role, many in operands(type(instr)):
            value = getattr(instr, name)
            if many:
                _write(out, len(value))
                for v in value:
                    _write(out, v)
            elif role.kind in _TABLES:
                _write(out, _TABLES[role.kind].index(value))
            elif role.kind == "imm":
                _write(out, value * 2 if value >= 0 else -value * 2 - 1)
            else:
                _write(out, value)
    return bytes(out)


def decode_code(data: bytes) -> tuple[Instr, ...]:
    """Raises ArtifactError ART-006 for what is not a sequence of instructions."""
    reader = _Reader(data)
    code: list[Instr] = []
    while reader.at < len(data):
        opcode = reader.byte()
        if opcode >= len(INSTRUCTIONS):
            raise _bad(f"opcode {opcode} does not exist")
        kind = INSTRUCTIONS[opcode]
        values: list[Any] = []
        for _, role, many in operands(kind):
            if many:
                count = reader.number()
                if count > len(data) - reader.at:
                    raise _bad("an operand list is longer than the code")
                values.append(tuple(reader.number() for _ in range(count)))
            elif role.kind in _TABLES:
                table, index = _TABLES[role.kind], reader.number()
                if index >= len(table):
                    raise _bad(f"there is no {role.kind} {index}")
                values.append(table[index])
            elif role.kind == "imm":
                n = reader.number()
                values.append(-(n + 1) // 2 if n & 1 else n // 2)
            else:
                values.append(reader.number())
        code.append(kind(*values))
    return tuple(code)


def _bad(what: str) -> ArtifactError:
    return ArtifactError(
        "ART-006", f"the artifact's program is not valid: {what}", remedy="save the model again"
    )


def _write(out: bytearray, n: int) -> None:
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)


class _Reader:
    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise _bad("the code ends inside an instruction")
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        n = shift = 0
        while True:
            b = self.byte()
            n |= (b & 127) << shift
            if b < 128:
                return n
            shift += 7
            if shift > 63:
                raise _bad("a number has more than 64 bits")


# ---- whole programs ----------------------------------------------------------------------------------------
def encode(program: Program) -> tuple[dict[str, Any], dict[str, bytes | memoryview]]:
    """The program as JSON-able metadata and binary sections (bytecode, constants)."""
    code = [encode_code(f.code) for f in program.functions]
    functions = [
        {
            "name": f.name, "params": _specs(f.params), "results": _specs(f.results), "ints": f.ints,
            "objects": f.objects,
            "code": len(c),
        }
        for f, c in zip(program.functions, code)
    ]  # fmt: skip
    kernels = [
        {
            "symbol": k.symbol, "inputs": _specs(k.inputs), "outputs": _specs(k.outputs),
            "workspaces": _specs(k.workspaces), "symbols": k.symbols,
        }
        for k in program.kernels
    ]  # fmt: skip
    constants, blob = [], bytearray()
    for c in program.constants:
        blob += b"\0" * (-len(blob) % _ALIGNMENT)
        constants.append({"dtype": c.dtype.name, "shape": list(c.shape), "offset": len(blob)})
        blob += np.ascontiguousarray(c).reshape(-1).view(np.uint8).data if c.size else b""
    messages = [[m.kind, m.code, m.text, m.where] for m in program.messages]
    meta = {"functions": functions, "kernels": kernels, "constants": constants, "messages": messages}
    return meta, {"bytecode": b"".join(code), "constants": memoryview(blob)}


def decode(meta: Mapping[str, Any], sections: Mapping[str, memoryview]) -> Program:
    """The program; constants are views of their section. Raises ArtifactError ART-006."""
    try:
        code = bytes(sections["bytecode"])
        functions, at = [], 0
        for f in meta["functions"]:
            size = _count(f["code"])
            if at + size > len(code):
                raise _bad("the code is shorter than its functions")
            functions.append(
                Function(
                    str(f["name"]), _read_specs(f["params"]), _read_specs(f["results"]), _count(f["ints"]),
                    _count(f["objects"]), decode_code(code[at : at + size]),
                )
            )  # fmt: skip
            at += size
        kernels = tuple(
            KernelRef(
                str(k["symbol"]), _read_specs(k["inputs"]), _read_specs(k["outputs"]),
                _read_specs(k["workspaces"]),
                _count(k["symbols"]),
            )
            for k in meta["kernels"]
        )  # fmt: skip
        constants = tuple(_constant(c, sections["constants"]) for c in meta["constants"])
        messages = tuple(Message(*map(str, m)) for m in meta["messages"])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise _bad(f"{type(e).__name__} {e}") from None
    if not functions:
        raise _bad("it has no functions")
    return Program(tuple(functions), kernels, constants, messages)


def _specs(specs: tuple[Spec, ...]) -> list[list[Any]]:
    return [[s.dtype, s.rank] for s in specs]


def _read_specs(raw: Any) -> tuple[Spec, ...]:
    specs = tuple(Spec(dtype, rank) for dtype, rank in raw)
    for s in specs:
        if s.dtype not in DTYPES or not isinstance(s.rank, int) or not 0 <= s.rank <= MAX_RANK:
            raise _bad(f"a register cannot hold {s}")
    return specs


def _count(n: Any) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or not 0 <= n <= _LARGEST:
        raise _bad(f"{n!r} is not a count")
    return n


def _constant(entry: Mapping[str, Any], blob: memoryview) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise _bad(f"a constant cannot have dtype {entry['dtype']!r}")
    dtype, offset = numpy_dtype(entry["dtype"]), entry["offset"]
    shape, size = [], dtype.itemsize
    for d in entry["shape"]:
        if not isinstance(d, int) or d < 0:
            raise _bad(f"a constant cannot have dimension {d!r}")
        shape.append(d)
        size *= d
    if not isinstance(offset, int) or offset < 0 or offset % _ALIGNMENT or offset + size > blob.nbytes:
        raise _bad("a constant lies outside the file")
    return np.frombuffer(blob[offset : offset + size], np.uint8).view(dtype).reshape(shape)

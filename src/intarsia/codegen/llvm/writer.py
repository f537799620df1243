"""Text of one LLVM function: names, blocks, and a place for what does not change inside a loop.

A function is a tree of scopes (a loop's body, a branch's arm, what follows a computed binding). Each scope
begins with a preamble; pure index arithmetic goes into the preamble of the outermost scope that knows its
operands and is written there once. So loop-invariant code motion and common subexpressions of index
arithmetic need no optimiser.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from intarsia.kernel.target import Target

Interval = tuple[float, float]
REGISTER_TYPE = {
    "bool": "i1", "int8": "i8", "uint8": "i8", "int16": "i16", "uint16": "i16",
    "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64",
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double",
}  # fmt: skip
MEMORY_TYPE = REGISTER_TYPE | {"bool": "i8", "float16": "i16", "bfloat16": "i16"}


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA name or literal. lanes: 0 for a scalar. const: its value where known, as int, float or bool.

    float16 and bfloat16 live in registers as float32 that hold a value of the narrow type exactly.
    """

    text: str
    dtype: str
    lanes: int = 0
    const: int | float | bool | None = None

    @property
    def type(self) -> str:
        return vector_type(REGISTER_TYPE[self.dtype], self.lanes)


def vector_type(element: str, lanes: int) -> str:
    return f"<{lanes} x {element}>" if lanes else element


def float_literal(value: float, element: str) -> str:
    """A literal that LLVM reads back exactly: the bits of a double (of a float32 as double)."""
    if element == "float":
        value = struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 3.4028236e38 else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def splat_literal(element: str, literal: str, lanes: int) -> str:
    return f"splat ({element} {literal})" if lanes else literal


@dataclass(slots=True)
class Scope:
    """preamble: lines at its beginning; body: lines and nested scopes' lines
    known:     pure text -> name; names: those defined here

    addresses: what index.py and access.py have worked out here, by terms.
    """

    preamble: list = field(default_factory=list)
    body: list = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    addresses: dict[tuple, str] = field(default_factory=dict)


class Module:
    """Declarations and functions of one module."""

    def __init__(self, target: Target):
        self.target = target
        self.declarations: dict[str, str] = {}
        self.functions: list[str] = []
        self.outlined = 0

    def declare(self, name: str, signature: str) -> str:
        """Declare an external function or intrinsic: `signature` is the text with {} where the name goes."""
        self.declarations[name] = "declare " + signature.format(f"@{name}")
        return name

    def define(self, name: str, text: str) -> str:
        """Add a definition that is not a function of the kernel (a constant, a helper)."""
        self.declarations[name] = text
        return name

    def text(self) -> str:
        head = [f'target triple = "{self.target.triple}"', *sorted(self.declarations.values()), ""]
        return "\n".join(head + self.functions) + "\n"


class Function:
    """One function being written."""

    def __init__(self, module: Module, header: str, outer: Function | None = None):
        self.module, self.target, self.header, self.outer = module, module.target, header, outer
        self.count = 0
        self.labels = 0
        self.pinned = False  # pure instructions stay in the innermost scope, which may not be entered
        self.block = "entry"
        self.allocas: list[str] = []
        self.scratch: str | None = None  # see Access.nowhere
        root = Scope()
        self.root = root
        self.scopes = [root]
        self.depth_of: dict[
            str, int
        ] = {}  # names that preambles may use -> depth of the scope that defines them
        self.range_of: dict[str, Interval] = {}
        self.local: dict[tuple, Any] = {}  # values that are available here (loads, broadcasts): what -> name

    # ---- lines ---------------------------------------------------------------------------------------------
    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.scopes[-1].body.append("  " + text)

    def ins(self, text: str) -> str:
        """An instruction here; its result's name."""
        name = self.name()
        self.scopes[-1].body.append(f"  {name} = {text}")
        return name

    def pure(self, text: str, operands: Iterable[str], interval: Interval | None = None) -> str:
        """An instruction without effect or trap on early names: as far out as possible, once."""
        depth = len(self.scopes) - 1 if self.pinned else max((self.depth_of[o] for o in operands), default=0)
        scope = self.scopes[depth]
        known = scope.known.get(text)
        if known is None:
            known = scope.known[text] = self.name()
            scope.preamble.append(f"  {known} = {text}")
            self.depth_of[known] = depth
            scope.names.append(known)
            if interval is not None:
                self.range_of[known] = interval
        return known

    def early(self, name: str, interval: Interval | None = None) -> str:
        """Declare `name`, defined at the start of the innermost scope, usable by preambles."""
        self.depth_of[name] = len(self.scopes) - 1
        self.scopes[-1].names.append(name)
        if interval is not None:
            self.range_of[name] = interval
        return name

    def alloca(self, text: str) -> str:
        name = self.name()
        self.allocas.append(f"  {name} = alloca {text}")
        self.depth_of[name] = 0
        return name

    # ---- control -------------------------------------------------------------------------------------------
    def label(self, hint: str) -> str:
        self.labels += 1
        return f"{hint}{self.labels}"

    def start(self, label: str) -> None:
        self.scopes[-1].body.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def branch(self, cond: str, then: str, orelse: str, weights: str = "") -> None:
        self.line(f"br i1 {cond}, label %{then}, label %{orelse}{weights}")

    def push(self) -> None:
        scope = Scope()
        self.scopes[-1].body += [scope.preamble, scope.body]
        self.scopes.append(scope)

    def pop(self) -> None:
        for name in self.scopes.pop().names:
            del self.depth_of[name]

    def finish(self) -> str:
        lines = [self.header + " {", "entry:", *self.allocas]
        stack: list = [self.root.body, self.root.preamble]
        while stack:
            item = stack.pop()
            if isinstance(item, str):
                lines.append(item)
            else:
                stack.extend(reversed(item))
        return "\n".join([*lines, "  ret void", "}", ""])

    def interval(self, name: str) -> Interval:
        return self.range_of.get(name, (-inf, inf))

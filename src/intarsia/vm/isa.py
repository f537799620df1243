"""The bytecode of the virtual machine: one page, two tiers (interpreter.py, native.py).

    program  ::= function* kernel* constant* message*                          the entry is function 0
    function ::= name (spec*) -> (spec*) { instruction* }                      spec: dtype and rank

    instruction ::= r = k                                 Imm         an integer
                  | r = a op b                            Arith       64 bits; see OPS
                  | r = dim t, axis                       DimOf       one dimension of a tensor
                  | r = item t, index                     Item        one element (flat) of an integer tensor
                  | check a rel b, message                Check       or fail with the message, `a` and `b`
                  | t = const k                           Const       borrows the program's constant
                  | frame r                               Frame       r bytes, given back when this call ends
                  | t = slot r, dtype (r, …)              Slot        a tensor r bytes into the frame
                  | t = heap dtype (r, …)                 Heap        a tensor that counts its references
                  | t = view t (r, …)                     View        the same elements under other dimensions
                  | t = move t                            Move        another name of the same tensor
                  | free t                                Free        the register is dead from here on
                  | kernel k (t, …) (t, …) (t, …) (r, …)  Launch      inputs, outputs, workspaces, symbols
                  | (t, …) = call f (t, …)                Call
                  | tailcall (t, …)                       TailCall    this function again, in constant space
                  | jump L                                Jump        forward only
                  | branch t else L                       Branch      a rank-0 bool; forward only
                  | return (t, …)                         Return

Integer registers (r, 64 bits) are assigned once; object registers (t) hold tensors; tuples exist at compile
time only. Registers are numbered per function; parameters come in object registers 0, 1, …. A label is the
index of an instruction of the same function. Each field below is annotated with its role, from which
encoding, printing, liveness and verification follow.

A tensor register is {data, owner, dims}. `owner` is a heap block, or null for memory that outlives the
register: a constant, an argument of the caller, a slot of the frame. Return and TailCall copy what would not
outlive this call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np

from intarsia.kernel.stmt import Kernel

OPS = ("add", "sub", "mul", "floordiv", "mod", "min", "max")
RELATIONS = ("==", "<=", "<", ">=", ">", "!=")
MAX_RANK = 8


class Role(NamedTuple):
    """kind: int, object, imm, label, kernel, const, function, message, dtype, op or relation; access: def,
    use or ''.
    """

    kind: str
    access: str = ""


DefInt = Annotated[int, Role("int", "def")]
UseInt = Annotated[int, Role("int", "use")]
DefObj = Annotated[int, Role("object", "def")]
UseObj = Annotated[int, Role("object", "use")]
UseInts = Annotated[tuple[int, ...], Role("int", "use")]
DefObjs = Annotated[tuple[int, ...], Role("object", "def")]
UseObjs = Annotated[tuple[int, ...], Role("object", "use")]
ImmInt = Annotated[int, Role("imm")]
Label = Annotated[int, Role("label")]
KernelId = Annotated[int, Role("kernel")]
ConstId = Annotated[int, Role("const")]
FunctionId = Annotated[int, Role("function")]
MessageId = Annotated[int, Role("message")]
DType = Annotated[str, Role("dtype")]
Op = Annotated[str, Role("op")]
Relation = Annotated[str, Role("relation")]


@dataclass(frozen=True, slots=True)
class Instr:
    """Base of all instructions."""


@dataclass(frozen=True, slots=True)
class Imm(Instr):
    dst: DefInt
    value: ImmInt


@dataclass(frozen=True, slots=True)
class Arith(Instr):
    """floordiv and mod are Python's; a divisor of 0, which only a size that is not used has, gives 0."""

    dst: DefInt
    op: Op
    a: UseInt
    b: UseInt


@dataclass(frozen=True, slots=True)
class DimOf(Instr):
    dst: DefInt
    src: UseObj
    axis: ImmInt


@dataclass(frozen=True, slots=True)
class Item(Instr):
    dst: DefInt
    src: UseObj
    index: ImmInt


@dataclass(frozen=True, slots=True)
class Check(Instr):
    a: UseInt
    relation: Relation
    b: UseInt
    message: MessageId


@dataclass(frozen=True, slots=True)
class Const(Instr):
    dst: DefObj
    constant: ConstId


@dataclass(frozen=True, slots=True)
class Frame(Instr):
    size: UseInt


@dataclass(frozen=True, slots=True)
class Slot(Instr):
    dst: DefObj
    offset: UseInt
    dtype: DType
    dims: UseInts


@dataclass(frozen=True, slots=True)
class Heap(Instr):
    dst: DefObj
    dtype: DType
    dims: UseInts


@dataclass(frozen=True, slots=True)
class View(Instr):
    dst: DefObj
    src: UseObj
    dims: UseInts


@dataclass(frozen=True, slots=True)
class Move(Instr):
    dst: DefObj
    src: UseObj


@dataclass(frozen=True, slots=True)
class Free(Instr):
    src: UseObj


@dataclass(frozen=True, slots=True)
class Launch(Instr):
    kernel: KernelId
    inputs: UseObjs
    outputs: UseObjs
    workspaces: UseObjs
    symbols: UseInts


@dataclass(frozen=True, slots=True)
class Call(Instr):
    dsts: DefObjs
    function: FunctionId
    args: UseObjs


@dataclass(frozen=True, slots=True)
class TailCall(Instr):
    args: UseObjs


@dataclass(frozen=True, slots=True)
class Jump(Instr):
    target: Label


@dataclass(frozen=True, slots=True)
class Branch(Instr):
    cond: UseObj
    orelse: Label


@dataclass(frozen=True, slots=True)
class Return(Instr):
    results: UseObjs


INSTRUCTIONS: tuple[type[Instr], ...] = (
    Imm, Arith, DimOf, Item, Check, Const, Frame, Slot, Heap, View, Move, Free, Launch, Call, TailCall, Jump,
    Branch, Return,
)  # fmt: skip
TERMINATORS = (TailCall, Jump, Return)


class Spec(NamedTuple):
    """What a register may hold."""

    dtype: str
    rank: int

    def __str__(self) -> str:
        return f"{self.dtype}[{self.rank}]"


@dataclass(frozen=True, slots=True)
class Function:
    """ints, objects: how many registers of each kind there are."""

    name: str
    params: tuple[Spec, ...]
    results: tuple[Spec, ...]
    ints: int
    objects: int
    code: tuple[Instr, ...]


@dataclass(frozen=True, slots=True)
class KernelRef:
    """symbol: its name in the machine code. inputs, outputs, workspaces: what it takes. symbols: how many
    integers.

    kernel: the loops themselves, for the portable tier; None in a loaded artifact.
    """

    symbol: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    workspaces: tuple[Spec, ...]
    symbols: int
    kernel: Kernel | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Message:
    """An error that a check raises: kind 'input' or 'run', the code, and a text with {a} and {b} for the two
    values.
    """

    kind: str
    code: str
    text: str
    where: str = ""


@dataclass(frozen=True, slots=True)
class Program:
    functions: tuple[Function, ...]
    kernels: tuple[KernelRef, ...]
    constants: tuple[np.ndarray, ...]
    messages: tuple[Message, ...]


class Operand(NamedTuple):
    """name: the field; many: whether it holds a tuple."""

    name: str
    role: Role
    many: bool


@cache
def operands(kind: type[Instr]) -> tuple[Operand, ...]:
    """The fields of an instruction class in order, with their roles."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        base, role = get_args(hint)
        found.append(Operand(name, role, get_origin(base) is tuple))
    return tuple(found)


def registers(instr: Instr, kind: str, access: str) -> tuple[int, ...]:
    """The registers of a kind ('int' or 'object') that the instruction uses or defines, in field order."""
    found: list[int] = []
    for operand in operands(type(instr)):
        if operand.role == (kind, access):
            value = getattr(instr, operand.name)
            found.extend(value if operand.many else (value,))
    return tuple(found)


def show(program: Program) -> str:
    """The program as text, for people and golden tests."""
    lines = []
    for f in program.functions:
        params = ", ".join(f"t{i}: {s}" for i, s in enumerate(f.params))
        lines.append(f"function {f.name}({params}) -> ({', '.join(map(str, f.results))})")
        targets = {getattr(i, "target", getattr(i, "orelse", None)) for i in f.code}
        for at, instr in enumerate(f.code):
            lines.append(f"{f'L{at}:' if at in targets else '':>6}  {text(instr, program)}")
        lines.append("")
    for k, ref in enumerate(program.kernels):
        ins, outs, works = (", ".join(map(str, specs)) for specs in (ref.inputs, ref.outputs, ref.workspaces))
        lines.append(
            f"kernel k{k} {ref.symbol}({ins}) -> ({outs}) using ({works}) and {ref.symbols} integers"
        )
    for k, c in enumerate(program.constants):
        lines.append(f"constant c{k} {c.dtype}{list(c.shape)}")
    for k, m in enumerate(program.messages):
        lines.append(f"message m{k} {m.code} {m.text}")
    return "\n".join(lines) + "\n"


def _list(prefix: str, numbers: Sequence[int]) -> str:
    return "(" + ", ".join(f"{prefix}{n}" for n in numbers) + ")"


_SIGN = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}


def text(i: Instr, program: Program | None = None) -> str:
    """One instruction as a line of text."""
    match i:
        case Imm():
            return f"r{i.dst} = {i.value}"
        case Arith():
            sign = _SIGN.get(i.op)
            return f"r{i.dst} = r{i.a} {sign} r{i.b}" if sign else f"r{i.dst} = {i.op}(r{i.a}, r{i.b})"
        case DimOf():
            return f"r{i.dst} = dim t{i.src}, {i.axis}"
        case Item():
            return f"r{i.dst} = item t{i.src}, {i.index}"
        case Check():
            return f"check r{i.a} {i.relation} r{i.b}, m{i.message}"
        case Const():
            return f"t{i.dst} = const c{i.constant}"
        case Frame():
            return f"frame r{i.size}"
        case Slot():
            return f"t{i.dst} = slot r{i.offset}, {i.dtype} {_list('r', i.dims)}"
        case Heap():
            return f"t{i.dst} = heap {i.dtype} {_list('r', i.dims)}"
        case View():
            return f"t{i.dst} = view t{i.src} {_list('r', i.dims)}"
        case Move():
            return f"t{i.dst} = move t{i.src}"
        case Free():
            return f"free t{i.src}"
        case Launch():
            name = f"k{i.kernel}" if program is None else f"k{i.kernel}:{program.kernels[i.kernel].symbol}"
            inputs, outputs, rest = (_list("t", r) for r in (i.inputs, i.outputs, i.workspaces))
            return f"kernel {name} {inputs} -> {outputs} {rest} {_list('r', i.symbols)}"
        case Call():
            name = f"f{i.function}" if program is None else program.functions[i.function].name
            return f"{_list('t', i.dsts)} = call {name} {_list('t', i.args)}"
        case TailCall():
            return f"tailcall {_list('t', i.args)}"
        case Jump():
            return f"jump L{i.target}"
        case Branch():
            return f"branch t{i.cond} else L{i.orelse}"
        case Return():
            return f"return {_list('t', i.results)}"
    raise TypeError(f"not an instruction: {i!r}")

"""Accept or refuse a program without running it.

Every function is walked along its control flow with what each register holds (dtype and rank) on all paths.
Refused: registers out of range, used before they are assigned or after `free`, of another kind than the
instruction wants; integers assigned twice; jumps that do not go forward to an instruction; operands that do
not fit the kernel, the function or the constant they name; code that runs off its end.
"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.support.errors import ArtifactError
from intarsia.vm import isa
from intarsia.vm.isa import TERMINATORS, Function, Instr, Program, Spec, operands

_INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


@dataclass(slots=True)
class _State:
    """What is known where control stands."""

    ints: frozenset[int]
    objects: dict[int, Spec]
    framed: bool

    def meet(self, other: _State) -> _State:
        objects = {r: s for r, s in self.objects.items() if other.objects.get(r) == s}
        return _State(self.ints & other.ints, objects, self.framed and other.framed)


def verify(program: Program) -> None:
    """Raises ArtifactError ART-007 with the function and the instruction that is wrong."""
    for f in program.functions:
        _Checker(program, f).run()


class _Checker:
    def __init__(self, program: Program, f: Function):
        self.program, self.f, self.at = program, f, 0

    def refuse(self, why: str) -> ArtifactError:
        line = ""
        if self.at < len(self.f.code):
            line = f", instruction {self.at}"
        return ArtifactError(
            "ART-007", f"the program is not valid: {self.f.name}{line}: {why}", remedy="save the model again"
        )

    def require(self, holds: bool, why: str) -> None:
        if not holds:
            raise self.refuse(why)

    def run(self) -> None:
        f = self.f
        self.require(len(f.params) <= f.objects, "more parameters than registers")
        self.require(bool(f.code) and isinstance(f.code[-1], TERMINATORS), "the code runs off its end")
        arriving: dict[int, _State] = {}
        state: _State | None = _State(frozenset(), dict(enumerate(f.params)), False)
        assigned: set[int] = set()
        for self.at, instr in enumerate(f.code):
            if self.at in arriving:
                state = arriving[self.at] if state is None else state.meet(arriving[self.at])
            if state is None:
                raise self.refuse("no path leads here")
            self._ranges(instr)
            for r in isa.registers(instr, "int", "use"):
                self.require(r in state.ints, f"r{r} has no value")
            for r in isa.registers(instr, "object", "use"):
                self.require(r in state.objects, f"t{r} has no value")
            for r in isa.registers(instr, "int", "def"):
                self.require(r not in assigned, f"r{r} is assigned twice")
                assigned.add(r)
            state = self._step(instr, state)
            target = getattr(instr, "target", getattr(instr, "orelse", None))
            if isinstance(instr, isa.Jump | isa.Branch):
                assert isinstance(target, int)
                known = arriving.get(target)
                arriving[target] = state if known is None else known.meet(state)
            if isinstance(instr, TERMINATORS):
                state = None

    def _ranges(self, instr: Instr) -> None:
        limits = {
            "int": self.f.ints,
            "object": self.f.objects,
            "kernel": len(self.program.kernels),
            "const": len(self.program.constants),
            "function": len(self.program.functions),
            "message": len(self.program.messages),
            "label": len(self.f.code),
        }
        for name, role, many in operands(type(instr)):
            value = getattr(instr, name)
            limit = limits.get(role.kind)
            if limit is not None:
                for v in value if many else (value,):
                    self.require(0 <= v < limit, f"{role.kind} {v} does not exist")
            if role.kind == "label":
                self.require(value > self.at, "a jump must go forward")
            if role.kind == "imm":
                self.require(-(1 << 63) <= value < 1 << 63, "an immediate has more than 64 bits")

    def _step(self, instr: Instr, state: _State) -> _State:
        objects = (
            dict(state.objects)
            if isa.registers(instr, "object", "def") or isinstance(instr, isa.Free)
            else state.objects
        )
        ints, framed = state.ints, state.framed
        defined = isa.registers(instr, "int", "def")
        if defined:
            ints = ints | set(defined)
        match instr:
            case isa.DimOf(_, src, axis):
                self.require(0 <= axis < objects[src].rank, f"t{src} has no dimension {axis}")
            case isa.Item(_, src, index):
                self.require(
                    objects[src].dtype in _INTEGERS and index >= 0, f"t{src} holds no integer {index}"
                )
            case isa.Const(dst, constant):
                array = self.program.constants[constant]
                objects[dst] = self._shape(array.dtype.name, array.ndim)
            case isa.Frame():
                self.require(not framed, "a second frame")
                framed = True
            case isa.Slot(dst, _, dtype, dims) | isa.Heap(dst, dtype, dims):
                self.require(isinstance(instr, isa.Heap) or framed, "a slot without a frame")
                objects[dst] = self._shape(dtype, len(dims))
            case isa.View(dst, src, dims):
                objects[dst] = self._shape(objects[src].dtype, len(dims))
            case isa.Move(dst, src):
                objects[dst] = objects[src]
            case isa.Free(src):
                del objects[src]
            case isa.Launch(k, inputs, outputs, workspaces, symbols):
                kernel = self.program.kernels[k]
                self._fits("inputs", inputs, kernel.inputs, objects)
                self._fits("outputs", outputs, kernel.outputs, objects)
                self._fits("workspaces", workspaces, kernel.workspaces, objects)
                self.require(len(symbols) == kernel.symbols, f"the kernel takes {kernel.symbols} integers")
            case isa.Call(dsts, callee, args):
                function = self.program.functions[callee]
                self._fits("arguments", args, function.params, objects)
                self.require(
                    len(dsts) == len(function.results) == len(set(dsts)),
                    "the results do not fit the function",
                )
                objects.update(zip(dsts, function.results))
            case isa.TailCall(args):
                self._fits("arguments", args, self.f.params, objects)
            case isa.Branch(cond, _):
                self.require(objects[cond] == Spec("bool", 0), f"t{cond} is no rank-0 bool")
            case isa.Return(results):
                self._fits("results", results, self.f.results, objects)
        return _State(ints, objects, framed)

    def _shape(self, dtype: str, rank: int) -> Spec:
        self.require(rank <= isa.MAX_RANK, f"rank {rank} is above {isa.MAX_RANK}")
        return Spec(dtype, rank)

    def _fits(
        self, what: str, registers: tuple[int, ...], specs: tuple[Spec, ...], objects: dict[int, Spec]
    ) -> None:
        self.require(len(registers) == len(specs), f"{len(registers)} {what} instead of {len(specs)}")
        for r, s in zip(registers, specs):
            self.require(objects[r] == s, f"t{r} is {objects[r]}, not {s}, among the {what}")

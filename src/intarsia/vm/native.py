"""The native tier: the whole bytecode as LLVM IR text, one machine-code function per bytecode function.

    i32 f(context*, tensor** arguments, tensor** results)    0, or 1 with message and values in the context
    i32 intarsia_run(context*, tensor* arguments, tensor* results, i64 stack)         the entry, from outside

Object registers are tensors on the stack, {data, owner, dims[8]}; integer registers are SSA values (each is
assigned once, and every use is dominated by it). Kernels are called by their symbols. A failed call leaves no
block behind: the entry gives back whatever is still alive.
"""

from __future__ import annotations

from intarsia.kernel.target import ITEMSIZE
from intarsia.vm import isa
from intarsia.vm.isa import Function, Program
from intarsia.vm.support_ir import (
    CHUNK,
    HEADER,
    NO_SIZE,
    OUT_OF_MEMORY,
    STACK,
    STACK_OVERFLOW,
    SUPPORT,
    TENSOR_WORDS,
    TOP,
    A,
    B,
)

_ARITH = {"add": "add", "sub": "sub", "mul": "mul"}
_CALLS = {
    "floordiv": "@intarsia_floordiv",
    "mod": "@intarsia_mod",
    "min": "@llvm.smin.i64",
    "max": "@llvm.smax.i64",
}
_COMPARE = {"==": "eq", "!=": "ne", "<=": "sle", "<": "slt", ">=": "sge", ">": "sgt"}
_INTEGER = {"bool": ("i8", "zext"), "int8": ("i8", "sext"), "uint8": ("i8", "zext"), "int16": ("i16", "sext"),
            "uint16": ("i16", "zext"), "int32": ("i32", "sext"), "uint32": ("i32", "zext"),
            "int64": ("i64", ""),
            "uint64": ("i64", "")}  # fmt: skip


def emit_program(program: Program) -> str:
    """The program's glue as one LLVM module; it calls the kernels by their symbols."""
    parts = [SUPPORT, "declare i64 @llvm.smin.i64(i64, i64)\ndeclare i64 @llvm.smax.i64(i64, i64)\n"]
    parts += [
        f"declare void @{name}(ptr, ptr, ptr)\n" for name in dict.fromkeys(k.symbol for k in program.kernels)
    ]
    recursive = _recursive(program)
    parts += [_FunctionEmitter(program, i, i in recursive).run() for i in range(len(program.functions))]
    parts.append(_entry(program.functions[0]))
    return "\n".join(parts)


def _recursive(program: Program) -> set[int]:
    """Functions that may be active more than once (they reach themselves through calls)."""
    calls = [{i.function for i in f.code if isinstance(i, isa.Call)} for f in program.functions]
    found = set()
    for start in range(len(calls)):
        seen: set[int] = set()
        todo = list(calls[start])
        while todo:
            f = todo.pop()
            if f not in seen:
                seen.add(f)
                todo.extend(calls[f])
        if start in seen:
            found.add(start)
    return found


def _entry(f: Function) -> str:
    """Pointers to the caller's tensors, the call, and cleaning up."""
    n, m = len(f.params), len(f.results)
    out = [
        "define i32 @intarsia_run(ptr %c, ptr %arguments, ptr %results, i64 %stack) {",
        f"  %args = alloca [{max(n, 1)} x ptr]",
        f"  %outs = alloca [{max(m, 1)} x ptr]",
    ]
    for name, base, count in (("args", "arguments", n), ("outs", "results", m)):
        for i in range(count):
            out.append(f"  %{name}.t{i} = getelementptr %tensor, ptr %{base}, i64 {i}")
            out.append(f"  %{name}.p{i} = getelementptr ptr, ptr %{name}, i64 {i}")
            out.append(f"  store ptr %{name}.t{i}, ptr %{name}.p{i}")
    out += [
        "  %here = call ptr @llvm.frameaddress.p0(i32 0)",
        "  %back = sub i64 0, %stack",
        "  %limit = getelementptr i8, ptr %here, i64 %back",
        f"  %stackp = getelementptr i64, ptr %c, i64 {STACK}",
        "  store ptr %limit, ptr %stackp",
        f"  %chunkp = getelementptr i64, ptr %c, i64 {CHUNK}",
        f"  %topp = getelementptr i64, ptr %c, i64 {TOP}",
        "  %chunk = load ptr, ptr %chunkp",
        "  %top = load ptr, ptr %topp",
        "  %code = call i32 @f0(ptr %c, ptr %args, ptr %outs)",
        "  %failed = icmp ne i32 %code, 0",
        "  br i1 %failed, label %clean, label %hand",
        "hand:",
    ]
    for i in range(m):
        # a block under two results is unlinked once: the link word marks it
        out += [
            f"  %op{i} = getelementptr %tensor, ptr %outs.t{i}, i32 0, i32 1",
            f"  %o{i} = load ptr, ptr %op{i}",
            f"  call void @intarsia_hand_over(ptr %c, ptr %o{i})",
        ]
    out += [
        "  br label %clean",
        "clean:",
        "  call void @intarsia_release_all(ptr %c)",
        "  call void @intarsia_frame_back(ptr %c, ptr %chunk, ptr %top)",
        "  ret i32 %code",
        "}",
        "",
        "define internal void @intarsia_hand_over(ptr %c, ptr %b) {",
        "  %cp = getelementptr %block, ptr %b, i32 0, i32 3",
        "  %class = load i64, ptr %cp",
        "  %gone = icmp slt i64 %class, 0",
        "  br i1 %gone, label %done, label %go",
        "go:",
        "  call void @intarsia_unlink(ptr %c, ptr %b)",
        "  store i64 -1, ptr %cp",
        "  br label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(out) + "\n"


class _FunctionEmitter:
    def __init__(self, program: Program, number: int, recursive: bool):
        self.program, self.number, self.recursive = program, number, recursive
        self.f = program.functions[number]
        self.lines: list[str] = []
        self.specs: dict[int, isa.Spec] = dict(enumerate(self.f.params))
        self.numbers: set[int] = set()  # integer registers that hold constants
        self.names = 0
        self.framed = any(isinstance(i, isa.Frame) for i in self.f.code)

    def run(self) -> str:
        code = self.f.code
        targets = {i.target for i in code if isinstance(i, isa.Jump)} | {
            i.orelse for i in code if isinstance(i, isa.Branch)
        }
        ended = False
        for at, instr in enumerate(code):
            if at in targets:
                if not ended:
                    self.add(f"br label %L{at}")
                self.lines.append(f"L{at}:")
            self.instr(at, instr)
            ended = isinstance(instr, isa.Jump | isa.Return | isa.TailCall)
        head = [f"define internal i32 @f{self.number}(ptr %c, ptr %args, ptr %results) {{"]
        head += [f"  %t{i} = alloca %tensor, align 16" for i in range(self.f.objects)]
        head += self._scratch()
        body = self.lines
        self.lines = []
        self._prologue()
        head += self.lines + ["  br label %start", "start:"]
        if self.framed:
            head += [
                f"  %frame.chunkp = getelementptr i64, ptr %c, i64 {CHUNK}",
                f"  %frame.topp = getelementptr i64, ptr %c, i64 {TOP}",
                "  %frame.chunk = load ptr, ptr %frame.chunkp",
                "  %frame.top = load ptr, ptr %frame.topp",
            ]
        return "\n".join([*head, *body, "}", ""])

    def _scratch(self) -> list[str]:
        buffers = symbols = pointers = tail = 1
        for i in self.f.code:
            match i:
                case isa.Launch():
                    buffers = max(buffers, len(i.inputs) + len(i.outputs) + len(i.workspaces))
                    symbols = max(symbols, len(i.symbols))
                case isa.Call():
                    pointers = max(pointers, len(i.args), len(i.dsts))
                case isa.TailCall() | isa.Return():
                    tail = max(tail, len(self.f.params))
        return [
            f"  %buffers = alloca [{buffers} x ptr], align 16",
            f"  %symbols = alloca [{symbols} x i64], align 16",
            f"  %callargs = alloca [{pointers} x ptr], align 16",
            f"  %callouts = alloca [{pointers} x ptr], align 16",
            f"  %tail = alloca [{tail} x %tensor], align 16",
        ]

    def _prologue(self) -> None:
        for i, spec in enumerate(self.f.params):
            p = self.pointer("args", i, "ptr")
            source = self.value(f"load ptr, ptr {p}")
            self.copy_tensor(f"%t{i}", source, spec.rank)
            owner = self.value(f"load ptr, ptr {self.field(source, 1)}")
            self.add(f"call void @intarsia_retain(ptr {owner})")
        if self.recursive:
            here = self.value("call ptr @llvm.frameaddress.p0(i32 0)")
            limit = self.value(f"load ptr, ptr {self.value(f'getelementptr i64, ptr %c, i64 {STACK}')}")
            self.fail_if(f"icmp ult ptr {here}, {limit}", STACK_OVERFLOW, "0", "0")

    # ---- text ----------------------------------------------------------------------------------------------
    def add(self, line: str) -> None:
        self.lines.append("  " + line)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    def value(self, expression: str) -> str:
        name = "%" + self.name()
        self.add(f"{name} = {expression}")
        return name

    def pointer(self, base: str, i: int, element: str) -> str:
        return self.value(f"getelementptr {element}, ptr %{base}, i64 {i}") if i else f"%{base}"

    def field(self, tensor: str, word: int) -> str:
        return self.value(f"getelementptr i64, ptr {tensor}, i64 {word}") if word else tensor

    def dim(self, tensor: str, axis: int) -> str:
        return self.value(f"load i64, ptr {self.field(tensor, 2 + axis)}")

    def copy_tensor(self, to: str, source: str, rank: int) -> None:
        self.add(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {8 * (2 + rank)}, i1 false)")

    def set_dims(self, tensor: str, dims: tuple[int, ...]) -> None:
        for axis, r in enumerate(dims):
            self.add(f"store i64 %r{r}, ptr {self.field(tensor, 2 + axis)}")

    def bytes(self, dims: list[str], dtype: str) -> str:
        total = str(ITEMSIZE[dtype])
        for d in dims:
            total = self.value(f"call i64 @intarsia_times(i64 {total}, i64 {d})")
        return total

    def fail_if(self, condition: str, message: int, a: str, b: str) -> None:
        bad, good, flag = self.name(), self.name(), self.value(condition)
        self.add(f"br i1 {flag}, label %{bad}, label %{good}")
        self.lines.append(f"{bad}:")
        code = self.value(f"call i32 @intarsia_fail(ptr %c, i64 {message}, i64 {a}, i64 {b})")
        self.add(f"ret i32 {code}")
        self.lines.append(f"{good}:")

    def forward(self, code: str) -> None:
        """Return a callee's failure."""
        bad, good, flag = self.name(), self.name(), self.value(f"icmp ne i32 {code}, 0")
        self.add(f"br i1 {flag}, label %{bad}, label %{good}")
        self.lines.append(f"{bad}:")
        self.add(f"ret i32 {code}")
        self.lines.append(f"{good}:")

    # ---- instructions --------------------------------------------------------------------------------------
    def instr(self, at: int, i: isa.Instr) -> None:
        match i:
            case isa.Imm(dst, value):
                self.numbers.add(dst)
                self.add(f"%r{dst} = add i64 0, {value}")
            case isa.Arith(dst, op, a, b):
                if op in _ARITH:
                    self.add(f"%r{dst} = {_ARITH[op]} i64 %r{a}, %r{b}")
                else:
                    self.add(f"%r{dst} = call i64 {_CALLS[op]}(i64 %r{a}, i64 %r{b})")
            case isa.DimOf(dst, src, axis):
                self.add(f"%r{dst} = load i64, ptr {self.field(f'%t{src}', 2 + axis)}")
            case isa.Item(dst, src, index):
                kind, extend = _INTEGER[self.specs[src].dtype]
                data = self.value(f"load ptr, ptr %t{src}")
                place = self.value(f"getelementptr {kind}, ptr {data}, i64 {index}")
                if extend:
                    self.add(f"%r{dst} = {extend} {kind} {self.value(f'load {kind}, ptr {place}')} to i64")
                else:
                    self.add(f"%r{dst} = load i64, ptr {place}")
            case isa.Check(a, relation, b, message):
                holds = self.value(f"icmp {_COMPARE[relation]} i64 %r{a}, %r{b}")
                self.fail_if(f"xor i1 {holds}, true", message, f"%r{a}", f"%r{b}")
            case isa.Const(dst, constant):
                self.constant(dst, constant)
            case isa.Frame(size):
                self.add(f"%frame = call ptr @intarsia_frame(ptr %c, i64 %r{size})")
                self.fail_if("icmp eq ptr %frame, null", OUT_OF_MEMORY, f"%r{size}", "0")
                self.add(f"%frame.end = getelementptr i8, ptr %frame, i64 %r{size}")
            case isa.Slot(dst, offset, dtype, dims):
                # one symbol alone is the size of something real
                if sum(d not in self.numbers for d in dims) > 1:
                    size = self.bytes([f"%r{d}" for d in dims], dtype)
                    self.fail_if(f"icmp uge i64 {size}, {NO_SIZE}", OUT_OF_MEMORY, size, "0")
                data = self.value(f"getelementptr i8, ptr %frame, i64 %r{offset}")
                self.define(dst, data, "null", isa.Spec(dtype, len(dims)), dims)
            case isa.Heap(dst, dtype, dims):
                size = self.bytes([f"%r{d}" for d in dims], dtype)
                block = self.value(f"call ptr @intarsia_heap(ptr %c, i64 {size})")
                self.fail_if(f"icmp eq ptr {block}, null", OUT_OF_MEMORY, size, "0")
                data = self.value(f"getelementptr i8, ptr {block}, i64 {HEADER}")
                self.define(dst, data, block, isa.Spec(dtype, len(dims)), dims)
            case isa.View(dst, src, dims):
                data, owner = self.retained(src)
                self.define(dst, data, owner, isa.Spec(self.specs[src].dtype, len(dims)), dims)
            case isa.Move(dst, src):
                self.retained(src)
                self.copy_tensor(f"%t{dst}", f"%t{src}", self.specs[src].rank)
                self.specs[dst] = self.specs[src]
            case isa.Free(src):
                owner = self.value(f"load ptr, ptr {self.field(f'%t{src}', 1)}")
                self.add(f"call void @intarsia_release(ptr %c, ptr {owner})")
            case isa.Launch():
                self.launch(i)
            case isa.Call():
                self.call(i)
            case isa.TailCall(args):
                self.tail_call(args)
            case isa.Jump(target):
                self.add(f"br label %L{target}")
            case isa.Branch(cond, orelse):
                data = self.value(f"load ptr, ptr %t{cond}")
                flag = self.value(f"icmp ne i8 {self.value(f'load i8, ptr {data}')}, 0")
                then = self.name()
                self.add(f"br i1 {flag}, label %{then}, label %L{orelse}")
                self.lines.append(f"{then}:")
            case isa.Return(results):
                self.give_back(results)
            case _:
                raise TypeError(f"not an instruction: {i!r}")

    def define(self, dst: int, data: str, owner: str, spec: isa.Spec, dims: tuple[int, ...]) -> None:
        self.specs[dst] = spec
        self.add(f"store ptr {data}, ptr %t{dst}")
        self.add(f"store ptr {owner}, ptr {self.field(f'%t{dst}', 1)}")
        self.set_dims(f"%t{dst}", dims)

    def retained(self, src: int) -> tuple[str, str]:
        data = self.value(f"load ptr, ptr %t{src}")
        owner = self.value(f"load ptr, ptr {self.field(f'%t{src}', 1)}")
        self.add(f"call void @intarsia_retain(ptr {owner})")
        return data, owner

    def constant(self, dst: int, number: int) -> None:
        array = self.program.constants[number]
        table = self.value(f"load ptr, ptr {self.value('getelementptr i64, ptr %c, i64 9')}")
        data = self.value(f"load ptr, ptr {self.value(f'getelementptr ptr, ptr {table}, i64 {number}')}")
        self.specs[dst] = isa.Spec(array.dtype.name, array.ndim)
        self.add(f"store ptr {data}, ptr %t{dst}")
        self.add(f"store ptr null, ptr {self.field(f'%t{dst}', 1)}")
        for axis, d in enumerate(array.shape):
            self.add(f"store i64 {d}, ptr {self.field(f'%t{dst}', 2 + axis)}")

    def launch(self, i: isa.Launch) -> None:
        for k, r in enumerate((*i.inputs, *i.outputs, *i.workspaces)):
            self.add(
                f"store ptr {self.value(f'load ptr, ptr %t{r}')}, ptr {self.pointer('buffers', k, 'ptr')}"
            )
        for k, r in enumerate(i.symbols):
            self.add(f"store i64 %r{r}, ptr {self.pointer('symbols', k, 'i64')}")
        self.add(f"call void @{self.program.kernels[i.kernel].symbol}(ptr %c, ptr %buffers, ptr %symbols)")

    def call(self, i: isa.Call) -> None:
        for base, registers in (("callargs", i.args), ("callouts", i.dsts)):
            for k, r in enumerate(registers):
                self.add(f"store ptr %t{r}, ptr {self.pointer(base, k, 'ptr')}")
        code = self.value(f"call i32 @f{i.function}(ptr %c, ptr %callargs, ptr %callouts)")
        self.forward(code)
        self.specs.update(zip(i.dsts, self.program.functions[i.function].results, strict=True))

    def owned(self, to: str, src: int, must_copy: str) -> None:
        """`to` becomes the tensor of register src; copied to the heap if it has no owner and `must_copy` (an
        i1) holds.
        """
        spec = self.specs[src]
        self.copy_tensor(to, f"%t{src}", spec.rank)
        copy, done = self.name(), self.name()
        self.add(f"br i1 {must_copy}, label %{copy}, label %{done}")
        self.lines.append(f"{copy}:")
        size = self.bytes([self.dim(f"%t{src}", axis) for axis in range(spec.rank)], spec.dtype)
        code = self.value(f"call i32 @intarsia_own(ptr %c, ptr {to}, ptr %t{src}, i64 {size})")
        self.forward(code)
        self.add(f"br label %{done}")
        self.lines.append(f"{done}:")

    def give_back(self, results: tuple[int, ...]) -> None:
        for k, r in enumerate(results):
            owner = self.value(f"load ptr, ptr {self.field(f'%t{r}', 1)}")
            if r in results[:k]:
                self.add(f"call void @intarsia_retain(ptr {owner})")
            to = self.value(f"load ptr, ptr {self.pointer('results', k, 'ptr')}")
            self.owned(to, r, self.value(f"icmp eq ptr {owner}, null"))
        self.leave_frame()
        self.add("ret i32 0")

    def leave_frame(self) -> None:
        if self.framed:
            self.add("call void @intarsia_frame_back(ptr %c, ptr %frame.chunk, ptr %frame.top)")

    def tail_call(self, args: tuple[int, ...]) -> None:
        for k, r in enumerate(args):
            owner = self.value(f"load ptr, ptr {self.field(f'%t{r}', 1)}")
            if r in args[:k]:
                self.add(f"call void @intarsia_retain(ptr {owner})")
            inside = "false"
            if self.framed:
                data = self.value(f"load ptr, ptr %t{r}")
                low = self.value(f"icmp uge ptr {data}, %frame")
                high = self.value(f"icmp ule ptr {data}, %frame.end")
                free = self.value(f"icmp eq ptr {owner}, null")
                inside = self.value(f"and i1 {free}, {self.value(f'and i1 {low}, {high}')}")
            self.owned(self.pointer("tail", k, "%tensor"), r, inside)
        for k in range(len(args)):
            self.copy_tensor(f"%t{k}", self.pointer("tail", k, "%tensor"), self.f.params[k].rank)
        self.leave_frame()
        self.add("br label %start")


__all__ = ["A", "B", "TENSOR_WORDS", "emit_program"]

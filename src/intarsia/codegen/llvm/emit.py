"""From the loop language to the text of one LLVM module.

Equal kernels give equal text, whatever their buffers, variables and symbols are called: names come from
positions. The text leaves little to optimise: index arithmetic is already hoisted and shared (writer.py),
loads are shared within straight-line code, vectors are explicit. What remains is putting register buffers
into registers, which one pass does.
"""

from __future__ import annotations

import hashlib
from math import inf

from intarsia.codegen.llvm.access import Place, strides_of
from intarsia.codegen.llvm.index import Linear
from intarsia.codegen.llvm.statements import ATTRIBUTES, Outlined, StmtEmitter
from intarsia.codegen.llvm.writer import Function, Module
from intarsia.kernel.expr import Buffer
from intarsia.kernel.stmt import For, Kernel
from intarsia.kernel.target import Target
from intarsia.support.errors import CodegenError


def emit_kernel(kernel: Kernel, target: Target, symbol: str | None = None) -> str:
    """The LLVM IR of a kernel: one module that defines `symbol` (default: `k_` and a hash of the module)."""
    module = Module(target)
    placeholder = "@kernel.entry"
    header = f"define void {placeholder}(ptr %ctx, ptr %buffers, ptr %symbols) {ATTRIBUTES}"
    f = Function(module, header)
    body = _Entry(f, kernel)
    body.stmt(kernel.body)
    module.functions.append(f.finish())
    text = module.text()
    if symbol is None:
        symbol = "k_" + hashlib.sha256(f"{target}\n{text}".encode()).hexdigest()[:24]
    return text.replace(placeholder, f"@{symbol}")


def symbol_of(ir: str) -> str:
    """The name of the kernel that a module of `emit_kernel` defines."""
    start = ir.index("define void @") + len("define void @")
    return ir[start : ir.index("(", start)]


class _Entry(StmtEmitter):
    """The kernel's own function."""

    def __init__(self, f: Function, kernel: Kernel):
        super().__init__(f, kernel)
        buffers = (*kernel.inputs, *kernel.outputs, *kernel.workspaces)
        self.slots = {id(b): (i, b) for i, b in enumerate(buffers)}
        self.sizes = {d.symbol for b in buffers for d in b.shape if d.symbol is not None}
        for name in ("%ctx", "%buffers", "%symbols"):
            f.depth_of[name] = 0

    def lookup(self, name: str) -> int | str:
        if name not in self.kernel.symbols:
            return super().lookup(name)
        where = self.f.pure(f"getelementptr i64, ptr %symbols, i64 {self.kernel.symbols.index(name)}", ())
        bounds = (0, inf) if name in self.sizes else None
        return self.f.pure(f"load i64, ptr {where}, align 8", (where,), bounds)

    def place(self, buffer: Buffer) -> Place:
        found = self.places.get(id(buffer))
        if found is None:
            if id(buffer) not in self.slots:
                return super().place(buffer)
            slot = self.slots[id(buffer)][0]
            where = self.f.pure(f"getelementptr ptr, ptr %buffers, i64 {slot}", ())
            pointer = self.f.pure(f"load ptr, ptr {where}, align 8", (where,))
            found = self.places[id(buffer)] = Place(
                pointer, strides_of(buffer.shape), buffer.dtype, buffer.scope
            )
        return found

    def outline(self, s: For) -> Outlined:
        return _Outlined(self, s).write(s)


class _Outlined(StmtEmitter):
    """A parallel loop's body as a function of (environment, first, last); it captures what it needs."""

    def __init__(self, outer: StmtEmitter, s: For):
        module = outer.f.module
        self.name = f"parallel.{module.outlined}"
        module.outlined += 1
        header = f"define internal void @{self.name}(ptr %env, i64 %first, i64 %last) {ATTRIBUTES} noinline"
        super().__init__(Function(module, header, outer.f), outer.kernel)
        self.outer = outer
        self.captures: list[tuple[str, str]] = []
        self._captured: dict[str, str] = {}
        for name in ("%env", "%first", "%last"):
            self.f.depth_of[name] = 0
        self.f.range_of["%first"] = (0, inf)

    def capture(self, name: str, t: str) -> str:
        """The value of the outer function's `name` in this one."""
        if name not in self._captured:
            slot = len(self.captures) + 2
            self.captures.append((name, t))
            where = self.f.pure(f"getelementptr i64, ptr %env, i64 {slot}", ())
            self._captured[name] = self.f.pure(
                f"load {t}, ptr {where}, align 8", (where,), self.outer.f.interval(name)
            )
        return self._captured[name]

    def lookup(self, name: str) -> int | str:
        value = self.outer.vars.get(name)
        if value is None:
            value = self.outer.lookup(name)
        if not isinstance(value, (int, str)):
            raise CodegenError("CODE-001", f"variable {name} differs between lanes")
        return value if isinstance(value, int) else self.capture(value, "i64")

    def place(self, buffer: Buffer) -> Place:
        found = self.places.get(id(buffer))
        if found is None:
            if buffer.of is not None:
                return super().place(buffer)
            p = self.outer.place(buffer)
            pointer = self.capture(p.pointer, "ptr")
            found = self.places[id(buffer)] = Place(pointer, p.strides, p.dtype, p.scope, p.size, p.per_lane)
        return found

    def write(self, s: For) -> Outlined:
        f = self.f
        high = self.outer.indices.interval(self.outer.indices.linear(s.extent))[1]

        def body(i: int | str) -> None:
            index = f.pure(
                f"add nuw nsw i64 %first, {i}", ("%first", *self.indices.names(str(i))), (0, high - 1)
            )
            self.vars[s.var] = index
            self.stmt(s.body)

        span = f.pure("sub nsw i64 %last, %first", ("%last", "%first"))
        self.count(Linear(0, {(span,): 1}), body, self.stored(s.body))
        f.module.functions.append(f.finish())
        f.module.functions.append(_PART.format(name=self.name, attributes=ATTRIBUTES))
        f.module.declare("llvm.smin.i64", "i64 {}(i64, i64)")
        return Outlined(self.name, self.captures)


# One share of a parallel loop: iterations index * chunk … below the next share or the end.
_PART = """define internal void @{name}.part(ptr %env, i64 %index) {attributes} {{
  %chunk = load i64, ptr %env, align 8
  %count.at = getelementptr i64, ptr %env, i64 1
  %count = load i64, ptr %count.at, align 8
  %first = mul i64 %index, %chunk
  %next = add i64 %first, %chunk
  %last = call i64 @llvm.smin.i64(i64 %next, i64 %count)
  call void @{name}(ptr %env, i64 %first, i64 %last)
  ret void
}}
"""

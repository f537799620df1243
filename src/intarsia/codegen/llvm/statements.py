"""Statements of the loop language as instructions: loops, branches, allocations, stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intarsia.codegen.llvm.access import Place, strides_of
from intarsia.codegen.llvm.body import ExprEmitter
from intarsia.codegen.llvm.index import LANE, Lane, LaneNames, Linear, NotAffine
from intarsia.codegen.llvm.writer import MEMORY_TYPE, Function, Value
from intarsia.kernel.expr import Expr, LaneReduce, Load, walk
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store
from intarsia.kernel.target import ITEMSIZE
from intarsia.support.errors import CodegenError

WORTH_SHARING = 8000  # nanoseconds of work below which a parallel loop runs on the calling thread
SHARE = 4000  # nanoseconds of work that one thread should take at a time
UNROLLED_CHUNKS = 8  # a vector loop of more chunks becomes a loop over chunks, unless it names registers
ATTRIBUTES = "nounwind"
# Nothing, but loads do not move across it. Instruction selection clusters loads of neighbours, which
# fetches operands of later steps of an unrolled register tile too early and makes it spill.
FENCE = 'call void asm sideeffect "", ""()'


@dataclass(frozen=True, slots=True)
class Outlined:
    """A function (environment, first, last) that runs some iterations; `name`.part runs one share of them.

    captures: what it needs from outside: (name there, LLVM type), in the order of the environment's slots.
    """

    name: str
    captures: list[tuple[str, str]]


class StmtEmitter(ExprEmitter):
    """Emits statements into one function."""

    def __init__(self, f: Function, kernel: Kernel):
        super().__init__(f)
        self.kernel = kernel
        self._stored: dict[int, frozenset[tuple[str, int]]] = {}
        self._registers: dict[int, bool] = {}
        self._widths: dict[int, int] = {}

    def outline(self, s: For) -> Outlined | None:
        """A parallel loop's body as a function of its own; None where the loop must run here."""
        return None

    def stmt(self, s: Stmt) -> None:
        match s:
            case Block():
                for inner in s.stmts:
                    self.stmt(inner)
            case Store():
                self.store(s)
            case For():
                self.loop(s)
            case Allocate():
                self.allocate(s)
            case Bind():
                self.bind(s)
            case If():
                self.conditional(s)
            case _:
                raise CodegenError("CODE-001", f"unknown statement {type(s).__name__}")

    def store(self, s: Store) -> None:
        v = self.value(s.value)
        if v.dtype != s.buffer.dtype:
            raise CodegenError("CODE-001", f"{v.dtype} stored to {s.buffer.name}, which is {s.buffer.dtype}")
        place = self.place(s.buffer)
        self.access.store(place, s.indices, self.index_values(place, s.indices), v)
        if place.scope != "register":
            self.access.forget(frozenset({(place.scope, id(s.buffer))}))

    def stored(self, s: Stmt) -> frozenset[tuple[str, int]]:
        """Buffers outside registers that s writes."""
        found = self._stored.get(id(s))
        if found is None:
            match s:
                case Block():
                    parts = list(s.stmts)
                case For() | Allocate() | Bind():
                    parts = [s.body]
                case If():
                    parts = [s.then] if s.orelse is None else [s.then, s.orelse]
                case _:
                    parts = []
            own = (
                {(s.buffer.scope, id(s.buffer))}
                if isinstance(s, Store) and s.buffer.scope != "register"
                else set()
            )
            found = self._stored[id(s)] = frozenset(own).union(*map(self.stored, parts))
        return found

    def separately(
        self, stored: frozenset[tuple[str, int]], emit: Callable[[], None], *, repeated: bool = False
    ) -> None:
        """Emit what may not run or run again: its loads are unknown after it, its stores before."""
        f = self.f
        outside = f.local
        f.local = dict(outside)
        if repeated:
            self.access.forget(stored)
        emit()
        f.local = outside
        self.access.forget(stored)

    # ---- scopes --------------------------------------------------------------------------------------------
    def bind(self, s: Bind) -> None:
        if isinstance(s.value, Expr):
            self.bind_value(s, self.a.cast(self.value(s.value), "int64"))
            return
        try:
            x = self.indices.linear(s.value)
            varying = any(LANE in key for key in x.terms)
        except NotAffine:
            varying = True
        self.vars[s.name] = s.value if varying else self.indices.value(x) if x.terms else x.constant
        self.stmt(s.body)
        del self.vars[s.name]

    def bind_value(self, s: Bind, v: Value) -> None:
        if isinstance(v.const, int):
            self.vars[s.name] = v.const
            self.stmt(s.body)
        elif v.lanes:
            names = tuple(self.a.lane(v, i).text for i in range(v.lanes))
            self.f.push()
            self.vars[s.name] = LaneNames(tuple(self.f.early(n) for n in names))
            self.stmt(s.body)
            self.f.pop()
        else:
            name = v.text
            if name not in self.f.depth_of:
                self.f.push()
                self.vars[s.name] = self.f.early(name)
                self.stmt(s.body)
                self.f.pop()
            else:
                self.vars[s.name] = name
                self.stmt(s.body)
        del self.vars[s.name]

    def allocate(self, s: Allocate) -> None:
        b, f = s.buffer, self.f
        t, lanes = MEMORY_TYPE[b.dtype], max(self.lanes, 1)
        if all(d.is_const for d in b.shape):
            count = lanes
            for d in b.shape:
                count *= d.value
            pad = 64 // ITEMSIZE[b.dtype]  # a vector's ragged end may reach past the elements
            name = f.alloca(f"[{count + pad} x {t}], align 64")
            self.places[id(b)] = Place(name, strides_of(b.shape), b.dtype, b.scope, count, self.lanes)
            self.stmt(s.body)
        else:
            save = f.module.declare("llvm.stacksave.p0", "ptr {}()")
            restore = f.module.declare("llvm.stackrestore.p0", "void {}(ptr)")
            total = Linear(lanes)
            for d in b.shape:
                total = total.times(self.indices.linear(d))
            size = self.indices.value(total)
            mark = f.ins(f"call ptr @{save}()")
            name = f.ins(f"alloca {t}, i64 {size}, align 64")
            f.push()
            self.places[id(b)] = Place(f.early(name), strides_of(b.shape), b.dtype, b.scope, None, self.lanes)
            self.stmt(s.body)
            f.pop()
            f.line(f"call void @{restore}(ptr {mark})")
        del self.places[id(b)]

    def conditional(self, s: If) -> None:
        cond = self.value(s.cond)
        if cond.const is not None:
            chosen = s.then if cond.const else s.orelse
            if chosen is not None:
                self.stmt(chosen)
            return
        if cond.lanes:
            self.under_mask(cond, s.then)
            if s.orelse is not None:
                self.under_mask(self.a.unary("not", cond), s.orelse)
            return
        f = self.f
        then, done = f.label("then"), f.label("endif")
        orelse = f.label("else") if s.orelse is not None else done
        f.branch(cond.text, then, orelse)
        known = self.indices.facts
        self.indices.facts = known | self.facts(s.cond, True)
        self.arm(then, s.then, done)
        if s.orelse is not None:
            self.indices.facts = known
            self.indices.facts = known | self.facts(s.cond, False)
            self.arm(orelse, s.orelse, done)
        self.indices.facts = known
        f.start(done)

    def arm(self, label: str, s: Stmt, done: str) -> None:
        f = self.f
        f.start(label)
        f.push()
        self.separately(self.stored(s), lambda: self.stmt(s))
        f.jump(done)
        f.pop()

    def under_mask(self, cond: Value, s: Stmt) -> None:
        """A statement for the lanes where cond holds; skipped if there is none."""
        f, access = self.f, self.access
        outer, sure = access.mask, access.sure
        mask = cond if outer is None else self.a.arith("and", outer, cond)
        some, done = f.label("some"), f.label("none")
        f.branch(access.any(mask), some, done)
        access.mask, access.sure = mask, True
        self.arm(some, s, done)
        access.mask, access.sure = outer, sure
        f.start(done)

    # ---- loops ---------------------------------------------------------------------------------------------
    def loop(self, s: For) -> None:
        match s.kind:
            case "unroll":
                for i in range(s.extent.value):
                    self.vars[s.var] = i
                    if i and self.uses_registers(s.body):
                        self.f.line(FENCE)
                    self.stmt(s.body)
                self.vars.pop(s.var, None)
            case "vector":
                self.vector(s)
            case "parallel":
                self.parallel(s)
            case _:
                self.serial(s)

    def serial(self, s: For) -> None:
        n = self.indices.linear(s.extent)
        if any(LANE in key for key in n.terms):
            raise CodegenError("CODE-001", f"the extent of loop {s.var} differs between lanes")

        def body(i: int | str) -> None:
            self.vars[s.var] = i
            self.stmt(s.body)
            del self.vars[s.var]

        self.count(n, body, self.stored(s.body))

    def count(
        self, n: Linear, body: Callable[[int | str], None], stored: frozenset[tuple[str, int]], step: int = 1
    ) -> None:
        """for i in 0, step … below n: body(i)."""
        f = self.f
        low, high = self.indices.interval(n)
        if high <= 0:
            return
        if low > 0 and high <= step:
            body(0)
            return
        end = self.indices.value(n)
        head, done = f.label("loop"), f.label("done")
        if low <= 0:
            some = f.pure(f"icmp sgt i64 {end}, 0", self.indices.names(end))
            f.branch(some, head, done)
        else:
            f.jump(head)
        before = f.block
        f.start(head)
        i = f.name()
        phi: list[str] = []
        f.scopes[-1].body.append(phi)
        f.push()
        f.early(i, (0, high - 1))
        self.separately(stored, lambda: body(i), repeated=True)
        following = f.ins(f"add nuw nsw i64 {i}, {step}")
        more = f.ins(f"icmp slt i64 {following}, {end}")
        phi.append(f"  {i} = phi i64 [ 0, %{before} ], [ {following}, %{f.block} ]")
        f.branch(more, head, done)
        f.pop()
        f.start(done)

    def vector(self, s: For) -> None:
        if self.lanes:
            raise CodegenError("CODE-001", f"vector loop {s.var} stands inside another one")
        extent = s.extent.value
        if s.active is None:
            self.chunks(s, extent, None)
            return
        active = self.indices.linear(s.active)
        low, high = self.indices.bounds(active)
        if low >= extent:
            self.chunks(s, extent, None)
        elif not active.terms:
            self.chunks(s, max(active.constant, 0), None)
        elif 0 < high < extent:
            self.chunks(s, extent, active)
        elif high > 0:
            self.ragged(s, extent, active)

    def ragged(self, s: For, extent: int, active: Linear) -> None:
        """All lanes, as they mostly are, or those below `active`."""
        f = self.f
        a = self.indices.value(active)
        full, part, done = f.label("full"), f.label("part"), f.label("ragged")
        f.branch(f.pure(f"icmp sge i64 {a}, {extent}", self.indices.names(a)), full, part)
        for label, limit in ((full, None), (part, active)):
            f.start(label)
            f.push()
            self.separately(self.stored(s.body), lambda limit=limit: self.chunks(s, extent, limit))
            f.jump(done)
            f.pop()
        f.start(done)

    def chunks(self, s: For, extent: int, active: Linear | None) -> None:
        width = min(self.width(s.body), max(extent, 1))
        whole, stored = extent // width, self.stored(s.body)
        if whole > UNROLLED_CHUNKS and not self.uses_registers(s.body):

            def body(i: int | str) -> None:
                self.chunk(s, i, width, active)

            self.count(Linear(whole * width), body, stored, width)
        else:
            for c in range(whole):
                self.chunk(s, c * width, width, active)
        if extent % width:
            self.chunk(s, whole * width, extent % width, active)

    def chunk(self, s: For, base: int | str, lanes: int, active: Linear | None) -> None:
        """Lanes base … base + lanes - 1 of a vector loop."""
        if active is None:
            self.lanes_of(s, base, lanes, None)
            return
        f = self.f
        left = active.add(Linear(base) if isinstance(base, int) else Linear(0, {(base,): 1}), -1)
        some, done = f.label("some"), f.label("none")
        cond = self.compare_zero("gt", left)
        if cond is None or cond.const is not None:
            if cond is None or cond.const:
                self.lanes_of(s, base, lanes, left)
            return
        f.branch(cond.text, some, done)
        f.start(some)
        f.push()
        self.separately(self.stored(s.body), lambda: self.lanes_of(s, base, lanes, left))
        f.jump(done)
        f.pop()
        f.start(done)

    def lanes_of(self, s: For, base: int | str, lanes: int, left: Linear | None) -> None:
        access = self.access
        if lanes == 1:
            self.vars[s.var] = base
        else:
            self.vars[s.var] = Lane(base, lanes)
            access.lanes = self.indices.lanes = lanes
            self.f.pinned = True
            access.mask = None if left is None else self.lane_mask("lt", left)
            self.f.pinned = False
        self.stmt(s.body)
        access.lanes = self.indices.lanes = 0
        access.mask = None
        del self.vars[s.var]

    def width(self, body: Stmt) -> int:
        """Lanes of one vector: what the widest element type that moves to or from memory allows."""
        found = self._widths.get(id(body))
        if found is not None:
            return found
        size = 1
        for e in _expressions(body):
            dtype = e.buffer.dtype if isinstance(e, (Load, Store)) else None
            if dtype is not None:
                size = max(size, 4 if dtype in ("float16", "bfloat16") else ITEMSIZE[dtype])
        found = self._widths[id(body)] = max(self.f.target.vector_bits // (8 * size), 1)
        return found

    def uses_registers(self, body: Stmt) -> bool:
        found = self._registers.get(id(body))
        if found is None:
            found = any(
                isinstance(e, (Load, Store, LaneReduce)) and e.buffer.scope == "register"
                for e in _expressions(body)
            )
            self._registers[id(body)] = found
        return found

    # ---- parallel loops ------------------------------------------------------------------------------------
    def parallel(self, s: For) -> None:
        n = self.indices.linear(s.extent)
        work = self.indices.linear(s.work) if s.work is not None else Linear(SHARE)
        total = self.indices.interval(work.times(n))[1]
        if self.lanes:
            raise CodegenError("CODE-001", f"parallel loop {s.var} stands inside a vector loop")
        small = self.f.target.cores <= 1 or total < WORTH_SHARING or self.indices.interval(n)[1] <= 1
        inner = None if small else self.outline(s)
        if inner is None:
            self.serial(s)
            return
        f = self.f
        count, each = self.indices.value(n), self.indices.value(work)
        chunk = "1"
        if self.indices.interval(work)[0] < SHARE:
            smax = f.module.declare("llvm.smax.i64", "i64 {}(i64, i64)")
            least = f.pure(f"call i64 @{smax}(i64 {each}, i64 1)", self.indices.names(each))
            chunk = f.pure(f"udiv i64 {SHARE + 999}, {least}", self.indices.names(least))
            chunk = f.pure(f"call i64 @{smax}(i64 {chunk}, i64 1)", (chunk,))
        slots = [chunk, count, *(outer for outer, _ in inner.captures)]
        types = ["i64", "i64", *(t for _, t in inner.captures)]
        env = f.alloca(f"[{len(slots)} x i64], align 8")
        for i, (slot, t) in enumerate(zip(slots, types, strict=True)):
            where = f.ins(f"getelementptr i64, ptr {env}, i64 {i}")
            f.line(f"store {t} {slot}, ptr {where}, align 8")
        sum_ = f.pure(f"mul i64 {each}, {count}", (*self.indices.names(each), *self.indices.names(count)))
        big = f.pure(f"icmp sge i64 {sum_}, {WORTH_SHARING}", (sum_,))
        shared, alone, done = f.label("shared"), f.label("alone"), f.label("joined")
        f.branch(big, shared, alone)
        f.start(shared)
        f.module.declare("intarsia_parallel_for", "void {}(ptr, ptr, ptr, i64)")
        up = f.ins(f"add i64 {count}, {chunk}")
        parts = f.ins(f"sdiv i64 {f.ins(f'sub i64 {up}, 1')}, {chunk}")
        f.line(f"call void @intarsia_parallel_for(ptr %ctx, ptr @{inner.name}.part, ptr {env}, i64 {parts})")
        f.jump(done)
        f.start(alone)
        f.line(f"call void @{inner.name}(ptr {env}, i64 0, i64 {count})")
        f.jump(done)
        f.start(done)
        self.access.forget(self.stored(s.body))


def _expressions(s: Stmt):
    """Stores of a statement and every expression node in it."""
    stack: list[Stmt] = [s]
    while stack:
        node = stack.pop()
        roots: list[Expr] = []
        match node:
            case Block():
                stack.extend(node.stmts)
            case For() | Allocate():
                stack.append(node.body)
            case Bind():
                stack.append(node.body)
                roots = [node.value] if isinstance(node.value, Expr) else []
            case If():
                stack.extend([node.then] if node.orelse is None else [node.then, node.orelse])
                roots = [node.cond]
            case Store():
                yield node
                roots = [node.value, *(i for i in node.indices if isinstance(i, Expr))]
        for root in roots:
            yield from walk(root)

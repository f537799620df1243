"""Expressions of the loop language as instructions: one scalar where all lanes agree, else a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from intarsia.codegen.llvm.access import Access, Place, strides_of
from intarsia.codegen.llvm.arith import Arith, constant
from intarsia.codegen.llvm.index import LANE, Binding, Indices, Linear, NotAffine, Terms, terms_of
from intarsia.codegen.llvm.writer import MEMORY_TYPE, Function, Interval, Value, splat_literal, vector_type
from intarsia.dim import Dim, as_dim
from intarsia.kernel.expr import (
    COMPARE,
    Binary,
    Buffer,
    Cast,
    Const,
    Expr,
    Index,
    IndexLike,
    LaneReduce,
    Load,
    Select,
    Unary,
    subexpressions,
    walk,
)
from intarsia.kernel.target import ITEMSIZE
from intarsia.support.errors import CodegenError

COSTLY = frozenset(
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid".split()  # noqa: SIM905
)
NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
SIGNED_PREDICATE = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}


class ExprEmitter:
    """Emits expressions into one function. places: where its buffers are; vars: what its variables are."""

    def __init__(self, f: Function):
        self.f = f
        self.a = Arith(f)
        self.vars: dict[str, Binding] = {}
        self.indices = Indices(f, self.vars, self.lookup)
        self.access = Access(f, self.a, self.indices)
        self.places: dict[int, Place] = {}
        self.memo: dict[int, Value] = {}
        self._loads: dict[int, bool] = {}
        self._cheap: dict[int, bool] = {}

    def lookup(self, name: str) -> int | str:
        """A variable that is not bound in this function."""
        raise CodegenError("CODE-001", f"variable {name} is not in scope")

    def place(self, buffer: Buffer) -> Place:
        """A buffer's memory as this function sees it."""
        if buffer.of is not None:
            root = self.place(buffer.of)
            view = replace(root, strides=strides_of(buffer.shape))
            self.places[id(buffer)] = view
            return view
        raise CodegenError("CODE-001", f"buffer {buffer.name} is not in scope")

    @property
    def lanes(self) -> int:
        return self.access.lanes

    # ---- expressions ---------------------------------------------------------------------------------------
    def value(self, e: Expr) -> Value:
        """A whole expression, by itself."""
        self.memo = {}
        return self.expr(e)

    def expr(self, e: Expr) -> Value:
        found = self.memo.get(id(e))
        if found is None:
            found = self.memo[id(e)] = self.fresh(e)
        return found

    def fresh(self, e: Expr) -> Value:
        match e:
            case Const():
                return constant(e.value, e.dtype)
            case Index():
                return self.index(e.dim)
            case Load():
                place = self.place(e.buffer)
                return self.access.load(e.buffer, place, e.indices, self.index_values(place, e.indices))
            case Unary():
                return self.a.unary(e.op, self.expr(e.x))
            case Binary():
                if e.a.dtype != e.b.dtype:
                    raise CodegenError("CODE-001", f"{e.op} of {e.a.dtype} and {e.b.dtype}")
                if e.op in COMPARE and (known := self.index_comparison(e)) is not None:
                    return known
                if (
                    e.op == "add"
                    and e.dtype in ("float32", "float64")
                    and (fused := self.fused(e)) is not None
                ):
                    return fused
                a = self.expr(e.a)
                if e.op in ("and", "or") and a.const is not None and a.const == (e.op == "or"):
                    return a
                return self.a.binary(e.op, a, self.expr(e.b))
            case Select():
                return self.choose(e)
            case Cast():
                return self.a.cast(self.expr(e.x), e.dtype)
            case LaneReduce():
                return self.lane_reduce(e)
        raise CodegenError("CODE-001", f"{type(e).__name__} cannot stand inside a kernel")

    def fused(self, e: Binary) -> Value | None:
        """x + a * b by a multiply-add where the target has one; None if this is no such sum."""
        for product, other in ((e.b, e.a), (e.a, e.b)):
            if isinstance(product, Binary) and product.op == "mul" and id(product) not in self.memo:
                x, a, b = self.expr(other), self.expr(product.a), self.expr(product.b)
                return self.a.intrinsic("fmuladd", list(self.a.align(a, b, x)))
        return None

    def index_values(self, place: Place, index: Sequence[IndexLike]) -> dict[int, Value]:
        """The data-dependent ones among an access's indices, as int64."""
        found: dict[int, Value] = {}
        for n in self.access.plan(place, index).dynamic:
            i = index[n]
            assert isinstance(i, Expr)
            found[n] = self.a.cast(self.expr(i), "int64")
        return found

    # ---- index arithmetic as values ------------------------------------------------------------------------
    def index(self, d: Dim) -> Value:
        try:
            return self.linear_value(self.indices.linear(d))
        except NotAffine:
            parts = []
            for lane in range(self.lanes):
                self.indices.fixed_lane = lane
                parts.append(self.linear_value(self.indices.linear(d)))
                self.indices.fixed_lane = None
            return self.a.gather_lanes(parts)

    def linear_value(self, x: Linear) -> Value:
        if not x.terms:
            return constant(x.constant, "int64")
        rest, step = x.split_lane()
        base = Value(self.indices.value(rest), "int64", 0, None if rest.terms else rest.constant)
        if not step.terms and not step.constant:
            return base
        t = vector_type("i64", self.lanes)
        iota = "<" + ", ".join(f"i64 {i}" for i in range(self.lanes)) + ">"
        scale = Value(self.indices.value(step), "int64", 0, None if step.terms else step.constant)
        if scale.const != 1:
            wide = self.a.broadcast(scale, self.lanes).text
            iota = self.f.pure(f"mul {t} {wide}, {iota}", self.indices.names(wide))
        wide = self.a.broadcast(base, self.lanes).text
        operands = (*self.indices.names(wide), *self.indices.names(iota))
        return Value(self.f.pure(f"add {t} {wide}, {iota}", operands), "int64", self.lanes)

    def index_comparison(self, e: Binary) -> Value | None:
        """A comparison of affine indices: known from bounds, or one scalar or 32-bit lane comparison."""
        difference = self.difference(e)
        return None if difference is None else self.compare_zero(e.op, difference)

    def difference(self, e: Binary) -> Linear | None:
        """e.a - e.b in linear form, if both are indices."""
        sides = []
        for side in (e.a, e.b):
            match side:
                case Index():
                    sides.append(side.dim)
                case Const(dtype="int64"):
                    sides.append(as_dim(int(side.value)))
                case _:
                    return None
        try:
            return self.indices.linear(sides[0]).add(self.indices.linear(sides[1]), -1)
        except NotAffine:
            return None

    def facts(self, cond: Expr, holds: bool) -> dict[Terms, Interval]:
        """What a comparison of indices (or a conjunction of them) says of them where it holds, or fails."""
        if not isinstance(cond, Binary):
            return {}
        if cond.op == "and" and holds:
            return self.facts(cond.a, True) | self.facts(cond.b, True)
        x = self.difference(cond) if cond.op in COMPARE else None
        if x is None or not x.terms:
            return {}
        op = cond.op if holds else NEGATED[cond.op]
        low = {"ge": 0, "gt": 1, "eq": 0}.get(op, -inf)
        high = {"le": 0, "lt": -1, "eq": 0}.get(op, inf)
        minus = Linear().add(x, -1)
        found = {
            terms_of(x): (low - x.constant, high - x.constant),
            terms_of(minus): (x.constant - high, x.constant - low),
        }
        for terms, (lo, hi) in found.items():
            known = self.indices.facts.get(terms, (-inf, inf))
            found[terms] = max(lo, known[0]), min(hi, known[1])
        return found

    def compare_zero(self, op: str, x: Linear) -> Value | None:
        """x op 0, or None if the lane's coefficient is not 0, 1 or -1."""
        low, high = self.indices.bounds(x)
        decided = {
            "lt": (high < 0, low >= 0), "le": (high <= 0, low > 0), "gt": (low > 0, high <= 0),
            "ge": (low >= 0, high < 0),
            "eq": (low == high == 0, low > 0 or high < 0), "ne": (low > 0 or high < 0, low == high == 0),
        }[op]  # fmt: skip
        if decided[0] or decided[1]:
            return constant(decided[0], "bool")
        rest, step = x.split_lane()
        if not step.terms and not step.constant:
            name = self.indices.value(Linear(0, rest.terms))
            text = f"icmp {SIGNED_PREDICATE[op]} i64 {name}, {-rest.constant}"
            return Value(self.f.pure(text, (name,)), "bool")
        if step.terms or step.constant not in (1, -1):
            return None
        if step.constant == 1:  # lane + rest op 0  <=>  lane op -rest
            bound = Linear().add(rest, -1)
        else:  # rest - lane op 0  <=>  lane flipped(op) rest
            op, bound = FLIPPED[op], rest
        return self.lane_mask(op, bound)

    def lane_mask(self, op: str, bound: Linear) -> Value:
        """Lanes whose number stands in relation `op` to bound (clamped to -1 … the number of lanes)."""
        f, n = self.f, self.lanes
        if not bound.terms:
            limit = splat_literal("i32", str(min(max(bound.constant, -1), n)), n)
        else:
            name = self.indices.value(bound)
            for kind, end in (("smax", -1), ("smin", n)):
                full = f.module.declare(f"llvm.{kind}.i64", "i64 {}(i64, i64)")
                name = f.pure(f"call i64 @{full}(i64 {name}, i64 {end})", (name,))
            narrow = Value(f.pure(f"trunc i64 {name} to i32", (name,)), "int32")
            limit = self.a.broadcast(narrow, n).text
        iota = "<" + ", ".join(f"i32 {i}" for i in range(n)) + ">"
        text = f"icmp {SIGNED_PREDICATE[op]} {vector_type('i32', n)} {iota}, {limit}"
        return Value(f.pure(text, self.indices.names(limit)), "bool", n)

    # ---- choice --------------------------------------------------------------------------------------------
    def choose(self, e: Select) -> Value:
        cond = self.expr(e.cond)
        if cond.const is not None:
            return self.expr(e.then if cond.const else e.orelse)
        if cond.lanes:
            then = self.under(cond, e.then)
            negated = self.a.unary("not", cond) if self.has_load(e.orelse) else cond
            return self.a.select(cond, then, self.under(negated, e.orelse))
        if self.is_cheap(e.then) and self.is_cheap(e.orelse):
            return self.a.select(cond, self.expr(e.then), self.expr(e.orelse))
        return self.branch_value(cond, e)

    def under(self, cond: Value, e: Expr) -> Value:
        """e where only lanes with cond may load."""
        if not self.has_load(e):
            return self.expr(e)
        outer, sure, memo = self.access.mask, self.access.sure, self.memo
        self.access.mask = cond if outer is None else self.a.arith("and", outer, cond)
        self.access.sure = False
        self.memo = dict(memo)
        result = self.expr(e)
        self.access.mask, self.access.sure, self.memo = outer, sure, memo
        return result

    def branch_value(self, cond: Value, e: Select) -> Value:
        """A lane-invariant choice by a branch, since an arm loads or costs much."""
        f = self.f
        then, orelse, done = f.label("then"), f.label("else"), f.label("endif")
        f.branch(cond.text, then, orelse)
        memo, local = self.memo, f.local
        wide = self.lanes if self.varies(e.then) or self.varies(e.orelse) else 0
        arms = []
        for label, arm in ((then, e.then), (orelse, e.orelse)):
            f.start(label)
            f.push()
            self.memo, f.local = dict(memo), dict(local)
            v = self.expr(arm)
            v = self.a.broadcast(v, wide) if wide else v
            f.jump(done)
            f.pop()
            arms.append((v, f.block))
        self.memo, f.local = memo, local
        f.start(done)
        (a, from_a), (b, from_b) = arms
        return Value(
            f.ins(f"phi {a.type} [ {a.text}, %{from_a} ], [ {b.text}, %{from_b} ]"), a.dtype, a.lanes
        )

    def varies(self, e: Expr) -> bool:
        """Whether e may differ between lanes; true wherever that is not plain to see."""
        if not self.lanes:
            return False
        for node in walk(e):
            dims = [node.dim] if isinstance(node, Index) else []
            if isinstance(node, Load):
                if self.place(node.buffer).per_lane:
                    return True
                dims = [i for i in node.indices if isinstance(i, Dim)]
            for d in dims:
                try:
                    if any(LANE in key for key in self.indices.linear(d).terms):
                        return True
                except NotAffine:
                    return True
        return False

    def has_load(self, e: Expr) -> bool:
        found = self._loads.get(id(e))
        if found is None:
            found = isinstance(e, Load) or any(self.has_load(x) for x in subexpressions(e))
            self._loads[id(e)] = found
        return found

    def is_cheap(self, e: Expr) -> bool:
        """No load and only a few plain operations: computed whether chosen or not."""
        found = self._cheap.get(id(e))
        if found is None:
            nodes = list(walk(e))
            found = len(nodes) <= 8 and not any(
                isinstance(n, (Load, LaneReduce))
                or (isinstance(n, Unary) and n.op in COSTLY)
                or (isinstance(n, Binary) and n.op in ("pow", "fmod", "mod", "floordiv"))
                for n in nodes
            )
            self._cheap[id(e)] = found
        return found

    # ---- reductions over a register buffer -----------------------------------------------------------------
    def lane_reduce(self, e: LaneReduce) -> Value:
        """All elements combined: vectors pairwise, then halves of a vector, then what is left over."""
        place = self.place(e.buffer)
        op = {"sum": "add", "prod": "mul", "any": "or", "all": "and"}.get(e.op, e.op)
        count = 1
        for d in e.buffer.shape:
            count *= d.value
        if not count or op not in ("add", "mul", "or", "and", "min", "max"):
            raise CodegenError("CODE-001", f"cannot reduce {count} elements by {e.op}")
        if place.per_lane:
            parts = [self.raw_load(place, i * place.per_lane, place.per_lane) for i in range(count)]
            return self.pairwise(op, parts)
        width = 1 << (max(self.f.target.lanes(e.dtype), 1).bit_length() - 1)
        while width > count:
            width //= 2
        parts = [
            self.raw_load(place, i, width if width > 1 else 0) for i in range(0, count - width + 1, width)
        ]
        total = self.pairwise(op, parts)
        while width > 1:
            width //= 2
            order = ", ".join(f"i32 {i}" for i in range(width, 2 * width))
            low_order = ", ".join(f"i32 {i}" for i in range(width))
            halves = [
                Value(
                    self.f.ins(
                        f"shufflevector {total.type} {total.text}, {total.type} poison, <{width} x i32> <{o}>"
                    ),
                    e.dtype,
                    width,
                )
                for o in (low_order, order)
            ]
            total = self.a.binary(op, *halves)
        total = self.a.lane(total, 0) if total.lanes else total
        for i in range(count - count % max(self._width(e, count), 1), count):
            total = self.a.binary(op, total, self.raw_load(place, i, 0))
        return total

    def _width(self, e: LaneReduce, count: int) -> int:
        width = 1 << (max(self.f.target.lanes(e.dtype), 1).bit_length() - 1)
        while width > count:
            width //= 2
        return width

    def pairwise(self, op: str, parts: list[Value]) -> Value:
        while len(parts) > 1:
            merged = [self.a.binary(op, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = merged + parts[len(merged) * 2 :]
        return parts[0]

    def raw_load(self, place: Place, element: int, lanes: int) -> Value:
        """Elements of a buffer by their number."""
        t = MEMORY_TYPE[place.dtype]
        pointer = (
            self.f.ins(f"getelementptr {t}, ptr {place.pointer}, i64 {element}") if element else place.pointer
        )
        raw = self.f.ins(f"load {vector_type(t, lanes)}, ptr {pointer}, align {ITEMSIZE[place.dtype]}")
        return self.a.from_memory(raw, place.dtype, lanes)

"""Where a buffer's elements are, and reading and writing them: one element, a vector, or lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intarsia.codegen.llvm.arith import Arith
from intarsia.codegen.llvm.index import LANE, Indices, Linear, NotAffine
from intarsia.codegen.llvm.writer import MEMORY_TYPE, Function, Value, vector_type
from intarsia.dim import Dim, as_dim
from intarsia.kernel.expr import Buffer, Expr, IndexLike
from intarsia.kernel.target import ITEMSIZE


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer's memory. size: elements, where constant; per_lane: lanes that have their own elements."""

    pointer: str
    strides: tuple[Dim, ...]
    dtype: str
    scope: str
    size: int | None = None
    per_lane: int = 0


def strides_of(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    strides, step = [], as_dim(1)
    for d in reversed(shape):
        strides.append(step)
        step = step * d
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Address:
    """base + offset elements. known: offset in elements where constant and base is the buffer's start."""

    base: str
    offset: int
    known: bool


@dataclass(frozen=True, slots=True)
class Plan:
    """An access: constant + sum of coefficient * variable + rest; dynamic: positions of expressions.

    index and strides are kept so that nothing else gets their ids, by which plans are found.
    """

    constant: int
    simple: tuple[tuple[str, int], ...]
    rest: Dim | None
    dynamic: tuple[int, ...]
    index: Sequence[IndexLike]
    strides: tuple[Dim, ...]


def plan_of(strides: tuple[Dim, ...], index: Sequence[IndexLike]) -> Plan:
    whole, dynamic = as_dim(0), []
    for n, (i, stride) in enumerate(zip(index, strides, strict=True)):
        if isinstance(i, Expr):
            dynamic.append(n)
        else:
            whole = whole + i * stride
    simple: list[tuple[str, int]] = []
    rest = {}
    for monomial, c in whole.terms.items():
        if len(monomial) == 1 and monomial[0][1] == 1 and monomial[0][0].kind == "sym":
            simple.append((monomial[0][0].name, c))
        elif monomial:
            rest[monomial] = c
    return Plan(
        whole.terms.get((), 0), tuple(simple), Dim(rest) if rest else None, tuple(dynamic), index, strides
    )


class Access:
    """Emits loads and stores; `mask` says which lanes are on (None: all), `sure` that at least one is."""

    def __init__(self, f: Function, a: Arith, indices: Indices):
        self.f, self.a, self.indices = f, a, indices
        self.lanes = 0
        self.mask: Value | None = None
        self.sure = True
        self._plans: dict[tuple[int, int], Plan] = {}

    # ---- addresses -----------------------------------------------------------------------------------------
    def plan(self, place: Place, index: Sequence[IndexLike]) -> Plan:
        key = (id(index), id(place.strides))
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = plan_of(place.strides, index)
        return found

    def flat(self, place: Place, plan: Plan) -> Linear:
        """The element number, data-dependent parts left out."""
        total = self.indices.sum(plan.constant, plan.simple, plan.rest)
        if place.per_lane:
            total = total.times(Linear(place.per_lane))
            lane = self.indices.fixed_lane
            total = total.add(Linear(0, {(LANE,): 1}) if lane is None else Linear(lane))
        return total

    def address(self, place: Place, x: Linear, dynamic: Sequence[tuple[Value, Linear]] = ()) -> Address:
        """x (free of LANE) plus data-dependent parts, as a pointer; each loop level adds its own part."""
        f, t = self.f, MEMORY_TYPE[place.dtype]
        base = place.pointer
        if not x.terms and not dynamic:
            return Address(base, x.constant, True)
        key = (base, *x.terms.items())
        found = f.scopes[-1].addresses.get(key)
        if found is None:
            found = f.scopes[-1].addresses[key] = self.base(base, t, x)
        base = found
        for value, stride in dynamic:
            offset = value.text
            if stride.terms or stride.constant != 1:
                offset = f.ins(f"mul i64 {offset}, {self.indices.value(stride)}")
            base = f.ins(f"getelementptr {t}, ptr {base}, i64 {offset}")
        return Address(base, x.constant, False)

    def base(self, base: str, t: str, x: Linear) -> str:
        f = self.f
        groups: dict[int, Linear] = {}
        for key, c in x.terms.items():
            depth = max(f.depth_of[n] for n in key)
            groups.setdefault(depth, Linear()).terms[key] = c
        for depth in sorted(groups):
            offset = self.indices.value(groups[depth])
            base = f.pure(f"getelementptr {t}, ptr {base}, i64 {offset}", (base, offset))
        return base

    def pointer(self, place: Place, at: Address) -> str:
        if not at.offset:
            return at.base
        return self.f.ins(f"getelementptr {MEMORY_TYPE[place.dtype]}, ptr {at.base}, i64 {at.offset}")

    def dynamic(self, place: Place, plan: Plan, values: dict[int, Value]) -> list[tuple[Value, Linear]]:
        return [(values[n], self.indices.linear(place.strides[n])) for n in plan.dynamic]

    def lane_addresses(self, place: Place, index: Sequence[IndexLike], values: dict[int, Value]) -> list[str]:
        """A pointer for each lane; of a lane that is off, to a harmless place."""
        pointers = []
        plan = self.plan(place, index)
        for lane in range(self.lanes):
            self.indices.fixed_lane = lane
            parts = [(self.a.lane(v, lane), s) for v, s in self.dynamic(place, plan, values)]
            pointers.append(self.pointer(place, self.address(place, self.flat(place, plan), parts)))
            self.indices.fixed_lane = None
        return pointers

    def place_in_vector(
        self, place: Place, index: Sequence[IndexLike], values: dict[int, Value]
    ) -> tuple[str, Address | None]:
        """('scalar' | 'vector' | 'lanes', address or None): how the lanes' elements lie."""
        plan = self.plan(place, index)
        if values and any(v.lanes for v in values.values()):
            return "lanes", None
        try:
            x = self.flat(place, plan)
            if not self.lanes:
                return "scalar", self.address(place, x, self.dynamic(place, plan, values))
            rest, step = x.split_lane()
        except NotAffine:
            return "lanes", None
        if step.terms or step.constant not in (0, 1):
            return "lanes", None
        how = "vector" if step.constant else "scalar"
        return how, self.address(place, rest, self.dynamic(place, plan, values))

    # ---- loads ---------------------------------------------------------------------------------------------
    def load(
        self, buffer: Buffer, place: Place, index: Sequence[IndexLike], values: dict[int, Value]
    ) -> Value:
        how, at = self.place_in_vector(place, index, values)
        if how == "lanes" or at is None:
            return self.load_lanes(place, self.lane_addresses(place, index, values))
        lanes = self.lanes if how == "vector" else 0
        mask = self.mask if lanes or not self.sure else None
        if (
            mask is not None
            and lanes
            and at.known
            and place.size is not None
            and 0 <= at.offset <= place.size
        ):
            mask = None  # private memory is padded by a vector
        key = ("load", place.scope, id(buffer), at.base, at.offset, lanes, mask.text if mask else "")
        found = self.f.local.get(key) if place.scope != "register" else None
        if found is None:
            found = self.fresh_load(place, at, lanes, mask)
            self.f.local[key] = found
        return found

    def fresh_load(self, place: Place, at: Address, lanes: int, mask: Value | None) -> Value:
        f, dtype = self.f, place.dtype
        t, align = vector_type(MEMORY_TYPE[dtype], lanes), ITEMSIZE[dtype]
        pointer = self.pointer(place, at)
        if mask is not None and lanes:
            name = f.module.declare(f"llvm.masked.load.v{lanes}{_suffix(dtype)}.p0", _masked_load(t, lanes))
            raw = f.ins(_call_masked_load(name, t, lanes, pointer, align, mask.text))
        else:
            if mask is not None:
                pointer = f.ins(f"select i1 {self.any(mask)}, ptr {pointer}, ptr {self.nowhere()}")
            raw = f.ins(f"load {t}, ptr {pointer}, align {align}")
        return self.a.from_memory(raw, dtype, lanes)

    def load_lanes(self, place: Place, pointers: list[str]) -> Value:
        f, dtype = self.f, place.dtype
        t, align = MEMORY_TYPE[dtype], ITEMSIZE[dtype]
        total, vt = "poison", vector_type(t, self.lanes)
        for lane, p in enumerate(self.guarded(pointers)):
            one = f.ins(f"load {t}, ptr {p}, align {align}")
            total = f.ins(f"insertelement {vt} {total}, {t} {one}, i64 {lane}")
        return self.a.from_memory(total, dtype, self.lanes)

    def guarded(self, pointers: list[str]) -> list[str]:
        if self.mask is None:
            return pointers
        bits = [self.a.lane(self.mask, i).text for i in range(self.lanes)]
        nowhere = self.nowhere()
        return [
            self.f.ins(f"select i1 {b}, ptr {p}, ptr {nowhere}") for b, p in zip(bits, pointers, strict=True)
        ]

    def nowhere(self) -> str:
        """Memory of this function where reads and writes of lanes that are off may go."""
        if self.f.scratch is None:
            self.f.scratch = self.f.alloca("[64 x i8], align 64")
        return self.f.scratch

    def any(self, mask: Value) -> str:
        name = self.f.module.declare(f"llvm.vector.reduce.or.v{mask.lanes}i1", f"i1 {{}}({mask.type})")
        return self.f.ins(f"call i1 @{name}({mask.type} {mask.text})")

    # ---- stores --------------------------------------------------------------------------------------------
    def store(self, place: Place, index: Sequence[IndexLike], values: dict[int, Value], v: Value) -> None:
        f, dtype = self.f, place.dtype
        align = ITEMSIZE[dtype]
        how, at = self.place_in_vector(place, index, values)
        if how == "scalar" and at is not None:
            if v.lanes:
                v = self.a.lane(v, self.lanes - 1)
            f.line(
                f"store {MEMORY_TYPE[dtype]} {self.a.to_memory(v)}, ptr {self.pointer(place, at)}, "
                f"align {align}"
            )
            return
        v = self.a.broadcast(v, self.lanes)
        t, vt = MEMORY_TYPE[dtype], vector_type(MEMORY_TYPE[dtype], self.lanes)
        if at is None:
            for lane, p in enumerate(self.guarded(self.lane_addresses(place, index, values))):
                f.line(f"store {t} {self.a.to_memory(self.a.lane(v, lane))}, ptr {p}, align {align}")
            return
        raw, pointer = self.a.to_memory(v), self.pointer(place, at)
        if self.mask is None:
            f.line(f"store {vt} {raw}, ptr {pointer}, align {align}")
        elif at.known and place.size is not None and 0 <= at.offset <= place.size:
            old = f.ins(f"load {vt}, ptr {pointer}, align {align}")
            new = f.ins(f"select {self.mask.type} {self.mask.text}, {vt} {raw}, {vt} {old}")
            f.line(f"store {vt} {new}, ptr {pointer}, align {align}")
        else:
            name = f"llvm.masked.store.v{self.lanes}{_suffix(dtype)}.p0"
            f.module.declare(name, _masked_store(vt, self.lanes))
            f.line(_call_masked_store(name, vt, self.lanes, raw, pointer, align, self.mask.text))

    def forget(self, scopes_and_ids: frozenset[tuple[str, int]]) -> None:
        """Loads that a store to these buffers may have made stale. Global buffers may overlap each other."""
        any_global = any(scope == "global" for scope, _ in scopes_and_ids)
        stale = [
            k
            for k in self.f.local
            if k[0] == "load" and ((k[1] == "global" and any_global) or (k[1], k[2]) in scopes_and_ids)
        ]
        for k in stale:
            del self.f.local[k]


def _suffix(dtype: str) -> str:
    return {"float": "f32", "double": "f64"}.get(MEMORY_TYPE[dtype], MEMORY_TYPE[dtype])


# The alignment of masked intrinsics moved from an operand to a parameter attribute in LLVM 22.
def _new_masked() -> bool:
    import llvmlite.binding as llvm

    return llvm.llvm_version_info[0] >= 22


def _masked_load(t: str, lanes: int) -> str:
    return (
        f"{t} {{}}(ptr, <{lanes} x i1>, {t})" if _new_masked() else f"{t} {{}}(ptr, i32, <{lanes} x i1>, {t})"
    )


def _call_masked_load(name: str, t: str, lanes: int, pointer: str, align: int, mask: str) -> str:
    where = f"ptr align {align} {pointer}" if _new_masked() else f"ptr {pointer}, i32 {align}"
    return f"call {t} @{name}({where}, <{lanes} x i1> {mask}, {t} zeroinitializer)"


def _masked_store(t: str, lanes: int) -> str:
    return (
        f"void {{}}({t}, ptr, <{lanes} x i1>)"
        if _new_masked()
        else f"void {{}}({t}, ptr, i32, <{lanes} x i1>)"
    )


def _call_masked_store(name: str, t: str, lanes: int, raw: str, pointer: str, align: int, mask: str) -> str:
    where = f"ptr align {align} {pointer}" if _new_masked() else f"ptr {pointer}, i32 {align}"
    return f"call void @{name}({t} {raw}, {where}, <{lanes} x i1> {mask})"

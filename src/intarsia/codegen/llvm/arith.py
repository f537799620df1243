"""Arithmetic on values of one dtype, scalar or vector: each operator of kernel/expr.py as LLVM instructions.

float16 and bfloat16 are computed in float32 and rounded after each operation, which gives the correctly
rounded result for + - * / and sqrt. Integer division by zero gives 0, and the one overflowing quotient wraps.
"""

from __future__ import annotations

from collections.abc import Callable

from intarsia.codegen.llvm import math as approx
from intarsia.codegen.llvm.writer import (
    MEMORY_TYPE,
    REGISTER_TYPE,
    Function,
    Value,
    float_literal,
    splat_literal,
    vector_type,
)
from intarsia.kernel.expr import COMPARE
from intarsia.support.errors import CodegenError

SIGNED = frozenset(["int8", "int16", "int32", "int64"])
NARROW = frozenset(("float16", "bfloat16"))
LIBM = {
    "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh",
    "asinh": "asinh",
    "acosh": "acosh", "atanh": "atanh",
}  # fmt: skip


def is_float(dtype: str) -> bool:
    return "float" in dtype


def bits_of(dtype: str) -> int:
    return int(REGISTER_TYPE[dtype][1:])


def constant(value: int | float | bool, dtype: str, lanes: int = 0) -> Value:
    element = REGISTER_TYPE[dtype]
    if is_float(dtype):
        literal = float_literal(float(round_narrow(value, dtype)), element)
    elif dtype == "bool":
        literal = "true" if value else "false"
        value = bool(value)
    else:
        bits = bits_of(dtype)
        value = int(value) & ((1 << bits) - 1)
        if dtype in SIGNED and value >> (bits - 1):
            value -= 1 << bits
        literal = str(value)
    return Value(splat_literal(element, literal, lanes), dtype, lanes, value)


def round_narrow(value: float, dtype: str) -> float:
    if dtype == "float64":
        return value
    import numpy as np

    from intarsia.kernel.evaluate import numpy_type

    with np.errstate(all="ignore"):
        return float(np.array(value, np.float64).astype(numpy_type(dtype)))


class Arith:
    """Emits operations into a function."""

    def __init__(self, f: Function):
        self.f = f
        self.features = f.target.features
        self.native_half = "aarch64" in f.target.triple or "+f16c" in f.target.features
        self.native_maximum = "aarch64" in f.target.triple

    # ---- shapes of values ----------------------------------------------------------------------------------
    def broadcast(self, v: Value, lanes: int) -> Value:
        """v in every lane."""
        if v.lanes == lanes:
            return v
        if v.const is not None:
            return constant(v.const, v.dtype, lanes)
        t, vt = REGISTER_TYPE[v.dtype], vector_type(REGISTER_TYPE[v.dtype], lanes)
        return Value(self.splat(v.text, t, vt, lanes), v.dtype, lanes)

    def splat(self, name: str, t: str, vt: str, lanes: int) -> str:
        first = f"insertelement {vt} poison, {t} {name}, i64 0"
        if name in self.f.depth_of:
            one = self.f.pure(first, (name,))
            return self.f.pure(
                f"shufflevector {vt} {one}, {vt} poison, <{lanes} x i32> zeroinitializer", (one,)
            )
        key = ("splat", name, lanes)
        if key not in self.f.local:
            one = self.f.ins(first)
            self.f.local[key] = self.f.ins(
                f"shufflevector {vt} {one}, {vt} poison, <{lanes} x i32> zeroinitializer"
            )
        return self.f.local[key]

    def lane(self, v: Value, i: int) -> Value:
        """Lane i as a scalar (v itself if it is one)."""
        if not v.lanes or v.const is not None:
            return v if not v.lanes else constant(v.const, v.dtype)  # type: ignore[arg-type]
        return Value(self.f.ins(f"extractelement {v.type} {v.text}, i64 {i}"), v.dtype)

    def gather_lanes(self, parts: list[Value]) -> Value:
        """One vector from scalars."""
        dtype, lanes = parts[0].dtype, len(parts)
        t, vt = REGISTER_TYPE[dtype], vector_type(REGISTER_TYPE[dtype], lanes)
        name = "poison"
        for i, p in enumerate(parts):
            name = self.f.ins(f"insertelement {vt} {name}, {t} {p.text}, i64 {i}")
        return Value(name, dtype, lanes)

    def per_lane(self, args: list[Value], scalar: Callable[[list[Value]], Value]) -> Value:
        """A scalar computation on each lane."""
        lanes = max(a.lanes for a in args)
        if not lanes:
            return scalar(args)
        return self.gather_lanes([scalar([self.lane(a, i) for a in args]) for i in range(lanes)])

    def align(self, *values: Value) -> tuple[Value, ...]:
        lanes = max(v.lanes for v in values)
        return tuple(self.broadcast(v, lanes) if lanes else v for v in values)

    # ---- small pieces --------------------------------------------------------------------------------------
    def ins(self, text: str, like: Value, dtype: str | None = None) -> Value:
        return Value(self.f.ins(text), dtype or like.dtype, like.lanes)

    def intrinsic(self, name: str, args: list[Value], extra: str = "") -> Value:
        """A lane-wise intrinsic of the arguments' type."""
        v = args[0]
        suffix = {"float": "f32", "double": "f64"}.get(REGISTER_TYPE[v.dtype], REGISTER_TYPE[v.dtype])
        full = f"llvm.{name}.{f'v{v.lanes}' if v.lanes else ''}{suffix}"
        signature = ", ".join([v.type] * len(args)) + (", i1" if extra else "")
        self.f.module.declare(full, f"{v.type} {{}}({signature})")
        operands = ", ".join(f"{a.type} {a.text}" for a in args) + extra
        return self.ins(f"call {v.type} @{full}({operands})", v)

    def like(self, value: int | float | bool, v: Value) -> Value:
        return constant(value, v.dtype, v.lanes)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        """a where cond, else b, both already evaluated."""
        if cond.const is not None:
            return a if cond.const else b
        lanes = max(cond.lanes, a.lanes, b.lanes)
        if lanes:
            a, b = self.broadcast(a, lanes), self.broadcast(b, lanes)
        return Value(
            self.f.ins(f"select {cond.type} {cond.text}, {a.type} {a.text}, {b.type} {b.text}"),
            a.dtype,
            lanes,
        )

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        kind = "fcmp" if is_float(a.dtype) else "icmp"
        return self.ins(f"{kind} {predicate} {a.type} {a.text}, {b.text}", a, "bool")

    def arith(self, instruction: str, a: Value, b: Value) -> Value:
        return self.ins(f"{instruction} {a.type} {a.text}, {b.text}", a)

    def rounded(self, v: Value) -> Value:
        """v after rounding to its (narrow) dtype."""
        if v.dtype not in NARROW or v.const is not None:
            return v
        return self.from_memory(self.to_memory(v), v.dtype, v.lanes)

    # ---- operators -----------------------------------------------------------------------------------------
    def unary(self, op: str, x: Value) -> Value:
        if is_float(x.dtype):
            return self.float_unary(op, x)
        if op in ("isnan", "isinf"):
            return constant(False, "bool", x.lanes)
        if op in ("not", "bitnot") and x.dtype == "bool":
            if x.const is not None:
                return constant(not x.const, "bool", x.lanes)
            return self.arith("xor", x, self.like(True, x))
        zero = self.like(0, x)
        match op:
            case "neg":
                return self.arith("sub", zero, x)
            case "bitnot":
                return self.arith("xor", x, self.like(-1, x))
            case "abs" if x.dtype in SIGNED:
                return self.intrinsic("abs", [x], ", i1 false")
            case "sign":
                positive = self.compare("ne" if x.dtype not in SIGNED else "sgt", x, zero)
                one = self.ins(f"zext {positive.type} {positive.text} to {x.type}", x)
                if x.dtype not in SIGNED:
                    return one
                negative = self.compare("slt", x, zero)
                return self.arith("or", one, self.ins(f"sext {negative.type} {negative.text} to {x.type}", x))
            case "abs" | "floor" | "ceil" | "round" | "trunc":
                return x
        raise CodegenError("CODE-002", f"there is no {op} of {x.dtype}")

    def float_unary(self, op: str, x: Value) -> Value:
        match op:
            case "neg":
                return self.ins(f"fneg {x.type} {x.text}", x)
            case "abs":
                return self.intrinsic("fabs", [x])
            case "isnan":
                return self.compare("uno", x, x)
            case "isinf":
                return self.compare("oeq", self.intrinsic("fabs", [x]), self.like(float("inf"), x))
            case "sign":
                zero = self.like(0.0, x)
                up = self.select(self.compare("ogt", x, zero), self.like(1.0, x), zero)
                signed = self.select(self.compare("olt", x, zero), self.like(-1.0, x), up)
                return self.select(self.compare("uno", x, x), x, signed)
            case "sqrt":
                return self.rounded(self.intrinsic("sqrt", [x]))
            case "rsqrt":
                return self.rounded(self.arith("fdiv", self.like(1.0, x), self.intrinsic("sqrt", [x])))
            case "reciprocal":
                return self.rounded(self.arith("fdiv", self.like(1.0, x), x))
            case "floor" | "ceil" | "trunc":
                return self.intrinsic(op, [x])
            case "round":
                return self.intrinsic("rint", [x])
        if op in LIBM:
            return self.rounded(self.libm(LIBM[op], [x]))
        routine = approx.ROUTINES.get(op)
        if routine is None:
            raise CodegenError("CODE-002", f"there is no {op} of {x.dtype}")
        return self.rounded(Value(routine(self, x), x.dtype, x.lanes))

    def libm(self, name: str, args: list[Value]) -> Value:
        """A call of the C library for each lane."""
        t = REGISTER_TYPE[args[0].dtype]
        full = self.f.module.declare(
            name + ("f" if t == "float" else ""), f"{t} {{}}({', '.join([t] * len(args))})"
        )

        def scalar(parts: list[Value]) -> Value:
            operands = ", ".join(f"{t} {p.text}" for p in parts)
            return Value(self.f.ins(f"call {t} @{full}({operands})"), args[0].dtype)

        return self.per_lane(args, scalar)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        a, b = self.align(a, b)
        if op in COMPARE:
            return self.comparison(op, a, b)
        if a.dtype == "bool":
            return self.bool_binary(op, a, b)
        if op in ("min", "max"):
            return self.extremum(op, a, b)
        return self.float_binary(op, a, b) if is_float(a.dtype) else self.integer_binary(op, a, b)

    def comparison(self, op: str, a: Value, b: Value) -> Value:
        if is_float(a.dtype):
            return self.compare("une" if op == "ne" else f"o{op}", a, b)
        if a.const is not None and b.const is not None:
            x, y = a.const, b.const
            result = {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[op]
            return constant(result, "bool", a.lanes)
        sign = "" if op in ("eq", "ne") else "s" if a.dtype in SIGNED else "u"
        return self.compare(sign + op, a, b)

    def bool_binary(self, op: str, a: Value, b: Value) -> Value:
        name = {
            "and": "and", "or": "or", "xor": "xor", "bitand": "and", "bitor": "or", "bitxor": "xor",
            "add": "or",
            "mul": "and", "min": "and", "max": "or",
        }.get(op)  # fmt: skip
        if name is None:
            raise CodegenError("CODE-002", f"there is no {op} of bool")
        for x, y in ((a, b), (b, a)):
            if x.const is not None and name != "xor":
                return (y if x.const else x) if name == "and" else (x if x.const else y)
        return self.arith(name, a, b)

    def extremum(self, op: str, a: Value, b: Value) -> Value:
        """min or max; NaN wins. One instruction with a constant, or where the target has the operation."""
        if not is_float(a.dtype):
            return self.intrinsic(("s" if a.dtype in SIGNED else "u") + op, [a, b])
        if self.native_maximum:
            return self.intrinsic("maximum" if op == "max" else "minimum", [a, b])
        predicate = "ogt" if op == "max" else "olt"
        if b.const is not None and b.const == b.const:
            a, b = b, a
        picked = self.select(self.compare(predicate, a, b), a, b)  # b if either is NaN
        if a.const is not None and a.const == a.const:
            return picked
        return self.select(self.compare("uno", a, a), a, picked)

    def float_binary(self, op: str, a: Value, b: Value) -> Value:
        match op:
            case "add" | "sub" | "mul":
                contract = "" if a.dtype in NARROW else "contract "
                return self.rounded(self.arith(f"f{op} {contract}", a, b))
            case "div":
                return self.rounded(self.arith("fdiv", a, b))
            case "pow":
                return self.rounded(self.power(a, b))
            case "fmod":
                return self.rounded(self.libm("fmod", [a, b]))
            case "mod":
                return self.rounded(self.float_mod(a, b)[0])
            case "floordiv":
                return self.rounded(self.float_mod(a, b)[1])
        raise CodegenError("CODE-002", f"there is no {op} of {a.dtype}")

    def power(self, a: Value, b: Value) -> Value:
        match b.const:
            case 1.0:
                return a
            case 2.0:
                return self.arith("fmul", a, a)
            case 3.0:
                return self.arith("fmul", self.arith("fmul", a, a), a)
            case -1.0:
                return self.arith("fdiv", self.like(1.0, a), a)
            case 0.5:  # sqrt, but for -0 and -inf
                root = self.arith("fadd", self.intrinsic("sqrt", [a]), self.like(0.0, a))
                low = self.compare("oeq", a, self.like(float("-inf"), a))
                return self.select(low, self.like(float("inf"), a), root)
        return (
            self.libm("pow", [a, b])
            if a.dtype == "float64"
            else Value(approx.pow32(self, a, b), a.dtype, a.lanes)
        )

    def float_mod(self, a: Value, b: Value) -> tuple[Value, Value]:
        """(a mod b with b's sign, floor of the quotient), as NumPy defines them."""
        zero = self.like(0.0, a)
        rest = self.libm("fmod", [a, b])
        signs = self.arith("xor", self.compare("olt", rest, zero), self.compare("olt", b, zero))
        lower = self.arith("and", signs, self.compare("une", rest, zero))
        moved = self.select(lower, self.arith("fadd", rest, b), rest)
        remainder = self.select(
            self.compare("oeq", moved, zero), self.intrinsic("copysign", [zero, b]), moved
        )
        quotient = self.arith("fdiv", self.arith("fsub", a, rest), b)
        quotient = self.select(lower, self.arith("fsub", quotient, self.like(1.0, a)), quotient)
        floor = self.intrinsic("floor", [quotient])
        beyond = self.compare("ogt", self.arith("fsub", quotient, floor), self.like(0.5, a))
        floor = self.select(beyond, self.arith("fadd", floor, self.like(1.0, a)), floor)
        exact = self.arith("fdiv", a, b)
        floor = self.select(
            self.compare("oeq", quotient, zero), self.intrinsic("copysign", [zero, exact]), floor
        )
        by_zero = self.compare("oeq", b, zero)
        return self.select(by_zero, rest, remainder), self.select(by_zero, exact, floor)

    def integer_binary(self, op: str, a: Value, b: Value) -> Value:
        signed = a.dtype in SIGNED
        match op:
            case "add" | "sub" | "mul":
                if a.const is not None and b.const is not None:
                    x, y = int(a.const), int(b.const)
                    return self.like(x + y if op == "add" else x - y if op == "sub" else x * y, a)
                return self.arith(op, a, b)
            case "bitand" | "bitor" | "bitxor":
                return self.arith(op[3:], a, b)
            case "shl" | "shr":
                if b.const is not None:
                    inside = 0 <= int(b.const) < bits_of(a.dtype)
                    return (
                        self.arith("shl" if op == "shl" else "ashr" if signed else "lshr", a, b)
                        if inside
                        else self.like(0, a)
                    )
                fits = self.compare("ult", b, self.like(bits_of(a.dtype), a))
                amount = self.select(fits, b, self.like(0, a))
                moved = self.arith("shl" if op == "shl" else "ashr" if signed else "lshr", a, amount)
                return self.select(fits, moved, self.like(0, a))
            case "div" | "fmod":
                return self.divide("div" if op == "div" else "rem", a, b)
            case "floordiv" | "mod":
                if not signed:
                    return self.divide("div" if op == "floordiv" else "rem", a, b)
                rest = self.divide("rem", a, b)
                zero = self.like(0, a)
                lower = self.arith(
                    "and",
                    self.compare("ne", rest, zero),
                    self.compare("slt", self.arith("xor", rest, b), zero),
                )
                if op == "mod":
                    return self.arith("add", rest, self.select(lower, b, zero))
                return self.arith(
                    "add",
                    self.divide("div", a, b),
                    self.ins(f"sext {lower.type} {lower.text} to {a.type}", a),
                )
            case "pow":
                return self.integer_power(a, b)
        raise CodegenError("CODE-002", f"there is no {op} of {a.dtype}")

    def divide(self, what: str, a: Value, b: Value) -> Value:
        """Truncated quotient or remainder that never traps."""
        signed = a.dtype in SIGNED
        instruction = ("s" if signed else "u") + what
        if b.const is not None and b.const not in (0, -1):
            return self.arith(instruction, a, b)
        zero, one = self.like(0, a), self.like(1, a)
        by_zero = self.compare("eq", b, zero)
        unsafe = by_zero
        if signed:
            lowest = self.compare("eq", a, self.like(-1 << (bits_of(a.dtype) - 1), a))
            minus = self.compare("eq", b, self.like(-1, a))
            unsafe = self.arith("or", unsafe, self.arith("and", lowest, minus))
        result = self.arith(instruction, a, self.select(unsafe, one, b))
        return self.select(by_zero, zero, result) if what == "div" else result

    def integer_power(self, a: Value, b: Value) -> Value:
        t = REGISTER_TYPE[a.dtype]
        signed = a.dtype in SIGNED
        name = f"ipow_{'s' if signed else 'u'}_{t}"
        self.f.module.define(name, approx.integer_power(name, t, signed))

        def scalar(parts: list[Value]) -> Value:
            return Value(self.f.ins(f"call {t} @{name}({t} {parts[0].text}, {t} {parts[1].text})"), a.dtype)

        return self.per_lane([a, b], scalar)

    # ---- conversions ---------------------------------------------------------------------------------------
    def cast(self, x: Value, dtype: str) -> Value:
        """As kernel.expr.Cast documents."""
        source = x.dtype
        if source == dtype:
            return x
        out = vector_type(REGISTER_TYPE[dtype], x.lanes)
        if x.const is not None and not is_float(source) and (is_float(dtype) or dtype == "bool"):
            return constant(float(x.const) if is_float(dtype) else x.const != 0, dtype, x.lanes)
        if x.const is not None and not is_float(source):
            return constant(x.const, dtype, x.lanes)
        if dtype == "bool":
            return self.compare("une" if is_float(source) else "ne", x, self.like(0, x))
        if is_float(source) and is_float(dtype):
            return self.float_to_float(x, dtype, out)
        if is_float(source):
            return self.float_to_int(x, dtype, out)
        if is_float(dtype):
            how = "sitofp" if source in SIGNED else "uitofp"
            return self.rounded(self.ins(f"{how} {x.type} {x.text} to {out}", x, dtype))
        wide, narrow = bits_of(dtype), bits_of(source)
        if wide == narrow:
            return Value(x.text, dtype, x.lanes)
        how = "trunc" if wide < narrow else "sext" if source in SIGNED else "zext"
        return self.ins(f"{how} {x.type} {x.text} to {out}", x, dtype)

    def float_to_float(self, x: Value, dtype: str, out: str) -> Value:
        if REGISTER_TYPE[x.dtype] == REGISTER_TYPE[dtype]:
            return self.rounded(Value(x.text, dtype, x.lanes))
        if dtype == "float64":
            return self.ins(f"fpext {x.type} {x.text} to {out}", x, dtype)
        if dtype == "float16":  # rounding twice must not move a tie: the first rounding is to odd
            return self.rounded(Value(approx.round_to_odd(self, x), dtype, x.lanes))
        return self.rounded(self.ins(f"fptrunc {x.type} {x.text} to {out}", x, dtype))

    def float_to_int(self, x: Value, dtype: str, out: str) -> Value:
        kind = "fptosi" if dtype in SIGNED else "fptoui"
        mangle = f"{f'v{x.lanes}' if x.lanes else ''}"
        element = REGISTER_TYPE[dtype]
        name = f"llvm.{kind}.sat.{mangle}{element}.{mangle}{'f64' if x.dtype == 'float64' else 'f32'}"
        self.f.module.declare(name, f"{out} {{}}({x.type})")
        return self.ins(f"call {out} @{name}({x.type} {x.text})", x, dtype)

    def to_memory(self, v: Value) -> str:
        """The stored form of v (bool as i8, narrow floats as i16); its name."""
        out = vector_type(MEMORY_TYPE[v.dtype], v.lanes)
        if v.dtype == "bool":
            return (
                splat_literal("i8", str(int(v.const)), v.lanes)
                if v.const is not None
                else self.f.ins(f"zext {v.type} {v.text} to {out}")
            )
        if v.dtype == "bfloat16":
            return approx.to_bfloat16(self, v)
        if v.dtype == "float16":
            if not self.native_half:
                return approx.to_float16(self, v)
            half = vector_type("half", v.lanes)
            narrow = self.f.ins(f"fptrunc {v.type} {v.text} to {half}")
            return self.f.ins(f"bitcast {half} {narrow} to {out}")
        return v.text

    def from_memory(self, name: str, dtype: str, lanes: int) -> Value:
        """The register form of a stored element."""
        stored, out = vector_type(MEMORY_TYPE[dtype], lanes), vector_type(REGISTER_TYPE[dtype], lanes)
        if dtype == "bool":
            return Value(
                self.f.ins(f"icmp ne {stored} {name}, {'zeroinitializer' if lanes else '0'}"), dtype, lanes
            )
        if dtype == "bfloat16":
            wide = vector_type("i32", lanes)
            up = self.f.ins(f"zext {stored} {name} to {wide}")
            up = self.f.ins(f"shl {wide} {up}, {splat_literal('i32', '16', lanes)}")
            return Value(self.f.ins(f"bitcast {wide} {up} to {out}"), dtype, lanes)
        if dtype == "float16":
            if not self.native_half:
                return Value(approx.from_float16(self, name, lanes), dtype, lanes)
            half = vector_type("half", lanes)
            narrow = self.f.ins(f"bitcast {stored} {name} to {half}")
            return Value(self.f.ins(f"fpext {half} {narrow} to {out}"), dtype, lanes)
        return Value(name, dtype, lanes)

"""exp, log, tanh, erf and their kin as straight-line code over vectors; no table, no call of the C library.

Methods: range reduction and polynomials (after Cody and Waite, Software Manual for the Elementary Functions,
1980). Coefficients are our own: interpolation at Chebyshev nodes in 70-digit arithmetic, and for the rational
functions a minimax fit by Lawson's reweighting, scaled so that rounding the coefficients to float32 hurts
least. Errors measured by tests/codegen/test_math.py, in units of the last place (float32, with fused
multiply-add): exp 1, log 1, sigmoid 3, tanh and erf 5, sin and cos 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia.codegen.llvm.writer import Value, splat_literal, vector_type

if TYPE_CHECKING:
    from intarsia.codegen.llvm.arith import Arith

EXP32 = (0.5, 0.1666657702559799, 0.041666554662050534, 0.008363173074513711, 0.001392617611993558)
EXP64 = (
    0.5000000000000001, 0.16666666666666669, 0.041666666666624164, 0.008333333333330065,
    0.0013888888917196719,
    0.00019841269863040545, 2.4801521322368692e-05, 2.7557268480310024e-06, 2.7620075879983367e-07,
    2.5100375832561234e-08,
)  # fmt: skip
LOG32 = (
    0.33333330728190674, -0.25000306422569796, 0.2000104509416068, -0.16641281463106394, 0.14214495923947962,
    -0.1299818376365153, 0.12622319849228378, -0.0790274377239344,
)  # fmt: skip
LOG64 = (
    0.666666666666667, 0.39999999999899505, 0.28571428625975487, 0.2222221113479508, 0.18182889125261723,
    0.15331721600556042, 0.14616449685043406,
)  # fmt: skip
SIN32 = (-0.16666664601754114, 0.00833273655917713, -0.0001958537320669302)
COS32 = (0.04166666459882798, -0.0013888291300556933, 2.4545419078353295e-05)
SIN64 = (
    -0.16666666666666666, 0.008333333333330827, -0.0001984126983657571, 2.755731600817155e-06,
    -2.5051112272573243e-08, 1.5916726193889336e-10,
)  # fmt: skip
COS64 = (
    0.041666666666666664, -0.0013888888888887322, 2.4801587298651292e-05, -2.755731721268659e-07,
    2.0876134024090145e-09, -1.1381754653662937e-11,
)  # fmt: skip
TANH32 = (
    (
        1.591666579246521, 0.20602355897426605, 0.004691226873546839, 1.5141149560804479e-05,
        -2.153212719235853e-08, 3.216333102629143e-11,
    ),
    (1.5916666984558105, 0.7365785837173462, 0.037995968014001846, 0.0003689384029712528),
)  # fmt: skip
TANH64 = (
    -0.3333333333333332, 0.13333333333326658, -0.05396825396139557, 0.021869488260559115,
    -0.008863229830925709,
    0.0035920589774734554, -0.001455309297534642, 0.0005874372860094381, -0.00023077616269519857,
    7.959955735264808e-05, -1.724487449484433e-05,
)  # fmt: skip
ERF32 = (
    (
        1.8900350332260132, 0.3119599521160126, 0.08761939406394958, 0.006054905708879232,
        0.00047989533049985766, 3.6030480714543955e-06,
    ),
    (
        1.6749999523162842, 0.8348000049591064, 0.18842066824436188, 0.024566978216171265,
        0.0019012115662917495, 6.568291428266093e-05,
    ),
)  # fmt: skip
ERF64 = (
    1.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792,
    0.0052239776248180145,
    -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05, 1.6461000484121368e-06,
    -1.6350312701054695e-07, 1.4659775274047436e-08, -1.1372848856791674e-09, 5.957176147748911e-11,
)  # fmt: skip
ERFC64 = (  # erfc(x) * exp(x^2) over t = (x - 3) / (x + 3), 1 <= x <= 6
    0.17900115118138996, -0.3262335600430372, 0.2456038017123309, -0.15011593650077742, 0.07166583719797347,
    -0.024392499318655416, 0.004269136333148302, 0.0007077464385177353, -0.0005970619586158305,
    4.5255298034073955e-05, 6.405673342206844e-05, -1.2860318447907675e-05, -7.979817704348727e-06,
    2.1169509641489688e-06, 1.2598817267482604e-06, -2.7269500546476834e-07, -2.389387463474792e-07,
    -2.5925894581233316e-08,
)  # fmt: skip
PIO2 = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)  # pi / 2 in parts of 33 bits
FAR = 1.0e6  # beyond it the parts of pi / 2 are too short
INF, NAN = float("inf"), float("nan")


class Vec:
    """A float value under construction: operators emit instructions."""

    __slots__ = ("a", "v")

    def __init__(self, a: Arith, v: Value):
        self.a, self.v = a, v

    def new(self, v: Value) -> Vec:
        return Vec(self.a, v)

    def lift(self, x: Vec | float) -> Vec:
        return x if isinstance(x, Vec) else self.new(self.a.like(x, self.v))

    def __add__(self, o: Vec | float) -> Vec:
        return self.new(self.a.arith("fadd", self.v, self.lift(o).v))

    def __sub__(self, o: Vec | float) -> Vec:
        return self.new(self.a.arith("fsub", self.v, self.lift(o).v))

    def __rsub__(self, o: float) -> Vec:
        return self.lift(o) - self

    def __mul__(self, o: Vec | float) -> Vec:
        return self.new(self.a.arith("fmul", self.v, self.lift(o).v))

    def __truediv__(self, o: Vec | float) -> Vec:
        return self.new(self.a.arith("fdiv", self.v, self.lift(o).v))

    def __rtruediv__(self, o: float) -> Vec:
        return self.lift(o) / self

    def fma(self, b: Vec | float, c: Vec | float) -> Vec:
        """self * b + c, fused where the target can."""
        return self.new(self.a.intrinsic("fmuladd", [self.v, self.lift(b).v, self.lift(c).v]))

    def poly(self, coefficients: tuple[float, ...]) -> Vec:
        """c0 + c1 x + c2 x^2 + … by Horner's rule."""
        total = self.lift(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            total = total.fma(self, c)
        return total

    def abs(self) -> Vec:
        return self.new(self.a.intrinsic("fabs", [self.v]))

    def sign_of(self, o: Vec) -> Vec:
        return self.new(self.a.intrinsic("copysign", [self.v, o.v]))

    def cmp(self, predicate: str, o: Vec | float) -> Value:
        return self.a.compare(predicate, self.v, self.lift(o).v)

    def where(self, cond: Value, then: Vec | float) -> Vec:
        """`then` where cond, else self."""
        return self.new(self.a.select(cond, self.lift(then).v, self.v))

    def upto(self, high: float) -> Vec:
        return self.where(self.cmp("ogt", high), high)  # NaN stays

    def atleast(self, low: float) -> Vec:
        return self.where(self.cmp("olt", low), low)

    # ---- the same bits as integers -------------------------------------------------------------------------
    @property
    def wide(self) -> bool:
        return self.v.dtype == "float64"

    @property
    def int_type(self) -> str:
        return vector_type("i64" if self.wide else "i32", self.v.lanes)

    def bits(self) -> str:
        return self.a.f.ins(f"bitcast {self.v.type} {self.v.text} to {self.int_type}")

    def of_bits(self, bits: str) -> Vec:
        return self.new(
            Value(
                self.a.f.ins(f"bitcast {self.int_type} {bits} to {self.v.type}"), self.v.dtype, self.v.lanes
            )
        )

    def iop(self, op: str, x: str, y: str | int) -> str:
        right = (
            splat_literal("i64" if self.wide else "i32", str(y), self.v.lanes) if isinstance(y, int) else y
        )
        return self.a.f.ins(f"{op} {self.int_type} {x}, {right}")


def exp(x: Vec) -> Vec:
    """2^n e^r with |r| <= ln(2) / 2; 2^n in two factors, so that subnormal results come out right."""
    if x.wide:
        x = x.upto(710.0).atleast(-746.0)
        magic, half, bias, mantissa, parts = (
            6755399441055744.0,
            4096,
            1023,
            52,
            (0.6931471803691238, 1.9082149292705877e-10),
        )
        magic_bits, coefficients = 0x4338000000000000, EXP64
    else:
        x = x.upto(89.0).atleast(-104.0)
        magic, half, bias, mantissa, parts = 12582912.0, 512, 127, 23, (0.693359375, -0.00021219444005469057)
        magic_bits, coefficients = 0x4B400000, EXP32
    shifted = x.fma(1.4426950408889634, magic)
    n = shifted - magic
    r = n.fma(-parts[1], n.fma(-parts[0], x))
    p = (r * r).fma(r.poly(coefficients), r) + 1.0
    up = x.iop("add", shifted.bits(), half - magic_bits)  # n + half, positive
    first = x.iop("lshr", up, 1)
    second = x.iop("sub", up, first)
    scale1 = x.of_bits(x.iop("shl", x.iop("add", first, bias - half // 2), mantissa))
    scale2 = x.of_bits(x.iop("shl", x.iop("add", second, bias - half // 2), mantissa))
    return p * scale1 * scale2


def log(x: Vec) -> Vec:
    """k ln 2 + log(1 + f), sqrt(1/2) <= 1 + f < sqrt(2)."""
    tiny, up, power = (
        (2.2250738585072014e-308, 2.0**54, 54.0) if x.wide else (1.1754943508222875e-38, 2.0**24, 24.0)
    )
    subnormal = x.cmp("olt", tiny)
    y = x.where(subnormal, x * up)
    bits = y.bits()
    if x.wide:
        mantissa, root, bias = 52, 0x3FE6A09E667F3BCD, 2048
        shifted = x.iop("add", bits, (bias << mantissa) - root)
        exponent = x.iop("lshr", shifted, mantissa)
        k = x.of_bits(x.iop("or", exponent, 0x4330000000000000)) - (4503599627370496.0 + bias)
        down = x.iop("shl", x.iop("sub", exponent, bias), mantissa)
    else:
        shifted = x.iop("sub", bits, 0x3F3504F3)
        exponent = x.iop("ashr", shifted, 23)
        k = x.new(Value(x.a.f.ins(f"sitofp {x.int_type} {exponent} to {x.v.type}"), x.v.dtype, x.v.lanes))
        down = x.iop("shl", exponent, 23)
    k = k.where(subnormal, k - power)
    f = x.of_bits(x.iop("sub", bits, down)) - 1.0
    if x.wide:
        s = f / (f + 2.0)
        z = s * s
        half = f * f * 0.5
        rest = s.fma(half + z * z.poly(LOG64), k * 1.9082149292705877e-10)
        result = k.fma(0.6931471803691238, f - (half - rest))
    else:
        square = f * f
        rest = k.fma(-0.00021219444005469057, (square * f) * f.poly(LOG32))
        result = k.fma(0.693359375, f + square.fma(-0.5, rest))
    result = x.where(x.cmp("olt", INF), result)  # inf and NaN stay
    result = result.where(x.cmp("olt", 0.0), NAN)
    return result.where(x.cmp("oeq", 0.0), -INF)


def sigmoid(x: Vec) -> Vec:
    e = exp(x.lift(0.0) - x.abs())
    bottom = e + 1.0
    return (x.lift(1.0).where(x.cmp("olt", 0.0), e)) / bottom


def tanh(x: Vec) -> Vec:
    if not x.wide:
        return rational(x, TANH32, 8.6)
    size = x.abs()
    e = exp(size + size)
    large = 1.0 - 2.0 / (e + 1.0)
    z = size * size
    small = (z * size).fma(z.poly(TANH64), size)
    return large.where(size.cmp("olt", 0.625), small).sign_of(x)


def rational(x: Vec, coefficients: tuple[tuple[float, ...], tuple[float, ...]], end: float) -> Vec:
    """x P(x^2) / Q(x^2), which reaches 1 at `end`."""
    y = x.upto(end).atleast(-end)
    z = y * y
    r = (y * z.poly(coefficients[0])) / z.poly(coefficients[1])
    return r.upto(1.0).atleast(-1.0)


def erf(x: Vec) -> Vec:
    if not x.wide:
        return rational(x, ERF32, 3.8)
    size = x.abs()
    small = x * (x * x).poly(ERF64)
    y = size.upto(6.0)
    t = (y - 3.0) / (y + 3.0)
    large = (1.0 - exp(x.lift(0.0) - y * y) * t.poly(ERFC64)).sign_of(x)
    return large.where(size.cmp("olt", 1.0), small).where(x.cmp("uno", x), x)


def sin(x: Vec) -> Vec:
    return circular(x, 0)


def cos(x: Vec) -> Vec:
    return circular(x, 1)


def circular(x: Vec, quarter: int) -> Vec:
    """sin(x + quarter pi/2): the remainder by pi/2 in double precision; the C library where |x| is huge."""
    a, f, lanes = x.a, x.a.f, x.v.lanes
    d = x if x.wide else x.new(a.float_to_float(x.v, "float64", vector_type("double", lanes)))
    magic = 6755399441055744.0
    shifted = d.fma(0.6366197723675814, magic)
    n = shifted - magic
    r = n.fma(-PIO2[2], n.fma(-PIO2[1], n.fma(-PIO2[0], d)))
    quadrant = d.iop("add", shifted.bits(), quarter)
    if not x.wide:
        r = r.new(a.float_to_float(r.v, "float32", vector_type("float", lanes)))
        quadrant = f.ins(f"trunc {d.int_type} {quadrant} to {x.int_type}")
    z = r * r
    sine = (z * r).fma(z.poly(SIN64 if x.wide else SIN32), r)
    cosine = (z * z).fma(z.poly(COS64 if x.wide else COS32), z.fma(-0.5, 1.0))
    zero = splat_literal("i64" if x.wide else "i32", "0", lanes)
    odd = Value(f.ins(f"icmp ne {x.int_type} {x.iop('and', quadrant, 1)}, {zero}"), "bool", lanes)
    result = sine.where(odd, cosine)
    sign = x.iop("shl", x.iop("lshr", quadrant, 1), 63 if x.wide else 31)
    near = x.of_bits(x.iop("xor", result.bits(), sign))
    near = near.where(x.cmp("oeq", 0.0), x) if quarter == 0 else near  # keeps -0
    far = x.abs().cmp("uge", FAR)  # and NaN, and infinity
    if lanes:
        name = f.module.declare(f"llvm.vector.reduce.or.v{lanes}i1", f"i1 {{}}(<{lanes} x i1>)")
        some = f.ins(f"call i1 @{name}(<{lanes} x i1> {far.text})")
    else:
        some = far.text
    slow, done, before = f.label("far"), f.label("near"), f.block
    f.branch(some, slow, done, ", !prof !0")
    f.start(slow)
    called = a.libm("cos" if quarter else "sin", [x.v])
    chosen = a.select(far, called, near.v)
    after = f.block
    f.jump(done)
    f.start(done)
    f.module.define("!0", '!0 = !{!"branch_weights", i32 1, i32 1000}')
    return x.new(
        Value(
            f.ins(f"phi {x.v.type} [ {near.v.text}, %{before} ], [ {chosen.text}, %{after} ]"),
            x.v.dtype,
            lanes,
        )
    )


def _routine(function):
    def emit(a: Arith, x: Value) -> str:
        plain = x if x.dtype == "float64" else Value(x.text, "float32", x.lanes, x.const)
        return function(Vec(a, plain)).v.text

    return emit


ROUTINES = {
    "exp": _routine(exp), "log": _routine(log), "sigmoid": _routine(sigmoid), "tanh": _routine(tanh),
    "erf": _routine(erf), "sin": _routine(sin), "cos": _routine(cos),
}  # fmt: skip


def pow32(a: Arith, base: Value, exponent: Value) -> str:
    """|base|^exponent by exp and log in double precision, then the sign rules of C's powf."""
    wide = vector_type("double", base.lanes)
    x = Vec(a, a.float_to_float(Value(base.text, "float32", base.lanes), "float64", wide))
    y = Vec(a, a.float_to_float(Value(exponent.text, "float32", exponent.lanes), "float64", wide))
    size = x.abs()
    result = exp(y * log(size))
    one = a.arith("or", y.cmp("oeq", 0.0), x.cmp("oeq", 1.0))
    unit = a.arith("and", x.cmp("oeq", -1.0), y.abs().cmp("oeq", INF))
    result = result.where(a.arith("or", one, unit), 1.0)
    whole = a.compare("oeq", a.intrinsic("trunc", [y.v]), y.v)
    half = y * 0.5
    odd = a.arith("and", whole, a.compare("une", a.intrinsic("trunc", [half.v]), half.v))
    result = result.where(odd, result.sign_of(x))
    fraction = a.arith("xor", whole, a.like(True, whole))
    negative = a.arith("and", x.cmp("olt", 0.0), x.cmp("ogt", -INF))
    result = result.where(a.arith("and", negative, fraction), NAN)
    return a.float_to_float(result.v, "float32", vector_type("float", base.lanes)).text


def integer_power(name: str, t: str, signed: bool) -> str:
    """base^exponent of integers modulo 2^bits; truncated 1 / base^-exponent where exponent < 0."""
    negative = (
        f"""  %neg = icmp slt {t} %e, 0
  br i1 %neg, label %inverse, label %loop
inverse:
  %one = icmp eq {t} %b, 1
  %minus = icmp eq {t} %b, -1
  %low = and {t} %e, 1
  %flip = sub {t} 0, %low
  %sign = or {t} %flip, 1
  %m = select i1 %minus, {t} %sign, {t} 0
  %i = select i1 %one, {t} 1, {t} %m
  ret {t} %i
"""
        if signed
        else "  br label %loop\n"
    )
    return f"""define internal {t} @{name}({t} %b, {t} %e) nounwind noinline {{
entry:
{negative}loop:
  %r = phi {t} [ 1, %entry ], [ %r2, %step ]
  %x = phi {t} [ %b, %entry ], [ %x2, %step ]
  %n = phi {t} [ %e, %entry ], [ %n2, %step ]
  %end = icmp eq {t} %n, 0
  br i1 %end, label %done, label %step
step:
  %bit = and {t} %n, 1
  %set = icmp ne {t} %bit, 0
  %rx = mul {t} %r, %x
  %r2 = select i1 %set, {t} %rx, {t} %r
  %x2 = mul {t} %x, %x
  %n2 = lshr {t} %n, 1
  br label %loop
done:
  ret {t} %r
}}"""


# ---- narrow floats -----------------------------------------------------------------------------------------
def to_bfloat16(a: Arith, v: Value) -> str:
    """float32 to the upper half of its bits, to nearest even; NaN becomes a quiet NaN of the same sign."""
    f, lanes = a.f, v.lanes
    t = vector_type("i32", lanes)

    def k(n: int) -> str:
        return splat_literal("i32", str(n), lanes)

    bits = f.ins(f"bitcast {v.type} {v.text} to {t}")
    upper = f.ins(f"lshr {t} {bits}, {k(16)}")
    even = f.ins(f"and {t} {upper}, {k(1)}")
    bias = f.ins(f"add {t} {even}, {k(0x7FFF)}")
    rounded = f.ins(f"lshr {t} {f.ins(f'add {t} {bits}, {bias}')}, {k(16)}")
    nan = f.ins(f"or {t} {upper}, {k(0x40)}")
    is_nan = f.ins(f"fcmp uno {v.type} {v.text}, {v.text}")
    chosen = f.ins(f"select {vector_type('i1', lanes)} {is_nan}, {t} {nan}, {t} {rounded}")
    return f.ins(f"trunc {t} {chosen} to {vector_type('i16', lanes)}")


def to_float16(a: Arith, v: Value) -> str:
    """float32 to IEEE half by integer arithmetic, to nearest even, for targets without the instruction."""
    f, lanes = a.f, v.lanes
    x = Vec(a, Value(v.text, "float32", lanes))
    t, mask = x.int_type, vector_type("i1", lanes)

    def k(n: int) -> str:
        return splat_literal("i32", str(n), lanes)

    bits = x.bits()
    sign = x.iop("lshr", x.iop("and", bits, 0x80000000), 16)
    size = x.iop("and", bits, 0x7FFFFFFF)
    # normal results: move the exponent, round the 13 dropped bits to even
    even = x.iop("and", x.iop("lshr", size, 13), 1)
    normal = x.iop("lshr", x.iop("add", x.iop("sub", size, (112 << 23) - 0xFFF), even), 13)
    # subnormal results: adding 0.5 makes the FPU round at the right place
    shifted = x.of_bits(size) + 0.5
    subnormal = x.iop("sub", shifted.bits(), 0x3F000000)
    small = f.ins(f"icmp ult {t} {size}, {k(113 << 23)}")
    huge = f.ins(f"icmp uge {t} {size}, {k(0x47800000)}")
    nan = f.ins(f"icmp ugt {t} {size}, {k(0x7F800000)}")
    r = f.ins(f"select {mask} {small}, {t} {subnormal}, {t} {normal}")
    r = f.ins(f"select {mask} {huge}, {t} {k(0x7C00)}, {t} {r}")
    r = f.ins(f"select {mask} {nan}, {t} {k(0x7E00)}, {t} {r}")
    return f.ins(f"trunc {t} {x.iop('or', r, sign)} to {vector_type('i16', lanes)}")


def from_float16(a: Arith, name: str, lanes: int) -> str:
    """IEEE half bits to float32 by integer arithmetic."""
    f = a.f
    t, ft = vector_type("i32", lanes), vector_type("float", lanes)
    x = Vec(a, Value("poison", "float32", lanes))
    wide = f.ins(f"zext {vector_type('i16', lanes)} {name} to {t}")
    size = x.iop("shl", x.iop("and", wide, 0x7FFF), 13)
    scaled = x.of_bits(size) * 2.0**112
    special = f.ins(f"icmp uge {t} {size}, {splat_literal('i32', str(0x7C00 << 13), lanes)}")
    bits = scaled.bits()
    inf = x.iop("or", bits, 0xFF << 23)
    bits = f.ins(f"select {vector_type('i1', lanes)} {special}, {t} {inf}, {t} {bits}")
    sign = x.iop("shl", x.iop("and", wide, 0x8000), 16)
    return f.ins(f"bitcast {t} {x.iop('or', bits, sign)} to {ft}")


def round_to_odd(a: Arith, v: Value) -> str:
    """float64 to float32: toward zero, the last bit set if that was inexact. Rounding again is then exact."""
    f, lanes = a.f, v.lanes
    near = Vec(
        a, Value(f.ins(f"fptrunc {v.type} {v.text} to {vector_type('float', lanes)}"), "float32", lanes)
    )
    back = a.float_to_float(near.v, "float64", vector_type("double", lanes))
    d = Vec(a, v)
    b = Vec(a, back)
    above = b.abs().cmp("ogt", d.abs())
    inexact = b.cmp("one", d)
    step = f.ins(f"sext {above.type} {above.text} to {near.int_type}")
    odd = f.ins(f"zext {inexact.type} {inexact.text} to {near.int_type}")
    return near.of_bits(near.iop("or", near.iop("add", near.bits(), step), odd)).v.text

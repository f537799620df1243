"""Elementwise operators and activations: rule, reference and compute definition over odd inputs."""

from __future__ import annotations

import numpy as np
import pytest
from stage_eval import Case, agree, known_value, site_of

from intarsia.dim import Symbol, as_dim, dmax, dmin
from intarsia.op import names
from intarsia.op.entry import numpy_dtype
from intarsia.support.errors import TypeCheckError

FLOAT_UNARY = [
    "negative", "abs", "sign", "exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin",
    "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "sigmoid", "floor", "ceil",
    "round", "trunc", "copy", "nn.relu", "nn.leaky_relu", "nn.elu", "nn.selu", "nn.celu", "nn.gelu",
    "nn.silu", "nn.hard_sigmoid", "nn.hard_swish", "nn.softplus", "nn.softsign", "nn.mish",
    "nn.thresholded_relu", "isnan", "isinf",
]  # fmt: skip
AWKWARD = np.array(
    [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-5, 3.0, -7.0, 30.0, np.inf, -np.inf, np.nan], np.float32
)


@pytest.mark.parametrize("name", FLOAT_UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_unary_floats_agree_on_awkward_values(name, dtype):
    agree(Case(name, [AWKWARD.astype(numpy_dtype(dtype)).reshape(2, 7)]), rtol=2e-5)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 5), (9,)])
def test_unary_operators_keep_any_shape(shape):
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    agree(Case("tanh", [x]))
    agree(Case("nn.relu", [x], symbols={0: tuple(f"n{i}" for i in range(len(shape)))}))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
def test_unary_integers_wrap(dtype):
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 5], dtype)
    agree(Case("abs", [x]))
    agree(Case("sign", [x]))
    agree(Case("bitwise_not", [x]))
    agree(Case("nn.relu", [x]))
    if info.min < 0:
        agree(Case("negative", [x]))


@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("negative", [True, False])
def test_isinf_of_either_sign(positive, negative):
    (got,) = agree(Case("isinf", [AWKWARD], {"detect_positive": positive, "detect_negative": negative}))
    assert got.sum() == positive + negative


def test_round_goes_to_even():
    (got,) = agree(Case("round", [np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)]))
    assert got.tolist() == [0, 2, 2, 0, -2]


@pytest.mark.parametrize("attrs", [{"approximate": "tanh"}, {"approximate": "none"}])
def test_gelu_formulas(attrs):
    agree(Case("nn.gelu", [np.linspace(-5, 5, 21, dtype=np.float32)], attrs))


def test_activation_attributes():
    x = np.linspace(-3, 3, 13, dtype=np.float32)
    agree(Case("nn.leaky_relu", [x], {"alpha": 0.3}), np.where(x < 0, np.float32(0.3) * x, x))
    agree(Case("nn.elu", [x], {"alpha": 2.0}))
    agree(Case("nn.celu", [x], {"alpha": 0.5}))
    agree(Case("nn.hard_sigmoid", [x], {"alpha": 1 / 6, "beta": 0.5}))
    agree(Case("nn.thresholded_relu", [x], {"alpha": 0.7}))


def test_softplus_and_mish_keep_small_and_large_values():
    x = np.array([-90.0, -40.0, -20.0, 20.0, 90.0], np.float32)
    (soft,) = agree(Case("nn.softplus", [x]), rtol=1e-5, atol=0)
    assert soft[2] > 0 and soft[4] == 90
    agree(Case("nn.mish", [x]), rtol=1e-5, atol=0)


# ---- cast, clip --------------------------------------------------------------------------------------------
DTYPES = ["bool", "int8", "int32", "int64", "uint8", "uint64", "float16", "bfloat16", "float32", "float64"]


@pytest.mark.parametrize("source", DTYPES)
@pytest.mark.parametrize("target", DTYPES)
def test_cast_between_all_dtypes(source, target):
    values = np.array([0, 1, 2.75, -2.75, 100, -100, 300], np.float64)
    x = (
        values.astype(np.int64).astype(numpy_dtype(source))
        if "float" not in source
        else values.astype(numpy_dtype(source))
    )
    (got,) = agree(Case("cast", [x], {"dtype": target}))
    assert got.dtype == numpy_dtype(target)


def test_cast_saturates_and_drops_nan():
    x = np.array([1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)
    (got,) = agree(Case("cast", [x], {"dtype": "int32"}))
    assert got.tolist() == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0]
    (got,) = agree(Case("cast", [x], {"dtype": "uint8"}))
    assert got.tolist() == [255, 0, 255, 0, 0]
    (got,) = agree(Case("cast", [x], {"dtype": "int64"}))
    assert got.tolist() == [2**63 - 1, -(2**63), 2**63 - 1, -(2**63), 0]
    agree(Case("cast", [np.array([300, -1], np.int32)], {"dtype": "uint8"}), np.array([44, 255], np.uint8))


@pytest.mark.parametrize("bounds", [(None, None), (-1, None), (None, 1), (-1, 1), (1, -1)])
@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_clip(bounds, dtype):
    arrays = [np.array([[-3, 0, 3]], dtype), *(None if b is None else np.array(b, dtype) for b in bounds)]
    agree(Case("clip", arrays))


def test_clip_keeps_nan_and_takes_vectors_of_one():
    x = np.array([np.nan, 5, -5], np.float32)
    (got,) = agree(Case("clip", [x, np.array([0], np.float32), np.array(2, np.float32)]))
    assert np.isnan(got[0]) and got[1:].tolist() == [2, 0]


# ---- binary ------------------------------------------------------------------------------------------------
ARITHMETIC = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "mod",
    "fmod",
    "power",
    "maximum",
    "minimum",
]
COMPARISON = ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"]
PAIRS = [
    ((), ()),
    ((3,), ()),
    ((0,), (1,)),
    ((2, 1, 3), (4, 1)),
    ((1, 1), (1, 1)),
    ((5,), (5,)),
    ((2, 0), (1, 1)),
]


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISON)
@pytest.mark.parametrize("shapes", PAIRS, ids=str)
def test_binary_broadcasts(name, shapes):
    rng = np.random.default_rng(2)
    a, b = (rng.uniform(0.5, 4, s).astype(np.float32) for s in shapes)
    agree(Case(name, [a, b]))


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISON)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_binary_floats_agree_on_awkward_values(name, dtype):
    x = AWKWARD[[0, 1, 2, 4, 8, 9, 11, 12, 13]].astype(numpy_dtype(dtype))
    if name == "power":  # NumPy itself gives two answers for (-inf) ** 0.5
        x = x[~np.isneginf(x.astype(np.float32))]
    agree(Case(name, [x[:, None], x[None, :]]))


@pytest.mark.parametrize("name", ARITHMETIC + COMPARISON)
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8", "uint32"])
def test_binary_integers_wrap_and_never_trap(name, dtype):
    info = np.iinfo(dtype)
    x = np.array([info.min, info.max, 0, 1, 2, 7, *([-1, -2, -7] if info.min < 0 else [])], dtype)
    y = x
    if name == "power":
        y = np.array([0, 1, 2, 5, 40, *([-1, -2] if info.min < 0 else [])], dtype)
        x = x[x != 0] if info.min < 0 else x  # zero to a negative power has no value
    agree(Case(name, [x[:, None], y[None, :]]))


def test_integer_division_rounds_as_named():
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    agree(Case("divide", [a, b]), np.array([3, -3, -3, 3], np.int32))
    agree(Case("floor_divide", [a, b]), np.array([3, -4, -4, 3], np.int32))
    agree(Case("mod", [a, b]), np.array([1, 1, -1, -1], np.int32))
    agree(Case("fmod", [a, b]), np.array([1, -1, 1, -1], np.int32))
    zero = np.zeros(4, np.int32)
    for name in ("divide", "floor_divide", "mod", "fmod"):
        agree(Case(name, [a, zero]), zero)


@pytest.mark.parametrize("base", ["float32", "int32", "int64", "float16"])
@pytest.mark.parametrize("exponent", ["float32", "int32", "int64"])
def test_power_keeps_the_dtype_of_its_base(base, exponent):
    (got,) = agree(Case("power", [np.array([1, 2, 3], base), np.array([2, 3, 0], exponent)]))
    assert got.dtype == np.dtype(base) and got.tolist() == [1, 8, 1]


def test_integer_power_of_a_negative_exponent_truncates():
    a, b = np.array([1, -1, -1, 2, -3], np.int64), np.array([-3, -3, -2, -1, -5], np.int64)
    agree(Case("power", [a, b]), np.array([1, -1, 1, 0, 0]))


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor", "equal", "not_equal"])
def test_logic(name):
    a = np.array([True, True, False, False])
    agree(Case(name, [a, np.array([True, False, True, False])]))
    agree(Case("logical_not", [a]), ~a)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64"])
def test_bits(name, dtype):
    x = np.array([0, 1, 85, 127], dtype)
    agree(Case(name, [x[:, None], x[None, :]]))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64"])
def test_shifts_by_the_width_give_zero(dtype):
    bits = np.iinfo(dtype).bits
    x, by = (
        np.array([1, 255, np.iinfo(dtype).max], dtype)[:, None],
        np.array([0, 1, bits - 1, bits, bits + 3], dtype),
    )
    (left,) = agree(Case("left_shift", [x, by]))
    (right,) = agree(Case("right_shift", [x, by]))
    assert not left[:, 3:].any() and not right[:, 3:].any()


def test_where_broadcasts_three_ways():
    cond = np.array([[True], [False]])
    for dtype in ("float32", "int64", "bool", "bfloat16"):
        a = np.ones((1, 3), numpy_dtype(dtype))
        agree(Case("where", [cond, a, np.zeros((), numpy_dtype(dtype))]))


def test_prelu_stretches_its_slope():
    x = np.array([[[-1.0, 2.0, np.nan]], [[-3.0, 0.0, -4.0]]], np.float32)
    agree(Case("nn.prelu", [x, np.array([0.5, 1, 0.25], np.float32)]))
    agree(Case("nn.prelu", [x, np.array([[[0.5]], [[2.0]]], np.float32)]))
    with pytest.raises(TypeCheckError, match="stretched"):
        agree(Case("nn.prelu", [x[:, :, :1], np.ones(3, np.float32)]))


# ---- rules -------------------------------------------------------------------------------------------------
def test_symbolic_dimensions_broadcast():
    a, b = np.ones((4, 1, 3), np.float32), np.ones((5, 3), np.float32)
    site, _ = site_of(Case("add", [a, b], symbols={0: ("n", None, "m"), 1: ("k", "m")}))
    assert site.out[0].shape == (Symbol("n"), Symbol("k"), Symbol("m")) and not site.checks
    agree(Case("add", [a, b], symbols={0: ("n", None, "m"), 1: ("k", "m")}))


def test_two_symbols_are_equal_with_one_check():
    a = np.ones((4,), np.float32)
    site, _ = site_of(Case("add", [a, a], symbols={0: ("n",), 1: ("m",)}))
    assert len(site.checks) == 1 and site.checks[0].relation == "=="
    site, _ = site_of(Case("add", [a, a], symbols={0: ("n",)}))
    assert site.out[0].shape == (as_dim(4),) and len(site.checks) == 1


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("add", [np.ones(3, np.float32), np.ones(4, np.float32)], "3 does not equal 4"),
        ("add", [np.ones(3, np.float32), np.ones(3, np.int64)], "float32, but argument 2 is int64"),
        ("add", [np.ones(3, bool), np.ones(3, bool)], "numeric"),
        ("exp", [np.ones(3, np.int64)], "floating-point"),
        ("logical_not", [np.ones(3, np.float32)], "bool"),
        ("bitwise_and", [np.ones(3, np.float32)] * 2, "integer"),
        ("where", [np.ones(3, np.int64), np.ones(3), np.ones(3)], "bool"),
        ("clip", [np.ones(3), np.ones(3)], "one number"),
    ],
)
def test_what_does_not_fit_is_refused(name, arrays, message):
    with pytest.raises(TypeCheckError, match=message):
        site_of(Case(name, arrays))


def test_cast_to_an_unknown_dtype_is_refused():
    with pytest.raises(TypeCheckError, match="complex64"):
        site_of(Case("cast", [np.ones(3)], {"dtype": "complex64"}))


# ---- contents followed at compile time ---------------------------------------------------------------------
N, M = Symbol("n"), Symbol("m")


def vector(*values, dtype="int64"):
    out = np.empty(len(values), object)
    out[:] = [as_dim(v) for v in values]
    return ((len(values),), dtype, out)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("add", [vector(N, 3), vector(1, 4)], [N + 1, 7]),
        ("subtract", [vector(N, 3), vector(M)], [N - M, 3 - M]),
        ("multiply", [vector(N, 3), vector(M)], [N * M, 3 * M]),
        ("divide", [vector(N, -7), vector(2)], [N // 2, -3]),
        ("floor_divide", [vector(4 * N, -7), vector(2)], [2 * N, -4]),
        ("mod", [vector(2 * N, -7, N), vector(2)], [0, 1, N % 2]),
        ("fmod", [vector(-7), vector(2)], [-1]),
        ("maximum", [vector(N, M), vector(0, 3)], [N, dmax(M, 3)]),
        ("minimum", [vector(N, M), vector(0, 3)], [0, dmin(M, 3)]),
        ("negative", [vector(N, 2)], [-N, -2]),
        ("abs", [vector(N, -2)], [N, 2]),
        ("power", [vector(N, 3), vector(2)], [N * N, 9]),
        ("equal", [vector(N, 3, -1), vector(-1, 3, -1)], [0, 1, 1]),
        ("not_equal", [vector(N), vector(-1)], [1]),
        ("less", [vector(-1, 3), vector(N, 3)], [1, 0]),
        ("less_equal", [vector(0), vector(N)], [1]),
        ("greater", [vector(N), vector(-1)], [1]),
        ("greater_equal", [vector(N, -1), vector(0)], [1, 0]),
        ("copy", [vector(N, 2)], [N, 2]),
        ("where", [vector(1, 0, dtype="bool"), vector(N, N), vector(M, 3)], [N, 3]),
        ("logical_and", [vector(1, 0, dtype="bool"), vector(1, dtype="bool")], [1, 0]),
        ("logical_not", [vector(1, 0, dtype="bool")], [0, 1]),
        ("clip", [vector(N, 7), vector(1), vector(5)], [dmin(dmax(N, 1), 5), 5]),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_integer_contents_are_followed(name, args, expected):
    assert list(known_value(name, args)) == [as_dim(e) for e in expected]


def test_contents_that_cannot_be_decided_are_unknown():
    assert known_value("equal", [vector(N), vector(3)]) is None
    assert known_value("where", [((1,), "bool", None), vector(1), vector(2)]) is None
    assert known_value("add", [vector(N, dtype="int8"), vector(1, dtype="int8")]) is None
    assert known_value("divide", [vector(N - 5), vector(2)]) is None


def test_constants_wrap_when_followed():
    assert list(known_value("add", [vector(2**31 - 1, dtype="int32"), vector(1, dtype="int32")])) == [
        -(2**31)
    ]
    assert list(known_value("cast", [vector(300, N)], {"dtype": "int32"})) == [300, N]
    assert list(known_value("cast", [vector(300)], {"dtype": "uint8"})) == [44]
    assert list(known_value("cast", [vector(2, 0)], {"dtype": "bool"})) == [1, 0]
    assert known_value("cast", [vector(N)], {"dtype": "float32"}) is None


def test_every_operator_says_what_it_does():
    from intarsia.op import get

    assert all(get(name).doc for name in names())

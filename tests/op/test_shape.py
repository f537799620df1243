"""Operators that give elements other places: shapes, contents and compute definitions, symbols included."""

from __future__ import annotations

import numpy as np
import pytest
from stage_eval import Case, agree, check, known_value, site_of

from intarsia.dim import Symbol, as_dim, ceildiv, dmax, dmin
from intarsia.support.errors import TypeCheckError

N, M = Symbol("n"), Symbol("m")


def ints(*values, dtype=np.int64) -> np.ndarray:
    return np.array(values, dtype)


def numbered(*shape, dtype=np.float32) -> np.ndarray:
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def shape_of(case: Case) -> tuple:
    return site_of(case)[0].out[0].shape


# ---- reshape -----------------------------------------------------------------------------------------------
RESHAPES = [
    ((6,), (2, 3)), ((2, 3), (6,)), ((2, 3, 4), (4, 6)), ((2, 3, 4), (0, -1)), ((2, 3, 4), (-1,)),
    ((2, 3, 4), (0, 0, 2, 2)),
    ((), (1,)), ((1,), ()), ((), (1, 1)), ((1, 1, 5), (5,)), ((0, 3), (-1, 3)), ((0, 4), (0, -1)),
    ((12, 5), (4, 15)), ((2, 6, 5), (2, 2, 3, 5)), ((2, 2, 3, 5), (2, 6, 5)), ((8, 9), (6, 12)),
    ((7, 1, 2), (7, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "codes"), RESHAPES, ids=str)
def test_reshape(shape, codes):
    x = numbered(*shape)
    agree(Case("reshape", [x, ints(*codes)]))
    if x.size or -1 not in codes:
        agree(Case("reshape", [x, ints(*codes)], values=()))  # contents known at run time only


@pytest.mark.parametrize(
    ("shape", "names", "codes", "expected"),
    [
        ((2, 5, 12), ("n", "m", None), (0, -1, 3, 4), (N, M, 3, 4)),
        ((2, 5, 3, 4), ("n", "m", None, None), (0, 0, -1), (N, M, 12)),
        ((2, 5, 12), ("n", "m", None), (-1, 12), (N * M, 12)),
        ((4, 6), ("n", None), (-1, 3), (2 * N, 3)),
        ((0, 6), ("n", None), (-1, 3), (2 * N, 3)),
        ((4, 6), ("n", "m"), (-1,), (N * M,)),
        ((4, 6), ("n", "m"), (0, -1), (N, M)),
    ],
)
def test_reshape_infers_exact_quotients(shape, names, codes, expected):
    case = Case("reshape", [numbered(*shape), ints(*codes)], symbols={0: names})
    site, _ = site_of(case)
    assert site.out[0].shape == tuple(map(as_dim, expected)) and not site.checks
    agree(case)


def test_reshape_checks_what_it_cannot_prove():
    case = Case("reshape", [numbered(6, 2), ints(-1, 4)], symbols={0: ("n", None)})
    site, env = site_of(case)
    assert len(site.checks) >= 1
    agree(case)
    env["n"] = 5
    with pytest.raises(AssertionError):
        check(site, env)


def test_reshape_cancels_equal_factors_of_sums():
    from intarsia.ir.types import TensorType
    from intarsia.op import Arg, Site, get

    odd = 2 * N + 1
    codes = np.empty(3, object)
    codes[:] = [as_dim(-1), odd, as_dim(4)]
    site = Site(
        get("reshape"),
        [Arg(TensorType((M, odd, as_dim(8)), "float32")), Arg(TensorType((as_dim(3),), "int64"), codes)],
    )
    assert get("reshape").rule(site).shape == (2 * M, odd, as_dim(4)) and not site.checks


def test_reshape_by_contents_that_run_time_tells():
    x = numbered(4, 6)
    for codes in [(4, 6), (-1, 8), (0, 3, -1), (24,), (2, 12)]:
        agree(Case("reshape", [x, ints(*codes)], symbols={0: ("n", "m")}, values=()))


@pytest.mark.parametrize(
    ("shape", "codes", "message"),
    [
        ((4,), (3,), "does not equal"),
        ((4,), (-1, -1), "more than one"),
        ((4,), (4, 0), "code 0"),
        ((4,), (0, -1, 3), None),
    ],
)
def test_reshape_refuses(shape, codes, message):
    with pytest.raises(TypeCheckError, match=message):
        site_of(Case("reshape", [numbered(*shape), ints(*codes)]))


def test_reshape_allowzero_keeps_zero():
    agree(Case("reshape", [numbered(0, 3), ints(3, 0)], {"allowzero": True}))


def test_views_over_runs_are_plain_indices():
    from intarsia.op.shape import regroup

    i, j, k = Symbol("i"), Symbol("j"), Symbol("k")
    assert regroup((N, M, as_dim(12)), (N, M, as_dim(3), as_dim(4)), (i, j, k, Symbol("l"))) == (
        i,
        j,
        4 * k + Symbol("l"),
    )
    assert regroup((N, as_dim(3), as_dim(4)), (N, as_dim(12)), (i, j)) == (i, j // 4, j % 4)
    assert regroup((as_dim(1), N), (N, as_dim(1)), (i, as_dim(0))) == (as_dim(0), i)


@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 2), (1, -1), (0, 1, 2, 3)])
def test_expand_dims_and_squeeze_undo_each_other(axes):
    x = numbered(2, 3)
    (y,) = agree(Case("expand_dims", [x], {"axes": axes}), np.expand_dims(x, axes))
    (z,) = agree(Case("squeeze", [y], {"axes": axes}), x)
    assert z.shape == x.shape


def test_squeeze_without_axes():
    agree(Case("squeeze", [numbered(1, 3, 1)]))
    agree(Case("squeeze", [numbered(1, 1)], symbols={0: (None, None)}))
    site, _ = site_of(Case("squeeze", [numbered(1, 3)], symbols={0: (None, "n")}))
    assert site.out[0].shape == (N,) and site.checks
    site, _ = site_of(Case("squeeze", [numbered(1, 3)], {"axes": (0,)}, symbols={0: ("n", None)}))
    assert len(site.checks) == 1
    with pytest.raises(TypeCheckError, match="does not equal 1"):
        site_of(Case("squeeze", [numbered(2, 3)], {"axes": (0,)}))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2])
@pytest.mark.parametrize("shape", [(2, 3), (2, 0), (1, 1)])
def test_flatten(axis, shape):
    agree(Case("flatten", [numbered(*shape)], {"axis": axis}))
    agree(Case("flatten", [numbered(*shape)], {"axis": axis}, symbols={0: ("n", "m")}))


# ---- transpose, flip, concatenate, split -------------------------------------------------------------------
@pytest.mark.parametrize("axes", [None, (0, 1, 2), (2, 0, 1), (-1, 0, 1)])
@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 0, 5), (1, 1, 1)])
def test_transpose(axes, shape):
    agree(Case("transpose", [numbered(*shape)], {"axes": axes}, symbols={0: ("a", "b", "c")}))


def test_transpose_refuses():
    with pytest.raises(TypeCheckError, match="twice"):
        site_of(Case("transpose", [numbered(2, 3)], {"axes": (0, 0)}))
    with pytest.raises(TypeCheckError, match="all 2"):
        site_of(Case("transpose", [numbered(2, 3)], {"axes": (0,)}))


@pytest.mark.parametrize("axes", [(0,), (-1,), (0, 1)])
def test_flip(axes):
    agree(Case("flip", [numbered(3, 4)], {"axes": axes}, symbols={0: ("n", "m")}))
    agree(Case("flip", [numbered(0, 1)], {"axes": axes}))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenate(axis):
    parts = [numbered(2, 3), numbered(2, 3) + 10, numbered(2, 3) + 20]
    agree(Case("concatenate", parts, {"axis": axis}), np.concatenate(parts, axis))
    agree(Case("concatenate", parts, {"axis": axis}, symbols={0: ("n", "m"), 2: ("n", "m")}))
    agree(Case("concatenate", parts[:1], {"axis": axis}))


def test_concatenate_of_odd_sizes():
    parts = [numbered(2, 0), numbered(2, 1), numbered(2, 5), numbered(2, 0), numbered(2, 1)]
    agree(Case("concatenate", parts, {"axis": 1}))
    agree(Case("concatenate", parts, {"axis": 1}, symbols={0: ("b", "p"), 1: ("b", "q"), 2: ("b", "r")}))
    agree(Case("concatenate", [numbered(0, 2), numbered(0, 2)], {"axis": 0}))


def test_concatenate_refuses():
    with pytest.raises(TypeCheckError, match="rank"):
        site_of(Case("concatenate", [numbered(2, 3), numbered(2)], {"axis": 0}))
    with pytest.raises(TypeCheckError, match="does not equal"):
        site_of(Case("concatenate", [numbered(2, 3), numbered(2, 4)], {"axis": 0}))
    with pytest.raises(TypeCheckError, match="rank-0"):
        site_of(Case("concatenate", [numbered()], {"axis": 0}))


@pytest.mark.parametrize(("sizes", "axis"), [((1, 2), 0), ((2, 0, 1), 0), ((5,), 1), ((1, 4), -1)])
def test_split_by_sizes(sizes, axis):
    x = numbered(3, 5)
    agree(Case("split", [x, ints(*sizes)], {"axis": axis}))
    agree(Case("split", [x, ints(*sizes)], {"axis": axis}, symbols={0: ("n", "m")}))
    agree(Case("split", [x, ints(*sizes)], {"axis": axis}, values=()))


@pytest.mark.parametrize("size", [6, 7, 5, 1, 0])
def test_split_in_parts_of_any_size(size):
    expected = [numbered(size)[k * -(-size // 3) : (k + 1) * -(-size // 3)] for k in range(3)]
    agree(Case("split", [numbered(size)], {"parts": 3}), expected)
    agree(Case("split", [numbered(size)], {"parts": 3}, symbols={0: ("n",)}))


def test_split_of_a_multiple_has_exact_parts():
    from intarsia.ir.types import TensorType
    from intarsia.op import Arg, Site, get

    site = Site(get("split"), [Arg(TensorType((4 * N,), "float32"))], {"parts": 2})
    assert [t.shape for t in get("split").rule(site).fields] == [(2 * N,), (2 * N,)]


def test_split_refuses():
    with pytest.raises(TypeCheckError, match="add up"):
        site_of(Case("split", [numbered(5), ints(1, 2)]))
    with pytest.raises(TypeCheckError, match="sizes of the parts"):
        site_of(Case("split", [numbered(5)]))


# ---- slice -------------------------------------------------------------------------------------------------
FAR, LEAST = 2**63 - 1, -(2**63)
PLACES = [0, 1, 4, 9, -1, -2, -9, FAR, LEAST]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
@pytest.mark.parametrize("size", [0, 1, 5])
def test_slice_takes_any_places(step, size):
    x = numbered(size)
    for start in PLACES:
        for end in PLACES:
            stop = None if step < 0 and end <= -FAR else end
            case = [x, ints(start), ints(end), ints(0), ints(step)]
            (got,) = agree(Case("slice", case), x[slice(start, stop, step)])
            site, env = site_of(Case("slice", case, symbols={0: ("n",)}))
            assert site.out[0].shape[0].evaluate(env) == got.shape[0], (start, end, step, site.out[0])


@pytest.mark.parametrize("step", [1, 2, -1])
def test_slice_of_symbolic_sizes(step):
    x = numbered(5, 3)
    for start, end in [(0, FAR), (1, 4), (-2, FAR), (FAR, LEAST), (-1, -4), (9, 0), (2, -1)]:
        case = [x, ints(start), ints(end), ints(0), ints(step)]
        agree(Case("slice", case, symbols={0: ("n", "m")}))


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slice_by_places_that_run_time_tells(step):
    x = numbered(5, 2)
    for start, end in [(0, 5), (1, -1), (-3, 4), (-9, 9), (4, 2), (FAR, LEAST), (-1, 0)]:
        case = [x, ints(start), ints(end), ints(0), ints(step)]
        agree(Case("slice", case, symbols={0: ("n", None)}, values=(3,)))
        agree(Case("slice", case, symbols={0: ("n", None)}, values=(3, 4)))


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (0, FAR, 1, N), (1, FAR, 1, dmax(N - 1, 0)), (0, -1, 1, dmax(N - 1, 0)), (-1, FAR, 1, dmin(N, 1)),
        (0, 5, 1, dmin(N, 5)),
        (0, FAR, 2, ceildiv(N, 2)), (FAR, LEAST, -1, N), (-1, LEAST, -1, N),
    ],
)  # fmt: skip
def test_slice_sizes_are_simple(start, end, step, expected):
    case = Case("slice", [numbered(5), ints(start), ints(end), ints(0), ints(step)], symbols={0: ("n",)})
    assert shape_of(case) == (expected,)


def test_slice_uses_bounds():
    from intarsia.dim.bounds import Bounds
    from intarsia.ir.types import TensorType
    from intarsia.op import Arg, Site, get

    def value(*v):
        out = np.empty(len(v), object)
        out[:] = [as_dim(x) for x in v]
        return Arg(TensorType((as_dim(len(v)),), "int64"), out)

    x = Arg(TensorType((N,), "float32"))
    site = Site(get("slice"), [x, value(1), value(FAR)], bounds=Bounds({"n": (1, 512)}))
    assert get("slice").rule(site).shape == (N - 1,)
    table = Arg(TensorType((as_dim(512), as_dim(8)), "float32"))
    site = Site(get("slice"), [table, value(0), value(N)], bounds=Bounds({"n": (1, 512)}))
    assert get("slice").rule(site).shape == (N, as_dim(8))


def test_slice_negative_axes_and_defaults():
    x = numbered(3, 4, 5)
    agree(Case("slice", [x, ints(1, 0), ints(3, 2), ints(-1, 0)]), x[:2, :, 1:3])
    agree(Case("slice", [x, ints(1, 0), ints(3, 2)]), x[1:3, :2])
    agree(Case("slice", [x, ints(4), ints(LEAST), ints(2), ints(-3)]), x[:, :, 4::-3])


def test_slice_refuses():
    with pytest.raises(TypeCheckError, match="do not match"):
        site_of(Case("slice", [numbered(3), ints(0), ints(1, 2)]))
    with pytest.raises(TypeCheckError, match="step of a slice is 0"):
        site_of(Case("slice", [numbered(3), ints(0), ints(1), ints(0), ints(0)]))
    with pytest.raises(TypeCheckError, match="known at compile time"):
        site_of(Case("slice", [numbered(3), ints(0), ints(1), ints(0)], values=()))


# ---- expand, tile, pad -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((3, 1), (2, 3, 4)),
        ((3, 1), (1,)),
        ((), (2, 2)),
        ((1,), (0,)),
        ((3, 4), (3, 1)),
        ((1, 1), ()),
        ((0, 1), (1, 5)),
    ],
)
def test_expand(shape, wanted):
    agree(Case("expand", [numbered(*shape), ints(*wanted)]))
    agree(Case("expand", [numbered(*shape), ints(*wanted)], values=()))


def test_expand_of_symbols():
    agree(Case("expand", [numbered(3, 1), ints(2, 3, 4)], symbols={0: ("n", None)}, values=()))
    agree(Case("expand", [numbered(3, 1), ints(2, 1, 4)], symbols={0: ("n", None)}, values=()))


@pytest.mark.parametrize(
    ("shape", "repeats"), [((2, 3), (2, 2)), ((2, 3), (1, 0)), ((1, 3), (4, 1)), ((), ()), ((0, 2), (3, 2))]
)
def test_tile(shape, repeats):
    x = numbered(*shape)
    agree(Case("tile", [x, ints(*repeats)]))
    agree(
        Case("tile", [x, ints(*repeats)], symbols={0: tuple(f"n{i}" for i in range(len(shape)))}, values=())
    )


PADS = [
    ((4, 3), (1, 0, 2, 1)),
    ((4, 3), (0, 0, 0, 0)),
    ((4, 3), (-1, 1, 0, -2)),
    ((1, 3), (3, 0, 2, 0)),
    ((2, 2), (5, 1, 7, 0)),
]


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(("shape", "pads"), PADS, ids=str)
def test_pad(mode, shape, pads):
    x = numbered(*shape)
    agree(Case("pad", [x, ints(*pads)], {"mode": mode}))
    agree(Case("pad", [x, ints(*pads)], {"mode": mode}, symbols={0: ("n", "m")}))
    agree(Case("pad", [x, ints(*pads)], {"mode": mode}, symbols={0: ("n", "m")}, values=()))


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "float16"])
def test_pad_with_a_value_and_axes(dtype):
    x = np.ones((2, 3), dtype)
    agree(Case("pad", [x, ints(1, 2), np.array(7).astype(dtype), ints(-1)]))
    agree(Case("pad", [x[:0], ints(1, 2), np.array([0], dtype), ints(0)]))
    agree(Case("pad", [x, ints(1, 0, 1, 0), None, None]))


def test_pad_refuses():
    with pytest.raises(TypeCheckError, match="pads for"):
        site_of(Case("pad", [numbered(2, 3), ints(1, 2)]))
    with pytest.raises(TypeCheckError, match="no mode"):
        site_of(Case("pad", [numbered(2), ints(1, 2)], {"mode": "mirror"}))
    with pytest.raises(TypeCheckError, match="does not hold"):
        site_of(Case("pad", [numbered(0), ints(1, 2)], {"mode": "edge"}))


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("shape", [(2, 8, 2, 3), (1, 4, 1, 1), (0, 4, 2, 2), (1, 0, 2, 2)])
def test_depth_to_space(mode, shape):
    x = numbered(*shape)
    agree(Case("depth_to_space", [x], {"block": 2, "mode": mode}))
    agree(Case("depth_to_space", [x], {"block": 2, "mode": mode}, symbols={0: ("n", None, "h", "w")}))


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (1, 1, 2, 2), (1, 0, 2, 2), (1, 2, 0, 2)])
def test_space_to_depth(shape):
    agree(Case("space_to_depth", [numbered(*shape)], {"block": 2}))
    agree(Case("space_to_depth", [numbered(*shape)], {"block": 2}, symbols={0: ("n", None, "h", "w")}))


# ---- contents followed at compile time ---------------------------------------------------------------------
def vector(*values, dtype="int64"):
    out = np.empty(len(values), object)
    out[:] = [as_dim(v) for v in values]
    return ((len(values),), dtype, out)


@pytest.mark.parametrize(
    ("name", "args", "attrs", "expected"),
    [
        ("concatenate", [vector(N), vector(2, M)], {"axis": 0}, [N, 2, M]),
        ("slice", [vector(N, 2, M), vector(1), vector(FAR)], {}, [2, M]),
        ("slice", [vector(N, 2, M), vector(-1), vector(LEAST), vector(0), vector(-1)], {}, [M, 2, N]),
        ("reshape", [vector(N, 2), vector(-1)], {}, [N, 2]),
        ("transpose", [vector(N, 2)], {}, [N, 2]),
        ("flip", [vector(N, 2)], {"axes": (0,)}, [2, N]),
        ("tile", [vector(N, 2), vector(2)], {}, [N, 2, N, 2]),
        ("expand", [vector(N), vector(3)], {}, [N, N, N]),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_integer_contents_are_followed(name, args, attrs, expected):
    assert list(known_value(name, args, attrs)) == [as_dim(e) for e in expected]


def test_contents_change_rank():
    assert known_value("expand_dims", [((), "int64", np.array(N, object))], {"axes": (0,)}).tolist() == [N]
    assert known_value("squeeze", [vector(N)], {"axes": (0,)}).item() == N
    assert known_value("flatten", [vector(N, M)], {"axis": 1}).tolist() == [[N], [M]]
    first, second = known_value("split", [vector(N, M, 3), vector(1, 2)])
    assert list(first) == [N] and list(second) == [M, 3]

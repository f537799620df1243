"""Matrix products against NumPy."""

import numpy as np
import pytest
from stage_oracle import run_operator

import intarsia.op.linalg  # noqa: F401
from intarsia.dim import Symbol
from intarsia.ir.types import tensor
from intarsia.op import entry
from intarsia.support.errors import TypeCheckError

rng = np.random.default_rng(7)


def data(shape, dtype="float32"):
    if "int" in dtype:
        return rng.integers(-100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    "a, b",
    [
        ((3, 4), (4, 5)),
        ((4,), (4,)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4, 5)),
        ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (6, 4, 5)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((1, 1), (1, 1)),
        ((0, 4), (4, 5)),
        ((3, 0), (0, 5)),
        ((0, 3, 4), (1, 4, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "int64", "float16"])
def test_matmul_follows_numpy(a, b, dtype):
    x, y = data(a, dtype), data(b, dtype)
    wide = np.float32 if dtype == "float16" else x.dtype
    expect = np.asarray(np.einsum("...ij,...jk->...ik", *_as_matrices(x.astype(wide), y.astype(wide))))
    expect = expect.reshape(np.matmul(x, y).shape).astype(x.dtype)
    run_operator("matmul", [x, y], expect=expect, rtol=1e-2 if dtype == "float16" else 2e-5, atol=1e-4)


def _as_matrices(x, y):
    return x[None] if x.ndim == 1 else x, y[:, None] if y.ndim == 1 else y


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_transposes_swap_the_last_two_dimensions(ta, tb):
    x, y = data((2, 4, 3) if ta else (2, 3, 4)), data((5, 4) if tb else (4, 5))
    expect = np.einsum(f"b{'ki' if ta else 'ik'},{'jk' if tb else 'kj'}->bij", x, y)
    symbolic = ((0, 0), (0, 1), (1, 0), (1, 1))
    run_operator("matmul", [x, y], {"transpose_a": ta, "transpose_b": tb}, symbolic=symbolic, expect=expect)


def test_unproved_batch_sizes_are_taken_as_equal_and_checked():
    n, m = Symbol("n"), Symbol("m")
    args = [entry.Arg(tensor((n, 2, 3))), entry.Arg(tensor((m, 3, 4)))]
    site = entry.Site(entry.get("matmul"), args)
    assert str(site.op.rule(site)) == "Tensor[(n, 2, 4), float32]"
    assert [(str(c.left), c.relation, str(c.right)) for c in site.checks] == [("n", "==", "m")]


@pytest.mark.parametrize(
    "a, b, words",
    [
        (((2, 3), "float32"), ((4, 5), "float32"), "3 does not equal 4"),
        (((), "float32"), ((4, 5), "float32"), "rank 0"),
        (((2, 3), "float32"), ((3, 5), "float64"), "float64"),
        (((2, 3, 3), "float32"), ((4, 3, 5), "float32"), "batch dimension"),
    ],
)
def test_misfits_are_refused(a, b, words):
    site = entry.Site(entry.get("matmul"), [entry.Arg(tensor(*a)), entry.Arg(tensor(*b))])
    with pytest.raises(TypeCheckError, match=words):
        site.op.rule(site)

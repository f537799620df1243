"""Every operation on every dtype, scalar and vector, against the reference executor."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.evaluate import evaluate_kernel, is_float, numpy_type
from intarsia.kernel.expr import BINARY, COMPARE, LOGIC, UNARY, Binary, Buffer, Cast, Const, Unary
from intarsia.kernel.stmt import Kernel, block, loop, store
from intarsia.kernel.target import ITEMSIZE
from intarsia.kernel.verify import FLOAT_ONLY, INTEGER_ONLY

from .harness import native_target, run, same, sse2

DTYPES = sorted(ITEMSIZE)
INEXACT = FLOAT_ONLY - {"sqrt", "reciprocal"}
LENGTH = 29  # vectors and a ragged end


def values(dtype: str, seed: int) -> np.ndarray:
    """Ordinary and awkward numbers of a dtype."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, LENGTH).astype(bool)
    if is_float(dtype):
        awkward = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            np.inf,
            -np.inf,
            np.nan,
            0.5,
            1.5,
            -2.5,
            2.0,
            3.0,
            1e-8,
            -700.0,
            88.5,
            1e30,
        ]
        many = np.concatenate([awkward, rng.normal(0, 3, LENGTH - len(awkward))])
        with np.errstate(all="ignore"):
            return rng.permutation(many).astype(numpy_type(dtype))
    info = np.iinfo(dtype)
    awkward = [0, 0, 1, 2, 3, 7, info.max, info.min, info.max - 1, info.min + 1, 31, 32]
    if info.min < 0:
        awkward += [-1, -1, -2, -7]
    many = awkward + [int(x) for x in rng.integers(max(info.min, -100), 100, LENGTH - len(awkward))]
    return rng.permutation(np.array(many, dtype=object)).astype(dtype)


def unary_ops(dtype: str) -> list[str]:
    if dtype == "bool":
        return ["not", "bitnot"]
    return sorted(UNARY - {"not"} - ({"bitnot"} if is_float(dtype) else FLOAT_ONLY))


def binary_ops(dtype: str) -> list[str]:
    if dtype == "bool":
        return sorted(COMPARE | LOGIC | {"min", "max", "add", "mul", "bitand", "bitor", "bitxor"})
    return sorted(BINARY - LOGIC - (INTEGER_ONLY if is_float(dtype) else set()))


def all_operations(dtype: str, kind: str) -> tuple[Kernel, list[str]]:
    """One output for each operation: elementwise over two inputs."""
    n = as_dim(LENGTH)
    a, b = Buffer("a", (n,), dtype), Buffer("b", (n,), dtype)
    i = Symbol("i")
    expressions = [(op, Unary(op, a[i])) for op in unary_ops(dtype)]
    expressions += [(op, Binary(op, a[i], b[i])) for op in binary_ops(dtype)]
    expressions += [(f"cast {t}", Cast(a[i], t)) for t in DTYPES if t != dtype]
    outs, stores = [], []
    for n_out, (_, e) in enumerate(expressions):
        out = Buffer(f"o{n_out}", (n,), e.dtype)
        outs.append(out)
        stores.append(store(out, (i,), e))
    return Kernel("ops", (a, b), tuple(outs), (), (), loop("i", n, block(*stores), kind)), [
        op for op, _ in expressions
    ]


def agree(op: str, dtype: str, got: np.ndarray, want: np.ndarray) -> None:
    if op.split()[0] in INEXACT | {"pow"} and is_float(dtype):
        wide = got.astype(np.float64), want.astype(np.float64)
        eps = {"float64": 1e-14, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1.6e-2}[dtype]
        tiny = {"float64": 1e-300, "float32": 1e-37, "float16": 1.2e-7, "bfloat16": 1e-37}[dtype]
        np.testing.assert_allclose(*wide, rtol=eps, atol=tiny, err_msg=op)
    else:
        same(got, want, f"{op} of {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind, target", [("serial", "host"), ("vector", "host"), ("vector", "sse2")])
def test_operations_agree_with_the_reference(dtype, kind, target):
    kernel, names = all_operations(dtype, kind)
    arrays = [values(dtype, 1), values(dtype, 2)]
    wanted = evaluate_kernel(kernel, arrays)
    actual = run(kernel, arrays, target=native_target() if target == "host" else sse2())
    for op, got, want in zip(names, actual, wanted, strict=True):
        agree(op, dtype, got, want)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "float32"])
def test_constants_of_every_size_are_exact(dtype):
    numbers = values(dtype, 3)
    i = Symbol("i")
    out = Buffer("o", (as_dim(LENGTH), as_dim(9)), dtype)
    body = block(
        *(
            loop("i", 9, store(out, (as_dim(r), i), Const(x.item(), dtype)), "vector")
            for r, x in enumerate(numbers)
        )
    )
    kernel = Kernel("constants", (), (out,), (), (), body)
    same(run(kernel, [])[0], np.repeat(numbers[:, None], 9, 1))

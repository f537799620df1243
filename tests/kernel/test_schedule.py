"""Rewrites of loop nests keep what they compute, or are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.kernel import schedule
from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.kernel.expr import Buffer, Const
from intarsia.kernel.stmt import Allocate, For, Kernel, block, store
from intarsia.support.errors import CodegenError

N, M, K = Symbol("n"), Symbol("m"), Symbol("k")
ROW, COL, L = Symbol("i"), Symbol("j"), Symbol("l")
A, B, C = Buffer("a", (N, K), "int32"), Buffer("b", (K, M), "int32"), Buffer("c", (N, M), "int32")


def product_nest():
    step = store(C, (ROW, COL), C[ROW, COL] + A[ROW, L] * B[L, COL])
    clear = For("x", N, For("y", M, store(C, (Symbol("x"), Symbol("y")), Const(0, "int32"))))
    return block(clear, For("i", N, For("j", M, For("l", K, step))))


def run(body, n, m, k, backwards=False):
    rng = np.random.default_rng(n * 100 + m * 10 + k)
    a, b = rng.integers(-9, 9, (n, k)).astype(np.int32), rng.integers(-9, 9, (k, m)).astype(np.int32)
    kernel = Kernel("t", (A, B), (C,), (), ("k", "m", "n"), body)
    (c,) = evaluate_kernel(kernel, [a, b], {"n": n, "m": m, "k": k}, backwards=backwards)
    return c, a @ b


def some_rewrite(rng, s):
    """A random rewrite of a random loop."""
    variables = [f.var for f in schedule.loops(s)]
    a, b = rng.choice(variables), rng.choice(variables)
    match rng.choice(["split", "split", "reorder", "reorder", "fuse", "unroll", "vectorise", "parallel"]):
        case "split":
            return schedule.split(s, a, rng.choice([1, 2, 3, 4]))
        case "reorder":
            return schedule.reorder(s, a, b)
        case "fuse":
            return schedule.fuse(s, a, b)
        case "unroll":
            return schedule.unroll(s, a)
        case "vectorise":
            return schedule.vectorise(s, a)
    return schedule.parallel(s, a)


@pytest.mark.parametrize("seed", range(40))
def test_random_rewrites_of_a_product_keep_its_value(seed):
    rng = random.Random(seed)
    s = product_nest()
    applied = 0
    for _ in range(14):
        try:
            s = some_rewrite(rng, s)
            applied += 1
        except CodegenError:
            continue
    for n, m, k in [(1, 1, 1), (2, 5, 3), (4, 3, 6), (0, 2, 1), (3, 2, 0)]:
        got, want = run(s, n, m, k, backwards=True)
        np.testing.assert_array_equal(got, want)
    assert applied


def refused(code, rewrite, *args, **kwargs):
    with pytest.raises(CodegenError) as error:
        rewrite(*args, **kwargs)
    assert error.value.code == code


def test_the_contracted_loop_is_not_parallel():
    refused("CODE-015", schedule.parallel, product_nest(), "l")
    s = schedule.split(schedule.split(product_nest(), "l", 4, inner="l4"), "j", 4, inner="j4")
    refused("CODE-015", schedule.vectorise, s, "l4")


def test_blocks_of_a_split_loop_are_independent():
    s = schedule.split(product_nest(), "j", 4, outer="jo", inner="ji")
    schedule.parallel(s, "jo")
    schedule.parallel(schedule.parallel(s, "i"), "jo")


def test_overlapping_blocks_are_not():
    x = Buffer("x", (N,), "int32")
    s = For("i", N, For("j", as_dim(4), store(x, (ROW * 2 + COL,), Const(1, "int32"))))
    refused("CODE-015", schedule.parallel, s, "i")
    schedule.parallel(For("i", N, For("j", as_dim(2), store(x, (ROW * 2 + COL,), Const(1, "int32")))), "i")


def test_the_last_write_stays_the_last():
    x, y = Buffer("x", (M,), "int32"), Buffer("y", (N, M), "int32")
    s = For("i", N, For("j", M, store(x, (as_dim(0),), y[ROW, COL])))
    refused("CODE-012", schedule.reorder, s, "i", "j")
    assert schedule.reorder(For("i", N, For("j", M, store(x, (COL,), y[ROW, COL]))), "i", "j").var == "j"


def test_neighbours_that_are_read_forbid_sharing():
    x = Buffer("x", (N,), "int32")
    s = For("i", N, store(x, (ROW,), x[ROW - 1] + 1))
    refused("CODE-015", schedule.parallel, s, "i")
    shared = Buffer("s", (), "int32", "stack")
    outside = Allocate(
        shared, For("i", N, block(store(shared, (), Const(1, "int32")), store(x, (ROW,), shared[()])))
    )
    refused("CODE-015", schedule.parallel, outside, "i")
    inside = For(
        "i", N, Allocate(shared, block(store(shared, (), Const(1, "int32")), store(x, (ROW,), shared[()])))
    )
    schedule.parallel(inside, "i")


def test_views_of_one_buffer_overlap():
    x = Buffer("x", (N, M), "int32")
    flat = Buffer("flat", (N * M,), "int32", of=x)
    s = For("i", N, For("j", M, store(x, (ROW, COL), flat[ROW * M + COL] + 1)))
    refused("CODE-015", schedule.parallel, s, "i")


def test_loops_must_exist_and_fit():
    s = product_nest()
    refused("CODE-010", schedule.split, s, "z", 2)
    refused("CODE-011", schedule.split, s, "i", 0)
    refused("CODE-010", schedule.reorder, s, "i", "l")
    refused("CODE-014", schedule.unroll, s, "i")
    refused("CODE-014", schedule.vectorise, s, "j")
    triangle = For("i", N, For("j", ROW, store(C, (ROW, COL), Const(1, "int32"))))
    refused("CODE-012", schedule.reorder, triangle, "i", "j")
    refused("CODE-013", schedule.fuse, triangle, "i", "j")
    refused("CODE-010", schedule.unroll, schedule.parallel(s, "i"), "i")

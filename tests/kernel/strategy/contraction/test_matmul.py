import numpy as np
import pytest

from intarsia.kernel.compute import compute, placeholder, reduce, reduce_axis, var
from intarsia.kernel.expr import Binary, Unary
from intarsia.kernel.strategy.contraction import matmul
from intarsia.kernel.strategy.region import region_of
from tests.kernel.strategy.contraction.problems import AVX2, AVX512, SSE2, Problem, numbers, relu

SHAPES = [
    (0, 4, 3),
    (1, 7, 1),
    (5, 8, 3),
    (6, 15, 4),
    (7, 16, 5),
    (13, 17, 9),
    (2, 33, 10),
    (3, 8, 0),
    (1, 1, 6),
    (30, 1, 2),
]


@pytest.mark.parametrize("m, n, k", SHAPES)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_products_of_odd_shapes(m, n, k, symbolic, constant):
    if m == n == 1 and not symbolic:
        return
    names = {(0, 0): "m"} if symbolic else {}
    if symbolic and not constant:
        names |= {(0, 1): "k", (1, 0): "k", (1, 1): "n"}
    problem = Problem("matmul", [numbers(m, k), numbers(k, n)], names, [1] if constant else [])
    problem.check(matmul)


@pytest.mark.parametrize("target", [SSE2, AVX512])
@pytest.mark.parametrize("m, n, k", [(13, 65, 6), (1, 9, 7)])
def test_other_registers(target, m, n, k):
    Problem("matmul", [numbers(m, k), numbers(k, n)], constants=[1]).check(matmul, target)


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_transposed_operands(ta, tb):
    a = numbers(5, 7) if ta else numbers(7, 5)
    b = numbers(9, 5) if tb else numbers(5, 9)
    Problem("matmul", [a, b], transpose_a=ta, transpose_b=tb).check(matmul)
    Problem("matmul", [a, b], constants=[1], transpose_a=ta, transpose_b=tb).check(matmul)


@pytest.mark.parametrize(
    "a, b",
    [((2, 3, 4, 5), (2, 3, 5, 6)), ((2, 1, 4, 5), (3, 5, 6)), ((4, 5), (2, 5, 6)), ((3, 2, 5), (5, 6))],
)
@pytest.mark.parametrize("tb", [False, True])
def test_batches(a, b, tb):
    right = numbers(*b)
    right = np.ascontiguousarray(np.swapaxes(right, -1, -2)) if tb else right
    Problem("matmul", [numbers(*a), right], transpose_b=tb).check(matmul)
    batch = {(0, 0): "batch"} if len(a) == 3 else {}
    Problem("matmul", [numbers(*a), right], batch, transpose_b=tb).check(matmul)


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64"])
def test_other_types(dtype):
    Problem("matmul", [numbers(7, 6, dtype=dtype), numbers(6, 19, dtype=dtype)], constants=[1]).check(matmul)


def test_the_left_operand_may_be_a_vector_and_the_right_one_too():
    Problem("matmul", [numbers(6), numbers(6, 9)]).check(matmul)
    Problem("matmul", [numbers(9, 6), numbers(6)], {(0, 0): "m"}).check(matmul)


def test_long_contractions_are_cut_into_parts():
    problem = Problem("matmul", [numbers(25, 200), numbers(200, 3)], constants=[1])
    problem.then(relu, lambda y: np.maximum(y, 0)).check(matmul)
    Problem("matmul", [numbers(80, 1030), numbers(1030, 40)], {(0, 0): "m"}, [1]).check_native(matmul)


def test_bias_residual_and_activation_are_applied_to_the_sums():
    problem = Problem("matmul", [numbers(2, 7, 5), numbers(5, 17)], {(0, 1): "s"}, [1])
    bias, rest = numbers(17), numbers(2, 7, 17)
    b, r = problem.with_input(bias), problem.with_input(rest, problem.out.shape)
    problem.then(
        lambda x, i, j, n: relu(x + b[n]) + r[i, j, n], lambda y: np.maximum(y + bias, 0) + rest
    ).check(matmul)


def test_costly_epilogues_run_over_the_stored_tile():
    problem = Problem("matmul", [numbers(7, 5), numbers(5, 18)], {(0, 0): "m"}, [1])
    problem.then(lambda x, *_: Unary("tanh", x), np.tanh).check(matmul)


def test_several_results_share_the_sums():
    problem = Problem("matmul", [numbers(7, 5), numbers(5, 18)])
    out = problem.out
    problem.outputs = [out, compute(out.shape, lambda i, j: relu(out[i, j]), name="relu")]
    problem.wanted = [problem.expected, np.maximum(problem.expected, 0)]
    problem.check(matmul)


def test_results_may_permute_rows_and_batch():
    problem = Problem("matmul", [numbers(2, 3, 7, 5), numbers(2, 3, 5, 6)])
    out = problem.out
    shape = (out.shape[0], out.shape[2], out.shape[1], out.shape[3])
    problem.outputs = [compute(shape, lambda b, s, h, d: out[b, h, s, d], name="transposed")]
    problem.wanted = [np.ascontiguousarray(problem.expected.transpose(0, 2, 1, 3))]
    problem.check(matmul)


def test_computed_operands_are_put_into_memory_once():
    a, b = placeholder("a", (7, 5), "float32"), placeholder("b", (5, 9), "float32")
    active = compute((7, 5), lambda i, k: relu(a[i, k]), name="active")
    k = reduce_axis(5)
    out = compute((7, 9), lambda i, j: reduce("sum", active[i, var(k)] * b[var(k), j], k))
    problem = Problem("matmul", [numbers(7, 5), numbers(5, 9)])
    problem.inputs, problem.outputs = [a, b], [out]
    problem.wanted = [np.maximum(problem.arrays[0], 0) @ problem.arrays[1]]
    problem.check(matmul)


def test_what_is_no_product_is_left_to_others():
    a = placeholder("a", (7, 5), "float32")
    k = reduce_axis(5)
    squares = compute((7,), lambda i: reduce("sum", a[i, var(k)] * a[i, var(k)], k))
    total = compute((7,), lambda i: reduce("sum", a[i, var(k)], k))
    for out in (squares, total):
        assert matmul(region_of("k", [a], [out], {}), AVX2) is None


def test_equal_rearrangements_have_equal_keys():
    def pack(n):
        return Problem("matmul", [numbers(3, 5), numbers(5, n)], constants=[1]).lowered(matmul, AVX2).packs[1]

    assert pack(17).key == pack(17).key != pack(8).key


@pytest.mark.parametrize("m, k, n", [(1, 300, 130), (5, 64, 64), (61, 70, 33)])
def test_machine_code(m, k, n):
    bias = numbers(n)
    for symbolic in ({}, {(0, 0): "m"}):
        problem = Problem("matmul", [numbers(m, k), numbers(k, n)], symbolic, [1])
        b = problem.with_input(bias)
        problem.then(lambda x, i, j, b=b: relu(x + b[j]), lambda y: np.maximum(y + bias, 0)).check_native(
            matmul
        )


@pytest.mark.parametrize("tb", [False, True])
def test_machine_code_of_attention(tb):
    q, k = numbers(2, 3, 29, 16), numbers(2, 3, 29, 16) if tb else numbers(2, 3, 16, 29)
    names = {(0, 2): "s", (1, 2 if tb else 3): "s"}
    problem = Problem("matmul", [q, k], names, transpose_b=tb)
    problem.then(lambda x, *_: Binary("mul", x, x), lambda y: y * y).check_native(matmul)


def test_inner_loops_do_not_spill():
    from intarsia.codegen.llvm.emit import emit_kernel
    from intarsia.codegen.llvm.host import target_from_name
    from intarsia.codegen.llvm.jit import assembly

    target = target_from_name("x86-64-v3")
    lowered = Problem("matmul", [numbers(12, 64), numbers(64, 32)], constants=[1]).lowered(matmul, target)
    lines = assembly(emit_kernel(lowered.kernel, target), target).splitlines()
    first = next(i for i, line in enumerate(lines) if "vfmadd" in line)
    last = max(i for i, line in enumerate(lines) if "vfmadd" in line)
    inner = lines[first:last]
    assert not [line for line in inner if "(%rsp)" in line and "mm" in line]
    assert sum("vfmadd" in line for line in inner) >= 47  # six rows, two vectors, four steps


@pytest.mark.parametrize("m, n, k", [(1, 9, 37), (3, 8, 16), (2, 3, 5)])
def test_few_rows_are_inner_products(m, n, k):
    problem = Problem("matmul", [numbers(2, m, k), numbers(2, n, k)], transpose_b=True)
    problem.then(relu, lambda y: np.maximum(y, 0)).check(matmul)
    names = {(0, 0): "b", (1, 0): "b", (0, 1): "m", (0, 2): "k", (1, 2): "k", (1, 1): "n"}
    Problem("matmul", [numbers(2, m, k), numbers(2, n, k)], names, transpose_b=True).check(matmul)


def test_large_operands_that_vary_are_packed():
    problem = Problem("matmul", [numbers(60, 300), numbers(300, 600)])
    problem.check_native(matmul)
    assert len(problem.lowered(matmul, AVX2).kernel.workspaces) == 2  # packed, and sums between parts


def test_the_heads_of_attention_are_read_where_they_lie():
    heads, w = placeholder("heads", (2, 3, 7, 8), "float32"), placeholder("w", (24, 9), "float32")
    joined = compute((2, 7, 24), lambda b, s, c: heads[b, c // 8, s, c % 8], name="joined")
    k = reduce_axis(24)
    out = compute((2, 7, 9), lambda b, s, j: reduce("sum", joined[b, s, var(k)] * w[var(k), j], k))
    problem = Problem("matmul", [numbers(2, 3, 7, 8), numbers(2, 3, 8, 9)], constants=[1])
    problem.inputs, problem.outputs, problem.arrays[1] = [heads, w], [out], numbers(24, 9)
    left = problem.arrays[0].transpose(0, 2, 1, 3).reshape(2, 7, 24)
    problem.wanted = [left @ problem.arrays[1]]
    problem.check(matmul)
    assert not problem.lowered(matmul, AVX2).kernel.workspaces

"""The reference executor finds the faults that machine code would hide."""

from __future__ import annotations

import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.kernel.evaluate import KernelFault, evaluate_kernel
from intarsia.kernel.expr import Binary, Buffer, Const, Index, Select, cast
from intarsia.kernel.printer import print_kernel
from intarsia.kernel.stmt import Allocate, Bind, If, Kernel, Stmt, block, loop, store
from intarsia.kernel.verify import verify

N, I, V = Symbol("n"), Symbol("i"), Symbol("v")  # noqa: E741
X, Y = Buffer("x", (N,), "float32"), Buffer("y", (N,), "float32")
ROW = np.arange(5, dtype=np.float32)


def kernel(body: Stmt) -> Kernel:
    return Kernel("k", (X,), (Y,), (), ("n",), body)


def test_a_lazy_choice_reads_only_the_chosen_arm():
    shifted = Select(Binary("ge", Index(I - 1), Const(0, "int64")), X[I - 1], Const(9.0, "float32"))
    (out,) = evaluate_kernel(kernel(loop("i", N, store(Y, (I,), shifted))), [ROW], {"n": 5})
    assert out.tolist() == [9, 0, 1, 2, 3]


def test_lanes_below_active_run():
    body = loop("i", 2, loop("v", 4, store(Y, (I * 4 + V,), X[I * 4 + V] * 2.0), "vector", active=N - I * 4))
    (out,) = evaluate_kernel(kernel(body), [ROW], {"n": 5})
    assert out.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    "body, message",
    [
        (loop("i", N, store(Y, (I,), X[I + 1])), r"x\[5\] is outside shape \[5\]"),
        (loop("i", N, store(Y, (I - 1,), X[I])), r"y\[-1\] is outside"),
        (loop("i", N, store(Y, (I,), Y[I])), "read before it is written"),
        (loop("i", N, store(Y, (I,), Buffer("z", (N,), "float32")[I])), "outside its scope"),
        (store(Y, (Symbol("q"),), X[0]), "not in scope"),
        (store(Y, (0,), cast(X[0], "float64")), "float64 stored"),
    ],
)
def test_faults_are_found(body, message):
    with pytest.raises(KernelFault, match=message):
        evaluate_kernel(kernel(body), [ROW], {"n": 5})


def test_wrong_inputs_are_refused():
    with pytest.raises(KernelFault, match="given"):
        evaluate_kernel(kernel(store(Y, (0,), X[0])), [ROW.astype(np.float64)], {"n": 5})


def test_iterations_that_are_not_independent_show_when_run_backwards():
    body = block(store(Y, (0,), X[0]), loop("i", N - 1, store(Y, (I + 1,), Y[I] + X[I]), "parallel"))
    evaluate_kernel(kernel(body), [ROW], {"n": 5})
    with pytest.raises(KernelFault, match="before it is written"):
        evaluate_kernel(kernel(body), [ROW], {"n": 5}, backwards=True)


ACC = Buffer("acc", (as_dim(8),), "float32", "register")


@pytest.mark.parametrize(
    "body, message",
    [
        (store(X, (0,), Const(0.0, "float32")), "input x is written"),
        (loop("v", N, store(Y, (V,), X[V]), "vector"), "not constant"),
        (loop("v", 8, store(Y, (as_dim(0),), X[V]), "vector"), "all lanes"),
        (loop("i", 8, Allocate(ACC, store(ACC, (I,), X[I]))), "not constant after unrolling"),
        (loop("v", 8, loop("i", 8, store(Y, (V,), X[V]), "parallel"), "vector"), "inside vector loop"),
        (store(Y, (0, 0), X[0]), "2 indices"),
        (store(Y, (0,), Binary("and", X[0], X[0])), "no and of float32"),
        (If(X[0], store(Y, (0,), X[0])), "condition"),
        (Bind("j", X[0], store(Y, (Symbol("j"),), X[0])), "bound to a value of float32"),
        (store(Y, (0,), ACC[0]), "not in scope"),
    ],
)
def test_the_checker_refuses(body, message):
    with pytest.raises(KernelFault, match=message):
        verify(kernel(body))


def test_text_of_a_kernel():
    body = loop(
        "i",
        N,
        Allocate(
            ACC,
            block(
                loop("v", 8, store(ACC, (V,), X[I] * 2.0), "vector"),
                If(Binary("lt", Index(I), Const(3, "int64")), store(Y, (I,), ACC[1])),
            ),
        ),
        "parallel",
        work=100,
    )
    assert print_kernel(kernel(body)) == (
        "kernel k(x: float32[n]) -> (y: float32[n]); symbols n\n"
        "  parallel i in n  work 100:\n"
        "    alloc acc: float32[8] register\n"
        "    vector v in 8:\n"
        "      acc[v] = (x[i] * 2.0)\n"
        "    if (i < 3):\n"
        "      y[i] = acc[1]\n"
    )

"""Small programs, each with arguments: what the machine must run."""

from collections.abc import Callable

import numpy as np

from intarsia.dim import Symbol
from intarsia.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Tuple,
    TupleGet,
    TupleType,
    Var,
    call,
    tensor,
)
from intarsia.transform.to_anf import to_anf

n, m, k = Symbol("n"), Symbol("m"), Symbol("k")
random = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def const(value, dtype=None) -> Constant:
    return Constant(np.asarray(value, dtype))


def main(params, body, **others: Function) -> IRModule:
    return to_anf(IRModule({"main": Function(tuple(params), body), **others}))


def matmul_chain() -> IRModule:
    x = Var("x", tensor((n, 4)))
    y = call("nn.relu", call("add", call("matmul", x, const(floats(4, 8))), const(floats(8))))
    z = call("matmul", y, const(floats(8, 3)))
    return main([x], Tuple((z, call("exp", y), call("reduce.sum", z, const([0])))))


def identity() -> IRModule:
    x = Var("x", tensor((n, 2)))
    return main([x], x)


def same_result_twice() -> IRModule:
    x = Var("x", tensor((n,)))
    y = call("exp", x)
    return main([x], Tuple((y, y, const(floats(3)))))


def branch() -> IRModule:
    x = Var("x", tensor((n,)))
    chosen = If(
        call("greater", call("reduce.sum", x), const(0, np.float32)), call("exp", x), call("negative", x)
    )
    return main([x], call("add", chosen, x))


def branch_of_tuples() -> IRModule:
    x, flag = Var("x", tensor((n,))), Var("flag", tensor((), "bool"))
    both = If(flag, Tuple((x, call("exp", x))), Tuple((call("exp", x), x)))
    return main([flag, x], call("subtract", TupleGet(both, 0), TupleGet(both, 1)))


def nested_branches() -> IRModule:
    x, a, b = Var("x", tensor((n,))), Var("a", tensor((), "bool")), Var("b", tensor((), "bool"))
    inner = If(b, call("exp", x), call("sin", x))
    return main([x, a, b], call("negative", If(a, inner, call("cos", x))))


def counting_loop(limit: int = 100) -> IRModule:
    i, s = Var("i", tensor((), "int64")), Var("s", tensor((2,)))
    again = Call(
        GlobalVar("loop"), (call("add", i, const(1)), call("add", s, call("cast", i, dtype="float32")))
    )
    loop = Function((i, s), If(call("less", i, const(limit)), again, s), tensor((2,)))
    x = Var("x", tensor((2,)))
    return main([x], Call(GlobalVar("loop"), (const(0), x)), loop=loop)


def swapping_loop() -> IRModule:
    """The arguments of the tail call are each other's parameters."""
    i, a, b = Var("i", tensor((), "int64")), Var("a", tensor((n,))), Var("b", tensor((n,)))
    again = Call(GlobalVar("loop"), (call("add", i, const(1)), b, a))
    both = TupleType((tensor((n,)), tensor((n,))))
    loop = Function((i, a, b), If(call("less", i, const(5)), again, Tuple((a, b))), both)
    x, y = Var("x", tensor((n,))), Var("y", tensor((n,)))
    return main([x, y], Call(GlobalVar("loop"), (const(0), x, y)), loop=loop)


def recursion() -> IRModule:
    """Not in tail position: sum of exp over the levels."""
    i, x = Var("i", tensor((), "int64")), Var("x", tensor((n,)))
    deeper = Call(
        GlobalVar("f"), (call("subtract", i, const(1)), call("multiply", x, const(0.5, np.float32)))
    )
    f = Function((i, x), If(call("less", i, const(1)), x, call("add", call("exp", x), deeper)), tensor((n,)))
    depth, y = Var("depth", tensor((), "int64")), Var("y", tensor((n,)))
    return main([depth, y], Call(GlobalVar("f"), (depth, y)), f=f)


def shape_arithmetic() -> IRModule:
    x = Var("x", tensor((n, 6)))
    rows = call("shape_of", x, start=0, end=1)
    shape = call("concatenate", call("multiply", rows, const([2])), const([3]), axis=0)
    return main([x], Tuple((call("exp", call("reshape", x, shape)), shape)))


def reshape_to_argument() -> IRModule:
    x, shape = Var("x", tensor((n, 4))), Var("shape", tensor((2,), "int64"))
    return main([x, shape], call("exp", call("reshape", x, shape)))


def arange_to_argument() -> IRModule:
    limit = Var("limit", tensor((), "int64"))
    return main([limit], call("multiply", call("arange", const(0), limit, const(1)), const(3)))


def arange_under_branch() -> IRModule:
    limit, flag = Var("limit", tensor((), "int64")), Var("flag", tensor((), "bool"))
    a = call("arange", const(0), limit, const(1))
    return main([limit, flag], If(flag, call("reduce.sum", a), const(-1)))


def two_inputs_one_symbol() -> IRModule:
    x, y = Var("x", tensor((n, 3))), Var("y", tensor((n, 3)))
    return main([x, y], call("multiply", x, y))


def compound_dimension() -> IRModule:
    x = Var("x", tensor((2 * n + 1,)))
    return main([x], Tuple((call("exp", x), call("shape_of", x))))


def broadcast_of_two_symbols() -> IRModule:
    x, y = Var("x", tensor((n,))), Var("y", tensor((m,)))
    return main([x, y], call("add", x, y))


def scalars() -> IRModule:
    x = Var("x", tensor((), "float32"))
    return main([x], call("sqrt", call("add", call("multiply", x, x), const(2, np.float32))))


def long_chain(length: int = 40) -> IRModule:
    x = Var("x", tensor((n, 5)))
    y: Expr = x
    for i in range(length):
        y = call("add", call("sin", y), x) if i % 3 == 0 else call("cos", y)
    return main([x], y)


def empty_frame() -> IRModule:
    """What lies in the frame has no elements, in the first call or in every one."""
    x, zero = Var("x", tensor((n, 16))), const(0, np.int64)
    none = call("full", const([0, 3]), const(1, np.float32))
    sums = call("reduce.sum", call("cumsum", call("cumsum", none, zero), zero), const([0]))
    return main([x], Tuple((sums, call("cumsum", call("cumsum", x, zero), zero))))


def frame_of_no_bytes() -> IRModule:
    x, zero = Var("x", tensor((0,))), const(0, np.int64)
    return main([x], call("cumsum", call("cumsum", x, zero), zero))


def flag(value: bool) -> np.ndarray:
    return np.array(value)


def integer(value: int) -> np.ndarray:
    return np.array(value, np.int64)


CASES: list[tuple[str, Callable[[], IRModule], list[tuple[np.ndarray, ...]]]] = [
    ("matmul_chain", matmul_chain, [(floats(3, 4),), (floats(1, 4),), (floats(0, 4),)]),
    ("identity", identity, [(floats(3, 2),), (floats(0, 2),)]),
    ("same_result_twice", same_result_twice, [(floats(5),)]),
    ("branch", branch, [(abs(floats(3)),), (-abs(floats(4)),)]),
    ("branch_of_tuples", branch_of_tuples, [(flag(True), floats(3)), (flag(False), floats(2))]),
    (
        "nested_branches",
        nested_branches,
        [(floats(3), flag(a), flag(b)) for a in (True, False) for b in (True, False)],
    ),
    ("counting_loop", counting_loop, [(floats(2),)]),
    ("swapping_loop", swapping_loop, [(floats(3), floats(3))]),
    ("recursion", recursion, [(integer(0), floats(3)), (integer(20), floats(2))]),
    ("shape_arithmetic", shape_arithmetic, [(floats(2, 6),), (floats(5, 6),)]),
    (
        "reshape_to_argument",
        reshape_to_argument,
        [(floats(3, 4), np.array([6, 2])), (floats(3, 4), np.array([2, -1]))],
    ),
    ("arange_to_argument", arange_to_argument, [(integer(5),), (integer(0),)]),
    ("arange_under_branch", arange_under_branch, [(integer(5), flag(True)), (integer(5), flag(False))]),
    ("two_inputs_one_symbol", two_inputs_one_symbol, [(floats(2, 3), floats(2, 3))]),
    ("compound_dimension", compound_dimension, [(floats(1),), (floats(7),)]),
    ("broadcast_of_two_symbols", broadcast_of_two_symbols, [(floats(4), floats(4))]),
    ("scalars", scalars, [(np.float32(1.5).reshape(()),)]),
    ("empty_frame", empty_frame, [(floats(0, 16),), (floats(3, 16),)]),
    ("frame_of_no_bytes", frame_of_no_bytes, [(floats(0),)]),
    ("long_chain", long_chain, [(floats(3, 5),)]),
]

import numpy as np
import pytest

from intarsia.interp import ADTValue, evaluate, from_list, to_list
from intarsia.ir import Function, IRModule, Let, Var, call, tensor
from intarsia.ir.text import parse
from intarsia.ir.wellformed import verify
from intarsia.support.errors import InputError

LISTS = "type List[T] { Cons(T, List[T]), Nil }\ntype Option[T] { Some(T), Nothing }\n"


def run(text, *args, **kwargs):
    m = parse(LISTS + text)
    verify(m)
    return evaluate(m, *args, **kwargs)


def f32(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_operators_are_their_references():
    got = run("def @main(%x: Tensor[(n, 3), float32]) { (add(%x, 1f), reduce.sum(%x)) }", f32(2, 3))
    assert np.array_equal(got[0], f32(2, 3) + 1) and got[1] == 15 and got[1].dtype == np.float32


@pytest.mark.parametrize("shape", [(0, 3), (1, 3), (7, 3)])
def test_sizes_come_from_the_arguments(shape):
    got = run("def @main(%x: Tensor[(n, 3), float32]) { dims(values=(n, n*n + 1)) }", f32(*shape))
    assert got.tolist() == [shape[0], shape[0] ** 2 + 1]


def test_only_the_taken_branch_is_computed():
    text = """def @f(%x: float32) -> float32 { @f(%x) }
    def @main(%c: bool, %x: float32) { if (%c) { %x } else { @f(%x) } }"""
    assert run(text, True, 3.0) == 3


def test_a_shared_node_is_computed_once():
    text = """def @main(%x: float32) { let %r = ref(%x); let %tick = fn () { let %u = %r := add(!%r, 1f); !%r };
        %0 = %tick(); (%0, %0, !%r) }"""
    assert [float(v) for v in run(text, 0.0)] == [1, 1, 1]


def test_loops_are_tail_calls_and_need_no_stack():
    text = """def @loop(%i: int64, %acc: Tensor[(k,), float32]) -> Tensor[(k,), float32] {
        if (less(%i, 5000i64)) { let %next = add(%acc, 1f); @loop(add(%i, 1i64), %next) } else { %acc } }
    def @main(%x: Tensor[(n,), float32]) { @loop(0i64, %x) }"""
    assert run(text, np.zeros(2, np.float32)).tolist() == [5000, 5000]


def test_recursion_that_is_not_a_tail_call_needs_no_python_stack_either():
    text = """def @count(%i: int64) -> int64 { if (less(%i, 1i64)) { 0i64 } else { add(1i64, @count(subtract(%i, 1i64))) } }
    def @main(%n: int64) { @count(%n) }"""
    assert run(text, 3000) == 3000


def test_a_loop_may_grow_its_tensor():
    text = """def @grow(%i: int64, %a: Tensor[(k,), float32]) -> Tensor[(q,), float32] {
        if (less(%i, 4i64)) { @grow(add(%i, 1i64), concatenate(%a, %a, axis=0)) } else { %a } }
    def @main(%x: Tensor[(n,), float32]) { %0 = @grow(0i64, %x); (%0, shape_of(%0)) }"""
    got = run(text, f32(3))
    assert got[0].shape == (48,) and got[1].tolist() == [48]


def test_closures_keep_their_variables():
    text = """def @adder(%x: float32) { fn (%y: float32) { add(%x, %y) } }
    def @main(%x: float32) { let %f = @adder(%x); let %g = @adder(100f); (%f(1f), %g(1f)) }"""
    assert [float(v) for v in run(text, 10.0)] == [11, 101]


def test_local_recursion():
    text = """def @main(%x: Tensor[(n,), float32]) {
        let %twice = fn (%k: int64, %v: Tensor[(n,), float32]) -> Tensor[(n,), float32] {
            if (less(%k, 1i64)) { %v } else { %twice(subtract(%k, 1i64), add(%v, %v)) } };
        %twice(3i64, %x) }"""
    assert run(text, f32(2)).tolist() == [0, 8]


def test_lists_are_mapped_and_folded():
    text = """def @map[A, B](%f: fn(A) -> B, %l: List[A]) -> List[B] {
        match (%l) { Cons(%h, %t) => Cons(%f(%h), @map(%f, %t)), Nil => Nil } }
    def @sum(%l: List[Tensor[(?, 2), float32]], %acc: float32) -> float32 {
        match (%l) { Cons(%h, %t) => @sum(%t, add(%acc, reduce.sum(%h))), Nil => %acc } }
    def @main(%l: List[Tensor[(?, 2), float32]]) {
        %0 = @map(fn (%h: Tensor[(?, 2), float32]) { multiply(%h, 2f) }, %l); (%0, @sum(%0, 0f)) }"""
    mapped, total = run(text, from_list([f32(1, 2), f32(3, 2)]))
    assert [v.shape for v in to_list(mapped)] == [(1, 2), (3, 2)] and total == 2 * (1 + 15)


def test_nested_patterns_choose_the_first_clause_that_fits():
    text = """def @main(%l: List[Option[float32]]) { match (%l) {
        Cons(Some(%x), Cons(Nothing, _)) => %x, Cons(_, Cons(Some(%y), _)) => negative(%y), _ => 0f } }"""
    some, nothing = (lambda x: ADTValue("Some", (np.float32(x),))), ADTValue("Nothing")
    assert run(text, from_list([some(2), nothing])) == 2
    assert run(text, from_list([some(2), some(3)])) == -3
    assert run(text, from_list([])) == 0


def test_references_are_written_in_order():
    text = "def @main(%x: float32) { let %r = ref(%x); let %a = %r := add(!%r, 1f); let %b = %r := multiply(!%r, 3f); !%r }"
    assert run(text, 1.0) == 6


def test_a_missing_optional_argument_is_none():
    text = "def @main(%x: Tensor[(n,), float32]) { clip(%x, (), 1f) }"
    assert run(text, f32(4)).tolist() == [0, 1, 1, 1]


def test_the_sizes_of_a_branch_are_measured():
    text = """def @main(%c: bool, %x: Tensor[(n,), float32], %y: Tensor[(m,), float32]) {
        %0 = if (%c) { %x } else { concatenate(%x, %y, axis=0) }; reshape(%0, shape_of(%0)) }"""
    assert run(text, np.bool_(False), f32(2), f32(3)).shape == (5,)


def test_constructors_and_global_functions_are_values():
    text = """def @ap[A, B](%f: fn(A) -> B, %x: A) -> B { %f(%x) } def @two(%x: float32) { add(%x, %x) }
    def @main(%x: float32) { match (@ap(Some, @ap(@two, %x))) { Some(%y) => %y, Nothing => 0f } }"""
    assert run(text, 4.0) == 8


BOTH = "def @main(%x: Tensor[(n, 3), float32], %y: Tensor[(m, 3), float32]) {\n  add(%x, %y) }"


def message(text, *args):
    with pytest.raises(InputError) as e:
        run(text, *args)
    return str(e.value)


def test_a_failed_check_names_both_sizes_and_their_origin():
    assert message(BOTH, f32(2, 3), f32(4, 3)) == (
        "CALL-004: broadcast of dimension 0: n == m does not hold: 2 and 4\n"
        "    m = 4 is dimension 0 of parameter %y of @main\n"
        "    n = 2 is dimension 0 of parameter %x of @main\n"
        "  at  <text>:4:3"
    )


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ((f32(2, 3),), "CALL-001: @main takes 2 arguments, not 1"),
        ((f32(2, 4), f32(2, 3)), "CALL-002: dimension 1 of %x must be 3, but it is 4"),
        ((f32(2, 3), np.zeros((2, 3))), "CALL-005: %y must have dtype float32, not float64"),
        ((f32(2, 3), f32(3)), "CALL-006: %y must have 2 dimensions, Tensor[(m, 3), float32], not 1: (3,)"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(args, expected):
    assert message(BOTH, *args) == expected


def test_compound_sizes_are_solved_and_checked_at_entry():
    text = "def @main(%x: Tensor[(2*m + 1, m), float32]) { dims(values=(m,)) }"
    assert run(text, f32(7, 3)).tolist() == [3]
    assert message(text, f32(6, 3)).startswith(
        "CALL-002: dimension 0 of %x must be 2*m + 1 = 7, but it is 6\n    m = 3 is"
    )
    alone = "def @main(%x: Tensor[(2*m + 1,), float32]) { dims(values=(m,)) }"
    assert run(alone, f32(9)).tolist() == [4]
    assert message(alone, f32(0)).startswith("CALL-003: a size of 0 makes m negative")


def test_a_size_check_of_a_call_names_the_caller():
    text = """def @f(%a: Tensor[(k,), float32], %b: Tensor[(k,), float32]) { add(%a, %b) }
    def @main(%x: Tensor[(n,), float32], %y: Tensor[(m,), float32]) { @f(%x, %y) }"""
    assert message(text, f32(2), f32(3)).startswith(
        "CALL-004: the call of @f: m == n does not hold: 3 and 2\n    m = 3 is dim"
    )


def test_nested_tuples_go_in_and_out():
    text = "def @main(%x: (float32, (Tensor[(n,), float32], bool))) { (%x.1.0, %x.0) }"
    got = run(text, (2.0, (f32(3), True)))
    assert got[0].shape == (3,) and got[1] == 2


def test_long_programs_are_evaluated_without_python_stack():
    x = Var("x", tensor((2,)))
    chain, lets = x, x
    for i in range(5_000):
        chain = call("nn.relu", chain)
        lets = Let(Var(f"v{i}"), call("exp", x), lets)
    for body in (chain, lets):
        assert evaluate(IRModule({"main": Function((x,), body)}), np.ones(2, np.float32)).tolist() == [1, 1]

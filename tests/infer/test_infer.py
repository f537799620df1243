import numpy as np
import pytest

from intarsia.dim import Symbol
from intarsia.infer import infer, tensor_leaves
from intarsia.ir import Function, IRModule, Tuple, Var, call, tensor
from intarsia.ir.text import parse
from intarsia.op.entry import Item, Measured

LISTS = "type List[T] { Cons(T, List[T]), Nil }\n"


def typed(text):
    m = parse(LISTS + text)
    return m, infer(m)


def result(text):
    m, t = typed(text)
    return str(t.type(m.main.body))


def checks(text):
    return [f"{c.left} {c.relation} {c.right}" for c in typed(text)[1].checks]


def test_dimensions_flow_through_operators():
    text = "def @main(%x: Tensor[(n, 3), float32]) { concatenate(%x, exp(%x), axis=0) }"
    assert result(text) == "Tensor[(2*n, 3), float32]"


def test_known_contents_flow_through_shape_arithmetic():
    text = "def @main(%x: Tensor[(n, 6), float32]) { reshape(%x, multiply(shape_of(%x), const([2, -1], int64))) }"
    m, t = typed(
        "def @main(%x: Tensor[(n, 6), float32]) { reshape(%x, add(shape_of(%x), const([0, 0], int64))) }"
    )
    assert str(t.type(m.main.body)) == "Tensor[(n, 6), float32]" and not t.checks
    assert [str(v) for v in t.value(m.main.body.args[1])] == ["n", "6"]
    with pytest.raises(Exception, match="TYPE-001"):
        typed(text)


def test_contents_of_tuples_are_known_field_by_field():
    text = "def @main(%x: Tensor[(n, 6), float32]) { %0 = (shape_of(%x), %x); reshape(%0.1, %0.0) }"
    assert result(text) == "Tensor[(n, 6), float32]"


def test_unknown_contents_become_symbols_read_at_run_time():
    m, t = typed("def @main(%x: Tensor[(n,), float32], %s: Tensor[(2,), int64]) { full(%s, 0f) }")
    assert t.bindings(m.main.body) == {"full_1": Item(0, 0), "full_2": Item(0, 1)}
    assert str(t.type(m.main.body)) == "Tensor[(full_1, full_2), float32]"


def test_two_readers_of_one_tensor_share_its_symbols():
    text = "def @main(%s: Tensor[(2,), int64]) { add(full(%s, 0f), full(%s, 1f)) }"
    assert result(text) == "Tensor[(full_1, full_2), float32]" and not checks(text)


def test_an_equality_is_checked_once():
    text = """def @main(%x: Tensor[(n, 2), float32], %y: Tensor[(m, 2), float32]) {
        %0 = add(%x, %y); multiply(add(%0, %y), subtract(%y, %x)) }"""
    assert checks(text) == ["n == m"] and result(text) == "Tensor[(n, 2), float32]"


def test_a_symbol_may_turn_out_to_be_a_number():
    text = "def @main(%x: Tensor[(n,), float32], %y: Tensor[(3,), float32]) { add(add(%x, %y), %x) }"
    assert checks(text) == ["n == 3"] and result(text) == "Tensor[(3,), float32]"


def test_what_a_branch_learns_stays_in_the_branch():
    text = """def @main(%c: bool, %x: Tensor[(n,), float32], %y: Tensor[(m,), float32]) {
        %0 = if (%c) { reduce.sum(add(%x, %y)) } else { 0f };
        (%0, add(%x, %y)) }"""
    assert checks(text) == ["n == m", "n == m"]


def test_a_node_shared_by_both_branches_learns_for_both():
    text = """def @main(%c: bool, %x: Tensor[(n,), float32], %y: Tensor[(m,), float32]) {
        %0 = add(%x, %y);
        if (%c) { exp(%0) } else { add(%0, %y) } }"""
    assert checks(text) == ["n == m"] and result(text) == "Tensor[(n,), float32]"


def test_branches_of_different_sizes_have_a_measured_one():
    m, t = typed("""def @main(%c: bool, %x: Tensor[(n, 2), float32], %y: Tensor[(m, 2), float32]) {
        if (%c) { (%x, %y) } else { (%y, %y) } }""")
    assert str(t.type(m.main.body)) == "(Tensor[(if_1, 2), float32], Tensor[(m, 2), float32])"
    assert t.bindings(m.main.body) == {"if_1": Measured(0, 0)}


def test_a_call_binds_the_callees_symbols():
    text = """def @f(%x: Tensor[(n, k), float32], %y: Tensor[(k,), float32]) -> Tensor[(2*n, k), float32] {
        concatenate(%x, add(%x, %y), axis=0) }
    def @main(%k: Tensor[(k, 3), float32], %v: Tensor[(n,), float32]) { @f(%k, %v) }"""
    assert result(text) == "Tensor[(2*k, 3), float32]" and checks(text) == ["n == 3"]


def test_a_size_that_only_the_callee_knows_is_measured_by_the_caller():
    m, t = (
        typed("""def @f(%s: Tensor[(1,), int64]) -> Tensor[(q, 2*q), float32] { matmul(full(concatenate(%s, const([1], int64), axis=0), 1f), full(concatenate(const([1], int64), multiply(%s, const([2], int64)), axis=0), 1f)) }
    def @main(%s: Tensor[(1,), int64]) { @f(%s) }""")
    )
    assert str(t.type(m.main.body)) == "Tensor[(f_1, 2*f_1), float32]"
    assert t.bindings(m.main.body) == {"f_1": Measured(0, 0)}


def test_functions_without_a_result_type_are_inferred_callees_first():
    text = "def @main(%x: Tensor[(a, 3), float32]) { @g(@g(%x)) } def @g(%x: Tensor[(n, m), float32]) { transpose(%x, axes=(1, 0)) }"
    assert result(text) == "Tensor[(a, 3), float32]"


def test_a_function_called_in_place_takes_its_types_from_the_call():
    m, t = typed("""def @main(%x: Tensor[(n, 6), float32]) {
        fn (%a, %s, primitive=True) { reshape(exp(%a), %s) }(%x, shape_of(%x)) }""")
    assert str(t.type(m.main.body)) == "Tensor[(n, 6), float32]"
    assert t.type(m.main.body.op.params[0]) == t.type(m.main.params[0])
    assert len(t.sites) == 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def @id[T](%x: T) -> T { %x } def @main(%x: Tensor[(n,), float32]) { (@id(%x), @id(2f)) }", "(Tensor[(n,), float32], float32)"),
        ("def @main(%x: Tensor[(n,), float32]) { let %f = fn (%y) { exp(%y) }; %f(%x) }", "Tensor[(n,), float32]"),
        ("def @main(%x: Tensor[(n,), float32]) { Cons(%x, Cons(%x, Nil)) }", "List[Tensor[(n,), float32]]"),
        ("def @main(%x: Tensor[(n,), float32]) { Cons(%x, Cons(2f, Nil)) }", None),
        ("def @main(%x: Tensor[(n,), float32], %y: Tensor[(3,), float32]) { Cons(%x, Cons(%y, Nil)) }", "List[Tensor[(?,), float32]]"),
        ("def @main(%x: Tensor[(n,), float32]) { match (Cons(%x, Nil)) { Cons(%h, _) => %h, Nil => %x } }", "Tensor[(n,), float32]"),
        ("def @main(%x: float32) { match ((%x, (1i64, %x))) { (_, (%i, _)) => %i } }", "int64"),
        ("def @main(%x: float32) { let %r = ref(%x); !%r }", "float32"),
        ("def @main(%x: float32) { ref(%x) := 2f }", "()"),
        ("def @main(%x: Tensor[(n,), float32]) { fn (%y: Tensor[(m,), float32]) { %y } }", "fn(Tensor[(m,), float32]) -> Tensor[(m,), float32]"),
        ("def @ap[A, B](%f: fn(A) -> B, %x: A) -> B { %f(%x) } def @main(%x: float32) { @ap(fn (%y) { (%y, %y) }, %x) }", "(float32, float32)"),
    ],
)  # fmt: skip
def test_types_of_functional_programs(text, expected):
    if expected is None:
        with pytest.raises(Exception, match="TYPE-003"):
            result(text)
    else:
        assert result(text) == expected


def test_a_list_of_rows_of_any_size_gives_rows_with_measured_sizes():
    m, t = typed("""def @main(%l: List[Tensor[(?, 3), float32]]) {
        match (%l) { Cons(%row, _) => reduce.sum(%row, const([1], int64)), Nil => full(const([4], int64), 1f) } }""")
    row = m.main.body.clauses[0].pattern.fields[0].var
    assert str(t.type(row)) == "Tensor[(row_1, 3), float32]" and t.bindings(row) == {"row_1": Measured(0, 0)}
    assert str(t.type(m.main.body)) == "Tensor[(match_1,), float32]"


def test_an_annotation_of_a_let_may_name_a_size():
    text = """def @main(%x: Tensor[(n,), float32]) {
        let %y: Tensor[(k,), float32] = concatenate(%x, %x, axis=0); dims(values=(k, 1)) }"""
    m, t = typed(text)
    assert [str(v) for v in t.value(m.main.body)] == ["2*n", "1"]


def test_open_sizes_of_a_parameter_get_names():
    m, t = typed("def @main(%x: Tensor[(?, 3), float32], %y: (bool, Tensor[(?,), float32])) { %x }")
    assert str(t.type(m.main.params[0])) == "Tensor[(x_1, 3), float32]" and t.symbols("main") == {
        "x_1",
        "y_1",
    }
    assert t.origin("y_1") == "a dimension of parameter %y of @main"


def test_fresh_names_avoid_the_programs_own():
    m, t = typed("def @main(%s: Tensor[(1,), int64], %x: Tensor[(full_1,), float32]) { full(%s, 0f) }")
    assert str(t.type(m.main.body)) == "Tensor[(full_2,), float32]"


def test_tensor_leaves_look_through_tuples_only():
    m, t = typed("def @main(%x: (bool, (float32, List[float32])), %y: int64) { (%x, %y) }")
    assert [str(leaf) for leaf in tensor_leaves(t.type(m.main.body))] == ["bool", "float32", "int64"]


def test_sizes_below_zero_elements_and_rank_zero_are_types_like_others():
    assert result("def @main(%x: Tensor[(0, n), float32]) { reduce.sum(%x) }") == "float32"
    assert result("def @main(%x: float32) { exp(%x) }") == "float32"


def test_chains_of_a_hundred_thousand_nodes():
    x = e = Var("x", tensor((Symbol("n"), 2)))
    for _ in range(100_000):
        e = call("nn.relu", e)
    m = IRModule({"main": Function((x,), Tuple((e, x)))})
    assert str(infer(m).type(m.main.body)) == "(Tensor[(n, 2), float32], Tensor[(n, 2), float32])"


def test_deep_nesting_of_branches_and_functions_needs_no_python_stack():
    m = parse("def @main(%c: bool, %x: float32) { %x }")
    c, x = m.main.params
    from intarsia.ir import Call, If

    branches, closures = x, x
    for i in range(2_000):
        branches = If(c, branches, x)
        closures = Call(Function((v := Var(f"v{i}"),), call("exp", v)), (closures,))
    t = infer(IRModule({"main": Function((c, x), Tuple((branches, closures)))}))
    assert t.type(branches) == t.type(closures) == tensor(())


def test_numpy_values_are_exact_for_wide_integers():
    m, t = typed("def @main() { const([9223372036854775807, -1], int64) }")
    assert [v.value for v in t.value(m.main.body)] == [2**63 - 1, -1] and isinstance(
        t.value(m.main.body), np.ndarray
    )

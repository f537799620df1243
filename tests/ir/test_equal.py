import numpy as np
import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.ir import Constant, Function, GlobalVar, IRModule, Let, OpRef, Tuple, Var, call, tensor
from intarsia.ir.equal import structural_equal, structural_hash
from intarsia.support.span import Span


def same(a, b):
    if structural_equal(a, b):
        assert structural_equal(b, a) and structural_hash(a) == structural_hash(b)
        return True
    assert not structural_equal(b, a)
    return False


def unary(name, t=None):
    v = Var(name, t)
    return Function((v,), call("exp", v))


def test_names_of_bound_variables_and_spans_do_not_count():
    v = Var("q", span=Span("f", "n"))
    assert same(unary("x"), Function((v,), call("exp", v, span=Span("f", "m"))))


def test_annotations_count():
    assert not same(unary("x"), unary("x", tensor((2,))))
    assert not same(unary("x", tensor((Symbol("n"),))), unary("x", tensor((Symbol("m"),))))


def test_free_variables_are_compared_by_identity():
    x, y = Var("x"), Var("x")
    assert same(call("exp", x), call("exp", x)) and not structural_equal(call("exp", x), call("exp", y))


def test_variables_correspond_one_to_one():
    a, b, c, d = (Var(n) for n in "abcd")
    assert not same(Function((a, b), Tuple((a, b))), Function((c, d), Tuple((c, c))))
    assert not same(Function((a, b), Tuple((a, a))), Function((c, d), Tuple((c, d))))


def test_sharing_counts_except_for_atoms():
    x = Var("x")
    shared, c = call("exp", x), Constant(np.float32(1))
    f = Function((x,), Tuple((shared, shared)))
    y = Var("y")
    g = Function((y,), Tuple((call("exp", y), call("exp", y))))
    assert not structural_equal(f, g) and not structural_equal(g, f)
    assert same(Tuple((c, c)), Tuple((Constant(np.float32(1)), Constant(np.float32(1)))))


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [(1, 1.0, False), (1, True, False), (1, as_dim(1), True), (float("nan"), float("nan"), True), (0.0, -0.0, False),
     ((1, (2,)), (1, (2,)), True), ((1,), 1, False), ("1", 1, False), (Symbol("n") + 1, 1 + Symbol("n"), True), (None, 0, False)],
)  # fmt: skip
def test_attributes_are_compared_with_their_types(a, b, equal):
    assert same(call("f", k=a), call("f", k=b)) == equal


def test_constants_are_compared_bit_by_bit():
    for a, b, equal in [
        ([1.0], [1.0], True),
        ([0.0], [-0.0], False),
        ([np.nan], [np.nan], True),
        ([[1.0]], [1.0], False),
    ]:
        assert same(Constant(np.array(a, np.float32)), Constant(np.array(b, np.float32))) == equal
    assert not same(Constant(np.array([1, 2])), Constant(np.array([1.0, 2.0])))


def test_modules_compare_bounds_and_names():
    f = unary("x")
    a, b = IRModule({"main": f}, input_names=("x",)), IRModule({"main": unary("z")}, input_names=("y",))
    assert not same(a, b) and same(a, IRModule({"main": unary("y")}, input_names=("x",)))
    assert not same(a, GlobalVar("main")) and not same(OpRef("main"), GlobalVar("main"))


def test_long_chains():
    def chain(n):
        x = e = Var("x")
        for i in range(n):
            e = Let(Var(f"v{i}"), call("exp", x), call("exp", e))
        return Function((x,), e)

    assert same(chain(5_000), chain(5_000)) and not same(chain(5_000), chain(4_999))

import pytest

from intarsia.dim import Symbol, as_dim
from intarsia.infer.entry import Bind, Demand, entry_plan
from intarsia.infer.unify import ANY, Equalities, Hole, Mismatch, freeze, join, map_type, relate, solve
from intarsia.ir import ADTType, FuncType, RefType, TupleType, TypeVar, tensor

N, M, Q, R = Symbol("n"), Symbol("m"), Symbol("'q"), Symbol("'r")


def closed(t):
    return map_type(t, lambda d: d)


def boxed(t):
    return ADTType("List", (t,))


def test_a_hole_takes_the_type_it_meets_on_either_side():
    a, b = Hole(), Hole()
    relate(TupleType((a, tensor((2,)))), TupleType((tensor((N,)), b)), [])
    assert closed(a) == tensor((N,)) and closed(b) == tensor((2,))


def test_holes_that_meet_become_one():
    a, b = Hole(), Hole()
    relate(a, b, [])
    relate(b, tensor((3,)), [])
    assert closed(a) == tensor((3,))


def test_a_type_cannot_contain_itself():
    a = Hole()
    with pytest.raises(Mismatch, match="contain itself"):
        relate(a, boxed(a), [])


def test_elements_of_different_sizes_widen_the_list():
    a = Hole()
    relate(a, tensor((3, 2)), [])
    relate(boxed(a), boxed(tensor((5, 2))), [])
    assert closed(boxed(a)) == boxed(tensor((ANY, 2)))


def test_a_frozen_hole_asks_for_equal_sizes_instead():
    a, pairs = Hole(), []
    relate(a, tensor((N,)), [])
    freeze(boxed(a))
    relate(a, tensor((M,)), pairs)
    assert pairs == [(N, M)] and closed(a) == tensor((N,))


def test_any_size_is_not_a_certain_size():
    relate(boxed(tensor((ANY,))), boxed(tensor((3,))), [])
    with pytest.raises(Mismatch, match="differ from element to element"):
        relate(boxed(tensor((3,))), boxed(tensor((ANY,))), [])


def test_references_are_invariant():
    with pytest.raises(Mismatch):
        relate(RefType(tensor((ANY,))), RefType(tensor((3,))), [])


def test_functions_are_contravariant_in_their_arguments():
    takes_any, takes_three = FuncType((tensor((ANY,)),), tensor(())), FuncType((tensor((3,)),), tensor(()))
    relate(takes_three, takes_any, [])
    with pytest.raises(Mismatch):
        relate(takes_any, takes_three, [])


def test_a_polymorphic_function_is_instantiated():
    t = TypeVar("T")
    relate(FuncType((tensor((2,)),), tensor((2,))), FuncType((t,), t, (t,)), [])
    with pytest.raises(Mismatch):
        relate(FuncType((tensor((2,)),), tensor((), "bool")), FuncType((t,), t, (t,)), [])


def test_a_join_keeps_what_is_equal():
    joined = join(
        TupleType((tensor((N, 2)), boxed(tensor((2,))))),
        TupleType((tensor((M, 2)), boxed(tensor((4,))))),
        lambda a, b: Q,
    )
    assert joined == TupleType((tensor((Q, 2)), boxed(tensor((ANY,)))))


@pytest.mark.parametrize(
    ("pairs", "values", "left"),
    [
        ([(Q, N)], {"'q": N}, []),
        ([(2 * Q + 1, N), (Q, M)], {"'q": M}, [(2 * M + 1, N)]),
        ([(2 * Q + 1, N)], {"'q": (N - 1) // 2}, [(2 * ((N - 1) // 2) + 1, N)]),
        ([(Q, R), (R, N)], {"'q": N, "'r": N}, []),
        ([(Q, N), (Q, M)], {"'q": N}, [(N, M)]),
        ([(Q * R, N)], {}, [(Q * R, N)]),
        ([(as_dim(7), 3 * Q + 1)], {"'q": as_dim(2)}, []),
    ],
)
def test_solving_for_flexible_symbols(pairs, values, left):
    assert solve(pairs) == (values, left)


def test_younger_symbols_give_way_to_older_ones():
    e = Equalities(order={"n": 0, "m": 1, "k": 2})
    e.assume(N, Symbol("k"))
    e.assume(Symbol("k"), 2 * M)
    assert e.canonical(Symbol("k")) == N and e.canonical(2 * M) == 2 * M
    e.assume(M, as_dim(4))
    assert e.canonical(M + N) == N + 4


def test_an_entry_plan_binds_bare_symbols_first():
    plan = entry_plan([tensor((2 * N + M, 3)), TupleType((tensor((M,)), tensor((M + 1,))))])
    assert plan == [
        Bind("m", 1, 0, 1, as_dim(0)), Bind("n", 0, 0, 2, M), Demand(0, 1, as_dim(3)), Demand(0, 0, 2 * N + M), Demand(2, 0, M + 1),
    ]  # fmt: skip


def test_an_entry_plan_leaves_out_what_no_tensor_determines():
    assert entry_plan([tensor((N * M,)), boxed(tensor((Symbol("k"),)))]) == []

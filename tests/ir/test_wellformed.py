import pytest

from intarsia.ir import (
    ADT,
    Call,
    Clause,
    Constructor,
    ConstructorRef,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    Match,
    PConstructor,
    PVar,
    Tuple,
    TupleGet,
    Var,
    Wildcard,
    call,
    tensor,
)  # fmt: skip
from intarsia.ir.wellformed import verify
from intarsia.support.errors import ModelError
from intarsia.support.span import Span

X = Var("x", tensor((2,)))


def module(body, *params):
    return IRModule({"main": Function(params or (X,), body)})


def fails(m, message):
    with pytest.raises(ModelError) as e:
        verify(m)
    assert message in str(e.value)


def test_a_parameter_may_be_used_anywhere_below_its_function():
    y = Var("y")
    verify(module(Let(y, Function((z := Var("z"),), call("add", z, X)), Call(y, (X,)))))


def test_a_free_variable_is_an_error_that_names_its_user():
    user = call("exp", Var("free"), span=Span("m", "conv1"))
    fails(
        module(Tuple((X, user))),
        "IR-001: %free is used where it is not bound\n  at  node 'conv1' in m, in @main",
    )


def test_a_let_variable_is_not_bound_outside_its_body():
    y = Var("y")
    fails(module(Tuple((Let(y, call("exp", X), y), call("sqrt", y)))), "IR-001: %y")


def test_the_value_of_a_let_may_use_its_variable_only_if_it_is_a_function():
    y, f = Var("y"), Var("f")
    fails(module(Let(y, call("exp", y), y)), "IR-001: %y")
    verify(module(Let(f, Function((z := Var("z"),), Call(f, (z,))), Call(f, (X,)))))


def test_a_node_shared_by_two_branches_may_not_use_a_variable_of_one():
    y = Var("y")
    use = call("exp", y)
    fails(module(If(X, Let(y, X, use), use)), "IR-001: %y")


def test_a_node_shared_inside_one_branch_may():
    y = Var("y")
    use = call("exp", y)
    verify(module(If(X, Let(y, X, call("add", use, use)), X)))


def test_a_node_shared_by_a_function_and_the_body_of_its_let_may_not_use_its_variable():
    f = Var("f")
    use = Call(f, ())
    fails(module(Let(f, Function((), use), use)), "IR-001: %f")
    verify(module(Let(f, Function((), call("exp", X)), f)))


def test_pattern_variables_reach_their_own_clause_only():
    adt = ADT("Box", (), (Constructor("Box", (tensor(()),), 0),))
    v = Var("v")
    good = Match(X, (Clause(PConstructor("Box", (PVar(v),)), v),))
    verify(IRModule({"main": Function((X,), good)}, {"Box": adt}))
    bad = Match(X, (Clause(PConstructor("Box", (PVar(v),)), X), Clause(Wildcard(), v)))
    fails(IRModule({"main": Function((X,), bad)}, {"Box": adt}), "IR-001: %v")


def test_a_variable_is_bound_once_in_the_whole_module():
    m = IRModule({"main": Function((X,), X), "other": Function((X,), X)})
    fails(m, "IR-002: %x is bound twice: in @main and in @other")
    y = Var("y")
    fails(module(Let(y, X, Let(y, X, y))), "IR-002: %y is bound twice")


def test_unknown_names_are_errors():
    fails(module(Call(GlobalVar("nowhere"), (X,))), "IR-003: there is no function @nowhere")
    fails(module(Call(ConstructorRef("Cons"), (X,))), "IR-004: there is no constructor Cons")
    fails(module(Match(X, (Clause(PConstructor("Nil"), X),))), "IR-004: there is no constructor Nil")


def test_malformed_nodes_are_errors():
    fails(module(Match(X, ())), "IR-005")
    fails(module(TupleGet(X, -1)), "IR-005")
    c = Constructor("C", (), 0)
    fails(
        IRModule({}, {"A": ADT("A", (), (c,)), "B": ADT("B", (), (c,))}),
        "IR-006: the constructor C belongs to both",
    )


def test_deep_lets_and_chains_are_quick():
    body = X
    for i in range(20_000):
        body = Let(Var(f"v{i}"), call("exp", X), body)
    verify(module(body))

"""What the user reads when a program does not type-check."""

import pytest

from intarsia.infer import infer
from intarsia.ir.text import parse
from intarsia.support.errors import Error

LISTS = "type List[T] { Cons(T, List[T]), Nil }\n"


def message(text):
    with pytest.raises(Error) as e:
        infer(parse(LISTS + text, source="m"))
    return str(e.value)


def test_an_operators_error_lists_arguments_and_where_symbols_come_from():
    text = "def @main(%x: Tensor[(n, 3), float32], %y: Tensor[(n, 4), float32]) {\n  add(%x, %y) }"
    assert message(text) == (
        "TYPE-001: add: broadcast of dimension 1: 3 does not equal 4\n"
        "    argument 1 (%x): Tensor[(n, 3), float32]\n"
        "    argument 2 (%y): Tensor[(n, 4), float32]\n"
        "    n is dimension 0 of parameter %x of @main\n"
        "  at  m:3:3"
    )


def test_branches_of_different_types_are_shown_both():
    text = "def @main(%c: bool, %x: Tensor[(n,), float32]) {\n  if (%c) { %x } else { reduce.sum(%x) } }"
    assert message(text) == (
        "TYPE-005: the branches of an if have different types: rank 1 is not rank 0\n"
        "    the first branch: Tensor[(n,), float32] at m:2:21\n"
        "    the second branch: float32 at m:3:25\n"
        "  at  m:3:7, in @main"
    )


def test_a_wrong_argument_is_shown_with_the_parameters_type():
    text = "def @f(%x: Tensor[(n, n), float32]) { %x } def @main(%x: Tensor[(a, 3), int64]) {\n @f(%x) }"
    assert message(text) == (
        "TYPE-003: argument 1 of the call of @f has the wrong type: float32 is not int64\n"
        "    expected: Tensor[(n, n), float32]\n"
        "    found:    Tensor[(a, 3), int64] at m:2:54\n"
        "    a is dimension 0 of parameter %x of @main\n"
        "  at  m:3:2, in @main"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def @f(%x: Tensor[(n, n), float32]) { %x } def @main(%x: Tensor[(3, 4), float32]) { @f(%x) }",
         "TYPE-013: the call of @f: 4 does not equal 3\n    expected: Tensor[(n, n), float32]\n    found:    Tensor[(3, 4)"),
        ("def @main(%x: float32) { nn.rellu(%x) }", "OP-001: there is no operator nn.rellu"),
        ("def @main(%x: float32) { exp(%x, %x) }", "TYPE-004: exp takes 1 arguments (x), not 2"),
        ("def @main(%x: float32) { exp(%x, k=1) }", "TYPE-002: exp has no attribute k"),
        ("def @main(%x: float32) { dims(values=(z, 1)) }", "TYPE-011: the symbol z in attribute values is not bound here"),
        ("def @main(%x) { %x }", "TYPE-006: parameter %x of @main needs a type"),
        ("def @f(%x: float32) { @f(%x) } def @main(%x: float32) { @f(%x) }", "TYPE-006: @f calls itself"),
        ("def @main(%x: float32) { let %f = exp; %f(%x) }", "TYPE-006: the operator exp is used as a value"),
        ("def @main(%x: float32) { @g(%x) }", "TYPE-007: there is no function @g"),
        ("def @main(%x: float32) { %x(%x) }", "TYPE-010: a float32 is called"),
        ("def @main(%x: float32) { %x.0 }", "TYPE-010: field 0 is taken of a float32"),
        ("def @main(%x: float32) { (%x, %x).2 }", "TYPE-010: field 2 of a tuple with 2 fields"),
        ("def @main(%x: float32) { !%x }", "TYPE-010: a float32 is used as a reference"),
        ("def @main(%x: float32) { if (%x) { 1f } else { 2f } }", "TYPE-012: the condition of an if must be a rank-0 bool"),
        ("def @f(%x: float32) { %x } def @main(%x: float32) { @f(%x, %x) }", "TYPE-004: the call of @f has 2 arguments where 1"),
        ("def @main(%l: List[List[float32]]) { match (%l) { Cons(Nil, _) => 1f, Nil => 2f } }",
         "TYPE-009: the match has no clause for Cons(Cons(_, _), _)"),
        ("def @main(%l: List[float32]) { match (%l) { Cons(%x) => %x, _ => 0f } }", "TYPE-008: Cons has 2 fields, the pattern 1"),
        ("def @main(%x: float32) { match (%x) { Nil => 1f, _ => 0f } }", "TYPE-003: the pattern Nil has the wrong type"),
        ("def @main(%x: float32) { match (%x) { (%a, %b) => %a } }", "TYPE-008: a pattern of 2 fields cannot match a float32"),
        ("def @main(%x: float32) -> int64 { %x }", "TYPE-003: the result of @main has the wrong type: int64 is not float32"),
        ("def @main(%x: float32) { let %f = fn (%y) { %y.0 }; %f((%x, %x)) }", "TYPE-006: the type of the tuple whose field 0"),
        ("def @main(%x: float32) { let %f = fn (%y) { exp(%y) }; %x }", "TYPE-006: the type of an argument of exp"),
    ],
)  # fmt: skip
def test_faults_are_explained(text, expected):
    assert message(text).startswith(expected)


def test_the_place_of_an_imported_node_is_its_name():
    from intarsia.ir import Function, IRModule, Var, call, tensor
    from intarsia.support.span import Span

    x = Var("x", tensor((2, 3)))
    bad = call("matmul", x, x, span=Span("model.onnx", "/encoder/MatMul"))
    with pytest.raises(Error) as e:
        infer(IRModule({"main": Function((x,), bad)}))
    assert "at  node '/encoder/MatMul' in model.onnx" in str(e.value)

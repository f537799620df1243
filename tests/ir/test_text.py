import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from intarsia.dim import Symbol
from intarsia.infer import infer
from intarsia.ir import Call, Constant, Function, If, IRModule, Let, OpRef, Tuple, TupleGet, Var, call, tensor
from intarsia.ir.equal import structural_equal, structural_hash
from intarsia.ir.text import load_text, parse, parse_expr, print_expr, print_module, save_text
from intarsia.ir.wellformed import verify
from intarsia.support.errors import ModelError
from tests.ir.random_modules import Drawn, modules


def _shared_with_a_function() -> IRModule:
    x, f = Var("x"), Var("f")
    both = call("exp", x)
    return IRModule(
        {
            "main": Function(
                (x,), Let(f, Function((), call("add", both, Call(f, ()))), call("add", both, TupleGet(f, 1)))
            )
        }
    )


X = Var("x")
SHARED_WITH_A_FUNCTION = _shared_with_a_function()
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@given(modules())
@example(Drawn(SHARED_WITH_A_FUNCTION))
@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
def test_printed_modules_parse_back(drawn):
    module = drawn.module
    verify(module)
    weights: dict[str, np.ndarray] = {}
    text = print_module(module, weights)
    again = parse(text, weights=weights)
    assert structural_equal(module, again)
    assert structural_hash(module) == structural_hash(again)
    assert print_module(again, {}) == text
    verify(again)


EXAMPLE = """\
type List[T] { Cons(T, List[T]), Nil }
where n in 1..512;
inputs("input ids", "mask");
def @total(%rows: List[Tensor[(?, 8), float32]], %acc: Tensor[(8,), float32]) -> Tensor[(8,), float32] {
  match (%rows) {
    Cons(%row, %more) => {
      let %s = reduce.sum(%row, const([0], int64));
      @total(%more, add(%s, %acc))
    },
    Nil => %acc,
  }
}
def @main(%x: Tensor[(n, 2*m + 1, (n // 4)), float32], %"input.1": (bool, float32)) {
  %0 = nn.conv(%x, const([[1.0, 2.0], [3.0, -4.5]], float32), padding=(n, -1), strides=(1,), name="a \\"b\\"", eps=1e-05);
  (exp(%0), %0, if (%"input.1".0) { 1f } else { %"input.1".1 })
}
"""


def test_the_printed_form_is_stable():
    text = print_module(parse(EXAMPLE))
    assert text == print_module(parse(text))
    assert (
        'nn.conv(%x, const([[1.0, 2.0], [3.0, -4.5]], float32), eps=1e-05, name="a \\"b\\"", padding=(n, -1)'
        in text
    )
    assert text.replace(text[text.index("%0 =") : text.index("  (exp")], "") == EXAMPLE.replace(
        EXAMPLE[EXAMPLE.index("%0 =") : EXAMPLE.index("  (exp")], ""
    )


@pytest.mark.parametrize(
    ("text", "value", "dtype"),
    [("1f", 1, "float32"), ("-2.5f", -2.5, "float32"), ("1e-05f", 1e-5, "float32"), ("0.5f64", 0.5, "float64"),
     ("3", 3, "int32"), ("-7i64", -7, "int64"), ("200u8", 200, "uint8"), ("True", True, "bool"), ("2f16", 2, "float16"),
     ("1.5bf16", 1.5, "bfloat16"), ("inff", np.inf, "float32"), ("-0.0f", -0.0, "float32")],
)  # fmt: skip
def test_scalar_literals(text, value, dtype):
    e = parse_expr(text)
    assert isinstance(e, Constant) and e.value.dtype.name == dtype and e.value.shape == ()
    assert e.value.tobytes() == np.array(value).astype(e.value.dtype).tobytes()
    assert structural_equal(parse_expr(print_expr(e)), e)


def test_infix_operators_have_their_usual_strength():
    variables = {n: Var(n) for n in "abc"}
    e = parse_expr("%a - %b * %c - %a / 2f < %c + 1f", variables=variables)
    assert print_expr(e) == "less(subtract(subtract(%a, multiply(%b, %c)), divide(%a, 2f)), add(%c, 1f))"


def test_dimensions_follow_python_precedence():
    e = parse_expr("dims(values=(-n + 2*n*n - (n + 1) // 2 % 3, min(n, 4), 2*3 - 6, n^2 - n*n))")
    n = Symbol("n")
    assert e.attrs["values"][0] == -n + 2 * n * n - ((n + 1) // 2) % 3
    assert e.attrs["values"][2:] == (0, 0) and all(type(v) is int for v in e.attrs["values"][2:])


def test_floor_division_in_a_type_is_not_a_comment():
    m = parse("def @main(%x: Tensor[(n // 2, 3), float32]) { %x } // a comment\n/* and\nanother */")
    assert m.main.params[0].type == tensor([Symbol("n") // 2, 3])


def test_an_inner_variable_shadows_an_outer_one():
    e = parse_expr("let %x = exp(%x); let %x = sqrt(%x); %x", variables={"x": Var("x")})
    assert isinstance(e, Let) and isinstance(e.body, Let)
    assert e.body.value.args[0] is e.var and e.body.body is e.body.var


def test_variables_of_one_name_are_told_apart():
    a, b = Var("x"), Var("x")
    f = Function((a, b), call("subtract", a, b))
    assert structural_equal(parse(print_module(IRModule({"main": f}))), IRModule({"main": f}))
    assert "%x, %x_1" in print_module(IRModule({"main": f}))


def test_shared_nodes_are_printed_where_all_uses_see_them():
    c, x = Var("c"), Var("x")
    inside, outside = call("exp", x), call("sqrt", x)
    body = If(c, call("add", inside, inside), call("add", outside, x))
    m = IRModule({"main": Function((c, x), Tuple((body, outside)))})
    text = print_module(m)
    assert text.index("sqrt") < text.index("if (") < text.index("exp")
    assert structural_equal(parse(text), m)


def test_large_constants_go_to_the_sidecar(tmp_path):
    weight = np.arange(65, dtype=np.float32)
    x = Var("x", tensor((65,)))
    m = IRModule({"main": Function((x,), call("add", call("add", x, Constant(weight)), Constant(weight)))})
    save_text(m, tmp_path / "model")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.relay", "model.safetensors"]
    assert 'const(@weights["k0"], Tensor[(65,), float32])' in (tmp_path / "model.relay").read_text()
    assert structural_equal(load_text(tmp_path / "model"), m)


def test_a_missing_sidecar_names_the_weight():
    with pytest.raises(ModelError, match="TEXT-005: there is no weight 'k0'"):
        parse('def @main() { const(@weights["k0"], Tensor[(65,), float32]) }')


def test_types_can_be_added_as_comments():
    m = parse("def @main(%x: Tensor[(n, 2), float32]) { let %y = exp(%x); add(%y, %y) }")
    text = print_module(m, typing=infer(m))
    assert "let %y = exp(%x);  /* Tensor[(n, 2), float32] */" in text
    assert structural_equal(parse(text), m)


def test_spans_carry_line_and_column():
    m = parse("def @main(%x: float32) {\n  exp(%x)\n}", source="model.relay")
    assert str(m.main.body.span) == "model.relay:2:3"


def test_str_of_ir_objects_is_their_text():
    m = parse(EXAMPLE)
    assert str(m) == print_module(m) and str(m.main.params[0]) == "%x"
    assert str(call("exp", Var("x"))) == "exp(%x)" and repr(Call(OpRef("exp"), ())) == "<Call exp>"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x { }", "TEXT-001: '{' cannot stand here\n  at  <text>:1:14\n  try ')', ',', ':' there"),
        ("def @main() { f(1f)", "TEXT-001: the end of the text cannot stand here\n  at  <text>:1:19"),
        ("def @main() { $ }", "TEXT-001: '$' cannot stand here\n  at  <text>:1:15"),
        ("def @main(%xs: bool) {\n %x }", "TEXT-002: %x is not bound here\n  at  <text>:2:2\n  try %xs"),
        ("def @main(%x: Tensor[(n,), float31]) { %x }", "TEXT-006: float31 is not a dtype\n  at  <text>:1:23"),
        ("def @main() { 1f } def @main() { 2f }", "TEXT-004: the function @main is defined twice"),
        ("def @main() { 300i8 }", "TEXT-006: not all of these are numbers of int8\n  at  <text>:1:15"),
        ("def @main() { const([[1], [2, 3]], float32) }", "TEXT-006: a constant is nested lists of numbers"),
        ("def @main(%x: Tensor[(n // 0,), float32]) { %x }", "TEXT-006: division by zero"),
        ("def @main(%x: bool) { match (%x) { Cons(_) => 1f } }", "TEXT-003: there is no constructor Cons"),
        ("def @main() { f(a=1, 2f) }", "TEXT-006: arguments come before attributes"),
        ("def @main() { f(a=1, a=2) }", "TEXT-004: the attribute a is given twice"),
    ],
)  # fmt: skip
def test_faults_are_named_with_their_place(text, message):
    with pytest.raises(ModelError) as e:
        parse(text)
    assert str(e.value).startswith(message)


def test_long_programs_need_no_python_stack():
    n, x = 3_000, Var("x", tensor((2,)))
    chain = x
    for _ in range(n):
        chain = call("exp", chain)
    lets, names = x, [Var(f"v{i}") for i in range(n)]
    for v in reversed(names):
        lets = Let(v, call("exp", x), lets)
    nested = x
    for _ in range(300):
        nested = If(Constant(np.array(True)), nested, x)
    assert n > sys.getrecursionlimit() * 2
    for body in (chain, lets, nested):
        m = IRModule({"main": Function((x,), body)})
        assert structural_equal(parse(print_module(m)), m)


@pytest.mark.parametrize(
    "text", ["(5).0", "(-5i8).1", "(!%x).0", "!%x.0", "%x(%x)(%x).1.2", "(%x := %x).0", "(fn() { %x })()"]
)
def test_postfix_operators_bind_tightest(text):
    e = parse_expr(text, variables={"x": X})
    assert structural_equal(parse_expr(print_expr(e), variables={"x": X}), e)

"""Functions of the model and of the standard, names of dimensions, spans, and what `main` looks like."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import as_onnxruntime, model, ours, same

from intarsia.dim import Symbol
from intarsia.frontend.onnx import load
from intarsia.ir import Call, Constant, post_order
from intarsia.ir.types import tensor
from intarsia.support.errors import ModelError

R = np.random.default_rng(3)
N = helper.make_node


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def scaled_sum():
    """y = alpha * x + bias, bias optional in the sense that the caller may leave it out."""
    alpha = N("Constant", [], ["a"])
    alpha.attribute.append(
        onnx.AttributeProto(name="value_float", type=onnx.AttributeProto.FLOAT, ref_attr_name="alpha")
    )
    nodes = [alpha, N("Mul", ["x", "a"], ["ax"]), N("Add", ["ax", "b"], ["y"])]
    return helper.make_function(
        "own", "ScaledSum", ["x", "b"], ["y"], nodes, [helper.make_opsetid("", 17)], ["alpha"]
    )


def twice():
    nodes = [N("ScaledSum", ["x", "x"], ["t"], domain="own", alpha=2.0), N("Neg", ["t"], ["y"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_function("own", "Twice", ["x"], ["y"], nodes, imports)


def test_functions_of_the_model_are_put_in_place():
    nodes = [
        N("Twice", ["x"], ["t"], domain="own"),
        N("ScaledSum", ["t", "x"], ["y"], domain="own", alpha=0.5),
    ]
    made = model(
        nodes, {"x": ("float32", ("n",))}, ["y"], functions=[scaled_sum(), twice()], domains={"own": 1}
    )
    as_onnxruntime(made, {"x": f(4)})


def test_a_function_that_calls_itself_is_refused():
    nodes = [N("Endless", ["x"], ["y"], domain="own")]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    endless = helper.make_function("own", "Endless", ["x"], ["y"], nodes, imports)
    made = model(nodes, {"x": ("float32", ("n",))}, ["y"], functions=[endless], domains={"own": 1})
    with pytest.raises(ModelError, match="ONNX-019: the function Endless calls itself"):
        load(made)


def test_a_standard_function_without_converter():
    made = model(
        [N("MeanVarianceNormalization", ["x"], ["y"])], {"x": ("float32", ("n", 2, "h", "w"))}, ["y"]
    )
    as_onnxruntime(made, {"x": f(2, 2, 3, 4)}, rtol=1e-4, atol=1e-5)


def test_dimension_names_become_symbols():
    info = helper.make_tensor_value_info
    inputs = [
        info("a", 1, ["batch size", "D.0", -1]),
        info("b", 1, ["D_0", None, "-1", "batch size"]),
        info("c", 1, ["?", 0, "3"]),
    ]
    graph = helper.make_graph([N("Neg", ["a"], ["y"])], "g", inputs, [onnx.ValueInfoProto(name="y")])
    module = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    names = ["batch_size", "D_0", "a_d2"], ["D_0_2", "b_d1", "b_d2", "batch_size"], ["c_d0", 0, "c_d2"]
    for param, dims in zip(module.main.params, names):
        assert param.type == tensor([Symbol(d) if isinstance(d, str) else d for d in dims])
    assert module.input_names == ("a", "b", "c") and module.output_names == ("y",)


def test_initializers_are_no_parameters_even_if_listed_as_inputs():
    made = model(
        [N("Add", ["x", "w"], ["y"])],
        {"x": ("float32", (2,)), "w": ("float32", (2,))},
        ["y"],
        constants={"w": f(2)},
    )
    assert [p.name for p in load(made).main.params] == ["x"]


def test_outputs_may_be_inputs_and_initializers():
    x, w = f(2), f(2)
    made = model([], {"x": ("float32", (2,))}, ["x", "w", "x"], constants={"w": w})
    same(ours(made, {"x": x}), [x, w, x])


def test_calls_carry_the_node_they_come_from():
    nodes = [N("Gemm", ["x", "x"], ["t"], name="dense/1", alpha=2.0), N("Relu", ["t"], ["y"])]
    module = load(model(nodes, {"x": ("float32", (2, 2))}, ["y"]))
    spans = {e.op.name: e.span.name for e in post_order(module.main.body) if isinstance(e, Call)}
    assert spans == {"matmul": "dense/1", "multiply": "dense/1", "nn.relu": "y"}


def test_weights_are_not_copied():
    w = f(256, 256)
    made = model([N("MatMul", ["x", "w"], ["y"])], {"x": ("float32", ("n", 256))}, ["y"], constants={"w": w})
    constant = next(e for e in post_order(load(made).main.body) if isinstance(e, Constant))
    assert not constant.value.flags.owndata and not constant.value.flags.writeable
    np.testing.assert_array_equal(constant.value, w)


def test_a_long_chain_needs_no_stack():
    nodes = [N("Neg", [f"x{i}"], [f"x{i + 1}"]) for i in range(20_000)]
    module = load(model(nodes, {"x0": ("float32", (2,))}, ["x20000"]))
    assert sum(isinstance(e, Call) for e in post_order(module.main.body)) == 20_000


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "int8", "uint16", "uint32", "uint64", "bool", "float64", "int64"]
)
@pytest.mark.parametrize("raw", [True, False])
def test_tensors_of_every_type(dtype, raw):
    from intarsia.op.entry import numpy_dtype

    if dtype == "bfloat16":
        values, code = np.array([1, 0, 3], numpy_dtype(dtype)), onnx.TensorProto.BFLOAT16
    else:
        values = np.array([1, 0, 3]).astype(dtype)
        code = helper.np_dtype_to_tensor_dtype(values.dtype)
    t = helper.make_tensor("w", code, [3], values.tobytes() if raw else values.tolist(), raw=raw)
    made = model([], {}, ["w"])
    made.graph.initializer.append(t)
    got = load(made).main.body.value
    assert got.dtype == values.dtype and got.tolist() == values.tolist()


@pytest.mark.parametrize(
    "name, arrays, attrs",
    [
        ("FastGelu", [f(2, 4), f(4)], {}),
        ("BiasGelu", [f(2, 4), f(4)], {}),
        ("QuickGelu", [f(2, 4)], {}),
        ("FusedMatMul", [f(4, 2), f(3, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
        ("SkipLayerNormalization", [f(1, 2, 4), f(1, 2, 4), f(4), f(4), f(4)], {"epsilon": 1e-5}),
    ],
)
def test_operators_of_onnxruntime(name, arrays, attrs):
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    node = N(name, list(feeds), ["y"], domain="com.microsoft", **attrs)
    inputs = {n: ("float32", a.shape) for n, a in feeds.items()}
    as_onnxruntime(model([node], inputs, ["y"], domains={"com.microsoft": 1}), feeds, rtol=1e-4, atol=1e-4)

"""Small ONNX models and their comparison with ONNX Runtime through the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from intarsia.frontend.onnx import load
from intarsia.infer import infer
from intarsia.interp import evaluate


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[str, Sequence]],
    outputs: Sequence[str],
    opset: int = 17,
    constants: Mapping[str, np.ndarray] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """inputs: name -> (dtype, shape of ints, names or None); outputs by name (their types are not stated)."""
    given = [helper.make_tensor_value_info(n, code(t), list(s)) for n, (t, s) in inputs.items()]
    results = [onnx.ValueInfoProto(name=n) for n in outputs]
    stored = [numpy_helper.from_array(a, n) for n, a in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "graph", given, results, stored)
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = 8
    return made


def code(dtype: str) -> int:
    return getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper()))


def op(
    op_type: str,
    args: Sequence[np.ndarray | None],
    *,
    opset: int,
    outputs: int = 1,
    consts: Sequence[int] = (),
    **attrs,
):
    """(model of one node, feeds). consts: positions of arguments that are initializers."""
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(args)]
    while names and not names[-1]:
        names.pop()
    arrays = {n: a for n, a in zip(names, args) if a is not None}
    constants = {n: a for n, a in arrays.items() if int(n[1:]) in consts}
    feeds = {n: a for n, a in arrays.items() if n not in constants}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op_type, names, results, name="node", **attrs)
    return model(
        [node], {n: (a.dtype.name, a.shape) for n, a in feeds.items()}, results, opset, constants
    ), feeds


def ours(made: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    module = load(made)
    value = evaluate(module, *[feeds[n] for n in module.input_names], typing=infer(module))
    return list(value) if isinstance(value, tuple) else [value]


def theirs(made: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the oracle of this test is onnxruntime")

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {n: np.asarray(a) for n, a in feeds.items()})


def same(
    got: Sequence[np.ndarray], wanted: Sequence[np.ndarray], rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    assert len(got) == len(wanted)
    for g, w in zip(got, wanted):
        w = np.asarray(w)
        assert g.dtype == w.dtype and g.shape == w.shape, (g.dtype, g.shape, w.dtype, w.shape)
        np.testing.assert_allclose(np.asarray(g), w, rtol=rtol, atol=atol, equal_nan=True)


def as_onnxruntime(
    made: onnx.ModelProto, feeds: Mapping[str, np.ndarray], rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    same(ours(made, feeds), theirs(made, feeds), rtol, atol)

"""Small ONNX models for the tests of the public functions."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def two_inputs() -> onnx.ModelProto:
    """y[batch, 4] = relu(x[batch, sequence] @ w[sequence, 4]) + bias; and the sum of y over batch."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"], name="project"),
        helper.make_node("Relu", ["product"], ["positive"], name="act"),
        helper.make_node("Add", ["positive", "bias"], ["y"], name="shift"),
        helper.make_node("ReduceSum", ["y", "axes"], ["total"], name="total", keepdims=0),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "sequence"]),
        helper.make_tensor_value_info("w", TensorProto.FLOAT, ["sequence", 4]),
    ]
    outputs = [
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4]),
        helper.make_tensor_value_info("total", TensorProto.FLOAT, [4]),
    ]
    stored = [
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "bias"),
        numpy_helper.from_array(np.array([0]), "axes"),
    ]
    graph = helper.make_graph(nodes, "two_inputs", inputs, outputs, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def expected(x: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = np.maximum(x.astype(np.float32) @ w.astype(np.float32), 0) + np.arange(4, dtype=np.float32)
    return y, y.sum(0)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)

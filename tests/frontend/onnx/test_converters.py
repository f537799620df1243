"""Converters, at the operator sets in which an operator is written differently, against ONNX Runtime."""

import numpy as np
import pytest
from onnx_models import as_onnxruntime, op, ours, same

R = np.random.default_rng(0)


def f(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def i(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


X = f(2, 3, 4)
IMAGE = f(1, 2, 5, 6)
CASES = [
    # elementwise
    ("Add", 7, [f(2, 1), f(3)], {}),
    ("Pow", 15, [np.abs(f(3)), np.array(2, np.int64)], {}),
    ("Mod", 13, [np.array([5, -5, 5], np.int32), np.array([3, 3, -3], np.int32)], {}),
    ("Mod", 13, [f(4), f(4)], {"fmod": 1}),
    ("Div", 14, [np.array([7, -7], np.int64), np.array([2, 2], np.int64)], {}),
    ("Clip", 6, [f(5)], {"min": -0.5, "max": 0.5}),
    ("Clip", 6, [f(5)], {}),
    ("Clip", 11, [f(5), np.float32(-0.5), np.float32(0.5)], {}),
    ("Clip", 13, [f(5), None, np.float32(0.5)], {}),
    ("Max", 8, [f(3, 1), f(4), f(1, 1)], {}),
    ("Sum", 13, [f(3)], {}),
    ("Mean", 13, [f(3), f(3), f(3)], {}),
    ("Cast", 13, [f(4)], {"to": 7}),
    ("PRelu", 9, [f(2, 3, 4), f(3, 1)], {}),
    ("HardSigmoid", 6, [f(5)], {"alpha": 0.3}),
    ("Selu", 6, [f(5)], {}),
    ("Gelu", 20, [f(5)], {"approximate": "tanh"}),
    ("Shrink", 9, [f(9)], {"lambd": 0.4, "bias": 0.1}),
    ("BitShift", 11, [np.array([8, 3], np.uint8), np.array([1, 2], np.uint8)], {"direction": "RIGHT"}),
    ("IsInf", 10, [np.array([np.inf, -np.inf, 1], np.float32)], {"detect_negative": 0}),
    # shapes
    ("Reshape", 5, [X, i(0, -1)], {}),
    ("Reshape", 14, [f(0, 3), i(3, 0)], {"allowzero": 1}),
    ("Flatten", 13, [X], {"axis": -1}),
    ("Squeeze", 11, [f(1, 3, 1)], {"axes": [0]}),
    ("Squeeze", 11, [f(1, 3, 1)], {}),
    ("Squeeze", 13, [f(1, 3, 1), i(-1)], {"consts": (1,)}),
    ("Unsqueeze", 11, [f(3)], {"axes": [0, 2]}),
    ("Unsqueeze", 13, [f(3), i(-1)], {"consts": (1,)}),
    ("Transpose", 13, [X], {}),
    ("Concat", 13, [f(2, 3), f(2, 1)], {"axis": -1}),
    ("Split", 11, [f(2, 7)], {"axis": 1, "split": [3, 4], "outputs": 2}),
    ("Split", 13, [f(2, 6), i(2, 4)], {"axis": 1, "outputs": 2}),
    ("Split", 18, [f(2, 7)], {"axis": 1, "num_outputs": 3, "outputs": 3}),
    ("Slice", 9, [X], {"starts": [1, 0], "ends": [2, -1], "axes": [1, 2]}),
    ("Slice", 13, [X, i(-1), i(-100), i(2), i(-2)], {"consts": (3, 4)}),
    ("Slice", 10, [X, i(0), i(1)], {}),
    ("Shape", 15, [X], {"start": 1, "end": -1}),
    ("Shape", 13, [X], {}),
    ("Tile", 13, [f(2, 1), i(1, 3)], {}),
    ("Expand", 13, [f(2, 1), i(1, 1, 3)], {}),
    ("Pad", 10, [f(2, 3)], {"pads": [0, 1, 1, 0], "value": 2.0}),
    ("Pad", 13, [f(2, 3), i(0, 1, 1, 0), np.float32(1)], {}),
    ("Pad", 18, [f(2, 3), i(1, 1), None, i(-1)], {"mode": "reflect", "consts": (3,)}),
    ("Pad", 13, [f(2, 3), i(0, -1, 1, 0)], {"mode": "edge"}),
    ("Gather", 13, [X, np.array([[0, -1]], np.int64)], {"axis": 1}),
    ("GatherElements", 13, [f(2, 2), np.array([[0, 0], [1, -1]], np.int64)], {"axis": 1}),
    ("GatherND", 12, [X, np.array([[0], [2]], np.int64)], {"batch_dims": 1}),
    ("ScatterND", 16, [f(4), np.array([[1], [1]], np.int64), f(2)], {"reduction": "add"}),
    ("ScatterElements", 16, [f(3, 3), np.array([[1, 0, 2]], np.int64), f(1, 3)], {"axis": 0}),
    ("Scatter", 9, [f(3, 3), np.array([[1, 0, 2]], np.int64), f(1, 3)], {"axis": 0}),
    (
        "OneHot",
        11,
        [np.array([0, 2, -1], np.int64), np.array(3, np.int64), f(2)],
        {"axis": 0, "consts": (1,)},
    ),
    ("EyeLike", 9, [f(3, 4)], {"k": 1}),
    ("Trilu", 14, [f(3, 4), np.array(1, np.int64)], {"upper": 0}),
    ("DepthToSpace", 13, [f(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("SpaceToDepth", 13, [f(1, 2, 4, 6)], {"blocksize": 2}),
    ("ReverseSequence", 10, [f(4, 2), i(1, 3)], {"time_axis": 0, "batch_axis": 1}),
    ("Range", 11, [np.float32(1), np.float32(4), np.float32(0.5)], {}),
    # reductions
    ("ReduceSum", 11, [X], {"axes": [1], "keepdims": 0}),
    ("ReduceSum", 13, [X, i(-1)], {"consts": (1,)}),
    ("ReduceSum", 13, [X, np.zeros(0, np.int64)], {"consts": (1,), "noop_with_empty_axes": 1}),
    ("ReduceMean", 13, [X], {"axes": [0, 2]}),
    ("ReduceMax", 18, [X, i(0)], {"consts": (1,), "keepdims": 0}),
    ("ReduceL2", 13, [X], {}),
    ("ReduceLogSumExp", 13, [X], {"axes": [1]}),
    ("ArgMax", 13, [X], {"axis": -1, "keepdims": 0, "select_last_index": 1}),
    ("ArgMin", 11, [X], {"axis": 1}),
    ("CumSum", 14, [X, np.array(-1, np.int64)], {"consts": (1,), "reverse": 1, "exclusive": 1}),
    ("TopK", 11, [f(2, 5), i(3)], {"axis": 1, "largest": 0, "outputs": 2}),
    ("TopK", 9, [f(2, 5)], {"k": 3, "outputs": 2}),
    ("Softmax", 11, [X], {}),
    ("Softmax", 11, [X], {"axis": 2}),
    ("Softmax", 13, [X], {}),
    ("LogSoftmax", 11, [X], {"axis": 0}),
    ("Hardmax", 11, [X], {}),
    ("Hardmax", 13, [X], {"axis": 1}),
    ("LpNormalization", 1, [f(3, 4)], {"p": 1, "axis": 0}),
    # networks
    ("Gemm", 13, [f(3, 2), f(4, 3), f(4)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("MatMul", 13, [f(2, 1, 3, 4), f(5, 4, 2)], {}),
    ("Einsum", 12, [f(2, 3, 4), f(2, 4, 5)], {"equation": "bij,bjk->bik"}),
    ("Einsum", 12, [f(2, 3, 4), f(5, 4)], {"equation": "...j,kj->k..."}),
    ("Einsum", 12, [f(3, 3)], {"equation": "ii->i"}),
    ("Einsum", 12, [f(2, 3), f(3, 4), f(4)], {"equation": "ab,bc,c"}),
    (
        "Conv",
        11,
        [IMAGE, f(4, 1, 3, 2), f(4)],
        {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]},
    ),
    ("Conv", 11, [IMAGE, f(3, 2, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ("Conv", 11, [f(2, 3, 7), f(2, 3, 3)], {"auto_pad": "VALID"}),
    (
        "ConvTranspose",
        11,
        [f(1, 2, 3, 4), f(2, 3, 3, 3)],
        {"strides": [2, 2], "pads": [1, 1, 0, 0], "output_padding": [1, 0]},
    ),
    ("ConvTranspose", 11, [f(1, 1, 3, 3), f(1, 2, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ("ConvTranspose", 11, [f(1, 1, 3, 3), f(1, 2, 3, 3)], {"strides": [3, 2], "output_shape": [10, 8]}),
    ("MaxPool", 12, [IMAGE], {"kernel_shape": [2, 3], "strides": [2, 2], "ceil_mode": 1}),
    ("AveragePool", 11, [IMAGE], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
    ("LpPool", 18, [IMAGE], {"kernel_shape": [2, 2], "p": 3}),
    ("GlobalAveragePool", 1, [IMAGE], {}),
    ("GlobalMaxPool", 1, [IMAGE], {}),
    ("BatchNormalization", 9, [IMAGE, f(2), f(2), f(2), np.abs(f(2))], {"epsilon": 1e-3}),
    ("InstanceNormalization", 6, [IMAGE, f(2), f(2)], {}),
    ("GroupNormalization", 18, [f(2, 4, 3), f(2), f(2)], {"num_groups": 2}),
    ("GroupNormalization", 21, [f(2, 4, 3), f(4), f(4)], {"num_groups": 2}),
    ("LayerNormalization", 17, [X, f(3, 4), f(3, 4)], {"axis": 1, "outputs": 3}),
    ("LRN", 13, [IMAGE], {"size": 3, "alpha": 0.1}),
    ("Dropout", 11, [X], {}),
    ("Resize", 10, [IMAGE, np.array([1, 1, 2, 1.5], np.float32)], {"consts": (1,)}),
    (
        "Resize",
        11,
        [IMAGE, np.zeros(0, np.float32), np.zeros(0, np.float32), i(1, 2, 7, 3)],
        {"consts": (1, 2), "mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    ("Resize", 13, [IMAGE, None, np.array([1, 1, 2, 0.5], np.float32)], {"consts": (2,), "mode": "cubic"}),
    ("Upsample", 9, [IMAGE, np.array([1, 1, 2, 3], np.float32)], {"consts": (1,)}),
    ("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 2.0], "mode": "linear"}),
    ("LSTM", 14, [f(3, 2, 4), f(1, 20, 4), f(1, 20, 5), f(1, 40)], {"hidden_size": 5, "outputs": 3}),
    (
        "LSTM",
        14,
        [f(3, 2, 4), f(2, 20, 4), f(2, 20, 5), None, np.array([3, 2], np.int32)],
        {"hidden_size": 5, "direction": "bidirectional", "outputs": 3},
    ),
    (
        "GRU",
        14,
        [f(3, 2, 4), f(1, 15, 4), f(1, 15, 5), f(1, 30)],
        {"hidden_size": 5, "linear_before_reset": 1, "outputs": 2},
    ),
    (
        "RNN",
        14,
        [f(3, 2, 4), f(1, 5, 4), f(1, 5, 5)],
        {"hidden_size": 5, "activations": ["Relu"], "outputs": 2},
    ),
    # quantised
    ("QuantizeLinear", 13, [f(2, 3) * 50, np.abs(f(3)), np.array([1, 2, 3], np.int8)], {"axis": 1}),
    ("DequantizeLinear", 13, [np.array([[1, 2], [250, 4]], np.uint8), np.float32(0.5), np.uint8(7)], {}),
    ("DynamicQuantizeLinear", 11, [f(3, 4)], {"outputs": 3}),
    (
        "MatMulInteger",
        10,
        [np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(6, dtype=np.int8).reshape(3, 2), np.uint8(2)],
        {},
    ),
    (
        "ConvInteger",
        10,
        [np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4), np.ones((1, 1, 2, 2), np.uint8), np.uint8(3)],
        {},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[1]}")
def test_as_onnxruntime(case):
    pytest.importorskip("onnxruntime")
    name, opset, args, attrs = case
    made, feeds = op(name, [a if a is None else np.asarray(a) for a in args], opset=opset, **attrs)
    tolerance = 1e-4 if name in ("Resize", "Upsample", "Einsum", "LpPool") else 1e-5
    as_onnxruntime(made, feeds, rtol=tolerance, atol=1e-5)


def test_operands_are_aligned_by_axis_before_operator_set_7():
    x, y = f(2, 3, 4), f(3)
    made, feeds = op("Add", [x, y], opset=6, broadcast=1, axis=1)
    same(ours(made, feeds), [x + y[:, None]])


def test_per_channel_slopes_before_operator_set_7():
    x, slope = f(2, 3, 4), np.array([0.1, 0.2, 0.3], np.float32)
    made, feeds = op("PRelu", [x, slope], opset=6)
    same(ours(made, feeds), [np.where(x < 0, x * slope[:, None], x)])


def test_batch_statistics_in_training_mode():
    x, one, zero = f(4, 2, 3), np.ones(2, np.float32), np.zeros(2, np.float32)
    made, feeds = op(
        "BatchNormalization", [x, one, zero, zero, one], opset=14, outputs=3, training_mode=1, momentum=0.5
    )
    mean, var = x.mean((0, 2)), x.var((0, 2))
    y = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    same(ours(made, feeds), [y, mean * 0.5, 0.5 + var * 0.5], atol=1e-5)


def test_dropout_drops_nothing():
    for opset in (6, 11):
        made, feeds = op("Dropout", [X], opset=opset)
        same(ours(made, feeds), [X])

"""If, Loop and Scan against ONNX Runtime: captured values, sizes that change, no iterations, nesting."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import as_onnxruntime, code, model, ours, same

from intarsia.frontend.onnx import load
from intarsia.support.errors import UnsupportedError

R = np.random.default_rng(1)
N = helper.make_node


def graph(nodes, inputs, outputs):
    """A body; inputs: name -> dtype. Shapes are stated of counters and conditions only."""
    given = [
        helper.make_tensor_value_info(n, code(t), None if t == "float32" else ()) for n, t in inputs.items()
    ]
    results = [helper.make_tensor_value_info(n, code(t), None) for n, t in outputs.items()]
    return helper.make_graph(nodes, "body", given, results)


def int64(name, *values):
    return N("Constant", [], [name], value_ints=list(values))


def true(name):
    return N("Constant", [], [name], value=onnx.numpy_helper.from_array(np.array(True)))


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def i64(value):
    return np.array(value, np.int64)


# ---- If ----------------------------------------------------------------------------------------------------
def choice():
    then = graph(
        [N("Add", ["x", "y"], ["a"]), N("Mul", ["x", "x"], ["b"])], {}, {"a": "float32", "b": "float32"}
    )
    orelse = graph(
        [N("Sub", ["x", "y"], ["c"]), N("Neg", ["y"], ["d"])], {}, {"c": "float32", "d": "float32"}
    )
    nodes = [N("Abs", ["z"], ["y"]), N("If", ["on"], ["p", "q"], then_branch=then, else_branch=orelse)]
    return model(nodes, {"on": ("bool", ()), "x": ("float32", ("n",)), "z": ("float32", ("n",))}, ["p", "q"])


@pytest.mark.parametrize("on", [True, False])
def test_branches_use_values_from_outside(on):
    as_onnxruntime(choice(), {"on": np.array(on), "x": f(3), "z": f(3)})


def test_a_branch_may_have_other_sizes():
    then = graph([N("Concat", ["x", "x"], ["a"], axis=0)], {}, {"a": "float32"})
    orelse = graph([N("Identity", ["x"], ["b"])], {}, {"b": "float32"})
    nodes = [N("If", ["on"], ["p"], then_branch=then, else_branch=orelse), N("Neg", ["p"], ["q"])]
    made = model(nodes, {"on": ("bool", ()), "x": ("float32", ("n",))}, ["q"])
    for on in (True, False):
        as_onnxruntime(made, {"on": np.array(on), "x": f(3)})


def squeeze_or_not(size):
    """What torch.squeeze(x, 1) exports to: without a static rank unless the size is known."""
    then = graph([int64("one", 1), N("Squeeze", ["x", "one"], ["a"])], {}, {"a": "float32"})
    orelse = graph([N("Identity", ["x"], ["b"])], {}, {"b": "float32"})
    nodes = [
        N("Shape", ["x"], ["shape"]), int64("place", 1), N("Gather", ["shape", "place"], ["size"]),
        int64("k", 1),
        N("Equal", ["size", "k"], ["on"]), N("If", ["on"], ["y"], then_branch=then, else_branch=orelse),
    ]  # fmt: skip
    return model(nodes, {"x": ("float32", ("n", size, 2))}, ["y"])


def test_a_condition_on_a_known_size_picks_the_branch():
    as_onnxruntime(squeeze_or_not(1), {"x": f(3, 1, 2)})
    x = f(3, 4, 2)
    same(
        ours(squeeze_or_not(4), {"x": x}), [x]
    )  # ONNX Runtime looks at the other branch all the same, and refuses


def test_squeeze_of_an_unknown_size_is_checked_at_run_time():
    from intarsia.support.errors import Error

    as_onnxruntime(squeeze_or_not("m"), {"x": f(3, 1, 2)})
    with pytest.raises(Error):
        ours(squeeze_or_not("m"), {"x": f(3, 4, 2)})


def test_branches_of_different_rank_are_refused():
    then = graph([N("ReduceSum", ["x"], ["a"], keepdims=0)], {}, {"a": "float32"})
    orelse = graph([N("Identity", ["x"], ["b"])], {}, {"b": "float32"})
    nodes = [N("If", ["on"], ["y"], name="choose", then_branch=then, else_branch=orelse)]
    with pytest.raises(UnsupportedError, match="ONNX-021.*different types"):
        load(model(nodes, {"on": ("bool", ()), "x": ("float32", ("n",))}, ["y"]))


# ---- Loop --------------------------------------------------------------------------------------------------
def running_sum():
    """y <- y + w * x, gathering every y; stops when the sum of y is above a limit."""
    body = graph(
        [
            N("Mul", ["w", "x"], ["t"]), N("Add", ["y", "t"], ["z"]),
            N("ReduceSum", ["z"], ["s"], keepdims=0),
            N("Less", ["s", "limit"], ["go"]), N("Identity", ["z"], ["all"]),
        ],
        {"i": "int64", "on": "bool", "y": "float32"},
        {"go": "bool", "z": "float32", "all": "float32"},
    )  # fmt: skip
    nodes = [N("Loop", ["n", "", "y0"], ["y", "ys"], body=body)]
    inputs = {
        "n": ("int64", ()),
        "x": ("float32", ("k",)),
        "y0": ("float32", ("k",)),
        "limit": ("float32", ()),
    }
    return model(nodes, inputs, ["y", "ys"], constants={"w": np.float32(2)})


@pytest.mark.parametrize("n", [1, 5, 100])
def test_states_results_and_an_early_end(n):
    feeds = {"n": i64(n), "x": np.ones(3, np.float32), "y0": np.zeros(3, np.float32), "limit": np.float32(40)}
    as_onnxruntime(running_sum(), feeds)


def test_gathered_results_keep_known_sizes_without_iterations():
    feeds = {"n": i64(0), "x": f(3), "y0": f(3), "limit": np.float32(40)}
    same(ours(running_sum(), feeds), [feeds["y0"], np.zeros((0, 3), np.float32)])


def growing():
    """A state that gets longer with every iteration."""
    body = graph(
        [N("Identity", ["on"], ["go"]), N("Concat", ["y", "x"], ["z"], axis=0), N("Shape", ["z"], ["size"])],
        {"i": "int64", "on": "bool", "y": "float32"},
        {"go": "bool", "z": "float32", "size": "int64"},
    )
    nodes = [true("yes"), N("Loop", ["n", "yes", "y0"], ["y", "sizes"], body=body)]
    return model(
        nodes, {"n": ("int64", ()), "x": ("float32", ("k", 2)), "y0": ("float32", (1, 2))}, ["y", "sizes"]
    )


@pytest.mark.parametrize("n", [1, 4])
def test_a_state_may_grow(n):
    as_onnxruntime(growing(), {"n": i64(n), "x": f(3, 2), "y0": f(1, 2)})


def test_a_state_that_may_grow_need_not():
    y0 = f(1, 2)
    same(ours(growing(), {"n": i64(0), "x": f(3, 2), "y0": y0}), [y0, np.zeros((0, 2), np.int64)])


def test_gathered_pieces_of_a_size_that_only_the_body_knows():
    body = graph(
        [
            N("Identity", ["on"], ["go"]), N("Concat", ["x", "x"], ["two"], axis=0), int64("axis", 0),
            N("CumSum", ["two", "axis"], ["piece"]), N("Add", ["y", "y"], ["z"]),
        ],
        {"i": "int64", "on": "bool", "y": "float32"},
        {"go": "bool", "z": "float32", "piece": "float32"},
    )  # fmt: skip
    nodes = [true("yes"), N("Loop", ["n", "yes", "y0"], ["y", "pieces"], body=body)]
    made = model(
        nodes, {"n": ("int64", ()), "x": ("float32", ("k",)), "y0": ("float32", ())}, ["y", "pieces"]
    )
    for n in (1, 3):
        as_onnxruntime(made, {"n": i64(n), "x": f(3), "y0": np.float32(1)})


def test_a_condition_alone_ends_a_loop():
    body = graph(
        [N("Add", ["y", "y"], ["z"]), N("Less", ["z", "limit"], ["go"])],
        {"i": "int64", "on": "bool", "y": "float32"},
        {"go": "bool", "z": "float32"},
    )
    nodes = [true("yes"), N("Loop", ["", "yes", "y0"], ["y"], body=body)]
    made = model(nodes, {"y0": ("float32", ()), "limit": ("float32", ())}, ["y"])
    as_onnxruntime(made, {"y0": np.float32(1), "limit": np.float32(1000)})


def test_loops_in_loops_and_branches_in_loops():
    inner = graph(
        [N("Identity", ["b"], ["bb"]), N("Concat", ["v", "x"], ["w"], axis=0)],
        {"j": "int64", "b": "bool", "v": "float32"},
        {"bb": "bool", "w": "float32"},
    )
    then = graph([N("Neg", ["grown"], ["t"])], {}, {"t": "float32"})
    orelse = graph([N("Identity", ["grown"], ["e"])], {}, {"e": "float32"})
    outer = graph(
        [
            N("Identity", ["a"], ["aa"]), int64("two", 2), N("Squeeze", ["two"], ["m"]),
            N("Loop", ["m", "a", "u"], ["grown"], body=inner),
            int64("one", 1), N("Squeeze", ["one"], ["k"]), N("Equal", ["i", "k"], ["odd"]),
            N("If", ["odd"], ["uu"], then_branch=then, else_branch=orelse),
        ],
        {"i": "int64", "a": "bool", "u": "float32"},
        {"aa": "bool", "uu": "float32"},
    )  # fmt: skip
    nodes = [true("yes"), N("Loop", ["n", "yes", "u0"], ["y"], body=outer)]
    made = model(nodes, {"n": ("int64", ()), "x": ("float32", ("k",)), "u0": ("float32", ("h",))}, ["y"])
    for n in (0, 1, 3):
        as_onnxruntime(made, {"n": i64(n), "x": f(2), "u0": f(1)})
    assert sorted(load(made).functions) == ["loop_0", "loop_1", "main"]


def test_a_state_of_changing_rank_is_refused():
    body = graph(
        [N("Identity", ["on"], ["go"]), int64("a", 0), N("Unsqueeze", ["y", "a"], ["z"])],
        {"i": "int64", "on": "bool", "y": "float32"},
        {"go": "bool", "z": "float32"},
    )
    nodes = [N("Loop", ["n", "", "y0"], ["y"], name="deeper", body=body)]
    with pytest.raises(UnsupportedError, match="ONNX-021: Loop: state 1"):
        load(model(nodes, {"n": ("int64", ()), "y0": ("float32", ("k",))}, ["y"]))


# ---- Scan --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("attrs", [
    {}, {"scan_input_directions": [1]}, {"scan_input_axes": [1]}, {"scan_output_axes": [1]},
    {"scan_output_axes": [-1], "scan_output_directions": [1]},
])  # fmt: skip
def test_scan(attrs):
    body = graph(
        [N("Add", ["h", "x"], ["sum"]), N("Mul", ["sum", "w"], ["y"])],
        {"h": "float32", "x": "float32"},
        {"sum": "float32", "y": "float32"},
    )
    nodes = [N("Scan", ["h0", "xs"], ["h", "ys"], body=body, num_scan_inputs=1, **attrs)]
    made = model(
        nodes, {"h0": ("float32", ("k",)), "xs": ("float32", ("a", "b")), "w": ("float32", ())}, ["h", "ys"]
    )
    as_onnxruntime(made, {"h0": f(4), "xs": f(4, 4), "w": np.float32(0.5)})


def test_scan_over_nothing():
    body = graph(
        [N("Add", ["h", "x"], ["s"]), N("Identity", ["s"], ["y"])],
        {"h": "float32", "x": "float32"},
        {"s": "float32", "y": "float32"},
    )
    nodes = [N("Scan", ["h0", "xs"], ["h", "ys"], body=body, num_scan_inputs=1)]
    made = model(nodes, {"h0": ("float32", ("k",)), "xs": ("float32", ("t", "k"))}, ["h", "ys"])
    h0 = f(3)
    same(ours(made, {"h0": h0, "xs": np.zeros((0, 3), np.float32)}), [h0, np.zeros((0, 3), np.float32)])

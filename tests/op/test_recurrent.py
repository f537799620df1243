"""LSTM, GRU and RNN against ONNX's reference evaluator and a plain NumPy recurrence written here."""

import numpy as np
import pytest
from stage_oracle import onnx_reference, run_operator

import intarsia.op.recurrent  # noqa: F401
from intarsia.dim import Symbol
from intarsia.ir.types import TupleType, tensor
from intarsia.op import entry
from intarsia.support.errors import TypeCheckError

rng = np.random.default_rng(5)
GATES = {"nn.lstm": 4, "nn.gru": 3, "nn.rnn": 1}
TIME_AND_BATCH = ((0, 0), (0, 1))


def operands(
    name, steps, batch, features, hidden, directions, *, bias=True, states=True, lens=None, peepholes=False
):
    g = GATES[name]

    def data(*shape):
        return (rng.standard_normal(shape) * 0.5).astype(np.float32)

    arrays = [
        data(steps, batch, features),
        data(directions, g * hidden, features),
        data(directions, g * hidden, hidden),
        data(directions, 2 * g * hidden) if bias else None,
        None if lens is None else np.array(lens, np.int32),
        data(directions, batch, hidden) if states else None,
    ]
    if name == "nn.lstm":
        arrays.append(data(directions, batch, hidden) if states else None)
        arrays.append(data(directions, 3 * hidden) if peepholes else None)
    return arrays


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def by_hand(name, arrays, direction, *, linear=False, input_forget=False):
    """One sequence, one step, one direction at a time, in float64."""
    x, w, r, b, lens, h0, *more = [None if a is None else a.astype(np.float64) for a in arrays]
    c0, p = (more + [None, None])[:2]
    steps, batch, hidden = x.shape[0], x.shape[1], r.shape[2]
    flips = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    y = np.zeros((steps, len(flips), batch, hidden))
    last_h, last_c = np.zeros((len(flips), batch, hidden)), np.zeros((len(flips), batch, hidden))
    for d, flip in enumerate(flips):
        rows = r.shape[1]
        bw, br = (np.zeros(rows), np.zeros(rows)) if b is None else (b[d, :rows], b[d, rows:])
        for n in range(batch):
            h = np.zeros(hidden) if h0 is None else h0[d, n]
            c = np.zeros(hidden) if c0 is None else c0[d, n]
            length = steps if lens is None else int(lens[n])
            for t in reversed(range(length)) if flip else range(length):
                a, q = w[d] @ x[t, n] + bw, r[d] @ h + br
                part = [slice(k * hidden, (k + 1) * hidden) for k in range(4)]
                if name == "nn.rnn":
                    h = np.tanh(a + q)
                elif name == "nn.gru":
                    z, reset = sigmoid((a + q)[part[0]]), sigmoid((a + q)[part[1]])
                    if linear:
                        cand = np.tanh(a[part[2]] + reset * q[part[2]])
                    else:
                        cand = np.tanh(a[part[2]] + r[d][part[2]] @ (reset * h) + br[part[2]])
                    h = (1 - z) * cand + z * h
                else:
                    s, peep = a + q, np.zeros((3, hidden)) if p is None else p[d].reshape(3, hidden)
                    i = sigmoid(s[part[0]] + peep[0] * c)
                    f = 1 - i if input_forget else sigmoid(s[part[2]] + peep[2] * c)
                    c = f * c + i * np.tanh(s[part[3]])
                    h = sigmoid(s[part[1]] + peep[1] * c) * np.tanh(c)
                y[t, d, n] = h
            last_h[d, n], last_c[d, n] = h, c
    return (y, last_h, last_c) if name == "nn.lstm" else (y, last_h)


CASES = [
    # steps, batch, features, hidden, direction, more
    (3, 1, 4, 5, "forward", {}),
    (2, 1, 2, 17, "reverse", {"bias": False}),
    (3, 2, 2, 4, "bidirectional", {"lens": [3, 1]}),
    (2, 4, 3, 3, "bidirectional", {"states": False}),
    (1, 1, 1, 1, "forward", {"states": False, "bias": False}),
    (0, 2, 3, 4, "forward", {}),
    (2, 0, 3, 4, "forward", {}),
    (3, 3, 2, 4, "reverse", {"lens": [0, 2, 3]}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c[:5])))
@pytest.mark.parametrize("name", ["nn.lstm", "nn.gru", "nn.rnn"])
def test_recurrences_by_hand(name, case):
    steps, batch, features, hidden, direction, more = case
    arrays = operands(name, steps, batch, features, hidden, 2 if direction == "bidirectional" else 1, **more)
    expect = by_hand(name, arrays, direction)
    attrs = {"hidden": hidden, "direction": direction}
    symbolic = () if batch == 1 else TIME_AND_BATCH
    run_operator(name, arrays, attrs, symbolic=symbolic, expect=expect, atol=1e-5)


@pytest.mark.parametrize(
    "name, attrs", [("nn.lstm", {"input_forget": True}), ("nn.gru", {"linear_before_reset": True})]
)
@pytest.mark.parametrize("bias", [True, False])
def test_variants_by_hand(name, attrs, bias):
    arrays = operands(name, 3, 2, 3, 5, 2, lens=[2, 3], bias=bias)
    expect = by_hand(name, arrays, "bidirectional", linear=name == "nn.gru", input_forget=name == "nn.lstm")
    run_operator(name, arrays, {"direction": "bidirectional", **attrs}, expect=expect, atol=1e-5)


def test_lstm_peepholes():
    arrays = operands("nn.lstm", 3, 1, 2, 18, 1, peepholes=True)
    expect = by_hand("nn.lstm", arrays, "forward")
    run_operator("nn.lstm", arrays, {"hidden": 18}, expect=expect, atol=1e-5)


@pytest.mark.parametrize("name, op", [("nn.lstm", "LSTM"), ("nn.gru", "GRU"), ("nn.rnn", "RNN")])
def test_recurrences_equal_onnx(name, op):
    arrays = operands(name, 3, 2, 3, 4, 1)
    expect = onnx_reference(op, arrays, 3 if op == "LSTM" else 2, hidden_size=4)
    run_operator(name, arrays, {"hidden": 4}, expect=expect, atol=1e-5)


@pytest.mark.parametrize("name", ["nn.lstm", "nn.gru", "nn.rnn"])
def test_batch_first_layout(name):
    arrays = operands(name, 3, 2, 3, 4, 2, lens=[2, 3])
    y, *states = by_hand(name, arrays, "bidirectional")
    expect = (y.transpose(2, 0, 1, 3), *(s.swapaxes(0, 1) for s in states))
    for i in (0, 5, 6):
        if i < len(arrays):
            arrays[i] = np.ascontiguousarray(arrays[i].swapaxes(0, 1))
    attrs = {"direction": "bidirectional", "layout": 1}
    run_operator(name, arrays, attrs, symbolic=TIME_AND_BATCH, expect=expect, atol=1e-5)


ACTIVATIONS = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda v: np.maximum(v, 0),
    "softsign": lambda v: v / (1 + abs(v)),
    "softplus": lambda v: np.log1p(np.exp(v)),
    "affine": lambda v: 0.7 * v + 0.3,
    "leaky_relu": lambda v: np.where(v < 0, 0.7 * v, v),
    "thresholded_relu": lambda v: np.where(v > 0.7, v, 0),
    "elu": lambda v: np.where(v < 0, 0.7 * (np.exp(v) - 1), v),
    "scaled_tanh": lambda v: 0.7 * np.tanh(0.3 * v),
    "hard_sigmoid": lambda v: np.clip(0.7 * v + 0.3, 0, 1),
}


@pytest.mark.parametrize("function", ACTIVATIONS)
@pytest.mark.parametrize("clip", [None, 0.5])
def test_activations(function, clip):
    x, w, r, *_ = arrays = operands("nn.rnn", 1, 2, 3, 20, 1, bias=False, states=False)
    before = x[0] @ w[0].T.astype(np.float64)
    after = ACTIVATIONS[function](before if clip is None else np.clip(before, -clip, clip))
    attrs = {"activations": (function,), "activation_alpha": (0.7,), "activation_beta": (0.3,), "clip": clip}
    run_operator("nn.rnn", arrays, attrs, expect=(after[None, None], after[None]), atol=1e-6)


def test_activations_may_differ_per_direction():
    x, w, r, *_ = arrays = operands("nn.rnn", 2, 1, 3, 4, 2, bias=False, states=False)
    forward = by_hand("nn.rnn", [x, w[:1], r[:1], None, None, None], "forward")[0]
    (y, _) = run_operator("nn.rnn", arrays, {"direction": "bidirectional", "activations": ("tanh", "relu")})
    np.testing.assert_allclose(y[:, :1], forward, rtol=1e-5, atol=1e-6)
    assert (y[:, 1] >= 0).all()


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types(dtype):
    arrays = [None if a is None else a.astype(dtype) for a in operands("nn.lstm", 2, 1, 3, 4, 1)]
    expect = by_hand("nn.lstm", arrays, "forward")
    run_operator("nn.lstm", arrays, expect=expect, rtol=1e-2 if dtype == "float16" else 1e-10, atol=1e-3)


def test_types_are_symbolic():
    t, b = Symbol("t"), Symbol("b")
    types = [tensor((t, b, 8)), tensor((2, 64, 8)), tensor((2, 64, 16))]
    site = entry.Site(entry.get("nn.lstm"), [entry.Arg(a) for a in types], {"direction": "bidirectional"})
    result = site.op.rule(site)
    assert isinstance(result, TupleType)
    assert [str(f) for f in result.fields] == ["Tensor[(t, 2, b, 16), float32]"] + [
        "Tensor[(2, b, 16), float32]"
    ] * 2


@pytest.mark.parametrize(
    "change, attrs, words",
    [
        ({1: (1, 17, 3)}, {}, "w "),
        ({2: (2, 16, 4)}, {}, "r "),
        ({3: (1, 16)}, {}, "b "),
        ({0: (2, 3)}, {}, "3 dimensions"),
        ({}, {"direction": "sideways"}, "sideways"),
        ({}, {"activations": ("sigmoid",)}, "3 activations"),
        ({}, {"activations": ("sigmoid", "tanh", "swish")}, "swish"),
        ({}, {"layout": 2}, "layout"),
    ],
)
def test_misfits_are_refused(change, attrs, words):
    shapes = {0: (5, 2, 3), 1: (1, 16, 3), 2: (1, 16, 4), 3: (1, 32), **change}
    site = entry.Site(entry.get("nn.lstm"), [entry.Arg(tensor(shapes[i])) for i in range(4)], attrs)
    with pytest.raises(TypeCheckError, match=words):
        site.op.rule(site)


@pytest.mark.parametrize("name", ["nn.lstm", "nn.gru", "nn.rnn"])
@pytest.mark.parametrize("cpu", ["host", "x86-64", "few registers"])
def test_loops_as_machine_code(name, cpu, monkeypatch):
    """The same loops through the code generator: several rows at once, ragged blocks, many lengths."""
    import loop_oracle
    from tests.codegen import harness

    target = {"host": harness.native_target(), "x86-64": harness.sse2()}.get(cpu) or harness.native_target(
        registers=8
    )

    def run_native(producer, arrays, symbols):
        return tuple(harness.run(loop_oracle.opaque_kernel(producer, target), arrays, symbols, target))

    monkeypatch.setattr(loop_oracle, "run_opaque", run_native)
    arrays = operands(name, 5, 7, 3, 37, 2, lens=[5, 0, 3, 4, 5, 1, 2])
    expect = by_hand(name, arrays, "bidirectional")
    run_operator(
        name, arrays, {"direction": "bidirectional"}, symbolic=TIME_AND_BATCH, expect=expect, atol=1e-5
    )

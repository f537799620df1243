"""Recurrent networks over whole sequences (ONNX LSTM-22, GRU-22, RNN-22).

Activations have the names of `kernel.library.recurrent_loops.ACTIVATION_DEFAULTS`; they are given once for
all directions or once per direction. As in ONNX, activation_alpha and activation_beta hold values for those
activations that have such a parameter, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intarsia.dim import Dim, as_dim
from intarsia.ir.types import TensorType, TupleType
from intarsia.kernel.expr import Buffer
from intarsia.kernel.library import recurrent as cells
from intarsia.kernel.library.recurrent_loops import ACTIVATION_DEFAULTS, CellActivation, Sequences
from intarsia.op.entry import Operator, Site, register

_REVERSED = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_ATTRS = {
    "hidden": None,
    "direction": "forward",
    "activation_alpha": None,
    "activation_beta": None,
    "clip": None,
    "layout": 0,
}


def _plain(name: object) -> str:
    """'HardSigmoid', 'hard_sigmoid' and 'hardsigmoid' are one name."""
    return str(name).lower().replace("_", "")


def _cell_activations(site: Site, count: int) -> list[tuple[CellActivation, ...]]:
    """The `count` activations of each direction, with their parameters."""
    directions = len(_REVERSED[site.attrs["direction"]])
    names = tuple(_plain(a) for a in site.attrs["activations"])
    if len(names) == count:
        names *= directions
    if len(names) != count * directions:
        site.fail(f"needs {count} activations per direction, not {len(names)} for {directions}")
    alphas, betas = list(site.attrs["activation_alpha"] or ()), list(site.attrs["activation_beta"] or ())
    made = []
    for name in names:
        if name not in ACTIVATION_DEFAULTS:
            site.fail(f"there is no activation {name}", remedy=f"one of {', '.join(ACTIVATION_DEFAULTS)}")
        has_alpha, has_beta = (d is not None for d in ACTIVATION_DEFAULTS[name])
        alpha = alphas.pop(0) if has_alpha and alphas else None
        beta = betas.pop(0) if has_beta and betas else None
        made.append(CellActivation(name, alpha, beta))
    return [tuple(made[d * count : (d + 1) * count]) for d in range(directions)]


def _rule(site: Site, gates: int, functions: int, states: int) -> TupleType:
    """Types of y and the last states. Arguments: x, w, r, b?, lens?, h0?, (c0?, p?)."""
    if site.attrs["direction"] not in _REVERSED:
        site.fail(f"direction {site.attrs['direction']!r} is not one of {', '.join(_REVERSED)}")
    if site.attrs["layout"] not in (0, 1):
        site.fail(f"layout must be 0 (time first) or 1 (batch first), not {site.attrs['layout']}")
    _cell_activations(site, functions)
    for i, (what, rank) in enumerate((("x", 3), ("w", 3), ("r", 3), ("b", 2))):
        if site.has(i) and (site.rank(i) != rank or site.dtype(i) != site.dtype(0)):
            site.fail(f"{what} must have {rank} dimensions and the type of x, not {site.tensor(i)}")
    if site.dtype(0) not in ("float32", "float64", "float16", "bfloat16"):
        site.fail(f"the data must be floating-point, not {site.dtype(0)}")
    first, second, features = site.shape(0)
    batch, steps = (first, second) if site.attrs["layout"] else (second, first)
    h, count = _hidden(site), len(_REVERSED[site.attrs["direction"]])
    expected: list[tuple[int, Sequence[Dim | int], str]] = [
        (1, (count, gates * h, features), "w [directions, gates·hidden, features]"),
        (2, (count, gates * h, h), "r [directions, gates·hidden, hidden]"),
        (3, (count, 2 * gates * h), "b [directions, 2·gates·hidden]"),
        (4, (batch,), "lens [batch]"),
    ]
    state = (batch, count, h) if site.attrs["layout"] else (count, batch, h)
    expected += [(5 + i, state, "initial state") for i in range(states)]
    if states == 2:
        expected.append((7, (count, 3 * h), "p [directions, 3·hidden]"))
    for i, shape, what in expected:
        if not site.has(i):
            continue
        if site.rank(i) != len(shape):
            site.fail(f"{what} must have {len(shape)} dimensions, not {site.rank(i)}")
        for k, (d, wanted) in enumerate(zip(site.shape(i), shape)):
            site.equal(d, wanted, f"dimension {k} of {what}")
    if site.has(4) and "int" not in site.dtype(4):
        site.fail(f"lens must be integers, not {site.dtype(4)}")
    y = (batch, steps, count, h) if site.attrs["layout"] else (steps, count, batch, h)
    shapes = [y, *([state] * states)]
    return TupleType(tuple(TensorType(tuple(map(as_dim, s)), site.dtype(0)) for s in shapes))


def _hidden(site: Site) -> int:
    h = site.attrs["hidden"]
    if h is None:
        last = site.shape(2)[2]
        if not last.is_const:
            site.fail("the hidden size must be known: give the attribute hidden")
        return last.value
    return int(h)


def _sequences(site: Site) -> Sequences:
    first, second, _ = site.shape(0)
    batch_first = bool(site.attrs["layout"])
    batch, steps = (first, second) if batch_first else (second, first)
    reverse = _REVERSED[site.attrs["direction"]]
    return Sequences(_hidden(site), steps, batch, reverse, batch_first, site.dtype(0))


def _filled(buffers: list, count: int) -> list[Buffer | None]:
    return [*buffers, *[None] * (count - len(buffers))]


# ---- the NumPy side ---------------------------------------------------------------------------------------
_NUMPY_ACTIVATIONS = {
    "sigmoid": lambda x, a, b: 1 / (1 + np.exp(-x)),
    "tanh": lambda x, a, b: np.tanh(x),
    "relu": lambda x, a, b: np.maximum(x, 0),
    "softsign": lambda x, a, b: x / (1 + np.abs(x)),
    "softplus": lambda x, a, b: np.logaddexp(0, x),
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": lambda x, a, b: np.where(x < 0, a * x, x),
    "thresholdedrelu": lambda x, a, b: np.where(x > a, x, 0),
    "elu": lambda x, a, b: np.where(x < 0, a * np.expm1(np.minimum(x, 0)), x),
    "scaledtanh": lambda x, a, b: a * np.tanh(b * x),
    "hardsigmoid": lambda x, a, b: np.clip(a * x + b, 0, 1),
}


def _numpy_functions(names, alphas, betas, clip):
    """One callable per activation; each clips its argument where `clip` is given."""
    alphas, betas, made = list(alphas or ()), list(betas or ()), []
    for name in map(_plain, names):
        default_a, default_b = ACTIVATION_DEFAULTS[name]
        a = alphas.pop(0) if default_a is not None and alphas else default_a
        b = betas.pop(0) if default_b is not None and betas else default_b

        def function(x, limit=clip, f=_NUMPY_ACTIVATIONS[name], a=a, b=b):
            with np.errstate(over="ignore"):
                return f(np.clip(x, -limit, limit) if limit else x, a, b).astype(x.dtype)

        made.append(function)
    return made


def _numpy_recurrence(x, r, lens, states, direction, layout, project, step, functions, per):
    """Run `step(x_t, state, functions, d) -> state` (y collects state[0]) over sequences and directions."""
    dtype, wide = x.dtype, np.float32 if x.dtype.itemsize == 2 else x.dtype
    if layout:
        x = x.swapaxes(0, 1)
        states = [None if s is None else s.swapaxes(0, 1) for s in states]
    x = x.astype(wide)
    steps, batch, hidden = x.shape[0], x.shape[1], r.shape[2]
    reverse = _REVERSED[direction]
    lens = np.full(batch, steps) if lens is None else np.clip(lens, 0, steps)
    y = np.zeros((steps, len(reverse), batch, hidden), wide)
    last = [np.zeros((len(reverse), batch, hidden), wide) for _ in states]
    for d, backwards in enumerate(reverse):
        fs = functions[d * per : (d + 1) * per] if len(functions) > per else functions
        state = [np.zeros((batch, hidden), wide) if s is None else s[d].astype(wide) for s in states]
        projected = project(x, d)
        for s in range(steps):
            live = np.flatnonzero(lens > s)
            t = lens[live] - 1 - s if backwards else np.full(live.size, s)
            new = step(projected[t, live], [v[live] for v in state], fs, d)
            for v, n in zip(state, new):
                v[live] = n
            y[t, d, live] = new[0]
        for kept, v in zip(last, state):
            kept[d] = v
    if layout:
        y, last = y.transpose(2, 0, 1, 3), [v.swapaxes(0, 1) for v in last]
    return tuple(np.ascontiguousarray(v, dtype=dtype) for v in (y, *last))


def _biases(b, r, gates):
    """(input bias, recurrent bias), each [D, gates·H]."""
    rows = r.shape[1]
    b = np.zeros((r.shape[0], 2 * rows), r.dtype) if b is None else b
    return b[:, :rows], b[:, rows:]


# ---- nn.lstm ----------------------------------------------------------------------------------------------
def _lstm_compute(site: Site, buffers: list) -> tuple[Buffer, ...]:
    x, w, r, b, lens, h0, c0, p = _filled(buffers, 8)
    assert x is not None and w is not None and r is not None
    return cells.lstm(
        _sequences(site),
        x,
        w,
        r,
        b,
        lens,
        h0,
        c0,
        p,
        activations=_cell_activations(site, 3),  # type: ignore[arg-type]
        clip=site.attrs["clip"],  # type: ignore[arg-type]
        input_forget=bool(site.attrs["input_forget"]),
    )


def _lstm_reference(
    x,
    w,
    r,
    b=None,
    lens=None,
    h0=None,
    c0=None,
    p=None,
    *,
    hidden=None,
    direction="forward",
    activations=("sigmoid", "tanh", "tanh"),
    activation_alpha=None,
    activation_beta=None,
    clip=None,
    input_forget=False,
    layout=0,
):
    wb, rb = _biases(b, r, 4)
    functions = _numpy_functions(activations, activation_alpha, activation_beta, clip)

    def project(seq, d):
        return seq @ w[d].T.astype(seq.dtype) + (wb[d] + rb[d]).astype(seq.dtype)

    def step(xt, state, fs, d):
        f, g, h = fs
        before, cell = state
        i, o, forget, c = np.split(xt + before @ r[d].T.astype(xt.dtype), 4, axis=1)
        pi, po, pf = (0, 0, 0) if p is None else np.split(p[d].astype(xt.dtype), 3)
        i = f(i + pi * cell)
        forget = 1 - i if input_forget else f(forget + pf * cell)
        cell = forget * cell + i * g(c)
        return f(o + po * cell) * h(cell, None), cell

    return _numpy_recurrence(x, r, lens, [h0, c0], direction, layout, project, step, functions, 3)


register(
    Operator(
        "nn.lstm",
        ("x", "w", "r", "b?", "lens?", "h0?", "c0?", "p?"),
        lambda site: _rule(site, 4, 3, 2),
        _lstm_reference,
        _lstm_compute,
        attrs={**_ATTRS, "activations": ("sigmoid", "tanh", "tanh"), "input_forget": False},
        doc="Long short-term memory (y, h, c); gates in the order i, o, f, c, peepholes i, o, f.",
    )
)


# ---- nn.gru -----------------------------------------------------------------------------------------------
def _gru_compute(site: Site, buffers: list) -> tuple[Buffer, ...]:
    x, w, r, b, lens, h0 = _filled(buffers, 6)
    assert x is not None and w is not None and r is not None
    return cells.gru(
        _sequences(site),
        x,
        w,
        r,
        b,
        lens,
        h0,
        activations=_cell_activations(site, 2),  # type: ignore[arg-type]
        clip=site.attrs["clip"],  # type: ignore[arg-type]
        linear_before_reset=bool(site.attrs["linear_before_reset"]),
    )


def _gru_reference(
    x,
    w,
    r,
    b=None,
    lens=None,
    h0=None,
    *,
    hidden=None,
    direction="forward",
    activations=("sigmoid", "tanh"),
    activation_alpha=None,
    activation_beta=None,
    clip=None,
    linear_before_reset=False,
    layout=0,
):
    wb, rb = _biases(b, r, 3)
    functions = _numpy_functions(activations, activation_alpha, activation_beta, clip)
    h = r.shape[2]

    def project(seq, d):
        return seq @ w[d].T.astype(seq.dtype) + wb[d].astype(seq.dtype)

    def step(xt, state, fs, d):
        f, g = fs
        (before,) = state
        rd, rbd = r[d].astype(xt.dtype), rb[d].astype(xt.dtype)
        z, reset = np.split(f(xt[:, : 2 * h] + before @ rd[: 2 * h].T + rbd[: 2 * h]), 2, axis=1)
        if linear_before_reset:
            candidate = g(xt[:, 2 * h :] + reset * (before @ rd[2 * h :].T + rbd[2 * h :]))
        else:
            candidate = g(xt[:, 2 * h :] + (reset * before) @ rd[2 * h :].T + rbd[2 * h :])
        return ((1 - z) * candidate + z * before,)

    return _numpy_recurrence(x, r, lens, [h0], direction, layout, project, step, functions, 2)


register(
    Operator(
        "nn.gru",
        ("x", "w", "r", "b?", "lens?", "h0?"),
        lambda site: _rule(site, 3, 2, 1),
        _gru_reference,
        _gru_compute,
        attrs={**_ATTRS, "activations": ("sigmoid", "tanh"), "linear_before_reset": False},
        doc="Gated recurrent unit (y, h); gates in the order z, r, h.",
    )
)


# ---- nn.rnn -----------------------------------------------------------------------------------------------
def _rnn_compute(site: Site, buffers: list) -> tuple[Buffer, ...]:
    x, w, r, b, lens, h0 = _filled(buffers, 6)
    assert x is not None and w is not None and r is not None
    functions = [f for (f,) in _cell_activations(site, 1)]
    return cells.rnn(
        _sequences(site),
        x,
        w,
        r,
        b,
        lens,
        h0,
        activations=functions,
        clip=site.attrs["clip"],  # type: ignore[arg-type]
    )


def _rnn_reference(
    x,
    w,
    r,
    b=None,
    lens=None,
    h0=None,
    *,
    hidden=None,
    direction="forward",
    activations=("tanh",),
    activation_alpha=None,
    activation_beta=None,
    clip=None,
    layout=0,
):
    wb, rb = _biases(b, r, 1)
    functions = _numpy_functions(activations, activation_alpha, activation_beta, clip)

    def project(seq, d):
        return seq @ w[d].T.astype(seq.dtype) + (wb[d] + rb[d]).astype(seq.dtype)

    def step(xt, state, fs, d):
        return (fs[0](xt + state[0] @ r[d].T.astype(xt.dtype)),)

    return _numpy_recurrence(x, r, lens, [h0], direction, layout, project, step, functions, 1)


register(
    Operator(
        "nn.rnn",
        ("x", "w", "r", "b?", "lens?", "h0?"),
        lambda site: _rule(site, 1, 1, 1),
        _rnn_reference,
        _rnn_compute,
        attrs={**_ATTRS, "activations": ("tanh",)},
        doc="Plain recurrent network (y, h): H = f(W·x + R·H + b).",
    )
)

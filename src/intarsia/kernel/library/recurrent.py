"""Recurrent networks over whole sequences: LSTM, GRU and the plain RNN (ONNX's definitions).

Each function makes the stages that pack the weights, and one opaque computation with the loops of
`recurrent_loops`. Operands: x [T, B, I], w [D, gates·H, I], r [D, gates·H, H], bias [D, 2·gates·H],
lengths [B], h0 (and c0) [D, B, H]; results y [T, D, B, H] and the last states [D, B, H]. Shapes of
batch-first sequences are in `Sequences`. A sequence that has ended keeps its state, and its y is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.dim import Dim
from intarsia.kernel.compute import compute, opaque
from intarsia.kernel.expr import Buffer, Const, Expr, Index, Select
from intarsia.kernel.library.recurrent_loops import (
    Activation,
    CellActivation,
    Keep,
    Packing,
    Phase,
    Place,
    Row,
    Sequences,
    Weaver,
    load_state,
    pack_vector,
    pack_weights,
    packing,
    store_state,
)
from intarsia.kernel.stmt import Stmt, block, store
from intarsia.kernel.target import Target

__all__ = ["CellActivation", "Sequences", "gru", "lstm", "rnn"]


def _groups(per_direction: Sequence[object]) -> list[tuple[int, int]]:
    """Directions whose cells are the same share their loops."""
    if len(per_direction) == 2 and per_direction[0] == per_direction[1]:
        return [(0, 2)]
    return [(d, 1) for d in range(len(per_direction))]


def _name(kind: str, seq: Sequences, *more: object) -> str:
    """For people and for cache keys: all that decides which loops are built."""
    return "_".join(
        map(str, (kind, seq.hidden, *map(int, seq.reverse), int(seq.batch_first), seq.dtype, *more))
    )


def _given(*buffers: Buffer | None) -> tuple[list[Buffer], Callable[[Sequence[Buffer]], list[Buffer | None]]]:
    """The buffers that exist, and how to tell them apart again."""
    present = [b is not None for b in buffers]

    def back(inputs: Sequence[Buffer]) -> list[Buffer | None]:
        rest = iter(inputs)
        return [next(rest) if p else None for p in present]

    return [b for b in buffers if b is not None], back


# ---- the plain network ------------------------------------------------------------------------------------
def rnn(
    seq: Sequences,
    x: Buffer,
    w: Buffer,
    r: Buffer,
    bias: Buffer | None,
    lengths: Buffer | None,
    h0: Buffer | None,
    *,
    activations: Sequence[CellActivation],
    clip: float | None,
) -> tuple[Buffer, ...]:
    """(y, h) of H = f(W·x + R·H + b). activations: one per direction."""
    dtype, p = seq.accumulator, packing(seq.hidden, 0, 1)
    added = None if bias is None else pack_vector(bias, p, dtype, (0, 1))
    inputs, back = _given(x, pack_weights(w, p, dtype), pack_weights(r, p, dtype), added, lengths, h0)
    groups, padded = _groups(activations), p.blocks * p.units

    def build(
        target: Target, ins: Sequence[Buffer], outs: Sequence[Buffer], scratch: Sequence[Buffer]
    ) -> Stmt:
        x, w, r, added, lengths, h0 = back(ins)
        wx, hidden = scratch
        assert x is not None and w is not None and r is not None
        weave = Weaver(seq, target, lengths, hidden, groups)

        def cell(f: Activation) -> list[Phase]:
            def finish(row: Row, place: Place, sums: list[Expr], keep: Keep) -> list[Stmt]:
                new = row.unless_ended(f(sums[0]), hidden[row.step % 2, row.d, row.b, place.unit])
                return [store(hidden, ((row.step + 1) % 2, row.d, row.b, place.unit), new)]

            return [Phase(p, r, _state_of(hidden), _begin_with(wx), finish)]

        cells = [cell(activations[first].made(clip)) for first, _ in groups]
        before = block(weave.project(x, w, p, added, wx), _first_hidden(seq, padded, hidden, h0))
        return weave.whole(cells, outs[0], before, _last_hidden(seq, hidden, outs[1]))

    outputs = [(seq.output_shape, seq.dtype), (seq.state_shape, seq.dtype)]
    scratch = [_projected(seq, p), ((2, seq.directions, seq.batch, padded), dtype)]
    return opaque(_name("rnn", seq, clip, *activations), inputs, outputs, build, scratch)


def _state_of(hidden: Buffer) -> Callable[[Row, Dim], Expr]:
    return lambda row, k: hidden[row.step % 2, row.d, row.b, k]


def _projected(seq: Sequences, p: Packing) -> tuple[tuple[Dim | int, ...], str]:
    """The scratch that holds W·x."""
    return (seq.steps, seq.batch, seq.directions * p.width), seq.accumulator


def _begin_with(wx: Buffer) -> Callable[[Row, Place, int], Expr]:
    return lambda row, place, gate: wx[row.t, row.b, place.column(place.packing, row.d, gate)]


def _first_hidden(seq: Sequences, padded: int, hidden: Buffer, h0: Buffer | None) -> Stmt:
    return load_state(seq, padded, lambda d, b, u, v: store(hidden, (0, d, b, u), v), h0)


def _last_hidden(seq: Sequences, hidden: Buffer, result: Buffer) -> Stmt:
    return store_state(seq, result, lambda d, b, u: hidden[seq.steps % 2, d, b, u])


# ---- LSTM -------------------------------------------------------------------------------------------------
def lstm(
    seq: Sequences,
    x: Buffer,
    w: Buffer,
    r: Buffer,
    bias: Buffer | None,
    lengths: Buffer | None,
    h0: Buffer | None,
    c0: Buffer | None,
    peepholes: Buffer | None,
    *,
    activations: Sequence[tuple[CellActivation, CellActivation, CellActivation]],
    clip: float | None,
    input_forget: bool,
) -> tuple[Buffer, ...]:
    """(y, h, c); gates in ONNX's order i, o, f, c, peepholes i, o, f. activations: (f, g, h) a direction."""
    dtype, p = seq.accumulator, packing(seq.hidden, 0, 4)
    added = None if bias is None else pack_vector(bias, p, dtype, (0, 4))
    looks = Packing(p.hidden, 0, 3, p.units)
    peeps = None if peepholes is None else pack_vector(peepholes, looks, dtype, (0,))
    weights = (pack_weights(w, p, dtype), pack_weights(r, p, dtype))
    inputs, back = _given(x, *weights, added, lengths, h0, c0, peeps)
    groups, padded = _groups(activations), p.blocks * p.units

    def build(
        target: Target, ins: Sequence[Buffer], outs: Sequence[Buffer], scratch: Sequence[Buffer]
    ) -> Stmt:
        x, w, r, added, lengths, h0, c0, peeps = back(ins)
        wx, hidden, memory = scratch
        assert x is not None and w is not None and r is not None
        weave = Weaver(seq, target, lengths, hidden, groups)

        def cell(functions: tuple[CellActivation, CellActivation, CellActivation]) -> list[Phase]:
            f, g, h = functions[0].made(clip), functions[1].made(clip), functions[2].made()

            def finish(row: Row, place: Place, sums: list[Expr], keep: Keep) -> list[Stmt]:
                at = (row.d, row.b, place.unit)
                old, (i, o, forget, c) = memory[at], sums

                def peep(gate: int, state: Expr) -> Expr:
                    assert peeps is not None
                    return peeps[place.column(looks, row.d, gate)] * state

                i = f(i if peeps is None else i + peep(0, old))
                if input_forget:
                    i = keep(i)
                    forget = Const(1.0, dtype) - i
                else:
                    forget = f(forget if peeps is None else forget + peep(2, old))
                new = keep(forget * old + i * g(c))
                o = f(o if peeps is None else o + peep(1, new))
                state = row.unless_ended(o * h(new), hidden[(row.step % 2, *at)])
                return [
                    store(hidden, ((row.step + 1) % 2, *at), state),
                    store(memory, at, row.unless_ended(new, old)),
                ]

            return [Phase(p, r, _state_of(hidden), _begin_with(wx), finish)]

        projection = weave.project(x, w, p, added, wx)
        first = _first_hidden(seq, padded, hidden, h0)
        cells_at_first = load_state(seq, padded, lambda d, b, u, v: store(memory, (d, b, u), v), c0)
        last = _last_hidden(seq, hidden, outs[1])
        cells_at_last = store_state(seq, outs[2], lambda d, b, u: memory[d, b, u])
        cells = [cell(activations[first_direction]) for first_direction, _ in groups]
        return weave.whole(
            cells, outs[0], block(projection, first, cells_at_first), block(last, cells_at_last)
        )

    outputs = [(seq.output_shape, seq.dtype), (seq.state_shape, seq.dtype), (seq.state_shape, seq.dtype)]
    row = (seq.directions, seq.batch, padded)
    scratch = [_projected(seq, p), ((2, *row), dtype), (row, dtype)]
    return opaque(_name("lstm", seq, clip, input_forget, *activations), inputs, outputs, build, scratch)


# ---- GRU --------------------------------------------------------------------------------------------------
def gru(
    seq: Sequences,
    x: Buffer,
    w: Buffer,
    r: Buffer,
    bias: Buffer | None,
    lengths: Buffer | None,
    h0: Buffer | None,
    *,
    activations: Sequence[tuple[CellActivation, CellActivation]],
    clip: float | None,
    linear_before_reset: bool,
) -> tuple[Buffer, ...]:
    """(y, h); gates in ONNX's order z, r, h. activations: (f, g) per direction.

    The candidate is g(W·x + R·(r ⊙ H) + b), which needs all of r first: two phases a step. With
    linear_before_reset it is g(W·x + b + r ⊙ (R·H + b')): one phase.
    """
    make = _gru_linear if linear_before_reset else _gru_reset_first
    return make(seq, x, w, r, bias, lengths, h0, activations, clip)


def _gru_linear(seq, x, w, r, bias, lengths, h0, activations, clip) -> tuple[Buffer, ...]:
    dtype, p = seq.accumulator, packing(seq.hidden, 0, 3)
    inner = Packing(p.hidden, 2, 1, p.units)  # the candidate's gate alone, in the same blocks
    inner_bias = None if bias is None else pack_vector(bias, inner, dtype, (3,))
    added = None if bias is None else _gru_bias(bias, p, dtype)
    weights = (pack_weights(w, p, dtype), pack_weights(r, p, dtype))
    inputs, back = _given(x, *weights, added, lengths, h0, inner_bias)
    groups, padded = _groups(activations), p.blocks * p.units

    def build(
        target: Target, ins: Sequence[Buffer], outs: Sequence[Buffer], scratch: Sequence[Buffer]
    ) -> Stmt:
        x, w, r, added, lengths, h0, inner_bias = back(ins)
        wx, hidden = scratch
        assert x is not None and w is not None and r is not None
        weave = Weaver(seq, target, lengths, hidden, groups)

        def begin(row: Row, place: Place, gate: int) -> Expr:
            if gate < 2:
                return wx[row.t, row.b, place.column(p, row.d, gate)]
            return Const(0.0, dtype) if inner_bias is None else inner_bias[place.column(inner, row.d, 0)]

        def cell(functions: tuple[CellActivation, CellActivation]) -> list[Phase]:
            f, g = functions[0].made(clip), functions[1].made(clip)

            def finish(row: Row, place: Place, sums: list[Expr], keep: Keep) -> list[Stmt]:
                at = (row.d, row.b, place.unit)
                old = hidden[(row.step % 2, *at)]
                candidate = g(wx[row.t, row.b, place.column(p, row.d, 2)] + f(sums[1]) * sums[2])
                z = keep(f(sums[0]))
                new = row.unless_ended((Const(1.0, dtype) - z) * candidate + z * old, old)
                return [store(hidden, ((row.step + 1) % 2, *at), new)]

            return [Phase(p, r, _state_of(hidden), begin, finish)]

        cells = [cell(activations[first]) for first, _ in groups]
        before = block(weave.project(x, w, p, added, wx), _first_hidden(seq, padded, hidden, h0))
        return weave.whole(cells, outs[0], before, _last_hidden(seq, hidden, outs[1]))

    outputs = [(seq.output_shape, seq.dtype), (seq.state_shape, seq.dtype)]
    scratch = [_projected(seq, p), ((2, seq.directions, seq.batch, padded), dtype)]
    return opaque(_name("gru_linear", seq, clip, *activations), inputs, outputs, build, scratch)


def _gru_bias(bias: Buffer, p: Packing, dtype: str) -> Buffer:
    """Both biases of z and r, but only that of the input for the candidate."""
    both, own = pack_vector(bias, p, dtype, (0, 3)), pack_vector(bias, p, dtype, (0,))

    def element(column: Dim) -> Expr:
        return Select(Index(p.unpacked(column)[1]) < 2, both[column], own[column])

    return compute(both.shape, element, dtype=dtype, name="gru_bias")


def _gru_reset_first(seq, x, w, r, bias, lengths, h0, activations, clip) -> tuple[Buffer, ...]:
    dtype = seq.accumulator
    p, q = packing(seq.hidden, 0, 2), packing(seq.hidden, 2, 1)  # (z, r), then the candidate
    weights = [pack_weights(m, part, dtype) for part in (p, q) for m in (w, r)]
    biases = [None if bias is None else pack_vector(bias, part, dtype, (0, 3)) for part in (p, q)]
    inputs, back = _given(x, *weights, *biases, lengths, h0)
    groups, padded = _groups(activations), max(p.blocks * p.units, q.blocks * q.units)

    def build(
        target: Target, ins: Sequence[Buffer], outs: Sequence[Buffer], scratch: Sequence[Buffer]
    ) -> Stmt:
        x, gates_w, gates_r, candidate_w, candidate_r, gates_bias, candidate_bias, lengths, h0 = back(ins)
        wx_gates, wx_candidate, hidden, update, reset = scratch  # update: z; reset: r ⊙ H
        assert x is not None and gates_w is not None and gates_r is not None
        assert candidate_w is not None and candidate_r is not None
        weave = Weaver(seq, target, lengths, hidden, groups)

        def cell(functions: tuple[CellActivation, CellActivation]) -> list[Phase]:
            f, g = functions[0].made(clip), functions[1].made(clip)

            def finish_gates(row: Row, place: Place, sums: list[Expr], keep: Keep) -> list[Stmt]:
                at = (row.d, row.b, place.unit)
                old = hidden[(row.step % 2, *at)]
                return [store(update, at, f(sums[0])), store(reset, at, f(sums[1]) * old)]

            def finish(row: Row, place: Place, sums: list[Expr], keep: Keep) -> list[Stmt]:
                at = (row.d, row.b, place.unit)
                old, z = hidden[(row.step % 2, *at)], update[at]
                new = row.unless_ended((Const(1.0, dtype) - z) * g(sums[0]) + z * old, old)
                return [store(hidden, ((row.step + 1) % 2, *at), new)]

            return [
                Phase(p, gates_r, _state_of(hidden), _begin_with(wx_gates), finish_gates),
                Phase(
                    q, candidate_r, lambda row, k: reset[row.d, row.b, k], _begin_with(wx_candidate), finish
                ),
            ]

        def fill(d: Dim, b: Dim, u: Dim, v: Expr) -> Stmt:
            return block(store(update, (d, b, u), v), store(reset, (d, b, u), v))

        projections = (
            weave.project(x, gates_w, p, gates_bias, wx_gates),
            weave.project(x, candidate_w, q, candidate_bias, wx_candidate),
        )
        before = block(
            *projections, _first_hidden(seq, padded, hidden, h0), load_state(seq, padded, fill, None)
        )
        cells = [cell(activations[first]) for first, _ in groups]
        return weave.whole(cells, outs[0], before, _last_hidden(seq, hidden, outs[1]))

    outputs = [(seq.output_shape, seq.dtype), (seq.state_shape, seq.dtype)]
    row = (seq.directions, seq.batch, padded)
    scratch = [_projected(seq, p), _projected(seq, q), ((2, *row), dtype), (row, dtype), (row, dtype)]
    return opaque(_name("gru", seq, clip, *activations), inputs, outputs, build, scratch)

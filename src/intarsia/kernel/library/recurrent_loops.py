"""Loops that all recurrent cells share: packed weights, the walk over time, tiles in registers.

One step needs the recurrent product R·h before the next can begin, so its weights are read from cache again
and again: the layout is made for that. `Packing` puts `units` hidden units (16 for an LSTM) into a block and
stores, for each element k of h, the block's columns of all gates side by side:

    packed[direction, block, k, gate, unit]

so that a block is one sequential stream, all gates of a unit meet in registers, and the activations follow at
once. The input half W·x has no such order: it is computed for all time steps first, by the same loops over
the same columns, into a scratch buffer. Packed weights and biases are stages of their own; where the weights
are constant, so are these, and stages that depend on constants only are folded at compile time.

State lives in scratch rows padded to whole blocks (`hidden` alternates between two, since all blocks of a
step read the old state while the new one is written). Blocks are independent and run in parallel, both
directions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from intarsia.dim import Dim, Symbol, as_dim, dmin
from intarsia.dim.expr import DimLike
from intarsia.kernel.compute import compute, fresh
from intarsia.kernel.expr import Binary, Buffer, Cast, Const, Expr, Index, Select, Unary, cast
from intarsia.kernel.stmt import Allocate, Bind, For, Stmt, block, loop, store
from intarsia.kernel.target import Target

Activation = Callable[[Expr], Expr]
Keep = Callable[[Expr], Expr]
CHUNK = 16  # lanes of a copying loop


# ---- activations -------------------------------------------------------------------------------------------
ACTIVATION_DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "sigmoid": (None, None),
    "tanh": (None, None),
    "relu": (None, None),
    "softsign": (None, None),
    "softplus": (None, None),
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, None),
    "thresholdedrelu": (1.0, None),
    "elu": (1.0, None),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
}


def activation(name: str, alpha: float | None = None, beta: float | None = None) -> Activation:
    """The function of that name (ONNX's definitions and default parameters). KeyError if there is none."""
    default_alpha, default_beta = ACTIVATION_DEFAULTS[name]
    a, b = default_alpha if alpha is None else alpha, default_beta if beta is None else beta
    match name:
        case "sigmoid" | "tanh":
            return lambda x: Unary(name, x)
        case "relu":
            return lambda x: Binary("max", x, Const(0.0, x.dtype))
        case "softsign":
            return lambda x: x / (Unary("abs", x) + 1.0)
        case "softplus":
            # log(1 + exp(x)) without overflow
            return lambda x: (
                Binary("max", x, Const(0.0, x.dtype)) + Unary("log", Unary("exp", -Unary("abs", x)) + 1.0)
            )
        case "affine":
            return lambda x: x * a + b
        case "leakyrelu":
            return lambda x: Select(x < 0.0, x * a, x)
        case "thresholdedrelu":
            return lambda x: Select(x > a, x, Const(0.0, x.dtype))
        case "elu":
            return lambda x: Select(x < 0.0, (Unary("exp", x) - 1.0) * a, x)
        case "scaledtanh":
            return lambda x: Unary("tanh", x * b) * a
    return lambda x: Binary(
        "max", Const(0.0, x.dtype), Binary("min", Const(1.0, x.dtype), x * a + b)
    )  # hardsigmoid


def clipped(f: Activation, bound: float | None) -> Activation:
    if not bound:
        return f
    return lambda x: f(Binary("max", Const(-bound, x.dtype), Binary("min", Const(bound, x.dtype), x)))


@dataclass(frozen=True, slots=True)
class CellActivation:
    """An activation function by name, with its parameters (None: ONNX's defaults)."""

    name: str
    alpha: float | None = None
    beta: float | None = None

    def made(self, clip: float | None = None) -> Activation:
        return clipped(activation(self.name, self.alpha, self.beta), clip)


# ---- packing ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packing:
    """Consecutive gates `first … first + gates - 1` of a weight, `hidden` rows each, by `units`."""

    hidden: int
    first: int
    gates: int
    units: int

    @property
    def blocks(self) -> int:
        return -(-self.hidden // self.units)

    @property
    def width(self) -> int:
        """Columns of one direction."""
        return self.blocks * self.gates * self.units

    def column(self, direction: Dim, block: Dim, gate: int) -> Dim:
        """Where the columns of a block's gate begin."""
        return direction * self.width + (block * self.gates + gate) * self.units

    def row(self, gate: Dim | int, unit: Dim) -> Dim:
        return (as_dim(gate) + self.first) * self.hidden + unit

    def unpacked(self, column: Dim) -> tuple[Dim, Dim, Dim]:
        """(direction, gate, unit) of a column; units from `hidden` on are padding."""
        unit = (column // (self.gates * self.units)) % self.blocks * self.units + column % self.units
        return column // self.width, (column // self.units) % self.gates, unit

    def real(self, unit: Dim, value: Expr) -> Expr:
        """value, or 0 for a unit that is padding."""
        if self.blocks * self.units == self.hidden:
            return value
        return Select(Index(unit) < self.hidden, value, Const(0.0, value.dtype))


def packing(hidden: int, first: int, gates: int) -> Packing:
    """About 64 columns a block: enough accumulators to hide latency, few enough for registers."""
    units = {1: 64, 2: 32}.get(gates, 16)
    while units > 16 and units // 2 >= hidden:
        units //= 2
    return Packing(hidden, first, gates, units)


def pack_weights(w: Buffer, p: Packing, dtype: str) -> Buffer:
    """[D, gates·H, K] as [D, blocks, K, gates, units]."""

    def element(d: Dim, i: Dim, k: Dim, gate: Dim, u: Dim) -> Expr:
        unit = i * p.units + u
        return p.real(unit, cast(w[d, p.row(gate, unit), k], dtype))

    shape = (w.shape[0], p.blocks, w.shape[2], p.gates, p.units)
    return compute(shape, element, dtype=dtype, name="packed_weights")


def pack_vector(b: Buffer, p: Packing, dtype: str, offsets: Sequence[int]) -> Buffer:
    """Sum of the parts of b [D, …] that begin at `offsets` (in gates), one number a column."""

    def element(column: Dim) -> Expr:
        d, gate, unit = p.unpacked(column)
        total: Expr | None = None
        for offset in offsets:
            part = cast(b[d, p.row(gate + offset, unit)], dtype)
            total = part if total is None else total + part
        assert total is not None
        return p.real(unit, total)

    return compute((b.shape[0] * p.width,), element, dtype=dtype, name="packed_b")


# ---- what all cells share ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Sequences:
    """The shape of a recurrence.

    reverse:     per direction, whether it runs from the last element to the first
    batch_first: x [B, T, I], y [B, T, D, H], states [B, D, H] instead of [T, B, I], [T, D, B, H], [D, B, H]
    dtype:       element type of operands and results (`accumulator`: of states and sums)
    """

    hidden: int
    steps: Dim
    batch: Dim
    reverse: tuple[bool, ...]
    batch_first: bool
    dtype: str

    @property
    def directions(self) -> int:
        return len(self.reverse)

    @property
    def accumulator(self) -> str:
        return self.dtype if self.dtype in ("float32", "float64") else "float32"

    def input_index(self, t: Dim, b: Dim, column: Dim) -> tuple[Dim, ...]:
        return (b, t, column) if self.batch_first else (t, b, column)

    def output_index(self, t: Dim, d: Dim, b: Dim, unit: Dim) -> tuple[Dim, ...]:
        return (b, t, d, unit) if self.batch_first else (t, d, b, unit)

    def state_index(self, d: Dim, b: Dim, unit: Dim) -> tuple[Dim, ...]:
        return (b, d, unit) if self.batch_first else (d, b, unit)

    @property
    def output_shape(self) -> tuple[Dim, ...]:
        return self.output_index(self.steps, as_dim(self.directions), self.batch, as_dim(self.hidden))

    @property
    def state_shape(self) -> tuple[Dim, ...]:
        return self.state_index(as_dim(self.directions), self.batch, as_dim(self.hidden))


@dataclass(frozen=True, slots=True)
class Row:
    """Sequence b of direction d at time t, in step `step`. valid: it has not ended (None: never early)."""

    step: Dim
    d: Dim
    b: Dim
    t: Dim
    valid: Expr | None

    def unless_ended(self, value: Expr, otherwise: Expr) -> Expr:
        return value if self.valid is None else Select(self.valid, value, otherwise)


@dataclass(frozen=True, slots=True)
class Place:
    """A unit: its block, and its lane in the block (apart, so that neighbouring lanes are seen as such)."""

    packing: Packing
    block: Dim
    lane: Dim

    @property
    def unit(self) -> Dim:
        return self.block * self.packing.units + self.lane

    def column(self, p: Packing, d: Dim, gate: int) -> Dim:
        """The unit's column of a gate in a packing with the same blocks."""
        return p.column(d, self.block, gate) + self.lane


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """Part of a step, or all of W·x: for every row and block of units, sums over k, then something per unit.

    weights:  [D, blocks, K, gates, units]
    previous: (row, k) -> element k of the vector that the weights multiply
    begin:    (row, place, gate) -> where the sum of a gate starts
    finish:   (row, place, sums of the gates, keep) -> statements inside a loop over lanes. `keep(value)`
              holds a value in a register: one that is used twice, or whose ingredients are about to change
    """

    packing: Packing
    weights: Buffer
    previous: Callable[[Row, Dim], Expr]
    begin: Callable[[Row, Place, int], Expr]
    finish: Callable[[Row, Place, list[Expr], Keep], list[Stmt]]


Bound = Callable[[Dim, Dim, Callable[[Row], Stmt]], Stmt]  # (direction, line, what to do with its row)


@dataclass(frozen=True, slots=True, eq=False)
class Weaver:
    """Makes the loops of one recurrence for one target."""

    seq: Sequences
    target: Target
    lengths: Buffer | None
    hidden_state: Buffer  # [2, D, B, padded]
    groups: Sequence[tuple[int, int]] = field(default=())  # (first direction, count) that share their code

    # -- rows
    def with_row(self, s: Dim, d: Dim, b: Dim, body: Callable[[Row], Stmt]) -> Stmt:
        """body for sequence b in step s, with its time index at hand."""
        seq = self.seq
        backwards = as_dim(int(seq.reverse[0])) if seq.directions == 1 else d
        if self.lengths is None:
            return body(Row(s, d, b, s + backwards * (seq.steps - 1 - s * 2), None))
        length, valid = fresh("length"), fresh("valid")
        given = cast(self.lengths[b], "int64")
        limited = Binary("max", Const(0, "int64"), Binary("min", given, Index(seq.steps)))
        t = s + backwards * Symbol(valid) * (Symbol(length) - 1 - s * 2)
        inner = body(Row(s, d, b, t, Index(Symbol(valid)) > 0))
        return Bind(length, limited, Bind(valid, Cast(Index(Symbol(length)) > Index(s), "int64"), inner))

    # -- one phase
    def phase(self, first: int, count: int, lines: Dim, bound: Bound, make: Phase) -> Stmt:
        """The phase for `count` directions from `first` on, and for `lines` rows, which `bound` makes."""
        p, inner = make.packing, make.weights.shape[2]
        work = (
            inner * (p.gates * p.units) // 24 + 20
        ) * lines  # weights come at about 24 elements a nanosecond
        single, many, rows = self._register_block(p, lines)

        def blocks(v: Dim) -> Stmt:
            d = first + v // p.blocks if count > 1 else as_dim(first)
            i = v % p.blocks if count > 1 else v

            def tiles(start: Dim, groups: Dim, size: int, lanes: int) -> Stmt:
                def tile(k: Dim) -> Stmt:
                    return self._tile(d, i, [start + k * size + r for r in range(size)], bound, lanes, make)

                return _each(groups, tile)

            whole, rest = lines // rows, lines % rows
            parts = [tiles(as_dim(0), whole, rows, many if rows > 1 else single)] if whole != 0 else []
            for size in range(1, rows):  # one of these tiles is left over, or none
                one = (
                    dmin(rest, size) * 2 - dmin(rest, size - 1) - dmin(rest, size + 1)
                )  # 1 where rest == size
                if one != 0:
                    parts.append(tiles(whole * rows, one, size, many if size > 1 else single))
            return block(*parts)

        return _each(count * p.blocks, blocks, "parallel", work=work)

    def step(self, s: Dim, first: int, count: int, make: Phase) -> Stmt:
        return self.phase(first, count, self.seq.batch, lambda d, b, body: self.with_row(s, d, b, body), make)

    def project(self, x: Buffer, weights: Buffer, p: Packing, bias: Buffer | None, result: Buffer) -> Stmt:
        """result[t, b, column] = W·x (+ bias) for all times and sequences."""
        seq, dtype = self.seq, self.seq.accumulator

        def bound(d: Dim, line: Dim, body: Callable[[Row], Stmt]) -> Stmt:
            if seq.batch == 1:
                return body(Row(as_dim(0), d, as_dim(0), line, None))
            t, b = fresh("t"), fresh("b")
            inner = body(Row(as_dim(0), d, Symbol(b), Symbol(t), None))
            return Bind(t, line // seq.batch, Bind(b, line % seq.batch, inner))

        def begin(row: Row, place: Place, gate: int) -> Expr:
            return Const(0.0, dtype) if bias is None else bias[place.column(p, row.d, gate)]

        def finish(row: Row, place: Place, sums: list[Expr], keep: Keep) -> list[Stmt]:
            columns = [place.column(p, row.d, g) for g in range(p.gates)]
            return [store(result, (row.t, row.b, c), v) for c, v in zip(columns, sums)]

        def previous(row: Row, k: Dim) -> Expr:
            return cast(x[seq.input_index(row.t, row.b, k)], dtype)

        make = Phase(p, weights, previous, begin, finish)
        return self.phase(0, seq.directions, seq.steps * seq.batch, bound, make)

    def _register_block(self, p: Packing, lines: Dim) -> tuple[int, int, int]:
        """(lanes for a single row, lanes for several rows, how many rows) that the registers hold."""
        free, lanes = self.target.registers - 4, min(self.target.lanes(self.seq.accumulator), p.units)
        single = p.units
        while single > lanes and p.gates * single // lanes > free:
            single //= 2
        rows = max(1, min(8, free // p.gates))
        if lines.is_const:
            rows = max(1, min(rows, lines.value))
        return single, lanes, rows

    def _tile(self, d: Dim, i: Dim, lines: list[Dim], bound: Bound, lanes: int, make: Phase) -> Stmt:
        """Rows × lanes of one block: the sums in registers over all of k, then the phase's finish."""
        p, inner = make.packing, make.weights.shape[2]

        def part(rows: list[Row], sub: Dim) -> Stmt:
            dtype, base = self.seq.accumulator, sub * lanes
            acc = Buffer(fresh("acc"), (as_dim(p.gates), as_dim(len(rows)), as_dim(lanes)), dtype, "register")
            kept: list[Buffer] = []

            every = [(g, r, row) for g in range(p.gates) for r, row in enumerate(rows)]

            def start(lane: Dim) -> Stmt:
                place = Place(p, i, base + lane)
                return block(*(store(acc, (g, r, lane), make.begin(row, place, g)) for g, r, row in every))

            def add(k: Dim) -> Stmt:
                def one(g: int, r: int, row: Row, lane: Dim) -> Stmt:
                    term = make.previous(row, k) * make.weights[d, i, k, g, base + lane]
                    return store(acc, (g, r, lane), acc[g, r, lane] + term)

                return _vector(lanes, lambda lane: block(*(one(*e, lane) for e in every)))

            def end(lane: Dim) -> Stmt:
                place, stmts = Place(p, i, base + lane), []

                def keep(value: Expr) -> Expr:
                    kept.append(Buffer(fresh("kept"), (as_dim(lanes),), dtype, "register"))
                    stmts.append(store(kept[-1], (lane,), value))
                    return kept[-1][lane]

                for r, row in enumerate(rows):
                    sums: list[Expr] = [acc[g, r, lane] for g in range(p.gates)]
                    stmts.extend(make.finish(row, place, sums, keep))
                return block(*stmts)

            factor = next(f for f in (4, 2, 1) if inner % f == 0 and (f == 1 or f * len(rows) <= 8))
            many = _each(inner // factor, lambda k: block(*(add(k * factor + j) for j in range(factor))))
            body: Stmt = block(_vector(lanes, start), many, _vector(lanes, end))
            for buffer in (*kept, acc):
                body = Allocate(buffer, body)
            return body

        rows: list[Row] = []

        def with_rows(n: int) -> Stmt:
            if n == len(lines):
                return _each(p.units // lanes, lambda sub: part(rows, sub))

            def inner_row(row: Row) -> Stmt:
                rows.append(row)
                return with_rows(n + 1)

            return bound(d, lines[n], inner_row)

        return with_rows(0)

    # -- around the steps
    def whole(self, cells: Sequence[Sequence[Phase]], y: Buffer, before: Stmt, after: Stmt) -> Stmt:
        """All steps; cells[k] are the phases of the k-th group of directions."""
        seq = self.seq

        def step(s: Dim) -> Stmt:
            def emit(row: Row) -> Stmt:
                def one(unit: Dim) -> Stmt:
                    value = cast(self.hidden_state[(s + 1) % 2, row.d, row.b, unit], seq.dtype)
                    value = row.unless_ended(value, Const(0.0, seq.dtype))
                    return store(y, seq.output_index(row.t, row.d, row.b, unit), value)

                return _units(seq.hidden, one)

            phases = [
                self.step(s, first, count, make)
                for (first, count), cell in zip(self.groups, cells, strict=True)
                for make in cell
            ]
            result = _each(seq.directions, lambda d: _each(seq.batch, lambda b: self.with_row(s, d, b, emit)))
            return block(*phases, result)

        return block(before, _each(seq.steps, step), after)


def _each(
    extent: DimLike,
    body: Callable[[Dim], Stmt],
    kind: str = "serial",
    *,
    work: Dim | None = None,
) -> Stmt:
    """A loop; the body alone where there is exactly one iteration."""
    extent = as_dim(extent)
    if extent == 1:
        return body(as_dim(0))
    name = fresh("r")
    return loop(name, extent, body(Symbol(name)), kind, work=work)


def _vector(lanes: int, body: Callable[[Dim], Stmt]) -> Stmt:
    name = fresh("lane")
    return For(name, as_dim(lanes), body(Symbol(name)), "vector")


def _units(hidden: int, body: Callable[[Dim], Stmt]) -> Stmt:
    """body for every unit 0 … hidden-1, in vectors."""
    whole, rest = divmod(hidden, CHUNK)
    parts = []
    if whole:
        parts.append(_each(whole, lambda i: _vector(CHUNK, lambda lane: body(i * CHUNK + lane))))
    if rest:
        parts.append(_vector(rest, lambda lane: body(whole * CHUNK + lane)))
    return block(*parts)


def load_state(
    seq: Sequences, padded: int, put: Callable[[Dim, Dim, Dim, Expr], Stmt], given: Buffer | None
) -> Stmt:
    """Write the initial state (zeros where none is given) and zeros into its padding."""
    dtype = seq.accumulator
    zero = Const(0.0, dtype)

    def row(d: Dim, b: Dim) -> Stmt:
        parts = []
        if given is None or padded != seq.hidden:
            parts.append(_units(padded, lambda u: put(d, b, u, zero)))
        if given is not None:
            source = given
            parts.append(
                _units(seq.hidden, lambda u: put(d, b, u, cast(source[seq.state_index(d, b, u)], dtype)))
            )
        return block(*parts)

    return _each(seq.directions, lambda d: _each(seq.batch, lambda b: row(d, b)))


def store_state(seq: Sequences, result: Buffer, get: Callable[[Dim, Dim, Dim], Expr]) -> Stmt:
    def one(d: Dim, b: Dim, u: Dim) -> Stmt:
        return store(result, seq.state_index(d, b, u), cast(get(d, b, u), seq.dtype))

    return _each(
        seq.directions, lambda d: _each(seq.batch, lambda b: _units(seq.hidden, lambda u: one(d, b, u)))
    )

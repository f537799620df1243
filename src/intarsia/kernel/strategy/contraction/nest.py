"""The loops around register tiles: who computes which rows and panels, in which order.

    parallel chunk = (outer indices, block of rows, group of panels):
        for panel in group: for line in block: for tile in line: register tile

A line is one run of the last row axis; its rows are cut into ceil(M / rows) tiles of nearly equal size ("balanced"), so
that no tile is much smaller than the others whatever M is; one register tile per row count stands ready. A block of rows
is small enough for its part of A to stay in the second-level cache while all panels of the group pass over it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmax, dmin, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Buffer, Expr, Index, Load, Unary, Binary, substitute, transform, walk
from intarsia.kernel.strategy.contraction.form import Form
from intarsia.kernel.strategy.contraction.pack import Source, parallel
from intarsia.kernel.strategy.contraction.tile import TileShape, register_tile
from intarsia.kernel.stmt import Allocate, Bind, For, If, Stmt, block, loop, store
from intarsia.kernel.target import ITEMSIZE, Target

COSTLY = frozenset(
    "exp log sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid pow fmod mod floordiv".split()
)


def let(hint: str, value: Dim, body: Callable[[Dim], Stmt]) -> Stmt:
    """body(value), computed once; constants and bare symbols need no name."""
    if value.is_const or value.symbol is not None:
        return body(value)
    name = fresh(hint)
    return Bind(name, value, body(Symbol(name)))


def lets(hint: str, values: Sequence[Dim], body: Callable[[list[Dim]], Stmt]) -> Stmt:
    """`let` for several values."""
    names: list[Dim] = []
    binds: list[tuple[str, Dim]] = []
    for v in values:
        if v.is_const or v.symbol is not None:
            names.append(v)
            continue
        binds.append((fresh(hint), v))
        names.append(Symbol(binds[-1][0]))
    result = body(names)
    for name, v in reversed(binds):
        result = Bind(name, v, result)
    return result


def nest(form: Form, src: Source, shape: TileShape, target: Target) -> Stmt:
    """All loops of the contraction."""
    if any(x.extent == 0 for x in (*form.outer, *form.rows, form.column)):
        return block()
    if form.rows:
        *lines, row = form.rows
    else:
        lines, row = [], Axis(fresh("m"), as_dim(1))
    columns = form.column.extent
    panels = ceildiv(columns, shape.width)
    inner_size = product(x.extent for x in form.inner)
    tiles = ceildiv(row.extent, shape.rows)
    line_count = product(x.extent for x in lines)
    blocked, per_block = _row_block(form, lines, row, shape, target)
    units = line_count if blocked == "lines" else tiles
    group, panel_groups = _panel_groups(panels, inner_size * shape.width * ITEMSIZE[form.dtype], target)
    row_blocks = dmax(ceildiv(units, per_block), 1)
    if not (panel_groups.is_const and panel_groups.value % target.cores == 0) and target.cores > 1:
        row_blocks = ceildiv(row_blocks, target.cores) * target.cores
        if units.is_const and row_blocks.is_const:
            row_blocks = as_dim(min(units.value, row_blocks.value))
    flops = row.extent * line_count * columns * inner_size
    work = _work(flops, row_blocks * panel_groups, inner_size, shape, group, form, target)

    def chunk(block_index: Dim, group_index: Dim) -> Stmt:
        def cut(bounds: list[Dim]) -> Stmt:
            first_unit, unit_count, first_panel, panel_count = bounds

            def panel_body(panel: Dim) -> Stmt:
                if blocked == "lines":
                    return _lines(form, src, shape, target, lines, row, panel, first_unit, unit_count)
                return _line(form, src, shape, target, row, panel, first_unit, unit_count)

            p = fresh("p")
            return loop(p, panel_count, panel_body(first_panel + Symbol(p)))

        begin, end = _share(units, row_blocks, block_index), _share(units, row_blocks, block_index + 1)
        first = group_index * group
        count = as_dim(group) if panels.is_const and panels.value % group == 0 else dmin(group, panels - first)
        return lets("cut", [begin, end - begin, first, count], cut)

    block_var, group_var = fresh("rb"), fresh("pg")
    body = chunk(
        as_dim(0) if row_blocks == 1 else Symbol(block_var), as_dim(0) if panel_groups == 1 else Symbol(group_var)
    )
    axes = [*form.outer, Axis(block_var, row_blocks), Axis(group_var, panel_groups)]
    return parallel(axes, body, work)


def _share(units: Dim, parts: Dim, index: Dim) -> Dim:
    """Where part `index` of `parts` nearly equal parts begins."""
    return units * index // parts


def _row_block(form: Form, lines: Sequence[Axis], row: Axis, shape: TileShape, target: Target) -> tuple[str, int]:
    """What a row block counts ('lines' or 'tiles'), and how many of them fit: half of L2 for A."""
    half = target.l2 // 2
    place = form.a.indices[0]
    assert isinstance(place, Dim)
    size = ITEMSIZE[form.dtype]
    if product(x.extent for x in lines) != 1:
        stride = place.coefficient(lines[-1].var)
        assert stride is not None
        line_bytes = stride.value * size if stride.is_const else 16 << 10
        return "lines", max(1, half // max(1, line_bytes))
    inner = product(x.extent for x in form.inner)
    tile_bytes = (inner.value if inner.is_const else 512) * shape.rows * size
    return "tiles", max(1, half // max(1, tile_bytes))


def _panel_groups(panels: Dim, panel_bytes: Dim, target: Target) -> tuple[int, Dim]:
    """Panels a chunk works through: enough bytes to be worth a chunk, a count that shares evenly over the cores."""
    least = 32 << 10
    group = max(1, least // max(1, panel_bytes.value)) if panel_bytes.is_const else 1
    if panels.is_const:
        group = min(group, max(1, panels.value // target.cores))
        while group > 1 and (panels.value % group or (panels.value // group) % target.cores):
            group -= 1
    return group, ceildiv(panels, group)


def _work(flops: Dim, chunks: Dim, inner: Dim, shape: TileShape, group: int, form: Form, target: Target) -> Dim:
    """Nanoseconds a chunk takes: arithmetic at about half of peak, and B's panels from memory at 16 bytes/ns."""
    rate = max(1, target.lanes(form.dtype) * 2)
    return flops // (dmax(chunks, 1) * rate) + inner * (shape.width * group * ITEMSIZE[form.dtype]) // 16


def _lines(
    form: Form, src: Source, shape: TileShape, target: Target, lines: Sequence[Axis], row: Axis, panel: Dim, first: Dim, count: Dim
) -> Stmt:
    """Tiles of several lines; a line's index is taken apart once."""
    u = fresh("line")
    rest = Symbol(fresh("at"))
    assert rest.symbol is not None
    body = _line(form, src, shape, target, row, panel, as_dim(0), ceildiv(row.extent, shape.rows))
    left = rest
    binds = []
    varying = [x for x in lines if x.extent != 1]
    for x in reversed(varying):
        binds.append((x.var, left % x.extent if x is not varying[0] else left))
        left = left // x.extent
    for name, value in binds:
        body = Bind(name, value, body)
    return loop(u, count, Bind(rest.symbol, first + Symbol(u), body))


def _line(
    form: Form, src: Source, shape: TileShape, target: Target, row: Axis, panel: Dim, first: Dim, count: Dim
) -> Stmt:
    """Tiles first … first+count of one line, for one panel."""

    def with_panel(start: Dim, width: int, active: Dim | None) -> Stmt:
        def place(rows: int, at: Dim) -> Stmt:
            return tile(form, src, target, row, start, panel * shape.width, rows, at, width, active)

        return balanced(row.extent, shape.rows, first, count, place)

    return panel_widths(form, src, shape, target, panel, with_panel)


def panel_widths(
    form: Form,
    src: Source | None,
    shape: TileShape,
    target: Target,
    panel: Dim,
    emit: Callable[[Dim, int, Dim | None], Stmt],
) -> Stmt:
    """emit(start of the panel in B, columns, active columns) for a whole panel, or for a ragged last one."""
    columns, width = form.column.extent, shape.width

    def whole(start: Dim) -> Stmt:
        return emit(start, width, None)

    def ragged(start: Dim) -> Stmt:
        if not columns.is_const:
            return let("left", columns - panel * width, lambda left: emit(start, width, left))
        left = columns.value % width
        lanes = max(1, target.lanes(form.dtype))
        if src is None or not src.padded:
            return emit(start, left, None)
        padded = -(-left // lanes) * lanes
        return emit(start, padded, None if padded == left else as_dim(left))

    origin = as_dim(0) if src is None else src.panel_start(panel if src.packed else panel * width)
    if columns.is_const and columns.value % width == 0:
        return let("b", origin, whole)
    if columns.is_const and columns.value < width:
        return let("b", origin, ragged)
    full = Index(panel) < (columns // width)
    return let("b", origin, lambda start: If(full, whole(start), ragged(start)))


def balanced(extent: Dim, most: int, first: Dim, count: Dim, place: Callable[[int, Dim], Stmt]) -> Stmt:
    """place(rows, at) for tiles first … first+count of the ceil(extent / most) tiles that share `extent` rows evenly."""
    tiles = dmax(ceildiv(extent, most), 1)
    base, extra = extent // tiles, extent % tiles

    def at(t: Dim, sizes: list[Dim]) -> Stmt:
        base, extra = sizes
        if base.is_const and extra.is_const:
            b, e = base.value, extra.value
            if e == 0:
                return place(b, t * b)
            return If(Index(t) < e, place(b + 1, t * (b + 1)), place(b, t * b + e))
        rows = Symbol(fresh("rows"))
        assert rows.symbol is not None
        start = t * base + dmin(t, extra)
        switch = let("m", start, lambda m: _by_count(rows, most, lambda n: place(n, m)))
        return Bind(rows.symbol, base + dmax(dmin(extra - t, 1), 0), switch)

    t = fresh("t")
    return lets("rows", [base, extra], lambda sizes: loop(t, count, at(first + Symbol(t), sizes)))


def _by_count(count: Dim, most: int, make: Callable[[int], Stmt]) -> Stmt:
    """A switch over 1 … most."""
    body = make(1)
    for n in range(2, most + 1):
        body = If(Index(count).equals(n), make(n), body)
    return body


def tile(
    form: Form,
    src: Source | None,
    target: Target,
    row: Axis,
    start: Dim,
    column: Dim,
    rows: int,
    m: Dim,
    width: int,
    active: Dim | None,
    window: Sequence[tuple[Dim, Dim]] | None = None,
) -> Stmt:
    """One register tile: rows m … m+rows of the line, columns from `column`, of which B's panel begins at `start`.

    window: (first, count) for each inner axis where not all of it is summed
    """
    window = window or [(as_dim(0), x.extent) for x in form.inner]
    inner = [Axis(fresh("k"), count) for _, count in window]
    firsts = {x.var: first for x, (first, _) in zip(form.inner, window)}
    place = form.a.indices[0]
    assert isinstance(place, Dim)
    row_stride, lane_stride = place.coefficient(row.var), place.coefficient(form.column.var)
    strides = [place.coefficient(x.var) for x in form.inner]
    assert row_stride is not None and lane_stride is not None and all(s is not None for s in strides)
    origin = place.subst({**firsts, row.var: m, form.column.var: column})
    if src is not None:
        start = start + sum((first * s for (first, _), s in zip(window, src.strides)), as_dim(0))

    def with_bases(bases: list[Dim]) -> Stmt:
        b, *bases = bases

        def a(i: int, k: Sequence[Dim], lane: Dim) -> Expr:
            base = bases[i] if len(bases) > 1 else bases[0] + row_stride * i
            return form.a.buffer[sum((x * s for x, s in zip(k, strides)), base) + lane * lane_stride]

        return register_tile(
            rows,
            width,
            form.dtype,
            target,
            inner,
            a,
            None if src is None else lambda k, j: src.element(b, k, j),
            lambda sums: _finish(form, row, column, m, rows, width, active, sums),
            form.op,
        )

    if row_stride.is_const:
        return lets("a", [start, origin], with_bases)
    return lets("a", [start, *(origin + row_stride * i for i in range(rows))], with_bases)


def _finish(
    form: Form,
    row: Axis,
    first: Dim,
    m: Dim,
    rows: int,
    width: int,
    active: Dim | None,
    sums: Callable[[int, Dim], Expr],
) -> Stmt:
    """Store the results of a tile straight from its sums."""
    stmts = []
    for i in range(rows):
        lane = fresh("j")
        env = {row.var: m + i, form.column.var: first + Symbol(lane)}

        def value(e: Expr, env=env, lane=lane, i=i) -> Expr:
            e = substitute(e, env)
            return transform(e, lambda n: sums(i, Symbol(lane)) if isinstance(n, Load) and n.buffer is form.sums else None)

        body = block(*(store(r.buffer, (r.place.subst(env),), value(r.value)) for r in form.results))
        stmts.append(For(lane, as_dim(width), body, "vector", active=active))
    return block(*stmts)

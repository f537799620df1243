"""The loops around register tiles: who computes which rows and panels, in which order.

    parallel chunk = (outer indices, block of rows, group of panels):
        for part of the contracted loop: for panel in group: for line in block: for tile in line: register
        tile

A line is one run of the last row axis; its rows are cut into ceil(M / rows) tiles of nearly equal size
("balanced"), so that no tile is much smaller than the others whatever M is; one register tile per row count
stands ready. A block of rows is small enough for its part of A to stay in the second-level cache while all
panels of the group pass over it. A long contracted loop is cut into parts; between them the sums wait in a
workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from intarsia.dim import Dim, Symbol, as_dim, ceildiv, dmax, dmin, product
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Axis, Binary, Buffer, Expr, Index, Load, Unary, substitute, transform, walk
from intarsia.kernel.stmt import Allocate, Bind, If, Stmt, block, loop, store
from intarsia.kernel.strategy.contraction.form import Form
from intarsia.kernel.strategy.contraction.pack import Source, parallel
from intarsia.kernel.strategy.contraction.tile import UNROLL, TileShape, each_row, register_tile, vector
from intarsia.kernel.target import ITEMSIZE, Target

COSTLY = frozenset(
    [
        "exp",
        "log",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "erf",
        "sigmoid",
    ]
)
SMALL_CHUNK = 32 << 10  # bytes of B below which a chunk takes several panels


def let(hint: str, value: Dim, body: Callable[[Dim], Stmt]) -> Stmt:
    """body(value), computed once; constants and bare symbols need no name."""
    return lets(hint, [value], lambda names: body(names[0]))


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


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A part of the contracted loop: (first, count) of each inner axis; is it the first part, the last (None:
    always)?
    """

    window: tuple[tuple[Dim, Dim], ...]
    begin: Expr | None = None
    end: Expr | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """What every tile of a kernel has in common.

    src:  where B's rows are; None: A alone is combined
    row:  the row axis that tiles run along
    held: where sums wait between parts of the contracted loop, one for each element of the anchor
    """

    form: Form
    src: Source | None
    shape: TileShape
    target: Target
    row: Axis
    held: Buffer | None = None

    @property
    def lanes(self) -> int:
        return max(1, self.target.lanes(self.form.dtype))

    @property
    def costly(self) -> bool:
        """Whether the results are too much code to be repeated for every vector of every tile."""
        nodes = [n for r in self.form.results for n in walk(r.value)]
        return any(
            isinstance(n, Unary) and n.op in COSTLY or isinstance(n, Binary) and n.op == "pow" for n in nodes
        )

    # ---- panels ------------------------------------------------------------------------------------------
    def panel(self, panel: Dim, emit: Callable[[Dim, int, Dim | None], Stmt]) -> Stmt:
        """emit(start of the panel in B, columns, active columns) for a whole panel, or for a ragged last one.

        Where B is padded one tile serves both, and only its results mind how many columns there are.
        """
        columns, width, src = self.form.column.extent, self.shape.width, self.src
        origin = as_dim(0) if src is None else src.panel_start(panel if src.packed else panel * width)
        left = columns - panel * width

        def body(start: Dim) -> Stmt:
            if columns.is_const and columns.value % width == 0:
                return emit(start, width, None)
            if src is not None and src.padded:
                if columns.is_const and columns.value < width:
                    return emit(start, width, columns)
                return let("left", left, lambda left: emit(start, width, left))
            assert columns.is_const
            if columns.value < width:
                return emit(start, columns.value, None)
            full = Index(panel) < (columns // width)
            return If(full, emit(start, width, None), emit(start, columns.value % width, None))

        return let("b", origin, body)

    def lanes_of(self, width: int, active: Dim | None, rows: Callable[[int, Dim | None], Stmt]) -> Stmt:
        """rows(columns, active columns) for a whole panel, or else for what is left of the last one."""
        if active is None or active.is_const:
            return rows(width if active is None else active.value, None)
        columns = self.form.column.extent
        if columns.is_const:
            return If(Index(active) >= width, rows(width, None), rows(columns.value % width, None))
        return If(Index(active) >= width, rows(width, None), rows(width, active))

    # ---- rows --------------------------------------------------------------------------------------------
    def rows(
        self,
        extent: Dim,
        first: Dim,
        count: Dim,
        place: Callable[[int, Dim], Stmt],
        after: Callable[[Dim, Dim], Stmt] | None,
    ) -> Stmt:
        """place(rows, at), then after(rows, at), for tiles first … first+count of those that share `extent`
        rows evenly.
        """
        if extent == 0:
            return block()
        most = self.shape.rows
        tiles = dmax(ceildiv(extent, most), 1)

        def both(rows: int, at: Dim) -> Stmt:
            return let(
                "m",
                at,
                lambda m: place(rows, m) if after is None else block(place(rows, m), after(as_dim(rows), m)),
            )

        def tile(t: Dim, base: Dim, extra: Dim) -> Stmt:
            if base.is_const and extra.is_const:
                b, e = base.value, extra.value
                if e == 0:
                    return both(b, t * b)
                return If(Index(t) < e, both(b + 1, t * (b + 1)), both(b, t * b + e))
            rows = Symbol(fresh("rows"))
            assert rows.symbol is not None

            def switch(m: Dim) -> Stmt:
                body = place(1, m)
                for n in range(2, most + 1):
                    body = If(Index(rows).equals(n), place(n, m), body)
                return body if after is None else block(body, after(rows, m))

            return Bind(
                rows.symbol, base + dmax(dmin(extra - t, 1), 0), let("m", t * base + dmin(t, extra), switch)
            )

        t = fresh("t")
        sizes = [extent // tiles, extent % tiles]
        return lets("share", sizes, lambda s: loop(t, count, tile(first + Symbol(t), *s)))

    # ---- one tile ----------------------------------------------------------------------------------------
    def line(self, panel: Dim, part: Part, first: Dim, count: Dim) -> Stmt:
        """Tiles first … first+count of one line, for one panel."""
        column = panel * self.shape.width

        def with_panel(start: Dim, width: int, active: Dim | None) -> Stmt:
            if self.held is None and not self.costly:
                finish = self.stored(column, width, active)
                return self.rows(
                    self.row.extent,
                    first,
                    count,
                    lambda rows, m: self.tile(rows, m, column, width, start, part, finish),
                    None,
                )
            return self.deferred(column, width, active, start, part, first, count)

        return self.panel(panel, with_panel)

    def deferred(
        self, column: Dim, width: int, active: Dim | None, start: Dim, part: Part, first: Dim, count: Dim
    ) -> Stmt:
        """Tiles whose sums go to memory first; a loop over a tile's rows makes the results of them."""
        held = self.held
        small = Buffer("tile", (as_dim(self.shape.rows), as_dim(width)), self.form.dtype, "stack")

        def at(m: Dim, i: Dim, j: Dim) -> Load:
            return small[i, j] if held is None else held[self.held_place(m + i, column + j)]

        def finish(m: Dim, sums: Callable[[Dim, Dim], Expr], rows: int) -> Stmt:
            def one(i: Dim, j: Dim) -> Stmt:
                target = at(m, i, j)
                return store(target.buffer, target.indices, sums(i, j))

            return each_row(rows, lambda i: vector(width, lambda j: one(i, j)))

        def results(rows: Dim, m: Dim) -> Stmt:
            def some(count: int, active: Dim | None) -> Stmt:
                i = fresh("i")
                row = vector(
                    count, lambda j: self.results(m + Symbol(i), column + j, at(m, Symbol(i), j)), active
                )
                return loop(i, rows, row)

            body = self.lanes_of(width, active, some)
            return body if part.end is None else If(part.end, body)

        def place(rows: int, m: Dim) -> Stmt:
            begin = None if held is None else lambda i, j: at(m, i, j)
            return self.tile(rows, m, column, width, start, part, finish, begin)

        body = self.rows(self.row.extent, first, count, place, results)
        return Allocate(small, body) if held is None else body

    def held_place(self, m: Dim, column: Dim) -> Dim:
        """Where the sum of a row and a column waits: a dense array in the order of the loops, whole panels
        wide.
        """
        form, total = self.form, as_dim(0)
        for x in (*form.outer, *form.rows):
            total = total * x.extent + (m if x is self.row else Symbol(x.var))
        return total * (ceildiv(form.column.extent, self.shape.width) * self.shape.width) + column

    def stored(self, column: Dim, width: int, active: Dim | None) -> Callable:
        """A tile's `finish` that stores the results straight from registers."""

        def finish(m: Dim, sums: Callable[[Dim, Dim], Expr], rows: int) -> Stmt:
            def some(count: int, active: Dim | None) -> Stmt:
                return each_row(
                    rows,
                    lambda i: vector(count, lambda j: self.results(m + i, column + j, sums(i, j)), active),
                )

            return self.lanes_of(width, active, some)

        return finish

    def results(self, m: Dim, column: Dim, total: Expr) -> Stmt:
        """Store every result of row m and a column, given its sum."""
        form = self.form
        env = {self.row.var: m, form.column.var: column}

        def value(e: Expr) -> Expr:
            sums = form.sums
            return transform(
                substitute(e, env), lambda n: total if isinstance(n, Load) and n.buffer is sums else None
            )

        return block(*(store(r.buffer, (r.place.subst(env),), value(r.value)) for r in form.results))

    def tile(
        self,
        rows: int,
        m: Dim,
        column: Dim,
        width: int,
        start: Dim,
        part: Part,
        finish: Callable[[Dim, Callable[[Dim, Dim], Expr], int], Stmt],
        begin: Callable[[Dim, Dim], Expr] | None = None,
    ) -> Stmt:
        """One register tile: rows m … m+rows of the line, columns from `column`, of which B's panel begins at
        `start`.

        begin: (row, lane) -> the sum so far, where `part.begin` does not hold
        """
        form, src, row = self.form, self.src, self.row
        inner = [Axis(fresh("k"), count) for _, count in part.window]
        firsts = {x.var: first for x, (first, _) in zip(form.inner, part.window)}
        place = form.a.indices[0]
        assert isinstance(place, Dim)
        row_stride, lane_stride = place.coefficient(row.var), place.coefficient(form.column.var)
        strides = [s for x in form.inner if (s := place.coefficient(x.var)) is not None]
        assert row_stride is not None and lane_stride is not None and len(strides) == len(form.inner)
        origin = place.subst({**firsts, row.var: m, form.column.var: column})
        if src is not None:
            start = start + sum((first * s for (first, _), s in zip(part.window, src.strides)), as_dim(0))

        def with_bases(bases: list[Dim]) -> Stmt:
            b_base, a_base = bases

            def a(i: Dim, k: Sequence[Dim], lane: Dim) -> Expr:
                return form.a.buffer[
                    sum((x * s for x, s in zip(k, strides)), a_base + row_stride * i + lane * lane_stride)
                ]

            return register_tile(
                rows,
                width,
                form.dtype,
                self.target,
                inner,
                a,
                None if src is None else partial(src.element, b_base),
                lambda sums: finish(m, sums, rows),
                form.op,
                None if begin is None or part.begin is None else (begin, part.begin),
            )

        return lets("at", [start, origin], with_bases)


# ---- the loops around tiles ------------------------------------------------------------------------------
def nest(form: Form, src: Source, shape: TileShape, target: Target) -> tuple[Stmt, list[Buffer]]:
    """All loops of the contraction, and the workspaces they need."""
    if any(x.extent == 0 for x in (*form.outer, *form.rows, form.column)):
        return block(), []
    *lines, row = form.rows or (Axis(fresh("m"), as_dim(1)),)
    form = replace(form, rows=(*lines, row))
    tiles = Tiles(form, src, shape, target, row)
    columns, count = form.column.extent, product(x.extent for x in lines)
    panels = ceildiv(columns, shape.width)
    cut = _cut(form, count * row.extent, shape, target)
    workspaces = []
    if cut.count > 1:
        size = product(x.extent for x in (*form.outer, *form.rows)) * panels * shape.width
        workspaces.append(Buffer("held", (size,), form.dtype))
        tiles = replace(tiles, held=workspaces[0])
    by_line = count != 1
    units = count if by_line else ceildiv(row.extent, shape.rows)
    row_blocks = dmax(ceildiv(units, _row_block(form, lines, cut.depth, shape, target)), 1)
    inner_bytes = product(x.extent for x in form.inner) * shape.width * ITEMSIZE[form.dtype]
    group, groups = _panel_groups(panels, inner_bytes, target, all_of_them=tiles.held is not None)
    if not (groups.is_const and groups.value % target.cores == 0):
        row_blocks = ceildiv(row_blocks, target.cores) * target.cores
        if units.is_const and row_blocks.is_const:
            row_blocks = as_dim(min(units.value, row_blocks.value))
    flops = row.extent * count * columns * product(x.extent for x in form.inner)
    work = flops // (dmax(row_blocks * groups, 1) * (2 * tiles.lanes)) + inner_bytes * group // 16

    def chunk(block_index: Dim, group_index: Dim) -> Stmt:
        begin, end = units * block_index // row_blocks, units * (block_index + 1) // row_blocks
        first = group_index * group
        in_group = (
            as_dim(group) if panels.is_const and panels.value % group == 0 else dmin(group, panels - first)
        )

        def work_on(bounds: list[Dim]) -> Stmt:
            first_unit, unit_count, first_panel, panel_count = bounds

            def one(part: Part) -> Stmt:
                p = fresh("p")
                panel = first_panel + Symbol(p)
                if not by_line:
                    return loop(p, panel_count, tiles.line(panel, part, first_unit, unit_count))
                line = tiles.line(panel, part, as_dim(0), ceildiv(row.extent, shape.rows))
                u = fresh("line")
                return loop(p, panel_count, loop(u, unit_count, unfold(lines, first_unit + Symbol(u), line)))

            return cut.over(form, one)

        return lets("chunk", [begin, end - begin, first, in_group], work_on)

    rb, pg = Axis(fresh("rb"), row_blocks), Axis(fresh("pg"), groups)
    body = chunk(*(as_dim(0) if x.extent == 1 else Symbol(x.var) for x in (rb, pg)))
    return parallel([*form.outer, rb, pg], body, work), workspaces


def unfold(axes: Sequence[Axis], index: Dim, body: Stmt) -> Stmt:
    """body with the axes' variables taken from one index over all of them, the last fastest."""
    at = fresh("at")
    left = Symbol(at)
    varying = [x for x in axes if x.extent != 1]
    for x in axes:
        if x.extent == 1:
            body = Bind(x.var, as_dim(0), body)
    for x in reversed(varying):
        body = Bind(x.var, left % x.extent if x is not varying[0] else left, body)
        left = left // x.extent
    return Bind(at, index, body)


@dataclass(frozen=True, slots=True)
class Cut:
    """The contracted loop in `count` parts of `size` steps along its first inner axis. depth: steps of a part
    in all.
    """

    count: int
    size: int
    depth: int

    def over(self, form: Form, one: Callable[[Part], Stmt]) -> Stmt:
        """one(part) for each part in turn."""
        rest = tuple((as_dim(0), x.extent) for x in form.inner[1:])
        if self.count == 1:
            return one(Part(tuple((as_dim(0), x.extent) for x in form.inner)))
        var = fresh("part")
        b, first = Symbol(var), form.inner[0].extent.value
        left = as_dim(self.size) if first % self.size == 0 else dmin(self.size, first - b * self.size)

        def body(count: Dim) -> Stmt:
            return one(
                Part(((b * self.size, count), *rest), Index(b).equals(0), Index(b).equals(self.count - 1))
            )

        return loop(var, self.count, let("depth", left, body))


def _cut(form: Form, rows: Dim, shape: TileShape, target: Target) -> Cut:
    """Parts whose rows of B for one panel and whose columns of A for a block of rows fit into the caches
    together.
    """
    sizes = [x.extent for x in form.inner]
    if not sizes or not all(s.is_const for s in sizes):
        return Cut(1, 0, 512)
    first, total = sizes[0].value, product(sizes).value
    most = max(128, target.l2 // 1024 * 4 // ITEMSIZE[form.dtype])
    if total <= most + most // 2 or (rows.is_const and rows.value <= 4 * shape.rows):
        return Cut(1, first, total)
    size = -(-first // min(first, -(-total // most)))
    size = -(-size // UNROLL) * UNROLL if len(sizes) == 1 else size
    return Cut(-(-first // size), size, size * (total // first))


def _row_block(form: Form, lines: Sequence[Axis], depth: int, shape: TileShape, target: Target) -> int:
    """How many lines (tiles, if there is one line only) make a block: half of L2 for A."""
    half = target.l2 // 2
    size = ITEMSIZE[form.dtype]
    place = form.a.indices[0]
    assert isinstance(place, Dim)
    if product(x.extent for x in lines) == 1:
        return max(1, half // max(1, depth * shape.rows * size))
    stride = place.coefficient(lines[-1].var)
    assert stride is not None
    return max(1, half // max(1, stride.value * size if stride.is_const else 16 << 10))


def _panel_groups(panels: Dim, panel_bytes: Dim, target: Target, *, all_of_them: bool) -> tuple[int, Dim]:
    """(panels a chunk works through, number of groups): enough bytes for a chunk, evenly shared over the
    cores.
    """
    if not panels.is_const:
        return 1, panels
    group = max(1, SMALL_CHUNK // max(1, panel_bytes.value)) if panel_bytes.is_const else 1
    group = panels.value if all_of_them or target.cores == 1 else group
    group = max(1, min(group, panels.value // target.cores))
    if all_of_them:
        return group, ceildiv(panels, group)
    while group > 1 and (panels.value % group or (panels.value // group) % target.cores):
        group -= 1
    return group, ceildiv(panels, group)

"""Views of buffers, and a kernel without them for code generators that address memory linearly."""

from __future__ import annotations

from dataclasses import replace

from intarsia.dim import Dim, as_dim, product
from intarsia.kernel.expr import Binary, Buffer, Const, Expr, Index, IndexLike, Load, transform
from intarsia.kernel.stmt import Allocate, Bind, Block, For, If, Kernel, Stmt, Store


class Flat:
    """One-dimensional views of global buffers; one view for each buffer."""

    def __init__(self) -> None:
        self._views: dict[int, Buffer] = {}

    def view(self, buffer: Buffer) -> Buffer:
        """The buffer's elements in a row (itself, if it is a row already)."""
        if len(buffer.shape) == 1:
            return buffer
        if id(buffer) not in self._views:
            self._views[id(buffer)] = replace(
                buffer, shape=(product(buffer.shape),), producer=None, of=buffer
            )
        return self._views[id(buffer)]

    def load(self, load: Load) -> Load:
        """The same element through the flat view."""
        return Load(self.view(load.buffer), (address(load.buffer.shape, load.indices),))


def address(shape: tuple[Dim, ...], indices: tuple[IndexLike, ...]) -> IndexLike:
    """Where an element lies in a dense row-major tensor; an expression if an index is one."""
    total = as_dim(0)
    more: Expr | None = None
    stride = as_dim(1)
    for i, d in reversed(list(zip(indices, shape, strict=True))):
        if isinstance(i, Dim):
            total = total + i * stride
        else:
            term = (
                i
                if stride == 1
                else Binary("mul", i, Index(stride) if not stride.is_const else Const(stride.value, "int64"))
            )
            more = term if more is None else Binary("add", more, term)
        stride = stride * d
    return total if more is None else Binary("add", more, Index(total))


def unviewed(kernel: Kernel) -> Kernel:
    """The kernel with every access to a view turned into one of the buffer itself.

    The place in the view becomes the last index, the others are 0: right where addresses are linear in the
    indices, but out of bounds dimension by dimension.
    """

    def indices(buffer: Buffer, places: tuple[IndexLike, ...]) -> tuple[IndexLike, ...]:
        assert buffer.of is not None
        return (
            (*(as_dim(0) for _ in buffer.of.shape[1:]), address(buffer.shape, places))
            if buffer.of.shape
            else ()
        )

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer.of is not None:
            return Load(e.buffer.of, indices(e.buffer, e.indices))
        return None

    def index(i: IndexLike) -> IndexLike:
        return transform(i, leaf) if isinstance(i, Expr) else i

    def go(s: Stmt) -> Stmt:
        match s:
            case Block():
                return Block(tuple(map(go, s.stmts)))
            case Store():
                places = tuple(map(index, s.indices))
                if s.buffer.of is not None:
                    return Store(s.buffer.of, indices(s.buffer, places), transform(s.value, leaf))
                return Store(s.buffer, places, transform(s.value, leaf))
            case For() | Allocate():
                return replace(s, body=go(s.body))
            case Bind():
                value = transform(s.value, leaf) if isinstance(s.value, Expr) else s.value
                return replace(s, value=value, body=go(s.body))
            case If():
                orelse = None if s.orelse is None else go(s.orelse)
                return If(transform(s.cond, leaf), go(s.then), orelse)
        return s

    return replace(kernel, body=go(kernel.body))

"""What converters build with: calls that carry the node's place, constants, and questions about types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from intarsia.dim import Bounds
from intarsia.frontend.onnx.types import Types, known_ints
from intarsia.ir.expr import Attr, Call, Constant, Expr, Function, OpRef, Tuple
from intarsia.ir.types import TensorType
from intarsia.op.entry import numpy_dtype
from intarsia.support.errors import ModelError
from intarsia.support.span import UNKNOWN, Span

if TYPE_CHECKING:
    from pathlib import Path

    from intarsia.frontend.onnx.importer import Importer
    from intarsia.frontend.onnx.scope import Scope


class Builder:
    """Builds expressions for one model.

    span: given to everything that is built; scope: of the node that is being converted; functions: global
        functions made for loops; folder: for external data
    """

    def __init__(self, importer: Importer, source: str, folder: Path | None, bounds: Bounds):
        self.importer, self.source, self.folder = importer, source, folder
        self.types = Types(bounds)
        self.span: Span = UNKNOWN
        self.scope: Scope | None = None
        self.functions: dict[str, Function] = {}
        self.taken_names: set[str] = {"main"}

    # ---- building ------------------------------------------------------------------------------------------
    def op(self, name: str, *args: Expr | None, **attrs: Attr) -> Call:
        """A call of a Relay operator; None is a missing argument."""
        given = list(args)
        while given and given[-1] is None:
            given.pop()
        filled = tuple(Tuple((), span=self.span) if a is None else a for a in given)
        return Call(OpRef(name, span=self.span), filled, attrs, span=self.span)

    def const(self, value: object, dtype: str) -> Constant:
        """A constant from numbers; ModelError ONNX-017 for one that the dtype cannot hold."""
        try:
            return Constant(np.asarray(value, numpy_dtype(dtype), order="C"), span=self.span)
        except OverflowError:
            raise ModelError("ONNX-017", f"the number {value} is too large", where=str(self.span)) from None

    def ints(self, values: Sequence[int]) -> Constant:
        """An int64 vector."""
        return self.const(list(values), "int64")

    def like(self, value: float, e: Expr) -> Constant:
        """A rank-0 constant of e's dtype."""
        return self.const(value, self.dtype(e))

    def scalar(self, e: Expr) -> Expr:
        """A tensor of one element as one of rank 0."""
        return e if self.rank(e) == 0 else self.op("reshape", e, self.ints(()))

    def vector(self, e: Expr) -> Expr:
        """A tensor of rank 0 or 1 as one of rank 1."""
        return e if self.rank(e) == 1 else self.op("reshape", e, self.ints((-1,)))

    def cast(self, e: Expr, dtype: str) -> Expr:
        return e if self.dtype(e) == dtype else self.op("cast", e, dtype=dtype)

    def shape(self, e: Expr) -> Call:
        return self.op("shape_of", e)

    # ---- asking --------------------------------------------------------------------------------------------
    def type(self, e: Expr) -> TensorType:
        return self.types.tensor(e)

    def rank(self, e: Expr) -> int:
        return len(self.types.tensor(e).shape)

    def dtype(self, e: Expr) -> str:
        return self.types.tensor(e).dtype

    def is_float(self, e: Expr) -> bool:
        return "float" in self.dtype(e)

    def known(self, e: Expr, what: str) -> tuple[int, ...]:
        """Contents that must be known now, e.g. because they decide a rank."""
        return known_ints(self.types, e, what, self.span)

    def fixed(self, e: Expr | None, what: str) -> Expr | None:
        """An integer argument that operators want as a constant; None stays."""
        return None if e is None else Constant(np.array(self.known(e, what), np.int64), span=self.span)

    def axis(self, axis: int, e: Expr) -> int:
        """A possibly negative axis of e as 0 … rank; ModelError ONNX-017 for any other."""
        rank = self.rank(e)
        if not -rank <= axis <= rank:
            message = f"axis {axis} is outside the {rank} dimensions of the tensor"
            raise ModelError("ONNX-017", message, where=str(self.span))
        return axis + rank if axis < 0 else axis

    def function_name(self, hint: str) -> str:
        """A name for a global function that no other has."""
        k = 0
        while f"{hint}_{k}" in self.taken_names:
            k += 1
        self.taken_names.add(f"{hint}_{k}")
        return f"{hint}_{k}"

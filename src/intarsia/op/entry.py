"""One operator, one entry: everything there is to know about an operator stands in its `Operator`.

The type rule is written once, over symbolic dimensions. At compile time it is the type relation; the
dimensions it returns, as expressions over the function's symbols, are the run-time shape function. Sizes that
depend on a tensor's contents (`reshape` to a computed shape, `arange`) use `Site.items`: what is known of the
contents at compile time is used, what is not becomes a fresh symbol that is read from the tensor at run time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Union

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim
from intarsia.dim.expr import DimLike
from intarsia.ir.expr import Attr
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.kernel.expr import Buffer
from intarsia.support.errors import TypeCheckError, UnsupportedError
from intarsia.support.span import UNKNOWN, Span

REQUIRED = object()
Result = Union[Buffer, tuple[Buffer, ...]]


@dataclass(frozen=True, slots=True)
class Check:
    """A fact the types rely on, not proved: `left relation right` (relation: ==, <=, <, >=, >)."""

    left: Dim
    relation: str
    right: Dim
    what: str
    span: Span = UNKNOWN


@dataclass(frozen=True, slots=True)
class Item:
    """The run-time value of a symbol: element `index` (flat) of integer argument `arg` of the operator's
    call.
    """

    arg: int
    index: int


@dataclass(frozen=True, slots=True)
class Measured:
    """The run-time value of a symbol: dimension `axis` of result `output`, known after the call has run."""

    output: int
    axis: int


@dataclass(frozen=True, slots=True)
class Arg:
    """type: the argument's type. value: its contents as an object array of Dims where known (integer
    tensors), else None.

    constant: the array, where the argument is a small compile-time constant of any dtype (`infer` fills it
        in); for operators whose shapes depend on floats (image.resize with scales).
    """

    type: Type
    value: np.ndarray | None = None
    constant: np.ndarray | None = None


class Site:
    """One call of an operator, as its rule and its compute definition see it.

    attrs are complete (defaults filled in). A missing optional argument has type `()`.
    """

    def __init__(
        self,
        op: Operator,
        args: Sequence[Arg],
        attrs: Mapping[str, Attr] | None = None,
        *,
        span: Span = UNKNOWN,
        bounds: Bounds | None = None,
        canonical: Callable[[Dim], Dim] = lambda d: d,
        fresh_name: Callable[[str], str] | None = None,
    ):
        self.op, self.args, self.span = op, tuple(args), span
        self.attrs: dict[str, Any] = dict(op.complete_attrs(attrs or {}, span))
        self.bounds = bounds or Bounds()
        self.checks: list[Check] = []
        self.bindings: dict[str, Item | Measured] = {}
        self.out: tuple[TensorType, ...] = ()
        self._canonical = canonical
        self._count = 0
        self._items: dict[int, np.ndarray] = {}
        self._fresh_name = fresh_name or self._count_up

    # ---- reading -------------------------------------------------------------------------------------------
    def has(self, i: int) -> bool:
        """Whether argument i was given (it may be optional)."""
        return i < len(self.args) and self.args[i].type != TupleType(())

    def tensor(self, i: int) -> TensorType:
        t = self.args[i].type if i < len(self.args) else None
        if not isinstance(t, TensorType):
            self.fail(f"argument {i + 1} must be a tensor, not {t}")
        return t

    def shape(self, i: int) -> tuple[Dim, ...]:
        return self.tensor(i).shape

    def dtype(self, i: int) -> str:
        return self.tensor(i).dtype

    def rank(self, i: int) -> int:
        return len(self.tensor(i).shape)

    def axis(self, axis: int, rank: int) -> int:
        """A possibly negative axis as 0 … rank-1."""
        if not -rank <= axis < rank:
            self.fail(f"axis {axis} is outside the {rank} dimensions of the tensor")
        return axis % rank if rank else 0

    def value(self, i: int) -> np.ndarray | None:
        """What is known at compile time of argument i's contents: an object array of Dims, or None."""
        return self.args[i].value if self.has(i) else None

    def constant(self, i: int) -> np.ndarray | None:
        """Argument i's contents if it is a small compile-time constant, else None."""
        return self.args[i].constant if self.has(i) else None

    def items(self, i: int, *, nonnegative: bool = False) -> np.ndarray:
        """Argument i's contents as Dims (object array, same shape): known ones, else fresh symbols read at
        run time.

        Asked again (by the compute definition, say) it gives the same symbols.
        """
        known = self.value(i)
        if known is not None:
            return known
        if i in self._items:
            return self._items[i]
        shape = self.shape(i)
        if not all(d.is_const for d in shape) or "int" not in self.dtype(i):
            self.fail(f"argument {i + 1} sets the result's rank: its length must be known, not {shape}")
        result = np.empty(tuple(d.value for d in shape), object)
        for flat in range(result.size):
            name = self._fresh_name(self.op.name.rpartition(".")[2])
            self.bindings[name] = Item(i, flat)
            self.bounds.known[name] = (0 if nonnegative else float("-inf"), float("inf"))
            result.reshape(-1)[flat] = Symbol(name)
        self._items[i] = result
        return result

    # ---- stating -------------------------------------------------------------------------------------------
    def equal(self, a: DimLike, b: DimLike, what: str) -> Dim:
        """a and b must be equal: fail if they cannot be, check at run time if unproved. Returns the better
        known one.
        """
        a, b = self._canonical(as_dim(a)), self._canonical(as_dim(b))
        if a == b:
            return a
        if (a - b).is_const:
            self.fail(f"{what}: {a} does not equal {b}")
        self.checks.append(Check(a, "==", b, what, self.span))
        return b if b.is_const else a

    def require(self, a: DimLike, relation: str, b: DimLike, what: str) -> None:
        """`a relation b` must hold: proved, refused, or checked at run time."""
        a, b = self._canonical(as_dim(a)), self._canonical(as_dim(b))
        low, high = self.bounds.interval(a - b)
        proved, possible = {
            "==": (low == high == 0, low <= 0 <= high),
            "<=": (high <= 0, low <= 0),
            "<": (high < 0, low < 0),
            ">=": (low >= 0, high >= 0),
            ">": (low > 0, high > 0),
        }[relation]
        if not possible:
            self.fail(f"{what}: {a} {relation} {b} does not hold")
        if not proved:
            self.checks.append(Check(a, relation, b, what, self.span))

    def measured(self, output: int, axis: int) -> Dim:
        """A dimension that only the computation itself determines (e.g. nonzero); read from the result."""
        name = self._fresh_name(self.op.name.rpartition(".")[2])
        self.bindings[name] = Measured(output, axis)
        return Symbol(name)

    def fail(self, message: str, remedy: str | None = None) -> NoReturn:
        raise TypeCheckError("TYPE-001", f"{self.op.name}: {message}", where=str(self.span), remedy=remedy)

    def _count_up(self, hint: str) -> str:
        self._count += 1
        return f"{hint}_{self._count}"


@dataclass(frozen=True)
class Operator:
    """All there is to know about an operator.

    params:     argument names; 'x?' may be missing, '*xs' (last) takes any number
    attrs:      name -> default (REQUIRED where there is none)
    rule:       Site -> result type (TensorType, or TupleType of them)
    reference:  NumPy oracle: (*arrays or None, **attrs with Dims as ints) -> array or tuple of arrays
    compute:    (Site with .out set, buffers) -> result buffer(s); a buffer is None for a missing argument and
                one in `value_args` whose contents are known. None: control (shape_of, …), handled by the VM
    value_args: indices of integer arguments whose contents the rule reads
    value:      Site -> contents of an integer result as an object array of Dims (a tuple of them for a
                tuple), None if not known; `Site.out` is not set yet
    view:       the result has argument 0's elements in the same order (reshape and its kin): costs nothing
    doc:        one line
    """

    name: str
    params: tuple[str, ...]
    rule: Callable[[Site], Type]
    reference: Callable[..., object]
    compute: Callable[[Site, list], Result] | None = None
    attrs: Mapping[str, object] = field(default_factory=dict)
    value_args: tuple[int, ...] = ()
    value: Callable[[Site], np.ndarray | tuple[np.ndarray, ...] | None] | None = None
    view: bool = False
    doc: str = ""

    def complete_attrs(self, given: Mapping[str, Attr], span: Span = UNKNOWN) -> dict[str, Attr]:
        """Defaults filled in; unknown or missing attributes are errors."""
        unknown = given.keys() - self.attrs.keys()
        missing = {k for k, v in self.attrs.items() if v is REQUIRED} - given.keys()
        if unknown or missing:
            what = [f"has no attribute {', '.join(sorted(unknown))}"] if unknown else []
            what += [f"needs attribute {', '.join(sorted(missing))}"] if missing else []
            raise TypeCheckError("TYPE-002", f"{self.name} {' and '.join(what)}", where=str(span))
        return {**self.attrs, **given}  # type: ignore[dict-item]


_REGISTRY: dict[str, Operator] = {}


def register(op: Operator) -> Operator:
    """Add an operator; a second one of the same name is an error."""
    if op.name in _REGISTRY:
        raise ValueError(f"operator {op.name} is already registered")
    _REGISTRY[op.name] = op
    return op


def get(name: str, span: Span = UNKNOWN) -> Operator:
    """The operator of that name; UnsupportedError OP-001 if there is none."""
    try:
        return _REGISTRY[name]
    except KeyError:
        import difflib

        near = difflib.get_close_matches(name, _REGISTRY, 1)
        remedy = near[0] if near else None
        raise UnsupportedError(
            "OP-001", f"there is no operator {name}", where=str(span), remedy=remedy
        ) from None


def names() -> list[str]:
    """All operator names, sorted."""
    return sorted(_REGISTRY)


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a Relay dtype name (bfloat16 through ml_dtypes)."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)

"""Types while a model is being read: what converters need to know of a value before the module is complete.

`intarsia.infer` types finished modules and is the authority. This is its little sister: it types one
expression at a time, when asked, by the operators' own rules, and assumes nothing from run-time checks.
Converters decide by rank, dtype and known contents only; sizes matter for the states of loops alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intarsia.dim import Bounds, Dim, Symbol, as_dim
from intarsia.ir.expr import Call, Constant, Expr, If, OpRef, Tuple, TupleGet, Var
from intarsia.ir.types import TensorType, TupleType, Type
from intarsia.ir.visit import children
from intarsia.op.entry import Arg, Site, get
from intarsia.support.errors import UnsupportedError
from intarsia.support.span import Span

_KNOWN_ELEMENTS = 64


class Types:
    """Types and known contents of expressions, computed on demand and remembered."""

    def __init__(self, bounds: Bounds):
        self.bounds = bounds
        self._types: dict[int, Type] = {}
        self._contents: dict[int, np.ndarray | tuple[np.ndarray, ...]] = {}
        self._keep: list[Expr] = []  # ids stay valid while their expressions live
        self._count = 0

    def of(self, e: Expr) -> Type:
        """Raises TypeCheckError where an operator's rule refuses its arguments."""
        types = self._types
        stack = [e]
        while stack:
            node = stack[-1]
            if id(node) in types:
                stack.pop()
                continue
            waiting = [c for c in _operands(node) if id(c) not in types]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            self.set(node, self._type(node))
        return types[id(e)]

    def tensor(self, e: Expr) -> TensorType:
        t = self.of(e)
        assert isinstance(t, TensorType), t
        return t

    def contents(self, e: Expr) -> np.ndarray | None:
        """Known contents of an integer or bool tensor as an object array of Dims, else None."""
        self.of(e)
        return self._tensor_contents(e)

    def _tensor_contents(self, e: Expr) -> np.ndarray | None:
        found = self._contents.get(id(e))
        return found if isinstance(found, np.ndarray) else None

    def set(self, e: Expr, t: Type) -> None:
        """State the type of an expression (calls of functions that the importer makes itself)."""
        self._keep.append(e)
        self._types[id(e)] = t

    def symbol(self, hint: str) -> Dim:
        """A symbol that no other dimension here has; the name can occur in no model."""
        self._count += 1
        return Symbol(f"{hint}${self._count}")

    def _fresh_name(self, hint: str) -> str:
        return str(self.symbol(hint))

    def _type(self, node: Expr) -> Type:
        match node:
            case Constant(value=value):
                if value.size <= _KNOWN_ELEMENTS and value.dtype.kind in "iub":
                    known = np.empty(value.shape, object)
                    known.reshape(-1)[:] = [as_dim(v) for v in value.reshape(-1).tolist()]
                    self._contents[id(node)] = known
                return TensorType(tuple(as_dim(d) for d in value.shape), value.dtype.name)
            case Var(type=t) if t is not None:
                return t
            case Call(op=OpRef()):
                return self._operator(node)
            case Tuple(fields=fields):
                return TupleType(tuple(self._types[id(f)] for f in fields))
            case TupleGet(tuple=whole, index=index):
                t = self._types[id(whole)]
                assert isinstance(t, TupleType)
                contents = self._contents.get(id(whole))
                if isinstance(contents, tuple):
                    self._contents[id(node)] = contents[index]
                return t.fields[index]
            case If(then=then, orelse=orelse):
                joined = join(self._types[id(then)], self._types[id(orelse)], lambda: self.symbol("if"))
                assert joined is not None, "the importer joins only branches that fit"
                return joined
        raise AssertionError(f"the importer makes no {type(node).__name__} without stating its type")

    def _operator(self, call: Call) -> Type:
        assert isinstance(call.op, OpRef)
        op = get(call.op.name, call.span)
        args = [Arg(self._types[id(a)], self._tensor_contents(a), _small(a)) for a in call.args]
        site = Site(op, args, call.attrs, span=call.span, bounds=self.bounds, fresh_name=self._fresh_name)
        result = op.rule(site)
        site.out = result.fields if isinstance(result, TupleType) else (result,)  # type: ignore[assignment]
        contents = op.value(site) if op.value is not None else None
        if contents is not None:
            self._remember(call, contents)
        return result

    def _remember(self, e: Expr, contents: np.ndarray | tuple[np.ndarray, ...]) -> None:
        size = contents.size if isinstance(contents, np.ndarray) else sum(c.size for c in contents)
        if size <= _KNOWN_ELEMENTS:
            self._contents[id(e)] = contents


def _small(e: Expr) -> np.ndarray | None:
    return e.value if isinstance(e, Constant) and e.value.size <= _KNOWN_ELEMENTS else None


def _operands(node: Expr) -> tuple[Expr, ...]:
    return node.args if isinstance(node, Call) else children(node)


def join(a: Type, b: Type, differ: Callable[[], Dim]) -> Type | None:
    """The type of a value that is one of two; None where rank, dtype or number of fields differ."""
    match a, b:
        case TensorType(shape=x, dtype=d), TensorType(shape=y, dtype=e) if len(x) == len(y) and d == e:
            return TensorType(tuple(i if i == j else differ() for i, j in zip(x, y)), d)
        case TupleType(fields=xs), TupleType(fields=ys) if len(xs) == len(ys):
            fields = [join(x, y, differ) for x, y in zip(xs, ys)]
            return (
                None
                if any(f is None for f in fields)
                else TupleType(tuple(f for f in fields if f is not None))
            )
    return None


def known_ints(types: Types, e: Expr, what: str, where: Span) -> tuple[int, ...]:
    """Contents of an integer tensor that must be constant; UnsupportedError ONNX-023 where they are not."""
    if isinstance(e, Constant):
        return tuple(int(v) for v in e.value.reshape(-1))
    found = types.contents(e)
    if found is None or not all(as_dim(d).is_const for d in found.reshape(-1)):
        raise UnsupportedError(
            "ONNX-023",
            f"{what} must be known when the model is compiled, but they are not constant",
            where=str(where),
            remedy="export the model with constants there",
        )
    return tuple(int(as_dim(d)) for d in found.reshape(-1))

"""One ONNX node with its attributes checked, and the table of converters that families of operators fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

from intarsia.ir.expr import Expr
from intarsia.support.errors import ModelError, UnsupportedError
from intarsia.support.span import Span

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, NodeProto, TensorProto

    from intarsia.frontend.onnx.builder import Builder

MAIN_DOMAIN = "ai.onnx"
_KINDS = {
    1: "a float", 2: "an integer", 3: "a string", 4: "a tensor", 5: "a graph", 6: "floats", 7: "integers",
    8: "strings", 9: "tensors", 10: "graphs", 11: "a sparse tensor", 12: "sparse tensors", 13: "a type",
    14: "types",
}  # fmt: skip
_REQUIRED: Any = object()


class Node:
    """A node as its converter sees it.

    version: of the operator set; args: one expression an input, None for a missing one (trailing ones may be
        left out); span: where the node is in the model, by its name or that of its first output
    """

    def __init__(
        self,
        proto: NodeProto,
        version: int,
        attributes: Mapping[str, AttributeProto],
        span: Span,
        args: Sequence[Expr | None] = (),
    ):
        self.proto, self.version, self.span = proto, version, span
        self.args = tuple(args)
        self.domain, self.op = proto.domain or MAIN_DOMAIN, proto.op_type
        self.outputs = tuple(proto.output)
        self._attributes = attributes

    @property
    def where(self) -> str:
        return f"{self.span} ({self.op})"

    # ---- inputs and outputs --------------------------------------------------------------------------------
    def arg(self, i: int) -> Expr:
        """Input i, which must be there."""
        found = self.maybe(i)
        if found is None:
            raise ModelError("ONNX-011", f"input {i + 1} of {self.op} is missing", where=self.where)
        return found

    def maybe(self, i: int) -> Expr | None:
        return self.args[i] if i < len(self.args) else None

    def wants(self, output: int) -> bool:
        """Whether the model gives result number `output` a name."""
        return output < len(self.outputs) and bool(self.outputs[output])

    # ---- attributes ----------------------------------------------------------------------------------------
    def has(self, name: str) -> bool:
        return name in self._attributes

    def int(self, name: str, default: Any = _REQUIRED) -> Any:
        a = self._attribute(name, 2, default)
        return default if a is None else a.i

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self.int(name, int(default)))

    def float(self, name: str, default: Any = _REQUIRED) -> Any:
        a = self._attribute(name, 1, default)
        return default if a is None else a.f

    def string(self, name: str, default: Any = _REQUIRED) -> Any:
        a = self._attribute(name, 3, default)
        return default if a is None else a.s.decode("utf-8", "replace")

    def ints(self, name: str, default: Any = _REQUIRED) -> Any:
        a = self._attribute(name, 7, default)
        return default if a is None else tuple(a.ints)

    def floats(self, name: str, default: Any = _REQUIRED) -> Any:
        a = self._attribute(name, 6, default)
        return default if a is None else tuple(a.floats)

    def strings(self, name: str, default: Any = _REQUIRED) -> Any:
        a = self._attribute(name, 8, default)
        return default if a is None else tuple(s.decode("utf-8", "replace") for s in a.strings)

    def tensor(self, name: str) -> TensorProto:
        return self._attribute(name, 4, _REQUIRED).t

    def graph(self, name: str) -> GraphProto:
        return self._attribute(name, 5, _REQUIRED).g

    def _attribute(self, name: str, kind: Any, default: Any) -> Any:
        a = self._attributes.get(name)
        if a is None:
            if default is _REQUIRED:
                raise ModelError("ONNX-017", f"{self.op} needs the attribute {name}", where=self.where)
            return None
        found = a.type or next((k for f, k in _FIELDS.items() if _filled(a, f)), kind)
        if found != kind:
            raise ModelError(
                "ONNX-017",
                f"the attribute {name} of {self.op} must be {_KINDS[kind]}, "
                f"not {_KINDS.get(found, 'something else')}",
                where=self.where,
            )
        return a

    @property
    def attributes(self) -> Mapping[str, AttributeProto]:
        return self._attributes

    def unsupported(self, message: str, remedy: str | None = None) -> UnsupportedError:
        return UnsupportedError("ONNX-021", f"{self.op}: {message}", where=self.where, remedy=remedy)


_FIELDS = {"f": 1, "i": 2, "s": 3, "t": 4, "g": 5, "floats": 6, "ints": 7, "strings": 8}


def _filled(a: AttributeProto, field: str) -> bool:
    return len(getattr(a, field)) > 0 if field.endswith("s") and field != "s" else a.HasField(field)


Result = Union[Expr, tuple[Expr | None, ...]]
Convert = Callable[["Builder", Node], Result]


@dataclass(frozen=True, slots=True)
class Converter:
    """convert: makes the expression; needs: operators it calls; limit: why a node's attributes are beyond it,
    or None.
    """

    convert: Convert
    needs: tuple[str, ...]
    limit: Callable[[Node], str | None] | None


_TABLE: dict[tuple[str, str], Converter] = {}


def converts(
    *ops: str,
    needs: Sequence[str] = (),
    limit: Callable[[Node], str | None] | None = None,
    domain: str = MAIN_DOMAIN,
) -> Callable[[Convert], Convert]:
    """Enter a converter for the named ONNX operators, all versions."""

    def enter(convert: Convert) -> Convert:
        for op in ops:
            assert (domain, op) not in _TABLE, op
            _TABLE[domain, op] = Converter(convert, tuple(needs), limit)
        return convert

    return enter


def converter(domain: str, op: str) -> Converter | None:
    return _TABLE.get((domain, op))


def converted() -> list[tuple[str, str]]:
    """All (domain, operator) pairs with a converter, sorted."""
    return sorted(_TABLE)

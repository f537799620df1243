"""The walk over a model's graphs: names become expressions, nodes become calls by their converters."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.dim import Bounds, Dim, Symbol, as_dim
from intarsia.frontend.onnx import (  # noqa: F401 - converters enter themselves
    control,
    einsum,
    elementwise,
    functions,
    image,
    microsoft,
    nn,
    quantized,
    recurrent,
    reduce,
    shape,
)  # fmt: skip
from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.check import check
from intarsia.frontend.onnx.node import MAIN_DOMAIN, Node, converter
from intarsia.frontend.onnx.read import read
from intarsia.frontend.onnx.scope import Scope
from intarsia.frontend.onnx.tensors import dtype_name, to_array
from intarsia.ir.expr import Constant, Expr, Function, Tuple, Var
from intarsia.ir.module import IRModule
from intarsia.ir.types import TensorType
from intarsia.op.entry import names as operator_names
from intarsia.support.errors import ModelError, UnsupportedError
from intarsia.support.span import Span

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

_MAX_NODES = 2_000_000  # after functions are inlined
_MAX_DEPTH = 64


def load(model: str | Path | bytes | ModelProto) -> IRModule:
    """An ONNX model (a path, a file's bytes or an onnx.ModelProto) as a Relay module.

    `main` takes the graph's inputs that are not initializers, by their ONNX names; it gives one output bare,
    several as a tuple. A `dim_param` becomes a symbol of that name (letters, digits and underscores kept), an
    unknown dimension a fresh one. Loops become recursive global functions. Shapes that the model states for
    inner values are not believed.

    Raises ModelError and UnsupportedError (ONNX-…), TypeCheckError where an operator refuses its arguments.
    """
    source = read(model)
    known = frozenset(operator_names())
    check(source, known)
    return Importer(source.model, source.name, source.folder, known).run()


class Importer:
    """One import. known: the Relay operators that exist."""

    def __init__(self, model: ModelProto, source: str, folder: Path | None, known: frozenset[str]):
        self.model, self.source, self.folder, self.known = model, source, folder, known
        self.local: dict[tuple[str, str, str], FunctionProto] = {
            (f.domain or MAIN_DOMAIN, f.name, f.overload): f for f in model.functions
        }
        self.builder = Builder(self, source, folder, Bounds())
        self.varying: dict[tuple[str, ...], set[tuple[int, int]]] = {}  # sizes that loops were seen to change
        self._nodes = 0

    def run(self) -> IRModule:
        graph = self.model.graph
        opsets = {o.domain or MAIN_DOMAIN: o.version for o in self.model.opset_import} or {MAIN_DOMAIN: 1}
        scope = Scope(opsets)
        stored = {t.name for t in graph.initializer}
        inputs = [i for i in graph.input if i.name not in stored]
        symbols = Symbols()
        for i in inputs:
            scope.values[i.name] = Var(i.name, self._input_type(i, symbols), span=Span(self.source, i.name))
        params = tuple(v for v in scope.values.values() if isinstance(v, Var))
        results = self.graph(graph, scope)
        body = results[0] if len(results) == 1 else Tuple(tuple(results))
        main = Function(params, body, span=Span(self.source))
        return IRModule(
            {"main": main, **self.builder.functions},
            input_names=tuple(i.name for i in inputs),
            output_names=tuple(o.name for o in graph.output),
        )

    # ---- graphs --------------------------------------------------------------------------------------------
    def graph(self, graph: GraphProto, scope: Scope) -> list[Expr]:
        """The outputs of a graph whose inputs are in the scope already."""
        if len(scope.path) > _MAX_DEPTH:
            raise ModelError("ONNX-019", f"graphs are nested more than {_MAX_DEPTH} deep", where=self.source)
        for t in graph.initializer:
            where = f"initializer '{t.name}' in {self.source}"
            scope.values[t.name] = Constant(to_array(t, self.folder, where), span=Span(self.source, t.name))
        for t in graph.sparse_initializer:
            where = f"initializer '{t.values.name}' in {self.source}"
            raise UnsupportedError("ONNX-022", "sparse tensors are not supported", where=where)
        self.nodes(graph.node, scope)
        return [self.value(o.name, scope, f"output '{o.name}'") for o in graph.output]

    def nodes(self, nodes, scope: Scope) -> None:
        """Convert nodes in their order; their results join the scope."""
        for index, proto in enumerate(nodes):
            self._nodes += 1
            if self._nodes > _MAX_NODES:
                raise ModelError("ONNX-019", f"the model has more than {_MAX_NODES} nodes", where=self.source)
            self._convert(self._node(proto, index, scope), scope)

    def value(self, name: str, scope: Scope, where: str) -> Expr:
        """The expression for a name that must be there."""
        try:
            found = scope.lookup(self.builder, name)
        except KeyError:
            found = None
        if found is None:
            raise ModelError(
                "ONNX-010", f"nothing in the model is called '{name}'", where=f"{where} in {self.source}"
            )
        return found

    def _node(self, proto: NodeProto, index: int, scope: Scope) -> Node:
        domain = proto.domain or MAIN_DOMAIN
        label = proto.name or next((o for o in proto.output if o), f"{proto.op_type}_{index}")
        span = Span(self.source, scope.span_name or label)
        version = scope.opsets.get(domain, 1)
        node = Node(proto, version, _attributes(proto, scope), span)
        args: list[Expr | None] = []
        for name in proto.input:
            try:
                args.append(scope.lookup(self.builder, name) if name else None)
            except KeyError:
                raise ModelError(
                    "ONNX-010", f"nothing in the model is called '{name}'", where=node.where
                ) from None
        node.args = tuple(args)
        return node

    def _convert(self, node: Node, scope: Scope) -> None:
        b = self.builder
        outer, b.span = b.span, node.span
        own = converter(node.domain, node.op)
        local = self.local.get((node.domain, node.op, node.proto.overload))
        if local is not None:
            results = functions.inline(self, local, node, scope)
        elif own is not None and self.known.issuperset(own.needs):
            reason = own.limit(node) if own.limit is not None else None
            if reason is not None:
                raise node.unsupported(f"{reason} is not supported")
            made = own.convert(self.bound(scope), node)
            results = made if isinstance(made, tuple) else (made,)
        else:
            body = functions.standard_body(node, b)
            if body is None:
                raise UnsupportedError(
                    "ONNX-020", f"the operator {node.op} is not supported", where=node.where
                )
            results = functions.inline(self, body, node, scope)
        b.span = outer
        self._bind(node, results, scope)

    def bound(self, scope: Scope) -> Builder:
        """The builder, told which scope it works in."""
        self.builder.scope = scope
        return self.builder

    def _bind(self, node: Node, results: tuple[Expr | None, ...], scope: Scope) -> None:
        for i, name in enumerate(node.outputs):
            if not name:
                continue
            value = results[i] if i < len(results) else None
            if value is None:
                raise node.unsupported(f"its result number {i + 1} ('{name}') is not supported")
            scope.values[name] = value

    # ---- inputs --------------------------------------------------------------------------------------------
    def _input_type(self, info: ValueInfoProto, symbols: Symbols) -> TensorType:
        where = f"input '{info.name}' in {self.source}"
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            what = (kind or "unknown").removesuffix("_type")
            raise UnsupportedError(
                "ONNX-022", f"inputs of type {what} are not supported, only tensors", where=where
            )
        t = info.type.tensor_type
        dtype = dtype_name(t.elem_type, where)
        if not t.HasField("shape"):
            raise UnsupportedError(
                "ONNX-024",
                "the number of dimensions of the input is not stated",
                where=where,
                remedy="state its shape in the model (dimensions may stay unknown)",
            )
        dims = []
        for axis, d in enumerate(t.shape.dim):
            if d.HasField("dim_value") and d.dim_value >= 0:
                dims.append(as_dim(d.dim_value))
            else:
                dims.append(symbols.named(d.dim_param, f"{info.name}_d{axis}"))
        return TensorType(tuple(dims), dtype)


class Symbols:
    """Symbols for the dimensions that a model names, each an identifier, different names kept apart."""

    def __init__(self) -> None:
        self._by_name: dict[str, Dim] = {}
        self._taken: set[str] = set()

    def named(self, name: str, hint: str) -> Dim:
        """The symbol for a dim_param; a fresh one called like `hint` for '', '?' and numbers such as '-1'."""
        if not any(c.isalpha() for c in name):
            return self._fresh(hint)
        if name not in self._by_name:
            self._by_name[name] = self._fresh(name)
        return self._by_name[name]

    def _fresh(self, hint: str) -> Dim:
        text = "".join(c if c.isascii() and c.isalnum() or c == "_" else "_" for c in hint)
        text = text if text[:1].isalpha() or text[:1] == "_" else f"_{text}"
        name, k = text, 1
        while name in self._taken:
            k += 1
            name = f"{text}_{k}"
        self._taken.add(name)
        return Symbol(name)


def _attributes(proto: NodeProto, scope: Scope) -> Mapping[str, AttributeProto]:
    """A node's attributes by name; references to attributes of the function around it are followed."""
    found: dict[str, AttributeProto] = {}
    for a in proto.attribute:
        if not a.ref_attr_name:
            found[a.name] = a
        elif a.ref_attr_name in scope.attributes:
            found[a.name] = scope.attributes[a.ref_attr_name]
    return found

"""Is this model whole, and can all of it be imported? Asked before anything is converted; gaps are told
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from intarsia.frontend.onnx.functions import body_version, fixed_body, schema_of
from intarsia.frontend.onnx.node import MAIN_DOMAIN, Node, converter
from intarsia.frontend.onnx.read import NEWEST_OPSET, Source
from intarsia.support.errors import ModelError, UnsupportedError
from intarsia.support.span import Span

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

_MAX_DEPTH = 64
_SHOWN = 3  # node names per operator in messages
_GRAPH, _GRAPHS = 5, 10  # AttributeProto.GRAPH, GRAPHS


def check(source: Source, known: frozenset[str]) -> None:
    """known: the Relay operators that exist.

    Raises ModelError ONNX-010 (unknown name), ONNX-012 (not in order, cyclic), ONNX-013 (a name twice),
    ONNX-019 (nesting), UnsupportedError ONNX-020 with all operators that cannot be imported.
    """
    model = source.model
    opsets = {o.domain or MAIN_DOMAIN: o.version for o in model.opset_import} or {MAIN_DOMAIN: 1}
    _check_texts(model, source.name)
    _check_names(model.graph, source.name)
    gaps = Gaps(source.name, known, {(f.domain or MAIN_DOMAIN, f.name) for f in model.functions})
    gaps.visit(model.graph.node, opsets)
    for f in model.functions:
        own = {o.domain or MAIN_DOMAIN: o.version for o in f.opset_import} or opsets
        gaps.visit(f.node, own)
    gaps.report()


# ---- texts -------------------------------------------------------------------------------------------------
def _check_texts(model: ModelProto, source: str) -> None:
    """Names are text. (protobuf hands out bytes where a file holds something else.)"""
    texts: list[object] = [o.domain for o in model.opset_import]
    nodes: list[NodeProto] = []
    graphs = [model.graph]
    for f in model.functions:
        texts += [
            f.name,
            f.domain,
            f.overload,
            *f.input,
            *f.output,
            *(o.domain for o in f.opset_import),
            *f.attribute,
        ]
        nodes += f.node
    while graphs or nodes:
        if graphs:
            g = graphs.pop()
            nodes += g.node
            for v in (*g.input, *g.output):
                texts.append(v.name)
                texts += [d.dim_param for d in v.type.tensor_type.shape.dim]
            for t in g.initializer:
                texts += [t.name, *(x for e in t.external_data for x in (e.key, e.value))]
            continue
        node = nodes.pop()
        texts += [node.name, node.op_type, node.domain, node.overload, *node.input, *node.output]
        for a in node.attribute:
            texts += [a.name, a.ref_attr_name, *(x for e in a.t.external_data for x in (e.key, e.value))]
        graphs.extend(subgraphs(node))
    wrong = next((x for x in texts if not isinstance(x, str)), None)
    if wrong is not None:
        message = f"a name in the model is not text (UTF-8): {wrong!r:.60}; the file is damaged"
        raise ModelError(
            "ONNX-002",
            message,
            where=source,
            remedy="export the model to ONNX again, or fetch the file again",
        )


# ---- names -------------------------------------------------------------------------------------------------
def _check_names(graph: GraphProto, source: str) -> None:
    """Every name is given once and before it is used; subgraphs see the names around them at their node."""
    frames = [_Frame(graph, source)]
    while frames:
        frame = frames[-1]
        if frame.waiting:
            if len(frames) > _MAX_DEPTH:
                raise ModelError("ONNX-019", f"graphs are nested more than {_MAX_DEPTH} deep", where=source)
            frames.append(_Frame(frame.waiting.pop(), source))
            continue
        if frame.index:  # the results of a node join after its subgraphs
            frame.define(frame.index - 1, source)
        if frame.index == len(frame.graph.node):
            for o in frame.graph.output:
                if not any(o.name in f.seen for f in frames):
                    message = f"the output '{o.name}' is not computed by any node"
                    raise ModelError("ONNX-010", message, where=source, remedy="export the model again")
            frames.pop()
            continue
        node = frame.graph.node[frame.index]
        for name in node.input:
            if name and not any(name in f.seen for f in reversed(frames)):
                raise _unknown(frame.graph, frame.index, name, _where(node, frame.index, source))
        frame.waiting = list(subgraphs(node))
        frame.index += 1


class _Frame:
    """A graph that is being checked: names seen, the next node, subgraphs of the last one that wait."""

    def __init__(self, graph: GraphProto, source: str):
        stored = [t.name for t in graph.initializer]
        names = [i.name for i in graph.input]
        for given, what in ((stored, "initializers"), (names, "inputs")):
            if len(set(given)) != len(given):
                raise _twice(_first_repeated(given), f"{what} in {source}")
        self.graph, self.index = graph, 0
        self.seen = {*stored, *names}
        self.waiting: list[GraphProto] = []

    def define(self, index: int, source: str) -> None:
        node = self.graph.node[index]
        for name in node.output:
            if name in self.seen:
                raise _twice(name, _where(node, index, source))
            if name:
                self.seen.add(name)


def _unknown(g: GraphProto, index: int, name: str, where: str) -> ModelError:
    """The error for a name that is not there (yet) when node `index` uses it."""
    makers = {o: i for i, n in enumerate(g.node) for o in n.output if o}
    if name not in makers:
        return ModelError(
            "ONNX-010",
            f"nothing in the model is called '{name}'",
            where=where,
            remedy="export the model again",
        )
    path, todo = {makers[name]}, [makers[name]]
    while todo:
        node = g.node[todo.pop()]
        for i in node.input:
            if i in makers and makers[i] not in path:
                path.add(makers[i])
                todo.append(makers[i])
    if index in path:
        return ModelError(
            "ONNX-012",
            f"the graph has a cycle: the node needs '{name}', which is computed from its own result",
            where=where,
        )
    return ModelError(
        "ONNX-012",
        f"the nodes are not in order: '{name}' is used before it is computed",
        where=where,
        remedy="sort the nodes topologically (onnx requires it)",
    )


def _first_repeated(names: Sequence[str]) -> str:
    seen: set[str] = set()
    return next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]


def _twice(name: str, where: str) -> ModelError:
    return ModelError(
        "ONNX-013", f"the name '{name}' is given to two values", where=where, remedy="export the model again"
    )


def _where(node: NodeProto, index: int, source: str) -> str:
    label = node.name or next((o for o in node.output if o), f"{node.op_type}_{index}")
    return f"{Span(source, label)} ({node.op_type})"


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for a in node.attribute:
        if a.type == _GRAPH or a.type == 0 and a.HasField("g"):
            yield a.g
        elif a.type == _GRAPHS:
            yield from a.graphs


# ---- operators ---------------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Gap:
    reason: str
    count: int = 0
    nodes: list[str] = field(default_factory=list)


class Gaps:
    """Collects operators that cannot be imported."""

    def __init__(self, source: str, known: frozenset[str], local: set[tuple[str, str]]):
        self.source, self.known, self.local = source, known, local
        self.found: dict[tuple[str, str, int, str], _Gap] = {}
        self._bodies: dict[tuple[str, str, int], bool] = {}

    def visit(self, nodes: Sequence[NodeProto], opsets: dict[str, int]) -> None:
        stack: list[tuple[Sequence[NodeProto], int]] = [(nodes, 0)]
        while stack:
            here, depth = stack.pop()
            if depth > _MAX_DEPTH:
                raise ModelError(
                    "ONNX-019", f"graphs are nested more than {_MAX_DEPTH} deep", where=self.source
                )
            for index, proto in enumerate(here):
                domain = proto.domain or MAIN_DOMAIN
                version = opsets.get(domain, 1)
                label = proto.name or next((o for o in proto.output if o), f"{proto.op_type}_{index}")
                reason = self.reason(proto, domain, version)
                if reason is not None:
                    gap = self.found.setdefault((domain, proto.op_type, version, reason), _Gap(reason))
                    gap.count += 1
                    if len(gap.nodes) < _SHOWN:
                        gap.nodes.append(label)
                stack.extend((g.node, depth + 1) for g in subgraphs(proto))

    def reason(self, proto: NodeProto, domain: str, version: int) -> str | None:
        """Why the node cannot be imported; None if it can, as far as can be told from it alone."""
        if (domain, proto.op_type) in self.local:
            return None
        own = converter(domain, proto.op_type)
        if own is not None and self.known.issuperset(own.needs):
            if own.limit is None or any(a.ref_attr_name for a in proto.attribute):
                return None  # what a function's caller says is seen when it is inlined
            attributes = {a.name: a for a in proto.attribute}
            return own.limit(Node(proto, version, attributes, Span(self.source, proto.name)))
        if self.has_body(domain, proto.op_type, version):
            return None
        return "" if own is None else f"needs {', '.join(n for n in own.needs if n not in self.known)}"

    def has_body(self, domain: str, op: str, version: int) -> bool:
        """Whether the standard defines the operator by others that can be imported."""
        key = domain, op, version
        if key not in self._bodies:
            self._bodies[key] = False  # an operator whose body calls itself is no function
            schema = schema_of(domain, op, version)
            found = body_version(schema, version) if schema is not None else None
            if schema is not None and found is not None:
                body = fixed_body(schema, version)
                imported = body.opset_import if body is not None else ()
                opsets = {MAIN_DOMAIN: NEWEST_OPSET, **{o.domain or MAIN_DOMAIN: o.version for o in imported}}
                self._bodies[key] = body is None or all(
                    self.reason(n, n.domain or MAIN_DOMAIN, opsets.get(n.domain or MAIN_DOMAIN, version))
                    is None
                    for n in body.node
                )
        return self._bodies[key]

    def report(self) -> None:
        if not self.found:
            return
        lines = []
        for (domain, op, version, reason), gap in sorted(self.found.items()):
            shown = ", ".join(f"'{n}'" for n in gap.nodes) + (", …" if gap.count > len(gap.nodes) else "")
            why = f": {reason}" if reason else ""
            times = f"{gap.count} node" + ("s" if gap.count > 1 else "")
            lines.append(f"\n    {op} ({domain} {version}), {times} ({shown}){why}")
        count = len(self.found)
        what = "an operator that is" if count == 1 else f"{count} operators that are"
        raise UnsupportedError(
            "ONNX-020",
            f"the model uses {what} not supported:" + "".join(lines),
            where=self.source,
            remedy="export the model in another way, or report the operators that you miss",
        )

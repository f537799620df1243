"""Functions as operators: bodies of the model and of the ONNX standard, put in place of the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from intarsia.dim import Dim
from intarsia.frontend.onnx.node import MAIN_DOMAIN, Node
from intarsia.frontend.onnx.read import NEWEST_OPSET
from intarsia.frontend.onnx.scope import Scope
from intarsia.frontend.onnx.tensors import dtype_code
from intarsia.ir.expr import Expr
from intarsia.support.errors import ModelError

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, NodeProto, TypeProto

    from intarsia.frontend.onnx.builder import Builder
    from intarsia.frontend.onnx.importer import Importer

_MAX_DEPTH = 64


def inline(importer: Importer, body: FunctionProto, node: Node, scope: Scope) -> tuple[Expr | None, ...]:
    """The results of a function's body for a node's arguments and attributes."""
    key = f"{body.domain}:{body.name}:{body.overload}"
    if key in scope.inlining and (node.domain, node.op, body.overload) in importer.local:
        raise ModelError("ONNX-019", f"the function {body.name} calls itself", where=node.where)
    if len(scope.path) > _MAX_DEPTH:
        raise ModelError(
            "ONNX-019", f"functions and graphs are nested more than {_MAX_DEPTH} deep", where=node.where
        )
    opsets = {
        MAIN_DOMAIN: NEWEST_OPSET,
        **scope.opsets,
        **{o.domain or MAIN_DOMAIN: o.version for o in body.opset_import},
    }
    attributes = {a.name: a for a in body.attribute_proto} | _defaults(node) | dict(node.attributes)
    inner = Scope(
        opsets,
        attributes=attributes,
        path=(*scope.path, f"{node.span.name}/{node.outputs[0] if node.outputs else ''}"),
        span_name=node.span.name,
        inlining=(*scope.inlining, key),
    )
    for i, name in enumerate(body.input):
        inner.values[name] = node.maybe(i)
    importer.nodes(body.node, inner)
    where = f"output of function {body.name}"
    return tuple(
        importer.value(o, inner, where) if node.wants(i) else None for i, o in enumerate(body.output)
    )


def _defaults(node: Node) -> dict[str, AttributeProto]:
    """The attributes that a standard function has without being told."""
    schema = schema_of(node.domain, node.op, node.version)
    if schema is None:
        return {}
    return {k: a.default_value for k, a in schema.attributes.items() if a.default_value.type}


def schema_of(domain: str, op: str, version: int) -> Any:
    """The standard's entry (an OpSchema) for an operator at an operator-set version, or None."""
    from onnx import defs

    try:
        return defs.get_schema(op, version, "" if domain == MAIN_DOMAIN else domain)
    except defs.SchemaError:
        return None


def body_version(schema: Any, version: int) -> tuple[int, bool] | None:
    """(operator set in which the standard writes the function's body, whether it depends on the node); or
    None.

    A body in a later set than the model's is taken only if there is none before it.
    """
    for versions, depends in (
        (schema.function_opset_versions, False),
        (schema.context_dependent_function_opset_versions, True),
    ):
        if versions:
            return max((v for v in versions if v <= version), default=min(versions)), depends
    return None


def fixed_body(schema: Any, version: int) -> FunctionProto | None:
    """The body of a standard function that is the same for all nodes."""
    from onnx import FunctionProto

    found = body_version(schema, version)
    if found is None or found[1]:
        return None
    return FunctionProto.FromString(schema.get_function_with_opset_version(found[0]))


def standard_body(node: Node, b: Builder) -> FunctionProto | None:
    """The body that the ONNX standard gives an operator, for this node; None where it gives none."""
    from onnx import FunctionProto

    schema = schema_of(node.domain, node.op, node.version)
    found = body_version(schema, node.version) if schema is not None else None
    if schema is None or found is None:
        return None
    if not found[1]:
        return fixed_body(schema, node.version)
    types = [_type_proto(b, a).SerializeToString() for a in node.args]
    proto = _resolved(node).SerializeToString()
    try:
        data = schema.get_context_dependent_function_with_opset_version(found[0], proto, types)
    except (
        RuntimeError,
        ValueError,
        IndexError,
        TypeError,
    ) as e:  # what onnx's own code throws at a bad node
        message = f"{node.op} does not fit the ONNX standard: {e}"
        raise ModelError("ONNX-011", message, where=node.where) from None
    return FunctionProto.FromString(data) if data else None


def _resolved(node: Node) -> NodeProto:
    """The node with references to attributes of a function around it replaced by their values."""
    from onnx import NodeProto

    proto = NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    for name, a in node.attributes.items():
        proto.attribute.add().CopyFrom(a)
        proto.attribute[-1].name = name
        proto.attribute[-1].ref_attr_name = ""
    return proto


def _type_proto(b: Builder, e: Expr | None) -> TypeProto:
    from onnx import TypeProto

    proto = TypeProto()
    if e is None:
        return proto
    t = b.type(e)
    proto.tensor_type.elem_type = dtype_code(t.dtype)
    proto.tensor_type.shape.SetInParent()
    for d in t.shape:
        _put_dim(proto.tensor_type.shape.dim.add(), d)
    return proto


def _put_dim(place, d: Dim) -> None:
    if d.is_const:
        place.dim_value = d.value
    else:
        place.dim_param = str(d)

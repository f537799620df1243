"""LSTM, GRU and RNN over whole sequences."""

from __future__ import annotations

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.ir.expr import Attr, Expr, TupleGet

_ACTIVATIONS = {
    "relu", "tanh", "sigmoid", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu",
    "softsign", "softplus",
}  # fmt: skip


def _limit(node: Node) -> str | None:
    names = node.strings("activations", ())
    unknown = [a for a in names if a.lower() not in _ACTIVATIONS]
    return f"the activation {unknown[0]}" if unknown else None


def _attrs(node: Node) -> dict[str, Attr]:
    """What the three have in common; attributes that the model leaves out keep the operator's defaults."""
    attrs: dict[str, Attr] = {
        "hidden": node.int("hidden_size", None),
        "direction": node.string("direction", "forward"),
        "layout": node.int("layout", 0),
    }
    if node.has("activations"):
        attrs["activations"] = tuple(a.lower() for a in node.strings("activations"))
    for key in ("activation_alpha", "activation_beta"):
        if node.has(key):
            attrs[key] = node.floats(key)
    if node.has("clip"):
        attrs["clip"] = node.float("clip")
    return attrs


def _results(b: Builder, call: Expr, count: int) -> tuple[Expr, ...]:
    return tuple(TupleGet(call, i, span=b.span) for i in range(count))


@converts("LSTM", needs=("nn.lstm",), limit=_limit)
def _lstm(b: Builder, node: Node) -> tuple[Expr, ...]:
    attrs = _attrs(node) | {"input_forget": node.flag("input_forget")}
    return _results(b, b.op("nn.lstm", *(node.maybe(i) for i in range(8)), **attrs), 3)


@converts("GRU", needs=("nn.gru",), limit=_limit)
def _gru(b: Builder, node: Node) -> tuple[Expr, ...]:
    attrs = _attrs(node) | {"linear_before_reset": node.flag("linear_before_reset")}
    return _results(b, b.op("nn.gru", *(node.maybe(i) for i in range(6)), **attrs), 2)


@converts("RNN", needs=("nn.rnn",), limit=_limit)
def _rnn(b: Builder, node: Node) -> tuple[Expr, ...]:
    return _results(b, b.op("nn.rnn", *(node.maybe(i) for i in range(6)), **_attrs(node)), 2)

"""Fused operators that ONNX Runtime's optimiser leaves in models (com.microsoft), taken apart again."""

from __future__ import annotations

from intarsia.frontend.onnx.builder import Builder
from intarsia.frontend.onnx.node import Node, converts
from intarsia.ir.expr import Expr

_DOMAIN = "com.microsoft"


@converts("Gelu", "BiasGelu", "FastGelu", needs=("nn.gelu", "add"), domain=_DOMAIN)
def _gelu(b: Builder, node: Node) -> Expr:
    x, bias = node.arg(0), node.maybe(1)
    x = x if bias is None else b.op("add", x, bias)
    return b.op("nn.gelu", x, approximate="tanh" if node.op == "FastGelu" else "none")


@converts("QuickGelu", needs=("multiply", "sigmoid"), domain=_DOMAIN)
def _quick_gelu(b: Builder, node: Node) -> Expr:
    x = node.arg(0)
    return b.op("multiply", x, b.op("sigmoid", b.op("multiply", x, b.like(node.float("alpha", 1.702), x))))


def _batch_transposed(node: Node) -> str | None:
    return "transBatchA or transBatchB" if node.int("transBatchA", 0) or node.int("transBatchB", 0) else None


@converts("FusedMatMul", needs=("matmul", "multiply"), limit=_batch_transposed, domain=_DOMAIN)
def _matmul(b: Builder, node: Node) -> Expr:
    swap_a, swap_b, alpha = node.flag("transA"), node.flag("transB"), node.float("alpha", 1.0)
    product = b.op("matmul", node.arg(0), node.arg(1), transpose_a=swap_a, transpose_b=swap_b)
    return product if alpha == 1 else b.op("multiply", product, b.like(alpha, product))


def _statistics(node: Node) -> str | None:
    return "its results mean and inv_std_var" if node.wants(1) or node.wants(2) else None


@converts("SkipLayerNormalization", needs=("nn.layer_norm", "add"), limit=_statistics, domain=_DOMAIN)
def _skip_layer_norm(b: Builder, node: Node) -> tuple[Expr | None, ...]:
    total: Expr = b.op("add", node.arg(0), node.arg(1))
    bias = node.maybe(4)
    total = total if bias is None else b.op("add", total, bias)
    epsilon = node.float("epsilon", 1e-12)
    return (
        b.op("nn.layer_norm", total, node.arg(2), node.maybe(3), axis=-1, epsilon=epsilon),
        None,
        None,
        total,
    )

"""Linear algebra: matrix products (NumPy matmul; ONNX MatMul-13, Gemm's product)."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Dim
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, reduce, reduce_axis, var
from intarsia.kernel.expr import Buffer, Expr, cast
from intarsia.op.entry import Operator, Site, register

_MATMUL_ATTRS = {"transpose_a": False, "transpose_b": False}


def _swapped(site: Site, which: int) -> bool:
    """Whether operand `which` is transposed; a vector has nothing to swap."""
    return bool(site.attrs[("transpose_a", "transpose_b")[which]]) and site.rank(which) > 1


def _matrix(site: Site, which: int) -> tuple[tuple[Dim, ...], Dim | None, Dim]:
    """(batch dimensions, free dimension or None for a vector, contracted dimension) of an operand."""
    shape = site.shape(which)
    if not shape:
        site.fail(f"argument {which + 1} has rank 0; a matrix product needs vectors or matrices")
    if len(shape) == 1:
        return (), None, shape[0]
    rows, columns = shape[-2:]
    if _swapped(site, which):
        rows, columns = columns, rows
    return shape[:-2], *((rows, columns) if which == 0 else (columns, rows))


def _matmul_rule(site: Site) -> TensorType:
    batch_a, m, k_a = _matrix(site, 0)
    batch_b, n, k_b = _matrix(site, 1)
    if site.dtype(0) != site.dtype(1):
        site.fail(
            f"the operands have element types {site.dtype(0)} and {site.dtype(1)}; they must be the same"
        )
    site.equal(k_a, k_b, "contracted dimensions of the two operands")
    batch: list[Dim] = []
    for i in range(1, max(len(batch_a), len(batch_b)) + 1):
        a = batch_a[-i] if i <= len(batch_a) else None
        b = batch_b[-i] if i <= len(batch_b) else None
        if a is None or b is None or a == 1 or b == 1:
            batch.append(b if a is None or a == 1 and b is not None else a)  # type: ignore[arg-type]
        else:
            batch.append(site.equal(a, b, f"batch dimension {-i - 2} of the two operands"))
    free = tuple(d for d in (m, n) if d is not None)
    return TensorType((*reversed(batch), *free), site.dtype(0))


def _matmul_compute(site: Site, buffers: list) -> Buffer:
    a, b = buffers[:2]
    (batch_a, m, inner_a), (batch_b, n, inner_b) = _matrix(site, 0), _matrix(site, 1)
    k = reduce_axis(inner_b if inner_b.is_const else inner_a)
    out = site.out[0]
    acc = "float32" if a.dtype in ("float16", "bfloat16") else a.dtype
    free = (m is not None) + (n is not None)

    def batch_index(own: tuple[Dim, ...], index: tuple[Dim, ...]) -> tuple[Dim, ...]:
        used = index[len(index) - len(own) :]
        return tuple(i * 0 if d == 1 else i for i, d in zip(used, own))

    def element(*index: Dim) -> Expr:
        batch, rest = index[: len(index) - free], index[len(index) - free :]
        left = (rest[0], var(k)) if m is not None else (var(k),)
        right = (var(k), rest[-1]) if n is not None else (var(k),)
        left = left[::-1] if _swapped(site, 0) else left
        right = right[::-1] if _swapped(site, 1) else right
        x, y = a[(*batch_index(batch_a, batch), *left)], b[(*batch_index(batch_b, batch), *right)]
        return reduce("sum", cast(x, acc) * cast(y, acc), k)

    result = compute(out.shape, element, dtype=acc, name="matmul", hint={"contraction": "matmul"})
    if acc == out.dtype:
        return result
    return compute(out.shape, lambda *i: cast(result[i], out.dtype), dtype=out.dtype, name="narrowed")


def _matmul_reference(a: np.ndarray, b: np.ndarray, *, transpose_a: bool = False, transpose_b: bool = False):
    a = np.swapaxes(a, -1, -2) if transpose_a and a.ndim > 1 else a
    b = np.swapaxes(b, -1, -2) if transpose_b and b.ndim > 1 else b
    half = a.dtype.itemsize == 2 and a.dtype.kind not in "iu"
    product = np.matmul(a.astype(np.float32), b.astype(np.float32)) if half else np.matmul(a, b)
    return np.asarray(product).astype(a.dtype)


register(
    Operator(
        "matmul",
        ("a", "b"),
        _matmul_rule,
        _matmul_reference,
        _matmul_compute,
        attrs=_MATMUL_ATTRS,
        doc="Matrix product with NumPy's rules for vectors and batches; integers wrap.",
    )
)

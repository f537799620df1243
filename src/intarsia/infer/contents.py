"""Known contents of integer tensors: object arrays of dimensions, and dimensions inside attributes."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Dim, as_dim
from intarsia.infer.typing import Value
from intarsia.ir.expr import Attr


def known_contents(value: np.ndarray) -> np.ndarray:
    out = np.empty(value.shape, object)
    flat = out.reshape(-1)
    for i, v in enumerate(value.reshape(-1).tolist()):
        flat[i] = as_dim(v)
    return out


def map_contents(value: np.ndarray, step) -> np.ndarray:
    out = np.empty(value.shape, object)
    flat = out.reshape(-1)
    for i, v in enumerate(value.reshape(-1)):
        flat[i] = step(as_dim(v))
    return out


def same_contents(a: Value, b: Value) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(x is y or same_contents(x, y) for x, y in zip(a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.shape == b.shape and all(as_dim(x) == as_dim(y) for x, y in zip(a.flat, b.flat))
    return False


def attr_dims(attr: Attr) -> list[Dim]:
    if isinstance(attr, Dim):
        return [attr]
    return [d for a in attr for d in attr_dims(a)] if isinstance(attr, tuple) else []


def map_attr(attr: Attr, step) -> Attr:
    if isinstance(attr, tuple):
        return tuple(map_attr(a, step) for a in attr)
    if isinstance(attr, Dim):
        d = step(attr)
        return d.value if d.is_const else d
    return attr

"""`dims`: symbolic integers as a tensor. Passes write shapes with it: reshape(%x, dims(values=(n, 4*m))).

A tuple of values is an int64 vector, a single value a rank-0 int64.
"""

from __future__ import annotations

import numpy as np

from intarsia.dim import as_dim
from intarsia.ir.types import Type, tensor
from intarsia.op.entry import REQUIRED, Operator, Site, register


def _rule(site: Site) -> Type:
    values = site.attrs["values"]
    return tensor((len(values),) if isinstance(values, tuple) else (), "int64")


def _value(site: Site) -> np.ndarray:
    values = site.attrs["values"]
    out = np.empty((len(values),) if isinstance(values, tuple) else (), object)
    out[...] = [as_dim(v) for v in values] if isinstance(values, tuple) else as_dim(values)  # type: ignore[arg-type]
    return out


def _reference(*, values: tuple[int, ...] | int) -> np.ndarray:
    return np.array(values, np.int64)


register(
    Operator(
        "dims",
        (),
        _rule,
        _reference,
        attrs={"values": REQUIRED},
        value=_value,
        doc="integer expressions over the function's symbols, as int64",
    )
)

"""Operators: one entry each, grouped by family. Importing this package registers all of them."""

from importlib import import_module
from importlib.util import find_spec

from intarsia.op.entry import Arg, Check, Item, Measured, Operator, Site, get, names, register

for _family in (
    "elementwise", "activation", "shape", "slice", "extend", "indexing", "construct", "reduce", "order",
    "symbolic", "linalg", "nn",
    "recurrent", "image",
):  # fmt: skip
    if find_spec(f"intarsia.op.{_family}"):
        import_module(f"intarsia.op.{_family}")

__all__ = ["Arg", "Check", "Item", "Measured", "Operator", "Site", "get", "names", "register"]

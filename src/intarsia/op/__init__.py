"""Operators: one entry each, grouped by family. Importing this package registers all of them."""

from intarsia.op import (  # noqa: F401 - imported to register their entries
    activation,
    construct,
    elementwise,
    extend,
    image,
    indexing,
    linalg,
    nn,
    order,
    recurrent,
    reduce,
    shape,
    slice,
    symbolic,
)
from intarsia.op.entry import Arg, Check, Item, Measured, Operator, Site, get, names, register

__all__ = ["Arg", "Check", "Item", "Measured", "Operator", "Site", "get", "names", "register"]

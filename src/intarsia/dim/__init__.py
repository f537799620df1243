"""Symbolic integers: tensor dimensions, shape functions and loop bounds, all in one form."""

from intarsia.dim.bounds import Bounds
from intarsia.dim.expr import Atom, Dim, Symbol, as_dim, ceildiv, dmax, dmin, product

__all__ = ["Atom", "Bounds", "Dim", "Symbol", "as_dim", "ceildiv", "dmax", "dmin", "product"]

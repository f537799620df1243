"""The reference evaluator: what a program means, computed with NumPy, one operator at a time."""

from intarsia.interp.evaluate import evaluate
from intarsia.interp.values import ADTValue, Cell, Closure, from_list, to_list

__all__ = ["ADTValue", "Cell", "Closure", "evaluate", "from_list", "to_list"]

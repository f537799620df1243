"""What an element costs, in nanoseconds at one core when vectorised: for chunk sizes and for what is worth
keeping.
"""

from __future__ import annotations

from intarsia.dim import Dim
from intarsia.kernel.expr import Binary, Cast, Expr, Load, Select, Unary, walk

_GUESS = 64  # an unknown dimension, where only orders of magnitude matter
_UNARY = {
    "exp": 1.2,
    "log": 1.4,
    "sqrt": 0.4,
    "rsqrt": 0.5,
    "reciprocal": 0.3,
    "sin": 2.0,
    "cos": 2.0,
    "tan": 12.0,
    "asin": 12.0,
    "acos": 12.0,
    "atan": 12.0,
    "sinh": 12.0,
    "cosh": 12.0,
    "tanh": 1.5,
    "asinh": 12.0,
    "acosh": 12.0,
    "atanh": 12.0,
    "erf": 1.4,
    "sigmoid": 1.4,
}
_BINARY = {"div": 0.3, "floordiv": 2.0, "mod": 2.0, "fmod": 4.0, "pow": 2.0}
_INTEGER_DIVISION = 6.0
_SIMPLE = 0.06
_GATHER = 1.0


def cost(e: Expr) -> float:
    """Nanoseconds for one element of e, loads from cache included."""
    total = 0.0
    for node in walk(e):
        match node:
            case Unary():
                total += _UNARY.get(node.op, _SIMPLE)
            case Binary():
                division = node.op in _BINARY and node.op != "pow" and "float" not in node.dtype
                total += _INTEGER_DIVISION if division else _BINARY.get(node.op, _SIMPLE)
            case Select() | Cast():
                total += _SIMPLE
            case Load():
                total += _SIMPLE if all(isinstance(i, Dim) for i in node.indices) else _GATHER
    return total


def guess(d: Dim) -> float:
    """d with every symbol at a middling size."""
    return float(d.evaluate({s: _GUESS for s in d.symbols()}))

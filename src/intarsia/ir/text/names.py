"""How names, symbols and numbers are written."""

from __future__ import annotations

import json
import re

import numpy as np

from intarsia.dim import Dim
from intarsia.dim.expr import Atom

_PLAIN_LOCAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
_PLAIN_GLOBAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*$")
_RESERVED = {"True", "False", "None", "min", "max", "inf", "nan"}


def unquote(name: str) -> str:
    """`%x`, `@"a b"` → x, a b."""
    return json.loads(name[1:]) if name[1:2] == '"' else str(name[1:])


def local(name: str) -> str:
    """`%x`; names that are not identifiers (`%"input.1"`) are quoted, and so are numbers, which name shared
    nodes.
    """
    return f"%{name}" if _PLAIN_LOCAL.match(name) else f"%{json.dumps(name)}"


def global_name(name: str) -> str:
    return f"@{name}" if _PLAIN_GLOBAL.match(name) else f"@{json.dumps(name)}"


def symbol(name: str) -> str:
    """A symbol; unusual names stand in backquotes."""
    return name if name == "?" or (_PLAIN_LOCAL.match(name) and name not in _RESERVED) else f"`{name}`"


def dim(d: Dim) -> str:
    """A dimension as `Dim.__str__` writes it, with unusual symbols quoted."""
    if all(symbol(s) == s for s in d.symbols()):
        return str(d)
    parts: list[str] = []
    for monomial, c in d.terms.items():
        factors = "*".join(_atom(a) if p == 1 else f"{_atom(a)}^{p}" for a, p in monomial)
        text = str(abs(c)) if not monomial else factors if abs(c) == 1 else f"{abs(c)}*{factors}"
        parts.append(("-" if c < 0 else "") + text if not parts else (" - " if c < 0 else " + ") + text)
    return "".join(parts) or "0"


def _atom(a: Atom) -> str:
    match a.kind:
        case "sym":
            return symbol(a.name)
        case "floordiv":
            return f"(({dim(a.args[0])}) // ({dim(a.args[1])}))"
        case "mod":
            return f"(({dim(a.args[0])}) % ({dim(a.args[1])}))"
    return f"{a.kind}({', '.join(dim(x) for x in a.args)})"


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a Relay dtype name."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)

"""Exhaustiveness of `match`: a value that no clause covers, if there is one."""

from __future__ import annotations

from collections.abc import Sequence

from intarsia.ir.module import IRModule
from intarsia.ir.pattern import Pattern, PConstructor, PTuple, Wildcard

Row = tuple[Pattern, ...]
_ANY = Wildcard()


def missing_pattern(module: IRModule, patterns: Sequence[Pattern]) -> str | None:
    """A pattern, as text, for values that none of `patterns` matches; None if they are exhaustive.

    Maranget, "Warnings for pattern matching" (2007), section 3; recursion is bounded by the patterns' depth.
    """
    found = _missing(module, [(p,) for p in patterns], 1)
    return found[0] if found is not None else None


def _missing(module: IRModule, rows: list[Row], width: int) -> list[str] | None:
    if width == 0:
        return None if rows else []
    heads = [r[0] for r in rows]
    first = next((h for h in heads if isinstance(h, PConstructor | PTuple)), None)
    if isinstance(first, PTuple):
        n = len(first.fields)
        found = _missing(module, [s for r in rows if (s := _spread(r, None, n)) is not None], n + width - 1)
        return None if found is None else [f"({', '.join(found[:n])}{',' if n == 1 else ''})", *found[n:]]
    if isinstance(first, PConstructor):
        known = module.constructor(first.constructor)
        assert known is not None
        for c in known[0].constructors:
            n = len(c.inputs)
            below = [s for r in rows if (s := _spread(r, c.name, n)) is not None]
            found = _missing(module, below, n + width - 1)
            if found is not None:
                return [f"{c.name}({', '.join(found[:n])})" if n else c.name, *found[n:]]
        return None
    found = _missing(module, [r[1:] for r in rows], width - 1)
    return None if found is None else ["_", *found]


def _spread(row: Row, name: str | None, n: int) -> Row | None:
    """The row with its first pattern replaced by the n patterns inside it; None if it cannot match."""
    match row[0]:
        case PConstructor(constructor=c, fields=fields):
            return (*fields, *row[1:]) if c == name else None
        case PTuple(fields=fields):
            return (*fields, *row[1:])
    return (*(_ANY,) * n, *row[1:])

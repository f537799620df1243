"""Where an expression came from: the name that the user's own model gives it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """source: file or model name; name: node name in the model ('' for text); line, column: 1-based (0:
    unknown).
    """

    source: str = ""
    name: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.name:
            return f"node '{self.name}'" + (f" in {self.source}" if self.source else "")
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source or "unknown place"


UNKNOWN = Span()

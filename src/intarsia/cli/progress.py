"""Progress on a terminal; silence when piped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def working(text: str) -> Iterator[None]:
    """A spinner beside `text` while the block runs, on standard error, only if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(text):
        yield

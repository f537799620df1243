"""Progress on a terminal; silence when piped."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner beside `text` while the block runs, on standard error, only if that is a terminal.

    The block gets a function that says, in a few words and from any thread, what is being done now.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(text)) as status:
        yield lambda detail: status.update(escape(f"{text}: {detail}"))

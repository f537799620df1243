"""The `intarsia` command: one file per subcommand."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Errors meant for people: no traceback, exit code 1. Ctrl-C: exit code 130."""
    try:
        from intarsia.cli.app import app

        app()
    except KeyboardInterrupt:  # before a command began
        print("stopped", file=sys.stderr)
        sys.exit(130)

"""The `intarsia` command: one file per subcommand."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point. Errors meant for people are printed without a traceback; exit code 1. Ctrl-C: exit code 130."""
    from intarsia.cli.app import app
    from intarsia.support.errors import Error

    try:
        app()
    except Error as e:
        print(e, file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)

"""All subcommands in one application."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import typer

from intarsia.cli.bench import bench
from intarsia.cli.compile import compile_command
from intarsia.cli.demo import demo
from intarsia.cli.doctor import doctor
from intarsia.cli.run import run
from intarsia.cli.show import show
from intarsia.support.errors import Error

app = typer.Typer(
    help="A deep-learning compiler: models in, machine code out, dynamic shapes and control flow included.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _command(name: str, function: Callable[..., None]) -> None:
    """Enter a subcommand. Errors meant for people end it with code 1, Ctrl-C with 130.

    All output is out before it ends, so that a closed pipe is noticed.
    """

    @functools.wraps(function)
    def command(**options) -> None:
        try:
            function(**options)
            sys.stdout.flush()
        except Error as e:
            print(e, file=sys.stderr)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            raise typer.Exit(130) from None

    app.command(name)(command)


_command("compile", compile_command)
_command("run", run)
_command("show", show)
_command("bench", bench)
_command("doctor", doctor)
_command("demo", demo)


def _version(wanted: bool) -> None:
    if wanted:
        from intarsia._version import __version__

        print(__version__)
        raise typer.Exit


@app.callback()
def intarsia(
    version: bool = typer.Option(
        False, "--version", help="Print the version and stop.", callback=_version, is_eager=True
    ),
) -> None:
    """A deep-learning compiler: models in, machine code out, dynamic shapes and control flow included."""

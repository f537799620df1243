"""All subcommands in one application."""

from __future__ import annotations

import typer

from intarsia.cli.bench import bench
from intarsia.cli.compile import compile_command
from intarsia.cli.demo import demo
from intarsia.cli.doctor import doctor
from intarsia.cli.run import run
from intarsia.cli.show import show

app = typer.Typer(
    help="A deep-learning compiler: models in, machine code out, dynamic shapes and control flow included.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("compile")(compile_command)
app.command("run")(run)
app.command("show")(show)
app.command("bench")(bench)
app.command("doctor")(doctor)
app.command("demo")(demo)


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context, show_version: bool = typer.Option(False, "--version", help="Print the version and stop.")
) -> None:
    """A deep-learning compiler: models in, machine code out, dynamic shapes and control flow included."""
    if show_version:
        from intarsia._version import __version__

        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())

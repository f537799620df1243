"""Options that several subcommands share, and reading what they say."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import typer

from intarsia.support.errors import InputError

MODEL = typer.Argument(..., help="An .onnx model, .relay text, or a saved .intarsia artifact.", show_default=False)
THREADS = typer.Option(None, "--threads", "-t", help="Threads to use (default: the machine's cores).")
TARGET = typer.Option(None, "--target", help="CPU to compile for: host, x86-64, x86-64-v3, x86-64-v4, aarch64.")
LEVEL = typer.Option(3, "--level", "-O", min=0, max=3, help="Optimisation level 0 … 3.")
JSON = typer.Option(False, "--json", help="Print JSON instead of text.")


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """['a=1', 'b=2'] as a dictionary; InputError CALL-021 for anything else."""
    result: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError("CALL-021", f"{option} takes NAME=VALUE, not '{item}'")
        result[name] = value
    return result


def dims(items: Sequence[str]) -> dict[str, int]:
    """--dim NAME=NUMBER options."""
    result: dict[str, int] = {}
    for name, value in pairs(items, "--dim").items():
        if not value.isdecimal():
            raise InputError("CALL-021", f"--dim takes NAME=NUMBER, not '{name}={value}'")
        result[name] = int(value)
    return result


def arrays(items: Sequence[str]) -> dict[str, np.ndarray]:
    """--input NAME=FILE.npy or NAME=NUMBER[,NUMBER…] options (numbers: int64, float32 where one has a point)."""
    result: dict[str, np.ndarray] = {}
    for name, value in pairs(items, "--input").items():
        if value.endswith(".npy"):
            result[name] = load_array(Path(value))
            continue
        try:
            numbers = [float(v) if "." in v or "e" in v else int(v) for v in value.split(",")]
        except ValueError:
            raise InputError(
                "CALL-021", f"--input {name}: '{value}' is neither a .npy file nor numbers", remedy="NAME=file.npy or NAME=1,2,3"
            ) from None
        dtype = np.float32 if any(isinstance(v, float) for v in numbers) else np.int64
        result[name] = np.array(numbers if "," in value else numbers[0], dtype)
    return result


def load_array(path: Path) -> np.ndarray:
    """A .npy file without pickled objects; InputError CALL-022 if it cannot be read."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as e:
        raise InputError("CALL-022", f"cannot read {path}: {e}") from None

"""Options that several subcommands share, and reading what they say."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from intarsia.support.errors import InputError

MODEL = typer.Argument(
    ..., help="An .onnx model, .relay text, or a saved .intarsia artifact.", show_default=False
)
SOURCE = typer.Argument(..., help="An .onnx model or .relay text.", show_default=False)
THREADS = typer.Option(
    None,
    "--threads",
    "-t",
    min=1,
    help="Threads to use (default: INTARSIA_NUM_THREADS, or the machine's cores).",
)
TARGET = typer.Option(
    None, "--target", help="CPU to compile for: host, x86-64, x86-64-v2, x86-64-v3, x86-64-v4, aarch64."
)
LEVEL = typer.Option(3, "--level", "-O", min=0, max=3, help="Optimisation level 0 … 3.")
JSON = typer.Option(False, "--json", help="Print JSON instead of text.")


def pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """['a=1', 'b=2'] as a dictionary; InputError CLI-001 for anything else."""
    result: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise InputError("CLI-001", f"{option} takes NAME=VALUE, not '{item}'")
        result[name] = value
    return result


def dims(items: Sequence[str]) -> dict[str, int]:
    """--dim NAME=NUMBER options."""
    result: dict[str, int] = {}
    for name, value in pairs(items, "--dim").items():
        if not value.isdecimal():
            raise InputError("CLI-001", f"--dim takes NAME=NUMBER, not '{name}={value}'")
        result[name] = int(value)
    return result


def numbers(text: str, option: str) -> list[int]:
    """'1,2' as positive integers."""
    parts = [p.strip() for p in text.split(",")]
    if not all(p.isdecimal() and int(p) > 0 for p in parts):
        raise InputError("CLI-001", f"{option} takes positive numbers, not '{text}'", remedy=f"{option} 1,2")
    return [int(p) for p in parts]


def values(items: Sequence[str]) -> dict[str, Any]:
    """--input NAME=FILE.npy (an array) or NAME=NUMBER[,NUMBER…] (a number or list, of the input's dtype)."""
    result: dict[str, Any] = {}
    for name, text in pairs(items, "--input").items():
        result[name] = load_array(Path(text)) if text.endswith(".npy") else _numbers(name, text)
    return result


def _numbers(name: str, text: str) -> Any:
    words = {"true": True, "false": False}
    found: list[Any] = []
    for part in text.split(","):
        word = part.strip().lower()
        try:
            found.append(
                words[word] if word in words else int(word) if word.lstrip("+-").isdecimal() else float(word)
            )
        except ValueError:
            raise InputError(
                "CLI-001",
                f"--input {name}: '{text}' is neither a .npy file nor numbers",
                remedy="NAME=file.npy or NAME=1,2,3",
            ) from None
    return found if "," in text else found[0]


def load_array(path: Path) -> np.ndarray:
    """A .npy file without pickled objects; InputError CLI-002 if it cannot be read."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as e:
        raise InputError("CLI-002", f"cannot read {path}: {_reason(e)}") from None


def load_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file; InputError CLI-002 if it cannot be read."""
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as e:
        raise InputError(
            "CLI-002", f"cannot read {path}: {_reason(e)}", remedy="write it with numpy.savez"
        ) from None


def save_archive(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """An .npz file at exactly `path`, whatever the arrays' names; InputError CLI-003 if that fails."""
    try:
        with zipfile.ZipFile(path, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asanyarray(array), allow_pickle=False)
    except OSError as e:
        raise cannot_write(path, e) from None


def cannot_write(path: Path, e: OSError) -> InputError:
    """The error for a file that the system does not let us write."""
    return InputError("CLI-003", f"cannot write {path}: {_reason(e)}")


def _reason(e: Exception) -> str:
    return e.strerror if isinstance(e, OSError) and e.strerror else str(e)

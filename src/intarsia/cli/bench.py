"""intarsia bench"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from intarsia.cli.options import JSON, dims, numbers, values
from intarsia.cli.progress import working
from intarsia.support.errors import InputError

if TYPE_CHECKING:
    from intarsia.bench import Row, Workload

_COLUMNS = (
    "model",
    "threads",
    "system",
    "median ms",
    "ratio",
    "passes",
    "cold s",
    "cached s",
    "peak MB",
    "difference",
)


def bench(
    models: list[Path] = typer.Argument(None, help="ONNX models.", show_default=False),
    spine: bool = typer.Option(False, "--spine", help="All reference models found in installed packages."),
    against: str = typer.Option(
        "onnxruntime", "--against", help="Other systems, comma-separated: onnxruntime, openvino, torch."
    ),
    threads: str = typer.Option("1,2", "--threads", "-t", help="Thread counts, comma-separated."),
    dim: list[str] = typer.Option(
        [],
        "--dim",
        help="Size of a symbolic dimension, NAME=NUMBER; repeatable (default 1).",
        show_default=False,
    ),
    inputs: list[str] = typer.Option(
        [], "--input", "-i", help="NAME=file.npy or NAME=1,2,3 instead of random values.", show_default=False
    ),
    rounds: int = typer.Option(7, "--rounds", min=1, help="Interleaved rounds."),
    seconds: float = typer.Option(
        0.4, "--seconds", min=0.0, help="Length of a system's slice in each round."
    ),
    only: str = typer.Option("", "--only", help="Of the reference models only these, comma-separated."),
    as_json: bool = JSON,
) -> None:
    """Measure a model beside other systems: own processes, equal outputs first, interleaved rounds, medians.

    Ends with code 1 if a system's outputs differ or it fails; one that is not installed, or does not have the
    model, only lacks its figures. docs/performance.md explains the columns.

    Example: intarsia bench model.onnx --dim batch=1 --dim sequence=128 --against onnxruntime,openvino
    """
    from intarsia.bench import compare, from_model
    from intarsia.bench.worker import SYSTEMS

    systems = [s.strip() for s in against.split(",") if s.strip()]
    missing = [s for s in systems if s not in SYSTEMS]
    if missing:
        raise InputError(
            "CLI-008", f"cannot measure {', '.join(missing)}", remedy=f"one of: {', '.join(SYSTEMS)}"
        )
    if not models and not spine:
        raise InputError("CLI-009", "nothing to measure", remedy="name a model, or use --spine")
    counts = numbers(threads, "--threads")
    workloads = [from_model(m, dims(dim), values(inputs)) for m in models or []]
    with tempfile.TemporaryDirectory(prefix="intarsia-models-") as folder, working("measuring") as tell:
        if spine:
            workloads += _reference_models(only, Path(folder))
        rows = compare(workloads, systems, counts, rounds=rounds, seconds=seconds, note=tell)
    if as_json:
        print(json.dumps([_finite(asdict(r)) for r in rows]))
    else:
        _print(rows)
    if any(r.error and not _absent(r) for r in rows):
        raise typer.Exit(1)


def _reference_models(only: str, folder: Path) -> list[Workload]:
    from intarsia.bench import SPINE, spine

    wanted = [s.strip() for s in only.split(",") if s.strip()] or SPINE
    found = spine(folder, wanted)
    absent = sorted(set(wanted) - {w.name for w in found}) if only else []
    if absent or not found:
        what = ", ".join(absent) or "any of the reference models"
        raise InputError(
            "CLI-009",
            f"no installed package holds {what}",
            remedy=f"one of: {', '.join(SPINE)}; see docs/models.md",
        )
    return found


def _absent(row: Row) -> bool:
    return row.error.startswith(("ModuleNotFoundError", "ValueError: PyTorch cannot run"))


def _finite(row: dict) -> dict:
    """JSON knows no NaN: null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _print(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    references = ", ".join(dict.fromkeys(r.reference for r in rows if r.reference)) or "nothing"
    table = Table(title=f"time of one pass; ratio and difference to {references} (ratio below 1 is faster)")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column in ("model", "system") else "right", no_wrap=True)
    for r in rows:
        cells = [escape(r.workload), str(r.threads), r.system]
        if r.error:
            cells += ["no" if _absent(r) else "failed"]
        else:
            cells += [
                f"{r.median * 1e3:.3f}",
                f"{r.ratio:.2f}",
                str(r.passes),
                f"{r.cold_s:.2f}",
                f"{r.cached_s:.2f}",
            ]
            cells += [str(r.peak_mb), f"{r.difference:.1e}"]
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    for r in rows:
        if r.error:
            print(f"{r.workload}, {r.threads} thread{'s' * (r.threads > 1)}, {r.system}: {r.error}")

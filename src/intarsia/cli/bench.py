"""intarsia bench"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import typer

from intarsia.cli.options import JSON, dims, values
from intarsia.support.errors import InputError


def bench(
    models: list[Path] = typer.Argument(None, help="ONNX models.", show_default=False),
    spine: bool = typer.Option(False, "--spine", help="All reference models found in installed packages."),
    against: str = typer.Option("onnxruntime", "--against", help="Other systems, comma-separated: onnxruntime, openvino."),
    threads: str = typer.Option("1,2", "--threads", "-t", help="Thread counts, comma-separated."),
    dim: list[str] = typer.Option([], "--dim", help="Size of a symbolic dimension, NAME=NUMBER; repeatable (default 1)."),
    inputs: list[str] = typer.Option([], "--input", "-i", help="NAME=file.npy or NAME=1,2,3 instead of random values."),
    rounds: int = typer.Option(7, "--rounds", min=1, help="Interleaved rounds."),
    as_json: bool = JSON,
) -> None:
    """Measure a model beside other systems: own processes, equal outputs first, interleaved rounds, medians.

    Example: intarsia bench model.onnx --dim batch=1 --dim sequence=128 --against onnxruntime,openvino
    """
    from intarsia.bench import compare, from_model
    from intarsia.bench import spine as spine_workloads
    from intarsia.bench.worker import SYSTEMS

    systems = [s for s in against.split(",") if s]
    missing = [s for s in systems if s not in SYSTEMS]
    if missing:
        remedy = f"one of: {', '.join(SYSTEMS)}"
        if "torch" in missing:
            remedy += " (PyTorch cannot run an ONNX file; shared workloads for it are in benchmarks/)"
        raise InputError("CALL-023", f"cannot run an ONNX model with {', '.join(missing)}", remedy=remedy)
    if not models and not spine:
        raise InputError("CALL-024", "nothing to measure", remedy="name a model, or use --spine")
    if not all(t.isdecimal() and int(t) > 0 for t in threads.split(",")):
        raise InputError("CALL-021", f"--threads takes numbers, not '{threads}'", remedy="--threads 1,2")
    workloads = [from_model(m, dims(dim), values(inputs)) for m in models or []]
    if spine:
        workloads += spine_workloads()

    def note(text: str) -> None:
        if sys.stderr.isatty():
            print(f"measuring {text}", file=sys.stderr)

    rows = compare(workloads, systems, [int(t) for t in threads.split(",")], rounds=rounds, note=note)
    if as_json:
        print(json.dumps([asdict(r) for r in rows]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="time of one pass; ratio to onnxruntime (below 1 is faster)")
    for column in ("model", "threads", "system", "median ms", "ratio", "passes", "compile s", "cached s", "peak MB", "difference"):
        table.add_column(column, justify="left" if column in ("model", "system") else "right", no_wrap=True)
    for r in rows:
        cells = [r.workload, str(r.threads), r.system]
        if r.error:
            cells += [r.error.splitlines()[0][:60]]
        else:
            cells += [f"{r.median * 1e3:.3f}", f"{r.ratio:.2f}", str(r.passes), f"{r.load_s:.2f}", f"{r.cached_s:.2f}"]
            cells += [str(r.peak_mb), f"{r.difference:.1e}"]
        table.add_row(*cells)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    if any(r.error for r in rows):
        raise typer.Exit(1)

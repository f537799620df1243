"""Runs workloads on several systems side by side.

Every system lives in a process of its own. Outputs are compared before anything is timed. Timing goes round-robin in
short slices with a pause in between (thread pools of other systems spin on for a while after a call), so that a slow
moment of the machine hits all alike; the figure is the median over all passes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from intarsia.bench.workload import Workload

REFERENCE = "onnxruntime"


@dataclass
class Row:
    """One system on one workload with some number of threads. Seconds; error text instead where it failed."""

    workload: str
    system: str
    threads: int
    median: float = float("nan")
    best: float = float("nan")
    passes: int = 0
    ratio: float = float("nan")  # median / reference's median
    load_s: float = float("nan")  # compile or session creation, nothing cached
    cached_s: float = float("nan")  # the same in a new process afterwards
    peak_mb: int = 0
    difference: float = float("nan")  # largest |output - reference| / largest |reference|
    error: str = ""
    samples: list[float] = field(default_factory=list, repr=False)


def compare(
    workloads: Sequence[Workload],
    systems: Sequence[str],
    threads: Sequence[int],
    *,
    rounds: int = 7,
    seconds: float = 0.4,
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Rows for every workload × threads × system (intarsia always first). note: called with a line on progress."""
    names = ["intarsia", *[s for s in systems if s != "intarsia"]]
    rows: list[Row] = []
    for w in workloads:
        for t in threads:
            note(f"{w.name}, {t} thread{'s' if t > 1 else ''}")
            rows += _cell(w, names, t, rounds, seconds)
    return rows


def _cell(w: Workload, systems: Sequence[str], threads: int, rounds: int, seconds: float) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="intarsia-bench-") as folder:
        base = Path(folder)
        feeds = []
        for i, feed in enumerate(w.feeds):
            feeds.append(str(base / f"feed{i}.npz"))
            np.savez(feeds[-1], **feed)
        rows, workers = {}, {}
        for system in systems:
            outputs = base / system
            outputs.mkdir()
            load = {"cmd": "load", "system": system, "model": str(w.path), "feeds": feeds, "threads": threads, "outputs": str(outputs)}
            row = rows[system] = Row(w.name, system, threads)
            worker = _Worker(base / "cache")
            answer = worker.ask(load)
            if "error" in answer:
                row.error = answer["error"]
                worker.close()
                continue
            row.load_s, row.peak_mb = answer["load_s"], answer["peak_mb"]
            if system == "intarsia":  # the cache is warm now: once more in a new process
                worker.close()
                worker = _Worker(base / "cache")
                answer = worker.ask(load)
                row.peak_mb = max(row.peak_mb, answer.get("peak_mb", 0))
            row.cached_s = answer["load_s"]
            workers[system] = worker
        reference = REFERENCE if REFERENCE in workers else next(iter(workers), None)
        for system in list(workers):
            row = rows[system]
            row.difference = _difference(base / system, base / str(reference), len(feeds))
            if not row.difference <= w.tolerance:
                row.error = f"outputs differ from {reference}'s by {row.difference:.1e}"
                workers.pop(system).close()
        for _ in range(rounds):
            for system, worker in workers.items():
                time.sleep(0.15)
                rows[system].samples += worker.ask({"cmd": "time", "seconds": seconds})["seconds"]
        for system, worker in workers.items():
            row = rows[system]
            row.median, row.best, row.passes = statistics.median(row.samples), min(row.samples), len(row.samples)
            worker.close()
        if reference is not None:
            for row in rows.values():
                row.ratio = row.median / rows[reference].median
        return list(rows.values())


def _difference(ours: Path, theirs: Path, count: int) -> float:
    """Largest |a - b| over an output, relative to the largest |b| of that output; inf where shapes or NaNs differ."""
    worst = 0.0
    for i in range(count):
        with np.load(ours / f"{i}.npz") as a, np.load(theirs / f"{i}.npz") as b:
            for name in b.files:
                x, y = a[name].astype(np.float64), b[name].astype(np.float64)
                if x.shape != y.shape or (np.isnan(x) != np.isnan(y)).any():
                    return float("inf")
                if y.size:
                    worst = max(worst, float(np.nanmax(np.abs(x - y), initial=0.0) / (np.nanmax(np.abs(y), initial=0.0) + 1e-12)))
    return worst


class _Worker:
    def __init__(self, cache: Path):
        env = {k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")}
        env["INTARSIA_CACHE_DIR"] = str(cache)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "intarsia.bench.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def ask(self, command: dict) -> dict:
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"error": f"the process ended with code {self.process.wait()}"}
        return json.loads(line)

    def close(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

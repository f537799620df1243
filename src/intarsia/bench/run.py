"""Runs workloads on several systems side by side.

Every system lives in its own process. Outputs are compared before anything is timed. Timing goes in rounds,
every system a short slice in each, in rotating order, with a pause before each slice (thread pools of other
systems spin on for a while after a call), so that a slow moment of the machine hits all alike. The ratio is
the median over the rounds of (median of the slice / median of the reference's slice in the same round).
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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intarsia.bench.workload import Workload

REFERENCE = "onnxruntime"
_PAUSE = 0.15  # seconds before a slice
_NAN = float("nan")


@dataclass(slots=True)
class Row:
    """One system on one workload with some number of threads. Times in seconds, NaN where there is none.

    median, best: of one pass over the workload's feeds
    passes:       how many were timed
    ratio:        to the reference's time; below 1 is faster
    reference:    what it is compared with: onnxruntime where that runs, else the first system that does
    cold_s:       from nothing (not imported, nothing cached) to the first answer
    cached_s:     the same again in a new process
    peak_mb:      resident memory of that process at its largest
    difference:   largest |output - reference| / largest |reference| over the outputs
    error:        why there are no figures, or ''
    """

    workload: str
    system: str
    threads: int
    median: float = _NAN
    best: float = _NAN
    passes: int = 0
    ratio: float = _NAN
    reference: str = ""
    cold_s: float = _NAN
    cached_s: float = _NAN
    peak_mb: int = 0
    difference: float = _NAN
    error: str = ""


def compare(
    workloads: Sequence[Workload],
    systems: Sequence[str],
    threads: Sequence[int],
    *,
    rounds: int = 7,
    seconds: float = 0.4,
    note: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Rows for every workload × threads × system (intarsia always first).

    seconds: of one slice; note: called with a line on progress. Systems that fail have a row with an error.
    """
    names = ["intarsia", *[s for s in dict.fromkeys(systems) if s != "intarsia"]]
    rows: list[Row] = []
    for w in workloads:
        for t in threads:
            with tempfile.TemporaryDirectory(prefix="intarsia-bench-") as folder:
                rows += _Cell(w, t, Path(folder), note).run(names, rounds, seconds)
    return rows


class _Cell:
    """One workload with one number of threads on all systems."""

    def __init__(self, workload: Workload, threads: int, folder: Path, note: Callable[[str], None]):
        self.workload, self.threads, self.folder, self._note = workload, threads, folder, note
        self.rows: dict[str, Row] = {}
        self.workers: dict[str, _Worker] = {}  # those that have loaded
        self.started: list[_Worker] = []
        self.feeds: list[str] = []
        for i, feed in enumerate(workload.feeds):
            self.feeds.append(str(folder / f"feed{i}.npz"))
            np.savez(self.feeds[-1], allow_pickle=False, **feed)

    def run(self, systems: Sequence[str], rounds: int, seconds: float) -> list[Row]:
        try:
            for system in systems:
                self._load(system)
            reference = REFERENCE if REFERENCE in self.workers else next(iter(self.workers), None)
            if reference is not None:
                self._compare_outputs(reference)
                self._time(reference, rounds, seconds)
        except BaseException:
            for worker in self.started:
                worker.process.kill()
            raise
        finally:
            for worker in self.started:
                worker.close()
        return list(self.rows.values())

    def note(self, text: str) -> None:
        self._note(f"{self.workload.name}, {self.threads} thread{'s' * (self.threads > 1)}: {text}")

    def _load(self, system: str) -> None:
        """Twice, each in a new process: from nothing, and with what the first left in its cache."""
        row = self.rows[system] = Row(self.workload.name, system, self.threads)
        outputs = self.folder / system
        outputs.mkdir()
        command = {
            "cmd": "load", "system": system, "model": str(self.workload.path), "torch": self.workload.torch,
            "feeds": self.feeds, "threads": self.threads, "outputs": str(outputs),
        }  # fmt: skip
        seconds: list[float] = []
        for _ in range(2):
            self.note(f"{system} loads")
            worker = _Worker(self.folder / "cache")
            self.started.append(worker)
            answer = worker.ask(command)
            if "error" in answer:
                row.error = answer["error"]
                worker.close()
                return
            seconds.append(answer["first_s"])
            if len(seconds) == 1:
                worker.close()
            else:
                self.workers[system] = worker
        row.cold_s, row.cached_s = seconds

    def _compare_outputs(self, reference: str) -> None:
        for system in list(self.workers):
            row = self.rows[system]
            row.reference = reference
            row.difference = difference(self.folder / system, self.folder / reference, len(self.feeds))
            if not row.difference <= self.workload.tolerance:
                row.error = f"outputs differ from {reference}'s by {row.difference:.1e}"
                self.workers.pop(system).close()

    def _time(self, reference: str, rounds: int, seconds: float) -> None:
        slices: dict[str, list[list[float]]] = {system: [] for system in self.workers}
        for n in range(rounds):
            self.note(f"round {n + 1} of {rounds}")
            order = list(self.workers)
            for system in order[n % len(order) :] + order[: n % len(order)]:
                time.sleep(_PAUSE)
                answer = self.workers[system].ask({"cmd": "time", "seconds": seconds})
                if "error" in answer:
                    self.rows[system].error = answer["error"]
                    self.workers.pop(system).close()
                else:
                    slices[system].append(answer["seconds"])
            if not self.workers:
                return
        for system, worker in self.workers.items():
            row, passes = self.rows[system], [s for one in slices[system] for s in one]
            row.median, row.best, row.passes = statistics.median(passes), min(passes), len(passes)
            row.peak_mb = worker.ask({"cmd": "peak"}).get("peak_mb", 0)
            if reference in self.workers:
                pairs = zip(slices[system], slices[reference])
                row.ratio = statistics.median(statistics.median(a) / statistics.median(b) for a, b in pairs)


def difference(ours: Path, theirs: Path, count: int) -> float:
    """Largest |a - b| / largest |b| of an output, over all outputs.

    inf where their number, dtypes, shapes, NaNs or infinities differ.

    ours, theirs: folders with the outputs of `count` feeds, 0.npz and so on.
    """
    worst = 0.0
    for i in range(count):
        with np.load(ours / f"{i}.npz") as a, np.load(theirs / f"{i}.npz") as b:
            if a.files != b.files:
                return float("inf")
            worst = max([worst, *(_distance(a[name], b[name]) for name in b.files)])
    return worst


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.abs(x[finite] - y[finite]).max() / (np.abs(y[finite]).max() + 1e-12))


class _Worker:
    """A process that runs worker.py. cache: Intarsia's cache folder in it."""

    def __init__(self, cache: Path):
        env = {
            k: v
            for k, v in os.environ.items()
            if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "INTARSIA_CACHE")
        }
        env |= {"INTARSIA_CACHE_DIR": str(cache), "INTARSIA_VERIFY": "0"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "intarsia.bench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
            start_new_session=True,  # Ctrl-C is for this process, which then ends the others
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
            try:
                self.process.stdin.close()
                self.process.wait(10)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()

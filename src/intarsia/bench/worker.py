"""One system in one process: answers JSON lines on standard output to commands on standard input.

    {"cmd": "load", "system": …, "model": …, "torch": …, "feeds": [file.npz, …], "threads": n,
     "outputs": folder}
        -> {"load_s": …, "first_s": …}       until it is loaded; until the first feed is answered
    {"cmd": "time", "seconds": s}  -> {"seconds": [of each pass over the feeds, …]}
    {"cmd": "peak"}                -> {"peak_mb": …}
    {"cmd": "quit"}

An answer may be {"error": text} instead.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intarsia.support.errors import Error

Feed = Mapping[str, np.ndarray]
Run = Callable[[Feed], list[np.ndarray]]


@dataclass(frozen=True, slots=True)
class Load:
    """What a system is asked to run. torch: name of the same model in `exported.MODULES`, or ''."""

    model: str
    threads: int
    torch: str


def _intarsia(load: Load) -> Run:
    import intarsia

    if load.model.endswith(".intarsia"):
        exe = intarsia.load(load.model, threads=load.threads)
    else:
        exe = intarsia.compile(load.model, threads=load.threads)
    return lambda feed: list(exe.run(feed).values())


def _onnxruntime(load: Load) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = load.threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(load.model, options, providers=["CPUExecutionProvider"])
    return lambda feed: [np.asarray(a) for a in session.run(None, dict(feed))]


def _openvino(load: Load) -> Run:
    import openvino  # pyright: ignore[reportMissingImports]

    core = openvino.Core()
    settings = {
        "INFERENCE_NUM_THREADS": load.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(load.model, "CPU", settings).create_infer_request()
    count = len(request.model_outputs)

    def run(feed: Feed) -> list[np.ndarray]:
        request.infer(feed)
        return [request.get_output_tensor(i).data for i in range(count)]

    return run


def _torch(load: Load) -> Run:
    import torch  # pyright: ignore[reportMissingImports]

    from intarsia.bench.exported import MODULES

    if load.torch not in MODULES:
        raise ValueError("PyTorch cannot run an ONNX file")
    torch.set_num_threads(load.threads)
    module = MODULES[load.torch]()

    def run(feed: Feed) -> list[np.ndarray]:
        with torch.inference_mode():
            result = module(*(torch.from_numpy(a) if a.ndim else torch.tensor(a[()]) for a in feed.values()))
        return [r.numpy() for r in (result if isinstance(result, tuple) else (result,))]

    return run


SYSTEMS: dict[str, Callable[[Load], Run]] = {
    "intarsia": _intarsia,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "torch": _torch,
}


def main() -> None:
    """Serve commands until quit or end of input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a system's own prints do not disturb the protocol
    run: Run | None = None
    feeds: list[Feed] = []
    for line in sys.stdin:
        command = json.loads(line)
        try:
            match command["cmd"]:
                case "quit":
                    break
                case "load":
                    feeds = [_arrays(f) for f in command["feeds"]]
                    answer, run = _load(command, feeds)
                case "peak":
                    answer = {"peak_mb": _peak()}
                case _:
                    assert run is not None
                    answer = {"seconds": _time(run, feeds, command["seconds"])}
        except (Error, ImportError, RuntimeError, ValueError, OSError, MemoryError) as e:
            answer = {"error": str(e) if isinstance(e, Error) else f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=out, flush=True)


def _arrays(path: str) -> Feed:
    with np.load(path) as data:
        return {name: data[name] for name in data.files}


def _load(command: dict, feeds: list[Feed]) -> tuple[dict, Run]:
    if command["threads"] == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(
            0, {max(os.sched_getaffinity(0))}
        )  # one core, the last one: the first serves interrupts
    start = time.perf_counter()
    run = SYSTEMS[command["system"]](Load(command["model"], command["threads"], command["torch"]))
    loaded = first = time.perf_counter() - start
    for i, feed in enumerate(feeds):
        outputs = [np.array(a) for a in run(feed)]
        if i == 0:
            first = time.perf_counter() - start
        np.savez(Path(command["outputs"]) / f"{i}.npz", *outputs)
    return {"load_s": loaded, "first_s": first}, run


def _time(run: Run, feeds: list[Feed], seconds: float) -> list[float]:
    """Seconds of each pass; the first pass, which wakes caches and threads, is not counted."""
    for feed in feeds:
        run(feed)
    passes: list[float] = []
    end = time.perf_counter() + seconds
    while len(passes) < 2 or (time.perf_counter() < end and len(passes) < 20000):
        start = time.perf_counter()
        for feed in feeds:
            run(feed)
        passes.append(time.perf_counter() - start)
    return passes


def _peak() -> int:
    """Largest resident size so far in MB. Where /proc tells, not getrusage's: that begins at the parent's."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) // 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


if __name__ == "__main__":
    main()

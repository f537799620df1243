"""One system in one process: answers JSON lines on standard output to commands on standard input.

    {"cmd": "load", "system": …, "model": …, "feeds": file.npz-list, "threads": n, "outputs": file}   -> seconds, peak
    {"cmd": "time", "seconds": s}                                                            -> list of seconds per pass
    {"cmd": "quit"}
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from intarsia.support.errors import Error

Run = Callable[[dict[str, np.ndarray]], list[np.ndarray]]


def _intarsia(model: str, threads: int) -> Run:
    import intarsia

    exe = intarsia.compile(model, threads=threads)
    names = [o.name for o in exe.outputs]

    def run(feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        result = exe.run(feed)
        return [result[n] for n in names]

    return run


def _onnxruntime(model: str, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def _openvino(model: str, threads: int) -> Run:
    import openvino

    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    count = len(request.model_outputs)

    def run(feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        request.infer(feed)
        return [request.get_output_tensor(i).data for i in range(count)]

    return run


SYSTEMS: dict[str, Callable[[str, int], Run]] = {
    "intarsia": _intarsia,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


def main() -> None:
    """Serve commands until quit or end of input."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # a system's own prints do not disturb the protocol
    run: Run | None = None
    feeds: list[dict[str, np.ndarray]] = []
    for line in sys.stdin:
        command = json.loads(line)
        if command["cmd"] == "quit":
            break
        try:
            if command["cmd"] == "load":
                feeds = [dict(np.load(f)) for f in command["feeds"]]
                answer, run = _load(command, feeds)
            else:
                assert run is not None
                answer = {"seconds": _time(run, feeds, command["seconds"])}
        except (Error, ImportError, RuntimeError, ValueError, OSError) as e:
            answer = {"error": f"{type(e).__name__}: {e}"}
        print(json.dumps(answer), file=out, flush=True)


def _load(command: dict, feeds: list[dict[str, np.ndarray]]) -> tuple[dict, Run]:
    if command["threads"] == 1:  # one core, the last one: the first serves interrupts
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    start = time.perf_counter()
    run = SYSTEMS[command["system"]](command["model"], command["threads"])
    loaded = time.perf_counter() - start
    for i, feed in enumerate(feeds):
        outputs = [np.array(a) for a in run(feed)]
        np.savez(Path(command["outputs"]) / f"{i}.npz", *outputs)
    first = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"load_s": loaded, "first_s": first, "peak_mb": peak}, run


def _time(run: Run, feeds: list[dict[str, np.ndarray]], seconds: float) -> list[float]:
    passes: list[float] = []
    end = time.perf_counter() + seconds
    while len(passes) < 3 or (time.perf_counter() < end and len(passes) < 20000):
        start = time.perf_counter()
        for feed in feeds:
            run(feed)
        passes.append(time.perf_counter() - start)
    return passes


if __name__ == "__main__":
    main()

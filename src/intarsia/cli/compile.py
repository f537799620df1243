"""intarsia compile"""

from __future__ import annotations

import json
import time
from pathlib import Path

import typer

from intarsia.cli.options import JSON, LEVEL, MODEL, TARGET, THREADS
from intarsia.cli.progress import working


def compile_command(
    model: Path = MODEL,
    output: Path = typer.Option(None, "--output", "-o", help="Where to save (default: the model's name with .intarsia)."),
    threads: int = THREADS,
    target: str = TARGET,
    level: int = LEVEL,
    as_json: bool = JSON,
) -> None:
    """Compile a model to an artifact that loads without compiling.

    Example: intarsia compile model.onnx -o model.intarsia
    """
    import intarsia

    destination = output or model.with_suffix(".intarsia")
    start = time.perf_counter()
    with working(f"compiling {model.name}"):
        exe = intarsia.compile(model, threads=threads, target=target, level=level)
    seconds = time.perf_counter() - start
    exe.save(destination)
    size = destination.stat().st_size
    signature = {
        "inputs": [{"name": i.name, "dtype": i.dtype, "shape": list(i.shape)} for i in exe.inputs],
        "outputs": [{"name": o.name, "dtype": o.dtype, "shape": list(o.shape)} for o in exe.outputs],
    }
    if as_json:
        print(json.dumps({"artifact": str(destination), "seconds": seconds, "bytes": size, **signature}))
        return
    print(f"{destination}  {size / 1e6:.1f} MB, compiled in {seconds:.2f} s")
    for kind in ("inputs", "outputs"):
        for v in signature[kind]:
            print(f"  {kind[:-1]:6s} {v['name']}: {v['dtype']} [{', '.join(map(str, v['shape']))}]")

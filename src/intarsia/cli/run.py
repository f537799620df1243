"""intarsia run"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import typer

from intarsia.cli.options import JSON, LEVEL, MODEL, THREADS, arrays
from intarsia.cli.progress import working
from intarsia.support.errors import InputError


def run(
    model: Path = MODEL,
    inputs: list[str] = typer.Option([], "--input", "-i", help="NAME=file.npy, or NAME=1,2,3 for small ones; repeatable."),
    archive: Path = typer.Option(None, "--inputs", help="An .npz file with all inputs by name."),
    output: Path = typer.Option(None, "--output", "-o", help="Save all outputs to this .npz file."),
    threads: int = THREADS,
    level: int = LEVEL,
    as_json: bool = JSON,
) -> None:
    """Run a model once and print its outputs.

    Example: intarsia run model.onnx -i x=photo.npy -o result.npz
    """
    import intarsia

    feed = _archive(archive) if archive else {}
    feed.update(arrays(inputs))
    with working(f"compiling {model.name}"):
        if model.suffix == ".intarsia":
            exe = intarsia.load(model, threads=threads)
        else:
            exe = intarsia.compile(model, threads=threads, level=level)
    start = time.perf_counter()
    result = exe.run(feed)
    seconds = time.perf_counter() - start
    if output:
        np.savez(output, **result)
    if as_json:
        described = {n: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()} for n, a in result.items()}
        print(json.dumps({"seconds": seconds, "outputs": described}))
        return
    for name, a in result.items():
        print(f"{name}: {a.dtype} {list(a.shape)}")
        print(np.array2string(a, threshold=20, precision=5))
    print(f"first call {seconds * 1e3:.2f} ms")


def _archive(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as data:
            return {name: data[name] for name in data.files}
    except (OSError, ValueError) as e:
        raise InputError("CALL-022", f"cannot read {path}: {e}") from None

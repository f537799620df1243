"""intarsia run"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import typer

from intarsia.cli.options import JSON, LEVEL, MODEL, THREADS, load_archive, save_archive, values
from intarsia.cli.progress import working


def run(
    model: Path = MODEL,
    inputs: list[str] = typer.Option(
        [],
        "--input",
        "-i",
        help="NAME=file.npy, or NAME=1,2,3 for small ones; repeatable.",
        show_default=False,
    ),
    archive: Path = typer.Option(None, "--inputs", help="An .npz file with inputs by name."),
    output: Path = typer.Option(None, "--output", "-o", help="Save all outputs to this .npz file."),
    threads: int = THREADS,
    level: int = LEVEL,
    as_json: bool = JSON,
) -> None:
    """Run a model once and print its outputs.

    Numbers given on the command line take the input's dtype; `true` and `false` are numbers too.

    Example: intarsia run model.onnx -i x=photo.npy -o result.npz
    """
    import intarsia

    feed = load_archive(archive) if archive else {}
    feed.update(values(inputs))
    if model.suffix == ".intarsia":
        exe = intarsia.load(model, threads=threads)
    else:
        with working(f"compiling {model.name}") as tell:
            exe = intarsia.compile(model, threads=threads, level=level, progress=tell)
    start = time.perf_counter()
    result = exe.run(feed)
    seconds = time.perf_counter() - start
    if output:
        save_archive(output, result)
    if as_json:
        described = {
            n: {"dtype": str(a.dtype), "shape": list(a.shape), "values": a.tolist()}
            for n, a in result.items()
        }
        print(json.dumps({"seconds": seconds, "outputs": described}))
        return
    for name, a in result.items():
        print(f"{name}: {a.dtype} {list(a.shape)}")
        print(np.array2string(a, threshold=20, precision=5))
    print(f"first call {seconds * 1e3:.2f} ms")

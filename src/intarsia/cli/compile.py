"""intarsia compile"""

from __future__ import annotations

import json
import time
from pathlib import Path

import typer

from intarsia.cli.options import JSON, LEVEL, SOURCE, TARGET, THREADS, cannot_write
from intarsia.cli.progress import working


def compile_command(
    model: Path = SOURCE,
    output: Path = typer.Option(
        None, "--output", "-o", help="Where to save (default: the model's name with .intarsia)."
    ),
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
    with working(f"compiling {model.name}") as tell:
        exe = intarsia.compile(model, threads=threads, target=target, level=level, progress=tell)
    seconds = time.perf_counter() - start
    try:
        exe.save(destination)
        size = destination.stat().st_size
    except OSError as e:
        raise cannot_write(destination, e) from None
    if as_json:
        signature = {
            kind: [{"name": s.name, "dtype": s.dtype, "shape": list(s.shape)} for s in signatures]
            for kind, signatures in (("inputs", exe.inputs), ("outputs", exe.outputs))
        }
        print(json.dumps({"artifact": str(destination), "seconds": seconds, "bytes": size, **signature}))
        return
    print(f"{destination}  {_bytes(size)}, compiled in {seconds:.2f} s")
    for kind, signatures in (("input", exe.inputs), ("output", exe.outputs)):
        for s in signatures:
            print(f"  {kind:6s} {s}")


def _bytes(n: int) -> str:
    return f"{n / 1e6:.1f} MB" if n >= 1e6 else f"{n / 1e3:.1f} kB"

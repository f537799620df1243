"""intarsia doctor"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import typer

from intarsia.cli.options import JSON
from intarsia.support.errors import Error

_PACKAGES = (
    "llvmlite",
    "numpy",
    "ml_dtypes",
    "onnx",
    "lark",
    "safetensors",
    "typer",
    "rich",
    "onnxruntime",
    "openvino",
    "torch",
)
_SETTINGS = (
    "INTARSIA_CACHE",
    "INTARSIA_CACHE_DIR",
    "INTARSIA_CACHE_LIMIT",
    "INTARSIA_NUM_THREADS",
    "INTARSIA_VERIFY",
)


def doctor(as_json: bool = JSON) -> None:
    """Show versions, the CPU as the compiler sees it, threads and the cache; try whether machine code runs.

    Ends with code 1 if something does not work.

    Example: intarsia doctor
    """
    found, troubles = _examine()
    if as_json:
        print(json.dumps({**found, "troubles": troubles}))
    else:
        for name, value in found.items():
            for line in _lines(name, value):
                print(line)
        for t in troubles:
            print(f"trouble: {t}")
        if not troubles:
            print("all is well")
    if troubles:
        raise typer.Exit(1)


def _examine() -> tuple[dict[str, Any], list[str]]:
    """What there is, and what is wrong with it."""
    from llvmlite import binding

    from intarsia._version import __version__
    from intarsia.api import default_threads
    from intarsia.codegen.llvm.host import available_cores, host_target

    troubles: list[str] = []
    target = host_target()
    try:
        threads: int | None = default_threads()
    except Error as e:
        threads = None
        troubles.append(str(e))
    if sys.maxsize < 2**32:
        troubles.append("this is a 32-bit Python; Intarsia needs a 64-bit one")
    cache = _cache(troubles)
    native = _try_native(troubles)
    found = {
        "intarsia": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "llvm": ".".join(map(str, binding.llvm_version_info)),
        "cpu": target.cpu,
        "triple": target.triple,
        "vector_bits": target.vector_bits,
        "fma": target.fma,
        "data_caches": {"l1": target.l1, "l2": target.l2, "l3": target.l3},
        "cores": available_cores(),
        "threads": threads,
        "native_code": native,
        "cache": cache,
        "settings": {s: os.environ[s] for s in _SETTINGS if s in os.environ},
        "packages": {p: _version(p) for p in _PACKAGES},
    }
    return found, troubles


def _cache(troubles: list[str]) -> dict[str, Any]:
    from intarsia.support.cache import cache_folder, object_cache

    folder = cache_folder()
    if folder is None:
        return {"folder": None, "writable": False, "bytes": 0, "limit": 0}
    cache = object_cache()
    writable = _writable(folder)
    if not writable:
        troubles.append(
            f"the cache folder {folder} cannot be written: everything works, but nothing is remembered "
            "(INTARSIA_CACHE_DIR names another folder, INTARSIA_CACHE=0 turns the cache off)"
        )
    return {"folder": str(folder), "writable": writable, "bytes": cache.size, "limit": cache.limit}


def _writable(folder: Path) -> bool:
    """Whether a file can be made in the folder, or in the nearest one above it that exists."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _try_native(troubles: list[str]) -> bool:
    """Whether a small program compiles, links and gives the right numbers."""
    import numpy as np

    import intarsia

    text = "def @main(%x: Tensor[(n,), float32]) { add(%x, 1f) }\n"
    try:
        right = intarsia.compile(text, threads=1)(np.arange(5, dtype=np.float32)).tolist() == [
            1.0,
            2.0,
            3.0,
            4.0,
            5.0,
        ]
    except Error as e:
        troubles.append(str(e))
        return False
    if not right:
        troubles.append("a small compiled program gave wrong numbers")
    return right


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _lines(name: str, value: Any) -> Iterator[str]:
    label = name.replace("_", " ")
    if not isinstance(value, dict):
        yield f"{label:18s} {_words(value)}"
    elif value:
        yield f"{label}:"
        for k, v in value.items():
            yield f"  {k:16s} {'not installed' if v is None and name == 'packages' else _words(v)}"


def _words(value: Any) -> str:
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)

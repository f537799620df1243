"""intarsia doctor"""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib import metadata

from intarsia.cli.options import JSON

_PACKAGES = ("llvmlite", "numpy", "ml_dtypes", "onnx", "lark", "safetensors", "typer", "rich", "onnxruntime", "openvino", "torch")


def doctor(as_json: bool = JSON) -> None:
    """Show versions, the CPU as the compiler sees it, threads, and the state of the cache.

    Example: intarsia doctor
    """
    from llvmlite import binding

    from intarsia._version import __version__
    from intarsia.api import default_threads
    from intarsia.codegen.llvm.host import host_target
    from intarsia.support.cache import object_cache

    target = host_target()
    cache = object_cache()
    facts = {
        "intarsia": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "llvm": ".".join(map(str, binding.llvm_version_info)),
        "cpu": target.cpu,
        "triple": target.triple,
        "vector bits": target.vector_bits,
        "fma": target.fma,
        "caches": {"l1": target.l1, "l2": target.l2, "l3": target.l3},
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": default_threads(),
        "cache": cache.describe(),
        "packages": {p: _version(p) for p in _PACKAGES},
    }
    if as_json:
        print(json.dumps(facts))
        return
    for name, value in facts.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for k, v in value.items():
                print(f"  {k:16s} {v if v is not None else 'not installed'}")
        else:
            print(f"{name:18s} {value}")
    if sys.maxsize < 2**32:
        print("this is a 32-bit Python: Intarsia needs a 64-bit one")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

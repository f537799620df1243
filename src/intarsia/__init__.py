"""Intarsia: a deep-learning compiler. Models in, machine code out, dynamic shapes and control flow included.

    exe = intarsia.compile("model.onnx")
    y = exe(x)
    exe.save("model.intarsia"); exe = intarsia.load("model.intarsia")

Heavy imports happen at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from intarsia._version import __version__
from intarsia.support.errors import (
    ArtifactError,
    CodegenError,
    Error,
    InputError,
    ModelError,
    TypeCheckError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from intarsia.api import compile, load
    from intarsia.vm.executable import Executable

_LAZY = {"compile": "intarsia.api", "load": "intarsia.api", "Executable": "intarsia.vm.executable"}

__all__ = [
    "ArtifactError", "CodegenError", "Error", "Executable", "InputError", "ModelError", "TypeCheckError",
    "UnsupportedError", "__version__", "compile", "load",
]  # fmt: skip


def __getattr__(name: str):
    if name in _LAZY:
        from importlib import import_module

        value = globals()[name] = getattr(import_module(_LAZY[name]), name)
        return value
    raise AttributeError(f"module 'intarsia' has no attribute {name!r}")

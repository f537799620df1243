"""A module as two files: `name.relay`, the text, and `name.safetensors`, its large constants."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from intarsia.ir.module import IRModule
from intarsia.ir.text.parser import parse
from intarsia.ir.text.printer import print_module
from intarsia.support.errors import ModelError


def save_text(module: IRModule, path: str | Path) -> None:
    """Write path.relay and, if there are large constants, path.safetensors (`path` with or without the
    ending).
    """
    from safetensors.numpy import save_file

    path = Path(path).with_suffix(".relay")
    weights: dict[str, np.ndarray] = {}
    path.write_text(print_module(module, weights), encoding="utf-8")
    sidecar = path.with_suffix(".safetensors")
    if weights:
        save_file({k: np.ascontiguousarray(v).reshape(v.shape) for k, v in weights.items()}, sidecar)
    else:
        sidecar.unlink(missing_ok=True)


def load_text(path: str | Path) -> IRModule:
    """Read what `save_text` wrote. Raises ModelError TEXT-007 if the text or its weights cannot be read."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(path).with_suffix(".relay")
    sidecar = path.with_suffix(".safetensors")
    try:
        text = path.read_text(encoding="utf-8")
        weights = load_file(sidecar) if sidecar.exists() else {}
    except (OSError, UnicodeDecodeError, SafetensorError) as e:
        raise ModelError("TEXT-007", f"the text or its weights cannot be read: {e}", where=str(path)) from e
    return parse(text, source=path.name, weights=weights)

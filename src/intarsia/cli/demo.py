"""intarsia demo: a real, trained model on a real recording."""

from __future__ import annotations

import json
import time
import wave
from pathlib import Path

import numpy as np

from intarsia.cli.options import JSON
from intarsia.cli.progress import working

RATE, STEP, CONTEXT = 16000, 512, 64


def demo(as_json: bool = JSON) -> None:
    """Compile a voice-activity model that ships with Intarsia and find the speech in a recording.

    The model (silero-vad, MIT) holds convolutions, an LSTM and 25 conditionals; it is compiled once to
    machine code and then fed 32 ms of sound at a time, its state carried from call to call.

    Example: intarsia demo
    """
    import intarsia

    folder = Path(intarsia.__file__).parent / "demo"
    sound = read_wave(folder / "speech.wav")
    start = time.perf_counter()
    with working("compiling silero_vad.onnx") as tell:
        exe = intarsia.compile(folder / "silero_vad.onnx", threads=1, progress=tell)
    compile_s = time.perf_counter() - start
    probability, latency = stream(exe, sound)
    spans = speech_spans(probability)
    median_us = float(np.median(latency) * 1e6)
    if as_json:
        found = [{"from_s": a, "to_s": b} for a, b in spans]
        print(
            json.dumps(
                {"compile_s": compile_s, "median_us": median_us, "calls": len(latency), "speech": found}
            )
        )
        return
    seconds = len(sound) / RATE
    print(f"recording         {seconds:.1f} s of a voice reading Beckett (demo/speech.wav)")
    print(f"compiled          in {compile_s:.2f} s")
    speed = STEP / RATE * 1e6 / median_us
    print(f"ran               {len(latency)} calls, median {median_us:.0f} µs each ({speed:.0f}x real time)")
    print("speech            " + ", ".join(f"{a:.2f}–{b:.2f} s" for a, b in spans))
    print("\n" + picture(probability))


def read_wave(path: Path) -> np.ndarray:
    """16-bit mono sound as float32 in -1 … 1."""
    with wave.open(str(path)) as w:
        return np.frombuffer(w.readframes(w.getnframes()), np.int16).astype(np.float32) / 32768


def stream(exe, sound: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability of speech for every 512 samples (32 ms), and seconds per call."""
    state = np.zeros((2, 1, 128), np.float32)
    rate = np.array(RATE, np.int64)
    padded = np.concatenate([np.zeros(CONTEXT, np.float32), sound])
    probability, latency = [], []
    for i in range(0, len(sound) - STEP + 1, STEP):
        piece = padded[None, i : i + CONTEXT + STEP]
        start = time.perf_counter()
        out, state = exe(input=piece, state=state, sr=rate)
        latency.append(time.perf_counter() - start)
        probability.append(out[0, 0])
    return np.array(probability), np.array(latency)


def speech_spans(
    probability: np.ndarray, on: float = 0.5, off: float = 0.35, shortest: int = 8
) -> list[tuple[float, float]]:
    """Stretches of speech in seconds: begun above `on`, ended after a quarter of a second below `off`."""
    spans: list[tuple[int, int]] = []
    begin, quiet = -1, 0
    for i, p in enumerate([*probability, *[0.0] * shortest]):
        if begin < 0 and p >= on:
            begin, quiet = i, 0
        elif begin >= 0:
            quiet = quiet + 1 if p < off else 0
            if quiet >= shortest:
                spans.append((begin, i - quiet + 1))
                begin = -1
    return [(a * STEP / RATE, b * STEP / RATE) for a, b in spans]


def picture(probability: np.ndarray, width: int = 78) -> str:
    """The probability over time as one line of blocks, with a scale in seconds below."""
    blocks = " ▁▂▃▄▅▆▇█"
    parts = np.array_split(probability, min(width, len(probability)))
    line = "".join(blocks[round(float(p.mean()) * 8)] for p in parts)
    seconds = len(probability) * STEP / RATE
    scale = [" "] * (len(parts) + 4)
    for s in range(0, int(seconds) + 1, 2):
        at = int(s / seconds * len(parts))
        scale[at : at + len(str(s)) + 2] = list(f"{s} s")
    return line + "\n" + "".join(scale).rstrip()

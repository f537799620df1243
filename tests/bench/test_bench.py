"""The benchmark runner: what is compared, what is measured, and what a failing system looks like."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from intarsia.bench import SPINE, compare, from_model, spine
from intarsia.bench.pictures import as_input, line, page
from intarsia.bench.run import difference
from intarsia.support.errors import InputError
from tests.api.models import two_inputs


def folder(path: Path, *outputs: np.ndarray) -> Path:
    path.mkdir()
    np.savez(path / "0.npz", *outputs)
    return path


ONES = np.ones((2, 3), np.float32)
DIFFERENCES = {
    "equal": ([ONES], [ONES], 0.0),
    "a tenth": ([ONES * 0.9], [ONES], 0.1),
    "of the largest": ([np.array([0.0, 100.0])], [np.array([1.0, 100.0])], 0.01),
    "the worst output": ([ONES, ONES * 2], [ONES, ONES], 1.0),
    "shape": ([ONES[0]], [ONES], math.inf),
    "dtype": ([ONES.astype(np.float64)], [ONES], math.inf),
    "number": ([ONES], [ONES, ONES], math.inf),
    "NaN": ([ONES * np.nan], [ONES], math.inf),
    "NaN in both": ([np.array([np.nan, 1.0])], [np.array([np.nan, 1.0])], 0.0),
    "NaN only there": ([np.array([1.0, 1.0])], [np.array([np.nan, 1.0])], math.inf),
    "infinity": ([np.array([np.inf, 1.0])], [np.array([2.0, 1.0])], math.inf),
    "infinity of another sign": ([np.array([np.inf, 1.0])], [np.array([-np.inf, 1.0])], math.inf),
    "infinity in both": ([np.array([-np.inf, 1.0])], [np.array([-np.inf, 1.0])], 0.0),
    "nothing": ([np.zeros((0, 3))], [np.zeros((0, 3))], 0.0),
    "bools": ([np.array([True, False])], [np.array([True, True])], 1.0),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_the_difference_of_outputs(name, tmp_path):
    ours, theirs, wanted = DIFFERENCES[name]
    got = difference(folder(tmp_path / "a", *ours), folder(tmp_path / "b", *theirs), 1)
    assert got == pytest.approx(wanted, rel=1e-6)


@pytest.fixture
def model(tmp_path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(two_inputs().SerializeToString())
    return path


def test_inputs_are_made_for_the_sizes_asked_for(model):
    (feed,) = from_model(model, {"batch": 3, "sequence": 5}, {}).feeds
    assert {n: (a.shape, a.dtype.name) for n, a in feed.items()} == {
        "x": ((3, 5), "float32"),
        "w": ((5, 4), "float32"),
    }
    (feed,) = from_model(model, {}, {"w": [[1, 2, 3, 4]]}).feeds
    assert feed["x"].shape == (1, 1) and feed["w"].dtype == np.float32
    with pytest.raises(InputError, match="CLI-007"):
        from_model(model, {"length": 3}, {})


def test_rows_for_each_system_and_a_failing_one_has_its_reason(model):
    pytest.importorskip("onnxruntime")
    work = from_model(model, {"batch": 2, "sequence": 3}, {})
    ours, theirs, other = compare([work], ["onnxruntime", "torch"], [1], rounds=2, seconds=0.02)
    assert [ours.system, theirs.system, other.system] == ["intarsia", "onnxruntime", "torch"]
    assert theirs.ratio == 1.0 and theirs.difference == 0.0 and ours.reference == "onnxruntime"
    assert ours.error == "" and ours.difference < 1e-5 and ours.ratio > 0 and ours.passes >= 4
    assert 0 < ours.best <= ours.median < ours.cached_s and ours.cold_s > 0 and ours.peak_mb > 10
    assert "PyTorch cannot run" in other.error or "No module named 'torch'" in other.error
    assert math.isnan(other.ratio)
    json.dumps([ours.error, other.error])


def test_ctrl_c_ends_it_and_its_processes(tmp_path):
    folder = tmp_path / "temporary"
    folder.mkdir()
    command = [
        sys.executable,
        "-m",
        "intarsia.cli",
        "bench",
        "--spine",
        "--only",
        "silero_vad",
        "--against",
        "",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(
        command, env=os.environ | {"TMPDIR": str(folder)}, start_new_session=True, **pipes
    )
    deadline = time.monotonic() + 60
    while not list(folder.glob("intarsia-bench-*/intarsia")) and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (130, "", "stopped\n")
    assert list(folder.iterdir()) == []


def test_the_reference_models_that_are_here(tmp_path):
    found = spine(tmp_path, ("silero_vad", "ppocr_det", "minilm"))
    assert "silero_vad" in [w.name for w in found]
    for w in found:
        assert w.path.is_file() and w.feeds and w.name in SPINE


def test_pictures_are_ink_on_paper():
    for picture in (line(48, 320), line(48, 96, start=9), page(320, 480), page(33, 40)):
        assert picture.min() >= 0 and picture.max() == 1 and 0.02 < (picture < 0.5).mean() < 0.5
    assert as_input(page(64, 96)).shape == (1, 3, 64, 96)
    np.testing.assert_array_equal(page(320, 480), page(320, 480))

"""Compiling with a cache folder that does not work, with one that is shared, and interrupted."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.support.cache import DiskCache
from tests.api.models import expected, floats, two_inputs

X, W = floats(2, 3), floats(3, 4)
CLI = [sys.executable, "-m", "intarsia.cli"]


def check_compiles() -> None:
    got = intarsia.compile(two_inputs(), threads=1)(X, W)
    np.testing.assert_allclose(got[0], expected(X, W)[0], rtol=1e-5, atol=1e-5)


def files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file()]


def test_the_cache_folder_is_a_file(tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("mine")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "cache"))
    check_compiles()
    assert (tmp_path / "cache").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/sys").is_dir(), reason="root may write anywhere")
def test_the_cache_folder_is_read_only(tmp_path, monkeypatch):
    folder = Path("/proc/sys/intarsia")  # not even root can make it
    if os.geteuid() != 0:
        folder = tmp_path / "cache"
        folder.mkdir(mode=0o555)
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(folder))
    check_compiles()


@pytest.mark.parametrize("broken", ["replace", "fdopen"])
def test_the_disk_is_full(tmp_path, monkeypatch, broken):
    def full(*_args, **_options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, broken, full)
    check_compiles()
    assert files(tmp_path) == []


def test_no_cache_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    check_compiles()
    assert files(tmp_path) == []


def start(*arguments: object, cache: Path) -> subprocess.Popen:
    env = os.environ | {"INTARSIA_CACHE_DIR": str(cache), "INTARSIA_VERIFY": "0"}
    return subprocess.Popen(
        [*CLI, *map(str, arguments)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_compile_into_one_cache_at_once(tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(two_inputs().SerializeToString())
    both = [
        start("compile", model, "-o", tmp_path / f"{i}.intarsia", "-t", 1, cache=tmp_path / "cache")
        for i in range(2)
    ]
    for process in both:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert (tmp_path / "0.intarsia").read_bytes() == (tmp_path / "1.intarsia").read_bytes()
    check_entries(tmp_path / "cache")


def check_entries(folder: Path) -> int:
    """Every file in the cache is a whole entry; how many there are."""
    cache = DiskCache(folder / "objects")
    entries = [p for p in files(folder / "objects") if p.name != "pruned"]
    assert not [p for p in entries if p.name.startswith(".part-")]
    assert all(cache.get(p.name) is not None for p in entries)
    return len(entries)


def test_ctrl_c_while_compiling_ends_cleanly(tmp_path):
    model = Path(intarsia.__file__).parent / "demo" / "silero_vad.onnx"
    process = start("compile", model, "-o", tmp_path / "out.intarsia", cache=tmp_path / "cache")
    deadline = time.monotonic() + 120
    while len(files(tmp_path / "cache")) < 3 and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None, "it was done before it could be interrupted"
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (output, errors) == ("", "stopped\n")
    assert check_entries(tmp_path / "cache") >= 1
    assert [p.name for p in tmp_path.iterdir()] == ["cache"]

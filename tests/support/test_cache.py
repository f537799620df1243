"""The cache on disk never gives wrong bytes and never gets in the way."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from intarsia.support.cache import DiskCache, cache_folder, key_of

KEY = key_of("something")


def entry(cache: DiskCache, key: str = KEY) -> Path:
    assert cache.folder is not None
    return cache.folder / key[:2] / key


def test_what_is_put_is_got(tmp_path):
    cache = DiskCache(tmp_path / "deep" / "folder")
    assert cache.get(KEY) is None
    cache.put(KEY, b"data")
    assert cache.get(KEY) == b"data"
    cache.put(KEY, b"other")
    assert DiskCache(tmp_path / "deep" / "folder").get(KEY) == b"other"
    cache.clear()
    assert cache.get(KEY) is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-1], lambda b: b[:20], lambda b: b"", lambda b: b[:-1] + b"!", lambda b: b"x" + b]
)
def test_a_damaged_entry_is_missing_and_removed(tmp_path, damage):
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"data")
    path = entry(cache)
    path.write_bytes(damage(path.read_bytes()))
    assert cache.get(KEY) is None
    assert not path.exists()


def test_a_folder_that_cannot_be_written_remembers_nothing(tmp_path):
    file = tmp_path / "file"
    file.write_text("not a folder")
    for folder in (file, file / "below", Path("/proc/nowhere"), None):
        cache = DiskCache(folder)
        cache.put(KEY, b"data")
        assert cache.get(KEY) is None
        assert cache.size == 0


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    cache.put(KEY, b"data")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_an_interrupt_leaves_no_half_written_entry(tmp_path, monkeypatch):
    cache = DiskCache(tmp_path)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cache.put(KEY, b"data")
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []


def test_what_was_used_longest_ago_goes_first(tmp_path):
    cache = DiskCache(tmp_path, limit=1000)
    keys = [key_of(str(n)) for n in range(6)]
    for n, key in enumerate(keys):
        cache.put(key, bytes(300))
        os.utime(entry(cache, key), (n * 10_000, n * 10_000))
    assert cache.get(keys[0]) is not None  # is used again
    os.utime(tmp_path / "pruned", (0, 0))
    cache.put(key_of("last"), bytes(300))
    left = [k for k in keys if entry(cache, k).exists()]
    assert cache.size <= 1000 and left == [keys[0]]


def test_remains_of_a_killed_process_go_away(tmp_path):
    cache = DiskCache(tmp_path)
    cache.put(KEY, b"data")
    part = entry(cache).parent / ".part-killed"
    part.write_bytes(b"half")
    os.utime(part, (0, 0))
    os.utime(tmp_path / "pruned", (0, 0))
    cache.put(key_of("other"), b"data")
    assert not part.exists() and cache.get(KEY) == b"data"


def test_many_processes_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from intarsia.support.cache import *\n"
        "c = DiskCache(Path(sys.argv[1]), 20000)\n"
        "for r in range(40):\n"
        "    for n in range(8):\n"
        "        k = key_of(str(n)); d = c.get(k); assert d is None or d == bytes([n]) * 4096; \n"
        "        c.put(k, bytes([n]) * 4096)\n"
        "    c._prune(c.limit)\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env=os.environ) for _ in range(3)
    ]
    assert [child.wait(60) for child in children] == [0, 0, 0]


def test_where_the_cache_is(monkeypatch, tmp_path):
    monkeypatch.delenv("INTARSIA_CACHE", raising=False)
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    assert cache_folder() is None
    monkeypatch.delenv("INTARSIA_CACHE")
    monkeypatch.delenv("INTARSIA_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x" / "intarsia"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "intarsia"
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert cache_folder() is None


def test_keys_differ_where_parts_differ():
    assert len({key_of("a", "b"), key_of("ab", ""), key_of("ab"), key_of("a", "c"), key_of(b"a", "b")}) == 4

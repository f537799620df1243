"""A cache of bytes on disk, shared by processes, bounded, and never in the way.

An entry is one file named by its key, which begins with a checksum of what follows. Files appear complete
(written aside, then renamed) or not at all; a damaged one counts as missing and is removed. Whatever the file
system refuses (read-only, full, no home, not a folder) only means that nothing is remembered.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import tempfile
import time
from pathlib import Path

MAGIC = b"intarsia-cache-1"
LIMIT = 2 << 30  # bytes, where INTARSIA_CACHE_LIMIT does not say
PRUNE_EVERY = 24 * 3600.0  # seconds between looks at the whole folder, by any process
STALE = 3600.0  # seconds after which an unfinished file is somebody's remains


class DiskCache:
    """`get` and `put` by key (hex digits); a folder of None remembers nothing."""

    def __init__(self, folder: Path | None, limit: int = LIMIT):
        self.folder, self.limit = folder, limit

    def get(self, key: str) -> bytes | None:
        """The bytes put under key, or None."""
        if self.folder is None:
            return None
        path = self._path(self.folder, key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        head = len(MAGIC) + 32
        if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[head:]).digest() != data[len(MAGIC) : head]:
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > 3600:
                os.utime(path)  # recently used
        return data[head:]

    def put(self, key: str, data: bytes) -> None:
        """Remember data under key, if that can be done."""
        if self.folder is None:
            return
        path = self._path(self.folder, key)
        temporary: str | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(prefix=".part-", dir=path.parent)
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + hashlib.sha256(data).digest() + data)
            Path(temporary).replace(path)
            temporary = None
            self._prune_now_and_then(self.folder)
        except OSError:
            pass
        finally:
            if temporary is not None:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()

    def clear(self) -> None:
        """Remove every entry."""
        self._prune(0)

    @property
    def size(self) -> int:
        """Bytes in use."""
        return sum(size for _, size, _ in self._entries())

    @staticmethod
    def _path(folder: Path, key: str) -> Path:
        return folder / key[:2] / key

    def _entries(self) -> list[tuple[float, int, Path]]:
        """(time of last use, bytes, path) of each file, unfinished ones too."""
        found = []
        if self.folder is not None:
            try:
                for path in self.folder.glob("??/*"):
                    with contextlib.suppress(OSError):
                        s = path.stat()
                        found.append((s.st_mtime, s.st_size, path))
            except OSError:
                return found
        return found

    def _prune_now_and_then(self, folder: Path) -> None:
        mark = folder / "pruned"
        try:
            due = time.time() - mark.stat().st_mtime > PRUNE_EVERY
        except FileNotFoundError:
            due = False
            mark.touch()
        if due:
            mark.touch()
            self._prune(self.limit)

    def _prune(self, limit: int) -> None:
        """Remove what was used longest ago until `limit` holds, and remains of interrupted writes."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        now = time.time()
        for used, size, path in entries:
            remains = path.name.startswith(".part-")
            if total <= limit and not (remains and now - used > STALE):
                continue
            if remains and limit and now - used <= STALE:
                continue  # somebody may be writing it
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size


def key_of(*parts: str | bytes) -> str:
    """A key that differs where any part does."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.hexdigest()


def cache_folder() -> Path | None:
    """INTARSIA_CACHE_DIR, else the user's cache folder; None if INTARSIA_CACHE=0 or there is no home."""
    if os.environ.get("INTARSIA_CACHE") == "0":
        return None
    named = os.environ.get("INTARSIA_CACHE_DIR")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "intarsia"
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home / ".cache" / "intarsia" if home.is_dir() else None


def object_cache() -> DiskCache:
    """The cache of compiled objects as the environment says now."""
    limit = os.environ.get("INTARSIA_CACHE_LIMIT", "")
    return _cache(cache_folder(), int(limit) if limit.isdigit() else LIMIT)


@functools.lru_cache(maxsize=8)
def _cache(folder: Path | None, limit: int) -> DiskCache:
    return DiskCache(folder / "objects" if folder is not None else None, limit)

"""A file of named sections, checked before anything in it is used.

    file    ::= magic(8) version(u32) header-length(u32) header-sha256(32) header … section …
    header  ::= JSON {"sections": {name: {offset, size, sha256}}, "meta": …}, keys sorted
    section ::= bytes at a multiple of 64 from the start of the file

Equal contents give equal bytes. Sizes are validated against the file before memory is taken; checksums are
verified before a section is handed out. Written beside its place and renamed, so a reader never sees half a
file.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

from intarsia.support.errors import ArtifactError

MAGIC = b"INTARSIA"
VERSION = 1
_PREFIX = 48
_ALIGNMENT = 64
Bytes = Union[bytes, bytearray, memoryview]


def save(path: str | os.PathLike[str], meta: Mapping[str, Any], sections: Mapping[str, Bytes]) -> None:
    """Write a file; an existing one is replaced only by a complete new one. OSError if the place cannot be
    written.
    """
    table: dict[str, dict[str, Any]] = {}
    names = list(sections)
    for name in names:
        data = memoryview(sections[name]).cast("B")
        table[name] = {"offset": 0, "size": data.nbytes, "sha256": hashlib.sha256(data).hexdigest()}
    header = _layout(table, names, meta)
    prefix = (
        MAGIC
        + VERSION.to_bytes(4, "little")
        + len(header).to_bytes(4, "little")
        + hashlib.sha256(header).digest()
    )
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(prefix + header)
            for name in names:
                f.write(b"\0" * (table[name]["offset"] - f.tell()))
                f.write(sections[name])
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _layout(table: dict[str, dict[str, Any]], names: list[str], meta: Mapping[str, Any]) -> bytes:
    """Place the sections after a header whose own length depends on the places: settle in a few rounds."""
    length = 0
    while True:
        at = _PREFIX + length
        for name in names:
            at = -(-at // _ALIGNMENT) * _ALIGNMENT
            table[name]["offset"] = at
            at += table[name]["size"]
        header = json.dumps({"meta": meta, "sections": table}, sort_keys=True, separators=(",", ":")).encode()
        header += b" " * (-len(header) % _ALIGNMENT)
        if len(header) == length:
            return header
        length = max(length, len(header))
        if len(header) < length:
            return header + b" " * (length - len(header))


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, memoryview]]:
    """The metadata and the sections, mapped into memory (read-only). Raises ArtifactError ART-001…004."""
    where = str(path)
    try:
        with Path(path).open("rb") as f:
            size = os.fstat(f.fileno()).st_size
            if size < _PREFIX:
                raise ArtifactError(
                    "ART-001", "this is not an Intarsia artifact: the file is too short", where=where
                )
            data = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as e:
        raise ArtifactError("ART-005", f"the artifact cannot be read: {e.strerror}", where=where) from None
    if data[:8] != MAGIC:
        raise ArtifactError("ART-001", "this is not an Intarsia artifact", where=where)
    version = int.from_bytes(data[8:12], "little")
    if version != VERSION:
        raise ArtifactError(
            "ART-002",
            f"the artifact has format {version}, this release reads {VERSION}",
            where=where,
            remedy="save the model again",
        )
    length = int.from_bytes(data[12:16], "little")
    if _PREFIX + length > size:
        raise ArtifactError("ART-003", "the artifact is truncated inside its header", where=where)
    header = bytes(data[_PREFIX : _PREFIX + length])
    if hashlib.sha256(header).digest() != data[16:48]:
        raise ArtifactError(
            "ART-004", "the artifact is damaged: its header does not match its checksum", where=where
        )
    fields = json.loads(header)
    sections: dict[str, memoryview] = {}
    for name, entry in fields["sections"].items():
        offset, count = entry["offset"], entry["size"]
        if not (isinstance(offset, int) and isinstance(count, int) and 0 <= offset <= offset + count <= size):
            raise ArtifactError(
                "ART-003", f"the artifact is truncated: section {name} ends beyond the file", where=where
            )
        section = data[offset : offset + count]
        if hashlib.sha256(section).hexdigest() != entry["sha256"]:
            raise ArtifactError(
                "ART-004", f"the artifact is damaged: section {name} does not match its checksum", where=where
            )
        sections[name] = section
    return fields["meta"], sections

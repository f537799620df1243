"""From a path, bytes or a ModelProto to a sound ModelProto, or an error that says what it is instead."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from intarsia.support.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from onnx import ModelProto

NEWEST_IR = 14
NEWEST_OPSET = 28
_OLDEST_IR = 1
_AGAIN = "export the model to ONNX again, or fetch the file again"
_FOREIGN = [
    (b"<!doctype html", "is a web page (HTML)"),
    (b"<html", "is a web page (HTML)"),
    (b"<?xml", "is XML"),
    (b"version https://git-lfs", "is a Git LFS pointer, not the file itself (`git lfs pull` fetches it)"),
    (b"pk\x03\x04", "is a zip archive (a PyTorch checkpoint, or a packed model)"),
    (b"gguf", "is a GGUF file"),
    (b"\x1f\x8b", "is compressed with gzip"),
    (b"\x80\x02", "is a Python pickle"),
    (b"\x89hdf", "is an HDF5 file"),
]


@dataclass(frozen=True, slots=True)
class Source:
    """model; name: the file's name, for messages; folder: of external data (None: not from a file)."""

    model: ModelProto
    name: str
    folder: Path | None


def read(model: str | Path | bytes | ModelProto) -> Source:
    """Raises ModelError ONNX-001 (no such file), ONNX-002 (not ONNX), ONNX-003 (truncated),
    ONNX-004 (no opset), UnsupportedError ONNX-005 (too new)."""
    match model:
        case str() | Path():
            path = Path(model)
            source = Source(_parse(_bytes_of(path), path.name), path.name, path.parent)
        case bytes() | bytearray() | memoryview():
            source = Source(_parse(bytes(model), "model"), "model", None)
        case _:
            from onnx import ModelProto

            if not isinstance(model, ModelProto):
                raise ModelError(
                    "ONNX-002",
                    f"a {type(model).__name__} is not a model",
                    remedy="pass a path, the file's bytes or an onnx.ModelProto",
                )
            source = Source(model, model.graph.name or "model", None)
    _check_versions(source)
    return source


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise ModelError("ONNX-001", f"there is no file {path}", remedy="check the path") from None
    except IsADirectoryError:
        remedy = "name the .onnx file inside it"
        raise ModelError("ONNX-001", f"{path} is a folder, not a file", remedy=remedy) from None
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise ModelError("ONNX-001", f"cannot read {path}: {reason}") from None


def _parse(data: bytes, name: str) -> ModelProto:
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    if not data:
        raise ModelError("ONNX-002", "the file is empty", where=name, remedy=_AGAIN)
    head = data[:64].lstrip().lower()
    for magic, what in _FOREIGN:
        if head.startswith(magic):
            raise ModelError(
                "ONNX-002", f"the file is not an ONNX model: it {what}", where=name, remedy=_AGAIN
            )
    missing = _missing_bytes(data)
    model = ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError):
        if missing:
            message = (
                f"the file is truncated: it ends after {len(data)} bytes, and at least {missing} are missing"
            )
            raise ModelError("ONNX-003", message, where=name, remedy="copy or download it again") from None
        message = "the file is not an ONNX model, or it is damaged"
        raise ModelError("ONNX-002", message, where=name, remedy=_AGAIN) from None
    if not model.HasField("graph") or model.ir_version < _OLDEST_IR:
        raise ModelError(
            "ONNX-002", "the file is not an ONNX model: it holds no graph", where=name, remedy=_AGAIN
        )
    return model


def _missing_bytes(data: bytes) -> int:
    """How many bytes the last top-level field claims beyond the end; 0 where fields fit or make no sense."""
    at, size = 0, len(data)
    while at < size:
        tag, at = _varint(data, at)
        match tag & 7 if at else None:
            case 0:
                _, at = _varint(data, at)
            case 1:
                at += 8
            case 2:
                length, at = _varint(data, at)
                at = at + length if at else 0
            case 5:
                at += 4
            case _:
                return 0
        if at == 0 or not 1 <= tag >> 3 <= 64:
            return 0
    return at - size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, position behind it); position 0 where there is none."""
    value = 0
    for i in range(at, min(at + 10, len(data))):
        value |= (data[i] & 127) << 7 * (i - at)
        if data[i] < 128:
            return value, i + 1
    return 0, 0


def _check_versions(source: Source) -> None:
    model, where = source.model, source.name
    if model.ir_version > NEWEST_IR:
        raise UnsupportedError(
            "ONNX-005",
            f"the model has ONNX IR version {model.ir_version}; versions up to {NEWEST_IR} are known",
            where=where,
            remedy="export it for an older version, or update intarsia",
        )
    opsets = {o.domain or "ai.onnx": o.version for o in model.opset_import}
    if not opsets and model.ir_version >= 3:
        message = "the model does not say which operator sets it uses; its end may be missing"
        raise ModelError("ONNX-004", message, where=where, remedy=_AGAIN)
    if opsets.get("ai.onnx", 1) > NEWEST_OPSET:
        raise UnsupportedError(
            "ONNX-005",
            f"the model uses operator set {opsets['ai.onnx']}; sets up to {NEWEST_OPSET} are known",
            where=where,
            remedy="export it with opset_version=20, say, or update intarsia",
        )

"""Element types and tensors of ONNX as NumPy arrays, with every length checked before memory is asked for."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING

import numpy as np

from intarsia.op.entry import numpy_dtype
from intarsia.support.errors import ModelError, UnsupportedError

if TYPE_CHECKING:
    from onnx import TensorProto

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 16: "bfloat16",
}  # fmt: skip
_CODES = {name: code for code, name in DTYPES.items()}
_FOREIGN = {
    8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz", 
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0",
    25: "uint2", 26: "int2",
}  # fmt: skip
_MAX_ELEMENTS = 1 << 40
_EXTERNAL = 1  # TensorProto.EXTERNAL


def dtype_words(code: int) -> str:
    """An element type by name, for messages."""
    return DTYPES.get(code) or _FOREIGN.get(code) or f"number {code}"


def dtype_name(code: int, where: str) -> str:
    """The Relay dtype of an ONNX element type; UnsupportedError ONNX-022 where there is none."""
    name = DTYPES.get(code)
    if name is None:
        raise UnsupportedError(
            "ONNX-022",
            f"the element type {dtype_words(code)} is not supported",
            where=where,
            remedy=f"convert the model to one of: {', '.join(DTYPES.values())}",
        )
    return name


def dtype_code(name: str) -> int:
    """The ONNX element type of a Relay dtype."""
    return _CODES[name]


def to_array(tensor: TensorProto, folder: Path | None, where: str) -> np.ndarray:
    """The tensor's contents, copied at most once (read-only where ONNX stores raw bytes).

    folder: where external data lies; None if the model did not come from a file.
    Raises ModelError ONNX-014 … 016 (external data), ONNX-018 (sizes), UnsupportedError ONNX-022.
    """
    dtype = numpy_dtype(dtype_name(tensor.data_type, where))
    shape = tuple(tensor.dims)
    count = _count(shape, where)
    if tensor.data_location == _EXTERNAL:
        return _read_external(tensor, folder, dtype, count, where).reshape(shape)
    if tensor.HasField("segment"):
        raise UnsupportedError("ONNX-022", "tensors in segments are not supported", where=where)
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        _expect(len(raw), count * dtype.itemsize, "bytes", shape, dtype, where)
        return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
    field, store = _typed_field(tensor, dtype)
    _expect(len(field), count, "numbers", shape, dtype, where)
    try:
        numbers = np.fromiter(field, store, count)
    except OverflowError:
        raise ModelError(
            "ONNX-018", f"a number of the tensor does not fit {dtype.name}", where=where
        ) from None
    numbers = (
        numbers.view(dtype)
        if store is np.uint16 and dtype.itemsize == 2 and dtype.kind not in "iu"
        else numbers
    )
    return numbers.astype(dtype, copy=False).reshape(shape)


def _typed_field(tensor: TensorProto, dtype: np.dtype):
    """The field that holds a tensor without raw data, and the NumPy type its numbers have there."""
    match dtype.name:
        case "float32":
            return tensor.float_data, np.float32
        case "float64":
            return tensor.double_data, np.float64
        case "int64":
            return tensor.int64_data, np.int64
        case "uint32" | "uint64":
            return tensor.uint64_data, np.uint64
        case "float16" | "bfloat16":
            return tensor.int32_data, np.uint16
    return tensor.int32_data, np.int32


def _count(shape: tuple[int, ...], where: str) -> int:
    if any(d < 0 for d in shape) or (count := prod(shape)) > _MAX_ELEMENTS or len(shape) > 64:
        raise ModelError("ONNX-018", f"a tensor cannot have the shape {list(shape)[:8]}", where=where)
    return count


def _expect(found: int, wanted: int, unit: str, shape: tuple[int, ...], dtype: np.dtype, where: str) -> None:
    if found != wanted:
        raise ModelError(
            "ONNX-018",
            f"the tensor of shape {list(shape)} and type {dtype.name} needs {wanted} {unit}, "
            f"but the model holds {found}",
            where=where,
            remedy="export the model again; the file may be damaged",
        )


# ---- data in other files -----------------------------------------------------------------------------------
def _read_external(
    tensor: TensorProto, folder: Path | None, dtype: np.dtype, count: int, where: str
) -> np.ndarray:
    entries = {e.key: e.value for e in tensor.external_data}
    location = entries.get("location", "")
    if folder is None:
        raise ModelError(
            "ONNX-014",
            f"the weights lie in another file ('{location}'), but the model was not loaded from a file",
            where=where,
            remedy="pass the model's path instead of its bytes",
        )
    path = _confined(location, folder, where)
    offset, length = _number(entries, "offset", where) or 0, _number(entries, "length", where)
    wanted, size = count * dtype.itemsize, path.stat().st_size
    if length is not None and length != wanted or offset + wanted > size:
        found = min(size - offset, length if length is not None else size)
        _expect(
            max(found, 0),
            wanted,
            f"bytes at offset {offset} of '{location}'",
            tuple(tensor.dims),
            dtype,
            where,
        )
    return np.fromfile(str(path), dtype.newbyteorder("<"), count, offset=offset).astype(dtype, copy=False)


def _confined(location: str, folder: Path, where: str) -> Path:
    """The file, which must lie in the model's folder: no absolute path, no '..', no link that leads out."""
    parts = PurePosixPath(location).parts
    outside = PurePosixPath(location).is_absolute() or PureWindowsPath(location).drive or "\\" in location
    if not location or "\0" in location or outside or ".." in parts:
        raise _escapes(location, where)
    root = Path(os.path.realpath(folder))
    path = Path(os.path.realpath(root / location))
    if not path.is_relative_to(root):
        raise _escapes(location, where)
    if not path.is_file():
        raise ModelError(
            "ONNX-015",
            f"the file '{location}' with the model's weights is missing",
            where=where,
            remedy=f"put it beside the model, as {folder / location}",
        )
    return path


def _escapes(location: str, where: str) -> ModelError:
    return ModelError(
        "ONNX-016",
        f"the model asks for weights from '{location}', which is outside its own folder; that is not allowed",
        where=where,
        remedy="store the weights beside the model, with a relative location",
    )


def _number(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise ModelError(
            "ONNX-018", f"the {key} of the external data must be a number, not '{text}'", where=where
        )
    return int(text)

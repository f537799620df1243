"""Tensors at the border: what a caller passes in becomes a dense array, without a copy where that is
possible.

Taken as they are: NumPy arrays, anything with DLPack (torch, JAX, …) on the CPU, anything with the buffer
    protocol. An array that is not dense row-major is copied. Python numbers and lists have no dtype of their
    own and take the input's.
No other value is ever cast: a wrong dtype is an error that says how to convert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from intarsia.support.errors import InputError

_LINE = 64


@dataclass(frozen=True, slots=True)
class Signature:
    """One input or output: its name, dtype name and shape (ints, and strings for symbolic dimensions)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a dtype name (bfloat16 through ml_dtypes)."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def address(array: np.ndarray) -> int:
    """Where the array's first element is."""
    return array.__array_interface__["data"][0]


def aligned(array: np.ndarray) -> np.ndarray:
    """The array itself if it is dense and starts at a cache line, else a copy that does."""
    if array.flags.c_contiguous and address(array) % _LINE == 0:
        return array
    memory = np.empty(array.nbytes + _LINE, np.uint8)
    start = -address(memory) % _LINE
    copy = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def bind(signatures: Sequence[Signature], args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments in the order of the inputs. InputError CALL-001/002 lists missing and unknown names."""
    names = [s.name for s in signatures]
    if len(args) > len(names):
        raise InputError(
            "CALL-002", f"{len(args)} inputs were given, the model takes {len(names)}: {', '.join(names)}"
        )
    given = dict(zip(names, args))
    twice = sorted(given.keys() & kwargs.keys())
    if twice:
        raise InputError("CALL-002", f"given twice: {', '.join(twice)}")
    unknown = [k for k in kwargs if k not in names]
    given.update(kwargs)
    missing = [n for n in names if n not in given]
    if unknown:
        left = f"; not given: {', '.join(missing)}" if missing else ""
        raise InputError(
            "CALL-002",
            f"the model has no input {', '.join(unknown)}{left}",
            remedy=f"the names of its inputs: {', '.join(names)}",
        )
    if missing:
        raise InputError(
            "CALL-001", f"missing inputs: {', '.join(missing)}", remedy=f"pass all of {', '.join(names)}"
        )
    return [given[n] for n in names]


def as_dense(value: Any, signature: Signature, dtype: np.dtype) -> np.ndarray:
    """`value` as a dense array of the signature's dtype and rank. Raises InputError CALL-003/004/007."""
    array = _as_array(value, signature, dtype)
    if array.dtype != dtype:
        if array.dtype.newbyteorder("=") == dtype:
            array = array.astype(dtype)
        else:
            raise InputError(
                "CALL-004",
                f"input '{signature.name}' has dtype {array.dtype.name}, the model takes {signature.dtype}",
                remedy=f"convert it: {signature.name}.astype({_dtype_text(signature.dtype)})",
            )
    if array.ndim != len(signature.shape):
        raise InputError(
            "CALL-003",
            f"input '{signature.name}' has {array.ndim} dimensions {array.shape}, the model takes "
            f"{len(signature.shape)}: [{', '.join(map(str, signature.shape))}]",
            remedy=_rank_remedy(signature, array),
        )
    return np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray makes rank 0 rank 1


def _dtype_text(name: str) -> str:
    return "ml_dtypes.bfloat16" if name == "bfloat16" else "bool" if name == "bool" else f"numpy.{name}"


def _rank_remedy(signature: Signature, array: np.ndarray) -> str | None:
    if array.ndim == len(signature.shape) - 1:
        return f"add a dimension: {signature.name}[None]"
    if array.ndim == len(signature.shape) + 1 and array.shape[:1] == (1,):
        return f"remove the first dimension: {signature.name}[0]"
    return None


def _as_array(value: Any, signature: Signature, dtype: np.dtype) -> np.ndarray:
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if isinstance(value, bool | int | float | list | tuple):
        return _literal(value, signature, dtype)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(value, signature)
    try:
        return np.asarray(memoryview(value))
    except TypeError:
        pass
    if hasattr(value, "__array__"):
        return np.asarray(value)
    raise InputError(
        "CALL-007",
        f"input '{signature.name}' is a {type(value).__module__}.{type(value).__qualname__}, not a tensor",
        remedy="pass a NumPy array, or anything with DLPack or the buffer protocol",
    )


def _literal(value: Any, signature: Signature, dtype: np.dtype) -> np.ndarray:
    """A Python number or (nested) list, in the input's dtype if that holds it exactly enough."""
    try:
        plain = np.asarray(value)
    except ValueError as e:
        raise InputError("CALL-007", f"input '{signature.name}' is a ragged list: {e}") from None
    floating = "float" in signature.dtype
    fits = (
        plain.dtype.kind in ("biuf" if floating else "biu" if dtype.kind in "iu" else "b") or plain.size == 0
    )
    if fits and dtype.kind in "iu" and plain.size:
        info = np.iinfo(dtype)
        fits = int(plain.min()) >= info.min and int(plain.max()) <= info.max
    if not fits:
        raise InputError(
            "CALL-004", f"input '{signature.name}': {_short(value)} does not fit the dtype {signature.dtype}"
        )
    return plain.astype(dtype)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _from_dlpack(value: Any, signature: Signature) -> np.ndarray:
    if getattr(value, "requires_grad", False):
        value = value.detach()
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":  # NumPy's DLPack reader does not know it
        import torch

        return np.from_dlpack(value.view(torch.int16)).view(numpy_dtype("bfloat16"))
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as e:
        raise InputError(
            "CALL-007",
            f"input '{signature.name}' cannot be read in place: {e}",
            remedy="move it to the CPU first",
        ) from None

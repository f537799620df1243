"""Run a kernel as machine code, next to the reference executor."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.codegen.llvm.emit import emit_kernel, symbol_of
from intarsia.codegen.llvm.host import host_target, target_from_name
from intarsia.codegen.llvm.jit import Library, compile_objects
from intarsia.kernel.evaluate import evaluate_kernel, numpy_type
from intarsia.kernel.stmt import Kernel
from intarsia.kernel.target import Target
from intarsia.kernel.verify import verify

FN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
_FOR = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
shares: list[int] = []  # how many parts each parallel loop was split into


@_FOR
def _parallel_for(_ctx, part, env, n):
    shares.append(n)
    call = _PART(part)
    for i in reversed(range(n)):
        call(env, i)


IMPORTS = {"intarsia_parallel_for": ctypes.cast(_parallel_for, ctypes.c_void_p).value or 0}
GUARD = 64  # bytes around each array that must stay as they were


def native_target(**changes) -> Target:
    from dataclasses import replace

    return replace(host_target(1), **changes)


def sse2() -> Target:
    return target_from_name("x86-64")


class Guarded:
    """An array between guard bytes."""

    def __init__(self, array: np.ndarray):
        self.raw = np.full(array.nbytes + 2 * GUARD, 0xA5, np.uint8)
        self.array = self.raw[GUARD : GUARD + array.nbytes].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def check(self) -> None:
        assert (self.raw[:GUARD] == 0xA5).all(), "written before the buffer"
        assert (self.raw[len(self.raw) - GUARD :] == 0xA5).all(), "written past the buffer"


def run(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    target: Target | None = None,
) -> list[np.ndarray]:
    """The outputs by machine code."""
    target = target or native_target()
    ir = emit_kernel(kernel, target)
    with Library(compile_objects([(kernel.name, ir)], target), [symbol_of(ir)], IMPORTS) as library:
        env = {name: int((symbols or {})[name]) for name in kernel.symbols}
        buffers = [Guarded(np.ascontiguousarray(a)) for a in arrays]
        for b in (*kernel.outputs, *kernel.workspaces):
            shape = tuple(d.evaluate(env) for d in b.shape)
            blank = np.zeros(shape, numpy_type(b.dtype))
            blank.reshape(-1).view(np.uint8)[:] = 0xCB if b.dtype != "bool" else 1
            buffers.append(Guarded(blank))
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(b.array.ctypes.data for b in buffers))
        sizes = (ctypes.c_int64 * max(len(env), 1))(*(env[s] for s in kernel.symbols))
        FN(library.address(symbol_of(ir)))(None, pointers, sizes)
        for b in buffers:
            b.check()
        n = len(kernel.inputs)
        return [b.array.copy() for b in buffers[n : n + len(kernel.outputs)]]


def same(actual: np.ndarray, wanted: np.ndarray, what: str = "") -> None:
    """Equal, with NaN equal to NaN and -0 equal to 0."""
    assert actual.dtype == wanted.dtype and actual.shape == wanted.shape
    a, w = actual, wanted
    if a.dtype.kind not in "biu":
        a, w = a.astype(np.float64), w.astype(np.float64)
        equal = (a == w) | (np.isnan(a) & np.isnan(w))
    else:
        equal = a == w
    if not equal.all():
        at = tuple(int(i[0]) for i in np.nonzero(~equal))
        raise AssertionError(
            f"{what} differs at {at}: {actual[at]!r}, wanted {wanted[at]!r} ({(~equal).sum()} places)"
        )


def ulps(actual: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """|actual - wanted| in units of the last place of actual's type; 0 or inf where either is not finite."""
    with np.errstate(all="ignore"):
        rounded = wanted.astype(actual.dtype)
        gap = np.abs(np.spacing(np.where(np.isfinite(rounded), rounded, np.finfo(actual.dtype).max)))
        error = np.abs(actual.astype(wanted.dtype) - wanted) / gap.astype(wanted.dtype)
        special = ~np.isfinite(rounded) | ~np.isfinite(actual)
        agree = (rounded == actual) | (np.isnan(rounded) & np.isnan(actual))
        return np.where(special, np.where(agree, 0, np.inf), error).astype(np.float64)


def check(
    kernel: Kernel,
    arrays: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    target: Target | None = None,
    tolerance: float = 0.0,
) -> None:
    """Machine code agrees with the reference executor: exactly, or within a relative tolerance."""
    verify(kernel)
    wanted = evaluate_kernel(kernel, arrays, symbols)
    for i, (a, w) in enumerate(zip(run(kernel, arrays, symbols, target), wanted, strict=True)):
        if tolerance and a.dtype.kind not in "biu":
            np.testing.assert_allclose(
                a.astype(np.float64), w.astype(np.float64), tolerance, tolerance, err_msg=f"output {i}"
            )
        else:
            same(a, w, f"output {i}")

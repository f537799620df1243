"""Calls of a compiled ONNX model: what is refused, in exactly which words, and what works."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import intarsia
from tests.api.models import expected, floats, two_inputs


@pytest.fixture(scope="module")
def exe() -> intarsia.Executable:
    return intarsia.compile(two_inputs(), threads=1)


X, W = floats(3, 5), floats(5, 4)

REFUSED = {
    "missing": (
        lambda exe: exe.run({"x": X}),
        "CALL-001: missing inputs: w\n  try pass all of x, w",
    ),
    "unknown": (
        lambda exe: exe.run({"x": X, "weight": W}),
        "CALL-002: the model has no input weight; not given: w\n  try the names of its inputs: x, w",
    ),
    "too many": (
        lambda exe: exe(X, W, W),
        "CALL-002: 3 inputs were given, the model takes 2: x, w",
    ),
    "rank": (
        lambda exe: exe(X[0], W),
        "CALL-003: input 'x' has 1 dimensions (5,), the model takes 2: [batch, sequence]\n"
        "  try add a dimension: x[None]",
    ),
    "dtype": (
        lambda exe: exe(X, W.astype(np.float64)),
        "CALL-004: input 'w' has dtype float64, the model takes float32\n"
        "  try convert it: w.astype(numpy.float32)",
    ),
    "symbol": (
        lambda exe: exe(X, floats(6, 4)),
        "CALL-005: dimension 0 of input 'w' is 6, but must be sequence = 5 "
        "(sequence is dimension 1 of input 'x')",
    ),
    "constant": (
        lambda exe: exe(X, floats(5, 7)),
        "CALL-005: dimension 1 of input 'w' is 7, but must be 4",
    ),
    "no tensor": (
        lambda exe: exe(X, "weights"),
        "CALL-007: input 'w' is a builtins.str, not a tensor\n"
        "  try pass a NumPy array, or anything with DLPack or the buffer protocol",
    ),
    "ragged": (
        lambda exe: exe([[1.0, 2.0], [3.0]], W),
        "CALL-007: input 'x' is a ragged list: ",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused_in_these_words(exe, name):
    attempt, words = REFUSED[name]
    with pytest.raises(intarsia.InputError) as caught:
        attempt(exe)
    assert str(caught.value).startswith(words) if name == "ragged" else str(caught.value) == words
    same(exe(X, W), expected(X, W))  # and does no harm


def same(got, wanted) -> None:
    for g, w in zip(got, wanted, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("batch, sequence", [(0, 5), (3, 0), (0, 0), (1, 1)])
def test_a_symbol_at_zero(exe, batch, sequence):
    x, w = floats(batch, sequence), floats(sequence, 4)
    same(exe(x, w), expected(x, w))


STRIDES = {
    "transposed": lambda: (floats(5, 3).T, floats(4, 5).T),
    "every other": lambda: (floats(6, 10)[::2, ::2], floats(10, 8)[::2, ::2]),
    "backwards": lambda: (floats(3, 5)[::-1, ::-1], floats(5, 4)[::-1]),
    "repeated": lambda: (np.broadcast_to(floats(1, 5), (3, 5)), np.broadcast_to(floats(5, 1), (5, 4))),
    "Fortran": lambda: (np.asfortranarray(X), np.asfortranarray(W)),
    "unaligned": lambda: (unaligned(X), unaligned(W)),
    "read-only": lambda: (read_only(X), read_only(W)),
    "big-endian": lambda: (X.astype(">f4"), W.astype(">f4")),
}


def unaligned(a: np.ndarray) -> np.ndarray:
    return np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)


def read_only(a: np.ndarray) -> np.ndarray:
    copy = a.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize("name", STRIDES)
def test_arrays_of_every_layout_work(exe, name):
    x, w = STRIDES[name]()
    same(exe(x, w), expected(x, w))


def test_memoryviews_lists_and_dlpack_work(exe):
    class Exporter:
        def __init__(self, a: np.ndarray):
            self.a = a

        def __dlpack__(self, **options):
            return self.a.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.a.__dlpack_device__()

    same(exe(memoryview(X), memoryview(W)), expected(X, W))
    same(exe(X.tolist(), W.tolist()), expected(X, W))
    same(exe(Exporter(X), Exporter(W)), expected(X, W))


def test_torch_tensors_work(exe):
    torch = pytest.importorskip("torch")
    same(exe(torch.from_numpy(X), torch.from_numpy(W)), expected(X, W))
    same(exe(torch.from_numpy(X.T.copy()).T, torch.from_numpy(W).requires_grad_()), expected(X, W))
    assert torch.from_dlpack(exe(X, W)[0]).shape == (3, 4)


def test_results_are_new_arrays_that_may_be_kept_and_changed(exe):
    first, _ = exe(X, W)
    kept = first.copy()
    second, _ = exe(X + 1, W)
    np.testing.assert_array_equal(first, kept)
    second[:] = 0
    same(exe(X, W), expected(X, W))


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="resident memory is read from /proc")
def test_a_thousand_tasks_on_one_executable_with_threads_of_its_own():
    exe = intarsia.compile(two_inputs(), threads=2)
    inputs = [(floats(rows, 64), floats(64, 4)) for rows in (1, 7, 64, 256)]
    wanted = [exe(*i) for i in inputs]

    def work(n: int) -> bool:
        got = exe(*inputs[n % len(inputs)])
        return all(np.array_equal(g, w) for g, w in zip(got, wanted[n % len(inputs)]))

    with ThreadPoolExecutor(64) as pool:
        assert all(pool.map(work, range(1000)))
        before = resident()
        for _ in range(3):
            assert all(pool.map(work, range(1000)))
    assert resident() - before < 8 << 20

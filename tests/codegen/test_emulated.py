"""Whole kernels for AArch64, run under qemu's user emulation and held against NumPy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from intarsia.codegen.llvm import native
from intarsia.codegen.llvm.emit import emit_kernel
from intarsia.codegen.llvm.host import target_from_name
from intarsia.dim import Symbol
from intarsia.infer import infer
from intarsia.ir import Call, Constant, Function, IRModule, TensorType, Var, call, tensor
from intarsia.kernel.compute import placeholder
from intarsia.kernel.strategy import lower

pytestmark = pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"),
    reason="needs qemu-aarch64 and a cross compiler (Debian: qemu-user, gcc-aarch64-linux-gnu)",
)

# The driver reads all buffers from standard input and writes them back; parallel loops run one after another.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
void kernel(void *, void **, long *);
void intarsia_parallel_for(void *c, void (*f)(void *, long), void *e, long n) { for (long i = 0; i < n; i++) f(e, i); }
int main(void) {
    long head[2], sizes[64], symbols[64];
    void *buffers[64];
    if (fread(head, 8, 2, stdin) != 2 || fread(sizes, 8, head[0], stdin) != head[0]) return 2;
    if (fread(symbols, 8, head[1], stdin) != head[1]) return 2;
    for (long i = 0; i < head[0]; i++) {
        buffers[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
        if (fread(buffers[i], 1, sizes[i], stdin) != sizes[i]) return 2;
    }
    kernel(0, buffers, symbols);
    for (long i = 0; i < head[0]; i++) fwrite(buffers[i], 1, sizes[i], stdout);
    return 0;
}
"""

rng = np.random.default_rng(0)
n = Symbol("n")


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def emulate(out: Call, x: Var, data: np.ndarray, size: int, folder: Path) -> np.ndarray:
    """One operator call as an AArch64 kernel, on `data` (the value of x, whose symbol n is `size`)."""
    typing = infer(IRModule({"main": Function((x,), out)}))
    site = typing.sites[id(out)]
    buffers, arrays = [], {}
    for k, argument in enumerate(out.args):
        t = typing.type(argument)
        known = k in site.op.value_args and site.value(k) is not None
        assert isinstance(t, TensorType)
        buffers.append(None if known else placeholder(f"x{k}", t.shape, t.dtype))
        if isinstance(argument, Constant) and not known:
            arrays[k] = argument.value
    result = site.op.compute(site, buffers)
    inputs = [b for b in buffers if b is not None]
    place = {k: inputs.index(b) for k, b in enumerate(buffers) if b is not None}
    target = target_from_name("aarch64")
    lowered = lower("kernel", inputs, [result], target, constants={place[k]: a for k, a in arrays.items()})
    kernel = lowered.kernel
    values = {place[k]: a for k, a in arrays.items()} | {0: data}
    given = [values[i] for i in range(len(inputs))] + list(lowered.extra_constants)
    given = [lowered.packs[i].apply(a) if i in lowered.packs else a for i, a in enumerate(given)]

    def empty(b) -> np.ndarray:
        return np.zeros([d.evaluate({"n": size}) for d in b.shape], b.dtype)

    memory = [np.ascontiguousarray(a) for a in given] + [
        empty(b) for b in (*kernel.outputs, *kernel.workspaces)
    ]
    (folder / "k.o").write_bytes(native.emit(emit_kernel(kernel, target, "kernel"), target))
    (folder / "m.c").write_text(DRIVER)
    build = ["aarch64-linux-gnu-gcc", "-static", "-O1", "-o", "m", "m.c", "k.o", "-lm"]
    subprocess.run(build, cwd=folder, check=True)
    words = [len(memory), len(kernel.symbols), *(a.nbytes for a in memory), *(size for _ in kernel.symbols)]
    feed = np.array(words, np.int64).tobytes() + b"".join(a.tobytes() for a in memory)
    done = subprocess.run(
        ["qemu-aarch64", "./m"], cwd=folder, check=True, input=feed, capture_output=True
    ).stdout
    at = sum(a.nbytes for a in memory[: len(given)])
    wanted = memory[len(given)]
    return np.frombuffer(done[at : at + wanted.nbytes], wanted.dtype).reshape(wanted.shape)


def test_softmax_of_ragged_rows(tmp_path: Path):
    x = Var("x", tensor((n, 19)))
    data = floats(5, 19)
    got = emulate(call("nn.softmax", x, axis=-1), x, data, 5, tmp_path)
    wanted = np.exp(data - data.max(1, keepdims=True))
    np.testing.assert_allclose(got, wanted / wanted.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("rows", [1, 3, 8, 13])
def test_matrix_product_with_ragged_panels(rows: int, tmp_path: Path):
    x, w = Var("x", tensor((n, 17))), Constant(floats(17, 21))
    data = floats(rows, 17)
    got = emulate(call("matmul", x, w), x, data, rows, tmp_path)
    np.testing.assert_allclose(got, data @ w.value, rtol=1e-4, atol=1e-5)


def test_convolution_with_borders(tmp_path: Path):
    x, w = Var("x", tensor((1, n, 7, 3))), Constant(floats(10, 3, 3, 3))
    data = floats(1, 6, 7, 3)
    attrs = {"strides": (1, 1), "padding": (1, 1, 1, 1), "dilation": (1, 1), "groups": 1, "layout": "NHWC"}
    got = emulate(call("nn.conv", x, w, **attrs), x, data, 6, tmp_path)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(data, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), (1, 2)
    )
    np.testing.assert_allclose(got, np.einsum("nhwcij,ocij->nhwo", windows, w.value), rtol=1e-4, atol=1e-5)


def test_reduction_over_columns(tmp_path: Path):
    x, axes = Var("x", tensor((n, 9))), Constant(np.array([0], np.int64))
    data = floats(33, 9)
    got = emulate(call("reduce.max", x, axes, keepdims=False), x, data, 33, tmp_path)
    np.testing.assert_array_equal(got, data.max(0))

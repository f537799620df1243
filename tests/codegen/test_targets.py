"""What the generated text and its assembly look like: the traps of LLVM that we know, and other
processors."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from intarsia.codegen.llvm import native
from intarsia.codegen.llvm.emit import emit_kernel, symbol_of
from intarsia.codegen.llvm.host import host_target, target_from_name
from intarsia.codegen.llvm.jit import assembly, compile_objects
from intarsia.dim import Symbol, as_dim, ceildiv
from intarsia.kernel.compute import fresh
from intarsia.kernel.expr import Binary, Buffer, Const, Unary
from intarsia.kernel.stmt import Allocate, Kernel, block, loop, store
from intarsia.support.errors import CodegenError, UnsupportedError

from .harness import check, native_target


def gemm(rows: int, columns: int, unroll: int = 4) -> Kernel:
    """C[12, 48] = A[12, K] B[48 / columns, K, columns] by register tiles; names are fresh each time."""
    i, p, k, u, m, v = (fresh(x) for x in "ipkumv")
    depth = Symbol("K")
    a = Buffer("a", (as_dim(12), depth), "float32")
    b = Buffer("b", (as_dim(48 // columns), depth, as_dim(columns)), "float32")
    c = Buffer("c", (as_dim(12), as_dim(48)), "float32")
    acc = Buffer(fresh("acc"), (as_dim(rows), as_dim(columns)), "float32", "register")
    mv = (Symbol(m), Symbol(v))

    def tile(body):
        return loop(m, rows, loop(v, columns, body, "vector"), "unroll")

    at = Symbol(k) * unroll + Symbol(u)
    step = store(acc, mv, acc[mv] + a[Symbol(i) * rows + mv[0], at] * b[Symbol(p), at, mv[1]])
    body = block(
        tile(store(acc, mv, Const(0.0, "float32"))),
        loop(k, depth // unroll, loop(u, unroll, tile(step), "unroll")),
        tile(store(c, (Symbol(i) * rows + mv[0], Symbol(p) * columns + mv[1]), acc[mv])),
    )
    nest = loop(p, 48 // columns, loop(i, 12 // rows, Allocate(acc, body)), "parallel", work=100)
    return Kernel("gemm", (a, b), (c,), (), ("K",), nest)


def hot_loop(asm: str, instruction: str) -> str:
    """The body of the innermost loop (label to its backward jump) with the most of one instruction."""
    lines = asm.splitlines()
    where = {line[:-1]: n for n, line in enumerate(lines) if re.match(r"\.L\w+:", line)}
    best = ""
    for n, line in enumerate(lines):
        jump = re.match(r"\s+(?:j\w+|b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, #\w+,)\s+(\.L\w+)", line)
        if jump and where.get(jump[1], n) < n:
            body = lines[where[jump[1]] + 1 : n]
            text = "\n".join(body)
            if not any(re.match(r"\.L\w+:", x) for x in body) and text.count(instruction) > best.count(
                instruction
            ):
                best = text
    return best


@pytest.mark.parametrize(
    "name, rows, columns, fma",
    [("x86-64-v3", 6, 16, 12), ("x86-64-v4", 6, 48, 18), ("x86-64-v4", 12, 16, 12)],
)
def test_register_tiles_do_not_spill(name, rows, columns, fma):
    target = target_from_name(name)
    loop_text = hot_loop(assembly(emit_kernel(gemm(rows, columns), target), target), "vfmadd")
    assert loop_text.count("vfmadd") == 4 * fma
    stack = [line for line in loop_text.splitlines() if "(%rsp)" in line]
    assert not [line for line in stack if "mm" in line], "a vector register is spilled"
    assert len(stack) <= (0 if rows <= 6 else rows), "twelve row pointers are more than x86 has registers for"
    assert ("zmm" if name == "x86-64-v4" else "ymm") in loop_text


def test_tile_on_aarch64_uses_its_multiply_add():
    target = target_from_name("aarch64")
    text = hot_loop(assembly(emit_kernel(gemm(4, 16), target), target), "fmla")
    assert text.count("fmla") == 4 * 16
    assert "[sp" not in text


def test_tile_computes_the_product():
    rng = np.random.default_rng(0)
    k = 16
    arrays = [rng.normal(size=(12, k)).astype(np.float32), rng.normal(size=(3, k, 16)).astype(np.float32)]
    check(gemm(6, 16), arrays, {"K": k}, native_target(), tolerance=1e-5)


def test_equal_kernels_give_equal_text():
    target = host_target(1)
    one, two = emit_kernel(gemm(6, 16), target), emit_kernel(gemm(6, 16), target)
    assert one == two
    assert symbol_of(one) != symbol_of(emit_kernel(gemm(4, 16), target))
    assert emit_kernel(gemm(6, 16), target, "named").count("@named(") == 1


def elementwise(op: str, dtype: str = "float32") -> Kernel:
    n, i, v = Symbol("n"), Symbol("i"), Symbol("v")
    x, y = Buffer("x", (n,), dtype), Buffer("y", (n,), dtype)
    body = loop("v", 16, store(y, (i * 16 + v,), Unary(op, x[i * 16 + v])), "vector", active=n - i * 16)
    return Kernel(op, (x,), (y,), (), ("n",), loop("i", ceildiv(n, 16), body))


def test_every_vector_access_is_aligned_like_its_element():
    for line in emit_kernel(elementwise("exp"), target_from_name("x86-64-v4")).splitlines():
        if re.search(r"= load <|store <|masked\.(load|store)", line) and "declare" not in line:
            assert "align 4" in line, line


def test_avx512_masks_ragged_ends_and_uses_whole_registers():
    text = assembly(
        emit_kernel(elementwise("exp"), target_from_name("x86-64-v4")), target_from_name("x86-64-v4")
    )
    assert "zmm" in text and "{%k" in text and "callq" not in text


@pytest.mark.parametrize("name", ["x86-64", "x86-64-v3", "x86-64-v4", "aarch64"])
@pytest.mark.parametrize("op", ["exp", "log", "tanh", "erf", "sigmoid", "sqrt", "rsqrt"])
def test_hot_functions_call_no_library(name, op):
    target = target_from_name(name)
    for dtype in ("float32", "float64", "bfloat16"):
        text = assembly(emit_kernel(elementwise(op, dtype), target), target)
        assert not re.search(r"^\s+(callq|bl)\s", text, re.M), f"{op} of {dtype} on {name}"


def test_maximum_with_a_constant_is_one_instruction():
    n, i, v = Symbol("n"), Symbol("i"), Symbol("v")
    x, y = Buffer("x", (n,), "float32"), Buffer("y", (n,), "float32")
    body = loop("v", 8, store(y, (i * 8 + v,), Binary("max", x[i * 8 + v], Const(0.0, "float32"))), "vector")
    target = target_from_name("x86-64-v3")
    text = assembly(
        emit_kernel(Kernel("relu", (x,), (y,), (), ("n",), loop("i", n // 8, body)), target), target
    )
    assert text.count("vmaxps") == 1 and "vcmp" not in text and "vblend" not in text


def test_objects_for_another_processor():
    target = target_from_name("aarch64")
    (data,) = compile_objects([("exp", emit_kernel(elementwise("exp"), target))], target)
    assert data[:4] == b"\x7fELF" and data[18] == 0xB7  # e_machine: AArch64


@pytest.mark.skipif(
    not shutil.which("qemu-aarch64") or not shutil.which("aarch64-linux-gnu-gcc"),
    reason="needs qemu-aarch64 and a cross compiler",
)
def test_aarch64_code_runs_under_emulation(tmp_path):
    import subprocess

    target = target_from_name("aarch64")
    ir = emit_kernel(elementwise("exp"), target, "kernel")
    (tmp_path / "k.o").write_bytes(native.emit(ir, target))
    (tmp_path / "m.c").write_text(
        "#include <stdio.h>\n#include <math.h>\nvoid kernel(void*, void**, long*);\n"
        "int main(void){float x[37],y[37];void*b[2]={x,y};long n=37;double e=0;"
        "for(int i=0;i<37;i++)x[i]=i*0.3f-5;"
        "kernel(0,b,&n);for(int i=0;i<37;i++)e=fmax(e,fabs(y[i]/exp(x[i])-1));return e>3e-7;}\n"
    )
    subprocess.run(
        ["aarch64-linux-gnu-gcc", "-static", "-o", "m", "m.c", "k.o", "-lm"], cwd=tmp_path, check=True
    )
    subprocess.run(["qemu-aarch64", "./m"], cwd=tmp_path, check=True)


def test_unknown_names_are_told():
    with pytest.raises(UnsupportedError, match="CODE-004"):
        target_from_name("z80")
    with pytest.raises(CodegenError, match="CODE-003"):
        native.emit("define void @f() { ret i32 0 }", host_target(1))


def test_the_way_without_private_entry_points_gives_the_same(monkeypatch):
    target = host_target(1)
    ir = emit_kernel(gemm(6, 16), target)
    direct = native.emit(ir, target)
    monkeypatch.setattr(native, "_library", lambda: None)
    assert native.emit(ir, target) == direct

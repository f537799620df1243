"""Linking, and compiling from several threads and through the cache."""

from __future__ import annotations

import ctypes

import pytest

from intarsia.codegen.llvm import native
from intarsia.codegen.llvm.host import host_target
from intarsia.codegen.llvm.jit import Library, compile_objects
from intarsia.support.errors import CodegenError


def answer(n: int) -> str:
    return f"define i32 @answer{n}() {{\n  ret i32 {n}\n}}\n"


def test_many_modules_compile_in_parallel_and_link_together(monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    seen: list[str] = []
    irs = [(f"m{n % 9}", answer(n % 9)) for n in range(18)]
    objects = compile_objects(irs, host_target(), progress=seen.append)
    assert objects[:9] == objects[9:] and sorted(seen) == sorted({name for name, _ in irs})
    with Library(objects[:9], [f"answer{n}" for n in range(9)]) as library:
        for n in range(9):
            assert ctypes.CFUNCTYPE(ctypes.c_int)(library.address(f"answer{n}"))() == n


def test_a_library_finds_the_c_library_and_imports():
    ir = """
declare double @atan2(double, double)
declare i32 @here(i32)
define double @f(double %x) {
  %y = call double @atan2(double %x, double 1.0)
  %n = call i32 @here(i32 4)
  %d = sitofp i32 %n to double
  %s = fadd double %y, %d
  ret double %s
}
"""
    here = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)
    objects = compile_objects([("f", ir)], host_target(1))
    library = Library(objects, ["f"], {"here": ctypes.cast(here, ctypes.c_void_p).value})
    assert (
        abs(
            ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("f"))(1.0)
            - (0.785398163397448 + 5)
        )
        < 1e-12
    )
    library.close()
    with pytest.raises(ValueError, match="closed"):
        library.address("f")


def test_a_missing_symbol_is_an_error():
    objects = compile_objects(
        [
            (
                "f",
                "declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}\n",
            )
        ],
        host_target(1),
    )
    with pytest.raises(CodegenError, match="CODE-005"):
        Library(objects, ["f"])


def test_what_was_compiled_once_comes_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("INTARSIA_CACHE", raising=False)
    calls: list[str] = []
    emit = native.emit
    monkeypatch.setattr(native, "emit", lambda ir, target: calls.append(ir) or emit(ir, target))
    first = compile_objects([("a", answer(1)), ("b", answer(2))], host_target())
    assert compile_objects([("a", answer(1)), ("b", answer(2))], host_target()) == first
    assert len(calls) == 2
    monkeypatch.setenv("INTARSIA_CACHE", "0")
    compile_objects([("a", answer(1))], host_target())
    assert len(calls) == 3

"""Python callables made of machine code: arguments through the buffer protocol, one crossing, no ctypes on
the way.

    call(context, array, …)   the results, or what `intarsia_run` returns; -1 if an argument does not fit
    wrap(context)             the results of a run that was called otherwise

The functions have CPython's METH_FASTCALL signature and use its stable ABI (3.11: PyObject_GetBuffer and
kin). Each argument must export a dense, aligned buffer of the input's rank and element type; anything else is
left to the slower path, which converts it or says what is wrong. The global lock is released while the model
runs. Results are a tuple of NumPy arrays over the native blocks (through NumPy's C API, the table that every
extension uses); an array's base is a capsule that frees the block. Its destructor lives in a library of its
own that stays loaded, so that results may outlive the model.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from intarsia.codegen.llvm.host import host_target
from intarsia.codegen.llvm.jit import Library, compile_objects
from intarsia.kernel.target import ITEMSIZE
from intarsia.vm.isa import Function
from intarsia.vm.support_ir import GONE, NUMPY, RESULTS, STACK_BYTES, TENSOR_WORDS, TYPES

CALL, WRAP = "intarsia_fastcall", "intarsia_wrap"
_FASTCALL = 0x80
_VIEW = 96  # bytes of a Py_buffer, and some
_DENSE = 0x20 | 0x10 | 0x08 | 0x04  # PyBUF_C_CONTIGUOUS | PyBUF_FORMAT
_FORMATS = {
    "bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I",
    "float16": "e",     "float32": "f", "float64": "d", "int64": "lq", "uint64": "LQ",
}  # fmt: skip

_DECLARATIONS = """
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare void @PyErr_Clear()
declare ptr @PyLong_FromLong(i64)
declare ptr @PyLong_AsVoidPtr(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyCapsule_New(ptr, ptr, ptr)
declare void @Py_DecRef(ptr)
"""
_GONE = """
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare void @free(ptr)

define void @intarsia_gone(ptr %capsule) {
  %b = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %rp = getelementptr i64, ptr %b, i64 2
  %r = atomicrmw sub ptr %rp, i64 1 acq_rel
  %dead = icmp eq i64 %r, 1
  br i1 %dead, label %free, label %done
free:
  call void @free(ptr %b)
  br label %done
done:
  ret void
}
"""
_ARRAY_TYPE, _ARRAY_NEW, _SET_BASE = 2, 93, 282  # places in NumPy's table of functions
_CARRAY = 0x1 | 0x100 | 0x400  # dense, aligned, writeable


def emit_trampoline(entry: Function) -> str:
    """The module with the callable for a program's entry function."""
    n = len(entry.params)
    out = [
        _DECLARATIONS,
        "declare i32 @intarsia_run(ptr, ptr, ptr, i64)",
        _wrap(entry),
        f"define ptr @{CALL}(ptr %self, ptr %args, i64 %count) {{",
        f"  %views = alloca [{max(n, 1) * _VIEW} x i8], align 16",
        f"  %words = alloca [{max(n, 1) * TENSOR_WORDS} x i64], align 16",
        f"  %wrong = icmp ne i64 %count, {n + 1}",
        "  br i1 %wrong, label %undo0, label %get0",
    ]
    for i, spec in enumerate(entry.params):
        out += _argument(i, spec.dtype, spec.rank)
    out += [
        f"get{n}:",
        "  %first = load ptr, ptr %args",
        "  %context = call ptr @PyLong_AsVoidPtr(ptr %first)",
        f"  %resultsp = getelementptr i64, ptr %context, i64 {RESULTS}",
        "  %results = load ptr, ptr %resultsp",
        f"  %stackp = getelementptr i64, ptr %context, i64 {STACK_BYTES}",
        "  %stack = load i64, ptr %stackp",
        "  %thread = call ptr @PyEval_SaveThread()",
        "  %code = call i32 @intarsia_run(ptr %context, ptr %words, ptr %results, i64 %stack)",
        "  call void @PyEval_RestoreThread(ptr %thread)",
    ]
    out += [f"  call void @PyBuffer_Release(ptr %view{i})" for i in range(n)]
    out += [
        "  %failed = icmp ne i32 %code, 0",
        "  br i1 %failed, label %failure, label %success",
        "failure:",
        "  %code64 = sext i32 %code to i64",
        "  %number = call ptr @PyLong_FromLong(i64 %code64)",
        "  ret ptr %number",
        "success:",
        "  %tuple = call ptr @intarsia_results(ptr %context)",
        "  ret ptr %tuple",
    ]
    for i in range(n, 0, -1):
        out += [f"undo{i}:", f"  call void @PyBuffer_Release(ptr %view{i - 1})", f"  br label %undo{i - 1}"]
    out += ["undo0:", "  %refused = call ptr @PyLong_FromLong(i64 -1)", "  ret ptr %refused", "}"]
    return "\n".join(out) + "\n"


def _wrap(entry: Function) -> str:
    """The functions that make a tuple of arrays from a context's result words."""
    m = len(entry.results)
    out = [
        "define internal ptr @intarsia_results(ptr %context) {",
        *_word("words", RESULTS),
        *_word("types", TYPES),
        *_word("numpy", NUMPY),
        *_word("gone", GONE),
    ]
    for name, place in (("kind", _ARRAY_TYPE), ("new", _ARRAY_NEW), ("base", _SET_BASE)):
        out += [
            f"  %{name}p = getelementptr ptr, ptr %numpy, i64 {place}",
            f"  %{name} = load ptr, ptr %{name}p",
        ]
    out += [f"  %tuple = call ptr @PyTuple_New(i64 {m})", "  %none = icmp eq ptr %tuple, null"]
    out += ["  br i1 %none, label %fail, label %make0"]
    for i, spec in enumerate(entry.results):
        base = i * TENSOR_WORDS
        out += [
            f"make{i}:",
            f"  %datap{i} = getelementptr i64, ptr %words, i64 {base}",
            f"  %ownerp{i} = getelementptr i64, ptr %words, i64 {base + 1}",
            f"  %dims{i} = getelementptr i64, ptr %words, i64 {base + 2}",
            f"  %data{i} = load ptr, ptr %datap{i}",
            f"  %owner{i} = load ptr, ptr %ownerp{i}",
            f"  %typep{i} = getelementptr i32, ptr %types, i64 {i}",
            f"  %type{i} = load i32, ptr %typep{i}",
            f"  %array{i} = call ptr %new(ptr %kind, i32 {spec.rank}, ptr %dims{i}, i32 %type{i}, ptr null, "
            f"ptr %data{i}, "
            f"i32 0, i32 {_CARRAY}, ptr null)",
            f"  %noarray{i} = icmp eq ptr %array{i}, null",
            f"  br i1 %noarray{i}, label %drop, label %own{i}",
            f"own{i}:",
            f"  %capsule{i} = call ptr @PyCapsule_New(ptr %owner{i}, ptr null, ptr %gone)",
            f"  %based{i} = call i32 %base(ptr %array{i}, ptr %capsule{i})",
            f"  %put{i} = call i32 @PyTuple_SetItem(ptr %tuple, i64 {i}, ptr %array{i})",
            f"  br label %make{i + 1}",
        ]
    out += [f"make{m}:", "  ret ptr %tuple"]
    if m:
        out += ["drop:", "  call void @Py_DecRef(ptr %tuple)", "  br label %fail"]
    out += [
        "fail:",  # the exception is set
        "  ret ptr null",
        "}",
        "",
        f"define ptr @{WRAP}(ptr %self, ptr %args, i64 %count) {{",
        "  %first = load ptr, ptr %args",
        "  %context = call ptr @PyLong_AsVoidPtr(ptr %first)",
        "  %tuple = call ptr @intarsia_results(ptr %context)",
        "  ret ptr %tuple",
        "}",
    ]
    return "\n".join(out) + "\n"


def _word(name: str, word: int) -> list[str]:
    return [
        f"  %{name}.p = getelementptr i64, ptr %context, i64 {word}",
        f"  %{name} = load ptr, ptr %{name}.p",
    ]


def _argument(i: int, dtype: str, rank: int) -> list[str]:
    """Buffer i into words i, or back through `undo`. Fields of Py_buffer: buf 0, ndim 36, format 40, shape
    48.
    """
    base = i * TENSOR_WORDS
    out = [
        f"get{i}:",
        f"  %argp{i} = getelementptr ptr, ptr %args, i64 {i + 1}",
        f"  %arg{i} = load ptr, ptr %argp{i}",
        f"  %view{i} = getelementptr i8, ptr %views, i64 {i * _VIEW}",
        f"  %got{i} = call i32 @PyObject_GetBuffer(ptr %arg{i}, ptr %view{i}, i32 {_DENSE})",
        f"  %bad{i} = icmp ne i32 %got{i}, 0",
        f"  br i1 %bad{i}, label %clear{i}, label %look{i}",
        f"clear{i}:",
        "  call void @PyErr_Clear()",
        f"  br label %undo{i}",
        f"look{i}:",
        f"  %data{i} = load ptr, ptr %view{i}",
        f"  %ndimp{i} = getelementptr i8, ptr %view{i}, i64 36",
        f"  %ndim{i} = load i32, ptr %ndimp{i}",
        f"  %rank{i} = icmp eq i32 %ndim{i}, {rank}",
        f"  %formatp{i} = getelementptr i8, ptr %view{i}, i64 40",
        f"  %format{i} = load ptr, ptr %formatp{i}",
        f"  %letter{i} = load i8, ptr %format{i}",
        f"  %endp{i} = getelementptr i8, ptr %format{i}, i64 1",
        f"  %endc{i} = load i8, ptr %endp{i}",  # a format has at least its letter and the zero byte
        f"  %end{i} = icmp eq i8 %endc{i}, 0",
        f"  %bits{i} = ptrtoint ptr %data{i} to i64",
        f"  %low{i} = and i64 %bits{i}, {ITEMSIZE[dtype] - 1}",
        f"  %even{i} = icmp eq i64 %low{i}, 0",
    ]
    letters = [f"%is{i}.{k}" for k in range(len(_FORMATS.get(dtype, "")))]
    for name, letter in zip(letters, _FORMATS.get(dtype, "")):
        out.append(f"  {name} = icmp eq i8 %letter{i}, {ord(letter)}")
    known = "false" if not letters else letters[0]
    if len(letters) == 2:
        out.append(f"  %either{i} = or i1 {letters[0]}, {letters[1]}")
        known = f"%either{i}"
    out += [
        f"  %f1{i} = and i1 {known}, %end{i}",
        f"  %f2{i} = and i1 %rank{i}, %even{i}",
        f"  %fits{i} = and i1 %f1{i}, %f2{i}",
        f"  br i1 %fits{i}, label %fill{i}, label %undo{i + 1}",
        f"fill{i}:",
        f"  %word{i} = getelementptr i64, ptr %words, i64 {base}",
        f"  store ptr %data{i}, ptr %word{i}",
        f"  %owner{i} = getelementptr i64, ptr %words, i64 {base + 1}",
        f"  store ptr null, ptr %owner{i}",
    ]
    if rank:
        out += [
            f"  %shapep{i} = getelementptr i8, ptr %view{i}, i64 48",
            f"  %shape{i} = load ptr, ptr %shapep{i}",
        ]
    for axis in range(rank):
        out += [
            f"  %from{i}.{axis} = getelementptr i64, ptr %shape{i}, i64 {axis}",
            f"  %size{i}.{axis} = load i64, ptr %from{i}.{axis}",
            f"  %to{i}.{axis} = getelementptr i64, ptr %words, i64 {base + 2 + axis}",
            f"  store i64 %size{i}.{axis}, ptr %to{i}.{axis}",
        ]
    return [*out, f"  br label %get{i + 1}"]


class _MethodDef(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    ]


def callable_at(address: int) -> tuple[Callable[..., int], Any]:
    """The Python function over machine code at an address, and what must live as long as it does."""
    definition = _MethodDef(b"intarsia", address, _FASTCALL, None)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = (
        ctypes.py_object,
        [ctypes.POINTER(_MethodDef), ctypes.c_void_p, ctypes.c_void_p],
    )
    return make(ctypes.byref(definition), None, None), definition


@functools.cache
def destructor() -> int:
    """Address of the function that frees a result's block when its capsule goes."""
    return _destructors().address("intarsia_gone")


@functools.cache
def _destructors() -> Library:
    return Library(compile_objects([("gone", _GONE)], host_target()), ["intarsia_gone"])


@functools.cache
def numpy_table() -> int:
    """Address of NumPy's table of C functions."""
    module: Any = getattr(np, "_core", None) or np.core  # NumPy 1 has the old name
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return pointer(module._multiarray_umath._ARRAY_API, None)

"""From a program to object files: kernels, glue, thread pool. Equal kernels are one, named by content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from intarsia.codegen.llvm.emit import emit_kernel, symbol_of
from intarsia.codegen.llvm.jit import compile_objects
from intarsia.codegen.llvm.pool import pool_ir
from intarsia.kernel.target import Target
from intarsia.vm.isa import KernelRef, Program
from intarsia.vm.native import emit_program
from intarsia.vm.trampoline import emit_trampoline


def module_texts(program: Program, target: Target, refs: list[KernelRef]) -> Iterator[tuple[str, str]]:
    """(name, LLVM IR text) of every module of a program as it is made: each kernel once, then what runs them:
    the bytecode ('program'), the entry from Python ('call'), the thread pool ('pool').

    refs: is filled with the program's kernels under their symbols, which are made from their contents.
    """
    renamed: dict[str, str] = {}  # the symbol that codegen makes from the contents -> with a name for people
    for ref in program.kernels:
        assert ref.kernel is not None
        text = emit_kernel(ref.kernel, target)
        symbol = symbol_of(text)
        if symbol not in renamed:
            renamed[symbol] = f"{_identifier(ref.kernel.name)}_{symbol.removeprefix('k_')[:12]}"
            yield renamed[symbol], text.replace(symbol, renamed[symbol])
        refs.append(replace(ref, symbol=renamed[symbol]))
    program = replace(program, kernels=tuple(refs))
    yield "program", emit_program(program)
    yield "call", emit_trampoline(program.functions[0])
    yield "pool", pool_ir(target.triple)


def build(
    program: Program, target: Target, *, progress: Callable[[str], None] | None = None
) -> tuple[Program, list[bytes]]:
    """The program with its final symbols, and everything it runs as object files for `target`.

    LLVM works on the first kernels, in threads, while Python still writes the others.
    progress: told the name of each object when it is ready, from any thread.
    """
    refs: list[KernelRef] = []
    objects = compile_objects(module_texts(program, target, refs), target, progress=progress)
    return replace(program, kernels=tuple(refs)), objects


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)

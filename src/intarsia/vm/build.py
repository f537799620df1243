"""From a program to object files: kernels, glue, thread pool. Equal kernels are one object, named by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from intarsia.codegen.llvm.emit import emit_kernel, symbol_of
from intarsia.codegen.llvm.jit import compile_objects
from intarsia.codegen.llvm.pool import pool_ir
from intarsia.kernel.target import Target
from intarsia.vm.isa import KernelRef, Program
from intarsia.vm.native import emit_program
from intarsia.vm.trampoline import emit_trampoline


def kernel_texts(program: Program, target: Target) -> tuple[Program, dict[str, str]]:
    """The program with each kernel's symbol made from its contents, and the LLVM IR text by symbol."""
    refs: list[KernelRef] = []
    texts: dict[str, str] = {}
    renamed: dict[str, str] = {}  # the symbol that codegen makes from the contents -> with a name for people
    for ref in program.kernels:
        assert ref.kernel is not None
        text = emit_kernel(ref.kernel, target)
        symbol = symbol_of(text)
        if symbol not in renamed:
            renamed[symbol] = f"{_identifier(ref.kernel.name)}_{symbol.removeprefix('k_')[:12]}"
            texts[renamed[symbol]] = text.replace(symbol, renamed[symbol])
        refs.append(replace(ref, symbol=renamed[symbol]))
    return replace(program, kernels=tuple(refs)), texts


def module_texts(program: Program, target: Target) -> tuple[Program, dict[str, str]]:
    """`kernel_texts`, and the modules that run them: the bytecode ('program'), the entry from Python
    ('call'), the thread pool ('pool').
    """
    program, texts = kernel_texts(program, target)
    texts |= {
        "program": emit_program(program),
        "call": emit_trampoline(program.functions[0]),
        "pool": pool_ir(target.triple),
    }
    return program, texts


def build(
    program: Program, target: Target, *, progress: Callable[[str], None] | None = None
) -> tuple[Program, list[bytes]]:
    """The program with its final symbols, and everything it runs as object files for `target`.

    progress: told the name of each object when it is ready, from any thread.
    """
    program, texts = module_texts(program, target)
    return program, compile_objects(list(texts.items()), target, progress=progress)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)

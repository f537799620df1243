"""From a program to object files: kernels, glue, thread pool. Equal kernels are one object, named by content."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

from intarsia.codegen.llvm import compile_objects, emit_kernel, pool_ir
from intarsia.kernel.target import Target
from intarsia.vm.isa import KernelRef, Program
from intarsia.vm.native import emit_program

_PLACEHOLDER = "K_E_R_N_E_L"


def kernel_texts(program: Program, target: Target) -> tuple[Program, dict[str, str]]:
    """The program with each kernel's symbol made from its contents, and the LLVM IR text by symbol."""
    refs: list[KernelRef] = []
    texts: dict[str, str] = {}
    symbol_of: dict[str, str] = {}
    for ref in program.kernels:
        assert ref.kernel is not None
        text = emit_kernel(ref.kernel, target, _PLACEHOLDER)
        if text not in symbol_of:
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            symbol_of[text] = f"{_identifier(ref.kernel.name)}_{digest}"
            texts[symbol_of[text]] = text.replace(_PLACEHOLDER, symbol_of[text])
        refs.append(replace(ref, symbol=symbol_of[text]))
    return replace(program, kernels=tuple(refs)), texts


def build(program: Program, target: Target) -> tuple[Program, list[bytes]]:
    """The program with its final symbols, and everything it runs as object files for `target`."""
    program, texts = kernel_texts(program, target)
    modules: Sequence[tuple[str, str]] = [*texts.items(), ("program", emit_program(program)), ("pool", pool_ir())]
    return program, compile_objects(modules, target)


def _identifier(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)

"""Runs an opaque computation's loops through the loop language's evaluator, which checks every access."""

from __future__ import annotations

import numpy as np

from intarsia.dim import Dim
from intarsia.kernel.compute import Opaque
from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.kernel.expr import Buffer
from intarsia.kernel.stmt import Kernel
from intarsia.kernel.target import Target

NARROW = Target()
AVX2 = Target(vector_bits=256, registers=16, fma=True, cores=2)


def opaque_kernel(producer: Opaque, target: Target) -> Kernel:
    """The producer as a kernel of its own."""
    outputs = [Buffer(f"out{i}", s, t) for i, (s, t) in enumerate(producer.outputs)]
    scratch = [Buffer(f"work{i}", s, t) for i, (s, t) in enumerate(producer.scratch)]
    body = producer.build(target, producer.inputs, outputs, scratch)
    dims: list[Dim] = [d for b in (*producer.inputs, *outputs, *scratch) for d in b.shape]
    symbols = tuple(sorted({s for d in dims for s in d.symbols()}))
    return Kernel(producer.name, producer.inputs, tuple(outputs), tuple(scratch), symbols, body)


def run_opaque(producer: Opaque, arrays, symbols, target: Target = AVX2) -> tuple[np.ndarray, ...]:
    return tuple(evaluate_kernel(opaque_kernel(producer, target), arrays, symbols, backwards=True))

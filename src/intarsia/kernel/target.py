"""What a strategy may know about a processor. A new CPU is a new description."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A processor.

    triple, cpu, features: as LLVM names them (features: '+avx2,+fma,…')
    vector_bits:           width of a SIMD register; registers: how many there are
    fma:                   whether a fused multiply-add instruction exists
    l1, l2, l3:            cache sizes in bytes per core (l3: shared)
    cores:                 hardware threads that may be used
    """

    triple: str = "x86_64-unknown-linux-gnu"
    cpu: str = "x86-64"
    features: str = ""
    vector_bits: int = 128
    registers: int = 16
    fma: bool = False
    l1: int = 32 << 10
    l2: int = 512 << 10
    l3: int = 8 << 20
    cores: int = 1

    def lanes(self, dtype: str) -> int:
        """Elements of dtype in one SIMD register."""
        return self.vector_bits // (8 * ITEMSIZE[dtype])


ITEMSIZE = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip

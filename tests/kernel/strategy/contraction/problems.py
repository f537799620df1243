"""Contractions to lower, and how their kernels are checked against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from intarsia.codegen.llvm.host import host_target
from intarsia.dim import Symbol, as_dim
from intarsia.ir.types import TensorType
from intarsia.kernel.compute import compute, placeholder
from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.kernel.expr import Binary, Buffer, Const
from intarsia.kernel.strategy import Lowered, Strategy
from intarsia.kernel.strategy.region import region_of
from intarsia.kernel.target import Target
from intarsia.kernel.verify import verify
from intarsia.op import entry
from tests.codegen import harness

AVX2 = Target(vector_bits=256, registers=16, fma=True, cores=2, l2=1 << 15)  # little cache: more blocks
SSE2 = Target(cores=1)
AVX512 = Target(vector_bits=512, registers=32, fma=True, cores=3)

rng = np.random.default_rng(7)


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray:
    if dtype.startswith("int"):
        return rng.integers(-9, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


class Problem:
    """An operator's call on arrays. symbolic: (argument, axis) pairs whose size is a symbol; constants:
    argument numbers.
    """

    def __init__(
        self,
        name: str,
        arrays: Sequence[np.ndarray],
        symbolic: Mapping[tuple[int, int], str] | None = None,
        constants: Sequence[int] = (),
        **attrs,
    ):
        self.symbols: dict[str, int] = {}
        self.inputs: list[Buffer] = []
        types = []
        for i, a in enumerate(arrays):
            dims = []
            for k, n in enumerate(a.shape):
                symbol = (symbolic or {}).get((i, k))
                if symbol is not None:
                    self.symbols[symbol] = n
                dims.append(as_dim(n) if symbol is None else Symbol(symbol))
            types.append(entry.Arg(TensorType(tuple(dims), a.dtype.name)))
            self.inputs.append(placeholder(f"a{i}", dims, a.dtype.name))
        op = entry.get(name)
        site = entry.Site(op, types, attrs)
        site.out = (op.rule(site),)
        self.arrays, self.constants = list(arrays), constants
        self.out = op.compute(site, list(self.inputs))
        self.expected = np.asarray(op.reference(*arrays, **site.attrs))
        self.outputs = [self.out]
        self.wanted = [self.expected]

    def then(self, element: Callable, result: Callable) -> Problem:
        """With an elementwise function of the result instead: as an expression, and for NumPy."""
        out = self.outputs[-1]
        self.outputs = [compute(out.shape, lambda *i: element(out[i], *i), name="epilogue")]
        self.wanted = [result(self.wanted[-1])]
        return self

    def with_input(self, array: np.ndarray, shape=None) -> Buffer:
        """One more input."""
        self.inputs.append(placeholder(f"a{len(self.inputs)}", shape or array.shape, array.dtype.name))
        self.arrays.append(array)
        return self.inputs[-1]

    def lowered(self, strategy: Strategy, target: Target) -> Lowered | None:
        known = {self.inputs[i]: self.arrays[i] for i in self.constants}
        return strategy(region_of("k", self.inputs, self.outputs, known), target)

    def check(self, strategy: Strategy, target: Target = AVX2) -> None:
        """The kernel, evaluated, gives what NumPy gives."""
        lowered = self.lowered(strategy, target)
        assert lowered is not None
        verify(lowered.kernel)
        self._compare(evaluate_kernel(lowered.kernel, self._packed(lowered), self.symbols, backwards=True))

    def check_native(self, strategy: Strategy, target: Target | None = None) -> None:
        """The kernel's machine code gives what NumPy gives, and stays inside its buffers."""
        target = target or host_target(2)
        lowered = self.lowered(strategy, target)
        assert lowered is not None
        self._compare(harness.run(lowered.kernel, self._packed(lowered), self.symbols, target))

    def _packed(self, lowered: Lowered) -> list[np.ndarray]:
        return [lowered.packs[i].apply(a) if i in lowered.packs else a for i, a in enumerate(self.arrays)]

    def _compare(self, results: Sequence[np.ndarray]) -> None:
        for got, wanted in zip(results, self.wanted, strict=True):
            assert got.shape == wanted.shape and got.dtype == wanted.dtype
            if wanted.dtype.kind == "f":
                np.testing.assert_allclose(
                    got, wanted, rtol=1e-4, atol=1e-4 * max(1.0, float(np.abs(wanted).max(initial=0)))
                )
            else:
                np.testing.assert_array_equal(got, wanted)


def relu(x, *_):
    return Binary("max", x, Const(0.0, x.dtype))


__all__ = ["AVX2", "AVX512", "SSE2", "Problem", "numbers", "relu"]

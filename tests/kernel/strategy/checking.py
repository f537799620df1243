"""Lower a computation, run the kernel in the checked evaluator (and as machine code), compare with NumPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from intarsia.kernel.evaluate import evaluate_kernel
from intarsia.kernel.expr import Buffer
from intarsia.kernel.strategy import Lowered, lower
from intarsia.kernel.strategy.fold import evaluate
from intarsia.kernel.strategy.region import producers
from intarsia.kernel.target import Target

SCALAR = Target()
WIDE = Target(vector_bits=256, fma=True, cores=2, features="+avx2,+fma,+f16c", cpu="x86-64-v3")


def expected(
    inputs: Sequence[Buffer], outputs: Sequence[Buffer], arrays, symbols: Mapping[str, int]
) -> list[np.ndarray]:
    """The outputs by the vectorised stage evaluator."""
    values = {id(b): a for b, a in zip(inputs, arrays, strict=True)}
    for b in producers(outputs):
        if id(b) not in values:
            values[id(b)] = evaluate(b, values, symbols)
    return [values[id(b)] for b in outputs]


def arguments(lowered: Lowered, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the kernel gets: folded constants added, then packed."""
    given = enumerate([*arrays, *lowered.extra_constants])
    return [lowered.packs[i].apply(a) if i in lowered.packs else a for i, a in given]


def check(
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    arrays: Sequence[np.ndarray],
    symbols: Mapping[str, int] | None = None,
    *,
    want: Sequence[np.ndarray] | None = None,
    constants: Sequence[int] = (),
    targets: Sequence[Target] = (SCALAR, WIDE),
    rtol: float = 2e-6,
    atol: float = 1e-6,
    native: bool = True,
) -> Lowered:
    """The kernel for each target gives `want` (default: what the stages mean). Returns the last one."""
    symbols = dict(symbols or {})
    want = expected(inputs, outputs, arrays, symbols) if want is None else want
    lowered = None
    for target in targets:
        lowered = lower("k", inputs, outputs, target, constants={i: arrays[i] for i in constants})
        given = arguments(lowered, arrays)
        for backwards in (False, True):
            got = evaluate_kernel(lowered.kernel, given, symbols, backwards=backwards)
            compare(got, want, rtol, atol)
        if native and target is WIDE:
            from tests.codegen.harness import native_target, run

            compare(
                run(lowered.kernel, given, symbols, native_target(cores=2)),
                want,
                max(rtol, 2e-5),
                max(atol, 2e-5),
            )
    assert lowered is not None
    return lowered


def compare(got: Sequence[np.ndarray], want: Sequence[np.ndarray], rtol: float, atol: float) -> None:
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape, (g.dtype, w.dtype, g.shape, w.shape)
        if g.dtype.kind in "iub":
            np.testing.assert_array_equal(g, w)
        else:
            np.testing.assert_allclose(g.astype(np.float64), w.astype(np.float64), rtol=rtol, atol=atol)


def randoms(seed: int, *shapes: tuple[int, ...], dtype: str = "float32") -> list[np.ndarray]:
    """Random arrays."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return [rng.random(s) < 0.5 for s in shapes]
    if "int" in dtype:
        low = 0 if dtype.startswith("u") else -100
        return [rng.integers(low, 100, s).astype(dtype) for s in shapes]
    return [rng.standard_normal(s).astype(dtype) for s in shapes]

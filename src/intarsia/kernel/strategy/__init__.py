"""Who is scheduled how: from a computation to a kernel.

`lower` brings the computation into a region, folds what depends on constants only, and asks each strategy in
turn; the last one takes any region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from intarsia.kernel.expr import Buffer
from intarsia.kernel.stmt import Kernel
from intarsia.kernel.strategy.fold import fold
from intarsia.kernel.strategy.region import Region, region_of
from intarsia.kernel.strategy.rowwise import rowwise
from intarsia.kernel.strategy.staged import stages
from intarsia.kernel.target import Target

__all__ = ["STRATEGIES", "Lowered", "Pack", "Region", "Strategy", "lower"]


@dataclass(frozen=True, slots=True)
class Pack:
    """A constant input that the kernel expects rearranged by `apply`. key: equal for equal rearrangements."""

    key: str
    apply: Callable[[np.ndarray], np.ndarray] = field(compare=False)


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel and what its constant inputs need.

    packs:           input position -> rearrangement; kernel.inputs has the rearranged shape and dtype
    extra_constants: contents of the kernel's last inputs, which were computed at compile time
    """

    kernel: Kernel
    packs: Mapping[int, Pack] = field(default_factory=dict)
    extra_constants: tuple[np.ndarray, ...] = ()


Strategy = Callable[[Region, Target], Lowered | None]

STRATEGIES: list[Strategy] = []


def lower(
    name: str,
    inputs: Sequence[Buffer],
    outputs: Sequence[Buffer],
    target: Target,
    *,
    constants: Mapping[int, np.ndarray] = {},  # noqa: B006 - never changed
) -> Lowered:
    """The kernel that computes `outputs` (buffers whose producers form the computation) from `inputs`
    (placeholders).

    constants: contents of inputs that are known at compile time, by position.
    """
    known = {inputs[i]: a for i, a in constants.items()}
    extra, outputs = fold(inputs, outputs, known)
    region = region_of(name, [*inputs, *extra], outputs, {**known, **extra})
    lowered = next((found for s in STRATEGIES if (found := s(region, target)) is not None), None)
    if lowered is None:
        lowered = Lowered(stages(region, target))
    return replace(lowered, extra_constants=tuple(extra.values()))


def _rows(region: Region, target: Target) -> Lowered | None:
    found = rowwise(region, target)
    return None if found is None else Lowered(found)


def _register() -> None:
    """The strategies in the order in which they are asked. Contractions are written in terms of the above."""
    from intarsia.kernel.strategy.composed import composed
    from intarsia.kernel.strategy.contraction import conv, depthwise, matmul
    from intarsia.kernel.strategy.contraction.conv_transpose import conv_transpose
    from intarsia.kernel.strategy.pool import pool

    STRATEGIES.extend([depthwise, conv, pool, conv_transpose, matmul, _rows, composed])


_register()

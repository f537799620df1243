"""Facts about convolutions and pools that a strategy would otherwise have to recover from index expressions.

An operator attaches one of these to its reduce stage as a hint: `{'conv': ConvShape(…)}`,
`{'pool': PoolShape(…)}`, `{'conv_transpose': ConvTransposeShape(…)}`. The stage is complete without it.

Spatial tuples (kernel, strides, padding, dilation) go from the outermost spatial dimension inwards. `layout`
is 'NCHW' (batch, channels, spatial…) or 'NHWC' (batch, spatial…, channels) for any number of spatial
dimensions; it holds for the data and the result alike. `data` and `weight` are the operator's own operands,
before padding.
"""

from __future__ import annotations

from dataclasses import dataclass

from intarsia.dim import Dim
from intarsia.kernel.expr import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class ConvShape:
    """out[n, o, p…] = sum over c, k… of data[n, group·IC/G + c, q…] * weight[o, c, k…],
    where q = p·stride - begin + k·dilation.

    kernel:  window size per spatial dimension
    padding: (begin, end) per spatial dimension, all 0. Symbolic for 'same' padding of unknown sizes
    weight:  [OC, IC / groups, kernel…]
    """

    data: Buffer
    weight: Buffer
    groups: int
    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[Dim, Dim], ...]
    dilation: tuple[int, ...]
    layout: str

    @property
    def padded(self) -> bool:
        """Whether any element outside the data is read."""
        return any(b != 0 or e != 0 for b, e in self.padding)


@dataclass(frozen=True, slots=True, eq=False)
class ConvTransposeShape:
    """out[n, o, p…] = sum over all c, i…, k… with i·stride - begin + k·dilation = p of
    data[n, group·IC/G + c, i…] * weight[group·IC/G + c, o, k…].

    padding: (begin, end) cropped from the full result
    weight:  [IC, OC / groups, kernel…]
    """

    data: Buffer
    weight: Buffer
    groups: int
    kernel: tuple[Dim, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[Dim, Dim], ...]
    dilation: tuple[int, ...]
    layout: str


@dataclass(frozen=True, slots=True, eq=False)
class PoolShape:
    """A window reduction ('max', or 'sum' of an average) over the spatial dimensions; padding adds nothing.

    Windows may also stick out past `end` (ceil mode): bounds follow from the stage's shape.
    """

    data: Buffer
    kind: str
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[tuple[Dim, Dim], ...]
    dilation: tuple[int, ...]
    layout: str

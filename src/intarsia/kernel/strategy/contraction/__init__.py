"""Contractions: matrix products, convolutions and their kin as register tiles with fused epilogues."""

from intarsia.kernel.strategy.contraction.conv import conv
from intarsia.kernel.strategy.contraction.depthwise import depthwise
from intarsia.kernel.strategy.contraction.matmul import matmul

__all__ = ["conv", "depthwise", "matmul"]

"""Transposed convolutions whose windows do not overlap: every sum goes straight to its place in the result.

With kernel == stride, out[n, i·s + k, j·s + l, o] is one sum over the input channels: a matrix product whose
rows are the input's places and whose columns are the output channels, once for each element of the kernel.
"""

from __future__ import annotations

from intarsia.dim import Dim, Symbol, as_dim
from intarsia.kernel.compute import Stage, fresh
from intarsia.kernel.expr import Axis, Buffer, Reduce, substitute
from intarsia.kernel.library.conv import ConvTransposeShape
from intarsia.kernel.strategy import Lowered
from intarsia.kernel.strategy.contraction.form import Anchor, over_sum
from intarsia.kernel.strategy.contraction.matmul import matmul_form, plan
from intarsia.kernel.strategy.region import Region, producers
from intarsia.kernel.target import Target


def conv_transpose(region: Region, target: Target) -> Lowered | None:
    """The kernel of a channels-last transposed convolution without overlap or padding, and what follows."""
    found = [
        b
        for b in producers(region.outputs)
        if isinstance(b.producer, Stage) and "conv_transpose" in b.producer.hint
    ]
    if len(found) != 1:
        return None
    gathered = found[0]
    assert isinstance(gathered.producer, Stage)
    shape = gathered.producer.hint["conv_transpose"]
    if not isinstance(shape, ConvTransposeShape) or not _is_tiling(shape, gathered):
        return None
    anchor = _anchor(shape, gathered, region)
    form = matmul_form(anchor) if anchor else None
    return plan(form, region, target).lowered(region) if form else None


def _is_tiling(shape: ConvTransposeShape, result: Buffer) -> bool:
    """Whether the result is one block of kernel size for every place of the data, and nothing else."""
    sizes, places = result.shape[1:-1], shape.data.shape[1:-1]
    return (
        shape.layout == "NHWC"
        and shape.groups == 1
        and result.dtype == shape.data.dtype
        and all(k == s for k, s in zip(shape.kernel, shape.strides))
        and all(d == 1 for d in shape.dilation)
        and all(b == 0 for b, _ in shape.padding)
        and all(n == p * s for n, p, s in zip(sizes, places, shape.strides))
    )


def _anchor(shape: ConvTransposeShape, gathered: Buffer, region: Region) -> Anchor | None:
    """The sum over places of data and kernel, with the region's outputs at the places it goes to."""
    x, w, stage = shape.data, shape.weight, gathered.producer
    assert isinstance(stage, Stage)

    def axis(extent: Dim) -> Axis:
        return Axis(fresh("i"), extent)

    def at(a: Axis) -> Dim:
        return as_dim(0) if a.extent == 1 else Symbol(a.var)

    batch, places = axis(x.shape[0]), [axis(d) for d in x.shape[1:-1]]
    taps, channel, k = [axis(d) for d in shape.kernel], axis(w.shape[1]), Axis(fresh("k"), x.shape[-1])
    axes = (batch, *places, *taps, channel)
    product = x[(at(batch), *map(at, places), at(k))] * w[(at(k), at(channel), *map(at, taps))]
    made = Stage(tuple(a.var for a in axes), Reduce("sum", (k,), product))
    buffer = Buffer("products", tuple(a.extent for a in axes), gathered.dtype, producer=made)
    anchor = Anchor(buffer, made, tuple(a for a in axes if a.extent != 1), [])
    anchor.sums = Buffer("sum", (), buffer.dtype, "register")
    over = Anchor(
        gathered, stage, tuple(Axis(v, d) for v, d in zip(stage.axes, gathered.shape) if d != 1), []
    )
    over.sums = anchor.sums
    spatial = [at(p) * s + at(t) for p, s, t in zip(places, shape.strides, taps)]
    env = dict(zip(stage.axes, (at(batch), *spatial, at(channel))))
    for out in region.outputs:
        value = over_sum(over, out)
        if value is None:
            return None
        result, indices, e = value
        anchor.values.append((result, tuple(i.subst(env) for i in indices), substitute(e, env)))
    return anchor

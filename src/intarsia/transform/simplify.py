"""Algebra that needs no arithmetic at compile time.

copy(%x)                                         %x
transpose(transpose(%x, axes=(0, 2, 1)), …)      %x                       (transposes compose)
squeeze(expand_dims(reshape(%x, …)))             reshape(%x, dims(…))     (views compose)
add(%x, 0f), multiply(%x, 1f)                    %x
add(expand(%x, …), %y)                           add(%x, %y)              (the operator broadcasts by itself)
slice / pad / concatenate that change nothing    %x
power(%x, 2f)                                    multiply(%x, %x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from intarsia.dim import Dim, as_dim
from intarsia.ir import Call, Constant, Expr, IRModule, TensorType, call
from intarsia.transform.rewriting import Match, Rule, is_call, is_unit, rewrite_module, scalar

_VIEWS = ("reshape", "expand_dims", "squeeze", "flatten")
_BROADCASTING = (
    "add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "equal", "not_equal", "less",
    "less_equal", "greater", "greater_equal", "logical_and", "logical_or", "where",
)  # fmt: skip


def simplify(module: IRModule) -> IRModule:
    """Local algebraic rules, bottom-up, in every function."""
    return rewrite_module(module, _rules())


def _rules() -> dict[str, list[Rule]]:
    table: dict[str, list[Rule]] = {
        "copy": [lambda m: m.args[0]],
        "cast": [_same_type],
        "transpose": [_transpose],
        "expand": [_same_type],
        "tile": [_same_type],
        "slice": [_slice],
        "pad": [_pad],
        "concatenate": [lambda m: m.args[0] if len(m.args) == 1 else None],
        "power": [_power],
    }
    for name in _VIEWS:
        table[name] = [_view]
    for name in _BROADCASTING:
        table.setdefault(name, []).append(_drop_expand)
    for name, neutral in (("add", 0.0), ("subtract", 0.0), ("multiply", 1.0), ("divide", 1.0)):
        table[name].append(_neutral(neutral, commutes=name in ("add", "multiply")))
    return table


def _same_type(m: Match) -> Expr | None:
    return m.args[0] if m.site.args[0].type == m.out else None


def _pad(m: Match) -> Expr | None:
    pads = m.numbers(1)  # what one end gains, the other may lose
    return _same_type(m) if pads is not None and not any(pads) else None


def _slice(m: Match) -> Expr | None:
    steps = m.numbers(4) if m.site.has(4) else ()
    forward = steps is not None and all(s == 1 for s in steps)
    return _same_type(m) if forward else None


def _transpose(m: Match) -> Expr | None:
    axes = _axes(m.attrs["axes"], m.out.rank)
    x = m.args[0]
    if axes == tuple(range(len(axes))):
        return x
    if is_call(x, "transpose"):
        assert isinstance(x, Call)
        inner = _axes(x.attrs.get("axes"), m.out.rank)
        composed = tuple(inner[a] for a in axes)
        source = x.args[0]
        return (
            source
            if composed == tuple(range(len(axes)))
            else call("transpose", source, axes=composed, span=m.span)
        )
    moved = [a for a in axes if m.shape(0)[a] != 1]
    if moved == sorted(moved) and m.graph.writable(m.out.shape):  # only dimensions of size 1 change places
        return _reshape(x, m.out.shape, m)
    return None


def _axes(axes: object, rank: int) -> tuple[int, ...]:
    return tuple(reversed(range(rank))) if axes is None else tuple(int(a) % rank for a in axes)  # type: ignore[union-attr]


def _view(m: Match) -> Expr | None:
    x = m.args[0]
    if m.site.args[0].type == m.out:
        return x
    if is_call(x, *_VIEWS) and m.graph.writable(m.out.shape):
        assert isinstance(x, Call)
        source = x.args[0]
        return source if m.graph.type_of(source) == m.out else _reshape(source, m.out.shape, m)
    return _view_below_transpose(m)


def _view_below_transpose(m: Match) -> Expr | None:
    """reshape(transpose(x)) as transpose(reshape(x)), where every output dimension is a run of dimensions
    that the transpose left side by side (or of size 1). Brings transposes together, so that they cancel.
    """
    x = m.args[0]
    if not (is_call(x, "transpose") and isinstance(x, Call) and m.graph.writable(m.out.shape)):
        return None
    middle = m.shape(0)
    axes = _axes(x.attrs.get("axes"), len(middle))
    split = _split_transpose(x, axes, m)
    if split is not None:
        return split
    groups = _runs(middle, m.out.shape)
    if groups is None:
        return None
    order: list[tuple[int, int]] = []  # (place in x, output dimension)
    for k, group in enumerate(groups):
        places = [axes[i] for i in group if middle[i] != 1]
        if any(b != a + 1 for a, b in zip(places, places[1:])):
            between = [i for a, b in zip(places, places[1:]) for i in range(a + 1, b)]
            source = [middle[axes.index(i)] for i in between]
            if places != sorted(places) or any(d != 1 for d in source):
                return None
        order.append((places[0] if places else -1, k))
    order.sort()
    shape = [m.out.shape[k] for _, k in order]
    back = {k: i for i, (_, k) in enumerate(order)}
    reshaped = _reshape(x.args[0], shape, m)
    return call("transpose", reshaped, axes=tuple(back[k] for k in range(len(groups))), span=m.span)


def _split_transpose(x: Call, axes: Sequence[int], m: Match) -> Expr | None:
    """reshape(transpose(reshape(source))) where the outer reshape takes apart what the inner one merged: one
    transpose.
    """
    inner = x.args[0]
    if not is_call(inner, *_VIEWS):
        return None
    assert isinstance(inner, Call)
    source, merged = m.graph.type_of(inner.args[0]), m.graph.type_of(inner)
    if not isinstance(source, TensorType) or not isinstance(merged, TensorType):
        return None
    groups = _runs(source.shape, merged.shape)
    if groups is None:
        return None
    order = [i for a in axes for i in groups[a]]
    if len(order) != source.rank or tuple(source.shape[i] for i in order) != m.out.shape:
        return None
    return call("transpose", inner.args[0], axes=tuple(order), span=m.span)


def _runs(source: Sequence[Dim], out: Sequence[Dim]) -> list[list[int]] | None:
    """For each output dimension the run of source dimensions whose product it is; None if some are split."""
    groups: list[list[int]] = []
    i = 0
    for d in out:
        run: list[int] = []
        size = as_dim(1)
        while size != d and i < len(source):
            size = size * source[i]
            run.append(i)
            i += 1
        if size != d:
            return None
        groups.append(run)
    if any(d != 1 for d in source[i:]):
        return None
    if groups:
        groups[-1].extend(range(i, len(source)))
    return groups


def _reshape(x: Expr, shape: Sequence[Dim], m: Match) -> Expr:
    return call("reshape", x, call("dims", values=tuple(shape), span=m.span), allowzero=True, span=m.span)


def _power(m: Match) -> Expr | None:
    exponent = scalar(m.args[1])
    if m.site.args[0].type != m.out or exponent is None or "float" not in m.out.dtype:
        return None
    x = m.args[0]
    match exponent:  # 0.5 is no square root: power(-inf, 0.5) is inf
        case 1.0:
            return x
        case 2.0:
            return call("multiply", x, x, span=m.span)
    return None


def _neutral(neutral: float, commutes: bool) -> Callable[[Match], Expr | None]:
    def rule(m: Match) -> Expr | None:
        for x, other in ((0, 1), (1, 0)) if commutes else ((0, 1),):
            c = m.args[other]
            if (
                isinstance(c, Constant)
                and c.value.size
                and (c.value == neutral).all()
                and m.site.args[x].type == m.out
            ):
                return m.args[x]
        return None

    return rule


def _drop_expand(m: Match) -> Expr | None:
    """An operand that was expanded by hand is taken as it was, if the operator's own broadcasting gives the
    same type.
    """
    for i, x in enumerate(m.args):
        if not is_call(x, "expand"):
            continue
        assert isinstance(x, Call)
        source = m.graph.type_of(x.args[0])
        if not isinstance(source, TensorType):
            continue
        others = [m.shape(j) for j in range(len(m.args)) if j != i and not is_unit(m.args[j])]
        if _broadcasts_to([source.shape, *others], m.out.shape):
            args = (*m.args[:i], x.args[0], *m.args[i + 1 :])
            return Call(m.call.op, args, m.call.attrs, span=m.span)
    return None


def _broadcasts_to(shapes: Sequence[Sequence[Dim]], out: Sequence[Dim]) -> bool:
    if max(len(s) for s in shapes) != len(out):
        return False
    for k in range(1, len(out) + 1):
        dims = [s[-k] for s in shapes if k <= len(s)]
        if any(d != out[-k] and d != 1 for d in dims) or all(d != out[-k] for d in dims):
            return False
    return True

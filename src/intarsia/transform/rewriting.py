"""Local rewriting: rules that look at one operator call, with the types of everything around it.

A rule sees a call whose operands were already rewritten and says what to put in its place (an expression of
the same type), or None. `Site` of the original call gives complete attributes and known contents of integer
arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from intarsia.dim import Dim
from intarsia.infer import Typing, infer
from intarsia.ir import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    OpRef,
    TensorType,
    Tuple,
    Type,
    children,
    post_order,
    rebuild,
)
from intarsia.op.entry import Site

Rule = Callable[["Match"], Expr | None]


def rewrite_module(module: IRModule, rules: Mapping[str, Iterable[Rule]]) -> IRModule:
    """Every function rewritten bottom-up, once; rules by operator name, the first that applies wins."""
    typing = infer(module)
    return module.with_functions(
        {n: Graph(f, typing, typing.symbols(n)).rewrite(rules) for n, f in module.functions.items()}
    )


class Match:
    """call: the call with rewritten operands; site: the original's; `type_of`, `uses` know original and new
    nodes.
    """

    def __init__(self, call: Call, site: Site, graph: Graph):
        self.call, self.site, self.graph = call, site, graph
        self.args, self.attrs, self.span = call.args, site.attrs, call.span

    @property
    def out(self) -> TensorType:
        return self.site.out[0]

    def value(self, i: int) -> np.ndarray | None:
        """Known contents of argument i, as Dims."""
        return self.site.value(i)

    def numbers(self, i: int) -> tuple[int, ...] | None:
        """Contents of argument i if they are all known numbers (flat)."""
        value = self.value(i)
        if value is None or not all(isinstance(v, int) or v.is_const for v in value.flat):
            return None
        return tuple(int(v) for v in value.flat)

    def shape(self, i: int) -> tuple[Dim, ...]:
        return self.site.shape(i)


class Graph:
    """A function being rewritten bottom-up."""

    def __init__(self, f: Function, typing: Typing, symbols: frozenset[str]):
        self.function, self.typing, self.symbols = f, typing, symbols
        self.types: dict[int, Type] = {}
        self.uses: dict[int, int] = {}
        self.keep: list[Expr] = []  # ids stay valid while their nodes live

    def rewrite(self, rules: Mapping[str, Iterable[Rule]]) -> Function:
        new: dict[int, Expr] = {}
        order = list(post_order(self.function))
        original_uses: dict[int, int] = {}
        for node in order:
            for c in children(node):
                original_uses[id(c)] = original_uses.get(id(c), 0) + 1
        for node in order:
            made = rebuild(node, tuple(new[id(c)] for c in children(node)))
            known = self.typing.maybe_type(node)
            self.note(made, known, original_uses.get(id(node), 0))
            if isinstance(made, Call) and isinstance(made.op, OpRef) and id(node) in self.typing.sites:
                site = self.typing.sites[id(node)]
                for rule in rules.get(made.op.name, ()):
                    changed = rule(Match(made, site, self))
                    if changed is not None:
                        made = changed
                        self.note(made, known, original_uses.get(id(node), 0))
                        break
            new[id(node)] = made
        result = new[id(self.function)]
        assert isinstance(result, Function)
        return result

    def note(self, e: Expr, t: Type | None, used: int) -> None:
        self.keep.append(e)
        if t is not None:
            self.types.setdefault(id(e), t)
        self.uses[id(e)] = max(used, self.uses.get(id(e), 0))

    def type_of(self, e: Expr) -> Type | None:
        return self.types.get(id(e))

    def used_once(self, e: Expr) -> bool:
        return self.uses.get(id(e), 2) <= 1

    def writable(self, shape: Iterable[Dim]) -> bool:
        """Whether the dims use only symbols that the function's parameters bind (others may be renamed by
        inference).
        """
        return all(d.symbols() <= self.symbols for d in shape)


def is_call(e: Expr, *names: str) -> bool:
    """Whether e calls one of these operators."""
    return isinstance(e, Call) and isinstance(e.op, OpRef) and e.op.name in names


def scalar(e: Expr) -> float | None:
    """The number, if e is a constant with one element."""
    if isinstance(e, Constant) and e.value.size == 1 and e.value.dtype.kind in "fiu":
        return float(e.value.reshape(()))
    return None


def is_unit(e: Expr) -> bool:
    return isinstance(e, Tuple) and not e.fields

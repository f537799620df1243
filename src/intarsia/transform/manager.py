"""The pass manager: which passes run, in which order, at which level, and what is checked in between.

A pass is a function `IRModule -> IRModule` in a file of its name. Levels:

    0   only what the VM needs (normal form); every operator is its own kernel
    1   cheap cleaning: constants folded, algebra simplified, dead and repeated code removed
    2   fusion
    3   layouts chosen for the CPU (the default)

A level never changes results beyond rounding. With INTARSIA_VERIFY=1 every pass's output is checked for
well-formedness and typed again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from intarsia.infer import infer
from intarsia.ir import IRModule
from intarsia.ir.wellformed import verify

Transform = Callable[[IRModule], IRModule]


@dataclass(frozen=True, slots=True)
class Pass:
    """name: as in `intarsia show` and the golden tests; level: the lowest optimisation level that runs it."""

    name: str
    level: int
    run: Transform


def optimize(
    module: IRModule,
    *,
    level: int = 3,
    stop_after: str | None = None,
    observe: Callable[[str, IRModule], None] | None = None,
) -> IRModule:
    """Run the pipeline of `level` over a module.

    stop_after: name of the last pass to run. observe: called with (pass name, module) after every pass.
    Raises whatever type errors the module holds.
    """
    check = os.environ.get("INTARSIA_VERIFY") == "1"
    for p in pipeline(level):
        module = p.run(module)
        if check:
            verify(module)
            infer(module)
        if observe:
            observe(p.name, module)
        if p.name == stop_after:
            break
    return module


def pipeline(level: int) -> list[Pass]:
    """The passes of a level, in order. The order is part of the design: see docs/architecture.md."""
    from intarsia.transform.convert_layout import convert_layout
    from intarsia.transform.eliminate_common import eliminate_common
    from intarsia.transform.fold_affine import fold_affine
    from intarsia.transform.fold_constant import fold_constant
    from intarsia.transform.fuse_ops import fuse_ops
    from intarsia.transform.recognise import recognise
    from intarsia.transform.simplify import simplify
    from intarsia.transform.to_anf import to_anf
    from intarsia.transform.to_graph import to_graph

    passes = [
        Pass("to_graph", 0, to_graph),
        Pass("fold_constant", 1, fold_constant),
        Pass("simplify", 1, simplify),
        Pass("eliminate_common", 1, eliminate_common),
        Pass("recognise", 1, recognise),
        Pass("fold_affine", 1, fold_affine),
        Pass("convert_layout", 3, convert_layout),
        Pass("simplify", 3, simplify),
        Pass("fold_constant", 3, fold_constant),
        Pass("eliminate_common", 3, eliminate_common),
        Pass("fuse_ops", 2, fuse_ops),
        Pass("to_anf", 0, to_anf),
    ]
    return [p for p in passes if p.level <= level]

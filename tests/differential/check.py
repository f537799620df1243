"""A module run in every way and compared with the evaluator; what fails is made small."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

import intarsia
from intarsia.infer import infer
from intarsia.interp import evaluate
from intarsia.ir import Constant, Expr, IRModule, TensorType, Tuple, Var, post_order
from intarsia.ir.visit import children, rebuild
from tests.differential.generate import Case, arguments

SIZES = [{"n": n, "m": m} for n, m in zip((8, 0, 1, 2, 7, 9, 17, 33), (3, 5, 1, 0, 17, 2, 8, 4))]
TOLERANCE = {"float16": 3e-2, "float32": 1e-3, "float64": 1e-8}


def leaves(value) -> list[np.ndarray]:
    return [x for v in value for x in leaves(v)] if isinstance(value, tuple) else [np.asarray(value)]


def coarsest(module: IRModule) -> float:
    """The tolerance of the coarsest type that is computed with."""
    typing = infer(module)
    types = (
        typing.maybe_type(n) for f in module.functions.values() for n in (*f.params, *post_order(f.body))
    )
    if "image.resize" in str(module):  # coordinates are float32 whatever the picture is
        return TOLERANCE["float16" if "float16" in str(module) else "float32"]
    return max((TOLERANCE.get(t.dtype, 0) for t in types if isinstance(t, TensorType)), default=0)


def difference(got: Sequence[np.ndarray], want: Sequence[np.ndarray], tolerance: float = 0) -> str | None:
    """What is wrong with `got`, if anything."""
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"result {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if a.dtype.name not in TOLERANCE:
            if not np.array_equal(a, b):
                return _where(k, a, b, a != b)
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = y[np.isfinite(y)]
        scale = max(1.0, float(abs(finite).max())) if finite.size else 1.0
        with np.errstate(invalid="ignore"):
            wrong = ~((x == y) | (abs(x - y) <= tolerance * scale) | (np.isnan(x) & np.isnan(y)))
        if wrong.any():
            return _where(k, a, b, wrong)
    return None


def _where(k: int, a: np.ndarray, b: np.ndarray, wrong: np.ndarray) -> str:
    places = f"{np.argwhere(wrong)[:3].tolist()} ({wrong.sum()} of {wrong.size})"
    return f"result {k} {a.dtype}{a.shape} differs at {places}: {a[wrong][:3]} not {b[wrong][:3]}"


def check(
    case: Case, *, level: int = 3, threads: int = 1, tier: str = "native", sizes: Sequence[dict] = SIZES
) -> str | None:
    """Compile once, run at every size: what disagrees, or None."""
    module = case.module()
    tolerance = coarsest(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exe = intarsia.compile(module, level=level, threads=threads, tier=tier)
        for k, env in enumerate(sizes):
            args = arguments(case.params, env, case.seed * 10 + k)
            try:
                want = leaves(evaluate(module, *args))
            except intarsia.Error as e:
                try:
                    exe(*args)
                except intarsia.Error:
                    continue
                return f"at {env}: the evaluator refuses ({e}), the machine does not"
            wrong = difference(leaves(exe(*args)), want, tolerance)
            if wrong:
                return f"at {env}: {wrong}"
    return None


def fault(case: Case, **how) -> str | None:
    """`check`, with errors as text."""
    try:
        return check(case, **how)
    except Exception as e:  # whatever it is, it is the finding
        return f"{type(e).__name__}: {str(e)[:300]}"


def shrink(case: Case, **how) -> Case:
    """A smaller case that fails in the same kind of way: fewer results, then parameters in place of calls."""
    kind = _kind(fault(case, **how))
    fails = lambda c: _kind(fault(c, **how)) == kind  # noqa: E731
    for e in case.nodes:
        if fails(alone := replace(case, outputs=[e])):
            case = alone
            break
    else:
        for out in case.outputs:
            if fails(alone := replace(case, outputs=[out])):
                case = alone
                break
    changed = True
    while changed:
        changed = False
        for smaller in _cuts(case):
            if fails(smaller):
                case, changed = smaller, True
                break
    used = {id(n) for o in case.outputs for n in post_order(o)}
    kept = [p for p in case.params if id(p) in used]
    main = str(case.module().main)
    fewer = replace(
        case,
        params=kept,
        functions={k: f for k, f in case.functions.items() if f"@{k}" in main},
    )
    return fewer if fails(fewer) else case


def _kind(text: str | None) -> str:
    """What stays while a case gets smaller: 'at' for wrong results, or an error's class and code."""
    text = re.sub(r"\d{6,}", "#", text or "")  # addresses
    return " ".join(text.split(":")[:2] if "Error" in text else text.split()[:1])


def _cuts(case: Case) -> Iterator[Case]:
    """Cases in which a parameter stands for a tensor."""
    inside = [n for o in case.outputs for n in post_order(o)]
    seen: set[int] = set()
    for e in inside:
        t = case.types.get(id(e))
        if t is None or id(e) in seen or isinstance(e, Var | Constant) or any(e is o for o in case.outputs):
            continue
        seen.add(id(e))
        var = Var(f"c{len(case.params)}", t)
        new: dict[int, Expr] = {}
        for node in post_order(Tuple(tuple(case.outputs))):
            new[id(node)] = var if node is e else rebuild(node, tuple(new[id(c)] for c in children(node)))
        types = {id(new[old]): t for old, t in case.types.items() if old in new}
        outputs = [new[id(o)] for o in case.outputs]
        yield replace(case, params=[*case.params, var], outputs=outputs, types=types, nodes=[])


def report(case: Case, found: str) -> str:
    return f"seed {case.seed}: {found}\n{case.module()}"

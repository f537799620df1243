"""tests/golden/<pass>/<case>.relay: a module, a line of dashes, the module that the pass makes of it.

Each case is also evaluated before and after on random inputs: a pass must not change what a program computes.
"""

from pathlib import Path

import numpy as np
import pytest

from intarsia.infer import infer
from intarsia.interp import evaluate
from intarsia.ir.text import parse, print_module
from intarsia.ir.wellformed import verify
from intarsia.transform import pipeline

GOLDEN = Path(__file__).parents[1] / "golden"
SEPARATOR = "\n// " + "-" * 60 + "\n"
CASES = sorted(GOLDEN.glob("*/*.relay"))
PASSES = {p.name: p.run for p in pipeline(3)}


@pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_pass_writes_what_its_golden_file_says(case: Path, regenerate: bool):
    before, _, expected = case.read_text().partition(SEPARATOR)
    module = parse(before, source=case.name)
    after = PASSES[case.parent.name](module)
    verify(after)
    infer(after)
    text = print_module(after).strip()
    if regenerate:
        case.write_text(before.strip() + SEPARATOR + text + "\n")
        return
    assert text == expected.strip()


@pytest.mark.parametrize("case", CASES, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_pass_keeps_the_meaning(case: Path):
    module = parse(case.read_text().partition(SEPARATOR)[0])
    after = PASSES[case.parent.name](module)
    sizes = {s: 3 + i for i, s in enumerate(sorted(infer(module).symbols("main")))}
    rng = np.random.default_rng(0)
    args = []
    for p in module.main.params:
        shape = tuple(d.evaluate(sizes) for d in p.type.shape)
        integer = "int" in p.type.dtype
        args.append(
            rng.integers(0, 2, shape).astype(p.type.dtype)
            if integer
            else rng.random(shape).astype(p.type.dtype)
        )
    wanted, got = evaluate(module, *args), evaluate(after, *args)
    if not isinstance(wanted, tuple):
        wanted, got = (wanted,), (got,)
    for w, g in zip(wanted, got, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


def test_every_pass_has_a_golden_case():
    assert {c.parent.name for c in CASES} == set(PASSES)

"""Machine code computes what the evaluator computes: random modules, and modules that once went wrong."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import intarsia
from intarsia.ir.text import parse
from tests.differential.check import SIZES, check, fault, leaves, report, shrink
from tests.differential.generate import Case, arguments, make

FOUND = sorted((Path(__file__).parent / "found").glob("*.relay"))
LEVELS = (3, 3, 3, 0, 1, 2)


def agrees(seed: int) -> None:
    how = {"level": LEVELS[seed % 6], "threads": 1 + seed % 2}
    found = fault(case := make(seed), **how)
    if found:
        small = shrink(case, **how)
        pytest.fail(f"{how} {found}\nmade small: {report(small, fault(small, **how) or found)}")


@pytest.mark.parametrize("seed", range(40))
def test_random_modules(seed):
    agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("hundred", range(1, 31))
def test_many_random_modules(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        agrees(seed)


@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("path", FOUND, ids=lambda p: p.stem)
def test_what_once_went_wrong(path, level):
    module = parse(path.read_text(), source=path.name)
    case = Case(0, list(module.main.params), [], [module.main.body], dict(module.functions))
    for threads in (1, 2):
        assert check(case, level=level, threads=threads) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_bytecode_in_python_agrees(seed):
    small = [{"n": 2, "m": 1}, {"n": 0, "m": 3}]
    assert check(make(seed), tier="interpreter", sizes=small) is None


def results(exe, args) -> list[np.ndarray]:
    return [np.array(x) for x in leaves(exe(*args))]


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [a.tobytes() for a in arrays]


@pytest.mark.parametrize("seed", range(1, 40, 6))
def test_threads_change_no_bit(seed):
    """One thread or two, again and again, from eight Python threads at once."""
    case = make(seed)
    one, two = (intarsia.compile(case.module(), threads=t) for t in (1, 2))
    calls = [arguments(case.params, env, k) for k, env in enumerate(SIZES)]
    wanted = [bits(results(one, args)) for args in calls]
    for args, w in zip(calls, wanted):
        assert all(bits(results(exe, args)) == w for exe in (two, one, two, two))
    with ThreadPoolExecutor(8) as pool:
        for exe in (one, two):
            again = pool.map(lambda k, exe=exe: bits(results(exe, calls[k % len(calls)])), range(64))
            assert list(again) == [wanted[k % len(wanted)] for k in range(64)]

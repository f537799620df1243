"""The ONNX standard's own node tests: all whose operators are supported must give the right numbers.

unsupported_cases.txt lists those that are refused; `--regenerate` writes it anew. A case that needs a value
when it is compiled (axes, scales) gets its integer inputs as initializers.
"""

import importlib
import pkgutil
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from intarsia.frontend.onnx import load
from intarsia.infer import infer
from intarsia.interp import evaluate
from intarsia.support.errors import Error, UnsupportedError

LIST = Path(__file__).parent / "unsupported_cases.txt"
RANDOM = ("bernoulli", "training_dropout")


SLOW_TO_MAKE = ("averagepool", "lppool", "maxpool")  # 80 % of the time that making the cases takes


def cases(skip=()):
    """The suite's cases, which its modules make when they are imported."""
    import onnx.backend.test.case.node as suite

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(suite.__path__, f"{suite.__name__}."):
            if module.name.rpartition(".")[2] not in skip:
                importlib.import_module(module.name)
    return [c for c in suite._NodeTestCases if not any(r in c.name for r in RANDOM)]


def array(x):
    return (
        numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else None if x is None else np.asarray(x)
    )


def load_case(case):
    try:
        return load(case.model)
    except UnsupportedError as e:
        if e.code != "ONNX-023":
            raise
    frozen = onnx.ModelProto()
    frozen.CopyFrom(case.model)
    for info, value in zip(case.model.graph.input, case.data_sets[0][0]):
        value = array(value)
        if value is not None and (value.dtype.kind in "iu" and value.size <= 64 or info.name == "scales"):
            frozen.graph.initializer.append(numpy_helper.from_array(value, info.name))
    return load(frozen)


def run(case) -> str | None:
    """What is wrong with the case's results, or None; UnsupportedError where it cannot be imported."""
    module = load_case(case)
    try:
        typing = infer(module)
        for inputs, outputs in case.data_sets:
            given = dict(zip([i.name for i in case.model.graph.input], inputs))
            value = evaluate(module, *[array(given[n]) for n in module.input_names], typing=typing)
            for got, wanted in zip(
                value if isinstance(value, tuple) else (value,), map(array, outputs), strict=True
            ):
                if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
                    return f"{got.dtype} {got.shape} instead of {wanted.dtype} {wanted.shape}"
                half = "bf16" in case.name or got.dtype.itemsize == 2
                wide = (
                    (lambda a: a.astype(np.float32)) if half and got.dtype.kind not in "iu" else (lambda a: a)
                )
                rtol, atol = (2e-2, 2e-2) if half else (max(case.rtol, 1e-3), max(case.atol, 1e-6))
                if not np.allclose(wide(got), wide(wanted), rtol=rtol, atol=atol, equal_nan=True):
                    return "other numbers"
    except Error as e:
        return str(e)
    return None


def sweep(chosen) -> tuple[list[str], list[str]]:
    unsupported, wrong = [], []
    for case in chosen:
        try:
            found = run(case)
        except UnsupportedError:
            unsupported.append(case.name)
            continue
        if found is not None:
            wrong.append(f"{case.name}: {found}")
    return unsupported, wrong


def test_one_case_per_operator():
    chosen = {}
    for case in cases(skip=SLOW_TO_MAKE):
        chosen[tuple(sorted({n.op_type for n in case.model.graph.node}))] = case
    unsupported, wrong = sweep(chosen.values())
    assert not wrong
    assert set(unsupported) <= set(LIST.read_text().split())


@pytest.mark.slow
def test_all_cases(regenerate):
    unsupported, wrong = sweep(cases())
    if regenerate:
        LIST.write_text("".join(f"{n}\n" for n in sorted(unsupported)))
    assert not wrong
    assert sorted(unsupported) == LIST.read_text().split()

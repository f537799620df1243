"""docs/commands.md: the JSON that it shows has the fields that the program prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from intarsia.bench import Row
from intarsia.cli.app import app

PAGE = (Path(__file__).parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
SECTIONS = {s.split("\n", 1)[0]: s for s in PAGE.split("\n## ")[1:]}
MODEL = "def @main(%x: Tensor[(n, 2), float32]) { nn.softmax(matmul(exp(%x), const([[1], [2]], float32))) }"


def shown(section: str) -> list[Any]:
    """The JSON values in a section's block, one after the other."""
    (block,) = re.findall(r"```json\n(.*?)```", SECTIONS[section], re.DOTALL)
    values, rest = [], block.strip()
    while rest:
        value, end = json.JSONDecoder().raw_decode(rest)
        values.append(value)
        rest = rest[end:].strip()
    return values


def printed(*arguments: str) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def same_fields(written: Any, real: Any, where: str = "") -> None:
    """Objects have the same keys, all the way down; lists are compared by their first elements."""
    if isinstance(written, dict) and where.rpartition(".")[2] not in ("settings", "packages", "outputs"):
        assert written.keys() == real.keys(), where
        for key in written:
            same_fields(written[key], real[key], f"{where}.{key}")
    elif isinstance(written, list) and written and real:
        same_fields(written[0], real[0], f"{where}[0]")


@pytest.fixture
def model(tmp_path) -> str:
    path = tmp_path / "model.relay"
    path.write_text(MODEL)
    return str(path)


def test_compile(model):
    same_fields(shown("compile")[0], printed("compile", model, "-t", "1"))


def test_run(model, tmp_path):
    import numpy as np

    np.save(tmp_path / "x.npy", np.ones((2, 2), np.float32))
    real = printed("run", model, "-i", f"x={tmp_path / 'x.npy'}", "-t", "1")
    (written,) = shown("run")
    assert written.keys() == real.keys()
    assert next(iter(written["outputs"].values())).keys() == real["outputs"]["output_0"].keys()


def test_show(model):
    for written in shown("show"):
        same_fields(written, printed("show", model, "--stage", written["stage"], "-t", "1"))


def test_bench():
    (row,) = shown("bench")[0]
    assert row.keys() == {f for f in Row.__dataclass_fields__}


def test_doctor():
    same_fields(shown("doctor")[0], printed("doctor"))


def test_demo():
    same_fields(shown("demo")[0], printed("demo"))

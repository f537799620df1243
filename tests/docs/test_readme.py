"""What the README shows works as written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from intarsia.cli.app import app

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
COMMANDS = [c for c in re.findall(r"^    intarsia (.+)$", README, re.MULTILINE)]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with the model and the photo that the README speaks of."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3, 1, 1])
    graph = helper.make_graph([helper.make_node("GlobalAveragePool", ["x"], ["y"])], "mean", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "model.onnx",
    )
    np.save(tmp_path / "photo.npy", np.full((1, 3, 4, 5), 2, np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_python_example(folder, capsys):
    assert len(PYTHON) == 1
    names: dict = {}
    exec(compile(PYTHON[0], "README.md", "exec"), names)
    assert names["y"].shape == (1, 3, 1, 1)
    assert list(names["outputs"]) == ["y"]
    assert "x" in capsys.readouterr().out


@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.startswith("bench")])
def test_a_command(folder, command):
    result = CliRunner().invoke(app, shlex.split(command))
    assert result.exit_code == 0, result.output


def test_all_commands_are_there():
    assert {c.split()[0] for c in COMMANDS} == {"compile", "run", "show", "bench", "doctor"}


def test_links_lead_somewhere():
    root = Path(__file__).parents[2]
    for page in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"

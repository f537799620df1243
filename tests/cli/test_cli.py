"""The command line in this process: what it prints, what it refuses, and the codes it ends with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from intarsia.cli.app import app

TEXT = """def @main(%x: Tensor[(n, 8), float32], %w: Tensor[(8, m), float32]) {
  let %h = nn.relu(matmul(%x, %w));
  (nn.softmax(%h, axis=-1), reduce.sum(%h, const([0], int64)))
}
"""
COMMANDS = ("compile", "run", "show", "bench", "doctor", "demo")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "model.relay"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def artifact(model) -> Path:
    call("compile", model, "-t", 1)
    return model.with_suffix(".intarsia")


def call(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output
    return result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command):
    assert f"Example: intarsia {command}" in " ".join(call(command, "--help").split())


def test_without_arguments_there_is_help():
    output = CliRunner().invoke(app, []).output
    assert all(command in output for command in COMMANDS)


def test_the_version():
    import intarsia

    assert call("--version") == f"{intarsia.__version__}\n"


# ---- compile and run --------------------------------------------------------------------------------------
def test_compile_says_what_it_made(model, tmp_path):
    output = call("compile", model, "-o", tmp_path / "m.intarsia", "-t", 1)
    assert "compiled in" in output and "input  x: float32[n, 8]" in output
    made = json.loads(call("compile", model, "-o", tmp_path / "m.intarsia", "-t", 1, "--json"))
    assert made["bytes"] == (tmp_path / "m.intarsia").stat().st_size
    assert made["inputs"][1] == {"name": "w", "dtype": "float32", "shape": [8, "m"]}


@pytest.mark.parametrize("form", ["model", "artifact"])
def test_run_takes_files_and_gives_files(form, request, tmp_path):
    x, w = np.ones((2, 8), np.float32), np.eye(8, 3, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "more.npz", w=w)
    given = ("-i", f"x={tmp_path / 'x.npy'}", "--inputs", tmp_path / "more.npz")
    output = call("run", request.getfixturevalue(form), *given, "-o", tmp_path / "out", "-t", 1)
    assert "output_1: float32 [3]" in output
    with np.load(tmp_path / "out") as got:
        np.testing.assert_allclose(got["output_1"], [2, 2, 2])


def test_run_takes_numbers_of_the_inputs_dtype(tmp_path):
    path = tmp_path / "scale.relay"
    path.write_text(
        "def @main(%x: Tensor[(n,), float32], %k: int64, %on: bool) { if (%on) { %x * cast(%k, dtype="
        '"float32") } else { %x } }'
    )
    given = ("-i", "x=1,2,3.5", "-i", "k=2", "-i", "on=true", "-t", 1)
    output = json.loads(call("run", path, *given, "--json"))
    assert output["outputs"]["output_0"] == {"dtype": "float32", "shape": [3], "values": [2.0, 4.0, 7.0]}


def test_outputs_of_any_name_can_be_saved(tmp_path):
    path = tmp_path / "names.relay"
    path.write_text(
        'inputs("x"); outputs("file", "a/b");\ndef @main(%x: Tensor[(n,), float32]) { (%x, exp(%x)) }'
    )
    call("run", path, "-i", "x=0,0", "-o", tmp_path / "out.npz", "-t", 1)
    with np.load(tmp_path / "out.npz") as got:
        assert sorted(got.files) == ["a/b", "file"]


# ---- show -------------------------------------------------------------------------------------------------
SHOWN = {
    "relay": "let %h = nn.relu(matmul(%x, %w));",
    "typed": "/* Tensor[(n, m), float32] */",
    "fused": "primitive=True",
    "kernel": "kernel matmul_relu(",
    "llvm": "define void @matmul_relu_",
    "asm": "matmul_relu_",
    "memory": "@main: frame of ",
    "bytecode": "function main(t0: float32[2], t1: float32[2]) -> (float32[2], float32[1])",
}


@pytest.mark.parametrize("stage", SHOWN)
def test_every_stage_is_shown(model, stage):
    output = call("show", model, "--stage", stage, "-t", 1)
    assert SHOWN[stage] in output
    shown = json.loads(call("show", model, "--stage", stage, "-t", 1, "--json"))
    assert shown["stage"] == stage


def test_relay_stages_are_relay_again(model):
    from intarsia.ir.text import parse

    for arguments in (
        ("--stage", "relay"),
        ("--stage", "typed"),
        ("--stage", "fused"),
        ("--pass", "simplify"),
    ):
        parse(call("show", model, *arguments))


def test_one_kernel_by_name_or_number(model):
    by_name = call("show", model, "-s", "kernel", "-k", "softmax", "-t", 1)
    assert "kernel softmax(" in by_name and "matmul" not in by_name
    by_number = call("show", model, "-s", "kernel", "-k", "k1", "-t", 1)
    assert by_number.splitlines()[:2] == by_name.splitlines()[:2]
    assert "@intarsia_run(" in call("show", model, "-s", "llvm", "-k", "program", "-t", 1)


def test_assembly_for_another_processor(model):
    assert "fmla" in call("show", model, "-s", "asm", "-k", "matmul", "--target", "aarch64", "-t", 1)


def test_an_artifact_shows_what_the_model_shows(model, artifact):
    for stage in ("memory", "bytecode"):
        shown = call("show", artifact, "-s", stage)
        assert shown == call("show", model, "-s", stage, "-t", 1)
    numbers = call("show", artifact, "-s", "memory", "--dim", "n=10", "--dim", "m=7")
    assert ["float32[10,", "7]", "280", "+0"] in [line.split()[1:5] for line in numbers.splitlines()]


def test_tensors_alive_together_never_share_bytes(model):
    for n, m in ((1, 1), (3, 5), (100, 33)):
        sizes = ("--dim", f"n={n}", "--dim", f"m={m}")
        (main,) = json.loads(call("show", model, "-s", "memory", *sizes, "-t", 1, "--json"))["functions"]
        framed = [t for t in main["tensors"] if t["place"] == "frame"]
        assert framed
        for a in framed:
            assert a["offset"] + a["bytes"] <= main["frame_bytes"]
            for b in framed:
                together = a is not b and a["first"] <= b["last"] and b["first"] <= a["last"]
                assert (
                    not together
                    or a["offset"] + a["bytes"] <= b["offset"]
                    or b["offset"] + b["bytes"] <= a["offset"]
                )


# ---- refusals ---------------------------------------------------------------------------------------------
REFUSED = {
    "no file": (("compile", "nowhere.onnx"), "MODEL-001: there is no file nowhere.onnx"),
    "no equals sign": (("run", "MODEL", "-i", "x"), "CLI-001: --input takes NAME=VALUE, not 'x'"),
    "no number": (
        ("run", "MODEL", "-i", "x=one"),
        "CLI-001: --input x: 'one' is neither a .npy file nor numbers",
    ),
    "no size": (
        ("show", "MODEL", "-s", "memory", "--dim", "n=big"),
        "CLI-001: --dim takes NAME=NUMBER, not 'n=big'",
    ),
    "no threads": (("bench", "MODEL", "-t", "two"), "CLI-001: --threads takes positive numbers, not 'two'"),
    "no array": (
        ("run", "MODEL", "-i", "x=none.npy"),
        "CLI-002: cannot read none.npy: No such file or directory",
    ),
    "no archive": (("run", "MODEL", "--inputs", "MODEL"), "CLI-002: cannot read "),
    "no folder": (
        ("compile", "MODEL", "-o", "/nowhere/m"),
        "CLI-003: cannot write /nowhere/m: No such file or directory",
    ),
    "no kernels": (
        ("show", "ARTIFACT", "-s", "kernel"),
        "CLI-004: an artifact holds machine code, not the stage 'kernel'",
    ),
    "no pass": (("show", "MODEL", "--pass", "magic"), "CLI-005: level 3 has no pass 'magic'"),
    "no kernel": (("show", "MODEL", "-s", "kernel", "-k", "magic"), "CLI-006: no kernel is called 'magic'"),
    "no symbol": (("show", "MODEL", "-s", "memory", "--dim", "q=1"), "CLI-007: no size depends on q"),
    "no input": (("bench", "MODEL", "--dim", "q=1"), "CLI-007: the model has no symbol or input q"),
    "no system": (("bench", "MODEL", "--against", "magic"), "CLI-008: cannot measure magic"),
    "no work": (("bench",), "CLI-009: nothing to measure"),
    "no target": (("compile", "MODEL", "--target", "z80"), "CODE-004: there is no target z80"),
    "inputs missing": (("run", "MODEL", "-t", "1"), "CALL-001: missing inputs: x, w"),
    "compiled twice": (("compile", "ARTIFACT"), "MODEL-003: "),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name, model, artifact):
    arguments, words = REFUSED[name]
    places = {"MODEL": model, "ARTIFACT": artifact}
    result = CliRunner().invoke(app, [str(places.get(a, a)) for a in arguments])
    assert result.exit_code == 1
    assert result.stderr.startswith(words)
    assert result.stdout == "" and "Traceback" not in result.output


def test_wrong_options_end_with_2(model):
    call("show", model, "--stage", "magic", code=2)
    call("compile", code=2)


# ---- the rest ---------------------------------------------------------------------------------------------
def test_doctor_finds_the_machine_well():
    found = json.loads(call("doctor", "--json"))
    assert found["native_code"] and not found["troubles"]
    assert found["packages"]["numpy"] == np.__version__ and found["threads"] >= 1
    assert "all is well" in call("doctor")


def test_doctor_says_what_is_wrong(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("INTARSIA_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("INTARSIA_NUM_THREADS", "many")
    found = json.loads(call("doctor", "--json", code=1))
    assert len(found["troubles"]) == 2 and not found["cache"]["writable"]
    assert "API-002" in found["troubles"][0] and "INTARSIA_CACHE_DIR" in found["troubles"][1]


def test_the_demo_finds_speech():
    found = json.loads(call("demo", "--json"))
    assert found["calls"] > 100 and found["median_us"] > 0
    assert sum(s["to_s"] - s["from_s"] for s in found["speech"]) > 2


def test_a_closed_pipe_is_no_error(model):
    command = f"'{sys.executable}' -m intarsia.cli show '{model}' -s bytecode -t 1 | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith("function main")

"""Models that are none, through the public function; tests/frontend/onnx has the importer's words."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import intarsia
from tests.api.models import expected, floats, two_inputs

DATA = two_inputs().SerializeToString()


def external(location: str) -> bytes:
    model = two_inputs()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    return model.SerializeToString()


def lacking() -> bytes:
    nodes = [
        helper.make_node("Det", ["x"], ["a"], name="determinant"),
        helper.make_node("NonZero", ["a"], ["b"], name="places"),
        helper.make_node("Det", ["x"], ["c"], name="again"),
        helper.make_node("Mystery", ["c"], ["y"], name="what", domain="com.example"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 2])
    graph = helper.make_graph(
        nodes, "lacking", [x], [onnx.ValueInfoProto(name="y"), onnx.ValueInfoProto(name="b")]
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 3)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


FILES = {
    "no model": (b"MZ this is something else", "ONNX-002: the file is not an ONNX model, or it is damaged"),
    "truncated": (DATA[: len(DATA) * 2 // 3], "ONNX-003: the file is truncated"),
    "weights missing": (
        external("weights.bin"),
        "ONNX-015: the file 'weights.bin' with the model's weights is missing",
    ),
    "weights outside": (
        external("../weights.bin"),
        "ONNX-016: the model asks for weights from '../weights.bin'",
    ),
    "operators": (lacking(), "ONNX-020: the model uses"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_compiled(tmp_path, name):
    data, words = FILES[name]
    (tmp_path / "weights.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(data)
    with pytest.raises(intarsia.Error) as caught:
        intarsia.compile(folder / "model.onnx")
    assert str(caught.value).startswith(words)
    assert caught.value.remedy


def test_all_missing_operators_are_listed_with_their_nodes():
    with pytest.raises(intarsia.UnsupportedError) as caught:
        intarsia.compile(lacking())
    message = caught.value.message
    for part in ("'determinant', 'again'", "'places'", "Mystery (com.example 3)", "'what'"):
        assert part in message


def test_a_model_in_every_form(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(DATA)
    module = intarsia.api.read(path)
    x, w = floats(2, 3), floats(3, 4)
    for form in (path, str(path), DATA, two_inputs(), module, str(module)):
        for got, wanted in zip(intarsia.compile(form, threads=1)(x, w), expected(x, w), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def test_relay_text_with_its_weights(tmp_path):
    from intarsia.ir.text import parse, save_text

    big = np.arange(200, dtype=np.float32)
    text = 'def @main(%x: Tensor[(200,), float32]) { %x + const(@weights["k"], Tensor[(200,), float32]) }'
    save_text(parse(text, weights={"k": big}), tmp_path / "model.relay")
    exe = intarsia.compile(tmp_path / "model.relay", threads=1)
    np.testing.assert_array_equal(exe(big), big + big)


def test_relay_text_of_one_line_and_a_module_without_main():
    text = 'inputs("a"); def @main(%x: Tensor[(n,), float32]) { %x + 1f }'
    assert intarsia.compile(text, threads=1).inputs[0].name == "a"
    with pytest.raises(intarsia.ModelError, match="MODEL-004: the module has no function @main, but @f"):
        intarsia.compile("def @f(%x: Tensor[(n,), float32]) { %x }")


def test_a_compiled_artifact_is_not_compiled_again(tmp_path):
    path = tmp_path / "model.intarsia"
    intarsia.compile(two_inputs(), threads=1).save(path)
    with pytest.raises(intarsia.ModelError, match="MODEL-003(.|\n)*intarsia.load"):
        intarsia.compile(path)


def test_a_flipped_bit_is_found_or_changes_nothing(tmp_path):
    path = tmp_path / "model.intarsia"
    intarsia.compile(two_inputs(), threads=1).save(path)
    data = bytearray(path.read_bytes())
    x, w = floats(2, 3), floats(3, 4)
    refused = 0
    for at in np.random.default_rng(0).integers(0, len(data) * 8, 60):
        data[at // 8] ^= 1 << (at % 8)
        path.write_bytes(data)
        try:  # a bit between two sections changes nothing
            y = intarsia.load(path, threads=1)(x, w)[0]
            np.testing.assert_allclose(y, expected(x, w)[0], rtol=1e-5, atol=1e-5)
        except intarsia.ArtifactError:
            refused += 1
        data[at // 8] ^= 1 << (at % 8)
    assert refused > 40

"""Bad input ends in an error with a reason; messages/*.txt hold the words (`--regenerate` rewrites them)."""

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import model

from intarsia.frontend.onnx import load
from intarsia.support.errors import Error, ModelError, UnsupportedError

MESSAGES = Path(__file__).parent / "messages"
N = helper.make_node
X = {"x": ("float32", (2,))}


def relu() -> onnx.ModelProto:
    return model([N("Relu", ["x"], ["y"], name="act")], X, ["y"])


def with_weight(**fields) -> onnx.ModelProto:
    made = model([N("Add", ["x", "w"], ["y"], name="add")], X, ["y"])
    t = made.graph.initializer.add(name="w", data_type=1, dims=[2])
    for key, value in fields.items():
        if isinstance(value, list):
            getattr(t, key)[:] = value
        else:
            setattr(t, key, value)
    return made


def external(location: str, offset: str | None = None, length: str | None = None) -> onnx.ModelProto:
    made = with_weight()
    t = made.graph.initializer[0]
    t.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value is not None:
            t.external_data.add(key=key, value=value)
    return made


def nested(depth: int) -> onnx.ModelProto:
    """Functions that call each other in a chain. (Graphs in graphs go 33 deep in protobuf and no further.)"""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    chain = [
        helper.make_function(
            "own", f"F{k}", ["a"], ["b"], [N(f"F{k + 1}", ["a"], ["b"], domain="own")], imports
        )
        for k in range(depth)
    ]
    chain.append(helper.make_function("own", f"F{depth}", ["a"], ["b"], [N("Neg", ["a"], ["b"])], imports))
    return model(
        [N("F0", ["x"], ["y"], name="top", domain="own")], X, ["y"], functions=chain, domains={"own": 1}
    )


def ir_version(version: int) -> onnx.ModelProto:
    made = relu()
    made.ir_version = version
    return made


def without_opset() -> onnx.ModelProto:
    made = relu()
    del made.opset_import[:]
    return made


def sequence_input() -> onnx.ModelProto:
    made = relu()
    made.graph.input.append(helper.make_tensor_sequence_value_info("list", 1, None))
    return made


def unranked() -> onnx.ModelProto:
    made = relu()
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, None))
    return made


def lacking() -> onnx.ModelProto:
    then = helper.make_graph(
        [N("GridSample", ["x", "x"], ["b"], name="deep")], "g", [], [onnx.ValueInfoProto(name="b")]
    )
    nodes = [N("Det", ["x"], [f"d{i}"], name=f"det{i}") for i in range(5)]
    nodes += [
        N("Fancy", ["x"], ["f"], domain="my.domain"),
        N("If", ["on"], ["y"], then_branch=then, else_branch=then),
    ]
    return model(nodes, {"on": ("bool", ()), **X}, ["y"], domains={"my.domain": 3})


PROTOS = {
    "ir_too_new": lambda: ir_version(99),
    "opset_too_new": lambda: model([N("Relu", ["x"], ["y"])], X, ["y"], opset=999),
    "no_opset": without_opset,
    "unsupported_operators": lacking,
    "unknown_name": lambda: model([N("Add", ["x", "nobody"], ["y"], name="add")], X, ["y"]),
    "unknown_output": lambda: model([N("Relu", ["x"], ["y"])], X, ["z"]),
    "not_sorted": lambda: model(
        [N("Neg", ["t"], ["y"], name="second"), N("Relu", ["x"], ["t"], name="first")], X, ["y"]
    ),
    "cyclic": lambda: model(
        [N("Add", ["x", "b"], ["a"], name="one"), N("Neg", ["a"], ["b"], name="two")], X, ["a"]
    ),
    "name_twice": lambda: model(
        [N("Relu", ["x"], ["y"], name="a"), N("Neg", ["x"], ["y"], name="b")], X, ["y"]
    ),
    "name_of_an_input": lambda: model([N("Relu", ["x"], ["x"], name="a")], X, ["x"]),
    "attribute_kind": lambda: model([N("Flatten", ["x"], ["y"], name="flat", axis="one")], X, ["y"]),
    "attribute_missing": lambda: model([N("Concat", ["x", "x"], ["y"], name="join")], X, ["y"]),
    "input_missing": lambda: model([N("Conv", ["x"], ["y"], name="conv")], X, ["y"]),
    "dtype": lambda: model([N("Cast", ["x"], ["y"], name="cast", to=TensorProto.STRING)], X, ["y"]),
    "dtype_of_input": lambda: model([N("Identity", ["x"], ["y"])], {"x": ("complex64", (2,))}, ["y"]),
    "sequence": sequence_input,
    "unranked": unranked,
    "raw_data_too_short": lambda: with_weight(raw_data=b"\0\0\0\0"),
    "float_data_too_long": lambda: with_weight(float_data=[1.0, 2.0, 3.0]),
    "no_data": lambda: with_weight(),
    "negative_dim": lambda: with_weight(dims=[-4]),
    "huge_dims": lambda: with_weight(dims=[2**40, 2**40]),
    "huge_without_data": lambda: with_weight(dims=[2**20, 2**10]),
    "too_deep": lambda: nested(70),
    "axes_computed": lambda: model(
        [N("Shape", ["x"], ["s"]), N("ReduceSum", ["s", "k"], ["y"], name="sum")],
        {**X, "k": ("int64", (1,))},
        ["y"],
    ),
}


def check(name: str, error: Error, regenerate: bool) -> None:
    path = MESSAGES / f"{name}.txt"
    if regenerate:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{type(error).__name__}\n{error}\n")
    assert f"{type(error).__name__}\n{error}\n" == path.read_text()


@pytest.mark.parametrize("name", PROTOS)
def test_bad_models(name, regenerate):
    with pytest.raises((ModelError, UnsupportedError)) as caught:
        load(PROTOS[name]())
    check(name, caught.value, regenerate)


FILES = {
    "empty": b"",
    "text": b"these are not the bytes you are looking for",
    "html": b"<!DOCTYPE html><html><body>404</body></html>",
    "zip": b"PK\x03\x04" + bytes(40),
    "lfs_pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "zeros": bytes(1000),
    "noise": np.random.default_rng(0).bytes(1000),
}


@pytest.mark.parametrize("name", FILES)
def test_bad_files(name, tmp_path, regenerate):
    path = tmp_path / "model.onnx"
    path.write_bytes(FILES[name])
    with pytest.raises(ModelError) as caught:
        load(path)
    check(f"file_{name}", caught.value, regenerate)


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(ModelError, match="ONNX-001: there is no file"):
        load(tmp_path / "nowhere.onnx")
    with pytest.raises(ModelError, match="ONNX-001: .* is a folder"):
        load(str(tmp_path))
    with pytest.raises(ModelError, match="ONNX-002: a int is not a model"):
        load(3)  # type: ignore[arg-type]


def test_a_truncated_file_at_every_place():
    weights = {"w": np.ones(2, np.float32)}
    whole = model([N("Add", ["x", "w"], ["y"], name="add")], X, ["y"], constants=weights).SerializeToString()
    for end in range(len(whole)):
        with pytest.raises(ModelError):
            load(whole[:end])
    with pytest.raises(ModelError, match="ONNX-003: the file is truncated"):
        load(whole[: len(whole) // 2])


def test_damaged_bytes_never_end_in_a_traceback():
    rng = np.random.default_rng(0)
    nodes = [
        N("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        N("Shape", ["c"], ["s"]),
        N("Reshape", ["c", "s"], ["r"]),
        N("ReduceMean", ["r"], ["m"], axes=[1]),
        N("Concat", ["m", "m"], ["k"], axis=1),
        N("Transpose", ["k"], ["y"], perm=[0, 2, 3, 1]),
    ]
    weights = {"w": np.ones((2, 3, 3, 3), np.float32)}
    whole = model(nodes, {"x": ("float32", ("n", 3, 8, 8))}, ["y"], constants=weights).SerializeToString()
    for _ in range(1000):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), rng.integers(1, 4)):
            data[place] = rng.integers(0, 256)
        with contextlib.suppress(Error):
            load(bytes(data))


# ---- external data -----------------------------------------------------------------------------------------
def test_external_data_is_read(tmp_path):
    (tmp_path / "weights").mkdir()
    np.arange(5, dtype=np.float32).tofile(tmp_path / "weights" / "w.bin")
    path = tmp_path / "model.onnx"
    path.write_bytes(external("weights/w.bin", offset="8", length="8").SerializeToString())
    constant = load(path).main.body.args[1]
    assert constant.value.tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    "name, location, offset, length",
    [
        ("missing", "w.bin", None, None),
        ("parent", "../secret.bin", None, None),
        ("absolute", "/etc/passwd", None, None),
        ("windows", "C:\\secret.bin", None, None),
        ("empty", "", None, None),
        ("link", "link.bin", None, None),
        ("link_to_folder", "up/secret.bin", None, None),
        ("too_short", "short.bin", None, None),
        ("past_the_end", "whole.bin", "400", None),
        ("wrong_length", "whole.bin", "0", "4"),
        ("bad_offset", "whole.bin", "-8", None),
    ],
)
def test_bad_external_data(name, location, offset, length, tmp_path, regenerate):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "up").symlink_to(tmp_path)
    (folder / "short.bin").write_bytes(bytes(4))
    (folder / "whole.bin").write_bytes(bytes(8))
    path = folder / "model.onnx"
    path.write_bytes(external(location, offset, length).SerializeToString())
    with pytest.raises(ModelError) as caught:
        load(path)
    error = caught.value
    remedy = error.remedy.replace(str(folder), "FOLDER") if error.remedy else None
    check(
        f"external_{name}",
        ModelError(error.code, error.message, where=error.where, remedy=remedy),
        regenerate,
    )


def test_external_data_of_a_model_that_is_no_file(regenerate):
    with pytest.raises(ModelError) as caught:
        load(external("w.bin"))
    check("external_no_folder", caught.value, regenerate)

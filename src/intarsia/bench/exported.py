"""Small recurrent models made with torch.onnx, for tests and benchmarks; needs torch and onnxscript."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any


def available() -> bool:
    """Whether the packages that make these models are installed."""
    return all(importlib.util.find_spec(p) is not None for p in ("torch", "onnxscript"))


def lstm_module() -> Any:
    """Two bidirectional LSTM layers (40 -> 64) and a linear one, in torch; x: [T, B, 40] -> y: [T, B, 10]."""
    import torch  # pyright: ignore[reportMissingImports]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = torch.nn.LSTM(40, 64, 2, bidirectional=True)
            self.out = torch.nn.Linear(128, 10)

        def forward(self, x):
            return self.out(self.recurrent(x)[0])

    torch.manual_seed(0)
    return Model().eval()


def loop_module() -> Any:
    """h = tanh(Wh + b) + x, n times, in torch; x: [B, 16], n: int64 -> h: [B, 16]. Becomes an ONNX Loop."""
    import torch  # pyright: ignore[reportMissingImports]
    from torch._higher_order_ops.while_loop import while_loop  # pyright: ignore[reportMissingImports]

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(16, 16)

        def forward(self, x, n):
            def condition(i, h):
                return i < n

            def body(i, h):
                return i + 1, torch.tanh(self.linear(h)) + x

            return while_loop(condition, body, (torch.zeros((), dtype=torch.int64), x * 1.0))[1]

    torch.manual_seed(0)
    return Model().eval()


MODULES: dict[str, Callable[[], Any]] = {"lstm": lstm_module, "loop": loop_module}


def export_lstm(path: Path) -> Path:
    """`lstm_module` as an ONNX file with dynamic T and B."""
    import torch  # pyright: ignore[reportMissingImports]

    axes = {0: "T", 1: "B"}
    # The newer exporter writes the example's T into the reshape after a bidirectional LSTM.
    older = {"dynamo": False, "dynamic_axes": {"x": axes, "y": axes}}
    return _export(lstm_module(), (torch.randn(5, 3, 40),), path, ["x"], ["y"], older)


def export_loop(path: Path) -> Path:
    """`loop_module` as an ONNX file with dynamic B."""
    import torch  # pyright: ignore[reportMissingImports]

    sizes = ({0: torch.export.Dim("B", min=1, max=64)}, None)
    newer = {"dynamo": True, "dynamic_shapes": sizes, "external_data": False}
    return _export(loop_module(), (torch.randn(3, 16), torch.tensor(5)), path, ["x", "n"], ["h"], newer)


def _export(
    module: Any, args: tuple, path: Path, inputs: list[str], outputs: list[str], options: dict[str, Any]
) -> Path:
    import torch  # pyright: ignore[reportMissingImports]

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, args, path, input_names=inputs, output_names=outputs, **options)
    return path

"""docs/onnx.md is what the converters say now (`--regenerate` writes it anew)."""

from pathlib import Path

import onnx
import pytest

from intarsia.frontend.onnx.node import converted, converter
from intarsia.frontend.onnx.table import NOTES, page

PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"


def test_the_page_is_current(regenerate):
    if regenerate:
        PAGE.write_text(page(), encoding="utf-8")
    written = PAGE.read_text(encoding="utf-8")
    if f"onnx {onnx.__version__})" not in written.replace("\n", " "):
        pytest.skip("another release of onnx has other operators")
    assert page() == written, "run: python -m intarsia.frontend.onnx.table > docs/onnx.md"


def test_every_limit_has_a_note():
    limited = {op for domain, op in converted() if getattr(converter(domain, op), "limit", None) is not None}
    assert limited - {"Identity"} == NOTES.keys()

"""Every Relay block of the documentation parses, is well formed, has types, and survives being printed."""

import re
from pathlib import Path

import pytest

from intarsia.infer import infer
from intarsia.ir.equal import structural_equal
from intarsia.ir.text import parse, print_module
from intarsia.ir.wellformed import verify

DOCS = Path(__file__).parents[2] / "docs"
BLOCKS = [
    pytest.param(text, id=f"{page.stem}-{i}")
    for page in sorted(DOCS.glob("*.md"))
    for i, text in enumerate(
        re.findall(r"^```relay\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    )
]


@pytest.mark.parametrize("text", BLOCKS)
def test_a_block_of_relay(text):
    module = parse(text)
    verify(module)
    infer(module)
    assert structural_equal(parse(print_module(module)), module)


def test_there_are_blocks():
    assert len(BLOCKS) > 10

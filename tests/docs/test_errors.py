"""docs/errors.md lists every code that the source raises, once; a code is always raised with one class."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import intarsia

SOURCE = Path(intarsia.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
CODE = re.compile(r"[A-Z]+-[0-9]{3}")


def used() -> dict[str, set[str]]:
    """Code -> names of the error classes it is raised with ('' where a function of the file raises it)."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
                found[node.value].add("")
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                code = node.args[0].value
                if isinstance(code, str) and CODE.fullmatch(code) and isinstance(node.func, ast.Name):
                    found[code].add(node.func.id if node.func.id.endswith("Error") else "")
    return found


def listed() -> list[str]:
    return re.findall(rf"^\| ({CODE.pattern}) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_code_is_listed_once_and_no_other():
    codes = listed()
    assert len(codes) == len(set(codes))
    assert sorted(codes) == sorted(used())


def test_every_line_says_what_it_means_and_what_to_do():
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if re.match(rf"\| {CODE.pattern}", line):
            assert [bool(cell.strip()) for cell in line.split("|")[1:-1]] == [True] * 3, line


def test_a_code_has_one_class():
    several = {code: classes for code, classes in used().items() if len(classes - {""}) > 1}
    assert not several

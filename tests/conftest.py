"""Options and settings for all tests: passes verify their output, nothing writes to the user's cache."""

import os
import tempfile
from pathlib import Path

import pytest

os.environ["INTARSIA_VERIFY"] = "1"
os.environ.setdefault("INTARSIA_CACHE_DIR", str(Path(tempfile.gettempdir()) / "intarsia-test-cache"))


def pytest_addoption(parser):
    parser.addoption("--regenerate", action="store_true", help="write golden files anew instead of comparing")


@pytest.fixture
def regenerate(request) -> bool:
    return request.config.getoption("--regenerate")

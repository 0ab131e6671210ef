"""What the tests of exports share."""

import json

import pytest

from parsers_checks import RECORDED


@pytest.fixture(scope="session")
def recorded():
    return json.loads(RECORDED.read_text(encoding="utf-8"))

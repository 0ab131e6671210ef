"""The real parsers accept what is exported: `make parsers`. They are heavy, and every one answers in a process of its own."""

import pytest

from parsers_checks import asked, checks, python_of

CHECKS = checks()


@pytest.mark.parsers
@pytest.mark.parametrize("name", CHECKS)
def test_the_real_parser_accepts_every_export_and_answers_as_recorded(name, recorded):
    check = CHECKS[name]
    if not python_of(check).exists():
        pytest.skip("its environment is made by `make parsers`")
    said = asked(name, check)
    assert said["accepted"], "nothing was exported"
    assert said["refused"] == {}
    assert said == {key: value for key, value in recorded[name].items() if key != "date"}

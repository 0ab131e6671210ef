"""What the real parsers were seen to accept is what is exported now. Where it is not: `make parsers`, then look at the difference."""

import pytest

from parsers_checks import checks, digest, keys, written
from shardmeter.interop.configs import formats

CHECKS = checks()


@pytest.fixture(scope="module")
def exports():
    return {name: written(check) for name, check in CHECKS.items()}


def test_every_format_that_is_written_is_checked_at_every_version():
    checked = {(check.FORMAT, check.FOR or formats()[check.FORMAT].VERSIONS[0]) for check in CHECKS.values()}
    writing = {name: one for name, one in formats().items() if hasattr(one, "write") or hasattr(one, "launch")}
    assert checked == {(name, version) for name, one in writing.items() for version in one.VERSIONS}


@pytest.mark.parametrize("name", CHECKS)
def test_what_is_exported_was_accepted(name, exports, recorded):
    made, not_made = exports[name]
    record = recorded[name]
    assert record["refused"] == {}
    assert {plan: digest(one) for plan, one in made.items()} == record["accepted"]
    assert sorted(not_made) == record["inexpressible"]
    assert all(one.violations for one in not_made.values())


@pytest.mark.parametrize("name", CHECKS)
def test_names_that_a_parser_would_pass_over_in_silence_are_names_it_has(name, exports, recorded):
    known = keys(CHECKS[name])
    silent = recorded[name]["typos_silent"]
    assert known or not silent, "the parser takes any name: the names that it has must ship beside"
    said = {setting.key for one in exports[name][0].values() for setting in one.said}
    assert not known or said <= known

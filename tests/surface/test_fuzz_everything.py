"""A share of the inputs that `scripts/fuzz.py` tries on everything that reads a text; the whole of it is 110,000 (docs/hardening.md)."""

import pytest

from fuzz import TARGETS, faults

SHARES = {"units": 600, "plans": 120, "overrides": 60, "scenarios": 60, "tables": 30, "readers": 40, "arguments": 20}


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_comes_out_but_answers_and_refusals(target):
    assert [f"{fault.given[:300]}: {fault.why[-600:]}" for fault in faults(target, SHARES[target], seed=7)] == []

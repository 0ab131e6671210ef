"""Every stack row: fitted numbers inside their bounds, with what and when they were fitted; ids and aliases unique."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import pytest

from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Stack
from shardmeter.specs.stack import FITTED, WORDS
from shardmeter.study.fit.stacks import PRIORS
from shardmeter.study.validate import shipped

CATALOG = load_catalog()
STACKS = tuple(CATALOG.stack(name) for name in CATALOG.names("stacks"))
DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(Stack) if field.name in FITTED}
ROWS = re.compile(r"(\d+) rows of (.+)")
every_stack = pytest.mark.parametrize("stack", STACKS, ids=lambda stack: stack.name)


def test_the_fit_moves_the_numbers_that_a_stack_declares() -> None:
    assert set(PRIORS) == set(FITTED)
    for name, prior in PRIORS.items():
        assert 0.0 < prior.low <= prior.centre <= prior.high, name
        assert prior.low <= DEFAULTS[name] <= prior.high, name


@every_stack
def test_fitted_numbers_are_inside_their_bounds(stack: Stack) -> None:
    rounding = 1.005  # rows are written with three digits
    for name, prior in PRIORS.items():
        assert prior.low / rounding <= getattr(stack, name) <= prior.high * rounding, name


@every_stack
def test_numbers_that_differ_from_the_defaults_say_what_taught_them_and_when(stack: Stack) -> None:
    if all(getattr(stack, name) == DEFAULTS[name] for name in FITTED):
        return
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", stack.fitted_date)
    taught = [ROWS.fullmatch(part) for part in stack.fitted_on.split("; ")]
    assert all(taught), stack.fitted_on
    for found in taught:
        assert found is not None
        assert int(found[1]) > 0
        assert found[2] in shipped.sources()


def test_most_stacks_are_fitted() -> None:
    assert sum(bool(stack.fitted_on) for stack in STACKS) > len(STACKS) / 2, "or the test above says nothing"


@every_stack
def test_named_fields_hold_known_words(stack: Stack) -> None:
    said = {name: getattr(stack, name) for name in WORDS}
    words = {name: value if isinstance(value, tuple) else (value,) for name, value in said.items()}
    assert {name: found for name, found in words.items() if not set(found) <= set(WORDS[name])} == {}


def test_ids_and_aliases_are_unique() -> None:
    said = [text.lower() for stack in STACKS for text in (stack.name, *stack.aliases)]
    assert len(said) == len(set(said))
    for stack in STACKS:
        assert all(CATALOG.stack(alias) == stack for alias in stack.aliases)

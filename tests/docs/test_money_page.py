"""The figures of the page on money are what the product says, and what its rows make of them by hand."""

import re
from pathlib import Path

import pytest

import shardmeter
from shardmeter.physics.energy import EXPECTED, LEAST, RATED
from shardmeter.scenario.catalog import load_catalog

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "money.md").read_text(encoding="utf-8")
ROWS = load_catalog()
_CENTS = PAGE.partition("## Every cent")[2].partition("## How")[0]
TABLE = re.findall(r"^\| ([a-z ]+?) \| ([\d,]+\.\d\d) \|(.*?)\|(.*?)\|$", _CENTS, re.MULTILINE)
MONTH = 730.0
CENT = 0.006


@pytest.fixture(scope="module")
def answer():
    return shardmeter.predict(str(ROOT / "examples" / "three-clouds-money.yaml")).to_dict()


def found(pattern, text, flags=0):
    """The groups of what a text must hold."""
    match = re.search(pattern, text, flags)
    assert match is not None, pattern
    return match.groups() or match.group()


def number(text):
    """Of `17,943.22`, `$55.04`, `200B`."""
    plain = text.strip("$ ").replace(",", "")
    return float(plain.removesuffix("B")) * (1e9 if plain.endswith("B") else 1.0)


def test_every_term_is_on_the_page_to_the_cent(answer):
    said = [(term, number(usd)) for term, usd, *_ in TABLE]
    paid = [(one["term"], one["usd"]) for one in answer["run"]["cost_terms"]]
    paid.append(("together", answer["run"]["cost_usd"]))
    assert [term for term, _ in said] == [term for term, _ in paid]
    for (term, printed), (_, usd) in zip(said, paid, strict=True):
        assert printed == pytest.approx(usd, abs=CENT), term


def test_hours_rounds_and_bytes_of_the_page(answer):
    hours, steps, rounds, sent = found(
        r"lasts\s+([\d.]+) h, ([\d,.]+) steps and so ([\d.]+) rounds, in each of which every island sends ([\d.]+) GB", PAGE
    )  # fmt: skip
    assert float(hours) == pytest.approx(answer["run"]["wall_clock_s"] / 3600.0, rel=1e-7)
    assert number(steps) == pytest.approx(answer["run"]["tokens"] / (384 * 8192), rel=1e-6)
    assert float(rounds) == pytest.approx(number(steps) / 100.0, rel=1e-4)
    assert all(float(sent) == pytest.approx(one["sent_bytes"] / 1e9, rel=1e-6) for one in answer["islands"])


@pytest.mark.parametrize("line", TABLE[:-1], ids=lambda line: f"{line[0]} {line[1]}")
def test_the_arithmetic_and_the_row_give_the_term(line, answer):
    term, usd, product, row = line
    hours, rounds = answer["run"]["wall_clock_s"] / 3600.0, answer["run"]["tokens"] / (384 * 8192) / 100.0
    exact = {"81.50083": hours, "635.8": rounds, "21.41403": answer["islands"][0]["sent_bytes"] / 1e9}
    factors = [exact.get(text) or number(text) for text in re.findall(r"\$?[\d,]+(?:\.\d+)?B?\b", product)]
    made = 1.0
    for factor in factors:
        assert factor is not None
        made *= float(factor)
    if ("B" in product and "tokens" in product) or "parameters" in product:
        made /= 2.0**30 if "GiB" in product else 1e9
    if "month" in product:
        made /= MONTH
    assert made == pytest.approx(number(usd), abs=CENT, rel=4e-4 if "parameters" in product else 0.0), term
    kind, name, date = found(r"`catalog (\w+) ([^`]+)`.*, ([\d-]+) $", row)
    stands = next(one for one in ROWS.rows(kind) if one["name"] == name)
    price = stands["spot" if ", spot," in row else "price"]
    assert stands["date"] == date
    assert f"{price.split('/')[0]}" == found(r"\$[\d.]+", product)


def test_shares_of_the_rating():
    for name, draw in (("expected", EXPECTED), ("least", LEAST), ("rated", RATED)):
        cells = found(rf"^\| {name}.*?\| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", PAGE, re.MULTILINE)
        assert tuple(map(float, cells)) == (draw.computing, draw.waiting, draw.stopped, draw.beside)


def test_the_file_on_the_page_is_read(tmp_path):
    file = tmp_path / "prices.csv"
    file.write_text(found(r"```csv\n(.*?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
    given = {
        "model": "llama-3.1-8b",
        "fleet": {"islands": [{"gpus": "8xH100-SXM5-80GB"}], "prices": str(file)},
        "run": {"tokens": "1B"},
    }
    run = shardmeter.predict(given).to_dict()["run"]
    assert run["cost_usd"] == pytest.approx(1.99 * run["gpu_hours"])
    assert run["cost_terms"][0]["basis"] == "H100-SXM5-80GB on demand, 2026-11-01 (prices.csv:3)"

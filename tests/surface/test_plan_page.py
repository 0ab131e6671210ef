"""The page of `plan`: what is borderline, what a narrow line keeps, a front of one, the command of a chosen size."""

from __future__ import annotations

import json
import shlex

import pytest

from shardmeter.cli import main
from shardmeter.core.units import GIB
from shardmeter.study import trust

SMALL = ["--model", "llama-3.1-8b", "--set", "plan.pp=1", "--set", "plan.cp=1"]
EIGHT = [*SMALL, "--gpus", "8xH100-SXM5-80GB"]
PRICED = ["--tokens", "1T", "--price", "$2/gpu/h"]


def page(capsys, *arguments):
    assert main(["plan", *arguments]) == 0
    return capsys.readouterr().out


def table(text, title):
    """Lines of a table, its column titles first."""
    lines = text.splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith(title))
    return lines[start + 1 : lines.index("", start)]


def test_what_is_borderline_is_marked(capsys):
    said = page(capsys, *EIGHT)
    data = json.loads(page(capsys, *EIGHT, "--format", "json"))
    chances = [one["fits_probability"] for one in data["plans"]]
    assert chances[0] < 0.9
    assert f"It is borderline, with a chance of {int(100 * chances[0])} % to fit" in said
    rows = table(said, "The best plans")
    assert rows[0].split()[-1] == "fit"
    assert all(f"{int(100 * one)} %" in row for one, row in zip(chances, rows[1:], strict=False))


def test_what_is_not_borderline_has_no_such_column(capsys):
    said = page(capsys, *EIGHT, "--set", "plan.tp=8", "--set", "plan.recompute=full", "--set", "plan.micro_batch=1")
    assert "borderline" not in said
    assert "fit" not in table(said, "The best plans")[0].split()


def test_others_that_are_borderline_are_said(capsys, monkeypatch):
    peaks = []

    def chance(scenario, peak, limit, exact):
        peaks.append(peak / GIB)
        return 0.95 if len(peaks) == 1 else 0.5

    monkeypatch.setattr(trust, "fits_probability", chance)
    assert "2 of the 3 listed are borderline (a chance below 90 % to fit)" in page(capsys, *EIGHT, "--top", "3")


def test_a_narrow_line_keeps_what_one_decides_on(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    said = page(capsys, *SMALL, "--gpus", "64xH100-SXM5-80GB,128xH100-SXM5-80GB", *PRICED, "--objective", "time,cost")
    for title in ("The best plans", "Which no other one beats"):
        rows = table(said, title)
        for word in ("plan", "GPUs", "run", "cost", "MFU", "peak", "fit"):
            assert word in rows[0].split()
        own = [line for line in rows[1:] if not line.lstrip().startswith(("of ", "left out"))]
        assert max(map(len, own)) <= 80
        assert all(
            line.split()[0].endswith(",") or "=" in line or line.split()[1] == "fsdp" or "," in line for line in own
        )
        hidden = rows[-1].partition("left out for lack of room: ")[2].split(", ")
        assert {"behind", "tokens/s"} <= set(hidden) <= {"behind", "tokens/s", "step"}
    assert "dp_replicate=2,\n" in said


@pytest.mark.parametrize(
    "sizes",
    [
        ["--gpus", "8xH100-SXM5-80GB,16xH100-SXM5-80GB"],
        ["--gpus", "8..16:x2xH100-SXM5-80GB"],
        ["--gpus", "8xH100-SXM5-80GB", "--set", "fleet.islands.0.nodes=1,2"],
        ["--instance", "p5.48xlarge", "--set", "fleet.islands.0.nodes=1..2"],
    ],
)
def test_the_command_names_the_size_that_was_chosen(capsys, sizes):
    data = json.loads(page(capsys, *SMALL, *sizes, "--tokens", "1T", "--format", "json"))
    assert data["plans"][0]["gpus"] == 16.0
    assert main([*shlex.split(data["command"])[1:], "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == data["plans"][0]["step_time_s"]


def test_a_front_of_one_is_said(capsys):
    said = page(capsys, *EIGHT, *PRICED, "--objective", "time,cost")
    assert "one plan is best in all: fsdp" in said
    assert "one plan is best" not in page(capsys, *EIGHT, *PRICED)


def test_cost_and_energy_without_a_length_are_those_of_tokens(capsys):
    given = [*EIGHT, "--price", "$2/gpu/h", "--objective", "energy,cost"]
    first = json.loads(page(capsys, *given, "--format", "json"))["plans"][0]
    assert first["energy_kwh"] is None
    whole = json.loads(page(capsys, *given, "--tokens", "1T", "--format", "json"))["plans"][0]
    assert first["energy_j_per_token"] * 1e12 == pytest.approx(whole["energy_kwh"] * 3.6e6)
    assert first["cost_usd_per_token"] * 1e12 == pytest.approx(whole["cost_usd"])
    said = page(capsys, *given)
    assert "energy/token" in said
    assert "cost/M tokens" in said

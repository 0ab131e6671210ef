"""The published bandwidth table once more, task by task: the closed form of a round is what the event run takes."""

import csv

import pytest

from shardmeter import data
from shardmeter.engine.round import Pace
from shardmeter.engine.timeline.islands import run
from shardmeter.specs import Leaving
from shardmeter.study.validate.geo import bandwidth
from shardmeter.study.validate.geo.vocabulary import GBIT
from shardmeter.study.validate.rows import Row


def rows():
    with data.open_text("geo/rows.csv") as lines:
        return [row for row in csv.DictReader(lines) if row["id"].startswith("SD-T4-")]


def test_the_table_has_all_its_cells():
    assert len(rows()) == 75


@pytest.mark.parametrize("cells", [rows()[at::5] for at in range(5)], ids=("50 %", "80 %", "90 %", "95 %", "99 %"))
def test_the_timeline_agrees(cells):
    for row in cells:
        asked = bandwidth.simulated(Row(line=0, cells=row))
        rate = float(row["value"]) * GBIT
        behind = Leaving(window=2.0 / 3.0 * asked.step_time, pieces=asked.layers)
        pace = Pace(step=asked.step_time, tokens=1.0, leaving=((behind,),))
        round_ = bandwidth.round_of(asked)
        across = [float(asked.share * one.size / rate) for one in round_.crossings]
        rounds = 8 if asked.steps == 1.0 else 4
        drawn = run(round_, [pace, pace], across, rounds).seconds
        utilization = asked.steps * asked.step_time / drawn
        assert utilization == pytest.approx(float(bandwidth.utilization(asked, rate)), abs=0.005)

"""Study files: what they say, and everything that is wrong with one at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmeter import BadScenario, ShardMeterError
from shardmeter.lab import methods, scenarios, study
from shardmeter.lab.records import Experiment, Line

GOOD: dict[str, Any] = {
    "name": "mine",
    "models": {"small": {"layers": 4, "hidden": 128}, "lstm": {"layers": 1, "hidden": 16, "kind": "lstm", "seq_len": 32}},
    "lines": {"country": {"bandwidth": "100 Mbps", "rtt": "20 ms"}, "ocean": {"bandwidth": "20 Mbps", "rtt": "100 ms", "mtu": "1500 B"}},
    "experiments": [
        {"name": "one", "method": "diloco", "islands": 3, "pace": "20 GFLOP/s", "line": "country", "model": "small",
         "lines": [{"between": ["a", "c"], "line": "ocean", "loss": 0.001}], "sync": {"sync_every": 10}},
    ],
}  # fmt: skip


def changed(**fields: Any) -> dict[str, Any]:
    """The good study with other fields of its experiment."""
    return {**GOOD, "experiments": [{**GOOD["experiments"][0], **fields}]}


def refusal(source: Any) -> str:
    with pytest.raises(BadScenario) as caught:
        study.read(source)
    return str(caught.value)


def only(source: Any) -> Experiment:
    (one,) = study.read(source).experiments
    return one


def test_units_become_si_and_what_is_silent_has_its_default() -> None:
    one = only(GOOD)
    assert [site.name for site in one.sites] == ["a", "b", "c"]
    assert [site.pace for site in one.sites] == [2e10] * 3
    assert one.line == Line(bandwidth=1.25e7, rtt=0.02)
    assert one.line_between("c", "a") == Line(bandwidth=2.5e6, rtt=0.1, mtu=1500.0, loss=0.001)
    assert one.line_between("a", "b") == one.line
    assert (one.batch, one.rounds, one.micro_batches) == (8, 4, 1)


def test_every_word_of_the_method_is_settled_as_the_scenario_reads_it() -> None:
    said = only(GOOD).said
    assert said["sync_every"] == 10
    assert said["bits"] == 32
    assert said["split"] == "equal"
    assert only(changed(sync={"H": 7})).said["sync_every"] == 7


def test_islands_may_be_listed() -> None:
    one = only(changed(islands=[{"name": "north"}, {"name": "south", "pace": "10 GFLOP/s"}], lines=[]))
    assert [(site.name, site.pace) for site in one.sites] == [("north", 2e10), ("south", 1e10)]


@pytest.mark.parametrize("form", ["json", "yaml", "toml"])
def test_any_of_three_languages(form: Any, tmp_path: Path) -> None:
    file = tmp_path / f"study.{form}"
    file.write_text(json.dumps(GOOD), encoding="utf-8")
    if form == "toml":
        file.write_text(
            'name = "mine"\n[models.small]\nlayers = 4\nhidden = 128\n[[experiments]]\nname = "one"\nmethod = "ddp"\nislands = 2\n'
            'model = "small"\nline = {bandwidth = "100 Mbps", rtt = "20 ms"}\n',
            encoding="utf-8",
        )
    assert study.read(file).name == study.read(str(file)).name == "mine"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"method": "dilocoo"}, "unknown method 'dilocoo' (one of all_reduce, block_train, "),
        ({"method": "dilocoo"}, "did you mean 'diloco'?"),
        ({"islands": 1, "lines": []}, "1 island: nothing crosses; 2 or more"),
        ({"islands": [{"name": "a"}, {"name": "a"}], "lines": []}, "'a' is the name of 2 islands"),
        ({"islands": 99}, "99 is no number of islands"),
        ({"islands": [{"name": "a", "workers": 2}, {"name": "c"}], "method": "ddp", "sync": {}}, "unlike numbers of workers (a 2, c 1)"),
        ({"workers": 2}, "several workers of an island share one replica, and nothing says how; inner: ddp, or inner: fsdp2"),
        ({"workers": 2, "method": "noloco"}, "noloco has one worker an island"),
        ({"line": "contry"}, "unknown line 'contry'; did you mean 'country'?"),
        ({"model": "smal"}, "unknown model 'smal'; did you mean 'small'?"),
        ({"lines": [{"between": ["a", "z"], "line": "ocean"}]}, "unknown island 'z'"),
        ({"sync": {"sync_evry": 10}}, "experiments.0.sync.sync_evry: unknown key; did you mean 'sync_every'?"),
        ({"sync": {"blocks": 2}}, "blocks = 2, but diloco does not read it"),
        ({"sync": {"sync_every": 0}}, "experiments.0.sync.sync_every"),
        ({"sync": {"method": "ddp"}}, "the method is said once"),
        ({"method": "streaming_diloco", "sync": {"num_fragments": 9}}, "num_fragments = 9, but the model has 4 layers"),
        ({"settings": {"outer_rat": 1}}, "did you mean 'outer_rate'?"),
        ({"settings": {"outer_rate": "fast"}}, "experiments.0.settings.outer_rate"),
        ({"name": "../up"}, "is no name of a folder"),
        ({"fault": {"kill": "worker", "island": "z", "after_round": 1}}, "unknown island 'z'"),
        ({"fault": {"kill": "worker", "between": ["a", "b"], "after_round": 1}}, "a worker is of one island; island: a"),
        ({"fault": {"kill": "worker", "island": "a", "after_round": 4}}, "after 4 of 4 rounds nothing is left to break; 3 or less"),
        ({"fault": {"kill": "line", "after_round": 1}}, "one of island and between belongs here"),
        ({"fault": {"kill": "house", "island": "a", "after_round": 1}}, "unknown word 'house'"),
        ({"model": {"layers": 2, "hidden": 130}}, "hidden = 130 is no multiple of heads = 4; heads: 2"),
        ({"method": "soma", "sync": {}}, "soma trains a model of kind lstm, not decoder"),
        ({"model": "lstm"}, "diloco trains a model of kind decoder, not lstm"),
        ({"method": "pipeline", "islands": 5, "lines": [], "sync": {}}, "5 islands, but 4 layers: a stage is whole layers"),
        ({"method": "all_reduce", "sync": {}}, "experiments.0.settings.sizes: is not said"),
        ({"method": "all_reduce", "sync": {}, "settings": {"sizes": ["3 B"]}}, "no whole values of 4 bytes"),
        ({"method": "all_reduce", "sync": {"bits": 8}, "settings": {"sizes": ["4 B"]}}, "all_reduce reads no words of plan.sync"),
        ({"method": "block_train", "islands": 2, "lines": [], "sync": {"blocks": 3}}, "3 blocks, but 2 islands"),
        ({"sync": {"topology": "star"}}, "experiments.0.sync.topology: the lab has one way to do it: auto"),
        ({"sync": {"bits": 5}}, "diloco sends no values of 5 bits; one of 4, 8, 16, 32"),
        ({"line": {"bandwidth": "100 Mbps"}}, "experiments.0.line.rtt: is not said"),
        ({"line": {"bandwidth": "100", "rtt": "20 ms"}}, "experiments.0.line.bandwidth"),
        ({"line": {"bandwidth": "1 Gbps", "rtt": "5 ms", "mtu": "9 kB", "queue": "4 kB"}}, "a queue of 4000 B holds no packet of 9000 B"),
        ({"line": {"bandwidth": "1 Gbps", "rtt": "5 ms", "mtu": "90 kB"}}, "90000 B is no size of a packet"),
        ({"batch": 0}, "experiments.0.batch"),
        ({"colour": "red"}, "experiments.0.colour: unknown key"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(fields: Any, says: Any) -> None:
    assert says in refusal(changed(**fields))


def test_all_violations_at_once_with_their_places(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    text = (
        "name: bad\nmodels: {small: {layers: 4, hidden: 130}}\nlines: {country: {bandwidth: 100 Mbps, rtt: 20 ms}}\nexperiments:\n"
        "  - {name: x, method: diloco, islands: 2, line: country, model: small, sync: {sync_evry: 3}, fault: {kill: worker, island: q, after_round: 1}}\n"
        "  - {name: X, method: dpd, islands: 1, line: country, model: small}\n"
    )
    file.write_text(text, encoding="utf-8")
    said = refusal(file)
    for part in ("'q'", "'dpd'", "hidden = 130", "1 island", "'X' is the name of experiments.0 too", "sync_evry"):
        assert part in said, part
    assert f"{file}:5:" in said
    assert f"{file}:6:" in said


@pytest.mark.parametrize("lacks", ["name", "experiments"])
def test_what_a_study_needs(lacks: Any) -> None:
    assert f"no {lacks.removesuffix('s')}" in refusal({key: value for key, value in GOOD.items() if key != lacks})


def test_a_text_that_is_no_file_is_told() -> None:
    assert "is no file" in refusal({**GOOD, "text": "no-such-text"})


def test_a_word_that_no_study_has_names_those_that_ship() -> None:
    assert "bundled, fast" in refusal("bundeld")


@pytest.mark.parametrize("word", study.bundled())
def test_studies_that_ship_are_read(word: Any) -> None:
    found = study.read(word)
    assert found.name == word
    assert found.experiments


def test_the_bundled_study_covers_what_it_is_for() -> None:
    found = study.read("bundled").experiments
    lines = [line for one in found for line in (one.line, *(each for _, each in one.lines))]
    assert len(found) >= 12
    assert {one.method for one in found} == set(scenarios.WAYS)
    assert {len(one.sites) for one in found} == {2, 3, 4}
    assert (min(line.bandwidth for line in lines), max(line.bandwidth for line in lines)) == (1.25e6, 1.25e8)
    assert (min(line.rtt for line in lines), max(line.rtt for line in lines)) == (0.005, 0.1)
    assert {one.fault.kind for one in found if one.fault} == {"worker", "line"}


def test_the_methods_that_are_said_are_those_that_are_built() -> None:
    assert set(methods.names()) <= set(scenarios.WAYS)


def test_a_study_is_its_own_copy(tmp_path: Path) -> None:
    """What `lab run` keeps is read as the same study."""
    document = study.opened("fast")
    file = tmp_path / "study.yaml"
    file.write_text(document.text, encoding="utf-8")
    assert study.read(file) == study.study_of(document)
    assert Path(document.name).name == "fast.yaml"


WRONG: tuple[Any, ...] = (
    None,
    True,
    "",
    "x",
    -1,
    0,
    1e300,
    float("nan"),
    [],
    [1],
    {},
    {"a": 1},
    "1 Gbps",
    ["a", "b"],
    {"name": "a"},
    "\x00",
    "é" * 300,
)


def test_whatever_stands_in_a_place_is_read_or_refused() -> None:
    """Every field of the good study, and of all methods, under every kind of wrong value."""
    fields = {"name", "models", "lines", "experiments", "seed", "text", "alone_seconds"}
    for field in sorted(fields):
        for value in WRONG:
            _tried({**GOOD, field: value})
    experiment = ("name", "method", "islands", "workers", "pace", "line", "lines", "model", "batch", "micro_batches", "sync", "settings",
                  "learning_rate", "rounds", "fault")  # fmt: skip
    for field in experiment:
        for value in WRONG:
            _tried(changed(**{field: value}))
    for word in study.WORDS:
        method = next(name for name, way in scenarios.WAYS.items() if word in way.own)
        for value in WRONG:
            _tried(
                changed(method=method, sync={}, settings={word: value}, model="lstm" if method == "soma" else "small")
            )


def _tried(source: Any) -> None:
    try:
        study.read(source)
    except ShardMeterError as error:
        assert str(error)  # noqa: PT017


def test_islands_of_one_name_are_told_once() -> None:
    text = """
name: mine
models: {small: {layers: 2, hidden: 64}}
lines: {slow: {bandwidth: 10 Mbps, rtt: 80 ms}}
experiments:
  - {name: outer, method: diloco, islands: [{name: a}, {name: a}], line: slow, model: small, sync: {num_fragments: 3}}
"""
    with pytest.raises(BadScenario) as caught:
        study.read(text)
    fields = [one.field for one in caught.value.violations]
    assert fields.count("experiments.0.islands") == 1
    assert "experiments.0" not in fields


@pytest.mark.parametrize("name", ["..", "a/b", "../../x", "a\nb", "a b", "x" * 65])
def test_an_island_has_a_name_that_a_folder_may_have(name: str) -> None:
    assert "is no name of a folder" in refusal(changed(islands=[{"name": name}, {"name": "b"}], lines=None))


@pytest.mark.parametrize("name", ["machine.json", "REPORT.json", "study.yaml", "report.md"])
def test_no_experiment_is_called_as_a_file_of_the_results(name: str) -> None:
    assert "is a file of the results" in refusal(changed(name=name))


def test_a_line_that_is_cut_joins_two_islands() -> None:
    fault = {"kill": "line", "between": ["a", "a"], "after_round": 1}
    assert "no line joins a with itself" in refusal(changed(fault=fault))


def test_rounds_of_steps_are_counted_however_they_are_written() -> None:
    fault = {"kill": "worker", "island": "a", "after_round": 25}
    asked = {"method": "ddp", "sync": None, "rounds": 1, "fault": fault}
    assert only(changed(**asked, settings={"steps": "30"})).fault is not None
    assert "nothing is left to break" in refusal(changed(**asked, settings={"steps": "5"}))

"""`shardmeter trace`: events that viewers accept, a picture that is one, and figures that agree."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.render import chrome, gantt
from shardmeter.study.trace import trace

PIPED = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp,tp=2,pp=4", "--global-batch", "64"]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def piped() -> Any:
    return shardmeter.load(
        None,
        options={"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp,tp=2,pp=4", "global_batch": "64"},
    )


def run(capsys: Any, *arguments: str) -> dict[str, Any]:
    assert main(["trace", *PIPED, *arguments, "--format", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_events_are_valid_and_nest(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    answer = run(capsys, "-o", str(file), "--steps", "2")
    found = json.loads(file.read_text(encoding="utf-8"))
    events = [event for event in found["traceEvents"] if event["ph"] == "X"]
    names = [event for event in found["traceEvents"] if event["ph"] == "M"]
    threads = {event["tid"] for event in names if event["name"] == "thread_name"}
    assert {event["ph"] for event in found["traceEvents"]} == {"M", "X"}
    assert {event["tid"] for event in events} == threads
    assert sum(event["name"] == "process_name" for event in names) == 1
    assert all(event["dur"] >= 0.0 and event["ts"] >= 0.0 and event["cat"] and event["name"] for event in events)
    by_thread: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        by_thread[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in by_thread.values():
        open_: list[float] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ and open_[-1] <= begin + 2e-3:
                open_.pop()
            assert not open_ or end <= open_[-1] + 2e-3, "events of a thread nest"
            open_.append(end)
    assert max(event["ts"] + event["dur"] for event in events) == pytest.approx(2e6 * answer["step_time_s"], rel=1e-6)
    assert answer["files"] == {"trace": str(file)}


def test_every_task_that_takes_time_is_an_event(piped: Any) -> None:
    traced = trace(piped)
    events = [event for event in chrome.events(traced) if event["ph"] == "X"]
    tasks = sum(1 for task in traced.timeline.program.tasks if task.seconds)
    assert len(events) - sum(event["cat"] == "wait" for event in events) == tasks
    layers = [e for e in events if e["cat"] == "forward" and "layer" in e["name"]]
    assert len(layers) == 32 * 8  # layers × micro-batches


def test_compute_and_its_waits_fill_the_step(piped: Any) -> None:
    traced = trace(piped)
    threads = {
        event["tid"]
        for event in chrome.events(traced)
        if event["name"] == "thread_name" and event["args"]["name"].endswith("compute")
    }
    for thread in threads:
        spans = sorted(
            (e["ts"], e["ts"] + e["dur"]) for e in chrome.events(traced) if e["ph"] == "X" and e["tid"] == thread
        )
        assert spans[0][0] == 0.0
        assert all(abs(left[1] - right[0]) <= 2e-3 for left, right in itertools.pairwise(spans))
        assert spans[-1][1] == pytest.approx(1e6 * traced.step_time, rel=1e-9)


def test_ranks_choose_threads(capsys: Any, tmp_path: Path) -> None:
    file, picture = tmp_path / "out.json", tmp_path / "out.svg"
    run(capsys, "-o", str(file), "--svg", str(picture), "--ranks", "0,3")
    found = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    names = {event["args"]["name"] for event in found if event["name"] == "thread_name"}
    assert {name.split(" · ")[0] for name in names} == {"stage 0", "stage 3"}
    texts = {element.text for element in ET.fromstring(picture.read_text(encoding="utf-8")).iter(f"{SVG}text")}
    assert {"stage 0", "stage 3"} <= texts
    assert not {"stage 1", "stage 2"} & texts


def test_the_picture_is_an_svg_with_axis_legend_and_waits(piped: Any) -> None:
    root = ET.fromstring(gantt.svg(trace(piped), "a title & more"))
    assert root.tag == f"{SVG}svg"
    width, height = (float(value) for value in root.attrib["viewBox"].split()[2:])
    assert width == 800
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"stage 0", "forward", "backward", "parameter gather", "wait", "a title & more"} <= set(texts)
    assert any(text and text.endswith((" s", " ms", " µs")) for text in texts)
    for shape in root.iter(f"{SVG}rect"):
        if "x" in shape.attrib:
            assert float(shape.attrib["x"]) >= 0.0
            assert float(shape.attrib["x"]) + float(shape.attrib["width"]) <= width + 1.0
            assert float(shape.attrib["y"]) + float(shape.attrib["height"]) <= height
    assert any(shape.attrib.get("fill") == "url(#wait)" for shape in root.iter(f"{SVG}rect"))


def test_the_summary_agrees_with_predict(capsys: Any, piped: Any) -> None:
    answer = run(capsys)
    assert answer["closed_form_s"] == pytest.approx(shardmeter.predict(piped).to_dict()["step_time_s"], rel=1e-12)
    assert abs(answer["error"]) <= 0.01
    assert sum(term["timeline_s"] for term in answer["terms"]) == pytest.approx(answer["step_time_s"], rel=1e-9)
    assert all(0.0 <= stream["busy"] <= 1.0 + 1e-9 for stream in answer["streams"])
    assert {"version", "data_date", "assumptions", "warnings"} <= set(answer)


def test_stragglers_slow_a_step(capsys: Any) -> None:
    plain, slow, again = (
        run(capsys, *more)["step_time_s"] for more in ((), *[("--straggle", "0.2", "--seed", "3")] * 2)
    )
    assert plain < slow == again


def test_the_table_and_csv_print(capsys: Any) -> None:
    assert main(["trace", *PIPED]) == 0
    shown = capsys.readouterr().out
    assert "closed form" in shown
    assert "How busy" in shown
    assert main(["trace", *PIPED, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("term,")


@pytest.mark.parametrize(
    ("plan", "streams"),
    [
        ("fsdp,tp=2,pp=4,schedule=zb-v,virtual_stages=2", set()),
        ("fsdp,tp=2,pp=4,schedule=zb-h1", set()),
        ("fsdp,tp=2,pp=4,schedule=zb-h2", set()),
        ("zero1,tp=2,pp=4,schedule=zb-2p", set()),
        ("fsdp,tp=2,pp=4,schedule=dualpipe", set()),
        ("fsdp,offload=activations", {"to host", "from host"}),
        ("fsdp,tp=2,pp=4,offload=optimizer", {"to host", "from host", "host update"}),
        ("fsdp,pp=2,schedule=dualpipe,offload=parameters", {"from host"}),
    ],
)
def test_own_clocks_two_copies_and_offloads_are_drawn(
    capsys: Any, tmp_path: Path, plan: str, streams: set[str]
) -> None:
    picture, file = tmp_path / "out.svg", tmp_path / "asked.yaml"
    device = "{base: GH200-96GB, host_memory_bandwidth: 400 GB/s}"
    file.write_text(
        f"model: llama-3.1-8b\nfleet: {{islands: [{{name: x, accelerator: {device}, nodes: 64, gpus_per_node: 1}}]}}\n"
        f"plan: '{plan}'\nrun: {{global_batch: 128}}\n",
        encoding="utf-8",
    )
    for steps in ("1", "3"):
        asked = [str(file), "--steps", steps, "--svg", str(picture)]
        assert main(["trace", *asked, "--format", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        # the order of zb-2p is found by rules, and its form is what an order can reach
        assert abs(answer["error"]) <= (0.04 if "zb-2p" in plan else 0.03)
        assert sum(term["timeline_s"] for term in answer["terms"]) == pytest.approx(answer["step_time_s"], rel=1e-9)
        assert {one["stream"] for one in answer["streams"]} & {"to host", "from host", "host update"} == streams
    texts = {element.text for element in ET.fromstring(picture.read_text(encoding="utf-8")).iter(f"{SVG}text")}
    assert streams <= texts


@pytest.mark.parametrize("schedule", ["gpipe", "interleaved,virtual_stages=2", "interleaved-bf,virtual_stages=2"])
def test_schedules_that_are_drawn(capsys: Any, schedule: str) -> None:
    question = [*PIPED[:4], "--plan", f"zero1,tp=2,pp=4,schedule={schedule}", "--global-batch", "128"]
    assert main(["trace", *question, "--format", "json"]) == 0
    assert abs(json.loads(capsys.readouterr().out)["error"]) <= 0.05


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs the device that is always full")
@pytest.mark.parametrize("option", ["-o", "--svg"])
def test_a_full_disk_is_no_fault_of_the_question(capsys: Any, option: str) -> None:
    assert main(["trace", *PIPED, option, "/dev/full"]) == 74
    seen = capsys.readouterr()
    assert "/dev/full: cannot be written (No space left on device)" in seen.err
    assert not seen.out


def test_a_folder_is_no_file(capsys: Any, tmp_path: Path) -> None:
    assert main(["trace", *PIPED, "-o", str(tmp_path)]) == 2
    seen = capsys.readouterr()
    assert "cannot be written" in seen.err
    assert not seen.out


def test_merged_turns_are_refused_with_the_way_out(capsys):
    asked = [
        "trace",
        "--model",
        "mixtral-8x7b",
        "--gpus",
        "8xGB200",
        "--plan",
        "zero1,ep=8",
        "--stack",
        "bridge-2026-graphs",
    ]
    assert main(asked) == 2
    assert "stack.batch_overlap=false draws them apart" in capsys.readouterr().err
    assert main([*asked, "--global-batch", "16", "--set", "stack.batch_overlap=false"]) == 0

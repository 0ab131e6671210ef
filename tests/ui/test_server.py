"""The server, asked over a real socket: its answers are those of the command, its refusals are sentences."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlencode

import pytest

from shardmeter.ui.crew import cores
from shardmeter.ui.serving import missing as absent

ONE = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "tokens": "1T", "price": "$2/gpu/h"}
SEVERAL = ONE | {"islands": 4, "bandwidth": "10 Gbps", "rtt": "40 ms", "method": "diloco", "sync_every": 50}
LARGE = {"model": "llama-3.1-8b", "gpus": "64..4096:x2xH100-SXM5-80GB", "global_batch": "4M tokens"}
OPEN = [
    "plan.micro_batch=1..256",
    "plan.recompute=any",
    "plan.schedule=any",
    "plan.precision=bf16,fp8",
    "run.seq_len=2048,4096,8192",
]


def wait_for(page, name, seconds=60.0):
    until = time.monotonic() + seconds
    while True:
        found = page.ask(f"/api/search/{name}").json()
        if found["state"] != "running" or time.monotonic() > until:
            return found
        time.sleep(0.05)


def test_predict_is_what_the_command_answers(page):
    import shardmeter
    from shardmeter.render.json_text import envelope

    found = page.ask("/api/predict", ONE)
    assert found.status == 200
    got = found.json()
    assert got["data"] == json.loads(json.dumps(envelope(shardmeter.predict(**ONE).to_dict())))
    assert got["view"] == "predict"
    assert got["cached"] is False
    assert got["took_s"] > 0.0
    assert [one["slug"] for one in got["figures"]] == ["ledger", "memory"]
    kinds = {one["kind"] for one in got["document"]["sections"]}
    assert kinds == {"facts", "table", "notes"}
    assert "llama-3.1-8b" in got["scenario_yaml"]


def test_the_same_question_in_another_order_is_remembered(page):
    query = ONE | {"seq": "2048"}
    first = page.ask("/api/predict", query).json()
    again = page.ask("/api/predict", dict(reversed(query.items())) | {"tab": "plan", "axis": "gpus"}).json()
    assert again["cached"] is True
    assert again["data"] == first["data"]


def test_cells_have_a_text_and_a_number(page):
    table = next(one for one in page.ask("/api/predict", ONE).json()["document"]["sections"] if one["kind"] == "table")
    assert [len(row) for row in table["rows"]] == [len(table["columns"])] * len(table["rows"])
    seconds = [column["key"] for column in table["columns"]].index("seconds")
    assert table["total"][seconds]["text"].endswith(" s")
    assert isinstance(table["total"][seconds]["raw"], float)


@pytest.mark.parametrize("query", [ONE, SEVERAL, {"example": "intellect-1"}], ids=["one", "several", "example"])
def test_numbers_are_those_of_predict(page, query):
    small, whole = page.ask("/api/numbers", query).json(), page.ask("/api/predict", query).json()["data"]
    for key in (
        "step_time_s",
        "tokens_per_s",
        "tokens_per_s_per_gpu",
        "mfu",
        "fits",
        "fits_probability",
        "gpus",
        "ledger",
        "intervals",
    ):
        assert small[key] == whole[key], key
    assert small["peak_gib"] == whole["memory"]["peak_gib"]
    assert small["limit_gib"] == whole["memory"]["limit_gib"]
    assert small["wall_clock_s"] == whole["run"]["wall_clock_s"]
    assert small["cost_usd"] == whole["run"]["cost_usd"]
    assert small["islands"] == len(whole["islands"])
    assert small["bottleneck"]["cause"] == whole["bottleneck"]["cause"]
    effect = (whole["sync"] or {}).get("loss_effect") or {}
    assert small["loss_factor"] == effect.get("factor")


VIEWS = {
    "memory": {}, "explain": {"term": "parameter gather"}, "returns": {"axis": "gpus"}, "transitions": {"x": "plan.micro_batch=1,2,4"},
    "tradeoffs": {"over": "plan.micro_batch=1,2"}, "sensitivity": {"of": "mfu"}, "doctor": {"measured": "step_time=1.5 s"}, "trace": {},
}  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_has_its_twin(page, view):
    found = page.ask(f"/api/{view}", ONE | VIEWS[view])
    assert found.status == 200, found.body[:500]
    got = found.json()
    assert got["view"] == view
    assert got["document"]["sections"]
    assert got["data"]["version"]
    for one in got["figures"]:
        assert one["slug"]
        assert one["lines"] or one["field"]


def test_a_timeline_has_its_bars(page):
    for query in (ONE, SEVERAL):
        got = page.ask("/api/trace", query).json()["timeline"]
        assert got["rows"]
        assert all(
            0.0 <= bar["begin_s"] <= bar["end_s"] <= got["span_s"] * 1.001 for row in got["rows"] for bar in row["bars"]
        )
        assert {bar["kind"] for row in got["rows"] for bar in row["bars"]} <= set(got["kinds"]) | {"other"}


@pytest.mark.parametrize("kind", ["models", "accelerators", "instances", "fabrics", "stacks", "regions"])
def test_the_catalog_is_listed(page, kind):
    from shardmeter.scenario.catalog import catalog_of

    rows = page.ask("/api/catalog", {"kind": kind}).json()["rows"]
    assert [one["name"] for one in rows] == list(catalog_of(None).names(kind))
    assert all(one["line"] for one in rows)


def test_the_form_speaks_of_keys_that_are_known(page):
    from shardmeter.ui.state import KEYS

    form = page.ask("/api/schema").json()
    assert [one["key"] for one in form["fields"] if one["key"] not in KEYS] == []
    assert all(one["label"] and one["help"] for one in form["fields"])
    assert set(form["keys"]) == {one["key"] for one in form["fields"]}
    assert "torchtitan" in {one["name"] for one in form["formats"]}


def test_a_placeholder_is_an_answer(page):
    form = page.ask("/api/schema").json()
    query = {one["key"]: one["placeholder"] for one in form["fields"]}
    query |= {"set": "fleet.wan.default.egress=$0.02/GB"}  # a budget needs every price
    assert page.ask("/api/numbers", query).status == 200


def test_examples_are_listed_and_open(page):
    for one in page.ask("/api/examples").json()["examples"]:
        assert one["line"]
        assert page.ask("/api/numbers", {"example": one["name"]}).status == 200, one["name"]


def test_downloads(page):
    scenario = page.ask("/download/scenario.yaml", ONE)
    assert scenario.headers["content-disposition"] == 'attachment; filename="scenario.yaml"'
    from shardmeter.scenario import load
    from shardmeter.study.predict import predict

    step = page.ask("/api/numbers", ONE).json()["step_time_s"]
    assert predict(load(scenario.body.decode())).step_time == step
    assert json.loads(page.ask("/download/answer.json", ONE).body)["step_time_s"] == step
    assert str(step) in page.ask("/download/answer.csv", ONE).body.decode()
    assert page.ask("/download/answer.csv", ONE | {"view": "returns"}).body.decode().count("\n") > 3
    assert page.ask("/download/figure-timeline.svg", ONE).body.startswith(b"<svg")
    assert page.ask("/download/launch", ONE | {"format": "torchtitan", "global_batch": "512"}).status == 200
    script = page.ask("/download/launch", ONE | {"format": "slurm", "trainer": "torchtitan", "global_batch": "512"})
    names = zipfile.ZipFile(io.BytesIO(script.body)).namelist()
    assert len(names) > 1
    assert page.ask("/download/launch", ONE).json()["error"]["violations"][0]["field"] == "format"
    assert page.ask("/download/nothing", ONE).status == 422


def test_a_figure_is_drawn_where_it_can_be(page):
    found = page.ask("/download/figure-ledger.svg", ONE)
    if page.ask("/api/schema").json()["svg"]:
        assert b"<svg" in found.body[:600]
    else:
        assert found.status == 501
        assert "matplotlib" in found.says()
    assert page.ask("/download/figure-nothing.svg", ONE).status == 422


def test_plotly_is_the_installed_one(page):
    from shardmeter.ui.files import plotly_file

    plain = page.ask("/vendor/plotly.min.js")
    assert plain.body == plotly_file().read_bytes()
    packed = page.ask("/vendor/plotly.min.js", headers={"Accept-Encoding": "gzip"})
    import gzip

    assert gzip.decompress(packed.body) == plain.body
    assert len(packed.body) < len(plain.body) / 2
    assert page.ask("/vendor/plotly.min.js", headers={"If-None-Match": plain.headers["etag"]}).status == 304


def test_a_refusal_lists_all_with_fields(page):
    found = page.ask("/api/predict", {"model": "lama-3.1-8b", "gpus": "64xH100", "plan": "fsdq,tp=3", "seq": "abc"})
    assert found.status == 422
    violations = found.json()["error"]["violations"]
    assert {"model", "plan", "seq"} <= {one["key"] for one in violations}
    assert all(one["says"] for one in violations)
    alone = page.ask("/api/predict", ONE | {"model": "lama-3.1-8b"}).json()["error"]["violations"][0]
    assert alone["key"] == "model"
    assert "llama-3.1-8b" in alone["values"]


def test_plan_auto_is_answered_by_those_who_have_the_time(page):
    found = page.ask("/api/predict", {"model": "llama-3.1-8b", "gpus": "8xH100-SXM5-80GB", "plan": "auto"})
    assert found.status == 200
    assert any("plan auto" in line for line in found.json()["data"]["assumptions"])


def test_a_search_ends_with_plans_that_are_states(page):
    query = (
        "model=llama-3.1-8b&gpus=16xH100-SXM5-80GB&objective=time&top=5&set=plan.tp%3D1,2&set=plan.micro_batch%3D1,2"
    )
    started = page.ask("/api/search", method="POST", body=query, headers={"X-Client": "ends"})
    assert started.status == 202
    found = wait_for(page, started.json()["job"])
    assert found["state"] == "done", found
    result = found["result"]
    assert found["done"] == found["total"]
    assert [one["slug"] for one in result["figures"]] == ["front"]
    points = result["figures"][0]["lines"][0]
    for at, (one, row) in enumerate(zip(result["plans"], result["data"]["plans"], strict=True)):
        again = page.ask("/api/numbers", one["state"]).json()
        assert again["step_time_s"] == row["step_time_s"] == points["y"][at]
        assert again["peak_gib"] == row["memory_peak_gib"] == points["x"][at]
        assert again["fits"] == row["fits"]


def test_a_search_of_islands_ends_with_states_too(page):
    query = {
        "model": "llama-3.1-8b",
        "gpus": "8xH100-SXM5-80GB",
        "islands": 2,
        "bandwidth": "100 Gbps",
        "rtt": "5 ms",
        "set": "plan.tp=1,2",
    }
    started = page.ask("/api/search", method="POST", body=urlencode(query), headers={"X-Client": "islands"})
    found = wait_for(page, started.json()["job"], 120.0)
    assert found["state"] == "done", found
    for one, row in zip(found["result"]["plans"], found["result"]["data"]["plans"], strict=True):
        assert page.ask("/api/numbers", one["state"]).json()["tokens_per_s"] == pytest.approx(
            row["tokens_per_s"], rel=1e-9
        )


def test_what_cannot_be_searched_fails_with_its_violations(page):
    started = page.ask(
        "/api/search", method="POST", body="model=nobody&gpus=8xH100-SXM5-80GB", headers={"X-Client": "fails"}
    )
    found = wait_for(page, started.json()["job"])
    assert found["state"] == "failed"
    assert "nobody" in found["error"]["violations"][0]["says"]
    assert page.ask("/api/search", method="POST", body="modl=x").status == 422


def alive(pid):
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def test_a_search_of_a_hundred_million_plans_is_gone_within_a_second(page):
    before = page.children()
    body = urlencode(LARGE | {"set": OPEN}, doseq=True)
    started = page.ask("/api/search", method="POST", body=body, headers={"X-Client": "large"})
    assert started.status == 202
    name, until = started.json()["job"], time.monotonic() + 60.0
    while True:
        found = page.ask(f"/api/search/{name}").json()
        if found["total"] or found["state"] != "running" or time.monotonic() > until:
            break
        time.sleep(0.1)
    assert found["state"] == "running", found
    assert found["total"] >= 1e8, f"{found['total']:,} plans are too few to be a test"
    mine = page.children() - before
    assert len(mine) == 1
    again = page.ask("/api/search", method="POST", body=body, headers={"X-Client": "large"})
    assert again.status == 409
    began = time.monotonic()
    cancelled = page.ask(f"/api/search/{name}", method="DELETE")
    took = time.monotonic() - began
    print(f"\n{found['total']:,} plans, {found['rate']:,.0f} a second; cancelled after {took * 1e3:.0f} ms")
    assert cancelled.json()["state"] == "cancelled"
    assert not any(alive(one) for one in mine)
    assert took < 1.0
    assert page.ask(f"/api/search/{name}").json()["result"] is None
    assert page.ask("/api/search/none").status == 404


def test_who_goes_away_ends_the_work(page):
    """A question that takes long, a client that closes: the next one is answered, and nothing is left running."""
    import socket

    slow = urlencode(
        {
            "model": "llama-3.1-8b",
            "gpus": "512xH100-SXM5-80GB",
            "plan": "auto",
            "set": ["plan.micro_batch=1..256", "plan.schedule=any"],
        },
        doseq=True,
    )
    for _ in range(6):
        with socket.create_connection(("127.0.0.1", page.port)) as one:
            one.sendall(f"GET /api/predict?{slow} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            time.sleep(0.3)
    began = time.monotonic()
    assert page.ask("/api/returns", ONE | {"tokens": "7T"}).status == 200
    print(f"\nanswered {1e3 * (time.monotonic() - began):.0f} ms after six went away")
    assert time.monotonic() - began < 6.0


def test_a_server_that_is_killed_leaves_no_process(serving):
    with serving(killed=True) as page:
        page.ask(
            "/api/search",
            method="POST",
            body=urlencode(LARGE | {"set": OPEN}, doseq=True),
            headers={"X-Client": "left"},
        )
        time.sleep(1.0)
        below = page.children()
        assert len(below) >= 4
        os.kill(page.pid, signal.SIGKILL)
        until = time.monotonic() + 20.0
        while any(map(alive, below)) and time.monotonic() < until:
            time.sleep(0.1)
        assert not [one for one in below if alive(one)]


def test_twenty_clients_at_once(page):
    """Two hundred requests as pages send them: mostly sliders' numbers, some predictions, none of them remembered."""
    import random

    took: dict[str, list[float]] = {"numbers": [], "predict": []}
    errors: list[tuple[int, bytes]] = []

    def client(number):
        rng = random.Random(number)
        for turn in range(10):
            view = "predict" if (turn + number) % 5 == 0 else "numbers"
            query = ONE | {
                "gpus": f"{8 * rng.randint(8, 64)}xH100-SXM5-80GB",
                "tokens": f"{rng.randint(1, 10**6)}M",
                "seq": rng.choice((2048, 4096)),
            }
            if turn % 2:
                query |= {
                    "islands": rng.randint(2, 8),
                    "bandwidth": f"{rng.randint(1, 100)} Gbps",
                    "rtt": "40 ms",
                    "method": "diloco",
                }
            began = time.perf_counter()
            found = page.ask(f"/api/{view}", urlencode(query), headers={"X-Client": f"client-{number}"})
            took[view].append(time.perf_counter() - began)
            if found.status != 200 or found.json()["cached"]:
                errors.append((found.status, found.body[:200]))

    alone = os.getloadavg()[0] < 0.5 * cores()
    threads = [threading.Thread(target=client, args=(number,)) for number in range(20)]
    began = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    whole = time.perf_counter() - began
    every = sorted([*took["numbers"], *took["predict"]])
    print(
        f"\n{len(every)} requests in {whole:.1f} s; p50 {1e3 * every[99]:.0f} ms, p99 {1e3 * every[197]:.0f} ms, most {1e3 * every[-1]:.0f} ms"
    )
    for view, times in took.items():
        print(
            f"  {view}: p50 {1e3 * sorted(times)[len(times) // 2]:.0f} ms, most {1e3 * max(times):.0f} ms of {len(times)}"
        )
    assert not errors
    assert every[197] < (0.5 if alone else 10.0), (
        f"p99 {every[197]:.2f} s, on a machine with {'nothing' if alone else 'much'} else to do"
    )


def test_a_worker_that_was_ended_while_idle_is_not_asked(serving):
    """Whoever asks next gets an answer, not the news."""
    with serving(killed=True) as own:
        for one in own.children():
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGKILL)
        time.sleep(0.5)
        for tokens in ("1T", "2T", "3T"):
            assert own.ask("/api/numbers", ONE | {"tokens": tokens}).status == 200


def test_an_address_that_nobody_can_be_told_is_an_error():
    """Standard output takes nothing: one sentence, and no server."""
    if absent() or not Path("/dev/full").exists():
        pytest.skip("needs the page's packages and /dev/full")
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "shardmeter", "ui", "--no-open", "--port", "0"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert found.returncode == 74
    assert "cannot be written" in found.stderr
    assert "Traceback" not in found.stderr

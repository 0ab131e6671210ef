"""Methods of synchronisation that are asked for wrongly: everything at once, and ways out that lead out when they are followed."""

from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario

HOMES = {"islands": [{"name": "home", "gpus": "1xRTX 4090", "count": 6}], "wan": {"default": {"preset": "home-cable"}}}
BOX = {"islands": [{"name": "box", "gpus": "1xRTX 4090"}]}


def asked(fleet: dict[str, Any], **sync: Any) -> dict[str, Any]:
    plan = {"sharding": "none", "micro_batch": 2, "sync": sync}
    return {"model": "gpt2", "fleet": fleet, "plan": plan, "run": {"seq_len": 512, "global_batch": 96}}


def told(document: dict[str, Any]) -> str:
    with pytest.raises(BadScenario) as caught:
        shardmeter.predict(document)
    return str(caught.value)


@pytest.mark.parametrize(
    ("sync", "way_out", "says"),
    [
        ({"method": "mezo", "perturbations": 5, "together": 3}, {"together": 2}, "2 or 5, which divides them"),
        ({"method": "spsa", "perturbations": 5, "together": 64}, {"together": 10}, "10, which divides them"),
        ({"method": "eggroll", "perturbations": 7}, {"perturbations": 6}, "perturbations: 6 or 8, or global_batch: 98"),
        ({"method": "eggroll"}, {"perturbations": 96}, "perturbations: 96, or global_batch: 1024"),
        ({"method": "block_train", "blocks": 7}, {"blocks": 6}, "6 or fewer"),
        ({"method": "dipaco"}, {"levels": 1}, "4 islands or 9 islands"),
    ],
)
def test_a_way_out_leads_out(sync, way_out, says):
    assert says in told(asked(HOMES, **sync))
    assert shardmeter.predict(asked(HOMES, **(sync | way_out))).fits


@pytest.mark.parametrize("batch", [98, 1024])
def test_a_batch_for_a_population_is_one_for_the_islands_too(batch):
    document = asked(HOMES, method="eggroll", perturbations=7 if batch == 98 else 1024)
    assert shardmeter.predict(document, overrides=[f"run.global_batch={batch}"]).fits


def test_everything_wrong_at_once():
    says = told(asked(HOMES, method="soma", experts=5, perturbations=4, together=3))
    assert "5 experts, but 6 islands" in says
    assert "together = 3 of the 8 passes" in says


def test_one_island_is_one():
    assert "2 blocks, but 1 island: a block without one is not trained; 1" in told(
        asked(BOX, method="block_train", blocks=2)
    )


@pytest.mark.parametrize(
    ("sync", "joins"),
    [
        ({"method": "mezo"}, "joins whole islands by their losses"),
        ({"method": "block_train", "blocks": 2}, "trains its parts apart"),
    ],
)
def test_no_axis_crosses_islands_of_a_method_with_an_inner_step_of_its_own(sync, joins):
    document = asked(HOMES, **sync)
    document["plan"]["placement"] = {"dp_replicate": ["home-1", "home-2"]}
    assert joins in told(document)


@pytest.mark.parametrize(("field", "value"), [("topology", "ring"), ("hierarchical", False), ("split", "equal")])
def test_what_one_island_has_no_use_for_is_said(field, value):
    warnings = shardmeter.predict(asked(BOX, method="mezo", **{field: value})).to_dict()["warnings"]
    assert f"plan.sync.{field} changes nothing: there is one island" in warnings
    assert not [
        text for text in shardmeter.predict(asked(BOX, method="mezo")).to_dict()["warnings"] if "plan.sync" in text
    ]


@pytest.mark.parametrize(
    ("sync", "field", "values", "legal"),
    [
        ({"method": "block_train"}, "blocks", [1, 2, 100], [True, False, False]),
        ({"method": "mezo"}, "bits", [1, 16], [False, True]),
        ({"method": "noloco"}, "topology", ["ring", "auto"], [False, True]),
        ({"method": "streaming_diloco"}, "num_fragments", [13, 12], [False, True]),
        ({"method": "demo"}, "fragment_sync_delay", [0, 1, 2], [True, True, False]),
        ({"method": "soma", "perturbations": 4}, "together", [1, 3, 8], [True, False, True]),
    ],
)
def test_a_sweep_on_one_island_holds_every_value_to_the_method(sync, field, values, legal):
    rows = shardmeter.sweep(asked(BOX, **sync), {f"plan.sync.{field}": values}).to_dict()["rows"]
    assert [row["status"].startswith(("ok", "fits")) for row in rows] == legal
    for row, value in zip(rows, values, strict=True):
        assert row["status"] == "ok" or f"{field} = {value}" in row["status"] or f"{value} blocks" in row["status"]


def test_a_sweep_over_methods_that_teach_something_else_says_so(capsys, tmp_path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(
        "model: qwen2.5-0.5b\n"
        "fleet: {islands: [{name: a, gpus: 1xRTX 4090, count: 3}], wan: {default: {preset: home-cable}}}\n"
        "plan: {sharding: none, micro_batch: 1, recompute: full}\n"
        "run: {seq_len: 1024, global_batch: 12, tokens: 1B}\n",
        encoding="utf-8",
    )
    assert main(["sweep", str(path), "--over", "plan.sync.method=diloco,btm,mezo", "--columns", "tokens_per_s"]) == 0
    assert "branch_train_merge, mezo do not train one model by backpropagation" in capsys.readouterr().err
    assert main(["sweep", str(path), "--over", "plan.sync.method=diloco,local_sgd", "--columns", "tokens_per_s"]) == 0
    assert "backpropagation" not in capsys.readouterr().err


@pytest.mark.parametrize("said", [None, "adamw"])
def test_a_method_that_brings_its_own_optimizer_is_charged_for_it_unless_another_is_named(said):
    def asked(method):
        return shardmeter.predict(
            {
                "model": "llama-3.2-1b",
                "fleet": {
                    "islands": [{"name": "a", "gpus": "8xH100-SXM5-80GB", "count": 2}],
                    "wan": {"default": {"bandwidth": "1 Gbit/s", "rtt": "30 ms"}},
                },
                "plan": {"sync": {"method": method}, **({"optimizer": said} if said else {})},
                "run": {"seq_len": 2048, "global_batch": 16},
            }
        ).to_dict()

    def state(answer):
        return next(term["gib"] for term in answer["memory"]["terms"] if term["term"] == "optimizer state")

    demo, usual = asked("demo"), asked("every_step")
    taken = any(text.startswith("optimizer sgd (of demo") for text in demo["assumptions"])
    assert taken == (said is None)
    moments = 8 * usual["model"]["parameters"] / 8 / 2**30
    assert state(usual) - state(demo) == pytest.approx(0.0 if said else moments / 2)


@pytest.mark.parametrize(("method", "parts"), [("block_train", 3), ("diloco", 1)])
def test_the_page_says_how_tokens_of_blocks_add_up(method, parts):
    sync = {"method": method, **({"blocks": parts} if parts > 1 else {})}
    found = shardmeter.predict(asked(HOMES, **sync))
    answer = found.to_dict()
    assert answer["sync"]["parts"] == parts
    assert sum(one["tokens_per_s"] for one in answer["islands"]) == pytest.approx(parts * answer["tokens_per_s"])
    said = f"Each of the {parts} blocks sees every token"
    assert (said in str(found)) == (parts > 1)

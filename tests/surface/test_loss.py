"""The loss of a run: its terms add, a target is reached, phases add, what is wrong is refused with the numbers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardmeter
from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.physics.convergence import law_loss

ONE: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp,micro_batch=1"}
SMALL: dict[str, Any] = {
    "family": "decoder", "layers": 24, "hidden": 2048, "ffn": 8192, "heads": 16, "kv_heads": 16, "head_dim": 128,
    "vocab": 32000, "context": 2048, "tied": True,
}  # fmt: skip
ISLAND: dict[str, Any] = {"accelerator": "H100-SXM5-80GB", "nodes": 1, "gpus_per_node": 8, "price": "$2.10/gpu/h"}
TWO: dict[str, Any] = {
    "model": SMALL,
    "fleet": {
        "islands": [{"name": "a", **ISLAND}, {"name": "b", **ISLAND}],
        "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms", "egress": "$0.02/GB"}},
    },
    "plan": {"sharding": "fsdp", "micro_batch": 8, "sync": {"method": "diloco", "sync_every": 100}},
}
SIZE = 512


def answer(base, **run):
    batch = {"global_batch": SIZE, "seq_len": 2048} if base is TWO else {}
    return shardmeter.predict({**base, "run": {**batch, **run}}).to_dict()


def refused(base, **run):
    with pytest.raises(BadScenario) as caught:
        shardmeter.predict({**base, "run": run})
    return str(caught.value)


@pytest.mark.parametrize("base", [ONE, TWO], ids=["one island", "two"])
@pytest.mark.parametrize("law", ["besiroglu-2024", "kaplan-2020", "muennighoff-2023"])
def test_what_counts_adds_to_the_loss(base, law):
    run = answer(base, tokens="300B", law=law, critical_batch="zhang-2024")["run"]
    assert math.fsum(one["nats"] for one in run["loss_terms"] if one["counted"]) == pytest.approx(
        run["loss"], rel=1e-12
    )
    assert all(one["source"] for one in run["loss_terms"])


def test_without_a_law_there_is_no_loss_and_nothing_else_moves():
    bare, asked = answer(ONE, tokens="300B"), answer(ONE, tokens="300B", law="chinchilla")
    assert bare["run"]["loss"] is None
    assert "loss_terms" not in bare["run"]
    assert {key: asked["run"][key] for key in ("wall_clock_s", "tokens", "steps")} == {
        key: bare["run"][key] for key in ("wall_clock_s", "tokens", "steps")
    }


@pytest.mark.parametrize("base", [ONE, TWO], ids=["one island", "two"])
@pytest.mark.parametrize("critical", ["none", "zhang-2024", "kaplan-2020"])
def test_the_tokens_of_a_target_reach_it(base, critical):
    asked = answer(base, target_loss=2.5, law="muennighoff-2023", critical_batch=critical)["run"]
    assert asked["loss"] == pytest.approx(2.5, rel=1e-9)
    back = answer(base, tokens=f"{round(asked['tokens'])}", law="muennighoff-2023", critical_batch=critical)["run"]
    assert back["loss"] == pytest.approx(2.5, rel=1e-6)
    assert back["wall_clock_s"] == pytest.approx(asked["wall_clock_s"], rel=1e-6)


def test_a_lower_target_a_larger_batch_and_longer_rounds_take_more_tokens():
    def tokens(base, **run):
        return answer(base, law="muennighoff-2023", **run)["run"]["tokens"]

    assert tokens(ONE, target_loss=2.3) > tokens(ONE, target_loss=2.4)
    assert tokens(ONE, target_loss=2.4, global_batch=4096) > tokens(ONE, target_loss=2.4, global_batch=256)
    longer = {**TWO, "plan": {**TWO["plan"], "sync": {"method": "diloco", "sync_every": 500}}}
    assert tokens(longer, target_loss=2.6, global_batch=SIZE, seq_len=2048) > tokens(TWO, target_loss=2.6)


def test_guesses_count_where_they_are_asked():
    late = {
        **TWO,
        "plan": {**TWO["plan"], "sync": {"method": "streaming_diloco", "sync_every": 100, "fragment_sync_delay": 50}},
    }
    runs = [
        answer(late, tokens="30B", law="muennighoff-2023", global_batch=SIZE, seq_len=2048, loss_guesses=asked)
        for asked in (False, True)
    ]
    without, with_them = (one["run"] for one in runs)
    assert with_them["loss"] - without["loss"] == pytest.approx(0.03)
    assert any("are a guess" in text for text in runs[0]["warnings"])
    assert not any("are a guess" in text for text in runs[1]["warnings"])


def test_an_extrapolation_is_said():
    found = answer(ONE, tokens="15T", law="besiroglu-2024", critical_batch="zhang-2024")
    assert [one for one in found["warnings"] if "15T tokens: besiroglu-2024 was fitted on 5B to 500B" in one]
    assert [one for one in found["warnings"] if "zhang-2024 was fitted on" in one]
    other = answer(ONE, tokens="1T", law="charles-2025")["warnings"]
    assert [one for one in other if "says nothing of others" in one]


def test_of_experts_those_that_a_token_passes_are_counted():
    found = answer(
        {"model": "mixtral-8x7b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp"}, tokens="1T", law="besiroglu-2024"
    )
    assert found["run"]["law"]["parameters"] == found["model"]["active_parameters"] < found["model"]["parameters"]
    assert [one for one in found["warnings"] if "which is a guess" in one]


def test_a_law_without_embeddings_leaves_them_out():
    found = answer(TWO, tokens="20B", law="kaplan-2020")
    assert found["run"]["law"]["parameters"] == found["model"]["parameters"] - 32000 * 2048  # tied: one matrix


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ({**ONE, "model": "clip-vit-l-14-image"}, "family"),
        ({**ONE, "plan": "fsdp,trainable=lora(r=16)"}, "trained whole"),
    ],
)
def test_what_no_law_is_of_has_no_loss(base, why):
    found = answer(base, tokens="1B", law="besiroglu-2024")
    assert found["run"]["loss"] is None
    assert [one for one in found["warnings"] if "the loss is null" in one and why in one]


def with_method(**sync):
    return {
        **TWO,
        "plan": {**TWO["plan"], "sync": sync},
        "run": {"global_batch": SIZE, "seq_len": 2048, "law": "muennighoff-2023"},
    }


@pytest.mark.parametrize("method", ["branch_train_merge", "mezo", "powersgd"])
def test_of_what_nothing_is_known_the_loss_is_null(method):
    scenario = with_method(method=method)
    found = shardmeter.predict({**scenario, "run": {**scenario["run"], "tokens": "1B"}}).to_dict()
    assert found["run"]["loss"] is None
    assert [one for one in found["warnings"] if one.startswith("the loss is null")]
    target = shardmeter.predict({**scenario, "run": {**scenario["run"], "target_loss": 2.6}}).to_dict()
    assert target["run"] is None
    assert [one for one in target["warnings"] if one.startswith("the run is null")]


def test_the_optimum_of_as_many_flops_is_no_worse():
    run = answer(ONE, tokens="15T", law="besiroglu-2024")["run"]
    best = run["law"]["optimum"]
    assert best["parameters"] * best["tokens"] == pytest.approx(run["law"]["parameters"] * run["tokens"])
    assert best["loss"] < run["loss"]


# phases


def test_a_run_of_one_phase_is_the_run():
    plain, phased = (
        answer(ONE, tokens="100B", global_batch=256),
        answer(ONE, phases=[{"tokens": "100B", "global_batch": 256}]),
    )
    for key in ("wall_clock_s", "gpu_hours", "tokens", "steps"):
        assert phased["run"][key] == pytest.approx(plain["run"][key], rel=1e-12)
    assert phased["step_time_s"] == plain["step_time_s"]


def test_splitting_a_phase_changes_nothing():
    whole = answer(TWO, phases=[{"tokens": "30B", "global_batch": 256}, {"tokens": "70B"}])["run"]
    parts = answer(
        TWO, phases=[{"tokens": "10B", "global_batch": 256}, {"tokens": "20B", "global_batch": 256}, {"tokens": "70B"}]
    )
    for key in ("wall_clock_s", "gpu_hours", "tokens", "steps", "cost_usd"):
        assert parts["run"][key] == pytest.approx(whole[key], rel=1e-9)


def test_every_phase_is_priced_by_the_engine():
    run = answer(
        ONE, phases=[{"tokens": "10B", "global_batch": 128, "seq_len": 4096}, {"tokens": "90B", "global_batch": 512}]
    )["run"]
    alone = answer(ONE, tokens="10B", global_batch=128, seq_len=4096)
    assert run["phases"][0]["step_time_s"] == alone["step_time_s"]
    assert run["phases"][0]["seconds"] == pytest.approx(alone["run"]["wall_clock_s"])
    assert run["wall_clock_s"] == pytest.approx(sum(one["seconds"] for one in run["phases"]))


def test_a_phase_that_does_not_fit_is_said():
    long = {**ONE, "plan": "fsdp,micro_batch=4"}
    found = answer(
        long,
        phases=[
            {"tokens": "10B", "global_batch": 256, "seq_len": 32768},
            {"tokens": "1B", "global_batch": 256, "seq_len": 1024},
        ],
    )
    assert [one["fits"] for one in found["run"]["phases"]] == [False, True]
    assert [one for one in found["warnings"] if one.startswith("phase 1 does not fit")]


# what is beyond a law


def by_term(run):
    return {one["term"]: one for one in run["loss_terms"]}


def test_a_term_beyond_the_fit_says_so_in_the_table():
    run = by_term(answer(ONE, tokens="15T", law="besiroglu-2024")["run"])
    assert run["irreducible"]["basis"] == run["8.03B parameters"]["basis"] == "published"
    assert run["15T tokens"]["basis"] == "extrapolated"
    assert "fitted on 5B to 500B" in run["15T tokens"]["text"]
    assert {one["basis"] for one in by_term(answer(ONE, tokens="300B", law="besiroglu-2024")["run"]).values()} == {
        "published"
    }


def test_a_law_of_one_ratio_has_no_term_of_the_tokens():
    found = answer(ONE, tokens="1.5T", law="charles-2025")
    (only,) = found["run"]["loss_terms"]
    assert only["nats"] == pytest.approx(found["run"]["loss"])
    assert only["basis"] == "extrapolated"
    for text in ("at 20 tokens each", "1.5T tokens: charles-2025 was fitted on", "187 tokens a parameter"):
        assert text in only["term"] + only["text"]


def test_an_extrapolation_is_warned_of_once():
    said = answer(ONE, tokens="15T", law="besiroglu-2024")["warnings"]
    assert len([one for one in said if "15T tokens: besiroglu-2024 was fitted on" in one]) == 1


def test_a_target_lists_what_other_laws_make_of_it():
    run = answer(ONE, target_loss=2.1)["run"]
    others = {one["name"]: one for one in run["other_laws"]}
    assert {"hoffmann-2022", "muennighoff-2023"} <= set(others)
    assert not {"besiroglu-2024", "charles-2025"} & set(others)
    for name, one in others.items():
        own = answer(ONE, target_loss=2.1, law=name)["run"]
        assert one["tokens"] == pytest.approx(own["tokens"])
        assert one["wall_clock_s"] == pytest.approx(own["wall_clock_s"])
    assert others["muennighoff-2023"]["tokens"] > 4.0 * run["tokens"]
    assert others["muennighoff-2023"]["outside"]
    assert "other_laws" not in answer(ONE, tokens="1T", law="besiroglu-2024")["run"]


def test_the_page_has_one_line_of_other_laws():
    page = str(shardmeter.predict({**ONE, "run": {"target_loss": 2.1}}))
    (line,) = (line for line in page.splitlines() if line.strip().startswith("other laws"))
    assert " to 2.48T tokens" in line


def test_a_target_above_guessing_is_refused_with_the_number():
    text = refused(ONE, target_loss=12)
    for said in ("12 nats/token is more than guessing", "ln(128,256 words) = 11.76", "a target below 11.76"):
        assert said in text
    assert answer(ONE, target_loss=11.7, critical_batch="none")["run"]["tokens"] > 0.0


# a law of one's own


def table(folder: Path, rows, header="parameters,tokens,loss") -> str:
    path = folder / "runs.csv"
    path.write_text("\n".join((header, *(",".join(map(str, row)) for row in rows))) + "\n", encoding="utf-8")
    return str(path)


def runs(noise: float = 0.0):
    """Losses of E = 1.7, A = 300, α = 0.33, B = 900, β = 0.34."""
    rng = np.random.default_rng(1)
    for n in (1e8, 4e8, 1.6e9, 6.4e9):
        for d in (2e9, 1e10, 5e10, 2.5e11):
            yield (
                n,
                d,
                float(law_loss(n, d, 1.7, 300.0, 0.33, 900.0, 0.34, 1.0)) * math.exp(noise * rng.standard_normal()),
            )


def test_a_law_is_recovered_from_its_own_losses(tmp_path):
    run = answer(ONE, tokens="200B", law=table(tmp_path, runs()))
    assert run["run"]["loss"] == pytest.approx(
        float(law_loss(8.03e9, 2e11, 1.7, 300.0, 0.33, 900.0, 0.34, 1.0)), abs=2e-3
    )
    assert run["run"]["law"]["source"].startswith("fitted to 16 rows")


def test_the_interval_of_a_fitted_law_holds_the_truth_and_carries_into_the_tokens(tmp_path):
    found = answer(ONE, target_loss=2.15, law=table(tmp_path, runs(0.004)), critical_batch="none")
    truth = (900.0 / (2.15 - 1.7 - 300.0 / 8.03e9**0.33)) ** (1.0 / 0.34)
    low, high = found["intervals"]["run_tokens"]
    assert low < truth < high
    assert low < found["run"]["tokens"] < high
    low, high = found["intervals"]["loss"]
    assert low < 2.15 < high


def test_five_rows_keep_the_exponents_of_the_catalog(tmp_path):
    rows = [row for at, row in enumerate(runs()) if at in (0, 3, 5, 10, 15)]
    assert any(
        "exponents those of besiroglu-2024" in one
        for one in answer(ONE, tokens="1T", law=table(tmp_path, rows))["assumptions"]
    )


def test_a_table_that_is_no_table_says_everything_that_is_wrong(tmp_path):
    text = refused(ONE, tokens="1T", law=table(tmp_path, [(1e9, "many", 2.0), (1e9, 1e10, -1)]))
    assert "runs.csv:2: tokens" in text
    assert "runs.csv:3: loss" in text
    few = refused(ONE, tokens="1T", law=table(tmp_path, [(1e9, 1e10, 2.5), (1e9, 2e10, 2.4)]))
    assert "2 rows" in few
    assert "1 different parameters" in few
    assert "no column tokens" in refused(ONE, tokens="1T", law=table(tmp_path, [(1, 2)], "parameters,loss"))
    assert "absent.csv" in refused(ONE, tokens="1T", law="absent.csv")


def test_a_table_is_found_beside_its_scenario_and_from_elsewhere(tmp_path):
    from shardmeter.scenario.catalog import load_catalog
    from shardmeter.scenario.named import named_files, rooted

    table(tmp_path, runs())
    data = {**ONE, "run": {"tokens": "1T", "law": "runs.csv"}}
    assert list(named_files(data, tmp_path, load_catalog())) == [("runs.csv", tmp_path / "runs.csv")]
    assert rooted(data, tmp_path, load_catalog())["run"]["law"] == str((tmp_path / "runs.csv").resolve())
    file = tmp_path / "run.yaml"
    file.write_text(
        "model: llama-3.1-8b\ngpus: 64xH100-SXM5-80GB\nplan: fsdp\nrun: {tokens: 1T, law: runs.csv}\n", encoding="utf-8"
    )
    assert shardmeter.predict(str(file)).to_dict()["run"]["loss"] > 1.7


def test_a_catalog_of_ones_own_has_laws(tmp_path):
    head = "name,irreducible,a,alpha,b,beta,data,parameters_least,parameters_most,tokens_least,tokens_most,source\n"
    (tmp_path / "laws.csv").write_text(f"{head}ours,1.7,300,0.33,900,0.34,web,1M,1T,1M,100T,ours\n", encoding="utf-8")
    scenario = {**ONE, "run": {"tokens": "200B", "law": "ours"}}
    found = shardmeter.predict(scenario, catalog=str(tmp_path)).to_dict()
    assert found["run"]["loss"] == pytest.approx(
        float(law_loss(8.03e9, 2e11, 1.7, 300.0, 0.33, 900.0, 0.34, 1.0)), abs=1e-4
    )
    assert found["run"]["law"]["outside"] == []


# refused


def test_a_loss_below_the_irreducible_term_names_it_and_the_way_out():
    text = refused(ONE, target_loss=1.9)
    assert "E + A/N^α = 1.8172 + 0.173 = 1.99" in text
    assert "more than 66.9B parameters" in text
    assert "more than" not in refused(ONE, target_loss=1.8)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"target_loss": -1}, "target_loss"),
        ({"target_loss": 0}, "0 makes no sense"),
        ({"target_loss": 2.5, "tokens": "1T"}, "say the length of the run too"),
        ({"target_loss": 2.5, "law": "charles-2025"}, "says nothing of tokens"),
        ({"phases": []}, "no phases"),
        ({"phases": [{"global_batch": 64}]}, "every phase says its tokens"),
        ({"phases": [{"tokens": "1B"}, {"tokens": "2B"}], "tokens": "4B"}, "the phases add to 3e+09"),
        ({"phases": [{"tokens": "-1B"}]}, "tokens"),
        ({"phases": [{"tokens": "1B", "global_batch": 65}]}, "run.phases.0.global_batch"),
        ({"phases": [{"tokens": "1B"}], "steps": 10}, "keep one of the two"),
    ],
)
def test_what_makes_no_sense_is_refused(run, says):
    assert says in refused(ONE, **run)


def test_an_unknown_law_lists_the_nearest():
    with pytest.raises(UnknownName, match="besiroglu-2024"):
        answer(ONE, tokens="1T", law="besiroglu")


def test_a_planner_refuses_a_loss_that_no_data_reaches_or_no_law_tells():
    with pytest.raises(BadScenario, match="is not reached with any data"):
        shardmeter.plan({**ONE, "plan": "auto", "run": {"target_loss": 1.5}})
    with pytest.raises(BadScenario, match="laws of loss are of models that are trained whole"):
        shardmeter.plan({**ONE, "plan": "auto,trainable=lora(r=16)", "run": {"target_loss": 2.2}})


def test_a_planner_of_phases_has_one_batch():
    run = {"phases": [{"tokens": "1B"}], "global_batch": [64, 128]}
    with pytest.raises(BadScenario, match="phases have batches and sequences of their own, and global_batch are open"):
        shardmeter.plan({**ONE, "plan": "auto", "run": run})
    with pytest.raises(BadScenario, match="each of which shares every batch anew"):
        shardmeter.plan({**TWO, "plan": "auto", "run": {"phases": [{"tokens": "1B"}], "global_batch": 64}})


@pytest.mark.parametrize(
    "run",
    [{"target_loss": 2.2}, {"phases": [{"tokens": "1B", "global_batch": 64}, {"tokens": "2B"}]}],
    ids=["target", "phases"],
)
def test_a_sweep_has_the_run_that_predict_has(run):
    asked = {**ONE, "run": {**run, "failures": "llama-3-405b"}}
    names = ("run.wall_clock_s", "run.tokens", "run.goodput", "run.energy_kwh")
    found = shardmeter.sweep(asked, {"run.global_batch": [64, 128]}, columns=names)
    for row in found.rows():
        alone = shardmeter.predict(asked, overrides={"run.global_batch": row["run.global_batch"]}).to_dict()["run"]
        assert {name: row[name] for name in names} == {name: alone[name.removeprefix("run.")] for name in names}

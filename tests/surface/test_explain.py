"""`explain --term`: one term of the ledger or of memory, with its calls, its count and its sources."""

import json
from pathlib import Path

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.formula import formula, trace, under
from shardmeter.study.explain import SHARED, citations
from shardmeter.study.run_terms import run_terms

ROOT = Path(__file__).parents[2]
QUESTION = ["--model", "llama-3.1-8b", "--gpus", "64xH100-SXM5-80GB", "--plan", "fsdp", "--global-batch", "128"]


def explained(capsys, *arguments):
    code = main(["explain", *QUESTION, *arguments, "--format", "json"])
    return code, json.loads(capsys.readouterr().out)


@formula(cite="shardmeter")
def tagged_for_the_test(x: float) -> float:
    """A formula of this test."""
    return x


def test_a_step_knows_its_term():
    with trace() as steps:
        tagged_for_the_test(1.0)
        with under("outer"):
            tagged_for_the_test(2.0)
            with under("inner"):
                tagged_for_the_test(3.0)
            tagged_for_the_test(4.0)
    assert [step.term for step in steps] == ["", "outer", "inner", "outer"]


def test_a_tag_costs_nothing_and_stays_nowhere_without_a_trace():
    assert under("a") is under("b")
    with under("a"), trace() as steps:
        tagged_for_the_test(1.0)
    assert [step.term for step in steps] == [""]


def test_an_exception_closes_the_term():
    with trace() as steps:
        with pytest.raises(ZeroDivisionError), under("a"):
            raise ZeroDivisionError
        tagged_for_the_test(1.0)
    assert steps[0].term == ""


def test_terms_are_seconds_times_count():
    found = shardmeter.explain(
        shardmeter.load(
            None, options={"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "global_batch": 128}
        )
    )
    rows = found.terms()
    assert [row["term"] for row in rows] == [term.label for term in found.prediction.estimate.terms]
    for row in rows:
        assert row["each_s"] * row["count"] == pytest.approx(row["seconds"])
    assert {row["term"]: row["count"] for row in rows}["matrix products"] == 2
    assert {row["term"]: row["count"] for row in rows}["optimizer"] == 1


def test_a_term_of_the_ledger(capsys):
    code, data = explained(capsys, "--term", "parameter gather")
    assert code == 0
    assert [row["term"] for row in data["terms"]] == ["parameter gather"]
    assert data["steps"]
    assert {call["formula"] for call in data["steps"]} <= {
        "members_inside",
        "shard_traffic",
        "tier_time",
        "ring_steps",
        "tree_latency",
        "wire_time",
    }


@pytest.mark.parametrize("plan", ["fsdp,recompute=selective", "zero1,tp=8,pp=4", "zero2,tp=2,pp=2", "ddp,tp=8"])
def test_the_count_is_how_often_a_step_has_it(plan):
    """What is said to be once a step, or once a micro-batch, is so: more micro-batches change only the count."""
    question = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": plan}
    rows = [
        shardmeter.explain(shardmeter.load(None, options={**question, "global_batch": batch})).terms()
        for batch in (256, 512)
    ]
    for one, other in zip(*rows, strict=True):
        assert one["term"] == other["term"]
        if one["term"] != "contention":  # zero2: of the gather once, of the reduction after every micro-batch
            assert other["each_s"] == pytest.approx(one["each_s"], rel=1e-9), one["term"]


def test_every_call_belongs_to_a_term_or_to_several():
    found = shardmeter.explain(shardmeter.load(None, options={"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB"}))
    labels = {term.label for term in found.prediction.estimate.terms}
    shared = {name for names in SHARED.values() for name in names}
    assert {step.term for step in found.steps if step.term} <= labels
    assert {step.formula for step in found.steps if not step.term} <= shared


def test_a_term_of_memory(capsys):
    assert main(["explain", *QUESTION, "--term", "gathered units"]) == 0
    out = capsys.readouterr().out
    assert "gathered units" in out
    assert "GiB" in out


def test_a_formula(capsys):
    _, data = explained(capsys, "--term", "gemm_time")
    assert {call["formula"] for call in data["steps"]} == {"gemm_time"}
    assert data["terms"] == []


def test_an_unknown_term_lists_the_terms(capsys):
    assert main(["explain", *QUESTION, "--term", "no such term"]) == 2
    err = capsys.readouterr().err
    assert "parameter gather" in err
    assert "activations" in err
    assert "gemm_time" in err


def test_every_citation_is_resolved(capsys):
    _, data = explained(capsys)
    assert set(data["citations"]) == {call["cite"] for call in data["steps"]}
    assert all(source["title"] and source["year"] for source in data["citations"].values())
    assert set(data["citations"]) <= set(citations())
    main(["explain", *QUESTION])
    sources = capsys.readouterr().out.partition("\nSources\n")[2]
    assert "[mamf] Bekman: " in sources


FORMULAS = {
    "matrix products": ("gemm_time",),
    "core attention": ("flash_attention_time",),
    "memory-bound kernels": ("traffic_time",),
    "recompute": ("gemm_time", "flash_attention_time", "traffic_time"),
}


@pytest.mark.parametrize("term", FORMULAS)
@pytest.mark.parametrize(
    ("model", "plan"),
    [
        ("llama-3.1-8b", "fsdp,recompute=full"),
        ("llama-3.1-8b", "fsdp,recompute=every-2"),
        ("llama-3.1-8b", "fsdp,pp=4,recompute=3-of-8"),
        ("llama-3.1-8b", "fsdp,pp=4,schedule=dualpipe,recompute=full"),
        ("mixtral-8x7b", "fsdp,tp=2,recompute=full"),
        ("gemma-2-9b", "fsdp,recompute=full"),
    ],
)
def test_calls_times_pieces_times_count_are_the_term(model, plan, term):
    """The arithmetic of the page: value × times × pieces × portion, summed, × count = exposed."""
    found = shardmeter.explain(model=model, gpus="64xH100-SXM5-80GB", plan=plan, global_batch=512)
    row = next(row for row in found.terms() if row["term"] == term)
    calls = [step for step in found.of((term,)) if step.formula in FORMULAS[term]]
    assert calls
    total = sum(float(step.value) * (step.pieces or 0.0) * step.portion for step in calls)
    assert total * row["count"] == pytest.approx(row["seconds"], rel=1e-9)


def test_the_page_says_of_how_many_layers_a_call_is(capsys):
    assert main(["explain", *QUESTION, "--term", "core attention"]) == 0
    out = capsys.readouterr().out
    assert "×32 layers" in out
    assert "says of how many" in " ".join(out.split())
    main(["explain", *QUESTION, "--term", "recompute", "--set", "plan.recompute=every-2"])
    assert "×16 of 32 layers" in capsys.readouterr().out


def test_json_has_the_pieces_of_a_call(capsys):
    _, data = explained(capsys, "--term", "matrix products")
    pieces = {call["block"]: call["pieces"] for call in data["steps"] if call["block"]}
    assert pieces == {"layer": 32, "head": 1}


def test_a_reference_has_layers_of_its_own():
    overrides = ["run.reference=llama-3.2-1b"]
    found = shardmeter.explain(model="llama-3.1-8b", gpus="8xH100-SXM5-80GB", overrides=overrides)
    counts = {(step.term == "reference model", step.block): step.pieces for step in found.steps}
    assert counts[True, "layer"] == 16
    assert counts[False, "layer"] == 32


HOMES = {
    "model": "qwen2.5-0.5b", "run": {"seq_len": 512, "global_batch": 8},
    "fleet": {"islands": [{"name": "home", "gpus": "1xRTX 4090", "count": 4}], "wan": {"default": {"preset": "home-cable"}}},
}  # fmt: skip


@pytest.fixture
def homes(tmp_path):
    """A file with four homes under a method, with what else its `sync` says."""

    def written(**sync):
        file = tmp_path / "homes.yaml"
        file.write_text(json.dumps({**HOMES, "plan": {"sharding": "none", "sync": sync}}), encoding="utf-8")
        return str(file)

    return written


def test_the_loss_of_a_method_has_its_formula_its_source_and_its_basis(capsys, homes):
    assert main(["explain", homes(method="diloco", sync_every=30), "--term", "loss", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (call,) = data["steps"]
    assert call["formula"] == "loss_growth"
    assert 1.0 < call["value"] < 1.05
    assert data["sync"]["loss_effect"]["factor"] == call["value"]
    assert set(data["citations"]) == {"charles2025"}
    main(["explain", homes(method="diloco", sync_every=30), "--term", "loss"])
    assert "published: between measured runs" in capsys.readouterr().out


def test_of_a_loss_that_no_formula_gives_the_page_says_what_is_known(capsys, homes):
    assert main(["explain", homes(method="mezo"), "--term", "loss"]) == 0
    out = capsys.readouterr().out
    assert "no formula" in out
    assert "How it learns" in out
    assert "Sources" in out


def test_the_variance_of_a_gradient_has_its_formula(capsys, homes):
    assert main(["explain", homes(method="mezo"), "--term", "variance", "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (call,) = data["steps"]
    assert call["formula"] == "spsa_variance"
    assert call["value"] == data["zero_order"]["variance"]


def test_a_term_without_seconds_or_formulas_is_no_empty_page(capsys, homes):
    assert main(["explain", homes(method="soma"), "--term", "losses of the probes"]) == 2
    assert "takes no time in this run" in capsys.readouterr().err
    assert main(["explain", *QUESTION, "--term", "loss"]) == 2


MONEY = ["examples/three-clouds-money.yaml", "examples/unreliable-diloco.yaml", "examples/target-loss.yaml"]


@pytest.mark.parametrize("scenario", MONEY)
def test_every_term_of_a_whole_run_is_found_with_its_page(capsys, scenario):
    path = str(ROOT / scenario)
    main(["predict", path, "--format", "json"])
    run = json.loads(capsys.readouterr().out)["run"]
    names = [
        (key, entry["term"]) for key in ("hours", "cost_terms", "energy", "loss_terms") for entry in run.get(key) or ()
    ]
    assert len(names) > 5
    found = shardmeter.predict(path).to_dict()
    for key, name in names:
        assert any(entry["term"] == name for entry in run_terms(found, name)[key])
    assert main(["explain", path, "--term", names[-1][1], "--format", "json"]) == 0
    assert names[-1] in {(one["ledger"], one["term"]) for one in json.loads(capsys.readouterr().out)["run_terms"]}
    assert main(["explain", path, "--term", names[0][1]]) == 0
    page = capsys.readouterr().out
    assert "how it is counted: docs/" in page


@pytest.mark.parametrize(
    ("term", "says"),
    [
        ("lost work", "'lost work' of run.hours, which this run does not have: run.failures"),
        ("restrats", "'restarts' of run.hours"),
        ("acelerators", "'accelerators' of run.cost_terms"),
        ("halls", "'halls' of run.energy"),
    ],
)
def test_a_term_that_a_run_does_not_have_points_to_the_nearest_and_its_page(capsys, term, says):
    assert main(["explain", *QUESTION, "--term", term]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert "docs/" in said


def test_a_formula_is_headed_by_a_whole_sentence(request, monkeypatch, capsys):
    """A first sentence that takes two lines of a docstring is not cut after the first."""
    monkeypatch.chdir(request.config.rootpath)
    assert main(["explain", "examples/llama-8b-64xh100.yaml"]) == 0
    page = capsys.readouterr().out
    flat = " ".join(page.split())
    assert (
        "at most the peak (or what the best measured shape reached, on parts that clock above their listed boost)"
        in flat
    )
    heads = [line for line in page.splitlines() if line.startswith(("host_time: ", "matmul_rate: "))]
    assert len(heads) == 2
    assert not any("`" in line for line in heads)

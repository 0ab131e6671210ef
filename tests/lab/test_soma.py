"""SOMA: a router made from text alone, experts that learn apart, and what they answer together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmeter.lab import router
from shardmeter.lab.text import Text

TOPICS = (b"apple pear plum cherry fruit tree", b"wheel motor brake gear car road", b"star moon planet orbit sky sun")


def texts(count: Any = 60) -> Any:
    draw = np.random.default_rng(0)
    return [b" ".join(draw.choice(TOPICS[at % 3].split(), 12)) for at in range(count)]


def test_texts_on_one_topic_come_together() -> None:
    routes, chosen = router.trained(texts(), 3, 0)
    groups = [set(chosen[topic::3].tolist()) for topic in range(3)]
    assert [len(one) for one in groups] == [1, 1, 1]
    assert set.union(*groups) == {0, 1, 2}
    new = router.nearness(routes, [b"the moon and a planet", b"a gear, a brake"])
    assert np.argmax(new, axis=1).tolist() == [groups[2].pop(), groups[1].pop()]


def test_a_text_of_unknown_words_is_as_near_to_all() -> None:
    routes, _ = router.trained(texts(), 3, 0)
    assert np.allclose(router.nearness(routes, [b""]), 0.0)


@pytest.mark.parametrize("experts", [1, 2, 3, 7])
def test_clusters_are_equally_large(experts: Any) -> None:
    pieces = [bytes(one) for one in Text(32, 0).train[: 512 * 100].reshape(100, 512)]
    _, chosen = router.trained(pieces, experts, 0)
    sizes = np.bincount(chosen, minlength=experts)
    assert sizes.sum() == 100
    assert sizes.max() <= -(-100 // experts)


def test_every_worker_makes_the_same_router() -> None:
    one, other = (router.trained(texts(), 3, 5) for _ in range(2))
    assert np.array_equal(one[1], other[1])
    assert np.array_equal(one[0].centres, other[0].centres)


def test_balance_costs_those_least_who_mind_least() -> None:
    near = np.array([[0.9, 0.1], [0.8, 0.7], [0.85, 0.2], [0.6, 0.5]])
    assert router.balanced(near).tolist() == [0, 1, 0, 1]


def test_clusters_found_are_closer_than_drawn_ones() -> None:
    pieces = [bytes(one) for one in Text(32, 0).train[: 512 * 200].reshape(200, 512)]
    routes, chosen = router.trained(pieces, 4, 0)
    near = router.nearness(routes, pieces)
    own = near[np.arange(200), chosen].mean()
    assert own > near.mean() + 0.05
    with pytest.raises(ValueError, match="3 experts for 2 texts"):
        router.trained(texts(2), 3, 0)


# ---- in PyTorch -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Any:
    """Three experts, briefly."""
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import expert, run

    return run(tmp_path_factory.mktemp("soma"), "soma", islands=3, model=expert(), **LEARNING)


LEARNING: dict[str, Any] = {
    "rounds": 1, "batch": 8, "learning_rate": 0.02,
    "settings": {"steps": 60, "perturbations": 8, "together": 16, "samples": 400},
}  # fmt: skip


def evaluated(log: Any, what: Any) -> Any:
    return [line["loss"] for line in log if line["event"] == "eval" and line["what"] == what]


@pytest.mark.torch
def test_every_expert_learns_its_own_text(whole: Any) -> None:
    for rank, log in enumerate(whole):
        before, after = evaluated(log, f"expert {rank}, all")
        assert before == pytest.approx(np.log(256.0), abs=0.05)
        assert after < before - 0.4
        losses = [line["loss"] for line in log if line["event"] == "step"]
        assert len(losses) == 63
        assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.4


@pytest.mark.torch
def test_a_round_is_a_step_and_nothing_crosses(whole: Any) -> None:
    for log in whole:
        assert [line["round"] for line in log if line["event"] == "round"] == list(range(-1, 60))
        assert not [line for line in log if line["event"] == "sync"]


@pytest.mark.torch
def test_the_ensemble_is_evaluated_beside_its_references(whole: Any) -> None:
    before, after = evaluated(whole[0], "held-out")
    assert after < before - 0.4
    (best,) = evaluated(whole[0], "ensemble top-3")
    assert after == best
    assert evaluated(whole[0], "ensemble top-1")[0] > 0.0
    (probed,), (descended,) = (evaluated(whole[0], f"reference{how}") for how in ("", " by backpropagation"))
    assert descended < probed < before
    mean = np.mean([evaluated(log, f"expert {rank}, all")[1] for rank, log in enumerate(whole)])
    assert after < mean, "a mixture loses no more than its members do in the mean"


@pytest.mark.torch
def test_the_variance_of_experts_apart_is_measured(whole: Any) -> None:
    (figure,) = [line for line in whole[0] if line["event"] == "figure"]
    assert figure["name"] == "variance_ratio"
    assert figure["expected"] == pytest.approx(1.0 / 3.0, rel=1e-3)
    assert abs(figure["value"] - figure["expected"]) < 4.0 * figure["error"]
    assert figure["error"] < 0.1 * figure["expected"]


@pytest.mark.torch
def test_an_expert_that_is_gone_is_named_and_the_others_answer(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import expert, killed

    settings = LEARNING["settings"] | {"steps": 25, "reference": False, "samples": 0}
    codes, logs = killed(tmp_path, "soma", 0, 10, islands=3, model=expert(), **(LEARNING | {"settings": settings}))
    assert codes == [-9, 0, 0]
    lost = [line for line in logs[1] if line["event"] == "lost"]
    assert "expert 0" in lost[0]["says"]
    assert "island a" in lost[0]["says"]
    assert evaluated(logs[1], "held-out")
    assert not evaluated(logs[2], "held-out"), "one worker evaluates"


@pytest.mark.torch
def test_the_reference_is_as_large_as_all_experts() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import expert

    from shardmeter.lab.methods.soma import trained_parameters, widened

    for times in (2, 4, 8):
        wide = widened(expert(), times)
        assert trained_parameters(wide) == pytest.approx(times * trained_parameters(expert()), rel=0.05)


@pytest.mark.torch
def test_what_soma_cannot_train_is_said_at_once(tmp_path: Any) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    from lab_runs import refused

    says = refused(tmp_path, "soma", islands=2, workers=2)
    assert "kind: lstm" in says
    assert "workers: 1" in says

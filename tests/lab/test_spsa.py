"""Gradients from losses alone: how noisy they are, drawn and measured; copies of an LSTM side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmeter.lab.variance import spread
from shardmeter.physics import zero_order


def quadratics(experts: Any, size: Any, seed: Any = 0) -> Any:
    draw = np.random.default_rng(seed)
    roots = draw.normal(size=(experts, size, size))
    return np.einsum("kij,klj->kil", roots, roots) / size, draw.normal(size=(experts, size))


def probed(experts: Any, size: Any, samples: Any, step: Any = 1e-2) -> Any:
    """Slopes and z·g of quadratics of their own, by really evaluating both sides; and the estimates themselves."""
    curves, lines = quadratics(experts, size)
    draw = np.random.default_rng(1)
    signs, at = draw.choice([-1.0, 1.0], size=(samples, experts, size)), draw.normal(size=(experts, size))

    def loss(points: Any) -> Any:
        return 0.5 * np.einsum("ski,kij,skj->sk", points, curves, points) + np.einsum("ski,ki->sk", points, lines)

    slopes = (loss(at + step * signs) - loss(at - step * signs)) / (2.0 * step)
    gradients = np.einsum("kij,kj->ki", curves, at) + lines
    return slopes, np.einsum("ski,ki->sk", signs, gradients), gradients, signs


@pytest.mark.parametrize("experts", [2, 4, 8])
def test_experts_apart_have_an_nth_of_the_variance(experts: Any) -> None:
    size, samples = 40, 20_000
    slopes, along, gradients, _ = probed(experts, size, samples)
    found: Any = spread(slopes, along, np.sum(gradients**2, axis=1), np.full(experts, float(size)))
    whole = experts * size
    assert found.expected == pytest.approx((whole - experts) / (experts * (whole - 1.0)))
    assert abs(found.value - found.expected) < 4.0 * found.error
    assert 0.0 < found.error < 0.03 / experts
    assert found.together == pytest.approx(zero_order.spsa_variance(whole, 1.0), rel=0.05)
    assert found.apart == pytest.approx(size - 1.0, rel=0.05)


def test_squared_errors_are_those_of_the_estimates() -> None:
    slopes, along, gradients, signs = probed(3, 10, 50)
    found = spread(slopes, along, np.sum(gradients**2, axis=1), np.full(3, 10.0))
    square = np.sum(gradients**2)
    apart = np.sum((slopes[:, :, None] * signs - gradients) ** 2, axis=(1, 2)).mean() / square
    together = np.sum((slopes.sum(axis=1)[:, None, None] * signs - gradients) ** 2, axis=(1, 2)).mean() / square
    assert (found.apart, found.together) == pytest.approx((apart, together))
    assert found.value == pytest.approx(apart / together)


def test_the_error_is_what_repeats_scatter_by() -> None:
    repeats: list[Any] = []
    slopes, along, gradients, _ = probed(4, 20, 40_000)
    squares = np.sum(gradients**2, axis=1)
    for part in range(100):
        rows = slice(400 * part, 400 * (part + 1))
        repeats.append(spread(slopes[rows], along[rows], squares, np.full(4, 20.0)))
    scatter = np.std([one.value for one in repeats])
    assert np.mean([one.error for one in repeats]) == pytest.approx(scatter, rel=0.25)


def test_one_probe_has_no_error() -> None:
    with pytest.raises(ValueError, match="1 probes"):
        spread(np.ones((1, 2)), np.ones((1, 2)), np.ones(2), np.ones(2))


# ---- in PyTorch -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def parts() -> Any:
    pytest.importorskip("torch", reason="needs PyTorch")
    from shardmeter.lab import spsa
    from shardmeter.lab.records import Shape
    from shardmeter.lab.text import Text

    shape = Shape(name="expert", layers=2, hidden=8, seq_len=12, kind="lstm")
    return spsa, shape, Text(12, 0).windows(0, 0, 3)


@pytest.mark.torch
def test_copies_side_by_side_lose_what_the_module_does(parts: Any) -> None:
    import torch

    from shardmeter.lab.models import SPREAD, build

    spsa, shape, (tokens, targets) = parts
    first: Any = build(shape, 3)
    copies = torch.stack([spsa.begun(shape, seed) for seed in (3, 4, 5)])
    with torch.no_grad():
        losses = spsa.losses_of(shape, spsa.embedding_of(shape, 3), tokens, targets)(copies)
    for seed, loss in zip((3, 4, 5), losses, strict=True):
        model: Any = build(shape, seed)
        with torch.no_grad():
            model.embedding.tokens.weight.copy_(first.embedding.tokens.weight * (spsa.EMBEDDING / SPREAD))
            assert float(loss) == pytest.approx(float(model(tokens, targets)), abs=1e-5)


@pytest.mark.torch
def test_the_mean_of_many_estimates_is_the_gradient(parts: Any) -> None:
    import torch

    spsa, shape, batch = parts
    losses, at = spsa.losses_of(shape, spsa.embedding_of(shape, 0), *batch), spsa.begun(shape, 0)
    true = spsa.gradient(losses, at)
    draw, size, probes = torch.Generator().manual_seed(0), at.numel(), 6400
    mean = (
        sum(spsa.estimate(losses, at, spsa.signs(64, size, draw), 1e-2, 128)[0] for _ in range(probes // 64))
        * 64
        / probes
    )
    error = float(((mean - true) ** 2).sum() / (true**2).sum())
    assert error == pytest.approx(zero_order.spsa_variance(size, probes), rel=0.15)
    cosine = float(mean @ true / mean.norm() / true.norm())
    assert cosine == pytest.approx((1.0 + error) ** -0.5, abs=0.05)


@pytest.mark.torch
@pytest.mark.parametrize("together", [1, 4, 16])
def test_passes_side_by_side_change_nothing(parts: Any, together: Any) -> None:
    import torch

    spsa, shape, batch = parts
    losses, at = spsa.losses_of(shape, spsa.embedding_of(shape, 0), *batch), spsa.begun(shape, 0)
    signs = spsa.signs(8, at.numel(), torch.Generator().manual_seed(0))
    found, loss = spsa.estimate(losses, at, signs, 1e-2, together)
    usual, same = spsa.estimate(losses, at, signs, 1e-2, 16)
    assert torch.allclose(found, usual, atol=1e-3)
    assert loss == pytest.approx(same, abs=1e-5)


@pytest.mark.torch
def test_both_sides_see_the_same(parts: Any) -> None:
    """The slope along a direction is that of the gradient to second order: no noise of the batch is in it."""
    import torch

    spsa, shape, batch = parts
    losses, at = spsa.losses_of(shape, spsa.embedding_of(shape, 0), *batch), spsa.begun(shape, 0)
    directions = spsa.signs(16, at.numel(), torch.Generator().manual_seed(1))
    slopes, _ = spsa.slopes(losses, at, directions, 5e-3, 32)
    assert torch.allclose(slopes, directions @ spsa.gradient(losses, at), atol=2e-2)

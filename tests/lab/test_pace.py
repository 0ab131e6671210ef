"""Small models in PyTorch, and blocks that last what a pace says."""

from __future__ import annotations

import statistics
import time

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

from shardmeter.lab import models, shapes  # noqa: E402
from shardmeter.lab.pace import Pace  # noqa: E402
from shardmeter.lab.records import Shape  # noqa: E402
from shardmeter.lab.text import Text  # noqa: E402

pytestmark = pytest.mark.torch
DECODER = Shape(name="decoder", layers=4, hidden=128)
LSTM = Shape(name="lstm", layers=2, hidden=64, kind="lstm")


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def step(model, text, batch=8):
    loss = model(*text.windows(0, 0, batch))
    loss.backward()
    return loss


@pytest.mark.parametrize("shape", [DECODER, LSTM], ids=lambda one: one.kind)
def test_a_model_has_the_parameters_that_are_counted(shape):
    model = models.build(shape, 0)
    assert sum(one.numel() for one in model.parameters()) == shapes.parameters(shape)
    assert sum(one.numel() for one in model.layers[0].parameters()) == shapes.layer_parameters(shape)
    assert sum(one.numel() for one in model.get_submodule("embedding").parameters()) == shapes.embedding_parameters(
        shape
    )


def test_parts_begin_as_the_whole_does_and_give_what_it_gives():
    whole = models.build(DECODER, 7)
    first = models.build(DECODER, 7, layers=range(2), head=False)
    second = models.build(DECODER, 7, layers=range(2, 4), embedding=False)
    tokens, _ = Text(64, 0).windows(0, 0, 2)
    assert torch.equal(second(first(tokens)), whole(tokens))
    assert not torch.equal(models.build(DECODER, 8)(tokens), whole(tokens))


@pytest.mark.parametrize("shape", [DECODER, LSTM], ids=lambda one: one.kind)
def test_a_pace_changes_no_bit_of_loss_or_gradients(shape):
    text = Text(shape.seq_len, 0)
    plain, paced = models.build(shape, 0), models.build(shape, 0, Pace(2e9))
    assert step(plain, text).item() == step(paced, text).item()
    for (name, one), other in zip(plain.named_parameters(), paced.parameters(), strict=True):
        assert torch.equal(one.grad, other.grad), name


def test_a_paced_step_lasts_what_its_flops_take():
    """Forward and backward; the fastest of some steps, as another process may hold up any of them."""
    text, pace = Text(64, 0), Pace(3e9)
    model = models.build(DECODER, 0, pace)
    expected = 3.0 * shapes.forward_flops(DECODER, 8) / 3e9
    found = []
    for _ in range(6):
        pace.restart()
        start = time.monotonic()
        step(model, text)
        found.append(time.monotonic() - start)
    assert statistics.median(found) == pytest.approx(expected, rel=0.03)


def test_a_pace_that_is_off_waits_for_nothing():
    pace = Pace(1e6)
    pace.off = True
    model = models.build(DECODER, 0, pace)
    start = time.monotonic()
    with torch.no_grad():
        model(*Text(64, 0).held_out(4))
    assert time.monotonic() - start < 2.0


def test_gradients_of_a_block_are_whole_when_its_time_is_nearly_over():
    """After the first step it is known how long a backward computes: the wait comes before it."""
    text, pace = Text(64, 0), Pace(1e9)
    model, late = models.build(DECODER, 0, pace), []
    began: list[float] = []
    model.layers[2].register_full_backward_hook(lambda *_: began.append(time.monotonic()))
    model.layers[1].qkv.weight.register_hook(lambda _: late.append(time.monotonic() - began[-1]))
    for _ in range(3):
        pace.restart()
        step(model, text)
    expected = 2.0 * shapes.layer_flops(DECODER, 8) / 1e9
    assert late[-1] > 0.75 * expected
    assert late[0] < late[-1]

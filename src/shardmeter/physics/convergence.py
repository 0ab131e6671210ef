"""What a run must see to learn so much: laws of loss, the batch beyond which steps stop saving tokens.

A law is L(N, D) = E + (A/N^α + B/D^β)^γ: γ = 1 is that of Hoffmann (2022); E = 0, β = 1, γ = α_D is that of Kaplan (2020), with
A = N_c^α, α = α_N/α_D and B = D_c. Its constants belong to a data set and a tokenizer (`data/laws.csv`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Flop, Nats, Number, Ratio

ROUNDS = 60
"""Times that `least_tokens` is put into itself: an error shrinks each time to the power with which the critical batch grows with tokens: less than
half by a law of tokens, 0.6 by a law of the loss at 1B tokens, and less beyond."""


@formula(cite="hoffmann2022")
def law_loss(
    parameters: Count, tokens: Count, irreducible: Nats, a: Ratio, alpha: Ratio, b: Ratio, beta: Ratio, gamma: Ratio
) -> Nats:
    """Loss of a model of so many parameters that saw so many tokens once: E + (A/N^α + B/D^β)^γ.

    Leaves out: repeated data, data and tokenizers other than those of the fit, schedules that end too early."""
    return irreducible + (a / parameters**alpha + b / tokens**beta) ** gamma


@formula(cite="hoffmann2022")
def law_floor(parameters: Count, irreducible: Nats, a: Ratio, alpha: Ratio, gamma: Ratio) -> Nats:
    """Loss that a model of so many parameters nears with endless data: E + (A/N^α)^γ.

    Leaves out: that no data is endless."""
    return irreducible + (a / parameters**alpha) ** gamma


@formula(cite="hoffmann2022")
def law_room(target: Nats, parameters: Count, irreducible: Nats, a: Ratio, alpha: Ratio, gamma: Ratio) -> Ratio:
    """What a target leaves to the data, (L − E)^(1/γ) − A/N^α: that B/D^β must be; 0 or less where no data is enough.

    Leaves out: that no data is endless."""
    return np.maximum(target - irreducible, 0.0) ** (1.0 / gamma) - a / parameters**alpha


@formula(cite="hoffmann2022")
def law_tokens(room: Ratio, b: Ratio, beta: Ratio) -> Count:
    """Tokens with which B/D^β = `room`: the inverse of the law in D.

    Leaves out: what a batch beyond the critical one adds (`batch_tokens`)."""
    return (b / room) ** (1.0 / beta)


@formula(cite="hoffmann2022")
def optimal_parameters(budget: Flop, each: Flop, a: Ratio, alpha: Ratio, b: Ratio, beta: Ratio) -> Count:
    """Parameters with which a budget of FLOPs, `each` for a parameter and token, reaches the least loss: (αA/βB)^(1/(α+β)) ·
    (C/each)^(β/(α+β)). The tokens are C/(each · N).

    Leaves out: attention's FLOPs, serving the model afterwards."""
    return (alpha * a / (beta * b)) ** (1.0 / (alpha + beta)) * (budget / each) ** (beta / (alpha + beta))


@formula(cite="zhang2024")
def critical_batch_of_tokens(tokens: Count, coefficient: Ratio, exponent: Ratio, overhead: Ratio) -> Count:
    """Critical batch in tokens of a run of so many tokens: c·D^e is the batch at which examples exceed the least by a share
    `overhead`, so that the hyperbola's is that over the share.

    Leaves out: the model's size (none was seen), how it grows during a run."""
    return coefficient * tokens**exponent / overhead


@formula(cite="kaplan2020")
def critical_batch_of_loss(loss: Nats, coefficient: Ratio, exponent: Ratio) -> Count:
    """Critical batch in tokens where the loss is so low: B*·L^(−1/α_B).

    Leaves out: other data and tokenizers than WebText2's."""
    return coefficient * loss ** (-1.0 / exponent)


@formula(cite="mccandlish2018")
def batch_tokens(least: Count, batch: Count, critical: Count) -> Count:
    """Tokens that a batch needs for what the smallest batches reach with `least`: E_min·(1 + B/B_crit).

    Leaves out: learning rates that do not suit the batch."""
    return least * (1.0 + batch / critical)


@formula(cite="mccandlish2018")
def batch_steps(least: Count, batch: Count, critical: Count) -> Count:
    """Steps that a batch needs for what the largest batches reach in `least`: S_min·(1 + B_crit/B).

    Leaves out: learning rates that do not suit the batch."""
    return least * (1.0 + critical / batch)


def least_tokens(parts: Sequence[tuple[Number, Number]], critical: Callable[[Number], Number]) -> Number:
    """Tokens that the smallest batches would need for what these reach: the inverse of `batch_tokens`. `parts` are (tokens, batch in
    tokens), one after the other; `critical` tells the critical batch of a run of so many least tokens. Leaves out: that the
    critical batch is smaller at the beginning, which is what ramps are for."""
    least: Number = plain_sum((tokens for tokens, _ in parts), 0.0)
    for _ in range(ROUNDS):
        limit = critical(least)
        least = plain_sum((tokens / (1.0 + batch / limit) for tokens, batch in parts), 0.0)
    return least

"""Estimates of a gradient from losses alone: their variance, and what a run of them computes.

Variances are relative: of the estimate, over the square of the gradient's norm.
"""

from __future__ import annotations

import numpy as np

from shardmeter.core.formula import formula
from shardmeter.core.units import Count, Flop, Ratio, Seconds


@formula(cite="soma2026")
def spsa_variance(parameters: Count, perturbations: Count) -> Ratio:
    """Relative variance of a mean of two-sided probes along random signs: (d − 1)/n (eq. 3). A probe of a smooth loss gives the
    gradient times its direction squared: on its own coordinate without error, on the d − 1 others as much noise as signal.

    Leaves out: curvature (the third order of the loss), noise of the batch; normal directions have d + 1 in place of d − 1."""
    return (parameters - 1.0) / perturbations


@formula(cite="shardmeter")
def low_rank_variance(parameters: Count, rows: Count, columns: Count, rank: Count, members: Count) -> Ratio:
    """Relative variance of a population's mean with normal factors A·Bᵀ/√r of a rows × columns matrix that holds all of the
    gradient, d parameters perturbed in all: (d + 1 + 2·(rows + columns + 1)/r)/members. Every entry of A·Bᵀ has variance 1 and
    is uncorrelated with the others, so that only fourth moments tell it from a full perturbation (r → ∞: d + 1).

    Leaves out: curvature, shaping of fitness; a gradient spread over several matrices has no more."""
    return (parameters + 1.0 + 2.0 * (rows + columns + 1.0) / rank) / members


@formula(cite="soma2026")
def variance_of_independent(shared: Ratio, experts: Count) -> Ratio:
    """Relative variance where every one of N equal parts of a model is probed by a loss of its own: an N-th of what one loss that all
    share gives of the same probes (eq. 4), as a probe of one part has none of the others' noise.

    Leaves out: what independent parts lose by not seeing each other. Exactly, d − N in place of d − 1."""
    return shared / experts


@formula(cite="soma2026")
def batch_variance(probe: Ratio, sample: Ratio, perturbations: Count, batch: Count) -> Ratio:
    """Relative variance with `perturbations` probes of `batch` samples: a/n + ν/B + a·ν/(n·B) (eq. 17). `probe` (a) is that of one
    probe of the whole loss, `sample` (ν) that of one sample's gradient.

    Leaves out: probes that see unlike samples."""
    return probe / perturbations + sample / batch + probe * sample / (perturbations * batch)


@formula(cite="soma2026")
def best_batch(evaluations: Count, probe: Ratio, sample: Ratio) -> Count:
    """Samples a step at which `batch_variance` is least for n·B = K `evaluations`: √(K·ν/a); the rest goes to probes.

    Leaves out: that both are whole numbers, and what a device prefers."""
    return np.sqrt(evaluations * sample / probe)


@formula(cite="soma2026")
def run_operations(
    length: Count, perturbations: Count, batch: Count, experts: Count, forward: Flop, updates: Count
) -> Flop:
    """FLOPs of a run: 2·T·n·B·N·F·s (eq. 21): two sides of every probe, T tokens of every sequence, `forward` FLOPs a token of
    one expert, `updates` of each.

    Leaves out: the update itself, the router."""
    return 2.0 * length * perturbations * batch * experts * forward * updates


@formula(cite="soma2026")
def most_updates(budget: Flop, update: Flop, deadline: Seconds, lasts: Seconds) -> Count:
    """Updates that both a budget of compute and a deadline leave: ⌊min(C/u, D/τ)⌋ (eq. 6); an update
    takes `update` FLOPs and `lasts` so long.

    Leaves out: start, evaluation, failures."""
    return np.floor(np.minimum(budget / update, deadline / lasts))

"""Which expert reads a text: TF-IDF of its words, their strongest directions, and the nearest of N centres (SOMA, arXiv 2609.37899).

Words are hashed into 4,096 places; counts are damped (log(1 + count)), weighted by how rare a word is, and reduced by a singular value
decomposition to 32 numbers of length 1. Centres are found by spherical k-means, all clusters equally large: pieces choose in the order
of how much their choice matters to them, as long as there is room. All is drawn by a seed, so that every worker makes the same router
from the same text, and nothing crosses. Published are TF-IDF and the decomposition; sizes, equal clusters and the words are ours.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from shardmeter.core.record import record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Places = NDArray[np.int64]

PLACES = 4096
"""Of hashed words."""
DIRECTIONS = 32
TURNS = 50
"""Of k-means at most."""
WORDS = re.compile(rb"[a-z0-9_]+|[^a-z0-9_\s]")


@record
class Router:
    """What was learnt from the texts of training."""

    rarity: Floats
    """By place of a word."""
    basis: Floats
    """Places × directions."""
    centres: Floats
    """Experts × directions, of length 1."""


def trained(texts: Sequence[bytes], experts: int, seed: int) -> tuple[Router, Places]:
    """A router for so many experts, and the expert of every text: equally many of each, but for a rest. Raises ValueError where there
    are fewer texts than experts."""
    if not 1 <= experts <= len(texts):
        raise ValueError(f"{experts} experts for {len(texts)} texts")
    counts = _counts(texts)
    rarity = np.log((1.0 + len(texts)) / (1.0 + np.count_nonzero(counts, axis=0))) + 1.0
    weighted = _long_one(counts * rarity)
    values, vectors = np.linalg.eigh(weighted @ weighted.T)
    kept = np.argsort(values)[::-1][: min(DIRECTIONS, len(texts))]
    kept = kept[values[kept] > 1e-9 * values[kept[0]]]
    basis = weighted.T @ vectors[:, kept] / np.sqrt(values[kept])
    centres, chosen = clustered(_long_one(weighted @ basis), experts, seed)
    return Router(rarity=rarity, basis=basis, centres=centres), chosen


def nearness(router: Router, texts: Sequence[bytes]) -> Floats:
    """Texts × experts: the cosine to every centre. A text without a known word is equally near to all."""
    weighted = _long_one(_counts(texts) * router.rarity)
    near: Floats = _long_one(weighted @ router.basis) @ router.centres.T
    return near


def clustered(points: Floats, clusters: int, seed: int) -> tuple[Floats, Places]:
    """(centres, cluster of every point) by spherical k-means with clusters of equal size; points (n × directions) have length 1. Begins
    with points that lie far from each other (k-means++), and ends when nothing changes, or after 50 turns."""
    draw = np.random.default_rng(seed)
    centres = points[[int(draw.integers(len(points)))]]
    while len(centres) < clusters:
        far = np.maximum(1.0 - np.max(points @ centres.T, axis=1), 0.0)
        weights = far / far.sum() if far.sum() > 0.0 else np.full(len(points), 1.0 / len(points))
        centres = np.vstack([centres, points[int(draw.choice(len(points), p=weights))]])
    chosen = np.full(len(points), -1, dtype=np.int64)
    for _ in range(TURNS):
        before, chosen = chosen, balanced(points @ centres.T)
        if np.array_equal(before, chosen):
            break
        sums = np.stack([points[chosen == at].sum(axis=0) for at in range(clusters)])
        centres = _long_one(sums)
    return centres, chosen


def balanced(near: Floats) -> Places:
    """The cluster of every point (points × clusters: how near), none larger than a part of all rounded up. Who would lose most by the
    second best chooses first.

    Leaves out: the best assignment of all, which this need not be."""
    points, clusters = near.shape
    room = np.full(clusters, -(-points // clusters))
    ranked = np.sort(near, axis=1)
    urgent = ranked[:, -1] - (ranked[:, -2] if clusters > 1 else 0.0)
    chosen = np.zeros(points, dtype=np.int64)
    for point in np.argsort(-urgent, kind="stable"):
        best = next(at for at in np.argsort(-near[point], kind="stable") if room[at] > 0)
        chosen[point] = best
        room[best] -= 1
    return chosen


def _counts(texts: Sequence[bytes]) -> Floats:
    """Texts × places: the logarithm of 1 + how often."""
    counts = np.zeros((len(texts), PLACES))
    for at, text in enumerate(texts):
        places = [zlib.crc32(word) % PLACES for word in WORDS.findall(text.lower())]
        np.add.at(counts[at], places, 1.0)
    found: Floats = np.log1p(counts)
    return found


def _long_one(rows: Floats) -> Floats:
    """Rows of length 1; a row of zeros stays."""
    length = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = rows / np.where(length > 0.0, length, 1.0)
    return scaled

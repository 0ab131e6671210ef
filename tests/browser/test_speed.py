"""How soon what a slider asks is on the screen."""

from __future__ import annotations

import logging
import statistics

import pytest

pytestmark = pytest.mark.browser
QUESTION = "model=llama-3.1-8b&gpus=64xH100-SXM5-80GB&plan=fsdp,recompute=selective&tokens=1T&price=$2.10/gpu/h"
ISLANDS = f"{QUESTION}&islands=3&bandwidth=10 Gbps&rtt=40 ms&method=diloco&sync_every=100&set=fleet.wan.default.egress=$0.02/GB"
BAR_MS = 150.0
ROUNDS = 3
"""Rounds of measuring, of which the best counts, and in it the median: another process of the machine is no fault of the page."""
SLIDERS = ("GPUs per island", "Islands", "Bandwidth between islands", "Steps between syncs (H)", "Global batch")
MOVE = """async ({name, at}) => {
  const input = document.querySelector(`[data-slider="${name}"]`);
  const began = performance.now();
  performance.clearMarks("redrawn");
  input.value = String(at);
  input.dispatchEvent(new Event("input", {bubbles: true}));
  while (!performance.getEntriesByName("redrawn").length) {
    if (performance.now() - began > 5000) return null;
    await new Promise(requestAnimationFrame);
  }
  await new Promise(requestAnimationFrame); // what was written is painted by now
  return performance.now() - began;
}"""


@pytest.mark.parametrize("name", SLIDERS)
def test_a_moved_slider_is_redrawn_within_150_ms(opened, name):
    best = None
    for turn in range(ROUNDS):
        batch = "&global_batch=192" if name == "Global batch" else ""
        page = opened(f"{ISLANDS}&seq={4096 + 512 * turn}{batch}")
        start = int(page.input_value(f'[data-slider="{name}"]'))
        places = [start + off for off in ((1, 2, 3, 4, 5) if name == "Global batch" else (1, 2, 3, -1, -2))]
        before = page.inner_text("#answer")
        took = [page.evaluate(MOVE, {"name": name, "at": at}) for at in places]
        assert None not in took, "no answer"
        assert page.inner_text("#answer") != before
        found = (statistics.median(took), max(took))
        best = min(best or found, found)
        if best[1] < BAR_MS:
            break  # even the slowest
    assert best is not None
    logging.getLogger(__name__).info("%s: median %.0f ms, worst %.0f ms", name, *best)
    assert best[0] < BAR_MS, f"{name}: median {best[0]:.0f} ms, worst {best[1]:.0f} ms"

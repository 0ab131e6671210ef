"""Which pipeline schedule, and what else the kernel notes say that changes the plan."""

from __future__ import annotations

import re

from shardmeter.study.validate.rows import NotModelled, Unclear

SCHEDULE = re.compile(r"(?:schedule|algorithm)[ =:]+([\w .-]+)|;\s*(1f1b)\b", re.IGNORECASE)
ZERO_BUBBLE: dict[str, tuple[str, int]] = {
    "zb-h1": ("zb-h1", 1),
    "zb-1p": ("zb-h1", 1),
    "zb-h2": ("zb-h2", 1),
    "zb-2p": ("zb-2p", 1),
    "zb-v": ("zb-v", 2),
    "zbv": ("zb-v", 2),
    "dualpipe": ("dualpipe", 1),
}
"""Names in the literature → (schedule, virtual stages). ZB-1p is automatic in the memory of 1F1B: the bubble of ZB-H1."""
UNKNOWN_BUBBLE = re.compile(r"zb|zero.?bubble|v-?half|v-?min|dualpipe")
UNMODELLED: tuple[tuple[str, str], ...] = ((r"optimizer in backward", "the optimizer step inside the backward pass"),)
"""What notes may state that this version cannot express."""


def read_schedule(notes: str, pp: float, virtual: float | None) -> tuple[str, int]:
    """(schedule, virtual stages) of a plan with `pp` stages. Without notes: 1F1B, interleaved if chunks are stated."""
    found = SCHEDULE.search(notes.lower())
    word = ((found.group(1) or found.group(2)) if found else "").strip()
    if UNKNOWN_BUBBLE.search(word) and word not in ZERO_BUBBLE:
        raise NotModelled(f"this zero-bubble schedule is not modelled yet: {word}")
    chunks = int(virtual) if virtual else 1
    if pp <= 1.0:
        return "1f1b", 1
    if word in ZERO_BUBBLE:
        return ZERO_BUBBLE[word]
    if "gpipe" in word or "afab" in word:
        return "gpipe", 1
    if "interleaved" in word or word == "1f1b-i":
        if chunks <= 1:
            raise Unclear("the schedule is interleaved, but the virtual stages are not stated")
        return "interleaved", chunks
    if word and not word.startswith("1f1b"):
        raise NotModelled(f"pipeline schedule not known: {word}")
    return ("interleaved", chunks) if chunks > 1 else ("1f1b", 1)


def read_async_tp(notes: str) -> bool:
    """Whether notes say that tensor-parallel collectives pass in chunks behind their products."""
    return bool(re.search(r"async ?tp|async_tp=yes|async tensor|tp-comm-overlap", notes.lower()))


OPTIMIZERS = {"timm-2022": "sgd"}
"""What a stack steps with unless it is told otherwise (timm's benchmark.py: --opt sgd)."""


def read_optimizer(notes: str, stack: str = "") -> str:
    """The word of `Plan.optimizer` that notes name; where they are silent, the stack's own, else AdamW."""
    return "adamw8bit" if re.search(r"8-?bit", notes.lower()) else OPTIMIZERS.get(stack, "adamw")


def check_notes(notes: str) -> None:
    """Refuse, by name, what the notes state and this version cannot express."""
    plain = notes.lower()
    for pattern, what in UNMODELLED:
        if re.search(pattern, plain):
            raise NotModelled(f"{what} is not modelled yet")

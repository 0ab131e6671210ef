"""Rewrites tests/golden/plans.json after a change that is meant, showing what moves: `make bless`; `--check` only compares.

The questions in the file stay; edit them there. Numbers are kept to eight significant digits and compared to 1e-6.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import shardmeter

FILE = Path(__file__).parent.parent / "tests" / "golden" / "plans.json"
TERMS = 3
TOLERANCE = 1e-6
"""Relative; what the file rounds away is far below it."""
DIGITS = 8
Answer = dict[str, Any]


def read() -> list[dict[str, Any]]:
    """The frozen plans: `question` (options of predict) and `answer` each."""
    found: list[dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def answer(question: Mapping[str, Any]) -> Answer:
    """What is kept of a prediction: step time, mfu, peak memory, the largest terms of the ledger."""
    data = shardmeter.predict(**question).to_dict()
    largest = sorted(data["ledger"], key=lambda term: -float(term["seconds"]))[:TERMS]
    return {
        "step_time_s": rounded(data["step_time_s"]),
        "mfu": rounded(data["mfu"]),
        "peak_gib": rounded(data["memory"]["peak_gib"]),
        "terms": {term["term"]: rounded(term["seconds"]) for term in largest},
    }


def rounded(value: float) -> float:
    """As it stands in the file."""
    return float(f"{value:.{DIGITS}g}")


def said(question: Mapping[str, Any]) -> str:
    """A question on one line."""
    return " ".join(str(value) for value in question.values())


def flat(found: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of an answer by name."""
    numbers = {name: value for name, value in found.items() if name != "terms"}
    return numbers | {f"term {name}": value for name, value in found["terms"].items()}


def differences(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What moved between two answers, one line a number: name, before, after, change."""
    before, after = flat(was), flat(now)
    lines = []
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if old is None or new is None:
            lines.append(f"{name:28} {_shown(old)} -> {_shown(new)}")
        elif abs(new - old) > TOLERANCE * abs(old):
            lines.append(f"{name:28} {old:12.6g} -> {new:12.6g}  {100.0 * (new / old - 1.0) if old else 0.0:+.4f} %")
    return lines


def diff(plans: Iterable[Mapping[str, Any]]) -> str:
    """What moved in any plan, as text; empty if nothing did."""
    parts = []
    for plan in plans:
        moved = differences(plan["answer"], answer(plan["question"]))
        if moved:
            parts.append("\n  ".join([said(plan["question"]), *moved]))
    return "\n".join(parts)


def _shown(value: float | None) -> str:
    return f"{'not among the largest' if value is None else format(value, '.6g'):>12}"


def main() -> int:
    """Show what moves and, without `--check`, write it."""
    plans = read()
    moved = diff(plans)
    print(moved or "nothing moves")
    if "--check" in sys.argv[1:]:
        return 1 if moved else 0
    if moved:
        blessed = [{"question": plan["question"], "answer": answer(plan["question"])} for plan in plans]
        lines = ",\n".join(json.dumps(plan) for plan in blessed)
        FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

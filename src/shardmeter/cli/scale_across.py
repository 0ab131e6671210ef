"""`shardmeter plan --scale-across`: placement, schedule and network of several buildings, chosen together."""

from __future__ import annotations

import shlex
from typing import Any

import click

from shardmeter.cli.interrupts import INTERRUPTED, stoppable
from shardmeter.cli.options import command_line, opened
from shardmeter.cli.output import say, warn, write
from shardmeter.cli.pictures import draw, drawable
from shardmeter.cli.progress import counter, took
from shardmeter.cli.saving import savable, save
from shardmeter.core.errors import BadScenario, Violation

OURS = {
    "over": "an axis of several buildings", "buildings": "how the GPUs are divided", "plot": "pictures of several buildings",
}  # fmt: skip
"""Options of `plan` that only a search across buildings takes, each with what it is."""
OTHERS = {
    "objective": "a step is compared by its seconds alone", "deadline": "a step is compared, not a run",
    "budget": "a step is compared, not a run", "top": "every point has one best of each kind",
    "processes": "the search is one process",
}  # fmt: skip
"""Those that it does not take, each with why."""


MAPPED = 2
"""Distances of the smallest picture."""


def refuse_misplaced(scale_across: bool) -> None:
    """Refuse options that do not go with what is asked. Raises BadScenario with all of them."""
    context = click.get_current_context()
    refused = OTHERS if scale_across else OURS
    found = [
        Violation(
            field="", says=f"--{name}: {why}", way_out="leave it out" if scale_across else "say --scale-across too"
        )
        for name, why in refused.items()
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE
    ]
    if found:
        one = len(found) == 1
        what = f"do{'es' * one} not go with" if scale_across else f"go{'es' * one} only with"
        names = ", ".join(violation.says.partition(":")[0] for violation in found)
        raise BadScenario(f"plan: {names} {what} --scale-across", found)


def plan_across(asked: dict[str, Any]) -> int:
    """The answer to `plan --scale-across`, and its exit code."""
    drawn, saved = drawable(asked["plot"]), savable(asked["save"])
    document, rows = opened(asked)
    from shardmeter.render import scale_across as page
    from shardmeter.scenario.named import rooted
    from shardmeter.study.scale_across import scale_across
    from shardmeter.study.scale_across.cases import asked as asked_about
    from shardmeter.study.scale_across.cases import lined
    from shardmeter.study.scale_across.question import question

    said = asked["buildings"] is None or lined(document)
    document = asked_about(document, asked["buildings"])
    wanted = question(document, rows, asked["over"], said=said)
    with counter("points", shortens=True) as report, stoppable() as stop:
        found = scale_across(document, rows, wanted, progress=report, stop=stop)
    answer = found.to_dict()
    took(answer["space"])
    if drawn and len(wanted.distance) < MAPPED:
        say(
            f"{asked['plot']}: not written, a picture takes two distances or more, as in --over distance='10 km,400 km'"
        )
    elif drawn:
        draw(page.figures(answer), asked["plot"])
    if saved:
        made = page.plan_shown(answer)
        save(None if made is None else rooted(made, document.folder.absolute(), rows), asked["save"])
    warn(answer["warnings"])
    if found.stopped:
        say(f"interrupted: {answer['space']['evaluated']:,} plans were compared")
    told = page.document(
        answer, page.title(found.scenario, answer["question"]), command=_again(asked), saved=asked["save"] or ""
    )
    write(told, asked["output"])
    return INTERRUPTED if found.stopped else 0 if found.fits else 1


def _again(asked: dict[str, Any]) -> str:
    """The question as it is typed in a shell."""
    words = ["--scale-across", *([] if asked["buildings"] is None else ["--buildings", str(asked["buildings"])])]
    for text in asked["over"]:
        words += ["--over", text]
    return f"{command_line('plan', asked, ())} {shlex.join(words)}"

"""`shardmeter explain`: the same prediction with every formula call shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from shardmeter.cli.options import resolve, scenario_options
from shardmeter.cli.output import warn, write
from shardmeter.core.errors import ShardMeterError

if TYPE_CHECKING:
    from shardmeter.render import Document
    from shardmeter.study.explain import Explanation

EPILOG = """Examples:

\b
  shardmeter explain examples/llama-8b-64xh100.yaml
  shardmeter explain examples/llama-8b-64xh100.yaml --term "parameter gather"
  shardmeter explain examples/llama-8b-64xh100.yaml --term gemm_time
  shardmeter explain --model llama-3.1-8b --gpus 8xH100-SXM5-80GB --format csv

Exit code 1 when the plan does not fit, as `predict` has it."""


@click.command(epilog=EPILOG, short_help="How does the number come about? Formulas and sources.")
@scenario_options
@click.option(
    "--term",
    metavar="TEXT",
    default="",
    help="Only one term of the ledger, of memory or of the whole run (its hours, dollars, electricity), what is known of the loss or the variance of the gradient, or the formulas that have "
    "TEXT in their name or arguments.",
)
def explain(term: str, **asked: Any) -> int:
    """Show how the prediction for SCENARIO comes about: each formula call, its numbers and its source."""
    scenario = resolve(asked)
    from shardmeter.study.explain import explain as explanation_of

    found = explanation_of(scenario)
    answer = found.prediction.to_dict()
    warn(answer.get("warnings", ()))
    write(_page(found, answer, term), asked["output"])
    return 0 if answer["fits"] else 1


def _page(found: Explanation, answer: dict[str, Any], term: str) -> Document:
    """The whole trace, one term's part of it, or the formulas that match."""
    from shardmeter.render import explanation
    from shardmeter.render.heading import heading
    from shardmeter.study.explain import citations
    from shardmeter.study.run_terms import elsewhere, named, run_terms

    labels = found.labels(term) if term else ()
    page = explanation.document(
        answer,
        found.of(labels) if labels else found.steps,
        heading(found.prediction.scenario),
        "" if labels else term,
        terms=[row for row in found.terms() if not term or row["term"] in labels],
        memory=[row for row in found.memory() if row["term"] in labels],
        learning=[name for name in found.learning() if not term or name in labels],
        run=run_terms(answer, term) if term else {},
        sources=citations(),
    )
    if not page.flat and not page.sections:
        if labels:
            raise ShardMeterError(
                f"{', '.join(labels)}: takes no time in this run, so that no formula is behind it; `shardmeter explain` without "
                f"--term shows what does"
            )
        own = [*(row["term"] for row in (*found.terms(), *found.memory())), *found.learning(), *named(answer)]
        terms, names = ", ".join(own), ", ".join(sorted({step.formula for step in found.steps}))
        raise ShardMeterError(
            f"nothing of this run is called {term!r}; {elsewhere(answer, term)}; the terms are: {terms}; the formulas: {names}"
        )
    return page

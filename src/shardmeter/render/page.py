"""How an answer prints itself: `print(prediction)` shows the page of the command, without what was assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmeter.render import prediction, terminal
from shardmeter.render.heading import heading

if TYPE_CHECKING:
    from shardmeter.study.predict import Prediction


def page(answer: Prediction) -> str:
    """A prediction as plain text, short: no assumptions, warnings at the end."""
    document = prediction.document(answer.to_dict(), heading(answer.scenario), short=True)
    return terminal.text(document).rstrip("\n")

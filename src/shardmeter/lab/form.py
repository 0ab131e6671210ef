"""The shape of a study file: every key with its unit and range, as scenarios have it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Tag, WithJsonSchema

from shardmeter.core.errors import shown
from shardmeter.scenario.bounds import Bound
from shardmeter.scenario.values import Bandwidth, Duration, Input, Name, Size, number, number_field, refused, said

MOST_WORKERS = 16
"""Processes of one island: a machine has to carry all of them."""
MOST_ISLANDS = 8
KINDS = ("decoder", "lstm")
WORKER, LINE = "worker", "line"
FAULTS = (WORKER, LINE)
NAME, INLINE = "‹name›", "‹inline›"
"""Either way to say a part, as scenarios tell them apart: a step of a place that no reader is shown."""
ENDINGS = (".json", ".yaml", ".md", ".png", ".svg", ".html")
"""Of files that a run or a report writes beside the folders of experiments."""
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

if TYPE_CHECKING:
    Whole: TypeAlias = float
    Workers: TypeAlias = float
    Fraction: TypeAlias = float
    Rate: TypeAlias = float
    Pace: TypeAlias = float
    Seed: TypeAlias = float
else:
    Whole, Workers = number("count", 1, 65536, whole=True), number("count", 1, MOST_WORKERS, whole=True)
    Fraction, Rate = number("fraction", 0.0, 0.5), number("count", 1e-6, 10.0)
    Pace = number_field("flops_rate", Bound(1e6, 1e15))
    Seed = number("count", 0, 2**31, whole=True)


def _folder(value: str) -> str:
    if FOLDER.fullmatch(value):
        return value
    says = f"{shown(value, 40)} is no name of a folder"
    raise refused(
        says, "as in diloco-3", "letters, digits, dots, dashes and underlines, 64 at most, a letter or digit first"
    )


def _of_experiment(value: str) -> str:
    if value.lower().endswith(ENDINGS):
        raise refused(
            f"{shown(value, 40)} is a file of the results",
            f"as in {value.partition('.')[0]}-1",
            "an experiment has a folder",
        )
    return value


Folder: TypeAlias = Annotated[Name, AfterValidator(_folder)]
"""A name that a folder may have."""
Experiment: TypeAlias = Annotated[Folder, AfterValidator(_of_experiment)]
"""The same, beside the files that a study has of its own."""


def _islands(value: Any) -> Any:
    if isinstance(value, list):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_ISLANDS:
        return [{"name": "abcdefgh"[at]} for at in range(value)]
    raise refused(f"{shown(value, 40)} is no number of islands", f"1 to {MOST_ISLANDS}, or a list of {{name: a}}")


def _pair(value: Any) -> Any:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value):
        return tuple(value)
    raise refused(f"{shown(value, 40)} are no two islands", "as in between: [a, c]")


Pair: TypeAlias = Annotated[
    tuple[Name, Name],
    BeforeValidator(_pair),
    WithJsonSchema({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}),
]
"""Names of two islands."""


class ModelForm(Input):
    """A small model."""

    layers: Whole | None = said("Layers.")
    hidden: Whole | None = said("Width.")
    heads: Whole | None = said("Attention heads of a decoder; they divide the width.")
    seq_len: Whole | None = said("Tokens of a sequence; tokens are bytes.")
    kind: str | None = said("decoder or lstm.", words=KINDS)


class LineForm(Input):
    """What joins two islands, each direction by itself."""

    bandwidth: Bandwidth | None = said("Of everything on the wire, headers included.")
    rtt: Duration | None = said("Round trip.")
    jitter: Duration | None = said("Standard deviation of a packet's one-way delay.")
    loss: Fraction | None = said("Share of the packets that is lost.")
    queue: Size | None = said("Bytes that wait at most; what comes beyond is dropped.")
    mtu: Size | None = said("Largest packet, headers included.")


class LinkForm(LineForm):
    """A pair of islands with a line of its own."""

    between: Pair | None = said("Two islands, both directions.")
    line: Name | None = said("A line of the study, whose numbers are taken where none is said here.")


class SiteForm(Input):
    """One island; what it takes alone is kept in a folder of its name."""

    name: Folder | None = said("Its name.")
    workers: Workers | None = said("Processes, one thread each.")
    pace: Pace | None = said("Speed of an emulated accelerator.")


class FaultForm(Input):
    """What breaks."""

    kill: str | None = said("worker or line.", words=FAULTS)
    island: Name | None = said("Whose worker is killed, or all of whose lines are cut.")
    between: Pair | None = said("The islands whose line is cut.")
    after_round: Whole | None = said("Rounds that are through when it happens.")


def _tag(value: Any) -> str:
    return NAME if isinstance(value, str) else INLINE


NamedLine: TypeAlias = Annotated[Annotated[str, Tag(NAME)] | Annotated[LineForm, Tag(INLINE)], Discriminator(_tag)]
NamedModel: TypeAlias = Annotated[Annotated[str, Tag(NAME)] | Annotated[ModelForm, Tag(INLINE)], Discriminator(_tag)]


class ExperimentForm(Input):
    """One run."""

    name: Experiment | None = said("Its folder.")
    method: Name | None = said("How islands are kept together.")
    islands: Annotated[tuple[SiteForm, ...], BeforeValidator(_islands)] | None = said("How many, or a list of them.")
    workers: Workers | None = said("Of every island that says none.")
    pace: Pace | None = said("Of every island that says none.")
    line: NamedLine | None = said("What joins every two islands: a name, or its numbers.")
    lines: tuple[LinkForm, ...] | None = said("Pairs with a line of their own.")
    model: NamedModel | None = said("A model of the study by its name, or its numbers.")
    batch: Whole | None = said("Sequences that one worker takes in a micro-batch.")
    micro_batches: Whole | None = said("Micro-batches a step.")
    sync: dict[str, Any] | None = said("Words of plan.sync that the method reads.")
    settings: dict[str, Any] | None = said("Words of the lab's own for this method.")
    learning_rate: Rate | None = said("Of the inner optimizer.")
    rounds: Whole | None = said("Rounds that count.")
    fault: FaultForm | None = said("What breaks, and when.")


class StudyForm(Input):
    """A study file."""

    name: Folder | None = said("Name of the study; its results go to lab-NAME.")
    seed: Seed | None = said("Of everything that is drawn.")
    text: Name | None = said("A file to train on.")
    alone_seconds: Duration | None = said("How long each kind of island runs by itself to be calibrated.")
    models: dict[Name, ModelForm] | None = said("Models by name.")
    lines: dict[Name, LineForm] | None = said("Lines by name.")
    experiments: tuple[ExperimentForm, ...] | None = said("The runs, one after the other.")

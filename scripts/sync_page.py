"""Writes docs/sync.md from the sync methods themselves; `--check` fails when the page is not what would be written.

The table is read off the round that a method demands at its defaults, the sections off its docstring.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from pages import closed, kept
from shardmeter import sync
from shardmeter.core.units import Bytes, Count
from shardmeter.scenario.catalog import load_catalog
from shardmeter.specs import Effect, Replica, Resident, Round

PAGE = Path(__file__).parent.parent / "docs" / "sync.md"
WIDTH = 120
CELLS = 4.0
SHOWN = Replica(
    parameters=1e9, gradient_bytes=2.0, layers=24.0, cells=CELLS,
    matrices=((32_000.0, 2_048.0, 2.0), (2_048.0, 2_048.0, 96.0), (2_048.0, 8_192.0, 28.0)),
)  # fmt: skip
COLUMNS = (
    "method", "steps a round", "crosses, bits a parameter", "smaller than every_step's", "messages a round",
    "hides behind", "waits", "memory, B a parameter (device + host)", "update, B a parameter", "delay, steps", "loss", "source",
)  # fmt: skip
HEAD = f"""# Keeping islands together

Written by `make docs` from the methods' own docstrings and demands; do not edit.

`sync.method` of a plan says how the islands of a run are kept together. A *cell* takes inner steps by itself: an island, or
several that a placed axis joins; M is how many there are, H how many steps a round has, P in how many fragments a model is
sent, θ the parameters. Every method says what crosses, when it is due, what it keeps and works, what the optimizer sees of it
(cells, steps, delay, bits), and what is known of its loss beside synchronous training on the same tokens: a factor, nats added, or
neither, and whether that is *published* for this size and these settings, *derived*, a *guess* from what was published elsewhere, or
*unknown*. No method is taken to lower the loss. What papers say and what comes of it with these demands: [zoo.md](zoo.md);
of methods without a backward (eggroll, mezo, soma, spsa): [zero-order.md](zero-order.md).

The table is each method at its defaults, for {CELLS:.0f} cells that train a billion parameters and send 16-bit gradients where nothing else
is said. Sizes are what one cell holds of a message and compared per inner step; how often it passes is the collective's:
2·(M − 1)/M of an all_reduce each way, M − 1 messages down for one up in an all_gather, one each way between a cell and a server in a
star, or with the other cell of an exchange. Losses of probes are a few bytes whatever the size of the model.
"""
LEAST = 1e-6
"""Bits a parameter below which a message is told in bytes."""
PACES = {"barrier": "for the slowest", "deadline": "until the deadline", "own": "for nobody"}
LABEL = re.compile(r"^(Bytes|Period|Window|Memory|Compute|Convergence|Source|Leaves out): ", re.MULTILINE)
NEXT = (
    "[Every method on three fleets](methods.md), at its defaults.",
    "[What H, bits and delays cost in loss](tradeoffs.md).",
    "[How islands share a run](islands.md): batches, placement, who waits for whom.",
)


def page() -> str:
    """The whole page."""
    rows = [row(name) for name in sync.names()]
    table = [_line(COLUMNS), _line("---" for _ in COLUMNS), *(_line(one) for one in rows)]
    return closed("\n".join([HEAD, *table, "", *(part for name in sync.names() for part in section(name))]), *NEXT)


def row(name: str) -> tuple[str, ...]:
    """One method at its defaults."""
    own = sync.defaults(name)
    demands, every = (sync.round_of(SHOWN, sync.defaults(one)) for one in (name, "every_step"))
    device, host = (_each(terms) for terms in (demands.residents, demands.host_residents))
    return (
        f"[{name}](#{name})", f"{demands.steps:g}", *_messages(demands, every.crossings[0].size), PACES[demands.pace],
        f"{device:.3g} + {host:.3g}", f"{demands.traffic / SHOWN.parameters:.3g}", f"{demands.progress.delay:g}",
        _loss(sync.effect(SHOWN, own)), _source(name),
    )  # fmt: skip


def _messages(demands: Round, gradients: Bytes) -> tuple[str, ...]:
    """What crosses, how much less than gradients of every step, in how many messages, behind what."""
    if not demands.crossings:
        return "nothing", "–", "0", "–"
    first = demands.crossings[0]
    held = sum(one.size * one.messages for one in demands.crossings)
    often = sum(one.messages for one in demands.crossings)
    bits = held * 8.0 / SHOWN.parameters
    size = f"{bits:.5g}" if bits > LEAST else f"{held:g} bytes in all"
    behind = "the backwards left" if first.behind else _steps(first.window) if first.window else "nothing"
    return f"{first.collective}, {size}", f"{gradients * demands.steps / held:,.0f} ×", f"{often:g}", behind


def _loss(known: Effect) -> str:
    """The figure that is known, and how well."""
    said = [] if known.factor is None else [f"× {known.factor:.4g}"]
    said += [f"+{known.nats:g} nats a {known.per}"] if known.nats else []
    if known.nats == 0.0 and known.factor is None:
        said = ["none"]
    return f"{', '.join(said)}: {known.basis}" if said else known.basis


def section(name: str) -> Iterator[str]:
    """The docstring of a method as a section of the page."""
    module = sync.method(name)
    head, *parts = LABEL.split(inspect.getdoc(module) or "")
    yield f"## {name}\n"
    for paragraph in head.strip().split("\n\n"):
        yield _wrapped(paragraph) + "\n"
    for label, text in zip(parts[::2], parts[1::2], strict=True):
        yield _wrapped(f"* **{label}**: {text}", "  ")
    defaults = ", ".join(
        f"`{field}: {value if isinstance(value, str) else format(value, 'g')}`"
        for field, value in module.DEFAULTS.items()
    )
    yield _wrapped(f"* **Fields**: {', '.join(f'`{field}`' for field in module.FIELDS)}.", "  ")
    yield _wrapped(f"* **Defaults**: {defaults or 'those of the plan'}.", "  ") + "\n"


def _source(name: str) -> str:
    found = load_catalog().citation(sync.method(name).SOURCE)
    return f"{found.authors.split(',')[0]} {found.year}, {found.where}"


def _steps(count: Count) -> str:
    return "1 step" if count == 1.0 else f"{count:g} steps"


def _each(terms: tuple[Resident, ...]) -> Count:
    return sum(one.size for one in terms) / SHOWN.parameters


def _wrapped(text: str, indent: str = "") -> str:
    joined = " ".join(text.split())
    return textwrap.fill(joined, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main() -> int:
    """Write the page, or check it."""
    return kept(PAGE, page())


if __name__ == "__main__":
    sys.exit(main())

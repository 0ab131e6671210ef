"""What a worker process does: it answers one question after the other, or searches once. It reads no file that a question names, and takes
no more memory than it is given."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario, ShardMeterError, Unavailable, UnknownName
from shardmeter.core.record import changed, record
from shardmeter.ui.state import Asked, key_of, parsed

if TYPE_CHECKING:
    from shardmeter.scenario.catalog import Catalog

JSON, TEXT = "application/json", "text/plain; charset=utf-8"
OK, MOVED, UNPROCESSABLE, FAULT, NOT_HERE = 200, 303, 422, 500, 501
REPORTS_PER_S = 5.0
"""How often a search says how far it is."""
UNKNOWN = {
    "model": "model", "accelerator": "gpus", "stack": "stack", "example": "example", "instance": "gpus", "fabric": "fleet.islands.0.fabric", "region": "set"
}  # fmt: skip
"""Key of the state that a kind of name belongs to."""


@record
class Setup:
    """What a worker is started with."""

    folders: tuple[str, ...] = ()
    """Folders with more catalog rows."""
    memory: int = 2 * 1024**3
    """Bytes of memory beyond those it starts with."""


@record
class Question:
    """One question: `kind` is view, numbers, download, catalog, examples or schema."""

    kind: str
    name: str = ""
    query: str = ""
    quick: bool = False
    """Whether what takes a search is to be asked elsewhere."""


@record
class Reply:
    """What goes back: a status of HTTP, and the bytes."""

    status: int
    body: bytes
    media: str = JSON
    file: str = ""
    """Name of the file that a download is kept under."""
    passing: bool = False
    """Whether the same question may have another answer a moment later."""


def serve(link: Connection, setup: Setup) -> None:
    """Answer what comes through the link until it is closed."""
    catalog = settle_in(setup)
    while True:
        try:
            question = link.recv()
        except (EOFError, OSError):
            return
        try:
            link.send(reply(question, catalog))
        except (BrokenPipeError, ConnectionResetError):
            return


def settle_in(setup: Setup) -> Catalog:
    """Make this process a worker: interrupts are its parent's business, memory is bounded, the catalog is read, then no file any more."""
    from shardmeter.core.files import close_files
    from shardmeter.core.interrupts import ignore_interrupts
    from shardmeter.scenario.catalog import catalog_of

    ignore_interrupts()
    _bound(setup.memory)
    catalog = catalog_of(setup.folders or None)
    close_files()
    return catalog


def _bound(memory: int) -> None:
    """Bound the memory of this process, where the system can. Leaves out systems without such a limit, where the time limit is the only one."""
    try:
        import resource
        from pathlib import Path

        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    except (ImportError, OSError, ValueError):
        return


def reply(question: Question, catalog: Catalog) -> Reply:
    """Answer one question; whatever goes wrong is a reply too."""
    try:
        return _answered(question, catalog)
    except ElsewhereError:
        return Reply(status=MOVED, body=b"")
    except Unavailable as error:
        return refusal(error, NOT_HERE)
    except ShardMeterError as error:
        return refusal(error)
    except MemoryError:
        short = True  # what it has made is let go of first: the refusal needs room too
    except RecursionError:
        short = False
    except Exception as error:  # noqa: BLE001  (the last line of defence: no traceback reaches a browser)
        return our_fault(error)
    says = "more memory than one may have" if short else "nested too deep"
    found = refusal(BadScenario(f"the question takes {says}; ask for fewer points, islands or steps"))
    return changed(found, passing=short)


class ElsewhereError(Exception):
    """The question takes a search: not for those who answer at once."""


def our_fault(error: BaseException) -> Reply:
    """A fault of ours: its kind for the browser, its text for who runs the server."""
    says = " ".join(str(error).split())[:300]
    sys.stderr.write(f"unexpected error, please report it: {type(error).__name__}: {says}\n")
    return _json(
        {"error": {"says": f"a fault of ours ({type(error).__name__}), please report it", "violations": []}}, FAULT
    )


def refusal(error: ShardMeterError, status: int = UNPROCESSABLE) -> Reply:
    """What is wrong with a question, all of it."""
    return _json({"error": told(error)}, status)


def told(error: ShardMeterError) -> dict[str, Any]:
    """An error as the page shows it: `key` is the field of the form that a violation belongs to, `values` are what could stand there."""
    found = [
        {
            "field": one.field, "key": key_of(one), "says": one.says, "rule": one.rule, "way_out": one.way_out,
            "where": one.where.removeprefix("--"), "values": [],
        }
        for one in error.violations
    ]  # fmt: skip
    if isinstance(error, UnknownName):
        key = UNKNOWN.get(error.kind, "")
        found.append(
            {
                "field": key or error.kind,
                "key": key,
                "says": error.message,
                "rule": "",
                "way_out": "",
                "where": "",
                "values": list(error.nearest),
            }
        )
    return {"says": error.message, "violations": found}


def _json(data: Mapping[str, Any], status: int = OK) -> Reply:
    return Reply(status=status, body=json.dumps(data, ensure_ascii=False, allow_nan=False).encode())


def _answered(question: Question, catalog: Catalog) -> Reply:
    from shardmeter.ui import answers, catalogs, downloads

    if question.kind == "catalog":
        return _json(catalogs.catalog_list(question.name, catalog))
    if question.kind == "examples":
        return _json(catalogs.example_list())
    if question.kind == "schema":
        return _json(catalogs.form(drawn=downloads.can_draw()))
    asked = parsed(question.query)
    if question.quick:
        _refuse_search(asked, catalog)
    if question.kind == "numbers":
        return _json(answers.numbers(asked.state, catalog))
    if question.kind == "view":
        return _json(answers.answer(question.name, asked, catalog).to_dict())
    body, media, file = downloads.download(question.name, asked, catalog)
    return Reply(status=OK, body=body, media=media, file=file)


def _refuse_search(asked: Asked, catalog: Catalog) -> None:
    """Raises ElsewhereError for a scenario that leaves its plan open."""
    from shardmeter.scenario.choices import left_open
    from shardmeter.ui.state import opened

    text = "".join(value for _, value in asked.state.pairs)
    if "auto" not in text and not asked.state.value("yaml") and not asked.state.value("example"):
        return
    document, _ = opened(asked.state, catalog)
    if left_open(document, planning=False) is not None:
        raise ElsewhereError


def search(link: Connection, setup: Setup, query: str) -> None:
    """Search the plans of a question and tell how far it is: ("progress", done, total, rate), then ("done", bytes) or ("failed", error). One
    process: the others of the machine answer the page meanwhile."""
    told_at = 0.0

    def report(done: Any) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at > 1.0 / REPORTS_PER_S:
            told_at = now
            link.send(("progress", done.rows, done.total, done.rate))

    try:
        catalog = settle_in(setup)
        link.send(("done", json.dumps(_found(query, catalog, report), ensure_ascii=False, allow_nan=False).encode()))
    except (BrokenPipeError, ConnectionResetError):
        return
    except ShardMeterError as error:
        link.send(("failed", told(error)))
    except MemoryError:
        link.send(
            ("failed", {"says": "the search takes more memory than one may have; narrow an axis", "violations": []})
        )
    except Exception as error:  # noqa: BLE001  (as in reply)
        link.send(("failed", json.loads(our_fault(error).body)["error"]))


def _found(query: str, catalog: Catalog, report: Any) -> dict[str, Any]:
    """The result of a search: data, document, figures, and every plan as a state."""
    from shardmeter.render import planning, planning_figures, planning_fleet
    from shardmeter.render.described import described, figure
    from shardmeter.render.json_text import envelope
    from shardmeter.scenario.choices import left_open
    from shardmeter.scenario.resolve import resolve
    from shardmeter.study.planning.fleet_plans import plan_fleet
    from shardmeter.study.planning.plans import plan
    from shardmeter.ui.answers import count
    from shardmeter.ui.state import opened_to_plan, state_of

    asked = parsed(query)
    objective, top = asked.word("objective"), count(asked, "top", 20, 100)
    document, rows = opened_to_plan(asked.state, catalog, [f"run.objective={objective}"] if objective else ())
    scenario = resolve(document, rows, left_open(document, planning=True))
    several = scenario.choices is not None and scenario.choices.joint is not None
    page: Any = planning_fleet if several else planning
    made: Any = plan_fleet if several else plan
    answer = made(scenario, top=top, processes=1, progress=report).to_dict()
    states = {
        key: [{"state": state_of(one["scenario"], catalog).text(), "line": one.get("line", "")} for one in answer[key]]
        for key in ("plans", "pareto")
    }
    shown = page.document(answer, page.title(scenario))
    return {
        "data": envelope(shown.data),
        "document": described(shown),
        "figures": [figure(one) for one in planning_figures.figures(answer)],
        **states,
    }

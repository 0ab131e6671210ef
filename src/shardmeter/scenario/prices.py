"""Files of prices: our own columns, SkyPilot's `vms.csv`, gpuhunt's catalogs; and which offer of a file an island gets.

Currency is the US dollar. An offer without a price, or with one of zero, has none. Of several offers that an island could take the
cheapest counts; what it is stands in its basis, file and line in its source.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from shardmeter.core.errors import BadQuantity, BadScenario, UnknownName, Violation, cut, nearest, printable, shown
from shardmeter.core.files import at_home, csv_lines, file_name, read_text, refuse_closed
from shardmeter.core.quantity import price as price_of
from shardmeter.core.quantity import quantity
from shardmeter.core.record import record
from shardmeter.core.units import GIB, Bytes, Count, UsdPerS
from shardmeter.specs import Accelerator

if TYPE_CHECKING:
    from shardmeter.scenario.parts import Rows

LARGEST_FILE = 64_000_000
HOUR = 3600.0
OURS = ("instance", "accelerator", "accelerators", "provider", "region", "price", "spot", "date", "source", "notes")
SKYPILOT = ("InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "SpotPrice", "Region")
GPUHUNT = ("instance_name", "location", "price", "gpu_count", "gpu_name", "gpu_memory", "spot")
SENTINELS = (700.0,)
"""Prices that stand for none in SkyPilot's table of TPUs."""
MEMORY = {"A100": 40.0, "V100": 16.0}
"""GiB of accelerators that SkyPilot names without their memory, where there is another with more."""
NEAR = 0.1
"""By which share two labels of one memory may differ (80 GB, 81,559 MiB)."""
SLICE = 1.0 / 16.0
"""The least part of an accelerator that a machine of another's file has."""
MOST_SAID = 8
MOST_NAMED = 3
"""Lines of unknown accelerators that a warning names."""
LIKE = 0.7
"""How alike the first word of an unknown accelerator is to one of the catalog before it is taken for a slip of the pen."""


@record
class Offer:
    """One line of a file. Prices are of one accelerator; None where there is none."""

    instance: str
    accelerator: str
    """As written."""
    memory: Bytes | None
    """Of an accelerator, where the file says it."""
    provider: str
    region: str
    price: UsdPerS | None
    spot: UsdPerS | None
    date: str
    where: str
    count: Count | None = None
    """Accelerators of the machine, where another's file says it."""


@record
class Prices:
    """A file of prices."""

    name: str
    offers: tuple[Offer, ...]
    warnings: tuple[str, ...] = ()
    """Of lines that look like accelerators and are of none that is known."""


def read_prices(name: str, folder: FilePath, rows: Rows) -> Prices:
    """The offers of a file, found from `folder`. Raises BadScenario with every line that cannot be read; lines of other people's
    files about machines without accelerators, or with unknown ones, are passed over."""
    refuse_closed(name, BadScenario)
    path = at_home(FilePath(name))
    path = path if path.is_absolute() else folder / path
    text = read_text(path, "a file of prices", LARGEST_FILE, BadScenario, (".csv",))
    return _read(text, file_name(path), datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat(), rows)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=4)
def _read(text: str, file: str, changed_on: str, rows: Rows) -> Prices:
    (_, header), *lines = csv_lines(text, file, BadScenario) or [(1, [])]
    if twice := sorted({name for name in header if name and header.count(name) > 1}):
        raise BadScenario(f"{file}:1: the header names a column twice: {', '.join(map(cut, twice))}")
    read = _layout(header, file, rows)
    offers, bad = [], []
    for number, cells in lines:
        line = dict(zip(header, (printable(cell) for cell in cells), strict=False))
        try:
            _check_length(cells, header)
            found = read(line, f"{FilePath(file).name}:{number}", changed_on)
            offers += [] if found is None else [found]
        except (BadQuantity, UnknownName) as error:
            bad.append(Violation(field="fleet.prices", says=error.message, where=f"{file}:{number}"))
    if bad:
        more = (Violation(field="fleet.prices", says=f"{len(bad) - MOST_SAID} more lines", where=file),)
        raise BadScenario(f"{file}: {len(bad)} lines cannot be read", [*bad[:MOST_SAID], *more[: len(bad) - MOST_SAID]])
    if not offers:
        raise BadScenario(f"{file}: holds no price of an accelerator")
    odd = [one for one in offers if _contradicts(one, rows)]
    return Prices(
        name=file,
        offers=tuple(one for one in offers if one not in odd),
        warnings=(*_unknown(offers, rows), *_odd(odd, rows)),
    )


def _check_length(cells: Sequence[str], header: Sequence[str]) -> None:
    """Raise BadQuantity for a line with more cells than there are columns."""
    if any(cell.strip() for cell in cells[len(header) :]):
        raise BadQuantity(f"{len(cells)} cells where the header names {len(header)}; quote a cell that holds a comma")


def _contradicts(offer: Offer, rows: Rows) -> bool:
    """Whether another's file gives a machine that the catalog has another number of accelerators."""
    if offer.count is None or not offer.instance or not rows.knows("instances", offer.instance):
        return False
    return bool(rows.instance(offer.instance).accelerators != offer.count)


def _odd(offers: Sequence[Offer], rows: Rows) -> tuple[str, ...]:
    """One warning that names the first of the lines that contradict the catalog: their prices are not taken."""
    count = "1 line is" if len(offers) == 1 else f"{len(offers):,} lines are"
    return _named(
        f"{count} not taken, for the catalog's machines have other numbers of accelerators",
        offers,
        lambda one: f"{one.count:g} of {one.instance}, which has {rows.instance(one.instance).accelerators:g}",
    )


def _named(says: str, offers: Sequence[Offer], what: Callable[[Offer], str]) -> tuple[str, ...]:
    """One warning that names the first lines that it is about; none where there are none."""
    if not offers:
        return ()
    first = "; ".join(f"{one.where}: {what(one)}" for one in offers[:MOST_NAMED])
    return (f"{says}: {first}{' …' if len(offers) > MOST_NAMED else ''}",)


def _unknown(offers: Sequence[Offer], rows: Rows) -> tuple[str, ...]:
    """One warning that names the first lines of other people's files whose accelerators the catalog does not have; none where it has all
    of them, or where these do not resemble one that it has."""
    near: dict[str, tuple[str, ...]] = {}
    known = [text for name in rows.names("accelerators") for text in (name, *rows.aliases("accelerators", name))]
    families = {_words(text)[0] for text in known if _words(text)}
    lines: list[Offer] = []
    for one in offers:
        first = (_words(one.accelerator) or [""])[0]
        if first in families or (one.instance and rows.knows("instances", one.instance)):
            continue
        if one.accelerator not in near:
            close = difflib.get_close_matches(first, families, 1, LIKE)
            near[one.accelerator] = nearest(close[0], known) if close else ()
        lines += [one] if near[one.accelerator] else []
    count = "1 line is of an accelerator" if len(lines) == 1 else f"{len(lines):,} lines are of accelerators"
    return _named(
        f"{count} that the catalog does not have",
        lines,
        lambda one: f"{shown(one.accelerator, 40)}, the nearest are {', '.join(near[one.accelerator])}",
    )


_Reader = Callable[[Mapping[str, str], str, str], Offer | None]


def _layout(header: Sequence[str], file: str, rows: Rows) -> _Reader:
    """How lines under such a header are read. Raises BadScenario for a header that is none of the three, with the nearest."""
    for wanted, read in ((SKYPILOT[:4], _of_skypilot), (GPUHUNT, _of_gpuhunt)):
        if set(wanted) <= set(header):
            return read
    unknown = [name for name in header if name not in OURS]
    if "price" in header and {"instance", "accelerator"} & set(header) and not unknown:
        return functools.partial(_of_ours, rows)
    layouts = {"ours": OURS[:8], "SkyPilot's vms.csv": SKYPILOT, "gpuhunt's": GPUHUNT}
    best = max(layouts, key=lambda name: len(set(layouts[name]) & set(header)))
    found = [
        Violation(
            field=cut(name), says="no such column", way_out=f"did you mean {nearest(name, OURS)[0]}?", where=f"{file}:1"
        )
        for name in unknown
        if best == "ours"
    ]
    says = f"{file}: its columns are those of no file of prices"
    lacking = [name for name in layouts[best] if name not in header]
    way_out = f"the nearest is {best}: {', '.join(layouts[best])}"
    raise BadScenario(
        f"{says}; {way_out}",
        found
        or [Violation(field="fleet.prices", says=f"lacks {', '.join(lacking)}", way_out=way_out, where=f"{file}:1")],
    )


def _of_ours(rows: Rows, line: Mapping[str, str], where: str, changed_on: str) -> Offer:
    """Instance or accelerator, provider, region, price ($/gpu/h or $/node/h), spot, date. What is malformed is refused."""
    instance, named = line.get("instance", ""), line.get("accelerator", "")
    row = rows.instance(instance) if instance and rows.knows("instances", instance) else None
    if not instance and not named:
        raise BadQuantity("neither instance nor accelerator is said")
    if instance and row is None and not named:
        rows.instance(instance)
    device = rows.accelerator(named or (row.accelerator if row else ""))
    count = (
        _whole(line["accelerators"], "accelerators") if line.get("accelerators") else row.accelerators if row else None
    )
    if row is not None and (device.name, count) != (row.accelerator, row.accelerators):
        has = f"{row.accelerators:g} × {row.accelerator}"
        raise BadQuantity(f"{count:g} × {device.name} is said of {row.name}, which has {has}; leave one of the two out")
    each = {column: _each(line.get(column, ""), column, count) for column in ("price", "spot")}
    if each["price"] is None and each["spot"] is None:
        raise BadQuantity("neither price nor spot is said; an offer without a price is none")
    return Offer(
        instance=row.name if row else instance, accelerator=device.name, memory=device.memory,
        provider=line.get("provider", "") or (row.provider if row else ""), region=line.get("region", ""), **each,
        date=_date(line.get("date", "")) or f"file of {changed_on}", where=where,
    )  # fmt: skip


def _date(text: str) -> str:
    """A day, a month or a year; empty where nothing is said. Raises BadQuantity for one that no calendar has."""
    parts = re.fullmatch(r"(\d{4})(?:-(\d{1,2}))?(?:-(\d{1,2}))?", text)
    try:
        known = not text or (parts is not None and bool(date(*(int(part or 1) for part in parts.groups()))))
    except ValueError:
        known = False
    if not known:
        raise BadQuantity(f"date {shown(text, 40)} is no day of a calendar; write it like 2026-11-30")
    return text


def _each(text: str, column: str, count: Count | None) -> UsdPerS | None:
    """USD/s of one accelerator."""
    if not text:
        return None
    amount, per = price_of(text)
    if amount == 0.0:
        raise BadQuantity(
            f"{column} {shown(text)}: nothing is rented for nothing; leave the cell empty, or say owned in the scenario"
        )
    if per == "node" and count is None:
        raise BadQuantity(f"{column} {shown(text)}: how many accelerators has a node? fill the column accelerators")
    return amount if count is None or per != "node" else amount / count


def _of_skypilot(line: Mapping[str, str], where: str, changed_on: str) -> Offer | None:
    """Dollars an hour of the whole machine; AcceleratorCount of them."""
    count = _whole(line["AcceleratorCount"], "AcceleratorCount", least=0.0) if line.get("AcceleratorCount") else 0.0
    name = line.get("AcceleratorName", "")
    if not name or count <= 0.0:
        return None
    size = MEMORY.get(name)
    return Offer(
        instance=line.get("InstanceType", ""), accelerator=name, memory=None if size is None else size * GIB,
        provider="", region=line.get("Region", ""), price=_bare(line.get("Price", ""), count),
        spot=_bare(line.get("SpotPrice", ""), count), date=f"file of {changed_on}", where=where, count=count,
    )  # fmt: skip


def _of_gpuhunt(line: Mapping[str, str], where: str, changed_on: str) -> Offer | None:
    """Dollars an hour of the whole machine, on demand or spot by line."""
    count = _whole(line["gpu_count"], "gpu_count", least=0.0) if line.get("gpu_count") else 0.0
    name = line.get("gpu_name", "")
    if not name or count <= 0.0:
        return None
    size, said = line.get("gpu_memory", ""), line.get("spot", "").lower()
    if said not in ("true", "false", ""):
        raise BadQuantity(f"spot {shown(said, 40)} is neither true nor false")
    spot = said == "true"
    each = _bare(line.get("price", ""), count)
    return Offer(
        instance=line.get("instance_name", ""), accelerator=name, memory=_number(size) * GIB if size else None,
        provider=line.get("provider", ""), region=line.get("location", ""), price=None if spot else each,
        spot=each if spot else None, date=f"file of {changed_on}", where=where, count=count,
    )  # fmt: skip


def _number(text: str) -> float:
    """A number as tables of others write it: no words, no suffixes. Raises BadQuantity."""
    if not re.fullmatch(r"[-+.0-9eE]+", text):
        raise BadQuantity(f"{shown(text, 40)} is no plain number")
    return quantity(text, "count")


def _whole(text: str, column: str, least: float = 1.0) -> float:
    """So many accelerators of a machine. Raises BadQuantity for what is none."""
    count = _number(text)
    whole = count == round(count) or (least == 0.0 and SLICE <= count < 1.0)
    if count < least or not whole:
        raise BadQuantity(
            f"{column} {shown(text, 40)}: accelerators of a machine are a whole number, {least:g} at least"
        )
    return count


def _bare(text: str, count: float) -> UsdPerS | None:
    """USD/s of one accelerator from dollars an hour of all; None for what is no price."""
    if not text:
        return None
    amount = _number(text)
    return None if amount == 0.0 or amount in SENTINELS else amount / count / HOUR


# ---- which offer an island gets ---------------------------------------------------------------------------------------------------


def offers_of(
    prices: Prices, instance: tuple[str, ...], device: Accelerator, region: str, aliases: Sequence[str], *, strict: bool
) -> list[Offer]:
    """Offers of an island: of its instance (any of these names), else of its accelerator; in its region or anywhere where the file
    does not say. `strict`: the region was asked for, so an offer elsewhere is none."""
    names = {name.lower() for name in instance}
    own = [one for one in prices.offers if one.instance.lower() in names] if names else []
    own = own or [one for one in prices.offers if (not names or not one.instance) and means(one, device, aliases)]
    here = [one for one in own if not region or not one.region or _is_in(one, region)]
    return here or ([] if strict else own)


def means(offer: Offer, device: Accelerator, aliases: Sequence[str]) -> bool:
    """Whether an offer is of a device: by its name or an alias or, where it only says a part of the name, by that and the memory."""
    written = offer.accelerator.lower()
    near = offer.memory is None or abs(float(offer.memory) / float(device.memory) - 1.0) <= NEAR
    if written in (device.name.lower(), *(alias.lower() for alias in aliases)):
        return near
    said, own = _words(written), _words(device.name)
    return near and said[:1] == own[:1] and set(said) <= set(own)


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word]


def _is_in(offer: Offer, region: str) -> bool:
    """Whether an offer's region, or the zone that it says, lies in a region named provider:region."""
    provider, _, short = region.lower().rpartition(":")
    written = offer.region.lower().rpartition(":")[2]
    same = written == short or re.fullmatch(re.escape(short) + "-?[a-z]", written) is not None
    return same and (not provider or not offer.provider or provider in offer.provider.lower())

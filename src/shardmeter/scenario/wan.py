"""What a scenario says of links and sites to a `specs.Wan`: tables of pairs, every default said, every pair that lacks a number named.

Of every number of a pair the first of these counts: a link (one that names islands before one that names a `count`, one direction
before both), `self` for the islands of one count, `default`; each before its own preset. Then the sites, then the catalog's row
for the two regions, then the defaults of this module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from shardmeter.core.errors import UnknownName
from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.scenario import geography, uplinks
from shardmeter.scenario.between import LineInput, LinkInput, SiteInput, WanInput
from shardmeter.scenario.parts import MOST_NAMES, Findings, Rows, listed_names, lookup
from shardmeter.scenario.uplinks import UPLINKS
from shardmeter.scenario.yaml_reader import Path
from shardmeter.specs import Island, Line, Region, Wan
from shardmeter.specs.geography import SHARED
from shardmeter.specs.wan import BALANCES, TRANSPORTS

if TYPE_CHECKING:
    from shardmeter.scenario.fleet import Entry

Array: TypeAlias = npt.NDArray[np.float64]
NUMBERS = ("bandwidth", "rtt", "loss", "streams", "window", "egress")
WINDOW, STREAMS = 4.0 * 2**20, 64.0
"""Of a stream where nothing is known: what NCCL has under way over one connection; as many as the catalog was measured with (1 to 64 are met)."""
WAN: Path = ("fleet", "wan")
MOST_SAID = 12
"""Pairs of regions that assumptions say one by one."""


@record
class _Site:
    """What a pair needs to know of one island."""

    name: str
    nodes: float
    gpus: float
    region: Region | None
    island: Island | None


class _Tables:
    """The numbers of all pairs while they are gathered: NaN is not said yet, words are positions in their vocabulary."""

    def __init__(self, sites: Sequence[_Site]) -> None:
        count = len(sites)
        shape = (count, count)
        self.pairs = {name: np.full(shape, np.nan) for name in (*NUMBERS, *uplinks.OWN, "shared", "transport")}
        self.sites = {
            name: np.full(count, np.nan)
            for name in ("up", "down", "rtt", "loss", "streams", "window", "egress", "shared", "transport", *UPLINKS)
        }
        self.reach = np.array([uplinks.reach_of(site.island) for site in sites])
        self.basis: dict[tuple[int, int], str] = {}
        self.prices: dict[tuple[int, int], str] = {}

    def fill(self, name: str, values: Array | float, where: npt.NDArray[np.bool_] | None = None) -> None:
        """Set what is not said yet."""
        table = self.pairs[name]
        open_ = np.isnan(table) if where is None else np.isnan(table) & where
        table[open_] = np.broadcast_to(values, table.shape)[open_]


def resolve_wan(asked: WanInput | None, entries: Sequence[Entry], rows: Rows, found: Findings) -> Wan:
    """The network between all islands of the entries, after noting what is wrong with it and which pairs lack a link."""
    given = asked or WanInput()
    sites = _sites_of(entries, rows)
    tables = _Tables(sites)
    groups = _groups(entries)
    _say_sites(given, groups, tables, rows, found)
    _say_links(given, entries, groups, tables, rows, found)
    _follow_sites(tables)
    _ask_catalog(sites, tables, rows, found)
    _check_all(given, groups, sites, tables, found)
    _fill_defaults(tables, found)
    made = _made(sites, tables, _transports([site.name for site in sites], tables, found))
    made = changed(
        made,
        backend=given.backend or made.backend,
        assumed=uplinks.assumed_of(given.assumed),
        **uplinks.said_of(tables.sites, found),
    )
    told = bool((~np.isnan(tables.sites["planes"])).any())
    uplinks.say_failures(made, [site.island for site in sites], told, found)
    return made


def _sites_of(entries: Sequence[Entry], rows: Rows) -> list[_Site]:
    made = []
    for entry in entries:
        said, island = entry.asked.region, entry.island
        written = said or ("" if island is None else island.region)
        region = geography.known_region(written, rows) if written else None
        nodes, gpus = (1.0, 1.0) if island is None else (float(island.nodes), float(island.gpus))
        made += [_Site(name=name, nodes=nodes, gpus=gpus, region=region, island=island) for name in entry.names]
    return made


def _groups(entries: Sequence[Entry]) -> dict[str, tuple[int, ...]]:
    """Positions of the islands that a name means: its own, or all of a count."""
    groups: dict[str, tuple[int, ...]] = {}
    at = 0
    for entry in entries:
        groups[entry.name] = tuple(range(at, at + len(entry.names)))
        groups |= {name: (at + number,) for number, name in enumerate(entry.names)}
        at += len(entry.names)
    return groups


def unknown_island(name: str, path: Path, known: Sequence[str], found: Findings) -> None:
    """Note a name that no island has, unless the name of one was malformed."""
    if not any(gone[:2] == ("fleet", "islands") and gone[3:] in ((), ("name",), ("count",)) for gone in found.gone):
        found.unknown_name(path, UnknownName("island", name, known))


# ---- what is said ----------------------------------------------------------------------------------------------------------------


def _preset(given: LineInput | SiteInput, rows: Rows, path: Path, found: Findings) -> Line | None:
    if given.preset is None:
        return None
    line: Line | None = lookup(Line, given.preset, rows, (*path, "preset"), found)
    return line


def _say_sites(
    given: WanInput, groups: dict[str, tuple[int, ...]], tables: _Tables, rows: Rows, found: Findings
) -> None:
    """Connections of sites: their own, then what `default` says by a preset of sites."""
    everyone = tuple(range(len(tables.sites["up"])))
    ranked = sorted((given.sites or {}).items(), key=lambda item: len(groups.get(item[0], ())))
    for name, site in ranked:
        path = (*WAN, "sites", name)
        if name not in groups:
            unknown_island(name, path, list(groups), found)
            continue
        line = _preset(site, rows, path, found)
        if line is not None and line.of != "site":
            found.refuse((*path, "preset"), f"{line.name} joins two islands", f"say it of a link: preset: {line.name}")
            line = None
        uplinks.refuse_two_rates(site, path, found)
        _set_site(tables, groups[name], site.model_dump(), line, path, found)
    if given.default is not None:
        path, line = (*WAN, "default"), None
        if given.default.preset is not None:
            line = lookup(Line, given.default.preset, rows, (*path, "preset"), found.apart())
        own = {name: value for name, value in given.default.model_dump().items() if name in UPLINKS}
        _set_site(tables, everyone, own, line if line is not None and line.of == "site" else None, path, found)


def _set_site(
    tables: _Tables, members: Sequence[int], own: dict[str, Any], line: Line | None, path: Path, found: Findings
) -> None:
    """Set what is not said yet of some sites; rates that follow from an oversubscription before those of a preset."""
    over = own.get("oversubscription")
    over = line.oversubscription if over is None and line is not None else over
    if over is not None:
        for at in uplinks.follow(tables.sites, members, tables.reach, float(over)):
            says = "is said of an island whose adapters are not known"
            found.refuse((*path, "oversubscription"), says, f"name a fabric of island {at + 1}, or say up and down")
    for name, table in tables.sites.items():
        value = own.get(name)
        value = getattr(line, name) if value is None and line is not None else value
        for at in members:
            if value is not None and np.isnan(table[at]):
                table[at] = _coded(name, value)


def _coded(name: str, value: Any) -> float:
    words = {"shared": SHARED, "transport": TRANSPORTS, "balance": BALANCES}.get(name)
    return float(words.index(value)) if words else float(value)


def _say_links(
    given: WanInput,
    entries: Sequence[Entry],
    groups: dict[str, tuple[int, ...]],
    tables: _Tables,
    rows: Rows,
    found: Findings,
) -> None:
    """Links from the most particular to the most general, each setting what is not said yet."""
    _refuse_two_round_trips(given, found)
    for cells, line, path in _ranked(given, groups, found):
        _set_line(tables, cells, line, _line_preset(line, rows, path, found, default=False))
    count = len(tables.sites["up"])
    if given.self is not None:
        path, preset = (*WAN, "self"), _line_preset(given.self, rows, (*WAN, "self"), found, default=False)
        several = [groups[entry.name] for entry in entries if len(entry.names) > 1]
        if not several and not found.touched(("fleet", "islands")):
            found.warnings.append("fleet.wan.self changes nothing: no island has a count")
        for members in several:
            _set_line(tables, _cells(members, members, count), given.self, preset)
    if given.default is not None:
        path = (*WAN, "default")
        preset = _line_preset(given.default, rows, path, found, default=True)
        _set_line(tables, np.ones((count, count), dtype=bool), given.default, preset)


def _refuse_two_round_trips(given: WanInput, found: Findings) -> None:
    """Note lines that say a round trip and the distance from which it would follow."""
    lines: list[tuple[LineInput | None, Path]] = [(given.default, ("default",)), (given.self, ("self",))]
    lines += [(link, ("links", at)) for at, link in enumerate(given.links or ())]
    for line, place in lines:
        if line is not None and line.rtt is not None and line.distance is not None:
            trip = show(geography.round_trip(line.distance / 1e3), "s")
            says = f"stands beside rtt = {show(line.rtt, 's')}, and means {trip}"
            found.refuse((*WAN, *place, "distance"), says, "keep one of the two")


def _cells(senders: Sequence[int], receivers: Sequence[int], count: int) -> npt.NDArray[np.bool_]:
    cells = np.zeros((count, count), dtype=bool)
    cells[np.ix_(senders, receivers)] = True
    return cells


def _ranked(
    given: WanInput, groups: dict[str, tuple[int, ...]], found: Findings
) -> Iterator[tuple[npt.NDArray[np.bool_], LineInput, Path]]:
    """The links with the pairs they mean, the most particular first; refuses those that say the same pair twice."""
    count = max((max(members) for members in groups.values()), default=-1) + 1
    ranked = []
    for position, link in enumerate(given.links or ()):
        path: Path = (*WAN, "links", position)
        ends = _ends(link, path, found)
        unknown = [name for name in ends if name not in groups]
        for name in dict.fromkeys(unknown):
            unknown_island(name, path, list(groups), found)
        if not ends or unknown:
            continue
        one, other = (groups[name] for name in ends)
        cells = _cells(one, other, count)
        both = link.between is not None
        cells = cells | cells.T if both else cells
        np.fill_diagonal(cells, False)
        if not cells.any():
            found.refuse(path, f"joins {ends[0]} with itself", "name two islands, or one of a count")
            continue
        rank = 2 * ((len(one) > 1) + (len(other) > 1)) + both
        ranked.append((rank, cells, link, path))
    ranked.sort(key=lambda one: one[0])
    for at, (rank, cells, link, path) in enumerate(ranked):
        twice = next((p for r, c, _, p in ranked[:at] if r == rank and (c & cells).any()), None)
        if twice is not None:
            found.refuse(path, f"says a pair that {'.'.join(map(str, twice))} says too", "keep one of the two")
        yield cells, link, path


def _ends(link: LinkInput, path: Path, found: Findings) -> tuple[str, ...]:
    """The two names of a link; none after noting that it has not two."""
    sender, receiver = link.sender, link.to
    if link.between is not None and sender is None and receiver is None:
        return tuple(link.between)
    if link.between is None and sender is not None and receiver is not None:
        return sender, receiver
    if not any(found.touched((*path, name)) for name in ("between", "from", "to")):
        says = "between stands beside from or to" if link.between is not None else "does not say which two it joins"
        found.refuse(path, says, "between: [a, b] for both directions, or from: a, to: b for one")
    return ()


def _line_preset(line: LineInput, rows: Rows, path: Path, found: Findings, *, default: bool) -> Line | None:
    preset = _preset(line, rows, path, found)
    if preset is None or preset.of == "link":
        return preset
    if not default:
        way_out = f"sites: {{NAME: {{preset: {preset.name}}}}}, or default: {{preset: {preset.name}}} for all"
        found.refuse((*path, "preset"), f"{preset.name} is a site's own connection", way_out)
    return None


def _set_line(tables: _Tables, cells: npt.NDArray[np.bool_], line: LineInput, preset: Line | None) -> None:
    """Set what is not said yet of some pairs."""
    own: dict[str, Any] = line.model_dump()
    if own["rtt"] is None and line.distance is not None:
        own["rtt"] = geography.round_trip(line.distance / 1e3)
    for name in tables.pairs:
        value = own.get(name)
        value = getattr(preset, name) if value is None and preset is not None else value
        if value is not None:
            tables.fill(name, _coded(name, value), cells)


# ---- what follows ----------------------------------------------------------------------------------------------------------------


def _follow_sites(tables: _Tables) -> None:
    """What two sites say of the pair between them: half of each round trip, the greater loss, the smaller window."""
    site = tables.sites
    tables.fill("rtt", (site["rtt"][:, None] + site["rtt"][None, :]) / 2.0)
    tables.fill("loss", np.fmax(site["loss"][:, None], site["loss"][None, :]))
    tables.fill("window", np.fmin(site["window"][:, None], site["window"][None, :]))
    tables.fill("streams", np.fmin(site["streams"][:, None], site["streams"][None, :]))
    tables.fill("egress", np.broadcast_to(site["egress"][:, None], tables.pairs["egress"].shape))


def _ask_catalog(sites: Sequence[_Site], tables: _Tables, rows: Rows, found: Findings) -> None:
    """Fill what regions tell, each pair of regions once, and say it."""
    apart = ~np.eye(len(sites), dtype=bool)
    in_region: dict[str, list[int]] = {}
    regions: dict[str, Region] = {}
    for at, site in enumerate(sites):
        if site.region is not None:
            regions[site.region.name] = site.region
            in_region.setdefault(site.region.name, []).append(at)
    lines: dict[str, None] = {}
    prices: dict[str, None] = {}
    for one, senders in in_region.items():
        for other, receivers in in_region.items():
            cells = _cells(senders, receivers, len(sites)) & apart
            if cells.any():
                _from_regions(regions[one], regions[other], cells, tables, rows, lines, prices)
    for said, what in ((lines, "links"), (prices, "egress")):
        texts = list(said)
        found.assumptions += [f"fleet.wan: {text}" for text in texts[:MOST_SAID]]
        if len(texts) > MOST_SAID:
            more = len(texts) - MOST_SAID
            found.assumptions.append(
                f"fleet.wan: {more} more {what} from the catalog (shardmeter catalog {_KIND[what]})"
            )


_KIND = {"links": "pairs", "egress": "egress"}


def _from_regions(
    one: Region,
    other: Region,
    cells: npt.NDArray[np.bool_],
    tables: _Tables,
    rows: Rows,
    lines: dict[str, None],
    prices: dict[str, None],
) -> None:
    pairs = tables.pairs
    lacking = cells & (np.isnan(pairs["bandwidth"]) | np.isnan(pairs["rtt"])) & _unlimited(tables)
    if lacking.any():
        row = geography.between(one, other, rows)
        lines[row.basis] = None
        tables.basis |= {(int(a), int(b)): row.basis for a, b in np.argwhere(lacking)}
        tables.fill("streams", float(row.streams), lacking & np.isnan(pairs["bandwidth"]))
        tables.fill("shared", float(SHARED.index("node")), lacking & np.isnan(pairs["bandwidth"]))
        if row.bandwidth is not None:
            tables.fill("bandwidth", float(row.bandwidth), lacking)
        tables.fill("rtt", float(row.rtt), lacking)
    window = geography.window_into(other)
    if window is not None:
        tables.fill("window", float(window), cells)
    priceless = cells & np.isnan(pairs["egress"])
    if priceless.any():
        price = geography.egress(one, other, rows)
        if price is not None:
            tables.fill("egress", float(price[0]), priceless)
            tables.prices |= {(int(a), int(b)): price[1] for a, b in np.argwhere(priceless)}
            prices[f"egress {price[1]}"] = None


def _unlimited(tables: _Tables) -> npt.NDArray[np.bool_]:
    """Pairs whose capacity does not follow from their sites alone, or that have no round trip."""
    follows = ~np.isnan(tables.sites["up"])[:, None] & ~np.isnan(tables.sites["down"])[None, :]
    unlimited: npt.NDArray[np.bool_] = ~follows | np.isnan(tables.pairs["rtt"])
    return unlimited


def _check_all(
    given: WanInput, groups: dict[str, tuple[int, ...]], sites: Sequence[_Site], tables: _Tables, found: Findings
) -> None:
    """Refuse pairs without a capacity or a round trip, unless what would give it was malformed."""
    asked = ~np.eye(len(sites), dtype=bool) & ~_doubtful(given, groups, len(sites), found)
    follows = ~np.isnan(tables.sites["up"])[:, None] & ~np.isnan(tables.sites["down"])[None, :]
    no_rate = np.isnan(tables.pairs["bandwidth"]) & ~follows & asked
    no_rtt = np.isnan(tables.pairs["rtt"]) & asked
    nothing = no_rate & no_rtt
    example = "links: [{between: [a, b], bandwidth: 10 Gbps, rtt: 40 ms}]"
    _refuse_pairs(nothing, "no link joins", sites, example, found)
    _refuse_pairs(no_rate & ~nothing, "no bandwidth is said of", sites, "bandwidth: 10 Gbps", found)
    _refuse_pairs(no_rtt & ~nothing, "no round trip is said of", sites, "rtt: 40 ms, or distance: 1000 km", found)


def _doubtful(
    given: WanInput, groups: dict[str, tuple[int, ...]], count: int, found: Findings
) -> npt.NDArray[np.bool_]:
    """Pairs of which something malformed was to be said."""
    cells = np.zeros((count, count), dtype=bool)
    everyone = tuple(range(count))
    for kind, *rest in (gone[2:] or ("all",) for gone in found.gone if gone[:2] == WAN):
        if kind == "sites" and rest:
            members = groups.get(str(rest[0]), ())
            cells |= _cells(members, everyone, count) | _cells(everyone, members, count)
        elif kind == "links" and len(rest) > 1 and rest[1] not in ("between", "from", "to") and given.links:
            link = given.links[int(rest[0])]
            one, other = (groups.get(name, ()) for name in link.between or (link.sender or "", link.to or ""))
            cells |= _cells(one, other, count) | _cells(other, one, count)
        else:
            cells[:] = True
    return cells


def _refuse_pairs(
    lacking: npt.NDArray[np.bool_], what: str, sites: Sequence[_Site], way_out: str, found: Findings
) -> None:
    both = lacking & lacking.T
    ways, one_ways = np.argwhere(np.triu(both, 1)), np.argwhere(lacking & ~both)
    names = [f"{sites[a].name} and {sites[b].name}" for a, b in ways[:MOST_NAMES]]
    names += [f"{sites[a].name} → {sites[b].name}" for a, b in one_ways[:MOST_NAMES]]
    if names:
        rule = "every two islands are joined: by a link, default, or regions that the catalog knows"
        found.note(
            WAN,
            f"{what} {listed_names(names, len(ways) + len(one_ways))}",
            f"say fleet.wan.default, or {way_out}",
            rule,
        )


def _fill_defaults(tables: _Tables, found: Findings) -> None:
    apart = ~np.eye(len(tables.sites["up"]), dtype=bool)
    left_out = {name: bool((np.isnan(tables.pairs[name]) & apart).any()) for name in tables.pairs}
    tables.fill("loss", 0.0)
    tables.fill("streams", STREAMS)
    tables.fill("window", WINDOW)
    tables.fill("shared", 0.0)
    if left_out["loss"]:
        found.assumptions.append("fleet.wan: no packets are lost (loss left out)")
    if left_out["streams"]:
        found.assumptions.append(f"fleet.wan: a transfer opens {STREAMS:g} streams (left out)")
    if left_out["window"]:
        found.assumptions.append(f"fleet.wan: a stream has {show(WINDOW, 'B')} under way (window left out)")


def _transports(names: Sequence[str], tables: _Tables, found: Findings) -> tuple[str, ...]:
    """How every site sends: what it says, or the strongest that its links say; tcp where nothing does.

    A pair has the weaker of its ends, so that a link that says more than another of the same site can be refused."""
    own, pairs = tables.sites["transport"], tables.pairs["transport"]
    apart = ~np.eye(len(names), dtype=bool)
    if np.isnan(own).all() and np.isnan(pairs[apart]).all():
        found.assumptions.append("fleet.wan: transport tcp (left out)")
    linked = np.where(apart, np.nan_to_num(pairs, nan=-1.0), -1.0)
    best = np.maximum(linked.max(axis=0), linked.max(axis=1))
    chosen = np.where(np.isnan(own), np.maximum(best, 0.0), own)
    comes_out = np.minimum(chosen[:, None], chosen[None, :])
    wrong = np.argwhere(
        (linked >= 0.0) & (linked != comes_out) & apart & np.isnan(own)[:, None] & np.isnan(own)[None, :]
    )
    if len(wrong):
        a, b = wrong[0]
        said, out = TRANSPORTS[int(linked[a, b])], TRANSPORTS[int(comes_out[a, b])]
        says = f"{names[a]} → {names[b]} says transport {said}, but both have links that are {out}"
        way_out = f"sites: {{{names[a]}: {{transport: {said}}}}}"
        found.refuse(WAN, says, way_out, "a transport is a site's; a pair has the weaker of its two")
    return tuple(TRANSPORTS[int(one)] for one in chosen)


def _made(sites: Sequence[_Site], tables: _Tables, transport: tuple[str, ...]) -> Wan:
    """The record: rates of nodes or GPUs times how many there are, lanes after whatever binds."""
    pairs, own = tables.pairs, tables.sites
    sizes = np.array([[1.0, site.nodes, site.gpus] for site in sites])
    kind = np.nan_to_num(own["shared"]).astype(int)
    lanes_of = sizes[np.arange(len(sites)), kind]
    up = np.where(np.isnan(own["up"]), np.inf, own["up"] * lanes_of)
    down = np.where(np.isnan(own["down"]), np.inf, own["down"] * lanes_of)
    shared = pairs["shared"].astype(int)
    each = np.take_along_axis(np.minimum(sizes[:, None, :], sizes[None, :, :]), shared[..., None], axis=2)[..., 0]
    ends = np.minimum(up[:, None], down[None, :])
    capacity = np.where(np.isnan(pairs["bandwidth"]), ends, pairs["bandwidth"] * each)
    by_end = np.where(up[:, None] <= down[None, :], lanes_of[:, None], lanes_of[None, :])
    lanes = np.where(ends < capacity, by_end, np.where(np.isnan(pairs["bandwidth"]), by_end, each))
    diagonal = np.eye(len(sites), dtype=bool)
    return Wan(
        islands=tuple(site.name for site in sites),
        bandwidth=np.where(diagonal, np.inf, capacity),
        rtt=np.where(diagonal, 0.0, pairs["rtt"]),
        loss=np.where(diagonal, 0.0, pairs["loss"]),
        window=pairs["window"],
        streams=pairs["streams"],
        lanes=lanes,
        egress=np.where(diagonal, 0.0, pairs["egress"]),
        up=up,
        down=down,
        transport=transport,
        **uplinks.of_pairs(pairs),
        basis=_texts(sites, tables.basis),
        prices=_texts(sites, tables.prices),
    )


def _texts(sites: Sequence[_Site], found: dict[tuple[int, int], str]) -> tuple[tuple[str, str, str], ...]:
    return tuple((sites[a].name, sites[b].name, text) for (a, b), text in sorted(found.items()))

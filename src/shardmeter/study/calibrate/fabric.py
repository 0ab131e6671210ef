"""`calibrate` from benchmarks of collectives: what a machine's own links and its network give, each number with its interval.

The seconds of a benchmark are the engine's price of the same collective over the same ranks (`engine/price.py`), evaluated with other
numbers in the tiers; no formula is written here. A table on one host tells of the domain inside a node, one over several hosts
of the network, and only as much as its sizes show: small ones the starts, large ones the rates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadData, Violation
from shardmeter.core.record import changed, record
from shardmeter.core.units import Count, Fraction
from shardmeter.engine.price import prices
from shardmeter.scenario.islands import build_island
from shardmeter.specs import Accelerator, Fabric, Island, Plan, Stack, Transfer
from shardmeter.study.calibrate.curves import Floats, Known, Rows, likeliest, posterior, strange
from shardmeter.study.calibrate.timings import PRICED, Benchmark

LEVEL = 0.90
BINS = 4.0
"""Rows a doubling of size: measurements closer than that are one row."""
TOLD = 0.8
"""A number is told by the rows if they leave at most this share of what was not known of it."""
WIRE, SUMMED = 1.0, 2.0
"""No collective moves more than the wire does; where the switch sums, half of a ring's bytes go over it."""
AT_ONCE = math.log(100.0)
"""Starts are left out by making them so much shorter."""
FASTER = 0.05
"""Logarithm of how much faster than all of the wires a row must be to be doubted."""


@record
class Number:
    """One number of a catalog's row that collectives hang on."""

    kind: str
    """accelerators (inside the domain) or fabrics (between domains)."""
    column: str
    field: str
    """Of the tier."""
    spread: float
    """Of its logarithm, before anything is measured."""
    means: str

    @property
    def tier(self) -> int:
        """Which tier it is of."""
        return int(self.kind == "fabrics")


NUMBERS = (
    Number(kind="accelerators", column="scale_up_share", field="share", spread=0.25, means="plateau inside the domain, of the wire"),
    Number(kind="accelerators", column="scale_up_reduce_share", field="reduce_share", spread=0.25,
           means="plateau of an all-reduce that the switch sums, of the wire"),
    Number(kind="accelerators", column="scale_up_latency", field="latency", spread=0.9, means="start of an all-reduce inside the domain"),
    Number(kind="accelerators", column="scale_up_step", field="latency_step", spread=0.9, means="one step of a ring inside the domain"),
    Number(kind="fabrics", column="share", field="share", spread=0.35, means="plateau between nodes, of the wire"),
    Number(kind="fabrics", column="latency", field="latency", spread=0.9, means="start of an all-reduce, for every doubling of the nodes"),
    Number(kind="fabrics", column="latency_base", field="latency_base", spread=0.9, means="start of an all-reduce over nodes"),
    Number(kind="fabrics", column="latency_step", field="latency_step", spread=0.9, means="one step of a ring between nodes"),
)  # fmt: skip
"""With what is not known of each before: shares of the shipped networks lie from 0.73 to 0.97 and of badly tuned ones at half; starts
of InfiniBand, EFA and TCP differ by factors of 2.3 and 3.5."""


@record
class Learned:
    """One number after the rows."""

    number: Number
    before: float
    value: float
    low: float
    high: float
    told: bool
    """Whether the rows say anything of it; where they do not, `value` is about `before`."""


@record
class Curve:
    """One collective over one group of ranks, measured at several sizes. Arrays of shape (sizes,)."""

    said: str
    collective: str
    ranks: Count
    hosts: Count
    size: Floats
    seconds: Floats
    count: Floats
    before: Floats
    """Seconds that the rows of the catalog say."""
    after: Floats
    """Seconds after calibration; `low` and `high` bound it."""
    low: Floats
    high: Floats


@record
class Left:
    """What was measured and not used."""

    what: str
    why: str


@record
class FabricFit:
    """What benchmarks say of a machine's links."""

    accelerator: Accelerator
    fabric: Fabric | None
    learned: tuple[Learned, ...]
    curves: tuple[Curve, ...]
    left: tuple[Left, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]
    noise: Fraction
    """Spread of the rows about the curves."""
    alike: float
    """Rows that are worth one."""
    effective: float
    source: str

    def __repr__(self) -> str:
        told = ", ".join(f"{one.number.column} {one.value:.3g}" for one in self.learned if one.told) or "nothing told"
        return f"<FabricFit of {sum(len(one.size) for one in self.curves)} rows: {told}>"

    def __str__(self) -> str:
        """The page, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    def error(self, *, calibrated: bool) -> float:
        """Median distance of the seconds from the measured ones, as a share of them: with the catalog's numbers, or after calibration."""
        off = [np.abs((one.after if calibrated else one.before) / one.seconds - 1.0) for one in self.curves]
        return float(np.median(np.concatenate(off)))

    def bounds(self, kind: str) -> dict[str, tuple[float, float]]:
        """(low, high) of the numbers of `accelerators` or `fabrics` that the rows tell of, by column, SI."""
        return {one.number.column: (one.low, one.high) for one in self.learned if one.told and one.number.kind == kind}

    def numbers(self, kind: str) -> dict[str, float]:
        """The numbers of `accelerators` or `fabrics` that the rows tell of, by column, SI."""
        return {one.number.column: one.value for one in self.learned if one.told and one.number.kind == kind}

    def to_dict(self) -> dict[str, Any]:
        """The JSON: SI units, shares as fractions."""
        return {
            "accelerator": self.accelerator.name,
            "fabric": None if self.fabric is None else self.fabric.name,
            "numbers": [
                {"kind": one.number.kind, "column": one.number.column, "means": one.number.means, "before": one.before,
                 "value": one.value, "low": one.low, "high": one.high, "told": one.told}
                for one in self.learned
            ],
            "level": LEVEL,
            "rows": sum(len(one.size) for one in self.curves),
            "error_before": self.error(calibrated=False),
            "error_after": self.error(calibrated=True),
            "noise": self.noise,
            "rows_alike": self.alike,
            "curves": [_curve(one) for one in self.curves],
            "left": [{"what": one.what, "why": one.why} for one in self.left],
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
        }  # fmt: skip


def calibrate_fabric(
    benchmarks: Sequence[Benchmark],
    accelerator: Accelerator,
    fabric: Fabric | None,
    nics: Count | None = None,
    *,
    seed: int = 0,
) -> FabricFit:
    """What benchmarks say of the domain of an accelerator and of the network between nodes. `nics` counts the adapters of a node where
    the fabric's row does not.

    Raises BadData, with a reason for each, where no benchmark can be used. Leaves out: rates of single pairs of a mesh and
    what an all-to-all over two sockets gets, which stay as the row has them; tiers beyond the first between nodes."""
    settled = _Settled(accelerator, fabric, nics)
    cases = [case for one in benchmarks if (case := settled.case(one)) is not None]
    cases = _joined(cases)
    if not cases:
        violations = [Violation(field=one.what, says=one.why) for one in settled.left]
        raise BadData("no benchmark of collectives can be used", violations)
    numbers = [
        one for one in NUMBERS if any(one.tier < len(case.island.tiers) for case in cases) and _known(one, cases)
    ]
    before = np.log([_before(one, cases) for one in numbers])
    cases = [_cleaned(case, numbers, before, settled.left) for case in cases]
    rows = _rows(cases)
    known = Known(
        prior=before, spread=np.array([one.spread for one in numbers]),
        ceiling=np.array([math.log(WIRE) if one.field == "share" else math.inf for one in numbers]),
    )  # fmt: skip
    found = posterior(lambda draws, larger: _model(cases, numbers, draws, larger), rows, known, seed=seed)
    told = found.draws.std(axis=0) <= TOLD * known.spread
    value = before.copy()
    if told.any():  # together with the rest as the catalog has it, since only they are written
        some = [one for one, is_told in zip(numbers, told, strict=True) if is_told]
        value[told] = likeliest(
            lambda draws, larger: _model(cases, some, draws, larger), rows, known.part(told), found.best[told]
        )
    return FabricFit(
        accelerator=accelerator, fabric=fabric,
        learned=tuple(_learned(one, np.exp((before[at], value[at])), found.draws[:, at], told=bool(told[at])) for at, one in enumerate(numbers)),
        curves=tuple(_fitted(case, numbers, before, value, found.draws) for case in cases),
        left=tuple(settled.left), assumptions=tuple(dict.fromkeys(settled.assumed)),
        warnings=tuple(dict.fromkeys([*settled.warned, *_faster(cases, numbers, before, accelerator, fabric)])),
        noise=found.noise, alike=found.alike, effective=found.effective,
        source="; ".join(dict.fromkeys(one.backend or one.source for one in benchmarks)),
    )  # fmt: skip


# ---- benchmarks as the engine's demands ------------------------------------------------------------------------------------------


@record
class _Case:
    """A benchmark as the engine sees it."""

    key: tuple[Any, ...]
    said: str
    benchmark: Benchmark
    island: Island
    plan: Plan
    stack: Stack
    size: Floats
    seconds: Floats
    """Logarithm."""
    count: Floats

    def priced(self, numbers: Sequence[Number], draws: Floats, larger: float = 1.0) -> Floats:
        """Logarithm of seconds, (draws, sizes), with the tiers' numbers replaced by the draws (logarithms); `larger` scales the sizes."""
        tiers = list(self.island.tiers)
        for at, one in enumerate(numbers):
            if one.tier < len(tiers) and getattr(tiers[one.tier], one.field) is not None:
                tiers[one.tier] = changed(tiers[one.tier], **{one.field: np.exp(draws[:, at, None])})
        axis = "pp" if self.benchmark.collective == "send" else "dp_shard"
        demand = Transfer(label="benchmark", collective=self.benchmark.collective, size=self.size * larger, axes=(axis,),
                          phase="forward", scope="step")  # fmt: skip
        charge = prices(changed(self.island, tiers=tuple(tiers)), self.stack, self.plan, 2.0).transfer(demand)
        found: Floats = np.log(np.broadcast_to(np.asarray(charge.seconds, dtype=float), (len(draws), len(self.size))))
        return found


class _Settled:
    """Between what ranks a benchmark ran, on the machines of the scenario; what was left, assumed and doubted on the way."""

    def __init__(self, accelerator: Accelerator, fabric: Fabric | None, nics: Count | None) -> None:
        self.accelerator, self.fabric, self.nics = accelerator, fabric, nics
        self.left: list[Left] = []
        self.assumed: list[str] = []
        self.warned: list[str] = []

    def case(self, one: Benchmark) -> _Case | None:
        """The benchmark as a demand; None, with the reason in `left`, where it is none."""
        hosts, per_host = self._hosts(one)
        why = self._why_not(one, hosts)
        if why:
            self.left.append(Left(what=f"{one.source}: {one.said}", why=why))
            return None
        self._doubt_device(one)
        island = self._island(hosts, per_host)
        kinds = _algorithms(one)
        stack = Stack(name="benchmark", nic_factor=1.0, scale_up_factor=1.0, collectives=kinds)
        axes = {"pp": int(one.ranks)} if one.collective == "send" else {"dp_shard": float(one.ranks)}
        where = f"{one.collective} of {one.ranks:g} on {hosts:g} host{'s' * (hosts != 1)}"
        where += f", every {one.stride:g}th rank" * (one.stride > 1)
        return _Case(
            key=(one.collective, one.ranks, one.stride, hosts, per_host, kinds), said=where, benchmark=one, island=island,
            plan=Plan(tp=float(one.stride), **axes), stack=stack,
            size=np.array([float(t.size) for t in one.timings]), seconds=np.log([float(t.seconds) for t in one.timings]),
            count=np.ones(len(one.timings)),
        )  # fmt: skip

    def _hosts(self, one: Benchmark) -> tuple[Count, Count]:
        """Hosts, and ranks on each."""
        if one.per_host is not None:
            return one.hosts, one.per_host
        node = float(self.accelerator.node_size)
        ranks = one.ranks * one.stride
        hosts = max(1.0, math.ceil(ranks / node))
        self.assumed.append(
            f"{one.said} does not say its hosts: {hosts:g} of {min(ranks, node):g} are taken, as nodes of {self.accelerator.name} have {node:g}"
        )
        return hosts, min(ranks, node)

    def _why_not(self, one: Benchmark, hosts: Count) -> str:
        if one.collective not in PRICED:
            return f"the engine has no price for {one.collective}"
        if one.ranks < 2:
            return "one rank sends nothing"
        if hosts > 1 and self.fabric is None:
            return "several hosts, and no fabric is named between them"
        return ""

    def _doubt_device(self, one: Benchmark) -> None:
        word = self.accelerator.name.replace("-", " ").split()[0].lower()
        if one.device and not any(part.startswith(word) for part in one.device.replace("-", " ").lower().split()):
            self.warned.append(f"{one.source}: it ran on {one.device}, the scenario has {self.accelerator.name}")

    def _island(self, hosts: Count, per_host: Count) -> Island:
        device, fabric = self.accelerator, self.fabric
        if (
            device.scale_up_domain <= device.node_size
        ):  # no domain is wider than a host: one of less ranks is as wide as they
            device = changed(device, scale_up_domain=float(per_host))
        count = self.nics if self.nics is not None or fabric is None else fabric.nics_per_node
        return build_island(
            accelerator=device, nodes=float(hosts), gpus_per_node=float(per_host), fabric=fabric,
            nics=None if count is None else float(np.minimum(count, per_host)),
        )  # fmt: skip


def _algorithms(one: Benchmark) -> tuple[str, ...]:
    """What the library may choose from, as its settings leave it."""
    said = {name: value.lower() for name, value in one.settings}
    if one.backend == "gloo" or said.get("NCCL_ALGO") == "ring":
        return ("ring",)
    return ("ring", "tree") if said.get("NCCL_NVLS_ENABLE") == "0" else ("ring", "tree", "nvls")


def _joined(cases: Sequence[_Case]) -> list[_Case]:
    """Runs of the same collective over the same ranks are one curve."""
    found: dict[tuple[Any, ...], _Case] = {}
    for case in cases:
        held = found.get(case.key)
        found[case.key] = case if held is None else changed(
            held, size=np.concatenate((held.size, case.size)), seconds=np.concatenate((held.seconds, case.seconds)),
            count=np.concatenate((held.count, case.count)),
        )  # fmt: skip
    return list(found.values())


def _known(one: Number, cases: Sequence[_Case]) -> bool:
    return any(len(case.island.tiers) > one.tier and getattr(case.island.tiers[one.tier], one.field) for case in cases)


def _before(one: Number, cases: Sequence[_Case]) -> float:
    """What the catalog's row says of a number."""
    return float(next(
        getattr(case.island.tiers[one.tier], one.field) for case in cases
        if len(case.island.tiers) > one.tier and getattr(case.island.tiers[one.tier], one.field)
    ))  # fmt: skip


# ---- rows ------------------------------------------------------------------------------------------------------------------------


def _cleaned(case: _Case, numbers: Sequence[Number], before: Floats, left: list[Left]) -> _Case:
    """Without strange rows, which go to `left`; those of about one size as one."""
    expected = case.priced(numbers, before[None, :])[0]
    doublings = np.log2(case.size)
    rows = Rows(curve=np.zeros(len(case.size), dtype=np.int64), doublings=doublings, seconds=case.seconds)
    out = strange(rows, expected)
    for at in np.flatnonzero(out):
        near = np.abs(doublings - doublings[at]) <= 2.0
        usual = (
            float(np.exp(expected[at] + np.median((case.seconds - expected)[near & ~out])))
            if np.any(near & ~out)
            else math.nan
        )
        says = f"{math.exp(case.seconds[at]) * 1e6:.4g} us, where its neighbours say about {usual * 1e6:.3g} us"
        left.append(Left(what=f"{case.said}, {case.size[at]:g} bytes", why=says))
    places = np.round(doublings * BINS)
    kept = [np.flatnonzero((places == place) & ~out) for place in np.unique(places[~out])]
    return changed(
        case, size=np.array([2.0 ** doublings[at].mean() for at in kept]),
        seconds=np.array([case.seconds[at].mean() for at in kept]), count=np.array([float(len(at)) for at in kept]),
    )  # fmt: skip


def _rows(cases: Sequence[_Case]) -> Rows:
    return Rows(
        curve=np.concatenate([np.full(len(case.size), at) for at, case in enumerate(cases)]),
        doublings=np.concatenate([np.log2(case.size) for case in cases]),
        seconds=np.concatenate([case.seconds for case in cases]),
    )


def _model(cases: Sequence[_Case], numbers: Sequence[Number], draws: Floats, larger: float) -> Floats:
    return np.concatenate([case.priced(numbers, draws, larger) for case in cases], axis=1)


# ---- what is said ----------------------------------------------------------------------------------------------------------------


def _learned(one: Number, sizes: Floats, draws: Floats, *, told: bool) -> Learned:
    """A number from (before, after) and its draws (logarithms)."""
    before, value = float(sizes[0]), float(sizes[1])
    low, high = np.exp(np.quantile(draws, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0]))
    return Learned(
        number=one, before=before, value=value, low=min(float(low), value), high=max(float(high), value), told=told
    )


def _fitted(case: _Case, numbers: Sequence[Number], before: Floats, value: Floats, draws: Floats) -> Curve:
    some = case.priced(numbers, draws[:: max(1, len(draws) // 200)])
    low, high = np.exp(np.quantile(some, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0], axis=0))
    earlier, after = np.exp(case.priced(numbers, np.stack((before, value))))
    return Curve(
        said=case.said, collective=case.benchmark.collective, ranks=case.benchmark.ranks, hosts=case.island.nodes, size=case.size,
        seconds=np.exp(case.seconds), count=case.count, before=earlier, after=after, low=low, high=high,
    )  # fmt: skip


def _faster(
    cases: Sequence[_Case], numbers: Sequence[Number], before: Floats, accelerator: Accelerator, fabric: Fabric | None
) -> Iterator[str]:
    """Rows that no share of the wires could explain: shorter than what is left where every tier gives all of its wire and starts at once."""
    most = {"share": math.log(WIRE), "reduce_share": math.log(SUMMED)}
    wire = np.array([most.get(one.field, size - AT_ONCE) for one, size in zip(numbers, before, strict=True)])
    for case in cases:
        sooner = case.priced(numbers, wire[None, :])[0] - case.seconds
        at = int(np.argmax(sooner))
        if sooner[at] > FASTER:
            names = (
                accelerator.name
                if len(case.island.tiers) == 1 or fabric is None
                else f"{accelerator.name} over {fabric.name}"
            )
            yield (f"{case.said}, {case.size[at]:g} bytes: {math.exp(sooner[at]):.2f} times as fast as the wires of {names} could be: more adapters "
                   "than the scenario says (nics), another network, or other machines")  # fmt: skip


def _curve(one: Curve) -> dict[str, Any]:
    arrays: Mapping[str, Floats] = {
        "bytes": one.size, "seconds": one.seconds, "measurements": one.count, "before": one.before, "after": one.after,
        "low": one.low, "high": one.high,
    }  # fmt: skip
    return {"said": one.said, "collective": one.collective, "ranks": float(one.ranks), "hosts": float(one.hosts),
            **{name: [float(x) for x in values] for name, values in arrays.items()}}  # fmt: skip

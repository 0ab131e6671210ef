"""The audit itself: read, imply, compare, name, convert."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from shardmeter.core.errors import BadScenario
from shardmeter.core.record import changed, record
from shardmeter.scenario.catalog import Catalog, catalog_of
from shardmeter.specs import Accelerator
from shardmeter.study.audit import conventions, factors, limits
from shardmeter.study.audit.beside import beside
from shardmeter.study.audit.identities import DENSE, IDENTITIES, SIX_N, TRAINED, Identity, sharded
from shardmeter.study.audit.quantities import ALL, QUANTITIES, says
from shardmeter.study.audit.reading import Claim, read
from shardmeter.study.audit.subject import Settle, Subject, peak_of, statements, subject
from shardmeter.study.audit.verdicts import CONTRADICTED, Verdict, entry, judged, limited, presented, stated
from shardmeter.study.audit.web import Way, Ways, size, ways

if TYPE_CHECKING:
    from shardmeter.study.predict import Prediction

USUAL_SEQ = 8192.0
COMMON = ("A100-SXM4-80GB", "H100-SXM5-80GB", "B200-SXM (HGX)", "MI300X", "TPU v4", "RTX 4090", "V100-SXM2-16GB")
"""Devices whose peaks are told first."""
TWO_CORES = ("TPU v4", "TPU v5p", "MI250X")
"""Devices that are two of what a program may see."""
FORMATS = ("bf16", "fp16", "fp8", "fp4", "tf32", "fp32")


@record
class Audit:
    """Claims with verdicts, what cannot be, and the same MFU in every convention."""

    subject: Subject
    statements: tuple[Claim, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[limits.Finding, ...]
    convention: str
    """In which the MFU is claimed."""
    counts: tuple[tuple[conventions.Convention, float], ...]
    """FLOPs of a token by convention; empty where neither a model nor parameters are known."""
    seq: float | None
    implied: Way | None
    """MFU by the model's own count from what is claimed of the throughput."""
    follows: tuple[Way, ...]
    """What the claims imply of quantities that nobody claimed."""
    peaks: tuple[tuple[str, str, float], ...]
    """(device, format, FLOP/s) of the peaks that an MFU may be of, the device's own first."""
    prediction: Prediction | None = None
    assumptions: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """One line."""
        return f"<Audit of {len(self.verdicts)} claims: {self.verdict}>"

    def __str__(self) -> str:
        """The page that the command prints, without what was assumed."""
        import shardmeter

        return shardmeter.page(self)

    @property
    def verdict(self) -> str:
        """impossible, beyond measured, contradiction, consistent, or unchecked where nothing implies anything."""
        kinds = {one.kind for one in self.findings}
        if limits.IMPOSSIBLE in kinds:
            return limits.IMPOSSIBLE
        if any(one.status == CONTRADICTED for one in self.verdicts):
            return "contradiction"
        if limits.BEYOND in kinds:
            return limits.BEYOND
        return "consistent" if any(one.implied is not None for one in self.verdicts) else "unchecked"

    @property
    def consistent(self) -> bool:
        """Whether nothing is contradicted, impossible or beyond what was measured."""
        return self.verdict in ("consistent", "unchecked")

    def to_dict(self) -> dict[str, Any]:
        """The `audit` JSON: SI units, shares as fractions, accelerator-hours in hours."""
        by_id = {one.id: one for one in self.statements}
        wrong = {
            one.claim.quantity: one.implied.value for one in self.verdicts if one.status == CONTRADICTED and one.implied
        }
        predicted = beside(self.prediction, self.statements, wrong)
        return {
            "verdict": self.verdict,
            "consistent": self.consistent,
            "claims": [entry(one, by_id) for one in self.verdicts],
            "findings": [_finding(one, by_id) for one in self.findings],
            "implied": self._implied(by_id),
            "convention": self.convention,
            "seq_len": self.seq,
            "implied_mfu": self.implied and self.implied.value,
            "claimed_mfu": self.claimed_mfu,
            "conventions": self._conventions(),
            "peaks": self._peaks(),
            "predicted": predicted,
            "assumptions": list(self.assumptions),
            "warnings": list(self.subject.warnings),
        }

    def _implied(self, by_id: Mapping[int, Claim]) -> list[dict[str, Any]]:
        """What nobody claimed and the claims imply."""
        rows = []
        for way in self.follows:
            (value, unit), ends = presented(way.quantity, way.value), (way.low, way.high)
            rows.append(
                {
                    "quantity": way.quantity, "says": says(way.quantity), "value": value, "unit": unit,
                    "range": [presented(way.quantity, end)[0] for end in ends],
                    "from": [stated(by_id[key]) for key in sorted(way.uses)], "through": list(way.through),
                }
            )  # fmt: skip
        return rows

    @property
    def claimed_mfu(self) -> float | None:
        """The MFU as it was stated, or what a claimed rate of FLOPs is of the peak."""
        for key in ("mfu", "tflops_per_gpu"):
            one = next((s for s in self.statements if s.claimed and s.quantity == key), None)
            if one is not None and key == "mfu":
                return one.value
            if one is not None and self.peaks:
                return one.value / self.peaks[0][2]
        return None

    def _conventions(self) -> list[dict[str, Any]]:
        """Every convention: what the throughput prints in it, what the claim is by it."""
        if not self.counts:
            return []
        claimed, of = self.claimed_mfu, {one.key: count for one, count in self.counts}
        own = self.counts[0][1]
        base = of.get(self.convention, own)
        rows = []
        for one, count in self.counts:
            rows.append(
                {
                    "key": one.key, "says": one.says, "formula": one.formula, "seen": one.seen, "source": one.source,
                    "mistake": one.mistake, "flops_per_token": count, "ratio": count / own,
                    "prints": None if self.implied is None else self.implied.value * count / own,
                    "claim_converted": None if claimed is None else claimed * count / base,
                    "claim_as_mfu": None if claimed is None else claimed * own / count,
                }
            )  # fmt: skip
        return rows

    def _peaks(self) -> list[dict[str, Any]]:
        """What the claimed MFU is of every other peak: the rate behind it stays."""
        claimed = self.claimed_mfu
        if claimed is None or not self.peaks:
            return []
        used = next((s.value for s in self.statements if s.claimed and s.quantity == "peak"), self.peaks[0][2])
        own, seen, rows = self.peaks[0], set(), []
        for device, form, peak in self.peaks:
            usual = device == own[0] or form in ("bf16", "fp16")
            if usual and round(peak / 1e10) not in seen:
                seen.add(round(peak / 1e10))
                row = {
                    "device": device,
                    "format": form,
                    "peak": peak,
                    "mfu": claimed * used / peak,
                    "claim_of_own": claimed * peak / own[2],
                }
                rows.append(row)
        return rows  # fmt: skip


def _finding(one: limits.Finding, by_id: Mapping[int, Claim]) -> dict[str, Any]:
    return {
        "kind": one.kind, "quantity": one.quantity, "says": one.says, "value": one.value, "limit": one.limit,
        "claims": [f"{by_id[i].quantity} {by_id[i].text}" for i in one.claims],
        "readings": [{"cause": r.cause, "value": r.value} for r in one.readings],
    }  # fmt: skip


def audit(
    source: Any = None, claims: object = (), *, convention: str = conventions.OWN, overrides: Any = (), catalog: Any = None,
    options: Mapping[str, Any] | None = None, settle: Settle = lambda made: made, predicts: bool = True,
) -> Audit:  # fmt: skip
    """Audit claims beside what is named of a scenario.

    Raises BadScenario with every claim that cannot be read, UnknownName; what a scenario raises. Leaves out: what is claimed of
    several islands apart, of losses, of carbon."""
    rows = catalog if isinstance(catalog, Catalog) else catalog_of(catalog)
    conventions.convention(convention)
    said = read(claims, rows.accelerator)
    if not said:
        raise BadScenario("audit: nothing is claimed; say --claim name=value, as in --claim mfu=45%")
    about = subject(source, overrides, rows, options or {}, said, settle)
    prediction = _predicted(about) if predicts else None
    told, assumed = statements(about, said)
    told, counts, seq, also = _counted(about, told, prediction)
    found = ways(told, _identities(about, said))
    words = {one.quantity: one.word for one in said if one.word}
    precision = words.get("precision") or ("bf16" if about.scenario is None else about.scenario.plan.precision)
    peaks = _peaks(about.accelerator, rows)
    ratios = _ratios(found, peaks)
    numbers = _numbers(found)
    verdicts = judged(found, told, ratios, _counting(counts))
    every = limits.findings(found, told, about.accelerator, precision, ratios["ratio"], numbers)
    verdicts = tuple(limited(one, every) for one in verdicts)
    return Audit(
        subject=about, statements=told, verdicts=verdicts, findings=every,
        convention=convention, counts=counts, seq=seq, implied=_implied(found, told, verdicts),
        follows=_follows(found, told, verdicts), peaks=peaks, prediction=prediction,
        assumptions=(*about.assumptions, *assumed, *also),
    )  # fmt: skip


def _predicted(about: Subject) -> Prediction | None:
    if about.scenario is None:
        return None
    from shardmeter.study.predict import predict

    return predict(about.scenario)


def _counted(
    about: Subject, told: Sequence[Claim], prediction: Prediction | None
) -> tuple[tuple[Claim, ...], tuple[tuple[conventions.Convention, float], ...], float | None, tuple[str, ...]]:
    """Statements with the FLOPs of a token, its counts by convention, the sequence they are at, and what was assumed for it."""
    stated = {one.quantity: one.value for one in reversed(told)}
    if about.model is None:
        total = stated.get("parameters", stated.get("active_parameters"))
        return tuple(told), tuple(conventions.of_parameters(total, stated.get("active_parameters", total)) if total else ()), None, ()  # fmt: skip
    said: tuple[str, ...] = ()
    seq = stated.get("seq_len")
    if seq is None:
        seq = min(float(about.model.context) or USUAL_SEQ, USUAL_SEQ)
        said = (f"FLOPs are counted at sequences of {seq:,.0f} (no length is said)",)
    subject_ = conventions.counted(about.model, seq)
    executed = None
    if prediction is not None:
        e = prediction.estimate
        if seq == float(prediction.scenario.run.seq_len):
            own = float(e.model_flops / e.tokens)
            executed = float(e.hardware_flops / e.tokens)
            subject_ = changed(subject_, own=own)
    made = [*told, Claim(id=len(told), quantity="flops_per_token", value=subject_.own, origin="model")]
    if executed is not None:
        made.append(Claim(id=len(made), quantity="executed_flops_per_token", value=executed, origin="model"))
    return tuple(made), conventions.counts(subject_), subject_.seq, said


def _identities(about: Subject, said: Sequence[Claim]) -> tuple[Identity, ...]:
    """Those that hold for what is named."""
    claimed = {one.quantity for one in said}
    more: list[Identity] = []
    if about.model is None:
        more.append(SIX_N)
        if "active_parameters" not in claimed:
            more.append(DENSE)
    if "trainable_parameters" not in claimed:
        more.append(TRAINED)
    sharding = next((one.word for one in said if one.quantity == "sharding"), None)
    return (*IDENTITIES, *more, *(sharded(sharding) if sharding is not None else ()))


def _peaks(accelerator: Accelerator | None, rows: Catalog) -> tuple[tuple[str, str, float], ...]:
    """Peaks of the device, then of all others; one of each number."""
    if accelerator is None or peak_of(accelerator) is None:
        return ()
    first = "bf16" if "bf16" in accelerator.peak else "fp16"
    found = [(accelerator.name, form, float(accelerator.peak[form])) for form in (first, *(f for f in FORMATS if f != first)) if form in accelerator.peak]  # fmt: skip
    if first in accelerator.matmul_share:
        sustained = float(accelerator.peak[first] * accelerator.matmul_share[first])
        found.append((accelerator.name, f"{first} as the best products sustain it", sustained))
    names = rows.names("accelerators")
    for name in (*(one for one in COMMON if one in names), *(one for one in names if one not in COMMON)):
        other = rows.accelerator(name)
        found += [
            (name, form, float(other.peak[form])) for form in FORMATS if form in other.peak and name != accelerator.name
        ]
    return tuple(found)


def _ratios(found: Ways, peaks: Sequence[tuple[str, str, float]]) -> dict[str, tuple[factors.Factor, ...]]:
    """Named factors by group, at the numbers of this run."""
    numbers = _numbers(found)
    groups = {one.group for one in ALL if one.group}
    named = {group: factors.named(group, numbers) for group in groups}
    device = peaks[0][0] if peaks else ""
    if not device.startswith(TWO_CORES):
        named["ratio"] = tuple(one for one in named["ratio"] if one.key != "two cores of a chip")
    unpeaked = (one for one in named["ratio"] if "peak" not in one.above + one.below)
    named["flops_rate"] = (*named["flops_rate"], *unpeaked)
    if peaks:
        own = peaks[0][2]
        named["ratio"] = (*named["ratio"], *factors.of_peaks(own, peaks, device))
        named["peak"] = (*named["peak"], *factors.as_peaks(own, peaks, device))
    return named


def _numbers(found: Ways) -> dict[str, float]:
    """Every quantity that is known, in its shortest way."""
    return {key: own[0].value for key, own in found.items()}


def _counting(counts: Sequence[tuple[conventions.Convention, float]]) -> tuple[factors.Factor, ...]:
    """Conventions as factors over mfu's count."""
    if not counts:
        return ()
    own = counts[0][1]
    return tuple(
        factors.Factor(key=f"convention {one.key}", value=count / own, above=f"counted as {one.formula}: {one.seen}", below="",
                       weight=factors.MISTAKE if one.mistake else 0.1, source=one.source)
        for one, count in counts if abs(count / own - 1.0) > 0.004
    )  # fmt: skip


def _implied(found: Ways, told: Sequence[Claim], verdicts: Sequence[Verdict]) -> Way | None:
    """MFU from the throughput, not from a claimed one; from nothing that is contradicted, if there is such a way."""
    claimed = {
        one.id for one in told if one.quantity in ("mfu", "hfu", "tflops_per_gpu", "tflops", "peak") and one.claimed
    }
    wrong = {one.claim.id for one in verdicts if one.status == CONTRADICTED}
    ways_ = [way for way in found.get("mfu", ()) if not way.uses & claimed]
    return min(ways_, key=lambda way: (len(way.uses & wrong), *size(way)), default=None)


def _follows(found: Ways, told: Sequence[Claim], verdicts: Sequence[Verdict]) -> tuple[Way, ...]:
    """The shortest way to every quantity that some claim implies and none states, without what is contradicted."""
    claims = {one.id for one in told if one.claimed}
    stated_ = {one.quantity for one in told}
    wrong = {one.claim.id for one in verdicts if one.status == CONTRADICTED}
    made = []
    for key in QUANTITIES:
        best = min(found.get(key, ()), key=lambda way: (len(way.uses & wrong), *size(way)), default=None)
        if key not in stated_ and best is not None and best.uses & claims and not best.uses & wrong:
            made.append(best)
    return tuple(made)

"""What a run learns: its loss by a law, term by term, and the tokens that a target takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardmeter.core.errors import BadScenario, Violation
from shardmeter.core.quantity import show
from shardmeter.core.record import changed, record
from shardmeter.core.sums import plain_sum
from shardmeter.core.units import Count, Nats, Number, Ratio
from shardmeter.engine.add import folded
from shardmeter.engine.fleet import Whole
from shardmeter.families import active_parameters
from shardmeter.physics import convergence
from shardmeter.specs import CriticalBatch, Effect, LossLaw, Model, Scenario
from shardmeter.study import zero_order
from shardmeter.study.course.hours import is_apart, step_tokens
from shardmeter.study.intervals import LEVEL

NATS = "nats/token"
SIZE, TOKENS, RATIO = "parameters", "tokens", "ratio"
"""What may lie outside of a fit."""
MOST = 1000.0
"""Times as many tokens, or as few, beyond which another law is no answer to the same question."""
RATIO_OFF = 1.35
"""Tokens a parameter that may be off by this factor from those of a law of one ratio."""


@record
class Question:
    """A run as a law sees it."""

    law: LossLaw
    parameters: float
    """As the law counts them."""
    effects: tuple[Effect, ...]
    """What the way of training is known to cost, part by part."""
    guesses: bool
    """Whether parts that are only guessed count."""
    critical: CriticalBatch | None
    untrained: Nats
    """What a model knows that guesses among its vocabulary."""

    def counts(self, part: Effect) -> bool:
        """Whether a part goes into the total."""
        return part.basis in ("published", "derived", "extrapolated") or (part.basis == "guess" and self.guesses)

    @property
    def factor(self) -> Ratio:
        """By which the loss of the law is multiplied."""
        product: Ratio = 1.0
        for part in self.effects:
            if part.factor is not None and self.counts(part):
                product = product * part.factor
        return product

    @property
    def added(self) -> Nats:
        """What is added to it then."""
        return folded(part.nats for part in self.effects if part.nats is not None and self.counts(part))


def question(scenario: Scenario, whole: Whole) -> Question | None:
    """What is asked of the loss; None where no law is named, or the law is of no such training (`why_not`)."""
    run, model = scenario.run, scenario.assembled or scenario.model
    if run.law is None or why_not(scenario, whole):
        return None
    return Question(
        law=run.law,
        parameters=counted(model, run.law),
        effects=effects(scenario, whole),
        guesses=run.loss_guesses,
        critical=run.critical_batch,
        untrained=math.log(float(model.vocab)),
    )


def effects(scenario: Scenario, whole: Whole) -> tuple[Effect, ...]:
    """What the way of training is known to cost, part by part."""
    one = zero_order.effect_of(scenario, whole) if scenario.plan.probes is not None else whole.effect
    return () if one is None else one.parts or (one,)


def why_not(scenario: Scenario, whole: Whole) -> str:
    """Why no law tells the loss of the run; empty where one does. Laws are of decoders that are trained whole, from nothing, with
    gradients, on data that they see once."""
    model = scenario.assembled or scenario.model
    if model.family != "decoder":
        return f"laws of loss are of decoders, and {model.name} is of family {model.family}"
    if scenario.plan.trainable not in ("all", ""):
        return f"laws of loss are of models that are trained whole, and {scenario.plan.trainable} is trained"
    if scenario.run.reference is not None:
        return "laws of loss are of training from nothing, and a reference model is beside it"
    if is_apart(whole):
        return "islands train models of their own, and what they are worth together is not known"
    unknown = next((part for part in effects(scenario, whole) if part.basis == "unknown"), None)
    return "" if unknown is None else f"what {scenario.plan.sync.method} costs in loss is not known ({unknown.text})"


def check(scenario: Scenario, whole: Whole) -> None:
    """Raises BadScenario for a target that no data reaches."""
    asked, target = question(scenario, whole), scenario.run.target_loss
    if asked is None or target is None:
        return
    if asked.law.unit == NATS and float(target) > math.log(float(scenario.model.vocab)):
        raise _at_the_start(scenario.model, float(target))
    if not room_for(asked, float(target)) > 0.0:
        raise _out_of_reach(asked, float(target))


def counted(model: Model, law: LossLaw) -> float:
    """Parameters as a law counts them: of experts those that a token passes, which is a guess; embedding and head where it does."""
    total = float(active_parameters(model))
    return total if law.counts == "total" else total - float(model.vocab * model.hidden * (1.0 if model.tied else 2.0))


def law_at(law: LossLaw, parameters: float, tokens: Number) -> Nats:
    """The loss of synchronous training with a small batch."""
    return convergence.law_loss(parameters, tokens, law.irreducible, law.a, law.alpha, law.b, law.beta, law.gamma)


def critical(asked: Question, tokens: Number) -> Number:
    """Critical batch in tokens of a run of so many least tokens; infinite where none is asked."""
    law = asked.critical
    if law is None:
        return np.inf
    if law.form == "tokens":
        return convergence.critical_batch_of_tokens(tokens, law.coefficient, law.exponent, law.overhead)
    reached = law_at(asked.law, asked.parameters, tokens)
    return convergence.critical_batch_of_loss(reached, law.coefficient, law.exponent)


def room_for(asked: Question, target: Number) -> Nats:
    """What a target leaves to the data: 0 or less where no data is enough."""
    law, alone = asked.law, (target - asked.added) / asked.factor
    return convergence.law_room(alone, asked.parameters, law.irreducible, law.a, law.alpha, law.gamma)


def tokens_for(asked: Question, target: Number, batch: Count) -> Count:
    """Tokens that reach a loss with batches of so many tokens; NaN where no data is enough. Numbers may be arrays."""
    law, room = asked.law, room_for(asked, target)
    least = convergence.law_tokens(np.where(np.greater(room, 0.0), room, np.nan)[()], law.b, law.beta)
    return convergence.batch_tokens(least, batch, critical(asked, least))


def _out_of_reach(asked: Question, target: float) -> BadScenario:
    """The refusal of a target below what the model nears with endless data, with the numbers and the way out."""
    law, alone = asked.law, (target - asked.added) / asked.factor
    floor = convergence.law_floor(asked.parameters, law.irreducible, law.a, law.alpha, law.gamma)
    reached = float(floor * asked.factor + asked.added)
    term = float(floor) - float(law.irreducible)
    more = (
        f", × {asked.factor:.4g} + {asked.added:g} of how it is trained"
        if (asked.factor, asked.added) != (1.0, 0.0)
        else ""
    )
    size = show(asked.parameters, "")
    says = (
        f"{target:g} is not reached with any data: by {law.name}, E + A/N^α = {law.irreducible:g} + {term:.3g} = {float(floor):.4g} "
        f"{law.unit} at {size} parameters{more}"
    )
    way_out = f"a target above {reached:.4g}, or a law of your own data (run.law: FILE.csv)"
    if alone > law.irreducible:
        least = float((law.a / (alone - law.irreducible) ** (1.0 / law.gamma)) ** (1.0 / law.alpha))
        way_out = f"more than {show(least, '')} parameters, {way_out}"
    return BadScenario(
        "1 problem",
        [Violation(field="run.target_loss", says=says, rule="a loss lies above its irreducible term", way_out=way_out)],
    )


def _at_the_start(model: Model, target: float) -> BadScenario:
    """The refusal of a target that a model which has learned nothing reaches: all words alike are ln(vocabulary) nats a token."""
    start = math.log(float(model.vocab))
    says = f"{target:g} nats/token is more than guessing: ln({float(model.vocab):,.0f} words) = {start:.4g}, where {model.name} starts"
    rule = "a target is a loss that training reaches, and it falls from ln(vocabulary)"
    return BadScenario(
        "1 problem",
        [Violation(field="run.target_loss", says=says, rule=rule, way_out=f"a target below {start:.4g}, as in 2.5")],
    )


def answer(asked: Question, parts: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """`loss`, `loss_terms`, `law`, `critical_batch` of the answer for a run of (tokens, batch in tokens), part by part."""
    law, size = asked.law, asked.parameters
    tokens = float(plain_sum(one for one, _ in parts))
    least = float(convergence.least_tokens(parts, lambda seen: critical(asked, seen)))
    alone, slowed = float(law_at(law, size, tokens)), float(law_at(law, size, least))
    terms = _law_terms(law, size, tokens)
    if asked.critical is not None:
        beyond = _batch_outside(asked.critical, tokens)
        basis = "extrapolated" if beyond else "published"
        terms.append(
            _term(
                "batch against the critical one", slowed - alone, basis=basis, source=asked.critical.source, text=beyond
            )
        )
    for part in asked.effects:
        name = "replicas" if part.factor is not None else "way of training"
        nats = (
            None
            if part.factor is None and part.nats is None
            else slowed * ((part.factor or 1.0) - 1.0) + (part.nats or 0.0)
        )
        terms.append(
            _term(
                name,
                nats,
                factor=part.factor,
                basis=part.basis,
                source=part.source,
                text=part.text,
                counted=asked.counts(part),
            )
        )
    return {
        "loss": None if past_guessing(asked, parts) else slowed * asked.factor + asked.added,
        "loss_terms": terms,
        "law": {
            "name": law.name, "unit": law.unit, "data": law.data, "source": law.source, "parameters": size,
            "outside": outside(law, size, tokens), "optimum": _optimum(law, size * tokens),
        },
        "critical_batch": None if asked.critical is None else {
            "name": asked.critical.name, "tokens": float(critical(asked, least)), "least_tokens": least,
        },
    }  # fmt: skip


def _law_terms(law: LossLaw, size: float, tokens: float) -> list[dict[str, Any]]:
    """What the law itself is made of, each with the range of the fit where the run lies outside of it; terms that it does not have
    (no irreducible one, none of the tokens) are no lines."""
    floor = float(convergence.law_floor(size, law.irreducible, law.a, law.alpha, law.gamma))
    beyond = _outside(law, size, tokens)
    off = beyond.get(RATIO, "")
    of_tokens = "; ".join(filter(None, (beyond.get(TOKENS, ""), off)))
    of_size = "; ".join(filter(None, (beyond.get(SIZE, ""), off if law.b else of_tokens)))
    at = "" if law.tokens_per_parameter is None else f" at {law.tokens_per_parameter:g} tokens each"
    rows = [
        ("irreducible", float(law.irreducible), "", law.irreducible),
        (f"{show(size, '')} parameters{at}", floor - float(law.irreducible), of_size, law.a),
        (show(tokens, "tokens"), float(law_at(law, size, tokens)) - floor, of_tokens, law.b),
    ]
    return [
        _term(name, nats, basis="extrapolated" if text else "published", source=law.source, text=text)
        for name, nats, text, has in rows if has
    ]  # fmt: skip


def _optimum(law: LossLaw, product: float) -> dict[str, float] | None:
    """Parameters and tokens whose product is the same, and so their FLOPs, with the least loss; None for a law of one ratio."""
    if not law.b:
        return None
    size = float(convergence.optimal_parameters(product, 1.0, law.a, law.alpha, law.b, law.beta))
    return {"parameters": size, "tokens": product / size, "loss": float(law_at(law, size, product / size))}


def _term(
    name: str,
    nats: Any,
    *,
    factor: Any = None,
    basis: str = "published",
    source: str = "",
    text: str = "",
    counted: bool = True,
) -> dict[str, Any]:
    """One line of `loss_terms`; what is known of no figure has no nats and does not count."""
    return {
        "term": name,
        "nats": None if nats is None else float(nats),
        "factor": None if factor is None else float(factor),
        "basis": basis,
        "source": source or None,
        "text": text,
        "counted": counted and nats is not None,
    }


def outside(law: LossLaw, parameters: float, tokens: float) -> list[str]:
    """Where a run lies outside of what a law was fitted on, one sentence each."""
    return list(_outside(law, parameters, tokens).values())


def _outside(law: LossLaw, parameters: float, tokens: float) -> dict[str, str]:
    """The same by what is outside: SIZE, TOKENS, RATIO."""
    found = {}
    for name, value, least, most in (
        (SIZE, parameters, law.parameters_least, law.parameters_most), (TOKENS, tokens, law.tokens_least, law.tokens_most),
    ):  # fmt: skip
        if (least is not None and value < least * 0.999) or (most is not None and value > most * 1.001):
            found[name] = f"{show(value, '')} {name}: {law.name} was fitted on {_range(least, most)}"
    if law.tokens_per_parameter is not None:
        off = tokens / parameters / law.tokens_per_parameter
        if not 1.0 / RATIO_OFF <= off <= RATIO_OFF:
            says = f"{tokens / parameters:.3g} tokens a parameter: {law.name} holds at {law.tokens_per_parameter:g} and says nothing of others"
            found[RATIO] = says
    return found


def _batch_outside(law: CriticalBatch, tokens: float) -> str:
    """Where a run lies outside of what a law of the critical batch was fitted on; empty inside."""
    if (law.tokens_least or 0.0) <= tokens <= (law.tokens_most or np.inf):
        return ""
    return f"{show(tokens, 'tokens')}: {law.name} was fitted on {_range(law.tokens_least, law.tokens_most)}"


def _range(least: Number | None, most: Number | None) -> str:
    """`5B to 500B`; an end that is not stated is left out."""
    return " ".join(
        f"{word} {show(float(end), '')}" if word == "to" else show(float(end), "")
        for word, end in (("from", least), ("to", most)) if end is not None
    )  # fmt: skip


def rivals(scenario: Scenario, whole: Whole, run: dict[str, Any], batch: float) -> list[dict[str, Any]]:
    """`run.other_laws`: of a target, what the other laws of the catalog that reach it say of the same run, in their order: tokens, and
    the wall clock that these take, in proportion. Those that need more than `MOST` times the tokens, or less than one of as many, tell
    nothing.

    Leaves out: that pauses and failures are not quite in proportion, and that a loss in nats is another quality on other data."""
    asked, target = question(scenario, whole), scenario.run.target_loss
    if asked is None or target is None:
        return []
    model, found = scenario.assembled or scenario.model, []
    for law in scenario.run.other_laws:
        own = changed(asked, law=law, parameters=counted(model, law))
        tokens = float(tokens_for(own, target, batch))
        ratio = tokens / run["tokens"]
        if np.isfinite(tokens) and 1.0 / MOST <= ratio <= MOST:
            beyond = outside(law, own.parameters, tokens)
            found.append(
                {"name": law.name, "tokens": tokens, "wall_clock_s": ratio * run["wall_clock_s"], "outside": beyond}
            )
    return found


def intervals(asked: Question, parts: Sequence[tuple[float, float]], target: float | None) -> dict[str, Any]:
    """90 % intervals of loss and tokens from the refits of a law that was fitted here; null for laws of others, whose spread on one's own
    data is not known. Tokens are null too where more than 5 % of the refits do not reach the target."""
    drawn = [_with(asked, draw) for draw in asked.law.draws]
    if not drawn:
        return {"loss": None, "run_tokens": None}
    losses = [_reached(one, parts) for one in drawn]
    ends = None if target is None else lengths(asked, target, parts[0])
    tokens = None if ends is None or not np.isfinite(ends[1]) else [parts[0][0] * one for one in ends]
    return {"loss": None if past_guessing(asked, parts) else _ends(losses), "run_tokens": tokens}


def lengths(asked: Question, target: float, part: tuple[float, float]) -> tuple[float, float] | None:
    """The 90 % interval of the tokens of a target over those of the run, (tokens, batch in tokens), by the refits of its law: infinite where
    more than 5 % of them do not reach it. None for laws of others."""
    if not asked.law.draws:
        return None
    tokens, batch = part
    found = [float(tokens_for(_with(asked, draw), target, batch)) / tokens for draw in asked.law.draws]
    low, high = _ends([one if np.isfinite(one) else np.inf for one in found])
    return min(low, 1.0), max(high, 1.0)


def _reached(asked: Question, parts: Sequence[tuple[float, float]]) -> float:
    return float(reached(asked, parts))


def reached(asked: Question, parts: Sequence[tuple[Number, Number]]) -> Nats:
    """The loss of a run of (tokens, batch in tokens), part by part. Numbers may be arrays."""
    least = convergence.least_tokens(parts, lambda seen: critical(asked, seen))
    return law_at(asked.law, asked.parameters, least) * asked.factor + asked.added


def past_guessing(asked: Question, parts: Sequence[tuple[float, float]]) -> str:
    """Why a law says nothing of a run: it answers more than a model knows that has learned nothing. Empty where it does. Laws of a table
    in a unit of its own are measured by nats too, which is what a table is asked in."""
    found = _reached(asked, parts)
    if found <= asked.untrained:
        return ""
    tokens = float(plain_sum(one for one, _ in parts))
    says = f"{asked.law.name} answers {found:.4g} for {show(tokens, 'tokens')}, above the ln(vocabulary) = {asked.untrained:.4g} nats of guessing"
    return f"{says}: it was fitted on {_range(asked.law.tokens_least, asked.law.tokens_most) or 'longer runs'}"


def _with(asked: Question, draw: tuple[float, ...]) -> Question:
    """The question with the constants of a refit."""
    names = ("irreducible", "a", "alpha", "b", "beta", "gamma")
    return changed(asked, law=changed(asked.law, draws=(), **dict(zip(names, draw, strict=True))))


def _ends(values: list[float]) -> list[float]:
    """Ends of the interval among values, of which some may be infinite."""
    tail = (1.0 - LEVEL) / 2.0
    return [float(np.quantile(values, tail, method="lower")), float(np.quantile(values, 1.0 - tail, method="higher"))]


def warnings(scenario: Scenario, whole: Whole, run: dict[str, Any] | None) -> list[str]:
    """What a reader of the loss may overlook."""
    if scenario.run.law is None:
        return []
    if why := why_not(scenario, whole):
        return [f"the {'loss' if scenario.run.target_loss is None else 'run'} is null: {why}"]
    if run is None or run.get("law") is None:
        return []
    found = [f"loss beyond its law: {one}" for one in run["law"]["outside"]]
    found += _unknown(scenario, whole, run)
    if (scenario.assembled or scenario.model).experts:
        found.append(
            "laws of loss are of dense models: of experts the parameters that a token passes are counted, which is a guess"
        )
    for one in (one for one in run["loss_terms"] if not one["counted"] and one["nats"] != 0.0):
        known = "no figure is known"
        if one["nats"] is not None:
            known = f"{one['nats']:.3g} nats are a guess (run.loss_guesses: true counts them)"
        found.append(f"the loss leaves out {one['term']}: {known}; {one['text']}")
    found += [
        f"the loss is carried beyond what was measured: {one['text']}"
        for one in run["loss_terms"] if one["basis"] == "extrapolated" and one["text"] and one["source"] != run["law"]["source"]
    ]  # fmt: skip
    return found


def _unknown(scenario: Scenario, whole: Whole, run: dict[str, Any]) -> list[str]:
    """What a law says nothing of: a loss above that of guessing, lengths that its refits do not reach."""
    asked, target = question(scenario, whole), scenario.run.target_loss
    if asked is None:
        return []
    batch = float(step_tokens(whole))
    seen = [(one["tokens"], one["seq_len"] * one["global_batch"]) for one in run.get("phases", [])]
    why = past_guessing(asked, seen or [(run["tokens"], batch)]) if run["loss"] is None else ""
    found = [f"the loss is null: {why}"] if why else []
    ends = None if target is None else lengths(asked, float(target), (run["tokens"], batch))
    if ends is not None and not np.isfinite(ends[1]):
        says = f"more than {50.0 * (1.0 - LEVEL):.0f} % of the refits of {asked.law.name} do not reach {float(target or 0.0):g} with any data"
        found.append(
            f"how long the run is nobody knows: {says}; its intervals, and how likely it keeps a limit, are null"
        )
    return found

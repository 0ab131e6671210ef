"""What two ways of training cost in loss on the same tokens: as far as it is known, and on what that rests."""

from __future__ import annotations

from typing import Any

from shardmeter.core.record import record
from shardmeter.specs.round import BASES
from shardmeter.study.course import loss
from shardmeter.study.predict import Prediction

UNKNOWN = BASES[-1]
WAY_OUT = "run.law with run.target_loss compares at equal loss"


@record
class Learned:
    """Beside synchronous training on the same tokens."""

    factor: float = 1.0
    """By which the loss is multiplied."""
    nats: float = 0.0
    """What is added to it then."""
    basis: str = "derived"
    """A word of BASES; of what is unknown the numbers say nothing."""
    text: str = ""

    @property
    def known(self) -> bool:
        """Whether there is any figure."""
        return self.basis != UNKNOWN


def learned(made: Prediction) -> Learned:
    """What the way of training of a prediction is known to cost; a single island with gradients costs nothing."""
    parts = loss.effects(made.scenario, made.whole)
    if not parts:
        return Learned()
    worst = max(parts, key=lambda part: BASES.index(part.basis))
    found = Learned(basis=worst.basis, text=worst.text)
    for part in parts:
        factor, nats = 1.0 if part.factor is None else part.factor, 0.0 if part.nats is None else part.nats
        found = Learned(
            factor=found.factor * float(factor), nats=found.nats + float(nats), basis=found.basis, text=found.text
        )
    return found


@record
class Gap:
    """The loss of B beside that of A on the same tokens."""

    a: Learned
    b: Learned

    @property
    def known(self) -> bool:
        """Whether it has a figure."""
        return self.a.known and self.b.known

    @property
    def less_known(self) -> Learned:
        """The side of which less is known, which is B's where it is the same."""
        return max((self.b, self.a), key=lambda one: BASES.index(one.basis))

    @property
    def least_known_of(self) -> str:
        """Whose that is: A or B."""
        return "A" if self.less_known is self.a else "B"

    @property
    def text(self) -> str:
        """`× 1.034`, `+0.03 nats`."""
        ratio, nats = self.b.factor / self.a.factor, self.b.nats - self.a.nats
        return " ".join([*([f"× {ratio:.4g}"] if ratio != 1.0 else []), *([f"{nats:+.3g} nats"] if nats else [])])

    def figures(self) -> list[dict[str, Any]]:
        """Lines of `figures`: the factor and, where something is added, the nats."""
        found = [_line("loss_factor", "loss factor", "×", self, "factor")]
        if self.known and self.a.nats != self.b.nats:
            found.append(_line("loss_nats", "loss added", "nats", self, "nats"))
        return found

    def warnings(self) -> list[str]:
        """That equal tokens are not equal loss."""
        side = self.less_known
        if not self.known:
            return [
                f"equal tokens need not be equal loss: what the way of training of {self.least_known_of} costs is unknown ({side.text})"
            ]
        basis = f"{side.basis}: {side.text}" if side.text else side.basis
        return [
            f"equal tokens are not equal loss: by its way of training that of B is {self.text} that of A ({basis}); {WAY_OUT}"
        ]


def _line(figure: str, label: str, unit: str, gap: Gap, key: str) -> dict[str, Any]:
    one, other = float(getattr(gap.a, key)), float(getattr(gap.b, key))
    return {
        "figure": figure, "label": label, "unit": unit, "a": one if gap.a.known else None, "b": other if gap.b.known else None,
        "difference": other - one if gap.known else None, "ratio": other / one if gap.known and one else None, "interval_a": None,
        "interval_b": None, "basis_a": gap.a.basis, "basis_b": gap.b.basis,
    }  # fmt: skip


def gap(a: Prediction, b: Prediction) -> Gap | None:
    """What two predictions lose beside each other; None where it is the same: the same figures, or the same way of training of which
    none is known."""
    found = Gap(a=learned(a), b=learned(b))
    if found.known:
        return None if (found.a.factor, found.a.nats) == (found.b.factor, found.b.nats) else found
    one, other = ((made.scenario.plan.sync, len(made.scenario.fleet.islands)) for made in (a, b))
    return None if one == other else found

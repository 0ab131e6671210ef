"""Which accelerator a text means: the family first, then its memory, then its form."""

from __future__ import annotations

import re
from functools import lru_cache

from shardmeter.core.record import record
from shardmeter.core.units import GIB
from shardmeter.study.validate.rows import NotModelled, Unclear


@record
class AcceleratorReading:
    """A catalog row and what the text says differs from it."""

    name: str
    memory: float | None = None
    """Bytes."""
    memory_bandwidth: float | None = None
    """B/s."""
    power_limit: float | None = None
    """Watts."""


RULES: tuple[tuple[str, str], ...] = (
    (r"gb300", "GB300 (per GPU, NVL72)"),
    (r"gb200", "GB200 (per GPU, NVL72)"),
    (r"gh200.*\b(141|144)\s*gi?b", "GH200-141GB"),
    (r"gh200", "GH200-96GB"),
    (r"b300", "B300-SXM (HGX)"),
    (r"b200", "B200-SXM (HGX)"),
    (r"b100", "B100"),
    (r"h200.*nvl", "H200-NVL-141GB"),
    (r"h200", "H200-SXM-141GB"),
    (r"h800", "H800-SXM5"),
    (r"\bh20\b", "H20"),
    (r"h100.*nvl|h100.*\b94\s*gi?b(?!.*lower)", "H100-NVL-94GB"),
    (r"h100.*pcie", "H100-PCIe-80GB"),
    (r"h100", "H100-SXM5-80GB"),
    (r"a[18]00.*pcie.*40", "A100-PCIe-40GB"),
    (r"a[18]00.*pcie", "A100-PCIe-80GB"),
    (r"a[18]00.*\b40\s*gi?b", "A100-SXM4-40GB"),
    (r"a[18]00", "A100-SXM4-80GB"),
    (r"v100.*32", "V100-SXM2-32GB"),
    (r"v100", "V100-SXM2-16GB"),
    (r"mi35[05]x", "MI355X"),
    (r"mi325x", "MI325X"),
    (r"mi300x?\b", "MI300X"),
    (r"mi250x?\b", "MI250X (1 GCD)"),
    (r"l40s", "L40S"),
    (r"\bl4\b", "L4"),
    (r"\ba10g\b", "A10G"),
    (r"\ba10\b", "A10"),
    (r"rtx[ -]?pro[ -]?6000", "RTX PRO 6000 Blackwell (Server/Workstation)"),
    (r"rtx[ -]?a6000", "RTX A6000"),
    (r"rtx[ -]?3090|\b3090\b", "RTX 3090"),
    (r"rtx[ -]?4090|\b4090\b", "RTX 4090"),
    (r"rtx[ -]?5090|\b5090\b", "RTX 5090"),
    (r"tpu7x|ironwood|tpu[ -]?v7", "TPU7x (Ironwood)"),
    (r"tpu[ -]?v?6e?|trillium", "TPU v6e (Trillium)"),
    (r"tpu[ -]?v5p", "TPU v5p"),
    (r"tpu[ -]?v5 ?(e|lite)", "TPU v5e"),
    (r"tpu[ -]?v4", "TPU v4"),
    (r"tpu[ -]?v3", "TPU v3"),
    (r"trainium ?2|trn2", "Trainium2"),
    (r"trainium|trn1", "Trainium1"),
    (r"gaudi ?-?3", "Gaudi3"),
    (r"gaudi ?-?2", "Gaudi2"),
)
"""(pattern in the lower-case text, catalog row); the first that is found decides."""

LOW_POWER_H100 = re.compile(r"h100.*(hbm2e|lower tdp)")


@lru_cache(maxsize=4096)
def read_accelerator(text: str) -> AcceleratorReading:
    """The accelerator that `text` means. Mixed fleets cannot be expressed; a doubtful label does not count."""
    plain = text.lower()
    if not plain:
        raise Unclear("the accelerator is not stated")
    if "?" in plain:
        raise Unclear(f"the accelerator is doubtful in the source: {text}")
    if "power limited" in plain and not re.search(r"\d+ ?w\b", plain):
        raise Unclear(f"the power limit of the accelerator is not stated: {text}")
    name = accelerator_name(plain)
    if not name:
        raise NotModelled(f"accelerator not known: {text}")
    _check_form(text)
    if LOW_POWER_H100.search(plain):
        return AcceleratorReading(name=name, memory=96 * GIB, memory_bandwidth=2.4e12, power_limit=500.0)
    return AcceleratorReading(name=name)


def accelerator_name(text: str) -> str:
    """The catalog row that the rules find in `text`; empty if none. Several kinds in one text are a mixed fleet."""
    plain = text.lower()
    parts = [part for part in re.split(r"\s*\+\s*(?=[a-z])", plain) if part]
    if len(parts) > 1 and sum(bool(re.search(r"rtx|v100|a100|h100|h200|b200|mi\d", part)) for part in parts) > 1:
        raise NotModelled(f"mixed fleets of accelerators are not modelled yet: {text}")
    return next((name for pattern, name in RULES if re.search(pattern, plain)), "")


FORMS = ("sxm", "pcie", "nvl", "hgx", "dgx")
"""Words that tell the forms of one chip apart."""
KNOWN_WORDS = frozenset({*FORMS, "mgx", "egx"})
"""Words that are no slip, though one letter away from another."""
_FORM = re.compile(r"\b(sxm\d?|pcie|nvl(\d+)?|[hd]gx|\d+ ?gi?b|nvlink|gcd)\b")
_SEVERAL = re.compile(r"^(h100|h200|gh200|a[18]00|v100)")


def _check_form(text: str) -> None:
    """Refuse a word that is nearly the name of a form: another form than the one meant would be predicted."""
    for word in re.findall(r"[a-z]+", text.lower()):
        meant = next((form for form in FORMS if _one_slip(word, form)), "")
        if word not in KNOWN_WORDS and meant:
            raise Unclear(f"the form of the accelerator is not known: {text}; did you mean {meant.upper()}?")


def _one_slip(word: str, form: str) -> bool:
    """Whether two words differ by one letter, or by two that changed places; a longer one also by one that is missing."""
    if len(word) == len(form):
        wrong = [i for i, pair in enumerate(zip(word, form, strict=True)) if pair[0] != pair[1]]
        return len(wrong) == 1 or (len(wrong) > 1 and sorted(word) == sorted(form))
    return (
        len(form) > 3 and len(word) == len(form) - 1 and any(form[:i] + form[i + 1 :] == word for i in range(len(form)))
    )


def guessed(text: str, name: str) -> str:
    """What is taken for granted where a text names a chip and not its form; empty where it says enough."""
    plain = text.lower()
    if plain == name.lower() or _FORM.search(plain) or not _SEVERAL.search(name.lower()):
        return ""
    return f"accelerator {text} is read as {name}"

"""The words of files of runs across islands: which texts of `quantity`, `method`, `kind` and `unit` mean what.

Rules are regular words, never ids: a file that nobody has seen is read by them. The first rule that matches a text decides.
`docs/geo.md` is written from these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from shardmeter.core.errors import nearest
from shardmeter.core.record import record
from shardmeter.study.validate.rows import NotModelled, Unclear

CONVERGENCE = "what a loss is worth on a benchmark is not modelled"
INTERRUPTED = "how often something fails in it, and what a failure takes, is not stated"
COMPARED = "a comparison with a baseline whose settings the row does not state"
PARTICIPATION = "who takes part in a run is given, not predicted"
ZERO_ORDER = (
    "passes side by side and updates are not stated: what is published of it is taken apart in docs/zero-order.md"
)


@record
class Quantity:
    """A canonical quantity: the words that mean it, what it measures, and why it is not predicted where it is not."""

    name: str
    pattern: str
    """Searched in the plain text (see `plain`)."""
    dimension: str
    """A key of `UNITS`."""
    says: str
    skip: str = ""
    """Why no row of it is predicted; empty for those that are."""


@record
class Word:
    """A canonical method or kind of row: the words that mean it."""

    name: str
    pattern: str
    says: str
    exclude: str = ""
    """Why rows of this kind do not count."""


def _q(name: str, pattern: str, dimension: str, says: str, skip: str = "") -> Quantity:
    return Quantity(name=name, pattern=pattern, dimension=dimension, says=says, skip=skip)


def _w(name: str, pattern: str, says: str, exclude: str = "") -> Word:
    return Word(name=name, pattern=pattern, says=says, exclude=exclude)


QUANTITIES: tuple[Quantity, ...] = (
    _q("perplexity", r"perplexity|\bppl\b", "pure", "exponential of a loss"),
    _q("loss", r"\bloss\b|\bce\b|cross entropy|\bbpb\b", "loss", "loss of a trained model, or a difference of losses"),
    _q("quality", r"accuracy|\bfid\b", "pure", "score of a trained model on a benchmark", CONVERGENCE),
    _q("equivalence", r"^beats |^equals |matches convergence", "pure", "what reaches the quality of something else", CONVERGENCE),
    _q("mtbf", r"\bmt[tb]f\b|uninterrupted", "time", "time from one failure of a machine, or of a job on it, to the next"),
    _q("failures", r"interruption|\bfailures per\b|restarts", "pure", "how often something fails"),
    _q("goodput", r"goodput (under|with|at)|effective training time|availability", "fraction", "share of the time that trains", INTERRUPTED),
    _q("checkpoint_time", r"checkpoint (write|save|load)", "time", "writing or reading a checkpoint"),
    _q("traffic_ratio", r"(data|bytes|traffic) communicated.* (vs|versus)", "pure", "traffic against another method", COMPARED),
    _q("speedup", r"speed ?up|training speed|faster|time reduction|scaling efficiency|time (vs|versus)", "pure",
       "time against another method or a single site", COMPARED),
    _q("gpu_utilization", r"gpu utili[sz]ation", "fraction", "share of the time that GPUs are busy", COMPARED),
    _q("iteration_time", r"\b(iteration|step) (wall )?time|(time|seconds) (per|of an?) (iteration|step)\b|^iteration", "time",
       "one optimizer step, everything included"),
    _q("dp_sync_all_reduce_time", r"dp sync.*allreduce", "time", "the gradients of a data-parallel group by all-reduce, shard by shard"),
    _q("dp_sync_central_time", r"dp sync.*centrali?[sz]?e?d?", "time", "the same through one central parameter server"),
    _q("dp_sync_sharded_time", r"dp sync.*shard", "time", "the same through parameter servers that hold a shard each"),
    _q("sync_time", r"outer (allreduce|sync\w*)( \w+)? time|(communication|sync\w*) time", "time",
       "outer synchronisation of a round, exposed"),
    _q("sync_share", r"share of (wall )?time in", "fraction", "share of the time in the outer synchronisation"),
    _q("all_reduce_time", r"allreduce( \w+)? time|time of an? allreduce", "time", "one all-reduce over all nodes"),
    _q("broadcast_time", r"broadcast time", "time", "one broadcast over all nodes"),
    _q("reduce_time", r"\breduce time", "time", "one reduction to a node"),
    _q("p2p_time", r"\b(p2p|point to point|send recv) time", "time", "one message from a node to another"),
    _q("ring_bandwidth", r"effective ring bandwidth", "bandwidth", "rate of a ring that the time of an all-reduce implies"),
    _q("wan_bandwidth", r"bandwidth (needed |required )?(to reach|for (cu|compute))|required bandwidth", "bandwidth",
       "rate of a link at which the accelerators reach a compute utilisation"),
    _q("network_rate", r"goodput|bandwidth utili[sz]ation", "bandwidth", "what a long link carries, headers left out"),
    _q("compute_utilization", r"compute utili[sz]ation|\bcu\b", "fraction", "compute seconds of all seconds"),
    _q("mfu", r"\bmfu\b|model flops? utili[sz]ation", "fraction", "model FLOPs of the peak"),
    _q("inner_phase_time", r"inner phase|compute time per round|local (compute )?phase", "time", "the inner steps of a round"),
    _q("compression_factor", r"compression factor", "pure", "dense fp32 bytes over bytes sent"),
    _q("round_bytes", r"bytes (uploaded|sent|up)\b.*\bround", "size", "what one island sends in a round"),
    _q("traffic", r"\b([kmgtp]i?b|bytes|data) (exchanged|moved|sent|transferred|communicated)|payload", "size",
       "bytes that an island exchanges in the whole run"),
    _q("update_time", r"(time|gpu seconds) per update", "time", "one update of a zero-order method", ZERO_ORDER),
    _q("gpu_hours", r"gpu h(ours)?\b", "time", "accelerator hours of a run", ZERO_ORDER),
    _q("wall_time", r"^hours at|wall (clock )?time|training time|\bduration\b", "time", "the whole run"),
    _q("memory", r"\bmemory\b", "size", "device memory of a node", "memory across islands is not compared yet"),
    _q("peers", r"contributing peers|\bpeers\b", "pure", "islands that take part", PARTICIPATION),
    _q("steps", r"training steps", "pure", "optimizer steps of a run", PARTICIPATION),
)  # fmt: skip
"""In order: the first whose words occur decides."""

BY_UNIT: Mapping[str, str] = {r"^nats|^bits? ?(/|per)": "loss", r"^ppl": "perplexity"}
"""The quantity that a unit gives away, whatever else the text says."""

METHODS: tuple[Word, ...] = (
    _w("decoupled_diloco", r"decoupled diloco", "asynchronous rounds with deadlines, fragment by fragment"),
    _w("diloco_x", r"dilocox", "DiLoCo with low-rank, 4-bit, delayed outer gradients and pipelines inside an island"),
    _w("streaming_diloco", r"streaming", "DiLoCo that sends fragments in turn; overlapped: applied some steps later"),
    _w("sparse_loco", r"sparseloco|sparse loco", "outer gradients as the largest few of every chunk"),
    _w("no_loco", r"noloco|gossip", "outer averages of pairs"),
    _w("async_local_sgd", r"async", "outer updates that nobody waits for"),
    _w("local_sgd", r"local sgd|fedavg|federated", "inner steps, then plain averages"),
    _w("diloco", r"diloco", "H inner steps, then one outer update from the averaged outer gradient"),
    _w("demo", r"\bdemo\b", "decoupled momentum: the largest coefficients of chunks, every step"),
    _w("block_train", r"blocktrain|same block", "blocks trained with objectives of their own"),
    _w("zero_order", r"soma|spsa|eggroll|mezo|zero order", "perturbed forward passes instead of gradients"),
    _w("independent_experts", r"branch train|dipaco|isolated .*experts|sparse expert", "experts trained apart, merged or routed"),
    _w("dtfm_unscheduled", r"ours (wo|w/o|without)", "GPipe by data group, ranks in random order"),
    _w("dtfm", r"ours (w|w/|with)\b", "GPipe by data group, ranks ordered by the scheduler of its authors"),
    _w("megatron", r"megatron", "Megatron-LM: 1F1B over blocking sends, or tensor parallel"),
    _w("deepspeed_pp", r"deepspeed", "the pipeline of DeepSpeed"),
    _w("zero3", r"zero ?(s|stage)? ?3|\bfsdp\b", "parameters gathered layer by layer over all ranks"),
    _w("dp_sync", r"dp sync", "collectives of a data-parallel group alone"),
    _w("gpipe", r"gpipe", "all forwards, then all backwards through the stages"),
    _w("one_f_one_b", r"1f1b", "one forward, one backward in turn"),
    _w("pipeline", r"pipeline|\bpp\b|varuna|atlas|bubbletea|swarm", "pipelines across sites, other systems"),
    _w("p2p", r"\bp2p\b|point to point", "messages between two nodes"),
    _w("broadcast", r"\bbroadcast\b", "one node to all"),
    _w("reduce", r"\breduce\b", "all nodes to one"),
    _w("data_parallel", r"data parallel|\bddp\b|\bdp\b", "gradients averaged over all islands every step"),
    _w("all_reduce", r"allreduce", "all-reduce over all nodes"),
    _w("single", r"baseline|centrali[sz]ed|single", "one island"),
    _w("search", r"explorer|parallelism placement", "a search over placements and schedules"),
    _w("unstated", r"^$", "no method named"),
)  # fmt: skip

KINDS: tuple[Word, ...] = (
    _w(
        "unverified",
        r"unverified|from memory",
        "not read in a source",
        "the source was not read: a snippet or a memory",
    ),
    _w(
        "secondary",
        r"^secondary",
        "read in a text about the source",
        "second-hand: read in another text than its source",
    ),
    _w("derived", r"^derived", "computed from figures of the same run"),
    _w("trained", r"^trained", "a trained model"),
    _w("simulated", r"simulat|production model", "the result of a program of others"),
    _w("measured", r"^measured", "a clock or a counter"),
)

GBIT = 1e9 / 8.0
UNITS: Mapping[str, Mapping[str, float]] = {
    "time": {
        r"(?i:s|secs?|seconds?|gpu[ -]?s)": 1.0, r"(?i:ms)": 1e-3, r"(?i:us|µs|μs)": 1e-6, r"(?i:mins?|minutes?)": 60.0,
        r"(?i:h|hrs?|hours?|gpu[ -]?h)": 3600.0, r"(?i:d|days?)": 86400.0,
    },
    "bandwidth": {
        r"(?i:gbits?/s|gbps)|Gb/s": GBIT, r"(?i:mbits?/s|mbps)|Mb/s": GBIT / 1e3, r"(?i:tbits?/s|tbps)|Tb/s": GBIT * 1e3,
        r"GB/s": 1e9, r"MB/s": 1e6, r"B/s": 1.0,
    },
    "size": {
        r"B|(?i:bytes?)": 1.0, r"[kK]B": 1e3, r"MB": 1e6, r"GB": 1e9, r"TB": 1e12, r"PB": 1e15, r"MiB": 2.0**20, r"GiB": 2.0**30,
        r"TiB": 2.0**40,
    },
    "fraction": {r"%|(?i:percent)": 0.01, r"|1|(?i:fraction|share)": 1.0},
    "pure": {r".*": 1.0},
    "loss": {r".*": 1.0},
}  # fmt: skip
"""SI value of a unit, by dimension: seconds, bytes per second, bytes, 1. Small b is bit, capital B is byte."""
TEXTS = 4096
"""Texts whose meaning is kept: files repeat few of them."""


@lru_cache(TEXTS)
def plain(text: str) -> str:
    """A text as rules see it: small letters, single blanks, dashes and underscores as blanks, `all-reduce` in one word."""
    spaced = re.sub(r"[\s_\-–—]+", " ", text.casefold()).strip()
    return re.sub(r"\ball reduce\b", "allreduce", spaced)


@lru_cache(TEXTS)
def quantity_of(text: str, unit: str = "") -> Quantity:
    """The canonical quantity of a text. Raises NotModelled with the nearest where no rule knows it."""
    words = plain(text)
    for pattern, name in BY_UNIT.items():
        if re.search(pattern, plain(unit)):
            return named(name)
    rules = (
        lambda q: words == plain(q.name),
        lambda q: re.search(q.pattern, words),
        lambda q: words.startswith(plain(q.name)),
    )
    for rule in rules:
        for quantity in QUANTITIES:
            if rule(quantity):
                return quantity
    if not words:
        raise Unclear("no quantity is named")
    close = ", ".join(nearest(words, (one.name for one in QUANTITIES)))
    raise NotModelled(f"unknown quantity {text[:60]!r}; the nearest are: {close}")


def named(name: str) -> Quantity:
    """The canonical quantity of a canonical name."""
    return next(one for one in QUANTITIES if one.name == name)


@lru_cache(TEXTS)
def method_of(text: str) -> str:
    """The canonical method of a text; `other` where no rule knows it."""
    return _first(METHODS, text).name if text else "unstated"


@lru_cache(TEXTS)
def kind_of_row(text: str) -> Word:
    """The canonical kind of a row; `other` where no rule knows it."""
    return _first(KINDS, text)


def source_of(text: str) -> str:
    """The source of a row, without the number under which a collector keeps it."""
    return re.sub(r"\s*\(id [0-9]+\)", "", text) or "not stated"


def _first(words: Iterable[Word], text: str) -> Word:
    searched = plain(text)
    found = (word for word in words if re.search(word.pattern, searched) or searched == plain(word.name))
    return next(found, Word(name="other", pattern="", says="none of the above"))


def si(value: float, unit: str, dimension: str) -> float:
    """A value in SI. Raises Unclear for a unit that the dimension does not have."""
    words = " ".join(unit.split())
    for pattern, factor in UNITS[dimension].items():
        if re.fullmatch(pattern, words):
            return value * factor
    raise Unclear(f"{unit!r} is no unit of {dimension}" if unit else f"no unit is stated for a {dimension}")


def names(words: Sequence[Quantity] | Sequence[Word]) -> tuple[str, ...]:
    """Canonical names of a table, in its order."""
    return tuple(dict.fromkeys(word.name for word in words))

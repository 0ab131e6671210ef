"""A scenario is a query string and back: the same document, the same figures; nothing in it names a file."""

import base64
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmeter.core.errors import BadScenario, UnknownName
from shardmeter.scenario import opened as opened_file
from shardmeter.scenario.catalog import catalog_of
from shardmeter.scenario.grammar import parse_plan
from shardmeter.study.predict import predict
from shardmeter.ui.answers import scenario_of
from shardmeter.ui.examples import example, examples, line
from shardmeter.ui.state import State, deflated, files_in, inflated, key_of, opened, parsed, state_of

ROWS = catalog_of(None)
ONE = "model=llama-3.1-8b&gpus=64xH100-SXM5-80GB"


def figures(state):
    document, rows = opened(state, ROWS)
    found = predict(scenario_of(document, rows)).to_dict(advised=False)
    return {
        key: found[key] for key in ("step_time_s", "tokens_per_s", "memory", "ledger", "run", "islands", "intervals")
    }


def spelled(data):
    """A document with its one-line plan as a mapping."""
    return data | {"plan": parse_plan(data["plan"])} if isinstance(data.get("plan"), str) else data


def test_a_field_is_the_option_of_the_command():
    query = f"{ONE}&plan=fsdp,tp=2&seq=4096&micro_batch=2&global_batch=512&tokens=1T&price=$2/gpu/h&deadline=30 d&budget=$1M"
    options = {
        "model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp,tp=2", "seq": "4096", "micro_batch": "2",
        "global_batch": "512", "tokens": "1T", "price": "$2/gpu/h",
    }  # fmt: skip
    wanted, _ = opened_file(None, options=options, overrides=["run.deadline=30 d", "run.budget=$1M"])
    assert opened(parsed(query).state, ROWS)[0].data == wanted.data


def test_islands_are_a_fleet_of_equal_ones():
    query = f"{ONE}&islands=4&bandwidth=10 Gbps&rtt=40 ms&method=diloco&sync_every=100"
    data = opened(parsed(query).state, ROWS)[0].data
    assert data["fleet"] == {
        "islands": [{"gpus": "64xH100-SXM5-80GB", "count": 4}], "wan": {"default": {"bandwidth": "10 Gbps", "rtt": "40 ms"}}
    }  # fmt: skip
    assert data["plan"]["sync"] == {"method": "diloco", "sync_every": 100}


def test_order_does_not_count_and_what_is_empty_is_not_said():
    first = parsed("gpus=8xA100-SXM4-80GB&model=llama-2-7b&plan=&tab=plan").state
    other = parsed("model=llama-2-7b&gpus=8xA100-SXM4-80GB").state
    assert first == other
    assert first.text() == other.text()


PLANS = st.sampled_from(
    ["fsdp", "fsdp,tp=2", "ddp", "zero1,tp=4,recompute=full", "fsdp,reshard=false", "zero2,micro_batch=2"]
)
SETS = st.sampled_from(
    ["stack.launch_overhead=6 us", "run.eval=null", "plan.optimizer=sgd", "plan.recompute=every-2", "model.layers=16"]
)


@st.composite
def states(draw):
    pairs = [("model", draw(st.sampled_from(["llama-3.1-8b", "llama-2-7b", "qwen2.5-0.5b"])))]
    pairs.append(("gpus", f"{8 * draw(st.integers(1, 16))}xH100-SXM5-80GB"))
    if draw(st.booleans()):
        pairs.append(("price", draw(st.sampled_from(["$2.10/gpu/h", "$98.32/node/h"]))))
    if draw(st.booleans()):
        pairs.append(("plan", draw(PLANS)))
    if draw(st.booleans()):
        pairs.append(("seq", str(draw(st.sampled_from([1024, 4096])))))
    if draw(st.booleans()):
        pairs.append(("tokens", draw(st.sampled_from(["1T", "300B", "20000000"]))))
    if draw(st.booleans()):
        pairs += [
            ("islands", str(draw(st.integers(2, 8)))),
            ("bandwidth", f"{draw(st.integers(1, 400))} Gbps"),
            ("rtt", "20 ms"),
        ]
        pairs.append(("method", draw(st.sampled_from(["every_step", "diloco", "streaming_diloco"]))))
        if draw(st.booleans()):
            pairs.append(("sync_every", str(draw(st.integers(2, 500)))))
    pairs += [("set", text) for text in draw(st.lists(SETS, max_size=2, unique=True))]
    return State(pairs=tuple(pairs))


@given(states())
def test_a_state_of_a_scenario_of_a_state_predicts_the_same(state):
    try:
        before = figures(state)
    except BadScenario:  # a plan that is illegal there: the document is the same all the same
        before = None
    data = opened(state, ROWS)[0].data
    again = parsed(state_of(data, ROWS).text()).state
    assert spelled(opened(again, ROWS)[0].data) == spelled(data)
    if before is not None:
        assert figures(again) == before


@pytest.mark.parametrize("name", sorted(examples()))
def test_an_example_is_a_state_and_predicts_as_its_file_does(name):
    state = parsed(f"example={name}").state
    data = opened(state, ROWS)[0].data
    again = state_of(data, ROWS)
    assert spelled(opened(parsed(again.text()).state, ROWS)[0].data) == spelled(data)
    assert example(name).strip()
    assert line(example(name))


def test_the_plan_of_a_search_keeps_its_fields():
    from shardmeter.study.api import plan

    found = plan(
        model="llama-3.1-8b", gpus="16xH100-SXM5-80GB", overrides=["plan.tp=1,2", "plan.micro_batch=1,2"], top=3
    )
    for one in found.to_dict()["plans"]:
        state = parsed(state_of(one["scenario"], ROWS).text()).state
        assert state.value("plan"), "a plan of fields is shown in the form, not as a text"
        assert figures(state)["step_time_s"] == one["step_time_s"]
        assert figures(state)["memory"]["peak_gib"] == one["memory_peak_gib"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("modl=llama", "modl"),
        ("model=a&model=b", "model"),
        (f"model={'a' * 5000}", "model"),
        ("yaml=abc&model=x", "model"),
        ("example=a&yaml=b", "example"),
        ("yaml=a&gpus=8xH100", "gpus"),
    ],
)
def test_what_is_no_question_is_refused_with_its_key(query, field):
    with pytest.raises(BadScenario) as caught:
        parsed(query)
    assert [one.field for one in caught.value.violations] == [field]


def test_everything_wrong_is_said_at_once():
    with pytest.raises(BadScenario) as caught:
        parsed("a=1&b=2&model=x&model=y")
    assert [one.field for one in caught.value.violations] == ["a", "b", "model"]


def test_too_much_is_refused():
    for query in ("&".join(f"set=a.b{n}=1" for n in range(300)), "model=" + "a" * 70_000, "model=%ff%fe"):
        with pytest.raises(BadScenario):
            parsed(query)


def test_a_whole_scenario_is_packed_and_unpacked():
    text = "model: llama-3.1-8b\ngpus: 8xH100-SXM5-80GB\n# ü\n"
    assert inflated(deflated(text)) == text


def packed(raw):
    machine = zlib.compressobj(level=9, wbits=-15)
    return base64.urlsafe_b64encode(machine.compress(raw) + machine.flush()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (packed(b"a" * 50_000_000), "no scenario"),
        (packed(b"\xff\xfe\xfd"), "UTF-8"),
        (packed(b"  \n"), "empty"),
        ("%%%%", "no deflated text"),
        ("AAAA", ""),
        (packed(b"model: x")[:-4], ""),
    ],
)
def test_what_unpacks_to_no_scenario_is_refused_before_it_is_read(text, says):
    with pytest.raises(BadScenario) as caught:
        inflated(text)
    assert says in caught.value.violations[0].says


@given(st.binary(max_size=200))
def test_any_bytes_unpack_or_are_refused(raw):
    with suppress(BadScenario):
        assert inflated(base64.urlsafe_b64encode(raw).decode()).strip()


FILES = [
    {"model": "/etc/passwd"},
    {"model": "../../etc/passwd"},
    {"model": "~/secret"},
    {"model": "file:///etc/passwd"},
    {"model": "run.yaml"},
    {"model": {"base": "x.JSON"}},
    {"stack": {"base": "..\\x.toml"}},
    {"model": "weights.safetensors"},
    {"run": {"law": "losses.csv"}},
    {"run": {"reference": "./config.json"}},
    {"fleet": {"prices": "prices"}},
    {"fleet": {"islands": [{"accelerator": "/dev/stdin"}]}},
    {"model": "https://example.org/config"},
]


@pytest.mark.parametrize("data", FILES, ids=str)
def test_what_names_a_file_is_found(data):
    (found,) = files_in(data)
    assert "names a file" in found.says
    assert found.field.split(".")[0] in data


def test_names_of_the_catalog_name_no_file():
    for kind in ("models", "stacks", "accelerators", "fabrics", "regions", "instances"):
        for name in ROWS.names(kind):
            assert not files_in({"model": name}), name


def test_a_name_may_look_like_a_file_where_it_is_only_a_name():
    assert not files_in({"name": "run.yaml"})


def test_an_unknown_example_has_near_ones():
    with pytest.raises(UnknownName) as caught:
        opened(parsed("example=intellect").state, ROWS)
    assert "intellect-1" in caught.value.nearest


@pytest.mark.parametrize(
    ("query", "key"),
    [
        (f"{ONE}&plan=fsdp,tp=3", "plan"),
        ("model=llama-3.1-8b&gpus=63xH100-SXM5-80GB", "gpus"),
        (f"{ONE}&islands=4", "bandwidth"),
        (f"{ONE}&islands=0", "islands"),
        (f"{ONE}&seq=abc", "seq"),
        (f"{ONE}&deadline=5", "deadline"),
        (f"{ONE}&micro_batch=-1", "micro_batch"),
        (f"{ONE}&set=plan.tpp=4", "set"),
        (f"{ONE}&price=2", "price"),
    ],
)
def test_a_violation_knows_its_field_of_the_form(query, key):
    with pytest.raises(BadScenario) as caught:
        figures(parsed(query).state)
    assert key in {key_of(one) for one in caught.value.violations}


def test_the_wheel_has_every_example():
    import tomllib
    from pathlib import Path

    root = Path(__file__).parents[2]
    with (root / "pyproject.toml").open("rb") as stream:
        forced = tomllib.load(stream)["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files = {f"examples/{file.name}" for file in (root / "examples").glob("*.yaml")}
    assert forced == {name: f"shardmeter/ui/{name}" for name in files}

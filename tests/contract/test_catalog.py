"""Every shipped row can be read and is documented; a user's rows come on top; bad rows are refused with their place."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

import shardmeter.physics
from shardmeter.core.errors import BadData, UnknownName
from shardmeter.core.formula import REGISTRY
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.rows import DIMENSIONS
from shardmeter.scenario.tables import DTYPES, KINDS
from shardmeter.specs import (
    Accelerator,
    CriticalBatch,
    Egress,
    Fabric,
    Failures,
    Grid,
    Instance,
    Line,
    LossLaw,
    Model,
    Pair,
    Region,
    Stack,
    Storage,
)

CATALOG = load_catalog()
RECORDS: dict[str, tuple[Callable[[str], Any], type]] = {
    "accelerators": (CATALOG.accelerator, Accelerator),
    "fabrics": (CATALOG.fabric, Fabric),
    "instances": (CATALOG.instance, Instance),
    "models": (CATALOG.model, Model),
    "stacks": (CATALOG.stack, Stack),
    "regions": (CATALOG.region, Region),
    "links": (CATALOG.link, Line),
    "pairs": (CATALOG.pair, Pair),
    "egress": (CATALOG.egress, Egress),
    "grids": (CATALOG.grid, Grid),
    "storage": (CATALOG.storage, Storage),
    "laws": (CATALOG.law, LossLaw),
    "critical_batches": (CATALOG.critical_batch, CriticalBatch),
    "failures": (CATALOG.failures, Failures),
}
FLOOR = {"accelerators": 38, "fabrics": 20, "instances": 40, "models": 45, "stacks": 7} | {
    "regions": 60, "links": 15, "pairs": 300, "egress": 50, "grids": 60, "storage": 3, "laws": 5, "critical_batches": 2,
    "failures": 8,
}  # fmt: skip
WIDTH = {"fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "fp4": 4}
DATE = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")
EVERY_ROW = [(kind, row) for kind in KINDS for row in CATALOG.rows(kind)]
ACCELERATORS = [CATALOG.accelerator(name) for name in CATALOG.names("accelerators")]
MINIMAL_GPU = "name,memory,memory_bandwidth,peak_bf16,scale_up_bandwidth,scale_up_domain,node_size\n"
H100X = MINIMAL_GPU + "H100X,96 GiB,4 TB/s,1200 TFLOP/s,450 GB/s,8,8\n"
TINY = {"layers": 2, "hidden": 64, "ffn": 256, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 1000}


def row_id(value):
    return f"{value[0]}:{value[1]['name']}"


def dollars_per_hour(instance):
    assert instance.price is not None
    return instance.price * 3600


def complaints(tmp_path):
    with pytest.raises(BadData) as caught:
        load_catalog([tmp_path])
    assert caught.value.violations
    return str(caught.value)


@pytest.mark.parametrize("kind", KINDS)
def test_there_are_enough_rows(kind):
    assert len(CATALOG.names(kind)) >= FLOOR[kind]


@pytest.mark.parametrize("entry", EVERY_ROW, ids=row_id)
def test_every_row_becomes_a_record(entry):
    kind, row = entry
    find, record = RECORDS[kind]
    found = find(row["name"])
    assert found.name == row["name"]
    assert isinstance(found, record)


@pytest.mark.parametrize("entry", EVERY_ROW, ids=row_id)
def test_every_row_says_where_it_is_from(entry):
    kind, row = entry
    assert row["source"]
    assert "from memory" not in " ".join(row.values()).lower()
    if kind != "stacks":
        assert DATE.fullmatch(row["retrieved"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_record_can_be_written_in_a_cell(kind):
    readable = {*DIMENSIONS, "Degrees", "str", "int", "bool", "tuple[str, ...]"}
    built = {"peak", "matmul_share", "attention_share", "vision", "draws"}
    types = {str(one.type).removesuffix(" | None") for one in fields(RECORDS[kind][1]) if one.name not in built}
    assert types <= readable


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_aliases_are_unique(kind):
    names = [name for row in CATALOG.rows(kind) for name in (row["name"], *row.get("aliases", "").split("|")) if name]
    lower = [name.lower() for name in names]
    assert sorted(lower) == sorted(set(lower))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "accelerators"])
def test_ids_are_lower_case_slugs(kind):
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9._:/-]*", name) for name in CATALOG.names(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_any_case_and_every_alias_finds_the_row(kind):
    find, _ = RECORDS[kind]
    for row in CATALOG.rows(kind):
        for text in (row["name"].upper(), *row.get("aliases", "").split("|")):
            assert not text or find(text).name == row["name"]


@pytest.mark.parametrize("gpu", ACCELERATORS, ids=lambda gpu: gpu.name)
def test_a_narrower_dtype_is_never_slower(gpu):
    known = [(WIDTH[dtype], gpu.peak[dtype]) for dtype in DTYPES if dtype in gpu.peak]
    for width, rate in known:
        assert all(rate <= other for narrower, other in known if narrower < width)


@pytest.mark.parametrize("gpu", ACCELERATORS, ids=lambda gpu: gpu.name)
def test_shares_are_shares_and_every_dtype_and_kernel_has_one(gpu):
    assert set(gpu.matmul_share) == set(gpu.peak)
    assert set(gpu.attention_share) == {"fa1", "fa2", "fa3", "cudnn"}
    shares = [one for pair in gpu.attention_share.values() for one in pair]
    assert all(0.0 < share <= 1.0 for share in (*shares, gpu.memory_share, gpu.scale_up_share))
    # desktop cards run above the boost clock that their peak is listed at
    most = 1.25 if gpu.name.startswith("RTX") else 1.0
    assert all(0.0 < share <= most for share in gpu.matmul_share.values())
    assert all(forward >= backward for forward, backward in gpu.attention_share.values())


@pytest.mark.parametrize("gpu", ACCELERATORS, ids=lambda gpu: gpu.name)
def test_a_scale_up_domain_holds_whole_nodes(gpu):
    assert gpu.scale_up_domain >= gpu.node_size
    assert gpu.scale_up_domain % gpu.node_size == 0
    assert gpu.pair_bandwidth is None or gpu.pair_bandwidth <= gpu.scale_up_bandwidth


@pytest.mark.parametrize("row", CATALOG.rows("accelerators"), ids=lambda row: row["name"])
def test_peaks_are_dense_and_the_origin_of_the_matmul_share_is_said(row):
    assert row["dense"] == "yes"
    assert row["matmul_share_basis"]


def test_what_rows_point_to_exists():
    for gpu in ACCELERATORS:
        assert not gpu.fabric or CATALOG.fabric(gpu.fabric).name == gpu.fabric
    for name in CATALOG.names("instances"):
        instance = CATALOG.instance(name)
        gpu = CATALOG.accelerator(instance.accelerator)
        assert gpu.name == instance.accelerator
        assert instance.accelerators <= max(gpu.node_size, gpu.scale_up_domain)
        assert not instance.fabric or CATALOG.fabric(instance.fabric).name == instance.fabric


def test_prices_are_dated_and_possible():
    for name in CATALOG.names("instances"):
        instance = CATALOG.instance(name)
        for price in (instance.price, instance.spot):
            if price is not None:
                assert DATE.fullmatch(instance.date), name
                assert 0.2 < price * 3600 / instance.accelerators < 20.0, name
        if instance.price is not None and instance.spot is not None:
            assert instance.spot <= instance.price


def test_an_instance_has_the_network_its_fabric_says():
    for name in CATALOG.names("instances"):
        instance = CATALOG.instance(name)
        if instance.fabric and instance.scale_out is not None and "gb200" not in name:
            fabric = CATALOG.fabric(instance.fabric)
            nics = fabric.nics_per_node or instance.accelerators
            assert fabric.bandwidth * nics == pytest.approx(instance.scale_out), name


def test_known_traps():
    assert CATALOG.accelerator("H100-SXM5-80GB").peak["bf16"] == 989e12
    assert CATALOG.accelerator("B200-SXM").memory == 179 * 2**30
    assert CATALOG.accelerator("MI250X").peak["bf16"] == 191.5e12
    assert CATALOG.accelerator("GB200").scale_up_domain == 72
    assert CATALOG.accelerator("RTX 3090").peak["bf16"] == 71.2e12, "GeForce halves the rate with fp32 accumulation"
    assert "bf16" not in CATALOG.accelerator("V100-SXM2-16GB").peak
    assert dollars_per_hour(CATALOG.instance("p5.48xlarge")) == pytest.approx(55.04)
    assert CATALOG.instance("a3-highgpu-8g").scale_out == 100e9


def test_every_citation_key_of_a_formula_is_in_the_list():
    for module in pkgutil.iter_modules(shardmeter.physics.__path__):
        importlib.import_module(f"shardmeter.physics.{module.name}")
    known = CATALOG.names("citations")
    assert {formula.cite for formula in REGISTRY.values()} <= set(known)
    assert CATALOG.citation("williams2009").year == 2009


def test_an_unknown_name_lists_the_nearest_three_and_never_guesses():
    with pytest.raises(UnknownName) as caught:
        CATALOG.accelerator("H100")
    assert len(caught.value.nearest) == 3
    assert "H100-SXM5-80GB" in caught.value.nearest


def test_a_gpu_is_one_row(tmp_path):
    (tmp_path / "accelerators.csv").write_text(H100X)
    catalog = load_catalog([tmp_path])
    gpu = catalog.accelerator("h100x")
    assert gpu.peak == {"bf16": 1.2e15}
    assert gpu.matmul_share == {"bf16": 0.80}
    assert gpu.attention_share["fa2"]
    assert "H100X" in catalog.names("accelerators")
    assert len(catalog.names("accelerators")) == len(CATALOG.names("accelerators")) + 1
    with pytest.raises(UnknownName):
        CATALOG.accelerator("H100X")


def test_a_new_architecture_brings_its_attention_kernels(tmp_path):
    row = H100X.replace("size\n", "size,arch\n").replace("8,8\n", "8,8,next\n")
    (tmp_path / "accelerators.csv").write_text(row)
    (tmp_path / "attention.csv").write_text("arch,kernel,forward,backward\nNext,fa3,0.7,0.6\n")
    gpu = load_catalog([tmp_path]).accelerator("H100X")
    assert gpu.attention_share["fa3"] == (0.7, 0.6)
    assert gpu.attention_share["fa2"] == (0.38, 0.34)


def test_a_model_is_one_row_or_one_file(tmp_path):
    (tmp_path / "models.csv").write_text("name," + ",".join(TINY) + "\na," + ",".join(map(str, TINY.values())) + "\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "b.json").write_text(json.dumps(TINY | {"tied": True, "aliases": ["bb", "bbb"]}))
    text = "".join(f"{key}: {value}\n" for key, value in TINY.items())
    (tmp_path / "models" / "c.yaml").write_text(text + "mlp: plain\ntied: false\n")
    catalog = load_catalog([tmp_path])
    assert catalog.model("a").hidden == 64
    assert catalog.model("BBB").tied
    assert catalog.model("c").mlp == "plain"
    assert not catalog.model("c").tied


def test_a_row_replaces_the_shipped_one_of_its_name(tmp_path):
    (tmp_path / "fabrics.csv").write_text("name,bandwidth\nIB-NDR400,50 GB/s\n")
    catalog = load_catalog([tmp_path])
    assert catalog.fabric("ib-ndr400").source == ""
    assert len(catalog.names("fabrics")) == len(CATALOG.names("fabrics"))
    assert CATALOG.fabric("ib-ndr400").source
    assert str(tmp_path) in catalog.where("fabrics", "ib-ndr400")


def test_the_later_directory_wins(tmp_path):
    for name, rate in (("one", "10 GB/s"), ("two", "20 GB/s")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fabrics.csv").write_text(f"name,bandwidth\nlab,{rate}\n")
    assert load_catalog([tmp_path / "one", tmp_path / "two"]).fabric("lab").bandwidth == 20e9


def test_a_price_per_gpu_counts_for_all_of_the_instance(tmp_path):
    text = "name,provider,accelerator,accelerators,price\nbox,me,H100-SXM5-80GB,8,$2/gpu/h\n"
    (tmp_path / "instances.csv").write_text(text)
    assert dollars_per_hour(load_catalog([tmp_path]).instance("box")) == pytest.approx(16.0)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("accelerators.csv", H100X.replace("96 GiB", "96 gb"), r"accelerators\.csv:2: memory: .*two ways"),
        ("accelerators.csv", H100X.replace("8,8", "8,"), r"accelerators\.csv:2: node_size: is missing"),
        ("accelerators.csv", H100X.replace("peak_bf16", "peak_bf17"), r"csv:1: peak_bf17: .*did you mean peak_bf16"),
        ("accelerators.csv", H100X.replace("1200 TFLOP/s", ""), r"csv:2: peak_bf16: no peak"),
        ("accelerators.csv", H100X.replace("96 GiB", "0 GiB"), r"csv:2: memory: .*makes no sense"),
        ("accelerators.csv", H100X + "H100X,1 GiB,1 TB/s,1 TFLOP/s,1 GB/s,8,8\n", r"csv:3: name: 'h100x' is also"),
        ("accelerators.csv", H100X + "short,1 GiB\n", r"csv:3: 2 cells under 7"),
        ("accelerators.csv", H100X.replace("H100X,", '"H100X,'), r"csv:\d: not readable as CSV"),
        ("accelerators.csv", "memory\n1 GiB\n", r"csv:1: name: column is missing"),
        (
            "accelerators.csv",
            H100X.replace("size\n", "size,dense\n").replace("8,8\n", "8,8,no\n"),
            r"dense: peaks must",
        ),
        ("accelerators.csv", H100X.replace("size\n", "size,fabric\n").replace("8,8\n", "8,8,ib-ndr4\n"), r"ib-ndr400"),
        (
            "instances.csv",
            "name,provider,accelerator,accelerators\nx,me,H100-SXM,8\ny,me,H1,8\n",
            r"csv:3: accelerator: ",
        ),
        (
            "instances.csv",
            "name,provider,accelerator,accelerators,price\nx,me,H200,8,$3/h\n",
            r"csv:2: price: .*per node",
        ),
        ("fabrics.csv", "name,bandwidth,share\nlab,10 GB/s,1.5\n", r"csv:2: share: .*no fraction"),
        ("fabrics.csv", "name,bandwidth,share\nlab,10 GB/s,0\n", r"csv:2: share: .*makes no sense"),
        ("models.csv", "name,layers\nx,2.5\n", r"csv:2: layers: .*no whole number"),
        ("stacks.csv", "name,kernels\nx,egaer\n", r"csv:2: kernels: .*did you mean eager"),
        ("stacks.csv", "name,gradient_overlap\nx,maybe\n", r"csv:2: gradient_overlap: .*neither yes nor no"),
        ("models/x.json", json.dumps(TINY | {"kv_heads": 3}), r"kv_heads: .*cannot share"),
        ("models/x.json", json.dumps(TINY | {"experts": 8, "top_k": 2}), r"moe_ffn: must be above zero"),
        ("models/x.json", json.dumps(TINY | {"top_k": 2}), r"top_k: is given, but experts is not"),
        ("models/x.yaml", "layers: 2\nhiden: 64\n", r"x\.yaml:2:1: hiden: no such field; did you mean hidden"),
        ("models/x.yaml", "layers: {a: 1}\n", r"x\.yaml:1:1: layers: a mapping"),
        ("models/x.yaml", "- a\n", r"x\.yaml"),
        ("models/x.json", "{", r"x\.json"),
        ("notes.txt", "hello", r"holds no catalog file"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, file, text, says):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)
    assert re.search(says, complaints(tmp_path)), complaints(tmp_path)


def test_all_complaints_come_at_once(tmp_path):
    (tmp_path / "fabrics.csv").write_text("name,bandwidth\na,fast\nb,10 GB/s\nc,\n")
    text = complaints(tmp_path)
    assert "fabrics.csv:2" in text
    assert "fabrics.csv:4" in text
    assert "fabrics.csv:3" not in text


def test_a_missing_directory_and_a_binary_file_are_refused(tmp_path):
    with pytest.raises(BadData, match="no such directory"):
        load_catalog([tmp_path / "nowhere"])
    (tmp_path / "fabrics.csv").write_bytes(b"\xff\xfe\x00")
    assert "cannot be read" in complaints(tmp_path)

"""Files of prices in three layouts, and what an island is paid by: what each line means, and every way to be refused."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.core.errors import BadScenario
from shardmeter.scenario import load
from shardmeter.scenario.catalog import load_catalog
from shardmeter.scenario.prices import Offer, means, read_prices

ROWS = load_catalog()
OURS = """instance,accelerator,provider,region,price,spot,date
p5.48xlarge,,aws,us-west-2,$40/node/h,$16/node/h,2026-11-30
p5.48xlarge,,aws,us-east-1,$48/node/h,,2026-11-29
,H100-SXM5-80GB,acme,,$1.99/gpu/h,,2026-11-01
"""
SKYPILOT = """InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone
p5.48xlarge,H100,8.0,192,2048,x,56.0,24.0,us-west-2,us-west-2a
p5.48xlarge,H100,8.0,192,2048,x,56.0,16.0,us-west-2,us-west-2b
p4d.24xlarge,A100,8.0,96,1152,x,24.0,,us-west-2,us-west-2a
p4de.24xlarge,A100-80GB,8.0,96,1152,x,32.0,,us-east-1,us-east-1a
m5.large,,,2,8,,0.096,0.03,us-west-2,us-west-2a
,tpu-v5p,8.0,,,x,700.0,700.0,us-east5,us-east5-a
"""
GPUHUNT = """instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size
a3-ultragpu-8g,us-central1-a,80.0,224,2952,8,H200,141,False,100
a3-ultragpu-8g,us-central1-a,32.0,224,2952,8,H200,141,True,100
n1-standard-4,us-central1-a,0.19,4,15,0,,,False,100
"""


def written(folder: Path, text: str, name: str = "prices.csv") -> str:
    """A file of prices, last changed on 2026-11-20."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    os.utime(path, (1_795_132_800, 1_795_132_800))
    return str(path)


def question(file: str | None, **island: Any) -> dict[str, Any]:
    """One island under a file of prices."""
    fleet: dict[str, Any] = {"islands": [{"nodes": 2, **island}]} | ({} if file is None else {"prices": file})
    return {"model": "llama-3.1-8b", "fleet": fleet, "run": {"tokens": "1B"}}


def paid(file: str | None, **island: Any) -> tuple[float | None, str]:
    """Dollars of an accelerator and hour, and their basis."""
    one = load(question(file, **island)).fleet.islands[0]
    return None if one.price is None else float(one.price) * 3600.0, one.price_basis


def refusal(file: str | None, **island: Any) -> str:
    """What a refused scenario says."""
    with pytest.raises(BadScenario) as caught:
        load(question(file, **island))
    return " | ".join(f"{v.field} {v.says} {v.way_out} {v.where}" for v in caught.value.violations)


def test_our_own_columns(tmp_path):
    file = written(tmp_path, OURS)
    each, basis = paid(file, instance="p5.48xlarge", region="aws:us-west-2")
    assert each == pytest.approx(5.0)
    assert basis == "p5.48xlarge on demand, us-west-2, 2026-11-30 (prices.csv:2)"
    assert paid(file, instance="p5.48xlarge", region="aws:us-west-2", spot=True)[0] == pytest.approx(2.0)
    assert paid(file, instance="p5.48xlarge", region="aws:us-east-1")[0] == pytest.approx(6.0)
    assert paid(file, accelerator="H100-SXM5-80GB")[0] == pytest.approx(1.99)
    assert paid(file, instance="p5.48xlarge", region="aws:us-west-2", reserved="50%")[0] == pytest.approx(2.5)


def test_skypilot_table(tmp_path):
    file = written(tmp_path, SKYPILOT, "vms.csv")
    each, basis = paid(file, instance="p5.48xlarge", region="aws:us-west-2")
    assert each == pytest.approx(7.0)
    assert basis == "p5.48xlarge on demand, us-west-2, file of 2026-11-20 (vms.csv:2)"
    assert paid(file, instance="p5.48xlarge", region="aws:us-west-2", spot=True)[0] == pytest.approx(
        2.0
    )  # cheapest zone
    assert paid(file, accelerator="A100-SXM4-40GB")[0] == pytest.approx(3.0)
    assert paid(file, accelerator="A100-SXM4-80GB")[0] == pytest.approx(4.0)
    assert paid(file, accelerator="H100-SXM5-80GB")[0] == pytest.approx(7.0)


def test_gpuhunt_catalog(tmp_path):
    file = written(tmp_path, GPUHUNT)
    assert paid(file, instance="a3-ultragpu-8g", region="gcp:us-central1")[0] == pytest.approx(10.0)
    assert paid(file, instance="a3-ultragpu-8g", region="gcp:us-central1", spot=True)[0] == pytest.approx(4.0)
    assert paid(file, accelerator="H200-SXM-141GB")[0] == pytest.approx(10.0)


@pytest.mark.parametrize("text", [OURS, SKYPILOT, GPUHUNT])
def test_a_file_is_read_alike_twice_and_every_price_is_above_zero(tmp_path, text):
    found = read_prices(written(tmp_path, text), tmp_path, ROWS)
    assert found == read_prices("prices.csv", tmp_path, ROWS)
    amounts = [amount for one in found.offers for amount in (one.price, one.spot) if amount is not None]
    assert amounts
    assert all(amount > 0.0 for amount in amounts)


def test_a_sentinel_and_a_blank_are_no_price(tmp_path):
    offers = read_prices(written(tmp_path, SKYPILOT), tmp_path, ROWS).offers
    tpu = next(one for one in offers if one.accelerator == "tpu-v5p")
    assert (tpu.price, tpu.spot) == (None, None)
    assert all(one.instance != "m5.large" for one in offers)


def test_a_machine_that_the_file_does_not_have_keeps_the_catalog_price_and_says_so(tmp_path):
    file = written(tmp_path, OURS)
    made = load(question(file, instance="p4d.24xlarge"))
    assert made.fleet.islands[0].price_basis.startswith("p4d.24xlarge on demand")
    assert any("has no offer of p4d.24xlarge" in text for text in made.warnings)
    elsewhere = load(question(file, instance="p5.48xlarge", region="aws:eu-west-2"))
    assert elsewhere.fleet.islands[0].price_basis.startswith("p5.48xlarge on demand, us-east-2")
    assert any("in aws:eu-west-2" in text for text in elsewhere.warnings)


def test_a_spot_price_that_the_file_does_not_have_is_the_catalogs_and_never_the_other(tmp_path):
    file = written(tmp_path, OURS)
    made = load(question(file, instance="p5.48xlarge", region="aws:us-east-1", spot=True))
    assert made.fleet.islands[0].price_basis.startswith("p5.48xlarge spot")
    assert any("prices.csv has no spot price of p5.48xlarge: the catalog's" in text for text in made.warnings)


BLANK = """InstanceType,AcceleratorName,AcceleratorCount,Price,SpotPrice,Region
gpu_8x_h100_sxm5,H100,8.0,24.0,,us-west-2
"""
SPOTLESS = "gpu_8x_h100_sxm5"


def test_a_spot_price_that_nobody_has_is_null_and_a_budget_names_who_lacks_it(tmp_path):
    file = written(tmp_path, BLANK, "vms.csv")
    asked = question(file, instance=SPOTLESS, spot=True)
    made = load(asked)
    assert made.fleet.islands[0].price is None
    assert any("has no spot price" in text and "null" in text for text in made.warnings)
    assert shardmeter.predict(made).to_dict()["run"]["cost_usd"] is None
    says = f"the catalog has no spot price of {SPOTLESS}, nor has {file}"
    for command, plan in ((shardmeter.predict, "fsdp"), (shardmeter.plan, "auto")):
        with pytest.raises(BadScenario, match=re.escape(f"a budget, but {says}")) as caught:
            command(asked | {"plan": plan, "run": {"tokens": "1B", "budget": "$1M"}})
        assert "name an instance" not in str(caught.value)


def test_a_line_that_looks_like_an_accelerator_and_is_none_is_named(tmp_path):
    lines = [f"odd-{at},{name},8,56.0,24.0,us-west-2" for at, name in enumerate(("H10O", "A1O0", "H20O", "L4O"))]
    text = "\n".join((BLANK.strip(), *lines, "g4ad,RadeonProV520,1,0.4,0.1,us-west-2", "m5,,,0.1,,us-west-2"))
    (said,) = read_prices(written(tmp_path, text, "vms.csv"), tmp_path, ROWS).warnings
    assert said.startswith(
        "4 lines are of accelerators that the catalog does not have: vms.csv:3: 'H10O', the nearest are H100"
    )
    assert said.count("the nearest are") == 3
    assert said.endswith(" …")
    assert said in load(question(str(tmp_path / "vms.csv"), instance="p4d.24xlarge")).warnings
    assert read_prices(written(tmp_path, SKYPILOT, "all.csv"), tmp_path, ROWS).warnings == ()


@pytest.mark.parametrize("date", ["2026-13-01", "2026-02-30", "soon", "30.11.2026"])
def test_a_date_that_no_calendar_has_is_refused_with_its_line(tmp_path, date):
    file = written(tmp_path, f"accelerator,price,date\nH100-SXM5-80GB,$2/gpu/h,{date}\n")
    said = refusal(file, accelerator="H100-SXM5-80GB")
    assert f"'{date}' is no day of a calendar" in said
    assert "prices.csv:2" in said


def test_names_with_and_without_their_memory():
    one = offer_of("H100", None)
    assert means(one, ROWS.accelerator("H100-SXM5-80GB"), ())
    assert means(one, ROWS.accelerator("H100-PCIe-80GB"), ())
    assert not means(one, ROWS.accelerator("H200-SXM-141GB"), ())
    assert not means(offer_of("A100", 40.0), ROWS.accelerator("A100-SXM4-80GB"), ())
    assert not means(offer_of("H100-NVL", None), ROWS.accelerator("H100-SXM5-80GB"), ())


def offer_of(name: str, gib: float | None) -> Offer:
    """An offer of a device by name."""
    size = None if gib is None else gib * 2.0**30
    return Offer(
        instance="", accelerator=name, memory=size, provider="", region="", price=1.0, spot=None, date="", where=""
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("instance,price\np5.48xlarg,$1/gpu/h\n", "p5.48xlarge"),
        ("accelerator,price\nH1000,$1/gpu/h\n", "H1000"),
        ("accelerator,price\nH100-SXM5-80GB,-$1/gpu/h\n", "prices.csv:2"),
        ("accelerator,price\nH100-SXM5-80GB,$0/gpu/h\n", "nothing is rented for nothing"),
        ("accelerator,price\nH100-SXM5-80GB,2.10\n", "$2.10/gpu/h"),
        ("accelerator,price\nH100-SXM5-80GB,$16/node/h\n", "how many accelerators"),
        ("accelerator,price\nH100-SXM5-80GB,\n", "neither price nor spot"),
        ("accelerator,pric\nH100-SXM5-80GB,$1/gpu/h\n", "did you mean price?"),
        ("accelerator,price\n", "holds no price"),
        ("InstanceType,Price\np5,1\n", "lacks"),
        ("", "lacks"),
        ('accelerator,price\n"H100\0",1\n', "binary"),
    ],
)  # fmt: skip
def test_what_a_file_is_refused_for(tmp_path, text, says):
    assert says in refusal(written(tmp_path, text), gpus_per_node=8, accelerator="H100-SXM5-80GB")


def test_all_lines_that_are_wrong_are_said_at_once(tmp_path):
    lines = "".join(f"H10{at},$1/gpu/h\n" for at in range(1, 13))
    said = refusal(written(tmp_path, "accelerator,price\n" + lines), accelerator="H100-SXM5-80GB")
    assert said.count("fleet.prices") == 9
    assert "4 more lines" in said


def test_a_missing_file_names_those_beside_it(tmp_path):
    written(tmp_path, OURS)
    assert "prices.csv" in refusal(str(tmp_path / "price.csv"), instance="p5.48xlarge")


@pytest.mark.parametrize(
    ("island", "says"),
    [
        ({"spot": True, "price": "$1/gpu/h"}, "both price and spot"),
        ({"spot": True, "reserved": "40%"}, "both reserved and spot"),
        ({"price": "$1/gpu/h", "reserved": "$1/gpu/h"}, "both price and a reserved price"),
        ({"price": "$1/gpu/h", "owned": {"power_price": "$0.1/kWh"}}, "beside owned"),
        ({"spot": True, "owned": {"power_price": "$0.1/kWh"}}, "beside owned"),
        ({"reserved": "40%", "owned": {"power_price": "$0.1/kWh"}}, "beside owned"),
        ({"owned": {}}, "what electricity costs"),
        ({"owned": {"power_price": "$0/kWh"}}, "0 makes no sense"),
        ({"owned": {"power_price": "$-0.1/kWh"}}, "negative"),
        ({"owned": {"power_price": "$0.1/h"}}, "price of electricity"),
        ({"owned": {"power_price": "$0.1/kWh", "life": "100 d"}}, "no value"),
        ({"owned": {"power_price": "$0.1/kWh", "value": "$3", "life": "0 d"}}, "0 makes no sense"),
        ({"reserved": "0%"}, "a discount of"),
        ({"reserved": "100%"}, "a discount of"),
        ({"reserved": "-5%"}, "negative"),
        ({"reserved": "$2/h"}, "per GPU or per node"),
        ({"pue": 0.9}, "too small"),
        ({"carbon": "-1 g/kWh"}, "negative"),
        ({"carbon": "400"}, "no unit"),
    ],
)
def test_what_an_island_is_refused_for(island, says):
    assert says in refusal(None, instance="p5.48xlarge", **island)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ({"budget": "$0"}, "0 makes no sense"),
        ({"storage": {}}, "how many checkpoints"),
        ({"storage": {"checkpoints": 0}}, "checkpoints"),
        ({"storage": {"checkpoints": 3, "price": "$0.02/GB"}}, "price of storage"),
        ({"storage": {"checkpoints": 3, "region": "aws:us-west-9"}}, "us-west-9"),
        ({"dataset": {"bytes_per_token": -1}}, "negative"),
        ({"dataset": {"egress": "$-1/GB"}}, "negative"),
        ({"dataset": {"region": "moon:dark-side"}}, "dark-side"),
    ],
)
def test_what_a_run_is_refused_for(run, says, capsys, tmp_path):
    asked = question(None, instance="p5.48xlarge")
    path = tmp_path / "asked.json"
    path.write_text(json.dumps(asked | {"run": {"tokens": "1B", **run}}), encoding="utf-8")
    assert main(["predict", str(path)]) == 2
    said = capsys.readouterr()
    assert says in said.err + said.out


@pytest.mark.parametrize(
    ("run", "field"),
    [({"storage": {"checkpoints": 3}}, "run.storage.price"), ({"dataset": {}}, "run.dataset")],
)
def test_a_price_that_is_asked_for_and_missing_makes_the_cost_null_and_is_said(run, field):
    asked = question(None, accelerator="H100-SXM5-80GB", price="$2/gpu/h")
    found = shardmeter.predict(asked | {"run": {"tokens": "1B", **run}}).to_dict()
    assert found["run"]["cost_usd"] is None
    assert any(field in text and "null" in text for text in found["warnings"])


def test_the_option_is_the_field_and_is_found_from_where_the_command_runs(tmp_path, monkeypatch, capsys):
    written(tmp_path, OURS)
    monkeypatch.chdir(tmp_path)
    given = ["predict", "--model", "llama-3.1-8b", "--gpus", "16xH100-SXM5-80GB", "--tokens", "1B", "--format", "json"]
    assert main([*given, "--prices", "prices.csv"]) == 0
    run = json.loads(capsys.readouterr().out)["run"]
    assert run["cost_usd"] == pytest.approx(1.99 * run["gpu_hours"])
    assert main([*given, "--prices", "none.csv"]) == 2
    assert "none.csv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("instance,accelerators,price\np5.48xlarge,0,$40/node/h\n", "a whole number, 1 at least"),
        ("instance,accelerators,price\np5.48xlarge,0.001,$40/node/h\n", "a whole number, 1 at least"),
        ("instance,accelerators,price\np5.48xlarge,4,$40/node/h\n", "which has 8 × H100-SXM5-80GB"),
        ("instance,accelerator,price\np5.48xlarge,A100-SXM4-80GB,$40/node/h\n", "which has 8 × H100-SXM5-80GB"),
        ("instance,price,price\np5.48xlarge,$40/node/h,$4/node/h\n", "names a column twice: price"),
        ("instance,price\np5.48xlarge,$40/node/h,17\n", "3 cells where the header names 2"),
        ("InstanceType,AcceleratorName,AcceleratorCount,Price\np5.48xlarge,H100,8,98M\n", "no plain number"),
        ("InstanceType,AcceleratorName,AcceleratorCount,Price\nx,H100,1e-9,98\n", "a whole number"),
        (GPUHUNT.replace("True", "maybe").replace("False", "maybe"), "neither true nor false"),
    ],
)
def test_a_line_that_would_be_off_by_its_count_is_refused(tmp_path, text, says):
    file = tmp_path / "vms.csv"
    file.write_text(text)
    with pytest.raises(BadScenario, match=re.escape(says)):
        read_prices(str(file), tmp_path, ROWS)


def test_a_line_of_others_that_contradicts_the_catalog_is_not_taken_and_named(tmp_path):
    file = tmp_path / "vms.csv"
    file.write_text(
        "InstanceType,AcceleratorName,AcceleratorCount,Price\np5.48xlarge,H100,1,98.32\np5.48xlarge,H100,8,98.32\n"
    )
    found = read_prices(str(file), tmp_path, ROWS)
    assert [one.where for one in found.offers] == ["vms.csv:3"]
    assert found.warnings == (
        "1 line is not taken, for the catalog's machines have other numbers of accelerators: vms.csv:2: 1 of p5.48xlarge, which has 8",
    )

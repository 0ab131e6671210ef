"""Short-cuts for the fleet: price, fabric and instance are what the long form says."""

import json
from typing import Any

import pytest

import shardmeter
from shardmeter.cli import main
from shardmeter.scenario import load

BASE: dict[str, Any] = {"model": "llama-3.1-8b", "gpus": "64xH100-SXM5-80GB", "plan": "fsdp", "tokens": "1T"}


def test_a_price():
    scenario = load(None, options={**BASE, "price": "$2.10/gpu/h"})
    assert scenario.fleet.islands[0].price == pytest.approx(2.10 / 3600)
    assert shardmeter.predict(**BASE, price="$2.10/gpu/h").to_dict()["run"]["cost_usd"] > 0


def test_a_price_that_the_shell_has_eaten_is_refused(capsys):
    arguments = [word for key, value in BASE.items() for word in (f"--{key}", value)]
    assert main(["predict", *arguments, "--price", ".10/gpu/h"]) == 2
    assert "quotes" in capsys.readouterr().err


def test_a_fabric():
    assert load(None, options={**BASE, "fabric": "ib-hdr200"}).fleet.islands[0].tiers[1].name == "ib-hdr200"


def test_instances_counted_or_as_many_as_the_gpus_need():
    rest = {key: value for key, value in BASE.items() if key != "gpus"}
    counted = load(None, options={**rest, "instance": "8xp5.48xlarge"})
    needed = load(None, options={**BASE, "instance": "p5.48xlarge"})
    assert counted.fleet == needed.fleet
    assert counted.fleet.islands[0].gpus == 64
    with pytest.raises(shardmeter.BadScenario):
        load(None, options={**BASE, "gpus": "12xH100-SXM5-80GB", "instance": "p5.48xlarge"})
    with pytest.raises(shardmeter.UnknownName):
        load(None, options={**BASE, "instance": "p5.49xlarge"})


def test_an_override_wins_over_a_short_cut(capsys):
    arguments = [word for key, value in BASE.items() for word in (f"--{key}", value)]
    main(["predict", *arguments, "--price", "$1/gpu/h", "--set", "fleet.islands.0.price=$2/gpu/h", "--format", "json"])
    data = json.loads(capsys.readouterr().out)
    assert data["run"]["cost_usd"] == pytest.approx(2 * data["run"]["gpu_hours"])

"""What readers of settings collect: every setting in one list, all that is malformed at once, in each way of writing values."""

import json

import pytest

from shardmeter import BadScenario
from shardmeter.interop.configs import formats
from shardmeter.interop.configs._reading import SHELL, TREE, TYPED, Reading

KNOWN = frozenset({"size", "kind", "fast", "section.name", "free.*"})
ALL = pytest.mark.parametrize("dialect", [SHELL, TREE, TYPED], ids=["shell", "tree", "typed"])


@ALL
def test_what_nobody_reads_is_ignored_or_unknown_and_the_first_unknown_get_the_nearest_names(dialect):
    said = {"size": "4", "section": "x", "free.of.all": "1", **{f"kinds{at}": "a" for at in range(3000)}}
    reading = Reading("trainer", said, KNOWN, dialect)
    reading.text("size", "plan.tp")
    found = reading.imported("1", lambda key: f"idle {key}")
    assert [one.key for one in (*found.understood, *found.ignored, *found.unknown)] == list(said)
    assert [one.means for one in found.ignored] == ["idle section", "idle free.of.all"]
    assert found.unknown[19].means.startswith("the nearest are kind, ")
    assert found.unknown[20].means == "the nearest are not looked for beyond the first 20"


@ALL
def test_all_that_is_malformed_is_told_at_once_and_once(dialect):
    reading = Reading("trainer", {"size": 0, "kind": "rign", "other": [1]}, KNOWN, dialect)
    for _ in range(2):
        reading.whole("size")
        reading.whole("other", least=0, most=3)
        assert reading.word("kind", {"ring": "a ring", "tree": "a tree"}, otherwise="a ring") == "a ring"
    with pytest.raises(BadScenario) as caught:
        reading.imported("1", str)
    told = {(one.field, one.says, one.way_out) for one in caught.value.violations}
    assert told == {
        ("size", "0 is no whole number of 1 or more", ""),
        ("other", "a list is no whole number of 0 to 3", ""),
        *([] if dialect.lenient else [("kind", "'rign' is none of its words", "the nearest are ring, tree")]),
    }
    assert len(caught.value.violations) == len(told)


def test_a_value_that_is_not_in_the_file_is_ignored_and_the_default_taken():
    for dialect, hidden in ((SHELL, "$GPUS"), (TREE, "auto"), (TYPED, "many()")):
        reading = Reading("trainer", {"size": hidden}, KNOWN, dialect, {"size": 7})
        assert reading.whole("size", "plan.tp") == 7
        found = reading.imported("1", str)
        assert ([one.key for one in found.ignored], found.understood, found.unknown) == (["size"], (), ())


def test_a_strategy_that_fsdp_names_is_no_setting_of_its_section():
    said = {"max_steps": 1, "fsdp": "full_shard", "fsdp_config": {"fsdp_version": 2}}
    read = formats()["transformers"].read(json.dumps(said))
    assert {one.key for one in (*read.understood, *read.ignored, *read.unknown)} == {
        "max_steps", "fsdp", "fsdp_config.fsdp_version",
    }  # fmt: skip

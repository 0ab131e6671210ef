"""The folder of a sweep's chunks: what is damaged is evaluated again, what is not of the sweep is neither counted nor removed."""

from __future__ import annotations

import json
import os

import pytest

from shardmeter.cli import main

SCENARIO = ["--model", "llama-3.1-8b", "--gpus", "16xH100-SXM5-80GB"]
MANY = ["--over", "plan.tp=1,2,4", "--over", "run.global_batch=64..1024:+16", "--over", "plan.micro_batch=1..24"]
KINDS = ["csv", "json", "parquet"]


def command(out):
    return ["sweep", *SCENARIO, *MANY, "-o", str(out), "--workers", "1", "--format", "json"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of the sweep that met nothing, by format."""
    made = {}

    def of(kind):
        if kind not in made:
            out = tmp_path_factory.mktemp("whole") / f"a.{kind}"
            assert main(command(out)) == 0
            made[kind] = out.read_bytes()
        return made[kind]

    return of


@pytest.fixture
def half_done(capsys, tmp_path):
    """A sweep that has three of its five chunks: its file, its folder and its chunks."""

    def begin(kind="csv"):
        out = tmp_path / f"a.{kind}"
        assert main([*command(out), "--shard", "1/2"]) == 0
        capsys.readouterr()
        folder = tmp_path / f"a.{kind}.parts"
        return out, folder, sorted(folder.glob("[0-9]*.*.*"))

    return begin


def swept(capsys, *arguments, code=0):
    assert main(list(arguments)) == code
    seen = capsys.readouterr()
    return (json.loads(seen.out) if seen.out else None), seen.err


DAMAGES = {
    "emptied": lambda old: b"",
    "cut": lambda old: old[: len(old) // 2],
    "garbage": lambda old: os.urandom(len(old)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_chunk_is_evaluated_again(capsys, half_done, whole, kind, damage):
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet is the extra `parquet`")
    out, folder, chunks = half_done(kind)
    chunks[1].write_bytes(DAMAGES[damage](chunks[1].read_bytes()))
    answer, said = swept(capsys, *command(out))
    assert f"{chunks[1].name} was damaged: it is removed, and evaluated again" in said
    assert (answer["chunks_resumed"], answer["complete"]) == (2, True)
    assert out.read_bytes() == whole(kind)
    assert not folder.exists()


@pytest.mark.parametrize(
    "called",
    [
        lambda number, counts, rest: f"000001.{counts}.{rest}",
        lambda number, counts, rest: f"000099.{counts}.{rest}",
        lambda number, counts, rest: f"{number}.1024-0-0.{rest}",
        lambda number, counts, rest: f"{number}.1-0-0.{rest}",
    ],
    ids=["number", "stray", "counts", "sum"],
)
def test_a_renamed_chunk_does_not_count(capsys, half_done, whole, called):
    out, _, chunks = half_done()
    chunks[1].rename(chunks[1].with_name(called(*chunks[1].name.split("."))))
    answer, _ = swept(capsys, *command(out))
    assert answer["chunks_resumed"] == 2
    assert out.read_bytes() == whole("csv")


def test_as_many_files_as_chunks_are_not_all_chunks(capsys, half_done, whole):
    out, folder, chunks = half_done()
    for number in (7, 8):
        (folder / chunks[0].name.replace("000000", f"{number:06d}")).write_bytes(chunks[0].read_bytes())
    answer, _ = swept(capsys, *command(out), "--join", code=1)
    assert (answer["chunks_done"], answer["complete"]) == (3, False)
    swept(capsys, *command(out))
    assert out.read_bytes() == whole("csv")


def test_a_chunk_that_is_damaged_before_joining_is_not_joined(capsys, half_done, whole):
    out, _, chunks = half_done()
    chunks[0].write_bytes(b"x")
    answer, said = swept(capsys, *command(out), "--shard", "2/2")
    assert not answer["complete"]
    assert "was damaged" in said
    assert not out.exists()
    swept(capsys, *command(out))
    assert out.read_bytes() == whole("csv")


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_files_of_others_stay(capsys, half_done, whole, more):
    out, folder, _ = half_done()
    mine = ("thesis.txt", "000000.csv", ".notes.tmp", "000001.1-2-3")
    for name in mine:
        (folder / name).write_text("mine")
    (folder / "figures").mkdir()
    answer, said = swept(capsys, *command(out), *more)
    assert answer["complete"]
    assert "a.csv.parts is kept for what is not of this sweep: .notes.tmp, 000000.csv, 000001.1-2-3 and 2 more" in said
    assert sorted(path.name for path in folder.iterdir()) == sorted([*mine, "figures"])
    assert out.read_bytes() == whole("csv")


MANIFESTS = ["{", "", "[" * 100_000, "{}", '{"version": "1.0", "name": "my sweep of wandb"}', "9" * 5000]


@pytest.mark.parametrize("text", MANIFESTS, ids=lambda text: text[:20] or "empty")
@pytest.mark.parametrize("more", [[], ["--overwrite"], ["--join"]])
def test_a_manifest_of_another_kind_stays(capsys, half_done, text, more):
    out, folder, chunks = half_done()
    (folder / "sweep.json").write_text(text)
    _, said = swept(capsys, *command(out), *more, code=2)
    assert "sweep.json is no manifest of a sweep: the folder is left as it is" in said
    assert (folder / "sweep.json").read_text() == text
    assert sorted(folder.glob("[0-9]*.*.*")) == chunks


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes are files of POSIX")
def test_pipes_make_nobody_wait(capsys, half_done):
    out, folder, chunks = half_done()
    os.mkfifo(folder / chunks[0].name.replace("000000", "000001"))
    (folder / ".1-of-1.lock").unlink(missing_ok=True)
    os.mkfifo(folder / ".1-of-1.lock")
    _, said = swept(capsys, *command(out), code=74)
    assert "cannot be written" in said
    (folder / "sweep.json").unlink()
    os.mkfifo(folder / "sweep.json")
    _, said = swept(capsys, *command(out), code=2)
    assert "no manifest of a sweep" in said


@pytest.mark.parametrize(
    "theirs", [None, 5, "x" * 9999, ["x"], {"plan.tp": "0123456789abcdef"}], ids=lambda one: str(one)[:9]
)
def test_what_differs_is_said_without_hashes(capsys, half_done, theirs):
    out, folder, _ = half_done()
    manifest = json.loads((folder / "sweep.json").read_text())
    for part in manifest:
        (folder / "sweep.json").write_text(json.dumps({**manifest, part: theirs}))
        _, said = swept(capsys, *command(out), code=2)
        assert "holds chunks of another sweep: nothing is resumed" in said
        assert not any(text in said for text in ("0123456789abcdef", *manifest["axes"].values(), manifest["catalog"]))
        assert max(map(len, said.splitlines())) < 600

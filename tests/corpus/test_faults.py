"""Whatever is among the captures, and whatever is killed: the others are analysed, and the fault has a name."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path

import pytest
from results import command, final, kills, run, states, workers_of

import unbloat
from unbloat.cli.exit import UNREADABLE
from unbloat.corpus import archive, pool
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.run import RunOptions, run_corpus
from unbloat.corpus.sources import Search, find_units
from unbloat.errors import CaptureError

# Of the moments at which something is killed.
SEED = 20_261_127


def test_bad_captures_are_named_as_analyze_names_them(
    phones: Path, captures: list[Path], tmp_path: Path
) -> None:
    (phones / "empty.pcap").touch()
    (phones / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    whole = captures[2].read_bytes()
    (phones / "truncated.pcapng").write_bytes(whole[: len(whole) // 2 + 7])
    (phones / "head.pcapng").write_bytes(whole[:9])
    out = tmp_path / "out"
    outcome = run(phones, out)
    found = states(out)
    assert found["empty.pcap"] == found["text.pcap"] == found["head.pcapng"] == "bad"
    assert found["truncated.pcapng"] == "done"
    expected = []
    for name in ("empty.pcap", "head.pcapng", "text.pcap"):
        with pytest.raises(CaptureError) as error:
            unbloat.analyze(phones / name)
        expected.append(str(error.value))
    assert outcome.errors == sorted(expected)
    [row] = [
        row
        for row in unbloat.corpus(out).captures.to_table().to_pylist()
        if row["file"].endswith("truncated.pcapng")
    ]
    assert row["packets"] > 0
    assert row["warnings"] == unbloat.analyze(phones / "truncated.pcapng").warnings


def test_the_program_names_bad_captures_and_ends_with_3(phones: Path, tmp_path: Path) -> None:
    (phones / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    process = command("run", phones, tmp_path / "nowhere", "--out", tmp_path / "out")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == UNREADABLE
    assert errors.splitlines() == [
        f"unbloat: {tmp_path}/nowhere: no such file or directory",
        f"unbloat: {phones}/text.pcap: not a pcap or pcapng file: looks like text",
    ]
    assert output.startswith("9 of 10 units done, 10 now")


def test_a_pipe_without_end_is_given_up(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "GRACE_S", 0.5)
    pipe = tmp_path / "endless.pcapng"
    os.mkfifo(pipe)
    # The capture, then nothing more, while the pipe stays open.
    writer = subprocess.Popen(
        ["sh", "-c", f"cat '{captures[0]}' > '{pipe}'; exec sleep 600 > '{pipe}'"]
    )
    # Both ends are held open here as well, so that neither side sees an end.
    held = os.open(pipe, os.O_RDWR)
    try:
        out = tmp_path / "out"
        # Time by size: the capture has more than it needs on any machine, the pipe has no size.
        options = RunOptions(jobs=2, timeout_base_s=0.5, timeout_per_gb_s=1e9)
        outcome = run_corpus([pipe, captures[1]], out, options)
    finally:
        os.close(held)
        writer.kill()
        writer.wait()
    assert outcome.errors == [f"{pipe}: took too long and was stopped"]
    assert states(out) == {"endless.pcapng": "failed", "client.pcapng": "done"}
    assert unbloat.corpus(out).forget(failed=True) == 1


@pytest.mark.parametrize("kind", ["tar", "tgz", "tar.xz", "zip"])
def test_members_of_archives_are_analysed_as_files(
    kind: str, captures: list[Path], tmp_path: Path
) -> None:
    folder = tmp_path / "phone"
    folder.mkdir()
    path = folder / f"all.{kind}"
    names = [f"day{number}/a.pcapng" for number in range(len(captures))]
    pack(path, dict(zip(names, captures, strict=True)))
    outcome = run(folder, tmp_path / "out")
    assert outcome.errors == []
    rows = unbloat.corpus(tmp_path / "out").flows.to_table().to_pylist()
    for name, capture in zip(names, captures, strict=True):
        own = [row for row in rows if row["file"] == f"{path}!{name}"]
        expected = unbloat.analyze(capture).flows.to_pylist()
        assert [{key: row[key] for key in expected[0]} for row in own] == expected
        assert {row["device"] for row in own} == {"phone"}


def pack(path: Path, content: dict[str, Path], more: dict[str, bytes] | None = None) -> None:
    """An archive of files under these names, and of bytes."""
    blobs = {name: file.read_bytes() for name, file in content.items()} | (more or {})
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in blobs.items():
                zipped.writestr(name, data)
        return
    mode = {".tar": "w", ".tgz": "w:gz", ".xz": "w:xz"}[path.suffix]
    with tarfile.open(path, mode) as tarred:  # type: ignore[call-overload]
        for name, data in blobs.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tarred.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.pcapng")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tarred.addfile(link)


@pytest.mark.parametrize("kind", ["tgz", "zip"])
def test_bombs_and_bad_members_do_not_hide_the_others(
    kind: str, captures: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / f"all.{kind}"
    text = b"this is no capture, but a text of some length\n" * 9
    more = {"text.pcap": text, "../../escape.pcap": captures[1].read_bytes(), "bomb.pcap": zeros()}
    pack(path, {"first.pcapng": captures[0]}, more)
    out = tmp_path / "out"
    outcome = run(path, out)
    assert f"{path}!text.pcap: not a pcap or pcapng file: looks like text" in outcome.errors
    assert any("unpacks to more than 200 times its size" in line for line in outcome.errors)
    files = {row["file"] for row in unbloat.corpus(out).captures.to_table().to_pylist()}
    assert files == {f"{path}!first.pcapng", f"{path}!../../escape.pcap"}
    assert not (tmp_path.parent / "escape.pcap").exists()
    assert not list(tmp_path.rglob("escape*"))


def zeros() -> bytes:
    """The head of a capture whose only packet is said to be as large as possible, and zeros that pack into nothing."""
    head = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    return head + bytes(64 << 20)


def test_damaged_archives_keep_what_came_before(captures: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "all.tgz"
    pack(path, {"a.pcapng": captures[0], "b.pcapng": captures[3]})
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 2 // 3])
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 and no directory")
    out = tmp_path / "out"
    outcome = run_corpus([path, tmp_path / "broken.zip"], out, RunOptions(jobs=1))
    assert len(outcome.errors) == 2
    assert all("the archive is damaged" in line for line in outcome.errors)
    files = {row["file"] for row in unbloat.corpus(out).captures.to_table().to_pylist()}
    assert f"{path}!a.pcapng" in files
    assert unbloat.corpus(out).flows.count_rows() >= 2


def test_too_many_members_are_refused(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)
    path = tmp_path / "many.tar"
    pack(path, {f"{number}.pcapng": captures[0] for number in range(5)})
    units = find_units([str(path)], Search())
    assert [unit["kind"] for unit in units].count("tar") == 3
    [broken] = [unit for unit in units if unit["kind"] == "broken"]
    assert "more than 3 members" in broken["error"]


def test_a_capture_whose_process_dies_twice_is_failed_and_the_others_are_done(
    phones: Path, tmp_path: Path
) -> None:
    poison = phones / "phone1/capture-1.pcapng"
    out = tmp_path / "out"
    killer = tmp_path / "sitecustomize.py"
    killer.write_text(POISON.format(name="capture-1.pcapng", folder="phone1"))
    outcome = with_path(tmp_path, phones, out)
    assert outcome == [f"{poison}: its analysis was ended by signal 9, twice"]
    killer.unlink()
    receipts = list(Ledger(out).each_receipt())
    assert sorted(one["state"] for one in receipts) == ["done"] * 8 + ["failed"]
    [receipt] = [one for one in receipts if one["state"] == "failed"]
    assert receipt["tries"] == 2
    assert run(phones, out).ran == 0
    assert run(phones, out, retry_failed=True).ran == 1
    clean = tmp_path / "clean"
    run(phones, clean)
    assert final(out) == final(clean)


def test_a_member_that_kills_its_process_is_left_out_of_its_archive(
    captures: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "all.tgz"
    pack(path, {"a.pcapng": captures[0], "poison.pcapng": captures[1], "c.pcapng": captures[2]})
    out = tmp_path / "out"
    (tmp_path / "sitecustomize.py").write_text(POISON.format(name="poison.pcapng", folder=""))
    errors = with_path(tmp_path, path, out)
    assert errors == [f"{path}!poison.pcapng: its analysis was ended by signal 9, twice"]
    files = {row["file"] for row in unbloat.corpus(out).captures.to_table().to_pylist()}
    assert files == {f"{path}!a.pcapng", f"{path}!c.pcapng"}


# Stands in for a defect of the analysis: the worker dies at one capture, always.
POISON = """
import os, signal, sys
if any("corpus.worker" in word for word in sys.orig_argv):
    from unbloat.corpus import stream
    before = stream.analyse_path
    def analyse_path(path, shown, progress):
        if shown.endswith("{name}") and "{folder}" in shown:
            os.kill(os.getpid(), signal.SIGKILL)
        return before(path, shown, progress)
    stream.analyse_path = analyse_path
"""


def with_path(folder: Path, source: Path, out: Path) -> list[str]:
    """The errors of a run whose workers start with a module of a folder."""
    import sys

    sys.path.insert(0, str(folder))
    try:
        return run(source, out).errors
    finally:
        sys.path.remove(str(folder))


def test_workers_killed_at_random_moments_change_nothing(phones: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    run(phones, clean)
    moments = random.Random(SEED)
    for round_ in range(kills(3)):
        out = tmp_path / f"killed{round_}"
        left = moments.randrange(6)

        def kill(_done: int, _total: int) -> None:
            nonlocal left
            left -= 1
            if left == 0 and (found := workers_of(os.getpid())):
                os.kill(moments.choice(found), signal.SIGKILL)

        run_corpus([phones], out, RunOptions(jobs=2), kill)
        assert final(out) == final(clean)


def test_a_run_killed_at_random_moments_goes_on_to_the_same_bytes(
    phones: Path, tmp_path: Path
) -> None:
    clean, out = tmp_path / "clean", tmp_path / "out"
    run(phones, clean)
    moments = random.Random(SEED)
    for _ in range(kills(3)):
        process = command("run", phones, "--out", out, "--jobs", 2)
        before = len(Ledger(out).receipts())
        more = moments.randrange(3)
        while process.poll() is None and len(Ledger(out).receipts()) < before + more:
            time.sleep(0.005)
        orphans = workers_of(process.pid)
        process.kill()
        process.communicate()
        for orphan in orphans:  # they end with their parent
            while Path(f"/proc/{orphan}").exists() and not ended(orphan):
                time.sleep(0.005)
    outcome = run(phones, out)
    assert outcome.done == 9
    assert final(out) == final(clean)
    assert not list(out.rglob(".tmp-*"))


def ended(pid: int) -> bool:
    """Whether a process is gone, or waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def test_a_lost_part_is_named(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(phones, out)
    shutil.rmtree(out / "part/flows")
    shutil.rmtree(out / "table")
    with pytest.raises(CaptureError, match="missing or damaged; remove the folder done"):
        run(phones, out)
    shutil.rmtree(out / "done")
    assert run(phones, out).ran == 9

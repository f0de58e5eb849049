"""Captures that are packed by themselves: the same results as unpacked, and a limit for those that unpack to too much."""

from __future__ import annotations

import gzip
import os
import shutil
import struct
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from results import final, run, states

import unbloat
from unbloat.corpus import packet_times, pool
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.run import RunOptions, run_corpus

# A capture without packets, and zeros that pack into nothing. More than 16 MiB, which are harmless at any ratio.
BOMB = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000") + bytes(32 << 20)
TOO_LARGE = "unpacks to more than 200 times its size, which no capture does; stopped"


def zstd(data: bytes) -> bytes:
    """Packed by zstd."""
    packed: bytes = pa.compress(data, codec="zstd", asbytes=True)
    return packed


def test_bombs_are_bad_and_the_others_are_done(captures: list[Path], tmp_path: Path) -> None:
    top = tmp_path / "phone"
    top.mkdir()
    twice = gzip.compress(gzip.compress(BOMB))
    bombs = {"a.pcap.gz": gzip.compress(BOMB), "b.pcap.zst": zstd(BOMB), "c.pcap.gz": twice}
    for name, data in bombs.items():
        (top / name).write_bytes(data)
    (top / "good.pcapng.gz").write_bytes(gzip.compress(captures[0].read_bytes()))
    for kind in ("tar", "tgz"):
        with tarfile.open(top / f"all.{kind}", "w:gz" if kind == "tgz" else "w") as archive:
            archive.add(top / "a.pcap.gz", "bomb.pcap.gz")
            archive.add(top / "good.pcapng.gz", "good.pcapng.gz")
    outcome = run(top, tmp_path / "out")
    named = [*bombs, "all.tar!bomb.pcap.gz", "all.tgz!bomb.pcap.gz"]
    assert outcome.errors == sorted(f"{top}/{name}: {TOO_LARGE}" for name in named)
    rows = unbloat.corpus(tmp_path / "out").captures.to_table().to_pylist()
    good = ["all.tar!good.pcapng.gz", "all.tgz!good.pcapng.gz", "good.pcapng.gz"]
    assert sorted(row["file"] for row in rows) == [f"{top}/{name}" for name in good]


@pytest.mark.parametrize(("head_bytes", "units"), [(1 << 20, 2), (4096, 1)])
def test_a_bomb_in_a_rotating_capture_is_bad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_bytes: int, units: int
) -> None:
    """Alone where the first bytes of the file show it, with the capture that it continues otherwise. It is named in either case."""
    monkeypatch.setattr(packet_times, "HEAD_BYTES", head_bytes)
    top = tmp_path / "phone"
    top.mkdir()
    # Two captures of one second after the other by their times alone.
    for number in range(2):
        head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101)
        packet = struct.pack("<IIII", 1000 + 60 * number, 0, 40, 40) + b"\x45" + bytes(39)
        more = bytes(32 << 20) if number else b""
        (top / f"cap-{number}.pcap.gz").write_bytes(gzip.compress(head + packet + more))
    outcome = run(top, tmp_path / "out", merge=True)
    assert outcome.found == units
    assert outcome.errors == [f"{top}/cap-1.pcap.gz: {TOO_LARGE}"]


@pytest.mark.parametrize("pack", [gzip.compress, zstd, lambda data: zstd(data) + zstd(b"")])
def test_packed_captures_give_the_results_of_analyze(
    pack: object, captures: list[Path], tmp_path: Path
) -> None:
    assert callable(pack)
    top = tmp_path / "phone"
    top.mkdir()
    whole = pack(captures[1].read_bytes())
    (top / "whole.pcapng.gz").write_bytes(whole)
    (top / "cut.pcapng.gz").write_bytes(whole[: len(whole) // 2])
    (top / "head.pcapng.gz").write_bytes(whole[:11])
    outcome = run(top, tmp_path / "out", jobs=1)
    tables = unbloat.corpus(tmp_path / "out")
    rows = tables.captures.to_table().to_pylist()
    errors = []
    for name in ("cut.pcapng.gz", "head.pcapng.gz", "whole.pcapng.gz"):
        try:
            alone = unbloat.analyze(top / name)
        except unbloat.CaptureError as error:
            errors.append(str(error))
            continue
        [row] = [row for row in rows if row["file"] == str(top / name)]
        assert row["warnings"] == alone.warnings
        flows = [
            row for row in tables.flows.to_table().to_pylist() if row["file"] == str(top / name)
        ]
        expected = alone.flows.to_pylist()
        assert [{key: row[key] for key in expected[0]} for row in flows] == expected
    assert outcome.errors == errors
    assert len(errors) in (1, 2)  # zstd packs a small file as one block


def many_flows(path: Path, flows: int) -> None:
    """A capture with one packet of each of so many flows: hardly any bytes, and much to remember."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, 101))
        for number in range(flows):
            source = 0x0A000000 + number
            ip = struct.pack(">BBHHHBBHII", 0x45, 0, 40, 0, 0, 64, 6, 0, source, 0x08080808)
            tcp = struct.pack(">HHIIBBHHH", 1024, 443, 1, 0, 0x50, 2, 65_535, 0, 0)
            file.write(struct.pack("<IIII", number // 1000, number % 1000, 40, 40) + ip + tcp)


# The first attempt ends as by the kernel that has no memory left. The second is left alone: its limit is real.
FIRST = """
import os, resource, signal, sys
if any("corpus.worker" in word for word in sys.orig_argv):
    from unbloat.corpus import stream
    before = stream.analyse_files
    def analyse_files(files, progress):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if any("many" in path for path in files) and limit == resource.RLIM_INFINITY:
            os.kill(os.getpid(), signal.SIGKILL)
        return before(files, progress)
    stream.analyse_files = analyse_files
"""


def test_a_capture_that_fills_the_memory_of_its_lone_attempt_is_failed(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MEMORY_BYTES", 256 << 20)
    (tmp_path / "sitecustomize.py").write_text(FIRST)
    monkeypatch.syspath_prepend(str(tmp_path))
    top = tmp_path / "phone"
    top.mkdir()
    many_flows(top / "many.pcap", 400_000)
    many_flows(top / "many-fewer.pcap", 100)
    shutil.copy(captures[0], top / "other.pcapng")
    out = tmp_path / "out"
    outcome = run_corpus([top], out, RunOptions(jobs=2))
    # Memory within the limit is enough for the others, also for one whose process was killed before.
    assert states(out) == {"many.pcap": "failed", "many-fewer.pcap": "done", "other.pcapng": "done"}
    [line] = outcome.errors
    assert line.startswith(f"{top}/many.pcap: ")
    [receipt] = [one for one in Ledger(out).each_receipt() if one["state"] == "failed"]
    assert receipt["tries"] == 2
    assert (
        sum(row["connections"] for row in unbloat.corpus(out).captures.to_table().to_pylist()) > 100
    )
    assert final(out)
    assert (
        os.path.getsize(top / "many.pcap") < 32 << 20
    )  # what fills the memory is no size of the file

"""Files of one rotating capture give the tables of the whole, and nothing else becomes one."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from results import command, final, run

import unbloat
from unbloat.corpus import packet_times
from unbloat.corpus.packet_times import first_packet_s, last_packet_s
from unbloat.corpus.sources import Search, find_units
from unbloat.corpus.stream import analyse_path
from unbloat.corpus.tables import NAMES

needs_editcap = pytest.mark.skipif(shutil.which("editcap") is None, reason="no editcap")


def cut(capture: Path, folder: Path, files: int, form: str = "pcapng") -> list[Path]:
    """The capture as so many files, named as by dumpcap."""
    folder.mkdir(parents=True)
    packets = analyse_path(str(capture), "", lambda _done: None)[0]["packets"]
    each = -(-packets // files)
    subprocess.run(
        ["editcap", "-F", form, "-c", str(each), str(capture), str(folder / f"ring.{form}")],
        check=True,
        capture_output=True,
    )
    made = sorted(folder.iterdir())
    assert len(made) == files
    return made


def rows(out: Path, name: str) -> list[dict[str, object]]:
    """A table without what depends on names."""
    path = out / "table" / name
    if not any(path.iterdir()):
        return []
    table = pq.read_table(path)
    names = [one for one in ("unit", "file", "device", "interfaces") if one in table.column_names]
    return table.drop_columns(names).to_pylist()  # type: ignore[no-any-return]


@needs_editcap
@pytest.mark.parametrize("form", ["pcapng", "pcap"])
def test_five_files_of_one_capture_give_the_tables_of_the_whole(
    form: str, captures: list[Path], tmp_path: Path
) -> None:
    whole = tmp_path / f"whole.{form}"
    subprocess.run(["editcap", "-F", form, str(captures[2]), str(whole)], check=True)
    parts = cut(whole, tmp_path / "phone", 5, form)
    expected, joined, single = tmp_path / "whole", tmp_path / "joined", tmp_path / "single"
    run(whole, expected, jobs=1)
    outcome = run(tmp_path / "phone", joined, merge=True)
    assert (outcome.found, outcome.done, outcome.errors) == (1, 1, [])
    for name in NAMES:
        assert rows(joined, name) == rows(expected, name), name
    table = pq.read_table(joined / "table/captures")
    assert table["file"].to_pylist() == [str(parts[0])]
    # Without the option they are five captures, and connections are cut.
    assert run(tmp_path / "phone", single).found == 5
    assert len(rows(single, "connections")) > len(rows(expected, "connections"))


@needs_editcap
def test_a_series_takes_the_place_of_its_files_and_grows_in_it(
    captures: list[Path], tmp_path: Path
) -> None:
    parts = cut(captures[1], tmp_path / "phone", 4)
    later = parts[3].rename(tmp_path / "later")
    out, clean = tmp_path / "out", tmp_path / "clean"
    assert run(tmp_path / "phone", out).found == 3
    assert run(tmp_path / "phone", out, merge=True).ran == 1
    later.rename(parts[3])
    assert run(tmp_path / "phone", out, merge=True).ran == 1
    run(tmp_path / "phone", clean, merge=True)
    assert final(out) == final(clean)
    assert unbloat.corpus(out).status().units == 1


@needs_editcap
def test_packed_files_are_joined_by_their_first_packets(
    captures: list[Path], tmp_path: Path
) -> None:
    parts = cut(captures[0], tmp_path / "phone", 2)
    # More than a second apart, as files that are rotated: the last packet of a packed file is unknown.
    shutil.copy(parts[1], tmp_path / "saved")
    subprocess.run(["editcap", "-t", "1", tmp_path / "saved", parts[1]], check=True)
    for path in parts:
        (tmp_path / "phone" / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    outcome = run(tmp_path / "phone", tmp_path / "out", merge=True)
    assert (outcome.found, outcome.done) == (1, 1)


@needs_editcap
def test_captures_beside_each_other_and_after_a_pause_stay_alone(
    phones: Path, captures: list[Path], tmp_path: Path
) -> None:
    # capture-0 to capture-2 of each phone begin at the same time.
    assert len(find_units([str(phones)], Search(merge=True))) == 9
    folder = tmp_path / "phone"
    parts = cut(captures[0], folder, 2)
    shifted = folder / "shifted"
    for pause_s, units in ((59, 1), (3600, 2)):
        subprocess.run(["editcap", "-t", str(pause_s), parts[1], shifted], check=True)
        saved = parts[1].read_bytes()
        os.replace(shifted, parts[1])
        assert len(find_units([str(folder)], Search(merge=True))) == units
        parts[1].write_bytes(saved)
    # Of another name, folder or device.
    parts[1].rename(folder / "other_00001_20200101000000.pcapng")
    assert len(find_units([str(folder)], Search(merge=True))) == 2


@needs_editcap
def test_first_and_last_packets_are_those_of_the_whole_file(
    captures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The end of a large file is read alone.
    monkeypatch.setattr(packet_times, "TAIL_BYTES", 1 << 17)
    assert captures[3].stat().st_size > 2 << 17
    info, _ = analyse_path(str(captures[3]), "", lambda _done: None)
    begin_s, end_s = info["start_s"], info["start_s"] + info["duration_s"]
    for form in ("pcapng", "pcap", "nsecpcap"):
        path = tmp_path / form
        subprocess.run(["editcap", "-F", form, str(captures[3]), str(path)], check=True)
        assert first_packet_s(str(path)) == pytest.approx(begin_s, abs=2e-6)
        assert last_packet_s(str(path)) == pytest.approx(end_s, abs=2e-6)
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(captures[3].read_bytes()))
    assert first_packet_s(str(packed)) == pytest.approx(begin_s, abs=2e-6)
    assert last_packet_s(str(packed)) is None
    broken = tmp_path / "broken"
    broken.write_bytes((tmp_path / "pcap").read_bytes()[:-5])
    assert last_packet_s(str(broken)) is None
    broken.write_bytes(b"no capture")
    assert first_packet_s(str(broken)) is None


def test_another_value_is_wrong_usage(phones: Path, tmp_path: Path) -> None:
    process = command("run", phones, "--out", tmp_path / "out", "--merge", "all")
    process.communicate(timeout=60)
    assert process.returncode == 2

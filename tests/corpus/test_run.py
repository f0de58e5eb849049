"""A corpus is analysed once, whatever the number of processes, and what is there is not analysed again."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from results import command, final, run, states

import unbloat
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.sources import Search, find_units
from unbloat.corpus.unit import without_credentials
from unbloat.errors import CaptureError, UnbloatError


def test_one_and_two_processes_give_the_same_bytes(phones: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    outcome = run(phones, one, jobs=1)
    assert (outcome.found, outcome.ran, outcome.done, outcome.errors) == (9, 9, 9, [])
    run(phones, two, jobs=2)
    assert final(one) == final(two)
    assert len(final(one)) == 9  # eight tables and their digest


def test_the_tables_are_those_of_analyze(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(phones, out)
    opened = unbloat.corpus(out)
    for path in sorted(phones.rglob("*.pcapng")):
        alone = unbloat.analyze(path)
        for name in ("connections", "flows", "findings"):
            table = opened.table(name).to_table().to_pylist()
            rows = [row for row in table if row["file"] == str(path)]
            expected = getattr(alone, name).to_pylist()
            assert [{key: row[key] for key in expected[0]} for row in rows] == expected


def test_a_second_run_does_nothing_and_new_captures_are_added(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(phones, out)
    before = final(out)
    assert run(phones, out).ran == 0
    assert final(out) == before
    shutil.copy(phones / "phone0/capture-0.pcapng", phones / "phone0/later.pcapng")
    assert run(phones, out).ran == 1
    assert unbloat.corpus(out).captures.count_rows() == 10


def test_a_changed_capture_takes_the_place_of_what_it_was(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(phones, out)
    path = phones / "phone1/capture-1.pcapng"
    os.utime(path, ns=(1, 1))
    assert run(phones, out).ran == 1
    opened = unbloat.corpus(out)
    assert opened.captures.count_rows() == 9
    assert opened.status().stale == 1
    assert opened.forget(stale=True) == 1
    assert opened.status().stale == 0
    assert opened.captures.count_rows() == 9


def test_a_limit_takes_the_largest_first(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(phones, out, limit=2).ran == 2
    done = [receipt["size_bytes"] for receipt in Ledger(out).each_receipt()]
    sizes = sorted(path.stat().st_size for path in phones.rglob("*.pcapng"))
    assert sorted(done) == sizes[-2:]
    assert run(phones, out).ran == 7


def test_devices_are_folders_or_what_an_expression_finds(phones: Path, tmp_path: Path) -> None:
    units = find_units([str(phones)], Search())
    assert {unit["device"] for unit in units} == {"phone0", "phone1", "phone2"}
    import re

    units = find_units([str(phones)], Search(device_from=re.compile(r"phone(\d)")))
    assert {unit["device"] for unit in units} == {"0", "1", "2"}


def test_include_takes_files_by_name_and_links_of_folders_are_skipped(
    phones: Path, tmp_path: Path
) -> None:
    (phones / "notes.txt").write_text("no capture")
    (phones / "again.pcapng").symlink_to(phones / "phone0/capture-0.pcapng")
    (phones / "circle").symlink_to(phones)
    os.mkfifo(phones / "pipe.pcap")
    assert len(find_units([str(phones)], Search())) == 9
    assert len(find_units([str(phones)], Search(include="*-1.pcapng"))) == 3
    assert len(find_units([str(phones / "*/capture-2.pcapng")], Search())) == 3


def test_urls_lose_their_credentials() -> None:
    url = "https://me:secret@host/a.pcap?X-Amz-Signature=abc&version=3"
    assert without_credentials(url) == "https://host/a.pcap?version=3"
    assert without_credentials("/a/b@c") == "/a/b@c"


def test_a_url_gives_the_same_rows_as_the_path(captures: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    by_path, by_url = tmp_path / "path", tmp_path / "url"
    run(captures[0], by_path)
    from unbloat.corpus.run import RunOptions, run_corpus

    run_corpus([f"file://{captures[0]}"], by_url, RunOptions(jobs=1))
    tables = [
        pq.read_table(out / "table/flows").drop_columns(["unit", "file"])
        for out in (by_path, by_url)
    ]
    assert tables[0].equals(tables[1])


def test_ctrl_c_keeps_what_is_done(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = command("run", phones, "--out", out, "--jobs", 1)
    while process.poll() is None and not Ledger(out).receipts():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors
    clean = tmp_path / "clean"
    run(phones, clean)
    run(phones, out)
    assert final(out) == final(clean)


def test_two_runs_do_not_write_at_once(phones: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ledger = Ledger(out)
    ledger.begin()
    with ledger.lock(), pytest.raises(UnbloatError, match="is writing here"):
        run(phones, out)


def test_wrong_folders_are_refused(phones: Path, tmp_path: Path) -> None:
    with pytest.raises(UnbloatError, match="is not empty and no corpus"):
        run(phones, phones)
    with pytest.raises(CaptureError, match="is no corpus"):
        unbloat.corpus(phones)
    with pytest.raises(FileNotFoundError):
        run(tmp_path / "nowhere", tmp_path / "out")
    out = tmp_path / "out"
    run(phones / "phone0", out)
    (out / "corpus.json").write_text('{"format": 2}')
    with pytest.raises(CaptureError, match="update it"):
        unbloat.corpus(out)
    assert states(out)

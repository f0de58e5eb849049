"""Results in an object store are those of a local folder, byte for byte, whatever is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import BUCKET, Store
from results import command, final, run

pytest.importorskip("moto")
pytest.importorskip("s3fs")

import unbloat
from unbloat.corpus.run import RunOptions, run_corpus
from unbloat.corpus.tables import NAMES
from unbloat.errors import UnbloatError

OUT = f"s3://{BUCKET}/results"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    """A server, the environment in which s3fs finds it, and a folder for copies."""
    store = Store()
    store.found_by(monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store.start()
    # It keeps clients of stores, and what they listed, by their settings.
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield store
    store.kill()


def tables(store: Store) -> dict[str, bytes]:
    """Every file of the tables that count, as `final` names them."""
    digest = store.get("results/table/current")
    top = f"results/table/{digest.decode()}/"
    found = {name.removeprefix(top): store.get(name) for name in store.names("results/table/")}
    assert found.pop("results/table/current") == digest
    return dict(sorted((found | {"digest": digest}).items()))


def copies(tmp_path: Path) -> list[Path]:
    """What runs have left on this machine besides the tables that are read."""
    return [*(tmp_path / "cache").rglob("copy-*")]


def receipts(store: Store) -> list[str]:
    """Names of all receipts."""
    return store.names("results/done/")


def test_the_store_has_the_tables_of_a_folder(store: Store, phones: Path, tmp_path: Path) -> None:
    (phones / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    run(phones, tmp_path / "local")
    process = command("run", phones, "--out", OUT, "--jobs", 2)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 3
    assert errors == f"unbloat: {phones}/text.pcap: not a pcap or pcapng file: looks like text\n"
    assert output.startswith("9 of 10 units done, 10 now")
    assert f"tables: {OUT}/table" in output
    assert tables(store) == final(tmp_path / "local")
    assert len(receipts(store)) == 10
    assert copies(tmp_path) == []
    # Nothing is left to do, and nothing is written again.
    before = store.client().list_objects_v2(Bucket=BUCKET)["Contents"]
    assert run_corpus([phones], OUT, RunOptions(jobs=2)).ran == 0
    after = store.client().list_objects_v2(Bucket=BUCKET)["Contents"]
    assert [(one["Key"], one["LastModified"]) for one in before] == [
        (one["Key"], one["LastModified"]) for one in after
    ]


def printed(*arguments: object) -> str:
    """What a command prints."""
    process = command(*arguments)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    return output


def test_every_command_answers_as_for_a_folder(store: Store, phones: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    run(phones, local)
    run_corpus([phones], OUT, RunOptions(jobs=2))
    sql = "SELECT device, sum(bytes) AS bytes FROM flows GROUP BY 1 ORDER BY 1"
    for words in (["status"], ["status", "--json"], ["query", sql, "--csv"]):
        name, *rest = words
        assert printed(name, OUT, *rest) == printed(name, local, *rest)
    assert printed("report", OUT, "--out", tmp_path / "page.html").startswith("report: ")
    here, there = unbloat.corpus(local), unbloat.corpus(OUT)
    for name in NAMES:
        assert there.table(name).to_table() == here.table(name).to_table(), name
    assert repr(there) == f"<unbloat.Corpus {OUT}>"
    # A changed capture is read again, and its old result can be forgotten.
    (phones / "phone0/capture-0.pcapng").unlink()
    shutil.copy(phones / "phone1/capture-2.pcapng", phones / "phone0/capture-0.pcapng")
    for out in (local, OUT):
        assert run_corpus([phones], out, RunOptions(jobs=2)).ran == 1
        assert printed("forget", out, "--stale") == "1 result removed\n"
    assert tables(store) == final(local)
    assert len(receipts(store)) == 9
    assert printed("query", OUT, sql, "--csv") == printed("query", local, sql, "--csv")


def many(phones: Path, count: int) -> None:
    """More captures, so that a run takes a while."""
    for number in range(count):
        shutil.copy(phones / "phone0/capture-0.pcapng", phones / f"phone0/more-{number}.pcapng")


@pytest.mark.parametrize("moment", [1, 5, 12])
def test_a_run_that_is_killed_goes_on_where_it_was(
    moment: int, store: Store, phones: Path, tmp_path: Path
) -> None:
    many(phones, 10)
    run(phones, tmp_path / "local")
    process = command("run", phones, "--out", OUT, "--jobs", 2)
    while process.poll() is None and len(receipts(store)) < moment:
        time.sleep(0.01)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    done = len(receipts(store))
    assert moment <= done
    assert len(copies(tmp_path)) == 1
    outcome = run_corpus([phones], OUT, RunOptions(jobs=2))
    # The store may have finished with a receipt that it got before.
    assert outcome.ran <= 19 - done
    assert outcome.done == 19
    assert tables(store) == final(tmp_path / "local")
    # What a worker wrote that outlived its run for a moment is removed by the next one.
    assert run_corpus([phones], OUT, RunOptions(jobs=2)).ran == 0
    assert copies(tmp_path) == []


def test_what_a_receipt_names_is_always_there(store: Store, phones: Path) -> None:
    many(phones, 10)
    process = command("run", phones, "--out", OUT, "--jobs", 2)
    seen = 0
    while process.poll() is None:
        for name in receipts(store)[seen:]:
            receipt = json.loads(store.get(name))
            parts = store.names("results/part/")
            for table in receipt["tables"]:
                key = receipt["key"]
                assert f"results/part/{table}/{key[:2]}/{key}.arrow" in parts
        seen = min(len(receipts(store)), 10)
    assert process.wait() == 0
    assert seen


def test_a_store_that_is_killed_ends_the_run_with_one_line(
    store: Store, phones: Path, tmp_path: Path
) -> None:
    many(phones, 20)
    run(phones, tmp_path / "local")
    process = command("run", phones, "--out", OUT, "--jobs", 2)
    while process.poll() is None and not receipts(store):
        time.sleep(0.01)
    store.kill()
    output, errors = process.communicate(timeout=300)
    assert (process.returncode, output) == (2, "")
    assert errors.startswith(f"unbloat: {OUT}: the store did not answer (")
    assert len(errors.splitlines()) == 1
    assert copies(tmp_path) == []
    # It has forgotten all objects: everything is analysed again.
    store.start()
    assert run_corpus([phones], OUT, RunOptions(jobs=2)).ran == 29
    assert tables(store) == final(tmp_path / "local")


def test_a_store_that_pauses_loses_nothing(store: Store, phones: Path, tmp_path: Path) -> None:
    many(phones, 10)
    run(phones, tmp_path / "local")
    process = command("run", phones, "--out", OUT, "--jobs", 2)
    while process.poll() is None and not receipts(store):
        time.sleep(0.01)
    assert store.process is not None
    store.process.send_signal(signal.SIGSTOP)
    time.sleep(3)
    store.process.send_signal(signal.SIGCONT)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert output.startswith("19 of 19 units done, 19 now")
    assert tables(store) == final(tmp_path / "local")


def test_all_pages_of_receipts_are_read(store: Store, phones: Path) -> None:
    # A page has 1000 objects.
    run_corpus([phones], OUT, RunOptions(jobs=2))
    receipt = json.loads(store.get(receipts(store)[0]))
    keys = [f"{number:032x}" for number in range(1205)]
    store.put(
        {
            f"results/done/{key[:2]}/{key}.json": json.dumps(receipt | {"key": key}).encode()
            for key in keys
        }
    )
    assert json.loads(printed("status", OUT, "--json"))["stale"] == 1205


def test_what_cannot_be_is_one_line(store: Store, phones: Path, tmp_path: Path) -> None:
    store.put({"other/notes.txt": b"mine"})
    for words, code, line in (
        (["run", phones, "--out", f"s3://{BUCKET}/other"], 2, "other: is not empty and no corpus"),
        (["run", phones, "--out", "s3://nowhere/results"], 2, "there is no such bucket"),
        (["run", phones, "--out", OUT, "--dask", "local"], 2, "--dask needs --out to be a folder"),
        (["run", phones, "--out", "nothing://x"], 2, "nothing://x: Protocol not known: nothing"),
        (["status", f"s3://{BUCKET}/other"], 3, "other: is no corpus"),
    ):
        process = command(*words)
        output, errors = process.communicate(timeout=120)
        assert (process.returncode, output) == (code, ""), errors
        assert len(errors.splitlines()) == 1, errors
        assert line in errors
    assert store.names("other") == ["other/notes.txt"]
    store.kill()
    process = command("status", OUT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.startswith(f"unbloat: {OUT}: the store did not answer (")
    assert copies(tmp_path) == []


def test_names_in_a_store_never_lead_out_of_the_copy(
    store: Store, phones: Path, tmp_path: Path
) -> None:
    run_corpus([phones], OUT, RunOptions(jobs=2))
    (name, *_) = receipts(store)
    receipt = json.loads(store.get(name))
    store.put({"results/done/zz/../../gone.json": b"{}"})
    # What has another key than its name, or a table that does not exist, is no receipt: its unit runs again.
    for damage in ({"key": "../../../gone"}, {"tables": {"../../../gone": 1}}):
        store.put({name: json.dumps(receipt | damage).encode()})
        outcome = run_corpus([phones], OUT, RunOptions(jobs=2))
        assert (outcome.done, outcome.ran) == (9, 1)
        assert json.loads(store.get(name))["tables"] == receipt["tables"]
    store.put({"results/table/current": b"../../gone"})
    with pytest.raises(unbloat.CaptureError, match="table/current: is damaged"):
        unbloat.corpus(OUT).sql("SELECT 1")
    assert not [*tmp_path.rglob("gone*")]


def test_two_runs_at_once_are_refused(
    phones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from unbloat.corpus.remote_ledger import ledger_at

    ledger = ledger_at("memory://two")
    try:
        with ledger.lock(), pytest.raises(UnbloatError, match="another unbloat corpus is writing"):
            run_corpus([phones], "memory://two", RunOptions(jobs=1))
    finally:
        ledger.close()


def test_other_stores_of_fsspec_have_the_same_tables(
    phones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run(phones, tmp_path / "local")
    run_corpus([phones], "memory://some/results", RunOptions(jobs=2))
    here, there = unbloat.corpus(tmp_path / "local"), unbloat.corpus("memory://some/results")
    assert there.status().to_dict() == here.status().to_dict()
    for name in NAMES:
        assert there.table(name).to_table() == here.table(name).to_table(), name
    # A URL of this machine's files is a folder.
    run_corpus([phones], f"file://{tmp_path}/as-url", RunOptions(jobs=2))
    assert final(tmp_path / "as-url") == final(tmp_path / "local")
    assert not os.path.exists("file:")

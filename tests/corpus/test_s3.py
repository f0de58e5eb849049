"""Captures in an object store: a server that speaks S3 on this machine, which is killed as well."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from object_store import BUCKET, Store
from results import command, final, kills, run, states

pytest.importorskip("moto")
pytest.importorskip("s3fs")

from unbloat.corpus.ledger import Ledger
from unbloat.corpus.run import Outcome, RunOptions, run_corpus
from unbloat.corpus.sources import Search, find_units

# Of the moments at which the store is killed.
SEED = 20_261_126


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A server, and the environment in which s3fs finds it."""
    store = Store()
    store.found_by(monkeypatch)
    store.start()
    # It keeps clients of stores, and what they listed, by their settings.
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    yield store
    store.kill()


def objects_of(captures: list[Path], count: int) -> dict[str, bytes]:
    """Objects of two phones."""
    return {
        f"phone{number % 2}/capture-{number}.pcapng": captures[number % len(captures)].read_bytes()
        for number in range(count)
    }


def run_store(out: Path, **options: object) -> Outcome:
    """A run over all objects."""
    return run_corpus([f"s3://{BUCKET}"], out, RunOptions(**options))  # type: ignore[arg-type]


def test_all_pages_of_a_listing_are_read(store: Store) -> None:
    # A page has 1000 objects.
    store.put({f"phone/{number:04d}.pcap": b"x" for number in range(1205)} | {"notes.txt": b"x"})
    units = find_units([f"s3://{BUCKET}/phone"], Search())
    assert len({unit["file"] for unit in units}) == 1205
    assert {unit["device"] for unit in units} == {"phone"}
    assert len(find_units([f"s3://{BUCKET}"], Search())) == 1205
    assert len(find_units([f"s3://{BUCKET}/phone/00*.pcap"], Search())) == 100


@pytest.mark.parametrize("dask", [None, "local"])
def test_objects_give_the_rows_of_files(
    dask: str | None, store: Store, captures: list[Path], tmp_path: Path
) -> None:
    if dask is not None:
        pytest.importorskip("distributed")
    objects = objects_of(captures, 5)
    for name, data in objects.items():
        (tmp_path / "files" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "files" / name).write_bytes(data)
    # An archive that is entered at its members.
    archive = shutil.make_archive(str(tmp_path / "phone0"), "tar", tmp_path / "files/phone0")
    (tmp_path / "files/phone0/all.tar").write_bytes(Path(archive).read_bytes())
    store.put(objects | {"phone0/all.tar": Path(archive).read_bytes()})
    run(tmp_path / "files", tmp_path / "local")
    outcome = run_store(tmp_path / "stored", jobs=2, dask=dask)
    assert (outcome.found, outcome.done, outcome.errors) == (8, 8, [])
    for name in ("flows", "slots", "spans"):
        tables = []
        for out, top in (("local", f"{tmp_path}/files"), ("stored", f"s3://{BUCKET}")):
            rows = pq.read_table(tmp_path / out / "table" / name).drop_columns(["unit"]).to_pylist()
            assert all(row["file"].startswith(top) for row in rows)
            tables.append([{**row, "file": row["file"][len(top) :]} for row in rows])
        assert tables[0] == tables[1], name


def test_a_store_that_is_killed_fails_units_which_a_later_run_does(
    store: Store, captures: list[Path], tmp_path: Path
) -> None:
    objects = objects_of(captures, 6)
    store.put(objects)
    run_store(tmp_path / "clean", jobs=2)
    moments = random.Random(SEED)
    for round_ in range(kills(1)):
        kill_store(store, objects, tmp_path / f"out{round_}", moments.randrange(1, 4))
        assert final(tmp_path / f"out{round_}") == final(tmp_path / "clean")


def kill_store(store: Store, objects: dict[str, bytes], out: Path, after: int) -> None:
    """A run whose store is killed once so many units are done, and the runs that complete it."""
    process = command("run", f"s3://{BUCKET}", "--out", out, "--jobs", 2)
    while process.poll() is None and len(Ledger(out).receipts()) < after:
        time.sleep(0.01)
    store.kill()
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 3, errors
    assert "Traceback" not in errors
    found = states(out)
    failed = [name for name, state in found.items() if state == "failed"]
    assert set(found.values()) == {"done", "failed"}
    assert len(errors.splitlines()) == len(failed)
    assert all("the store did not answer (" in line for line in errors.splitlines()), errors
    store.start()
    store.put(objects)
    assert run_store(out, jobs=2).ran == 0
    outcome = run_store(out, jobs=2, retry_failed=True)
    assert (outcome.ran, outcome.done, outcome.errors) == (len(failed), 6, [])


def test_a_store_that_is_not_there_is_one_line(store: Store, tmp_path: Path) -> None:
    store.kill()
    process = command("run", f"s3://{BUCKET}", "--out", tmp_path / "out")
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1, errors
    assert errors.startswith(f"unbloat: s3://{BUCKET}: cannot be listed: ")
    assert os.listdir(tmp_path) == []

"""Captures and results in Google Cloud Storage, by an emulator of it on this machine: those of files, byte for byte."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from object_store import BUCKET, Server
from results import command, final, run

# Read when gcsfs is loaded. It would ask by gRPC for the kind of the bucket, which the emulator does not know.
os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
pytest.importorskip("gcsfs")
pytest.importorskip("gcp_storage_emulator")

import unbloat
from unbloat.corpus.run import RunOptions, run_corpus
from unbloat.corpus.tables import NAMES

SOURCE = f"gs://{BUCKET}/phones"
OUT = f"gs://{BUCKET}/results"


class Store(Server):
    """The emulator, with its objects in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def start(self) -> None:
        """Starts it."""
        where = ("--host=127.0.0.1", f"--port={self.port}", f"--default-bucket={BUCKET}")
        self.serve("gcp_storage_emulator", f"--data-dir={self.folder}", "start", *where)


def files() -> Any:
    """What reads and writes objects beside the program, as it is now."""
    import gcsfs

    gcsfs.GCSFileSystem.clear_instance_cache()
    return gcsfs.GCSFileSystem(token="anon")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    """A server, the environment in which gcsfs finds it, and a folder for copies."""
    store = Store(tmp_path / "objects")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{store.port}")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store.start()
    yield store
    store.kill()


def tables() -> dict[str, bytes]:
    """Every file of the tables that count, as `final` names them."""
    objects = files()
    digest = objects.cat_file(f"{OUT}/table/current")
    top = f"{BUCKET}/results/table/{digest.decode()}/"
    found = {name.removeprefix(top): objects.cat_file(name) for name in objects.find(top)}
    return dict(sorted((found | {"digest": digest}).items()))


def test_captures_in_a_bucket_give_the_rows_of_files(
    store: Store, phones: Path, tmp_path: Path
) -> None:
    files().put(f"{phones}/", f"{SOURCE}/", recursive=True)
    run(phones, tmp_path / "local")
    process = command("run", SOURCE, "--out", tmp_path / "stored", "--jobs", 2)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert output.startswith("9 of 9 units done, 9 now")
    for name in NAMES:
        found = []
        for out, top in (("local", str(phones)), ("stored", SOURCE)):
            path = tmp_path / out / "table" / name
            rows = pq.read_table(path).drop_columns(["unit"]).to_pylist()
            found.append([{**row, "file": row["file"].removeprefix(top)} for row in rows])
        assert found[0] == found[1], name
        assert found[0], name


def test_the_bucket_has_the_tables_of_a_folder(store: Store, phones: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    run(phones, local)
    process = command("run", phones, "--out", OUT, "--jobs", 2)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (0, "")
    assert output.startswith("9 of 9 units done, 9 now")
    assert tables() == final(local)
    assert run_corpus([phones], OUT, RunOptions(jobs=2)).ran == 0
    process = command("status", OUT)
    answers = [process.communicate(timeout=120)]
    process = command("status", local)
    answers.append(process.communicate(timeout=120))
    assert answers[0] == answers[1]
    here, there = unbloat.corpus(local), unbloat.corpus(OUT)
    for name in NAMES:
        assert there.table(name).to_table() == here.table(name).to_table(), name


def test_a_bucket_that_is_not_there_is_one_line(store: Store, phones: Path) -> None:
    process = command("run", phones, "--out", "gs://nowhere/results")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1, errors
    assert "there is no such bucket" in errors

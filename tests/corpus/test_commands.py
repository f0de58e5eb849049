"""What `unbloat corpus` prints, and the public function behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from results import command, run

import unbloat
from unbloat.corpus.tables import NAMES


@pytest.fixture
def out(phones: Path, tmp_path: Path) -> Path:
    """A corpus with one bad capture."""
    (phones / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    folder = tmp_path / "out"
    run(phones, folder)
    return folder


def printed(*arguments: object, code: int = 0) -> tuple[str, str]:
    """Output and errors of a command that ends with this code."""
    process = command(*arguments)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    return output, errors


def test_status_counts_and_names(out: Path, phones: Path) -> None:
    line = f"{phones}/text.pcap: not a pcap or pcapng file: looks like text"
    output, _ = printed("status", out)
    assert "10 units: 9 done, 1 bad, 0 failed, 0 left" in output
    assert "looks like text" in output
    facts = json.loads(printed("status", out, "--json")[0])
    assert (facts["done"], facts["bad"], facts["failed"], facts["left"]) == (9, 1, 0, 0)
    assert facts["errors"] == [line]
    assert facts["rows"]["captures"] == 9


def test_query_prints_a_table_json_and_csv(out: Path) -> None:
    sql = "SELECT device, count(*) AS n, sum(bytes) AS bytes FROM captures GROUP BY 1 ORDER BY 1"
    output, _ = printed("query", out, sql)
    assert output.splitlines()[0].split() == ["device", "n", "bytes"]
    assert all(len(line) <= 80 for line in output.splitlines())
    rows = [json.loads(line) for line in printed("query", out, sql, "--json")[0].splitlines()]
    assert [(row["device"], row["n"]) for row in rows] == [(f"phone{n}", 3) for n in range(3)]
    csv = printed("query", out, sql, "--csv")[0].splitlines()
    assert csv[0] == "device,n,bytes"
    assert len(csv) == 4


def test_wrong_queries_and_folders_are_one_line(out: Path, tmp_path: Path) -> None:
    _, errors = printed("query", out, "SELECT nothing FROM nowhere", code=2)
    assert errors.startswith("unbloat: Catalog Error: Table with name nowhere does not exist")
    assert len(errors.splitlines()) == 1
    _, errors = printed("status", tmp_path / "nothing", code=3)
    assert errors == f"unbloat: {tmp_path}/nothing: no such file or directory\n"
    printed("run", tmp_path, "--out", out, "--timeout-per-gb", "long", code=2)
    printed("run", tmp_path, "--out", out, "--device-from", "(", code=2)
    printed("forget", out, code=2)
    assert printed("forget", out, "--stale")[0] == "0 results removed\n"


def test_the_tables_are_datasets_and_views(out: Path) -> None:
    corpus = unbloat.corpus(out)
    for name in NAMES:
        table = corpus.table(name).to_table()
        assert table.num_rows > 0, name
        assert table.column_names[:4] == ["unit", "device", "file", "t0_s"]
        assert corpus.sql(f"SELECT count(*) FROM {name}").fetchall() == [(table.num_rows,)]
    assert corpus.table("flows").schema == corpus.flows.schema
    shares = corpus.sql("SELECT sum(share_of_bytes) FROM verdicts").fetchall()[0][0]
    assert shares == pytest.approx(1)
    with pytest.raises(unbloat.UnbloatError, match="no table of a corpus"):
        corpus.table("packets")


def test_views_sql_works_by_itself(out: Path) -> None:
    import duckdb

    connection = duckdb.connect()
    connection.execute((out / "views.sql").read_text())
    assert connection.execute("SELECT count(*) FROM captures").fetchall() == [(9,)]


def test_a_corpus_without_rows_has_no_views(tmp_path: Path) -> None:
    (tmp_path / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    out = tmp_path / "out"
    run(tmp_path / "text.pcap", out)
    assert unbloat.corpus(out).captures.count_rows() == 0
    assert unbloat.corpus(out).sql("SELECT 1").fetchall() == [(1,)]

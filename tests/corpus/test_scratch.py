"""What a run knows of its captures lies in a database on disk: the same rows as before, whatever is stored meanwhile, in memory
that does not grow with their number."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from unbloat.corpus.ledger import Ledger
from unbloat.corpus.receipts import Receipts
from unbloat.corpus.scratch import Scratch
from unbloat.corpus.unit import BAD, DONE, FAILED, Receipt, Unit, make_unit
from unbloat.corpus.unit_table import Listed, UnitTable


def unit(name: str, size_bytes: int = 100, **more: Any) -> Unit:
    return make_unit(f"/phones/{name}", "file", size_bytes, "1", "phone", **more)


def receipt(one: Unit, state: str = DONE, **more: Any) -> Receipt:
    facts: dict[str, Any] = {"t0_s": 1.0, "error": None, "captures": [], "tables": {"flows": 2}}
    return {
        **{name: one[name] for name in ("key", "file", "device", "size_bytes")},
        "state": state,
        **facts,
        **more,
    }


def test_units_are_there_once_the_largest_first() -> None:
    units = [unit("b"), unit("a"), unit("large", 200), unit("b"), unit("\udce9")]
    table = UnitTable.of(Scratch(), units)
    # A name that is not UTF-8 comes behind the others, as bytes do.
    assert list(table) == [units[2], units[1], units[0], units[4]]
    assert (len(table), table.size_bytes()) == (4, 500)
    assert [one["file"] for one in table.first(2)] == ["/phones/large", "/phones/a"]


def test_credentials_are_not_in_the_database() -> None:
    plain, secret = "s3://bucket/a.pcap", "s3://key:word@bucket/b.pcap"
    units = [make_unit(url, "file", 100, "1", "phone") for url in (plain, secret)]
    table = UnitTable.of(Scratch(), units)
    assert [one["url"] for one in table] == [plain, secret]
    assert list(table.first(None)) == units
    assert not any("word" in str(row) for row in table.select("*"))


def test_what_is_kept_does_not_change_and_what_is_asked_for_does() -> None:
    scratch = Scratch()
    units = UnitTable.of(scratch, map(unit, "abcd"))
    receipts = Receipts.of(scratch, [receipt(unit("a")), receipt(unit("x"), FAILED)])
    left = units.beyond(receipts)
    todo = left.first(None)
    files = []
    for one in todo:
        files.append(one["file"])
        receipts.add([receipt(one, BAD, error=f"{one['file']}: is no capture")])
    assert files == ["/phones/b", "/phones/c", "/phones/d"]
    assert (len(todo), len(left), len(receipts)) == (3, 0, 5)
    assert (len(receipts.among(todo)), len(receipts.of_state(BAD))) == (3, 3)
    assert list(receipts.among(units).errors()) == [f"{file}: is no capture" for file in files]
    assert receipts.table_rows() == {"flows": 10}
    # The next receipt of a unit counts instead.
    receipts.add([receipt(unit("b"))])
    assert (len(receipts), len(receipts.of_state(BAD))) == (5, 2)
    receipts.remove(receipts.of_state(BAD))
    assert len(receipts) == 3


@pytest.mark.parametrize(
    "damage",
    [
        {"state": "odd"},
        {"state": None},
        {"size_bytes": "many"},
        {"size_bytes": 1 << 63},
        {"size_bytes": -1},
        {"tables": {"flows": 1 << 70}},
        {"tables": {"other": 1}},
        {"tables": None},
        {"file": None},
        {"t0_s": "now"},
        {"captures": None},
    ],
)
def test_what_is_no_receipt_is_left_out(damage: dict[str, Any]) -> None:
    one = unit("a")
    damaged = receipt(one) | damage
    assert list(Receipts.of(Scratch(), [damaged, receipt(unit("b"))]).each_key()) == [
        unit("b")["key"]
    ]
    assert len(Receipts.of(Scratch(), [receipt(one)])) == 1


def test_the_stored_list_has_the_newest_of_each_file_and_is_written_when_it_differs(
    tmp_path: Path,
) -> None:
    ledger = Ledger(tmp_path)
    path = tmp_path / "manifest" / "units.parquet"
    ledger.add_to_manifest(UnitTable.of(ledger.scratch, [unit("b"), unit("a"), unit("\udce9")]))
    assert pq.read_table(path)["file"].to_pylist() == ["/phones/\\udce9", "/phones/a", "/phones/b"]
    stored = path.stat().st_ino
    ledger.add_to_manifest(UnitTable.of(ledger.scratch, [unit("b")]))
    assert path.stat().st_ino == stored
    joined = unit("a", 300, replaces=["/phones/b"])
    listed = ledger.add_to_manifest(UnitTable.of(ledger.scratch, [joined]))
    assert path.stat().st_ino != stored
    assert listed.size_bytes() == 400
    assert pq.read_table(path)["size_bytes"].to_pylist() == [100, 300]
    again = Listed.read(Scratch(), path)
    assert again.digest() == listed.digest()


MANY = """
import resource, sys
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.receipts import Receipts
from unbloat.corpus.unit import make_unit
from unbloat.corpus.unit_table import UnitTable
from pathlib import Path

count = int(sys.argv[1])
ledger = Ledger(Path(sys.argv[2]))
units = UnitTable.of(
    ledger.scratch, (make_unit(f"/phones/{n:09}.pcap", "file", n, "1", "phone") for n in range(count))
)
manifest = ledger.add_to_manifest(units)
facts = {"state": "done", "t0_s": 1.0, "error": None, "captures": [], "tables": {"flows": 2}}
receipts = Receipts.of(ledger.scratch, (one | facts for one in units))
assert len(units.beyond(receipts).first(None)) == 0
chosen = receipts.among(manifest).by_device_and_time()
assert len(chosen.digest()) == 32
assert sum(1 for _ in chosen.having("flows")) == count
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000)
"""


def test_memory_does_not_grow_with_the_number_of_captures(tmp_path: Path) -> None:
    def largest_mb(count: int) -> int:
        command = [sys.executable, "-c", MANY, str(count), str(tmp_path / str(count))]
        return int(subprocess.run(command, check=True, capture_output=True).stdout)

    # As Arrow columns two hundred thousand took 300 MB more. SQLite has caches of 8 MB, and the list is 5 MB as Parquet.
    assert largest_mb(200_000) - largest_mb(1_000) < 80

"""The views of a corpus against rows that are written by hand, whose answers are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from made import Row

import unbloat
from unbloat.corpus.qcut_views import SAMPLES

ABOUT: Row = {"unit": "u", "device": "a", "file": "f", "t0_s": 0.0}


def curves(out: Path, view: str) -> dict[str, list[tuple[float, float]]]:
    """Points of each series, and that n is the same in all rows of one."""
    found: dict[str, list[tuple[float, float]]] = {}
    ns: dict[str, set[int]] = {}
    for series, x, share, n in unbloat.corpus(out).sql(f"FROM {view}").fetchall():
        found.setdefault(series, []).append((x, share))
        ns.setdefault(series, set()).add(n)
    assert all(len(values) == 1 for values in ns.values())
    return found


def count(out: Path, view: str, series: str) -> Any:
    """n of a series."""
    rows = unbloat.corpus(out).sql(f"SELECT DISTINCT n FROM {view} WHERE series = '{series}'")
    return rows.fetchall()[0][0]


def spans(*rows: tuple[str, float, float, int, int]) -> list[Row]:
    """Device, t0, end, bytes up and down."""
    return [
        {**ABOUT, "device": device, "t0_s": t0, "from_s": 0.0, "to_s": to, "bytes_up": up, "bytes_down": down}
        for device, t0, to, up, down in rows
    ]  # fmt: skip


def bursts(*rows: tuple[bool, float, int]) -> list[Row]:
    """Whether an upload, duration, bytes."""
    return [
        {**ABOUT, "flow": 0, "upload": upload, "from_s": 10.0, "to_s": 10.0 + long, "bytes": size}
        for upload, long, size in rows
    ]


def slots(*rows: tuple[int, int, int, float | None], delay: float | None = None) -> list[Row]:
    """Bytes up and down, connections, rise of the RTT; delay of ACKs."""
    return [
        {**ABOUT, "from_s": 0.0, "bytes_up": up, "bytes_down": down, "connections": number, "rtt_rise_ms": rise, "ack_delay_ms": delay}
        for up, down, number, rise in rows
    ]  # fmt: skip


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    """Three sessions: two files of a device half a minute apart are one."""
    return made.write(
        tmp_path / "out",
        {
            "spans": spans(
                ("a", 0.0, 10.0, 1_000_000, 2_000_000),
                ("a", 40.0, 10.0, 1_000_000, 2_000_000),
                ("a", 110.0, 10.0, 500_000, 0),  # exactly a minute later
                ("b", 40.0, 10.0, 1_000_000, 1_000_000),
            )
        },
    )


def test_sizes_are_those_of_sessions_across_files(sessions: Path) -> None:
    third = pytest.approx(1 / 3)
    two = pytest.approx(2 / 3)
    assert curves(sessions, "qcut_fig1") == {
        "upload": [(0.5, third), (1.0, two), (2.0, 1.0)],
        "download": [(0.0, third), (1.0, two), (4.0, 1.0)],
        "both": [(0.5, third), (2.0, two), (6.0, 1.0)],
    }
    assert count(sessions, "qcut_fig1", "both") == 3


def test_the_share_of_uploads_is_of_sessions_with_data(tmp_path: Path) -> None:
    rows = [("a", 1000.0 * n, 1.0, 10, 90) for n in range(4)]
    out = made.write(
        tmp_path / "out",
        {"spans": spans(*rows, ("a", 9000.0, 1.0, 900, 100), ("a", 12_000.0, 1.0, 0, 0))},
    )
    assert curves(out, "qcut_upload_share") == {
        "all sessions": [(10.0, pytest.approx(0.8)), (90.0, 1.0)],
        "largest 20 %": [(90.0, 1.0)],  # one of five
    }


def test_durations_are_by_direction_and_size(tmp_path: Path) -> None:
    out = made.write(
        tmp_path / "out",
        {
            "bursts": bursts(
                (True, 1.0, 99_999),  # too small
                (True, 1.0, 100_000),
                (True, 1.0, 999_999),
                (True, 3.0, 500_000),
                (True, 4.0, 1_000_000),
                (False, 5.0, 9_999_999),
                (False, 6.0, 10_000_000),
            )
        },
    )
    assert curves(out, "qcut_fig2") == {
        "upload, 0.1–1 MB": [(1.0, pytest.approx(2 / 3)), (3.0, 1.0)],
        "upload, 1–10 MB": [(4.0, 1.0)],
        "download, 1–10 MB": [(5.0, 1.0)],
        "download, > 10 MB": [(6.0, 1.0)],
    }
    assert count(out, "qcut_fig2", "upload, 0.1–1 MB") == 3


def test_rates_are_of_flows_above_three_seconds(tmp_path: Path) -> None:
    out = made.write(
        tmp_path / "out",
        {
            "bursts": bursts(
                (True, 3.0, 3_000_000),  # not above
                (True, 4.0, 1_000),
                (True, 4.0, 4_000_000),
                (False, 8.0, 1_000_000),
            )
        },
    )
    assert curves(out, "qcut_fig3") == {
        "upload": [(0.002, 0.5), (8.0, 1.0)],
        "upload, 1–10 MB": [(8.0, 1.0)],
        "download": [(1.0, 1.0)],
    }


def test_rises_are_of_seconds_without_a_download_by_bytes_up(tmp_path: Path) -> None:
    out = made.write(
        tmp_path / "out",
        {
            "slots": slots(
                (4_999, 4_999, 1, 10.0),
                (0, 0, 1, 30.0),
                (0, 5_000, 1, 1000.0),  # a download
                (0, 0, 1, None),  # no RTT
                (5_000, 0, 1, 40.0),
                (100_000, 0, 2, 50.0),
                (100_001, 0, 2, 60.0),
            )
        },
    )
    assert curves(out, "qcut_fig4") == {
        "< 5 KB up": [(10.0, 0.5), (30.0, 1.0)],
        "5–100 KB up": [(40.0, 0.5), (50.0, 1.0)],
        "> 100 KB up": [(60.0, 1.0)],
    }


def test_delays_of_acks_are_of_all_seconds_that_have_one_by_bytes_up(tmp_path: Path) -> None:
    rows = [
        *slots((4_999, 9_000_000, 1, 10.0), delay=2.0),
        *slots((0, 0, 0, None), delay=4.0),
        *slots((0, 0, 1, 30.0)),  # no ACK
        *slots((5_000, 0, 1, None), (100_000, 0, 2, None), delay=5.0),
        *slots((100_001, 0, 2, None), delay=800.0),
    ]
    out = made.write(tmp_path / "out", {"slots": rows})
    assert curves(out, "qcut_fig4b") == {
        "< 5 KB up": [(2.0, 0.5), (4.0, 1.0)],
        "5–100 KB up": [(5.0, 1.0)],
        "> 100 KB up": [(800.0, 1.0)],
    }


def test_connections_are_of_seconds_with_data(tmp_path: Path) -> None:
    out = made.write(
        tmp_path / "out",
        {"slots": slots((1, 1, 0, 5.0), *[(1, 1, n, None) for n in (1, 1, 1, 4)])},
    )
    assert curves(out, "qcut_fig5") == {"all slots": [(1.0, 0.75), (4.0, 1.0)]}
    assert count(out, "qcut_fig5", "all slots") == 4


def test_a_connection_is_judged_by_the_larger_of_its_judged_directions(tmp_path: Path) -> None:
    tables = made.connections(
        "phone", [("bufferbloat", "C", 900), (None, None, 5)], hour=23, interfaces=["wlan0"]
    )
    tables["flows"][1] |= {"limit": "application", "grade": "A", "bytes": 901}
    tables["connections"][0]["start_s"] = 3600.0  # the hour after 23
    out = made.write(tmp_path / "out", tables)
    rows = unbloat.corpus(out).sql(
        'SELECT connection, flow, upload, "limit", grade, bytes, hour_utc, interface FROM judged'
    )
    assert rows.fetchall() == [(0, 1, False, "application", "A", 901, 0, "wlan0")]


def test_an_interface_without_a_name_is_unknown(tmp_path: Path) -> None:
    for names in ([], [""]):
        tables = made.connections("phone", [("bufferbloat", "C", 900)], interfaces=names)
        out = made.write(tmp_path / f"out{len(names)}", tables)
        assert unbloat.corpus(out).sql("SELECT interface FROM judged").fetchall() == [(None,)]


def test_views_are_there_where_their_table_has_rows(tmp_path: Path) -> None:
    out = made.write(tmp_path / "out", {"slots": slots((1, 1, 1, 5.0))})
    views = {
        name
        for (name,) in unbloat.corpus(out)
        .sql("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        .fetchall()
    }
    assert views == {"slots"} | {name for name, (table, _) in SAMPLES.items() if table == "slots"}

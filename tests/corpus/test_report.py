"""The page of a corpus: its figures are those of the tables, and what is missing is named."""

from __future__ import annotations

import random
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import made
import pytest
from page_text import table
from requirements import CHROMIUM, require, require_module
from results import command as start
from results import run

import unbloat
from unbloat.corpus.report.looks import LOOKS
from unbloat.corpus.report.page import write_page
from unbloat.corpus.report.paper import PANELS
from unbloat.corpus.report.places import SHOWN
from unbloat.corpus.report.shares import DRAWS, PARTS, SEED, prepare, shares
from unbloat.corpus.report.study import study
from unbloat.corpus.report.worst import command
from unbloat.text.format import LIMITS, byte_text, share_text

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
VERDICTS = """
WITH one AS (
  SELECT DISTINCT ON (unit, file, connection) * FROM flows WHERE "limit" IS NOT NULL
  ORDER BY unit, file, connection, bytes DESC, id
)
SELECT "limit", sum(bytes) / (SELECT sum(bytes) FROM one),
       sum(active_s) / (SELECT sum(active_s) FROM one), count(*) / (SELECT count(*) FROM one)
FROM one GROUP BY 1
"""


def page_of(out: Path, path: Path) -> str:
    """The page's text."""
    write_page(unbloat.corpus(out), path)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def of_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of the captures of the demo, a device each."""
    folder = tmp_path_factory.mktemp("samples")
    for path in sorted(SAMPLES.glob("*.pcapng.zst")):
        (folder / "captures" / path.name.split(".")[0]).mkdir(parents=True)
        shutil.copy(path, folder / "captures" / path.name.split(".")[0])
    run(folder / "captures", folder / "out")
    return folder / "out"


@pytest.fixture
def phones_made(tmp_path: Path) -> Path:
    """Four devices with known shares."""
    return made.write(
        tmp_path / "made",
        made.together(
            made.connections("a", [("bufferbloat", "F", 600_000)], hour=1, interfaces=["wlan0"]),
            made.connections("b", [("bufferbloat", "D", 200_000)], hour=1, interfaces=["wlan0"]),
            made.connections("c", [("application", "A", 100_000)], hour=2),
            made.connections(
                "d", [("receive_window", None, 50_000), ("zero_window", None, 50_000)], hour=23
            ),
        ),
    )


def test_verdicts_of_the_samples_are_those_of_sql(of_samples: Path, tmp_path: Path) -> None:
    page = page_of(of_samples, tmp_path / "page.html")
    expected = {
        LIMITS[limit][0]: [share_text(share) for share in found]
        for limit, *found in unbloat.corpus(of_samples).sql(VERDICTS).fetchall()
    }
    assert len(expected) > 2
    rows = {row[0]: [cell.split("|")[0] for cell in row[1:4]] for row in table(page, "limit")}
    assert rows == expected
    devices = unbloat.corpus(of_samples).sql("SELECT count(DISTINCT device) FROM captures")
    assert f"<dt>devices</dt><dd>{devices.fetchall()[0][0]}</dd>" in page


def test_n_of_the_study_is_that_of_the_views(of_samples: Path, tmp_path: Path) -> None:
    page = page_of(of_samples, tmp_path / "page.html")
    opened = unbloat.corpus(of_samples)
    views = {f"qcut_fig{n}" for n in range(1, 6)} | {"qcut_upload_share", "qcut_fig4b"}
    assert {panel.view for panel in PANELS} == views
    for panel in PANELS:
        counts = dict(opened.sql(f"SELECT series, max(n) FROM {panel.view} GROUP BY 1").fetchall())
        assert set(counts) & set(panel.series) or not counts, panel.view
        for name in panel.series:
            n = f"{counts[name]:,}" if name in counts else "none"
            assert (
                f'<th scope="row">{name.replace(">", "&gt;").replace("<", "&lt;")}</th><td class="number">{n}</td>'
                in page
            )


def test_shares_sides_and_grades_of_known_connections(phones_made: Path, tmp_path: Path) -> None:
    page = page_of(phones_made, tmp_path / "page.html")
    assert "80 % of the bytes were held back by a bottleneck behind a standing queue" in page
    limits = {row[0]: [cell.split("|")[0] for cell in row[1:4]] for row in table(page, "limit")}
    assert limits == {
        "zero window": ["5.0 %", "20 %", "20 %"],
        "receive window": ["5.0 %", "20 %", "20 %"],
        "application": ["10 %", "20 %", "20 %"],
        "bufferbloat": ["80 %", "40 %", "40 %"],
    }
    # All are uploads: the device has the application, the other end the window.
    sides = {row[0]: row[1].split("|")[0] for row in table(page, "side")}
    assert sides == {"device": "10 %", "other end": "10 %", "network": "80 %"}
    grades = {row[0]: row[1].split("|")[0] for row in table(page, "grade")}
    assert grades == {"A": "10 %", "D": "20 %", "F": "60 %", "no grade": "10 %"}
    devices = {row[0]: row[1] for row in table(page, "device")}
    assert devices == {"a": "600 KB", "b": "200 KB", "c": "100 KB", "d": "100 KB"}
    assert [row[:2] for row in table(page, "interface")] == [["wlan0", "800 KB"]]
    hours = {row[0]: row[1] for row in table(page, "hour")}
    assert hours == {"01": "800 KB", "02": "100 KB", "23": "100 KB"}


def test_intervals_are_those_of_devices_drawn_by_hand(phones_made: Path) -> None:
    from unbloat.corpus.corpus import connect

    with connect(phones_made) as connection:
        assert prepare(connection) == 4
        parts = shares(connection, "limit", intervals=True)["all"]
    # Bytes of each device, and those that its application held back.
    sizes = {"a": (600, 0), "b": (200, 0), "c": (100, 100), "d": (100, 0)}
    rng = random.Random(SEED)
    drawn = []
    for _ in range(DRAWS):
        chosen = [sizes[device] for device in rng.choices(sorted(sizes), k=4)]
        drawn.append(sum(own for _, own in chosen) / sum(size for size, _ in chosen))
    low, *_, high = statistics.quantiles(drawn, n=40, method="inclusive")
    found = next(part.shares["bytes"] for part in parts if part.name == "application")
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)
    assert 0.2 < high < 1.0


def test_an_interval_is_narrow_where_all_devices_are_alike(tmp_path: Path) -> None:
    from unbloat.corpus.corpus import connect

    verdicts = [("bufferbloat", "C", 1000), ("application", "A", 3000)]
    out = made.write(
        tmp_path / "made", made.together(*(made.connections(f"{n}", verdicts) for n in range(5)))
    )
    with connect(out) as connection:
        prepare(connection)
        parts = shares(connection, "limit", intervals=True)["all"]
    for part in parts:
        for share in part.shares.values():
            assert share.low == pytest.approx(share.share)
            assert share.high == pytest.approx(share.share)


def test_many_devices_are_shown_as_the_largest_and_the_others(tmp_path: Path) -> None:
    parts = [
        made.connections(f"d{n:02}", [("bufferbloat", "C", 1000 + n)]) for n in range(SHOWN + 3)
    ]
    out = made.write(tmp_path / "made", made.together(*parts))
    rows = table(page_of(out, tmp_path / "page.html"), "device")
    assert len(rows) == SHOWN + 1
    assert rows[0][:2] == [f"d{SHOWN + 2}", byte_text(1000 + SHOWN + 2)]
    assert rows[-1][:2] == ["3 other devices", byte_text(3003)]


def test_the_distance_to_the_paper_is_the_largest_at_its_points(tmp_path: Path) -> None:
    from unbloat.corpus.corpus import connect

    about = {"unit": "u", "device": "a", "file": "f", "t0_s": 0.0, "from_s": 0.0}
    rest = {"bytes_up": 1, "bytes_down": 1, "rtt_rise_ms": None, "ack_delay_ms": None}
    out = made.write(
        tmp_path / "made", {"slots": [{**about, **rest, "connections": n} for n in (1, 2)]}
    )
    with connect(out) as connection:
        found = study(connection, {"qcut_fig5"})
    last = found[-1].series[0]
    assert last.n == 2
    assert last.curve == ((1.0, 0.5), (2.0, 1.0))
    assert last.points[0] == (1.0, 0.718, 0.5)
    assert last.ks == pytest.approx(0.718 - 0.5)
    assert all(one.ks is None for panel in found[:-1] for one in panel.series)


def test_a_thinned_curve_keeps_its_shares(tmp_path: Path) -> None:
    from unbloat.corpus.corpus import connect

    about = {"unit": "u", "device": "a", "file": "f", "t0_s": 0.0, "from_s": 0.0}
    rest = {"bytes_up": 1, "bytes_down": 1, "connections": 1, "ack_delay_ms": None}
    rises = [1.0 + n / 10 for n in range(20_000)]
    out = made.write(
        tmp_path / "made", {"slots": [{**about, **rest, "rtt_rise_ms": rise} for rise in rises]}
    )
    with connect(out) as connection:
        panel = next(
            one for one in study(connection, {"qcut_fig4"}) if one.panel.view == "qcut_fig4"
        )
    curve = panel.series[0].curve
    assert 100 < len(curve) <= 301
    for x, share in curve:
        assert share == pytest.approx(sum(rise <= x for rise in rises) / len(rises))


def test_the_worst_come_first_and_each_has_its_command(phones_made: Path, tmp_path: Path) -> None:
    page = page_of(phones_made, tmp_path / "page.html")
    rows = table(page, "connection")
    assert [row[3] for row in rows[::2]] == ["600 ms", "200 ms", "100 ms", "50 ms", "50 ms"]
    assert rows[0][0] == "10.0.0.2:40000 → 192.0.2.1:443, upload"
    assert rows[1] == ["unbloat analyze /a.pcap --connection 0 --report connection-0.html"]
    assert "All 5 connections" in page


def test_commands_of_the_worst_write_reports(captures: list[Path], tmp_path: Path) -> None:
    odd = tmp_path / "it's a [capture].pcapng"
    shutil.copy(captures[0], odd)
    with tarfile.open(tmp_path / "some captures.tar", "w") as plain:
        plain.add(odd, "in it/one [1].pcapng")
    with tarfile.open(tmp_path / "packed.tgz", "w:gz") as packed:
        packed.add(odd, "one.pcapng")
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as zipped:
        zipped.write(odd, "one [1].pcapng")
    names = [
        str(odd),
        f"{tmp_path}/some captures.tar!in it/one [1].pcapng",
        f"{tmp_path}/packed.tgz!one.pcapng",
        f"{tmp_path}/zipped.zip!one [1].pcapng",
        f"file://{captures[0]}",
        f"file://{tmp_path}/packed.tgz!one.pcapng",
    ]
    if shutil.which("unzip") is None:
        del names[3]
    for number, name in enumerate(names):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        # The programs of this installation, whatever PATH has.
        line = re.sub(
            r"\bunbloat analyze", f"{sys.executable} -m unbloat analyze", command(name, 0)
        )
        line = line.replace("python3 -c", f"{sys.executable} -c")
        ended = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True)
        assert ended.returncode == 0, f"{line}\n{ended.stderr}"
        assert "report: connection-0.html" in ended.stdout
        assert (folder / "connection-0.html").stat().st_size > 100_000
    # The directory of a zip is at its end: no pipe can enter it.
    assert command("s3://bucket/zipped.zip!one.pcapng", 0) == ""


def test_a_corpus_without_anything_has_a_page(tmp_path: Path) -> None:
    page = page_of(made.write(tmp_path / "made", {}), tmp_path / "page.html")
    assert "No connection of this corpus can be judged" in page
    assert "no capture has been analysed yet: every figure is missing." in page
    assert 'id="verdicts"' not in page
    # The paper's points are shown, ours are none.
    assert page.count('<td class="number">none</td>') == sum(len(panel.series) for panel in PANELS)


def test_a_corpus_without_tcp_names_what_is_missing(tmp_path: Path) -> None:
    tables = made.connections("phone", [(None, None, 100)])
    page = page_of(made.write(tmp_path / "made", tables), tmp_path / "page.html")
    assert "no connection can be judged: a verdict needs TCP" in page
    assert "there is no data of TCP: durations and rates of flows are missing." in page
    assert "<dt>connections</dt><dd>1</dd>" in page


@pytest.mark.parametrize("gone", ["captures", "connections", "flows", "spans", "bursts", "slots"])
def test_a_table_without_rows_is_named(of_samples: Path, tmp_path: Path, gone: str) -> None:
    out = tmp_path / "out"
    shutil.copytree(of_samples, out)
    shutil.rmtree(out / "table" / gone)
    page = page_of(out, tmp_path / "page.html")
    assert re.search(r'id="missing".*missing\.</li>', page, re.S), gone


def test_one_device_has_no_interval_and_an_unnamed_one_a_word(tmp_path: Path) -> None:
    out = made.write(tmp_path / "made", made.connections("", [("bufferbloat", "C", 1000)]))
    page = page_of(out, tmp_path / "page.html")
    assert "fewer than 3 devices: no confidence interval" in page
    assert '<span class="interval">' not in page
    assert table(page, "device")[0][0] == "no device"
    assert "no capture names its interface" in page


def test_bad_captures_are_counted(phones: Path, tmp_path: Path) -> None:
    (phones / "text.pcap").write_text("this is no capture, but a text of some length\n" * 9)
    run(phones, tmp_path / "out")
    page = page_of(tmp_path / "out", tmp_path / "page.html")
    assert "1 of 10 units bad; unbloat corpus status names all." in page
    assert "<dt>units done</dt><dd>9 of 10</dd>" in page


@pytest.mark.parametrize(
    ("t0_s", "day"), [(made.DAY_S, "2024-01-01"), (1e19, "–"), (-1.0, "–"), (0.0, "1970-01-01")]
)
def test_a_capture_may_have_any_time(tmp_path: Path, t0_s: float, day: str) -> None:
    tables = made.connections("phone", [("bufferbloat", "C", 1000)])
    for rows in tables.values():
        for row in rows:
            row["t0_s"] = t0_s
    page = page_of(made.write(tmp_path / "made", tables), tmp_path / "page.html")
    assert f"<dt>from</dt><dd>{day}</dd>" in page


def test_text_of_a_corpus_stays_text(tmp_path: Path) -> None:
    name = '<b>it\'s & "this"</b>'
    tables = made.connections(name, [("bufferbloat", "C", 1000)], interfaces=["<i>"])
    page = page_of(made.write(tmp_path / "made", tables), tmp_path / "page.html")
    assert "<b>it" not in page
    assert "<i>" not in page.replace("<i></i>", "")
    assert table(page, "device")[0][0] == name


def test_the_command_writes_the_page_and_refuses_in_one_line(
    phones_made: Path, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    process = start("report", phones_made, "--out", path)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert re.fullmatch(rf"report: {re.escape(str(path))}, \d.* KB\n", output)
    for arguments in (
        (phones_made, "--out", tmp_path / "nowhere" / "page.html"),
        (tmp_path / "nothing", "--out", path),
    ):
        process = start("report", *arguments)
        _, errors = process.communicate(timeout=120)
        assert process.returncode in (2, 3)
        assert len(errors.splitlines()) == 1, errors


def test_colours_of_limits_are_those_of_reports_and_every_part_has_one() -> None:
    pen = Path(unbloat.__file__).parent / "report/page/pen.js"
    looks = re.search(r"LIMIT_LOOKS = \{.*?\n\};", pen.read_text(), re.S)
    assert looks is not None
    fills = re.findall(r'(\w+): \{\s*fill: "(#\w+)"', looks[0])
    assert [name for name, _ in fills] == list(LIMITS)
    assert {name: LOOKS[name][0] for name, _ in fills} == dict(fills)
    assert {name for names, _ in PARTS.values() for name in names} == set(LOOKS)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_sticks_out_of_the_screen_and_nothing_is_loaded(
    of_samples: Path, tmp_path: Path, width: int, theme: str
) -> None:
    playwright = require_module("playwright.sync_api")
    require("chromium")
    page_of(of_samples, tmp_path / "page.html")
    complaints: list[str] = []
    loaded: list[str] = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.on("console", lambda said: complaints.append(said.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: loaded.append(request.url))
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_selector("html[data-shown]")
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        wide = "[...document.querySelectorAll('.tablebox')].filter((one) => one.scrollWidth > one.clientWidth).length"
        assert page.evaluate(wide) == 0
        assert page.locator("svg.chart polyline").count() > 5
        shown = "[...document.querySelectorAll('#places svg')].filter((one) => one.getBoundingClientRect().height).length"
        by = page.locator("#places figure").count()
        for measure in ("time", "connections", "bytes"):
            page.click(f"#places .ways button:text-is('{measure}')")
            assert page.evaluate(shown) == by
            assert page.locator("#places [aria-pressed=true]").inner_text() == measure
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        browser.close()
    assert complaints == []
    assert [url for url in loaded if not url.startswith("file:")] == []

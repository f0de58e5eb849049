"""The report in a real browser: what a person does with it, with mouse, keys and a phone."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import made
import pyarrow.compute as pc
import pytest
from conftest import Opener

from unbloat.charts import CHARTS
from unbloat.charts.spec import BREAK_S, Line

DRAWN = [chart.name for chart in CHARTS if not chart.needs_more]


def inked(page: Any, chart: str) -> int:
    """Pixels of a chart that are not blank."""
    return int(
        page.evaluate(
            """(name) => { const drawn = document.querySelector(`#chart-${name} .plot canvas`);
            const c = Object.assign(document.createElement('canvas'), {width: drawn.width, height: drawn.height});
            const pen = c.getContext('2d', {willReadFrequently: true}); pen.drawImage(drawn, 0, 0);
            const d = pen.getImageData(0, 0, c.width, c.height).data;
            let n = 0; for (let i = 3; i < d.length; i += 4) if (d[i]) n += 1; return n; }""",
            chart,
        )
    )


def visible(page: Any) -> tuple[float, float]:
    first, last = page.evaluate("[unbloat.page.view.t0, unbloat.page.view.t1]")
    return first, last


def settle(page: Any) -> None:
    """Waits for two frames: one collects what changed, the next shows it."""
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def over(page: Any, chart: str, t: float) -> tuple[float, float]:
    """The point of a chart where time t is drawn, on the screen."""
    page.locator(f"#chart-{chart} .plot").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([name, t]) => { const panel = unbloat.page.board.panels.find((p) => p.chart.spec.name === name);
        const box = panel.plot.getBoundingClientRect();
        return [box.left + panel.chart.frame.x(t), box.top + box.height / 2]; }""",
        [chart, t],
    )
    return x, y


def test_every_chart_of_the_bloated_upload_is_drawn(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    for name in DRAWN:
        assert inked(page, name) > 2000, name


@pytest.mark.parametrize("run", ["bloated", "bbr", "million"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_chart_of_every_run_is_drawn_in_both_themes(
    pages: dict[str, Path], open_page: Opener, run: str, theme: str
) -> None:
    page = open_page(pages[run], theme=theme)
    assert {name for name in DRAWN if inked(page, name) > 1000} == set(DRAWN)


def test_dragging_zooms_all_charts_and_a_double_click_shows_everything(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    start, end = over(page, "rtt", 20.0), over(page, "rtt", 30.0)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move((start[0] + end[0]) / 2, start[1])
    page.mouse.move(*end)
    page.mouse.up()
    settle(page)
    first, last = visible(page)
    assert first == pytest.approx(20.0, abs=0.2)
    assert last == pytest.approx(30.0, abs=0.2)
    frames = page.evaluate(
        "unbloat.page.board.panels.filter((p) => p.chart.frame).map((p) => [p.chart.frame.t0, p.chart.frame.t1])"
    )
    assert len(frames) == len(DRAWN) - 1  # the distribution has no time axis
    assert all(frame == [first, last] for frame in frames)
    page.mouse.dblclick(*over(page, "rtt", 25.0))
    settle(page)
    assert visible(page) == (0.0, 60.0)


def test_keys_zoom_move_and_reset(pages: dict[str, Path], open_page: Opener) -> None:
    page = open_page(pages["bloated"])
    page.locator("#chart-throughput .plot").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    settle(page)
    first, last = visible(page)
    assert last - first == pytest.approx(60 * 0.6 * 0.6, rel=1e-6)
    page.keyboard.press("Shift+ArrowRight")
    settle(page)
    moved, _ = visible(page)
    assert moved > first
    page.keyboard.press("-")
    settle(page)
    assert visible(page)[1] - visible(page)[0] > last - first
    page.keyboard.press("Escape")
    settle(page)
    assert visible(page) == (0.0, 60.0)


def test_the_wheel_zooms_around_the_pointer_on_a_chosen_chart_only(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    page.mouse.move(*over(page, "rtt", 40.0))
    page.mouse.wheel(0, -120)
    settle(page)
    assert visible(page) == (0.0, 60.0)  # the page scrolls as pages do
    page.locator("#chart-rtt .plot").focus()
    page.mouse.move(*over(page, "rtt", 40.0))
    page.mouse.wheel(0, -60)
    page.wait_for_function("unbloat.page.view.zoomed")
    first, last = visible(page)
    assert first < 40 < last
    assert (40 - first) / (last - first) == pytest.approx(40 / 60, abs=0.02)


@pytest.mark.parametrize("t", [5.03, 15.55, 22.45])
def test_the_crosshair_reads_the_values_of_the_table(
    pages: dict[str, Path], open_page: Opener, t: float
) -> None:
    page = open_page(pages["bloated"])
    page.mouse.move(*over(page, "rtt", t))
    settle(page)
    at = page.evaluate("unbloat.page.view.at")
    assert at == pytest.approx(t, abs=0.05)
    read = {
        one["column"]: one["value"]
        for one in page.evaluate(
            "[...document.querySelectorAll('.read span[data-column]')].map((s) => ({...s.dataset}))"
        )
    }
    samples = made.bloated().samples(flow=0)
    inside = pc.and_(pc.less_equal(samples["t_s"], at), pc.less(at, pc.add(samples["t_s"], 0.1)))
    row = samples.filter(inside).to_pylist()[0]
    assert float(read["goodput_bps"]) == pytest.approx(row["goodput_bps"], rel=1e-6)
    assert float(read["in_flight_bytes"]) == row["in_flight_bytes"]
    assert float(read["rwnd_bytes"]) == row["rwnd_bytes"]
    if row["rtt_ms"] is None:
        assert read["rtt_ms"] == "NaN"
    else:
        assert float(read["rtt_ms"]) == pytest.approx(row["rtt_ms"], rel=1e-6)


def test_the_crosshair_is_in_all_charts_at_the_same_time(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    page.mouse.move(*over(page, "throughput", 30.0))
    settle(page)
    said = page.evaluate(
        "[...document.querySelectorAll('.read:not([hidden]) > b')].map((b) => b.textContent)"
    )
    assert len(said) == len(DRAWN) - 1
    assert len(set(said)) == 1


def test_figures_in_sight_are_those_of_the_table(pages: dict[str, Path], open_page: Opener) -> None:
    page = open_page(pages["bloated"])
    page.evaluate("unbloat.page.view.show(30, 40)")
    settle(page)
    summary = page.evaluate(
        "unbloat.page.board.panels.find((p) => p.chart.spec.name === 'throughput').chart.summary()"
    )
    samples = made.bloated().samples(flow=0)
    part = samples.filter(
        pc.and_(pc.greater_equal(samples["t_s"], 30.0), pc.less(samples["t_s"], 40.0))
    )
    largest = pc.max(part["goodput_bps"]).as_py() / 1e6
    assert next(row for row in summary if row[0] == "delivered")[3] == f"{largest:.1f} Mbit/s"


def test_enter_and_arrows_choose_a_connection_and_the_address_keeps_it(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    page.locator("#connections tr.chosen").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("html[data-shown='1/1']")
    assert page.evaluate("location.hash") == "#c1"
    assert inked(page, "rtt") > 1000
    page.locator("#connections tr[data-id='0']").click()
    page.wait_for_selector("html[data-shown='0/0']")


def test_the_address_opens_a_connection_and_a_direction(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"], fragment="#c1-ab")
    assert page.evaluate("document.documentElement.dataset.shown") == "1/0"
    assert "no data" in page.locator("#charts").inner_text()
    page.locator("[data-way='ba']").click()
    page.wait_for_selector("html[data-shown='1/1']")
    assert inked(page, "throughput") > 1000


def test_a_flow_that_is_only_counted_says_so(pages: dict[str, Path], open_page: Opener) -> None:
    page = open_page(pages["bloated"], fragment="#c2")
    assert "no data that could be drawn" in page.locator("#charts").inner_text()


def test_the_table_sorts_and_filters(pages: dict[str, Path], open_page: Opener) -> None:
    page = open_page(pages["bloated"])

    def ids() -> list[str]:
        found: list[str] = page.evaluate(
            "[...document.querySelectorAll('#connections tbody tr')].map((r) => r.dataset.id)"
        )
        return found

    assert ids() == ["0", "1", "3", "2"]
    page.locator("#connections th", has_text="#").locator("button").click()
    assert ids() == ["0", "1", "2", "3"]
    assert page.locator("#connections th").first.get_attribute("aria-sort") == "ascending"
    page.locator("#filter").fill("udp 53")
    assert ids() == ["2"]
    page.locator("#filter").fill("2001:db8")
    assert ids() == ["1"]


def test_a_finding_stands_beside_its_chart_and_zooms_to_its_time(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    assert "fq_codel" in page.locator("#chart-rtt .finding").inner_text()
    page.locator("#chart-in-flight .finding .when").click()
    settle(page)
    first, last = visible(page)
    assert first == pytest.approx(22.2 - 0.03 * 37.8, abs=0.01)
    assert last == pytest.approx(60.0, abs=1.2)


def test_the_legend_takes_a_mark_away(pages: dict[str, Path], open_page: Opener) -> None:
    page = open_page(pages["bloated"])
    before = inked(page, "time-sequence")
    page.locator("#chart-time-sequence button.key", has_text="right edge").click()
    assert inked(page, "time-sequence") != before


@pytest.mark.parametrize("name", DRAWN)
def test_svg_is_a_drawing_with_title_units_and_no_bitmap(
    pages: dict[str, Path], open_page: Opener, name: str, tmp_path: Path
) -> None:
    page = open_page(pages["bloated"])
    with page.expect_download() as waiting:
        page.locator(f"#chart-{name} [data-export=svg]").click()
    assert waiting.value.suggested_filename == f"tethered-upload-cubic-c0-ab-{name}.svg"
    target = tmp_path / "chart.svg"
    waiting.value.save_as(target)
    root = ElementTree.parse(target).getroot()
    spaces = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{spaces}svg"
    assert root.findall(f".//{spaces}image") == []
    assert len(root.findall(f".//{spaces}path")) + len(root.findall(f".//{spaces}rect")) > 5
    words = [element.text for element in root.iter(f"{spaces}text")]
    chart = next(chart for chart in CHARTS if chart.name == name)
    assert chart.title in words
    unit = {
        "bit/s": "Mbit/s",
        "ms": "s",
        "bytes": "MB",
        "%": "%",
        "sequence": "MB sent",
        "limit": "60 s",
        "share": "% of bins",
    }
    assert unit[chart.unit] in words


def test_png_is_a_picture_of_the_stated_size(
    pages: dict[str, Path], open_page: Opener, tmp_path: Path
) -> None:
    page = open_page(pages["bloated"], theme="dark")
    with page.expect_download() as waiting:
        page.locator("#chart-rtt [data-export=png]").click()
    target = tmp_path / "chart.png"
    waiting.value.save_as(target)
    data = target.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert int.from_bytes(data[16:20], "big") == 2000


def test_the_theme_follows_the_system_and_the_button(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"], theme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(background) != dark
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


@pytest.mark.parametrize("width", [360, 390, 768])
@pytest.mark.parametrize("name", ["bloated", "compare", "empty"])
def test_nothing_is_wider_than_the_screen(
    pages: dict[str, Path], open_page: Opener, name: str, width: int
) -> None:
    page = open_page(pages[name], width=width)
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_everything_can_be_reached_with_the_tab_key(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    reached = set()
    for _ in range(120):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate(
                """(() => { const e = document.activeElement; const panel = e.closest('.panel');
                return e.classList.contains('plot') ? panel.id : e.id || e.tagName; })()"""
            )
        )
    assert {"filter", "theme", "TR"} <= reached
    assert {f"chart-{name}" for name in DRAWN if name != "rtt-distribution"} <= reached


def test_every_control_has_a_name(pages: dict[str, Path], open_page: Opener) -> None:
    page = open_page(pages["bloated"])
    nameless = page.evaluate(
        """[...document.querySelectorAll('button, input, [tabindex="0"]')].filter((e) =>
        !(e.getAttribute('aria-label') || e.textContent.trim())).map((e) => e.outerHTML)"""
    )
    assert nameless == []


def test_runs_are_overlaid_with_one_curve_each_and_their_ribbons_stacked(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["compare"])
    shown = page.evaluate("[...document.querySelectorAll('.panel')].map((p) => p.id)")
    assert "chart-throughput" in shown
    assert "chart-limits" in shown
    for name in (
        "limits",
        "throughput",
        "rtt",
        "in-flight",
        "window-utilisation",
        "rtt-distribution",
    ):
        assert inked(page, name) > 1000, name
    svg = page.evaluate(
        "asSvg(unbloat.page.board.panels.find((p) => p.chart.spec.name === 'limits').chart, 'x')"
    )
    assert ">CUBIC<" in svg
    assert ">BBR<" in svg
    assert "BBR" in page.locator("h1").inner_text()
    assert page.locator("#measures tbody tr").count() > 10


def test_a_flow_of_a_million_packets_opens_and_zooms(
    pages: dict[str, Path], open_page: Opener, record_property: Any
) -> None:
    page = open_page(pages["million"])
    timings = page.evaluate("unbloat.timings")
    record_property("first_chart_ms", timings["first_chart_ms"])
    before = len(timings["redraw_ms"])
    for step in range(12):
        page.evaluate(f"unbloat.page.view.show({1 + step * 2}, {59 - step * 2})")
        settle(page)
    redraws = sorted(page.evaluate("unbloat.timings.redraw_ms")[before:])
    record_property("redraw_ms_median", redraws[len(redraws) // 2])
    record_property("redraw_ms_max", redraws[-1])
    print(
        f"\nmillion packets: {pages['million'].stat().st_size / 1e6:.2f} MB, first chart after {timings['first_chart_ms']} ms, "
        f"redraw of all charts median {redraws[len(redraws) // 2]} ms, longest {redraws[-1]} ms"
    )
    assert len(redraws) >= 12
    assert re.search(
        r"data segments are merged by \d+", page.locator("#chart-time-sequence").inner_text()
    )
    # Full detail up to the cap: zoomed in, one tick per stored row.
    page.evaluate("unbloat.page.view.show(10, 10.01)")
    settle(page)
    assert inked(page, "time-sequence") > 1000


def test_no_curve_of_the_page_leads_over_a_silence(
    pages: dict[str, Path], open_page: Opener
) -> None:
    """Faint strokes join figures up to `BREAK_S` apart, in the spec of every chart and as they are drawn."""
    page = open_page(pages["bloated"])
    joined = [mark.bridge_s for chart in CHARTS for mark in chart.marks if isinstance(mark, Line)]
    assert max(joined) == BREAK_S
    strokes = page.evaluate(
        """(break_s) => {
          const t = [0, 0.1, 0.5, 0.6, 5, 10, 10.1], NO = NaN;
          const columns = {t_s: t, span_s: t.map(() => 0.1), rtt_ms: t.map(() => 40), sent_bytes: t.map(() => 9),
            delivered_bytes: t.map(() => 9), retransmissions: t.map(() => 0), window_full_s: t.map(() => 0),
            limit: t.map(() => 0)};
          for (const name of Object.keys(columns)) columns[name] = Float64Array.from(columns[name]);
          const data = new FlowData();
          data.samples = withPauses({rows: t.length, ...columns});
          data.cache = new Map();
          const drawn = [];
          const pen = new Proxy({}, {get: (_, kind) => (points) => {
            if (kind !== 'line' && kind !== 'strokes') return;
            const step = kind === 'line' ? 2 : 4;
            for (let i = 0; i + 3 < points.length; i += step)
              if (!Number.isNaN(points[i + 1] + points[i + 3])) drawn.push([points[i], points[i + 2]]);
          }});
          const frame = {pen, t0: 0, t1: 11, w: 1100, left: 0, right: 1100, top: 0, bottom: 100,
            x: (s) => s * 100, y: (v) => v};
          const mark = facts.charts.find((one) => one.name === 'rtt').marks.find((one) => one.column === 'rtt_ms');
          MARKS.line.draw(mark, frame, data);
          return drawn.map(([from, to]) => (to - from) / 100); }""",
        BREAK_S,
    )
    assert strokes
    assert max(strokes) <= BREAK_S
    assert any(0.3 < stroke <= BREAK_S for stroke in strokes), "a short gap is joined"


def test_a_long_bin_among_narrow_ones_keeps_its_length(
    pages: dict[str, Path], open_page: Opener
) -> None:
    """Bins narrower than a pixel are tallied; a long one that follows them was cut to the last pixel of theirs."""
    page = open_page(pages["bloated"])
    runs = page.evaluate(
        """() => {
          const t = [0, 0.1, 0.2, 15, 15.1, 30], span = [0.1, 0.1, 14.8, 0.1, 14.9, 0.1];
          const last = Object.keys(LIMIT_LOOKS).length - 1, limit = [0, 1, 1, 1, 1, last];
          const samples = {rows: 6, t_s: Float64Array.from(t), span_s: Float64Array.from(span), limit};
          return MARKS.ribbon.runs({t0: 0, t1: 31, x: (s) => s * 8}, {samples})
            .map((run) => [run.left, run.right, run.limit]); }"""
    )
    limits = [limit for _, _, limit in runs]
    assert limits[0] in (0, 1)
    assert limits[-1] == 8, "the last limit of the list is tallied as well"
    [(left, right)] = [(left, right) for left, right, limit in runs if limit == 1 and right > 200]
    assert left <= 2
    assert right == pytest.approx(240, abs=1)


def test_spans_of_a_comparison_have_the_clock_of_their_texts(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["compare"])
    shifted = page.evaluate(
        """() => {
          const view = new View(0, 60), spans = [];
          for (const shift of [0, 2]) {
            const card = findingCard({rule: 'bufferbloat', severity: 'info', text: 'it began at 11.0 s', values: '{}',
              from_s: 11 - shift, to_s: 20 - shift, shift}, view);
            spans.push(card.querySelector('.when').textContent);
          }
          return spans; }"""
    )
    assert shifted[0] == shifted[1]
    assert shifted[0].startswith("11.0 s")


def test_the_rtt_of_a_row_is_of_the_other_direction_or_the_handshake_where_its_own_is_unknown(
    pages: dict[str, Path], open_page: Opener
) -> None:
    page = open_page(pages["bloated"])
    texts = page.evaluate(
        """() => {
          const own = {rtt_ms_min: null, rtt_bound_ms_p95: null, initial_rtt_ms: 53};
          const other = {rtt_ms_min: 44, rtt_ms_p95: 81, rtt_bound_ms_p95: null, initial_rtt_ms: 53};
          const bound = {...own, rtt_bound_ms_p95: 374};
          return [[own, other], [own, own], [bound, other], [{...bound, rtt_bound_ms_p95: 53}, own]]
            .map((sides) => rttText(rttFlow({main: sides[0], sides}))); }"""
    )
    assert texts == ["44 ms → 81 ms", "53 ms", "53 ms → ≤ 374 ms", "53 ms"]

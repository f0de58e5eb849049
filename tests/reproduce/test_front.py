"""The front: its links and halves, the sender that knows the link, the judge on made-up figures, the store, the page.

What a figure on the page rests on is run again here: a fixed small sample of docs/generated/front.jsonl.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from unbloat.cli.arguments import main
from unbloat.front import front as front_module
from unbloat.front.case import BASE_MS, scenario, simulate_case, waits_ms
from unbloat.front.controls import CONTROLS, UNTREATED, Control, for_way
from unbloat.front.front import Front, front, measured
from unbloat.front.judge import Field, Point, counts, dominates, judge, verdicts
from unbloat.front.links import LINKS, Link, Track, halves, opportunities
from unbloat.front.oracle import oracle
from unbloat.front.page import front_page
from unbloat.front.text import front_json, link_text
from unbloat.run.figures import statistics
from unbloat.run.store import Store
from unbloat.scenario.confidence import Spread, spread
from unbloat.scenario.simulate import RunOptions, simulate_all

STORED = Path(__file__).parents[2] / "docs/generated/front.jsonl"
# One of each kind that needs no file; a recorded one where it is there.
SAMPLE = (
    ("steady 2 down", "nothing", "default"),
    ("steady 8 up", "bbr", "default"),
    ("steps 20-5 down", "window", "default"),
    ("steps 8-2-1-4 up", "gate", "default"),
    ("steps 4-8 up", "copa", "default"),
    ("Verizon-LTE-short.down", "rledbat", "default"),
)


def link(name: str) -> Link:
    return next(link for link in LINKS if link.name == name)


def control(name: str, variant: str = "default") -> Control:
    return next(one for one in CONTROLS if (one.name, one.variant) == (name, variant))


def track(name: str) -> Track:
    opened = link(name).open(None)
    assert opened is not None
    return opened


def recorded(times_ms: Sequence[int], way: str = "down") -> Track:
    """A mahimahi trace of these opportunities."""
    text = "".join(f"{ms}\n" for ms in times_ms)
    made = Link("made up", "recorded", "down" if way == "down" else "up")
    return Track(made, text=text, opportunities=opportunities("made up", text))


def point(name: str, mbit_s: float, p95: float, role: str = "peer", variant: str = "") -> Point:
    one = spread([mbit_s * 1e6])
    assert role in ("untreated", "peer", "ours")
    return Point(name, variant or "default", role, one, spread([p95]), spread([0.0]))  # type: ignore[arg-type]


def made_field(*ours: Point, autorate: tuple[float, float] = (8.0, 150.0)) -> Field:
    """A link of 10 Mbit/s whose bound is 60 ms: BBR's excess is 200 ms."""
    points = (
        point("nothing", 10.0, 3000.0, "untreated"),
        point("bbr", 9.8, 260.0),
        point("cake-autorate", *autorate),
        *ours,
    )
    return Field("made up", "recorded, down", "tuning", 10.2e6, 60.0, points)


def test_every_link_is_in_one_half_and_each_group_in_both() -> None:
    assert len({one.name for one in LINKS}) == len(LINKS)
    for group in {one.group for one in LINKS}:
        of_group = [one.half for one in LINKS if one.group == group]
        assert abs(of_group.count("tuning") - of_group.count("test")) <= 1
    recorded_names = [one.name for one in LINKS if one.group.startswith("recorded")]
    assert len(recorded_names) == 13


def test_the_halves_are_those_that_were_fixed() -> None:
    # A change here would let a law be judged on links that it was tuned on.
    assert [one.name for one in LINKS if one.group.startswith("rec") and one.half == "test"] == [
        "ATT-LTE-driving-2016.down",
        "ATT-LTE-driving.down",
        "Verizon-EVDO-driving.down",
        "TMobile-LTE-short.up",
        "TMobile-UMTS-driving.up",
        "Verizon-LTE-short.up",
    ]
    assert halves(LINKS[:2]) == {LINKS[0].name: "tuning", LINKS[1].name: "test"}


def test_the_bound_of_a_steady_link_is_its_rate_and_a_packet() -> None:
    # 8 Mbit/s: 1,448 of 1,500 bytes are payload, less ten pings of 84 bytes a second; a packet takes 1.5 ms.
    bound = oracle(track("steady 8 up"))
    assert bound.goodput_bps == pytest.approx((8e6 - 10 * 84 * 8) * 1448 / 1500)
    assert 0.084 < bound.ping_p95_ms - BASE_MS < 1.5 + 0.2


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_ping_on_an_idle_trace_waits_as_long_as_the_bound_says(way: str, tmp_path: Path) -> None:
    # Nothing is queued before it in the simulator either. Opportunities come 7 ms apart, with a pause of 1.5 s.
    times = [ms for ms in range(7, 4000, 7) if not 1000 < ms < 2500]
    idle = recorded([*times, 4001], way)
    (tmp_path / "link").write_text(idle.text)
    text = scenario(idle, UNTREATED)
    text = text.replace('name = "transfer"', 'name = "transfer"\nstart = "59.9 s"')
    run = simulate_all(text, RunOptions(traces=tmp_path, events=False)).runs[0]
    rtts = [row["rtt_ms"] for row in run.probes.to_pylist() if row["t_s"] < 58]
    found = statistics(rtts)
    assert found is not None
    assert oracle(idle).ping_p95_ms == pytest.approx(found.p95, abs=1.1)


@pytest.mark.parametrize("name", ["steady 2 down", "steps 8-2-1-4 up", "steps 4-8 up"])
def test_no_control_passes_the_bound(name: str) -> None:
    one = track(name)
    bound = oracle(one)
    for of_way in for_way(one.link.way):
        if of_way.variant == "default":
            run = simulate_case(one, of_way, 1)
            # The last packets of a run arrive after a second of idleness at its begin: no more than the link carries.
            assert run.goodput_bps <= bound.goodput_bps * 1.02, of_way.label
            assert run.ping_p95_ms >= bound.ping_p95_ms - 2.0, of_way.label


def test_a_lost_ping_counts_until_a_later_one_is_answered() -> None:
    def ping(t_s: float, rtt_ms: float | None, lost: bool = False) -> dict[str, object]:
        return {"t_s": t_s, "rtt_ms": rtt_ms, "lost": lost}

    sent = [
        ping(0.0, 50.0),
        ping(1.0, None, lost=True),
        ping(2.0, None, lost=True),
        ping(3.0, 500.0),
        ping(4.0, None),  # still on its way at the end
        ping(9.5, 100.0),  # too late to count
    ]
    waits = sorted(round(wait) for wait in waits_ms(sent, 9.0, 10.0))
    assert waits == [50, 500, 1500, 2500, 6000]
    # Overtaken: an answer to a later one came before.
    assert waits_ms(
        [ping(0.0, None, lost=True), ping(1.0, 900.0), ping(1.5, 100.0)], 1.0, 10.0
    ) == [pytest.approx(1600.0)]
    assert waits_ms([ping(0.0, None, lost=True)], 9.0, 10.0) == [10_000.0]


def test_what_reaches_the_goal_and_what_misses_it() -> None:
    good = point("window", 9.6, 155.0, "ours")
    slow = point("window", 9.4, 155.0, "ours")
    late = point("window", 9.6, 170.0, "ours")
    reached = judge(made_field(good), good)
    assert (reached.reaches, reached.goodput_share) == (True, 0.96)
    assert reached.excess_share == pytest.approx(95 / 200)
    assert not judge(made_field(slow), slow).reaches
    assert not judge(made_field(late), late).reaches


def test_what_dominates_a_control_is_named() -> None:
    ours = point("window", 9.0, 155.0, "ours")
    on_front = judge(made_field(ours), ours)
    assert on_front.on_front
    better = point("codel", 9.2, 120.0, variant="target 20 ms")
    dominated = judge(made_field(ours, better), ours)
    assert [one.label for one in dominated.dominated_by] == ["codel, target 20 ms"]


def test_the_front_is_judged_by_the_transfers_own_queue_as_well() -> None:
    # A queue per flow: the ping passes, the transfer waits.
    ours = replace(point("window", 9.6, 155.0, "ours"), flow_p95=spread([95.0]))
    queued = replace(point("fq_codel", 9.6, 61.0), flow_p95=spread([95.0]))
    verdict = judge(made_field(ours, queued), ours)
    assert [one.label for one in verdict.dominated_by] == ["fq_codel"]
    # Points that were made without a queue dominate in it, if their goodput is as large.
    assert "fq_codel" not in [one.label for one in verdict.dominated_in_queue]


def test_a_difference_that_does_not_count_dominates_nothing() -> None:
    one = point("a", 9.0, 100.0)
    assert not dominates(point("b", 9.04, 96.0), one)
    assert dominates(point("b", 9.05, 94.0), one)
    assert dominates(point("b", 9.1, 104.0), one)
    assert not dominates(point("b", 9.1, 106.0), one)


def test_dominating_autorate_needs_both_figures() -> None:
    ours = point("window", 8.5, 140.0, "ours")
    assert judge(made_field(ours), ours).over_autorate
    assert not judge(made_field(ours, autorate=(8.0, 100.0)), ours).over_autorate
    assert not judge(made_field(ours, autorate=(9.0, 150.0)), ours).over_autorate
    alone = replace(made_field(ours), points=(ours,))
    assert judge(alone, ours).over_autorate is None


def test_without_an_excess_of_bbr_there_is_none_to_halve() -> None:
    ours = point("window", 10.0, 64.0, "ours")
    field = made_field(ours)
    level = tuple(
        replace(one, p95=spread([61.0])) if one.control == "bbr" else one for one in field.points
    )
    verdict = judge(replace(field, points=level), ours)
    assert (verdict.excess_share, verdict.reaches) == (None, True)


def test_the_best_of_a_sweep_keeps_the_goodput_where_one_can() -> None:
    fast = point("copa", 9.7, 200.0)
    short = point("copa", 9.6, 120.0, variant="δ 0.1")
    thin = point("copa", 7.0, 70.0, variant="δ 5")
    field = made_field(fast, short, thin)
    assert field.best("copa") is short
    assert made_field(thin, point("copa", 6.0, 65.0, variant="δ 9")).best("copa") is thin


def test_counts_are_per_control() -> None:
    good, bad = point("window", 9.6, 155.0, "ours"), point("gate", 5.0, 155.0, "ours")
    found = {count.control: count for count in counts(verdicts([made_field(good, bad)]))}
    assert (found["window"].reaches, found["gate"].reaches) == (1, 0)
    assert (found["window"].on_front, found["gate"].on_front) == (1, 0)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The cases that are run."""
    names: list[str] = []

    def count(one: Track, of: Control) -> list[object]:
        names.append(f"{one.link.name}: {of.label}")
        return list(measured(one, of))

    monkeypatch.setattr(front_module, "measured", count)
    return names


def small(store: Path, only_stored: bool = False) -> Front:
    chosen = [control("nothing"), control("codel"), control("bbr"), control("window")]
    return front(
        ("tuning",),
        store=store,
        links=[link("steady 2 down"), link("Verizon-LTE-short.down")],
        controls=chosen,
        only_stored=only_stored,
    )


def test_an_interrupted_front_goes_on_where_it_was(tmp_path: Path, counted: list[str]) -> None:
    store = tmp_path / "front.jsonl"
    first = small(store)
    assert len(counted) == 4
    assert first.skipped == {"Verizon-LTE-short.down": "no such trace file (--traces DIR)"}
    # Bereft of its last line but one, and cut off in the last.
    lines = store.read_text().splitlines(keepends=True)
    store.write_text("".join(lines[:2]) + lines[3][:20])
    counted.clear()
    assert front_json(small(store)) == front_json(first)
    assert counted == ["steady 2 down: bbr", "steady 2 down: window"]
    counted.clear()
    assert front_json(small(store, only_stored=True)) == front_json(first)
    assert counted == []


def test_a_case_of_other_settings_is_run_again(tmp_path: Path, counted: list[str]) -> None:
    store = tmp_path / "front.jsonl"
    small(store)
    text = store.read_text()
    settings = json.loads(text.splitlines()[0])["settings"]
    store.write_text(text.replace(settings, "0000000000"))
    counted.clear()
    small(store)
    assert counted == ["steady 2 down: nothing"]
    assert len(store.read_text().splitlines()) == 4


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "front.jsonl"
    path.write_text('{}\n{"link": 1}\n')
    with pytest.raises(ValueError, match=r"front\.jsonl:1: not a line of measured runs"):
        Store(path, ("link",))


def test_only_what_draws_random_numbers_has_ten_seeds() -> None:
    assert len(measured(track("steady 2 down"), control("nothing"))) == 2
    assert len(measured(track("steps 20-5 down"), control("bbr"))) == 10


def test_the_command_prints_a_screen_of_80_columns_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "front.jsonl"
    small(store)
    arguments = ["unbloat", "reproduce", "front", "--stored", "--store", str(store)]
    monkeypatch.setenv("COLUMNS", "80")
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.argv", [*arguments, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        out = capsys.readouterr().out
        if more:
            data = json.loads(out)
            assert [one["link"] for one in data["verdicts"]] == ["steady 2 down"]
        else:
            assert max(map(len, out.splitlines())) <= 80
            assert "skipped: Verizon-LTE-short.down: no such trace file" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["drwa", "--half", "test"], "are for front and fairness"),
        (["front", "--quick"], "front takes none of"),
        (["front", "--lab=quick"], "does not take --lab=quick"),
        (["front", "--lab", "--half", "test"], "front --lab has six links of its own"),
        (["front", "--repeat", "2"], "--repeat needs --lab"),
        (["drwa", "--repeat", "2"], "are for front and fairness"),
        (["fairness", "--half", "test"], "fairness takes none of"),
        (["fairness", "--lab", "--traces", "t"], "fairness takes none of"),
        (["fairness", "--lab=quick"], "does not take --lab=quick"),
        (["fairness", "--repeat", "2"], "--repeat needs --lab"),
        (["front", "--stored"], "--stored needs --store"),
    ],
)
def test_options_of_another_kind_are_refused(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["unbloat", "reproduce", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_the_page_has_goals_figures_and_intervals(tmp_path: Path) -> None:
    ours = point("window", 9.6, 155.0, "ours")
    field = made_field(ours)
    varied = tuple(
        replace(one, p95=Spread(260.0, 12.4, 10)) if one.control == "bbr" else one
        for one in field.points
    )
    text = front_page(
        Front([replace(field, points=varied)], {"gone": "no such trace file"}), "a.svg"
    )
    assert "| window | 1 | 1 | 1 | 0 | 1 |" in text
    assert "9.80, 200 ± 12" in text
    assert "- gone: no such trace file" in text


def test_names_fit_a_table() -> None:
    names = [link_text(one.name) for one in LINKS]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 25


@pytest.mark.parametrize(("name", "of", "variant"), SAMPLE)
def test_a_sample_of_the_page_is_what_a_run_gives(name: str, of: str, variant: str) -> None:
    # Within 2 % and 5 ms: the same simulator gives the same figures, another compiler may round otherwise.
    shared = os.environ.get("UNBLOAT_SHARED")
    opened = link(name).open(None if shared is None else Path(shared) / "traces")
    if opened is None:
        pytest.skip(f"{name} is not there")
    stored = Store(STORED, ("link", "control", "variant")).lines[(name, of, variant)]
    ours = [[run.goodput_bps, run.ping_p95_ms] for run in measured(opened, control(of, variant))]
    for (goodput, ping), (theirs, their_ping, _) in zip(ours, stored["runs"], strict=True):
        assert goodput == pytest.approx(theirs, rel=0.02)
        assert ping == pytest.approx(their_ping, rel=0.02, abs=5.0)

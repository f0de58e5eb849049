"""`make what-if-runs`: the stored page, a stored capture of a kernel predicted again, and what is judged by which truth."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench.what_if import kernel_page, kernel_runs, netem_runs
from bench.what_if.findings import ENDS
from bench.what_if.judge import OURS
from bench.what_if.kernel_page import LAB, NETEM
from bench.what_if.kernel_runs import SENDER, STARTS, capture_of, key, row_of, undisturbed
from bench.what_if.links import LINKS, TEST

from unbloat.errors import LabError
from unbloat.prediction.cures import AS_IT_WAS, CURES
from unbloat.run.store import Store

# Captures of one of these runs, both ends.
DATA = Path(__file__).parent / "data"
SAMPLE = ("2M-256K", AS_IT_WAS.name, "1")
BBR = next(cure for cure in CURES if cure.name == "bbr")


def test_the_page_is_that_of_the_stored_runs() -> None:
    made = kernel_page.page(kernel_page.stores(kernel_page.STORE))
    assert made == kernel_page.PAGE.read_text(encoding="utf-8"), "make what-if-runs"


def test_a_capture_of_a_kernel_is_predicted_as_stored(tmp_path: Path) -> None:
    [case] = [case for case in LAB.starts if key(case) == SAMPLE]
    for end in ENDS:
        packed = DATA / f"{capture_of(case, end).name}.zst"
        # A packed capture is known by its bytes, whatever its name.
        shutil.copy(packed, capture_of(case, end, tmp_path))
    store = Store(kernel_page.STORE, kernel_page.NAMES)
    stored = store.runs(kernel_page.named(LAB, case), kernel_page.settings(LAB, case))
    assert stored == [kernel_page.predicted(case, tmp_path)]


def test_most_of_the_test_half_is_stored() -> None:
    """The control of the page: goals on two runs would say nothing."""
    names = {link.name for link in LINKS if link.half == TEST}
    assert len({link for link, _ in LAB.truths()} & names) >= 12
    assert {link for link, _ in NETEM.truths()} == {link.name for link in netem_runs.LINKS}
    # A quarter of them.
    assert {link.name for link in netem_runs.LINKS} < names
    assert 4 * len(netem_runs.LINKS) >= len(names)


def test_a_capture_by_another_congestion_control_is_judged_by_congestion_controls_alone(
    tmp_path: Path,
) -> None:
    [case] = [case for case in LAB.starts if key(case) == ("2M-256K", "bbr", "0")]
    ours = {name: [1.0] * 6 + [0.0, False] for name in ("cubic", "bbr", "newreno", "drwa")}
    path = tmp_path / "predicted.jsonl"
    predicted = {end: {OURS: ours} for end in ENDS}
    store = Store(path, kernel_page.NAMES)
    store.put(kernel_page.named(LAB, case), kernel_page.settings(LAB, case), [predicted])
    figures = {name: {"figures": [float(at), 0.0, 0.0]} for at, name in enumerate(ran(), 1)}
    [(judged, row)] = kernel_page.joined(LAB, {("2M-256K", 0): figures}, path)
    assert judged[1] == "bbr"
    assert row["truth"][AS_IT_WAS.name] == figures["bbr"]["figures"]
    assert row["truth"][SENDER] == figures[AS_IT_WAS.name]["figures"]
    assert set(row["client"][OURS]) == {"cubic", "bbr", "newreno"}


def ran() -> list[str]:
    """Names of all runs."""
    return [cure.name for cure in kernel_runs.CURES_RUN]


def run(**info: Any) -> Any:
    """What a run of the lab says of itself."""
    calm = {
        "agents": [],
        "kernel": "Linux 6.18",
        "lateness_us_p99": 100.0,
        "lateness_us_max": 900.0,
        "kernel_drops": 0,
    }
    return SimpleNamespace(info=calm | info)


def test_a_run_without_its_agent_or_on_a_busy_machine_counts_for_nothing() -> None:
    acks = next(cure for cure in CURES if cure.name == "acks")
    for made, cure in (
        (run(), acks),
        (run(agents=["client: windows"]), BBR),
        (run(lateness_us_p99=5000.0), BBR),
        (run(lateness_us_p99=None), BBR),
        (run(kernel_drops=3), BBR),
    ):
        with pytest.raises(LabError):
            row_of(made, cure)


def test_a_run_during_which_the_machine_paused_is_not_stored() -> None:
    undisturbed(row_of(run(), BBR))
    with pytest.raises(LabError, match="paused for 50 ms"):
        undisturbed(row_of(run(lateness_us_max=50_000.0), BBR))


def test_captures_are_kept_of_every_congestion_control_and_of_nothing_else() -> None:
    assert [cure.name for cure in STARTS] == [AS_IT_WAS.name, "bbr", "newreno"]
    assert len(kernel_runs.cases(1)) == len(LINKS) * len(ran())

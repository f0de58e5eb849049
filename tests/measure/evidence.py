"""`make measure-evidence`: runs of `unbloat measure` on nine paths beside the emulator's own log of its queues, on three
rows of links of which one is slow, and of its pauses on three radios, as a page.

Each run measures down, up and both. A row is one phase of one path: the true p95 of the graded direction, how many runs were
within max(5 ms, 10 %) of theirs, and how many printed the true grade, alone or as one of two. Runs whose grade was
withheld are counted apart.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import date
from pathlib import Path
from typing import Any

from path import Link, MeasuredPath, Queue, near, p95
from requirements import SHARED
from series import Series

from unbloat.front.lab import commit

Case = dict[str, Any]
HEAD = """# Accuracy of unbloat measure

Made by `make measure-evidence` in network namespaces behind `unbloat-emu`. The truth is the emulator's decision log: how long a probe would have waited at
any moment of the measured time, or, behind FQ-CoDel, how long the probes waited. Every run counts. Each measured down, up and both; the round trip of `both` has no
truth where one of the queues is FQ-CoDel.

- *within*: p95 of the graded direction within 5 ms or 10 % of the truth of the same run.
- *right*: of the grades that were printed, those that are the true one, alone or as one of two; *alone*: those that name one.
- *withheld*: runs that gave a reason instead of a grade.
- *at a limit*: the true p95 is within 5 % of a grade's limit, where two grades, or none, may be all that can be said. On the link that loses one packet of
  twenty, p95 lies between the slowest probe and a lost one, so it is at the limit as well.

| path, Mbit/s | phase | true p95, median | its grade | within | right | alone | withheld |
|---|---|---|---|---|---|---|---|
"""
PLACES = """
## The place of the queue

Client, home router, provider's router and server in a row ([`tests/measure/series.py`](../../tests/measure/series.py)): one of the three links has 8 Mbit/s up and 20 down with a deep
buffer, the others 100 Mbit/s. The routers are Linux and limit their answers as it does by default. *right*: the two hops around that link were named, and no others;
*wider*: the named range holds that link.

| slow link | phase | right | wider | wrong | unknown |
|---|---|---|---|---|---|
"""
SLOW = (
    "series: the first link is slow",
    "series: the second link is slow",
    "series: the third link is slow",
)
PAUSES = """
## Radios that sleep

`--idle-gaps quick` over an emulated uplink with a promotion layer. *right*: as many steps as the radio has, each between two pauses within 0.5 s of the true one, and its extra time within 20 ms.

| radio | right | found after, s | extra, ms |
|---|---|---|---|
"""
# Of each radio its layer, and after which pauses (s) how much more (ms).
RADIOS: dict[str, tuple[str, tuple[tuple[float, float], ...]]] = {
    "radio: woken after 7 s in 500 ms": ('idle = "7 s", delay = "500 ms"', ((7, 500),)),
    "radio: sleeps after 1.7 s, woken in 40 ms; after 11.3 s in 260 ms": (
        'idle = "11.3 s", delay = "260 ms", doze_after = "1.7 s", doze_delay = "40 ms"',
        ((1.7, 40), (11.3, 220)),
    ),
    "radio: none": ("", ()),
}
# Longer than a sweep of two steps takes.
SWEEP_S = 400
GRADES = ((5, "A+"), (30, "A"), (60, "B"), (200, "C"), (400, "D"))
FQ_CODEL = '{ kind = "fq_codel" }'
# Its p95 is the last probe that came through, or a lost one.
ONE_OF_TWENTY = "5 % loss up"
WIDE = Link(50, 1000, queue=FQ_CODEL)
STEPS = """
[[change]]
at = "9 s"
"link.up.rate" = "4 Mbit/s"
[[change]]
at = "20 s"
"link.up.rate" = "12 Mbit/s"
"""


def traced(folder: Path, name: str, mbps: float, queue_kb: int) -> tuple[Link, tuple[str, ...]]:
    """A link that replays a recorded trace, and the option that names its file."""
    file = folder / name
    file.write_bytes(gzip.decompress((SHARED / "traces" / "mahimahi" / f"{name}.gz").read_bytes()))
    return Link(mbps, queue_kb, medium=f'trace = "{name}"'), ("--trace", f"{name}={file}")


# Links up and down that stay as they are and need no trace.
STEADY = {
    "deep buffers, 8 up, 20 down": (Link(8, 300), Link(20, 600)),
    "uplink only, FQ-CoDel down": (Link(5, 400), WIDE),
    "downlink only, FQ-CoDel up": (WIDE, Link(20, 900)),
    "FQ-CoDel both ways": (WIDE, WIDE),
    "100:1": (Link(1, 60), Link(100, 1500)),
}
Ends = tuple[Link, Link, str, tuple[str, ...]]


def paths(folder: Path) -> dict[str, Ends]:
    """Up, down, changes, options."""
    lte_up, up_options = traced(folder, "Verizon-LTE-short.up", 3.0, 300)
    lte_down, down_options = traced(folder, "TMobile-LTE-short.down", 14.0, 1000)
    return {
        **{name: (up, down, "", ()) for name, (up, down) in STEADY.items()},
        "steps of the uplink, 8, 4, 12": (Link(8, 300), WIDE, STEPS, ()),
        ONE_OF_TWENTY: (Link(20, 200, loss=0.05), Link(20, 300), "", ()),
        "LTE trace up": (lte_up, WIDE, "", up_options),
        "LTE trace down": (WIDE, lte_down, "", down_options),
    }


def grade(ms: float) -> str:
    """DSLReports' steps, again, so that the program's own are not their judge."""
    return next((name for below, name in GRADES if ms < below), "F")


def sums(one: list[float], other: list[float]) -> list[float]:
    """Waits of a round trip: both at the same moment of the grid."""
    return [a + b for a, b in zip(one, other, strict=False)]


def true_waits(made: MeasuredPath, queue: Queue, phase: dict[str, Any]) -> list[float]:
    """As in path.py; of a link that loses at random, the share that it loses is infinite."""
    waits = made.waits_ms(queue, phase)
    if queue.link.loss:
        every = round(1 / queue.link.loss)
        waits[::every] = [float("inf")] * len(waits[::every])
    return waits


def measured(name: str, number: int) -> Iterator[Case]:
    """One run: a case for each phase whose truth is known."""
    with tempfile.TemporaryDirectory() as folder:
        up, down, more, options = paths(Path(folder))[name]
        with MeasuredPath(Path(folder) / "run", up, down, more, options) as made:
            made.serve()
            _, result = made.measure()
            queues = made.queues()
    for phase in result["phases"]:
        of = phase["grade"]["of"]
        if of == "rtt" and (up.queue or down.queue):
            # Probes of both ways are not taken at the same moments: no true round trip.
            continue
        waits = {way: true_waits(made, queues[way], phase) for way in ("up", "down")}
        true = p95(sums(waits["up"], waits["down"]) if of == "rtt" else waits[of])
        yield {
            "path": name,
            "run": number,
            "phase": phase["phase"],
            "true_ms": "lost" if true == float("inf") else round(true, 1),
            "p95_ms": phase[f"delay_{of}"]["p95_ms"],
            "grades": phase["grade"]["grades"],
            "why": phase["grade"]["why"],
        }


def placed(name: str, number: int) -> Iterator[Case]:
    """One run on links in a row: a case for each phase of one direction."""
    slow = SLOW.index(name)
    with tempfile.TemporaryDirectory() as folder, Series(Path(folder), slow) as made:
        made.serve()
        _, result = made.measure("--phases", "down,up")
    for phase in result["phases"]:
        yield {
            "path": name,
            "run": number,
            "phase": phase["phase"],
            "true": [slow, slow + 1 if slow + 1 < len(SLOW) else None],
            "place": phase["place"] and [phase["place"]["after"], phase["place"]["before"]],
            "why": phase["place_why"],
        }


def swept(name: str, number: int) -> Iterator[Case]:
    """One sweep of pauses."""
    layer, _ = RADIOS[name]
    layers = f'\nlayers = [{{ kind = "promotion", {layer} }}]' if layer else ""
    up = Link(8, 300, medium=f'rate = "8 Mbit/s"{layers}')
    with (
        tempfile.TemporaryDirectory() as folder,
        MeasuredPath(Path(folder), up, Link(40, 400), duration_s=SWEEP_S) as made,
    ):
        made.serve()
        _, result = made.measure("--idle-gaps", "quick", timeout_s=SWEEP_S)
    steps = result["idle_gaps"]["steps"]
    found = [[step["from_s"], step["until_s"], step["extra_ms"]] for step in steps]
    yield {"path": name, "run": number, "phase": "pauses", "found": found}


def pause_row(cases: list[Case]) -> str:
    """A line of the table of radios."""
    name = cases[0]["path"]
    _, true = RADIOS[name]

    def right(case: Case) -> bool:
        return len(case["found"]) == len(true) and all(
            after - 0.5 <= low <= after <= high + 0.05 <= after + 0.55 and abs(ms - extra) <= 20
            for (low, high, ms), (after, extra) in zip(case["found"], true, strict=True)
        )

    last = cases[-1]["found"]
    spans = ", ".join(f"{low:.2f} to {high:.2f}" for low, high, _ in last)
    extras = ", ".join(f"{ms:.0f}" for _, _, ms in last)
    count = sum(map(right, cases))
    return f"| {name.removeprefix('radio: ')} | {count} of {len(cases)} | {spans or '–'} | {extras or '–'} |"


def place_row(cases: list[Case]) -> str:
    """A line of the table of places."""
    far = len(SLOW)
    known = [case for case in cases if case["place"] is not None]
    right = [case for case in known if case["place"] == case["true"]]
    wider = [
        case
        for case in known
        if case["place"] != case["true"]
        and case["place"][0] <= case["true"][0]
        and (case["place"][1] or far) >= (case["true"][1] or far)
    ]
    return (
        f"| {cases[0]['path'].removeprefix('series: ')} | {cases[0]['phase']} | {len(right)} of {len(cases)} | "
        f"{len(wider)} | {len(known) - len(right) - len(wider)} | {len(cases) - len(known)} |"
    )


def row(cases: list[Case]) -> str:
    """A line of the table, for one phase of one path."""
    trues = [float("inf") if case["true_ms"] == "lost" else case["true_ms"] for case in cases]
    pairs = list(zip(cases, trues, strict=True))
    within = sum(near(case["p95_ms"][0], true) for case, true in pairs)
    graded = [(case["grades"], true) for case, true in pairs if case["grades"]]
    right = sum(grade(true) in grades for grades, true in graded)
    one = sum(len(grades) == 1 for grades, _ in graded)
    middle = statistics.median_low(trues)
    shown = "lost" if middle == float("inf") else f"{middle:.0f} ms"
    limits = (limit for limit, _ in GRADES)
    at_limit = any(abs(middle - limit) <= 0.05 * limit for limit in limits) or (
        middle == float("inf") and cases[0]["path"] == ONE_OF_TWENTY
    )
    letter = grade(middle) + (", at a limit" if at_limit else "")
    return (
        f"| {cases[0]['path']} | {cases[0]['phase']} | {shown} | {letter} | "
        f"{within} of {len(cases)} | {right} of {len(graded)} | {one} | {len(cases) - len(graded)} |"
    )


def page(cases: list[Case]) -> str:
    """All rows."""
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases:
        groups.setdefault((case["path"], case["phase"]), []).append(case)
    known = {*SLOW, *RADIOS}
    delays = [row(group) for (path, _), group in groups.items() if path not in known]
    places = [place_row(group) for (path, _), group in groups.items() if path in SLOW]
    text = HEAD + "\n".join(delays) + "\n"
    text += PLACES + "\n".join(places) + "\n" if places else ""
    pauses = [pause_row(group) for (path, _), group in groups.items() if path in RADIOS]
    text += PAUSES + "\n".join(pauses) + "\n" if pauses else ""
    origins = sorted({case["origin"] for case in cases if "origin" in case})
    older = len({(case["path"], case["run"]) for case in cases if "origin" not in case})
    text += f"\nRuns of {'; '.join(origins)}.\n" if origins else ""
    return text + (f"{older} older runs have no commit in the store.\n" if older else "")


def main() -> None:
    """Runs what the store lacks, and writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs of each path")
    parser.add_argument("--only", default="", help="paths whose name contains this")
    parser.add_argument("--at-most", type=int, default=1 << 30, help="runs of this call")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--page", type=Path, required=True)
    given = parser.parse_args()
    text = given.store.read_text() if given.store.exists() else ""
    cases: list[Case] = [json.loads(line) for line in text.splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        names = [*paths(Path(folder)), *SLOW, *RADIOS]
    stored = {(case["path"], case["run"]) for case in cases}
    missing = [
        (name, run)
        for run in range(given.runs)
        for name in names
        if given.only in name and (name, run) not in stored
    ]
    # Of what was imported: a later change of the tree is not what runs.
    origin = f"{commit()}, {date.today().isoformat()}"

    def ran(named: tuple[str, int]) -> list[Case]:
        name, run = named
        way = placed if name in SLOW else swept if name in RADIOS else measured
        return [case | {"origin": origin} for case in way(name, run)]

    with ThreadPoolExecutor(given.jobs) as pool:
        for done in as_completed(pool.submit(ran, one) for one in missing[: given.at_most]):
            cases += done.result()
            with given.store.open("a") as store:
                store.writelines(f"{json.dumps(case)}\n" for case in done.result())
    cases.sort(key=lambda case: (names.index(case["path"]), case["run"]))
    given.page.write_text(page(cases))


if __name__ == "__main__":
    main()

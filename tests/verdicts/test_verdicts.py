"""The verdicts on the labelled flows of public captures: no worse than what the page in the docs says.

`UNBLOAT_BLESS=1 pytest tests/verdicts` renews `docs/generated/verdicts.md`. The goals (main limit right in 95 % of the flows, no
warning overstated) stand on the page beside what is reached. The tests refuse any flow or finding that becomes wrong.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import choose
import choose_second
import choose_third
import labelled
import look
import pytest
from generated_page import same
from requirements import CAPTURES_MORE, SHARED, require

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "generated" / "verdicts.md"
HEAD = """# Verdicts on public captures

258 flows of public captures are labelled by their packets. They were chosen by a rule before any of them was labelled, in turn from strata of
size, vantage, loss and handshake. The labels (`tests/verdicts/labels.jsonl`) were written from tshark's output, without a look at the analysis.
Each has its evidence. No capture is in two parts. Flows of formats that the analysis does not read (snoop) are left out. The captures are not part of
the repository.

- *Tuning half and first test half*: 132 flows (`tests/verdicts/choose.py`) of ndpi, PcapPlusPlus, spindump, tcpdump, tcpreplay, tcptrace, Wireshark and
  Zeek. The tuning half is for work on the rules. The first test half was judged once, before any rule was mended by its flows. Since then rules were mended
  by its misses too. **It is no longer blind**: only the first look shows rules on flows that they were not made by. 24 of these flows were labelled
  twice, independently: all 24 main limits agree with what the other label allows, 23 are the same.
- *Second test half*: 64 flows, and 14 bulk transfers, since only a few of the 64 are (`tests/verdicts/choose_second.py`). They are of captures of which
  no flow was drawn before. `captures_more.jsonl` names these by repository, commit, path and SHA-256. Some are made by test programs, as their
  labels say. Ten of the flows were labelled twice, by the same labeller: main limits, true findings and cures are the same, one has an open finding less.
  This half is judged once as well (`tests/verdicts/look.py`).
- *Third test half*: 24 bulk transfers and 24 other flows (`tests/verdicts/choose_third.py`), of repositories of which no capture was used before.
  `captures_third.jsonl` names the captures. Nine are made by programs or have artificial times. All 48 were labelled again, by a
  second labeller who did not know the first labels. 43 main limits were the same, in 46 flows (all 24 bulk transfers among them) each label allows
  the main limit of the other. 19 of the first labels were then corrected by the packets: two main limits, three true findings, in one label only its evidence,
  and 17 labels allow fewer limits. None allows more. In one flow the main limits still differ: the second label counts a pause after the last byte.

After the looks at the second and the third test half, rules were mended by their misses as well. Their tables show the looks.

The page is made by `UNBLOAT_BLESS=1 pytest tests/verdicts`.
"""


def folders_of(half: str) -> tuple[Path, ...]:
    """Where the captures of a half lie. Those of public repositories are never required: the project cannot bring them."""
    require("captures")
    shared = SHARED / "captures" / "real"
    if half in ("tuning", "test"):
        return (shared,)
    files = {flow["file"] for flow in labelled.lines("flows.jsonl") if flow["half"] == half}
    if not any((folder / file).is_file() for folder in CAPTURES_MORE for file in files):
        names = ":".join(map(str, CAPTURES_MORE))
        pytest.skip(f"{names} holds no captures of the {half} half; set UNBLOAT_CAPTURES_MORE")
    return (shared, *CAPTURES_MORE)


def row(cells: list[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def table(titles: list[object], rows: list[list[object]]) -> str:
    return row(titles) + "|---" * len(titles) + "|\n" + "".join(row(cells) for cells in rows)


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "none"


def page(tuning: list[labelled.Judged], again: list[labelled.Judged]) -> str:
    text = HEAD + "\n## Tuning half\n" + half({"reached": tuning})
    for name, one in look.LOOKS.items():
        if one.stored.exists():
            stored, judged = look.stored_look(one)
            text += f"\n## {one.title}\n\nJudged at commit {stored['commit']} on {stored['date']}"
            looks = {"first look": judged}
            if name == "first":
                text += ", and today"
                looks["today, no longer blind"] = again
            text += ".\n" + half(looks) + unknown(judged)
    return text


def unknown(judged: list[labelled.Judged]) -> str:
    """What the stored figures of a look do not say: then a transfer that was not judged had no limit, which the labels call unknown."""
    right = sum(one.limit_right for one in judged)
    more = sum(one.limit == labelled.NO_LIMIT and "unknown" in one.label["also"] for one in judged)
    if not more:
        return ""
    return (
        f"\nAt the look, a transfer that is not judged because the capture lacks too much of it counted as *none named*. {more} of the labels above allow\n"
        f"`unknown`, which is the same. With these the main limit is right in {share(right + more, len(judged))}.\n"
    )


def measures(judged: list[labelled.Judged]) -> list[object]:
    counts = labelled.figures(judged)
    found = counts["right"] + counts["open"] + counts["wrong"]
    return [
        share(counts["limits right"], counts["flows"]),
        share(counts["right"], found),
        share(counts["open"], found),
        counts["overstated"],
        share(counts["fitting"], counts["fitting"] + counts["unfit"]),
    ]


def half(looks: dict[str, list[labelled.Judged]]) -> str:
    """The figures of one half, a column per look; confusion and misses are those of the last one."""
    names = [
        "main limit right",
        "findings right",
        "findings that the label leaves open",
        "warnings or serious findings overstated",
        "cures that fit",
    ]
    columns = [measures(judged) for judged in looks.values()]
    text = "\n" + table(
        ["measure", *looks, "goal"],
        [list(line) for line in zip(names, *columns, ["95 %", "", "", 0, ""], strict=True)],
    )
    judged = list(looks.values())[-1]
    pairs = labelled.confusion(judged)
    limits = sorted({label for label, _ in pairs})
    ours = sorted({limit for _, limit in pairs})
    today = " of today" if len(looks) > 1 else ""
    text += f"\nMain limit{today}: a row per label, a column per limit of the analysis.\n\n"
    text += table(
        ["", *(f"`{c}`" for c in ours)],
        [[f"`{label}`", *(pairs[label, c] or "" for c in ours)] for label in limits],
    )
    text += f"\nWhat is wrong{today and ' today'}:\n\n"
    rows: list[list[object]] = []
    for one in judged:
        if not one.limit_right:
            said = f"limit `{one.limit}`, not `{one.label['limit']}`"
            rows.append([one.name, said])
        rows += [[one.name, f"finding `{rule}`"] for rule in one.wrong]
        rows += [[one.name, f"cure of `{rule}`"] for rule in one.unfit]
    return text + table(["flow", "what"], rows)


def test_the_page_in_the_docs_is_what_comes_out(
    judged: list[labelled.Judged], judged_again: list[labelled.Judged]
) -> None:
    same(PAGE, page(judged, judged_again))


def test_every_label_has_its_flow_and_known_words() -> None:
    flows = labelled.lines("flows.jsonl")
    labels = {labelled.key(label): label for label in labelled.lines("labels.jsonl")}
    assert set(labels) == {labelled.key(flow) for flow in flows}
    assert Counter(flow["half"] for flow in flows) == {
        "tuning": 70,
        "test": 62,
        "second test": 78,
        "third test": 48,
    }
    for label in labels.values():
        assert label["reason"]
        assert set(label["true"].values()) <= set(labelled.SEVERITIES)
        assert not set(label["true"]) & set(label["open"])


def test_no_capture_is_in_both_halves() -> None:
    halves: dict[str, set[str]] = {}
    for flow in labelled.lines("flows.jsonl"):
        halves.setdefault(flow["file"], set()).add(flow["half"])
    assert all(len(half) == 1 for half in halves.values())


def test_the_second_test_half_is_of_captures_that_were_not_drawn_before() -> None:
    """Those that are not of the shared folder are named so that the draw can be repeated."""
    listed = {row["file"]: row for row in labelled.lines("captures_more.jsonl")}
    assert all(len(row["sha256"]) == 64 and len(row["commit"]) == 40 for row in listed.values())
    flows = labelled.lines("flows.jsonl")
    second = [flow for flow in flows if flow["half"] == choose_second.HALF]
    before = {flow["file"] for flow in flows if flow["half"] != choose_second.HALF}
    assert {flow["file"] for flow in second} <= listed.keys() - before
    assert max(Counter(flow["file"] for flow in second).values()) <= choose_second.PER_FILE
    assert sum(flow["size"] == "1" for flow in second) <= choose_second.SHORT


def test_the_third_test_half_is_as_its_rule_and_tshark_have_it() -> None:
    """Neither analysis nor label decides here: captures by their bytes, flows and frames as tshark sees them."""
    listed = {row["file"]: row for row in labelled.lines(choose_third.LISTING.name)}
    third = [one for one in labelled.lines("flows.jsonl") if one["half"] == choose_third.HALF]
    assert {flow["file"] for flow in third} == listed.keys()
    assert max(Counter(flow["file"] for flow in third).values()) <= choose_third.PER_FILE
    assert sum(flow["size"] == "1" for flow in third) <= choose_third.SHORT
    (folders, places) = folders_of(choose_third.HALF), {}
    for file, row in listed.items():
        places[file] = labelled.capture(folders, file)
        assert choose_second.digest(places[file]) == row["sha256"]
        assert row["commit"] == choose_third.REPOSITORIES["/".join(file.split("/")[:2])]
    seen = {file: choose.flows_of(path, file) for file, path in places.items()}
    bulk = 0
    for flow in third:
        assert {name: value for name, value in flow.items() if name != "half"} in seen[flow["file"]]
        bulk += choose_second.is_bulk(flow, places[flow["file"]])
    assert 2 * bulk >= len(third)


def test_a_half_is_judged_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that is stored already is refused, whatever captures are named."""
    stored = tmp_path / "second_look.jsonl"
    stored.write_text("{}\n")
    monkeypatch.setitem(look.LOOKS, "second", look.Look("second test", stored, ""))
    assert look.main(["second", str(tmp_path)]) == 1
    assert stored.read_text() == "{}\n"


def test_two_labels_of_a_flow_agree() -> None:
    labels = {labelled.key(label): label for label in labelled.lines("labels.jsonl")}
    pairs = [
        (label, labels[labelled.key(label)]) for label in labelled.lines("second_labels.jsonl")
    ]
    assert len(pairs) == 24 + 10 + 48
    assert sum(one["limit"] == other["limit"] for one, other in pairs) == 23 + 10 + 45
    differ = [one for one, other in pairs if one["limit"] not in {other["limit"], *other["also"]}]
    # Its second label counts 30 s between the last byte and the FIN as the program's.
    assert [one["file"].split("/")[-2] for one in differ] == ["tls-subjectaltname"]


def test_the_third_half_is_labelled_twice() -> None:
    flows = labelled.lines("flows.jsonl")
    third = {labelled.key(flow) for flow in flows if flow["half"] == choose_third.HALF}
    assert third <= {labelled.key(label) for label in labelled.lines("second_labels.jsonl")}


def test_a_wrong_verdict_counts(judged: list[labelled.Judged]) -> None:
    """The judge fails: with each flow's label exchanged for the next one's, most flows no longer agree."""
    moved = [
        labelled.Judged(one.flow, other.label, one.limit)
        for one, other in zip(judged, judged[1:] + judged[:1], strict=True)
    ]
    assert labelled.figures(moved)["limits right"] < 0.7 * labelled.figures(judged)["limits right"]


@pytest.mark.parametrize("name", [n for n, one in look.LOOKS.items() if one.stored.exists()])
def test_a_test_half_is_no_worse_than_at_its_look(name: str) -> None:
    _, first = look.stored_look(look.LOOKS[name])
    folders = folders_of(look.LOOKS[name].half)
    now = {one.name: one for one in labelled.judge_all(folders, look.LOOKS[name].half)}
    assert len(now) == len(first)
    for then in first:
        one = now[then.name]
        assert one.limit_right >= then.limit_right, one.name
        assert set(one.wrong) <= set(then.wrong), one.name
        assert set(one.overstated) <= set(then.overstated), one.name

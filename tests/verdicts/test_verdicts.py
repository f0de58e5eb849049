"""The verdicts on the labelled flows of public captures: no worse than what the page in the docs says.

`UNBLOAT_BLESS=1 pytest tests/verdicts` renews `docs/generated/verdicts.md`. The goals (main limit right in 95 % of the flows, no
warning overstated) stand on the page beside what is reached. The tests refuse any flow or finding that becomes wrong.
"""

from __future__ import annotations

from pathlib import Path

import labelled
import look
from generated_page import same
from requirements import SHARED, require

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "generated" / "verdicts.md"
HEAD = """# Verdicts on public captures

132 flows of public captures (ndpi, PcapPlusPlus, spindump, tcpdump, tcpreplay, tcptrace, Wireshark, Zeek) are labelled by their packets. They were
chosen by a rule before any of them was labelled (`tests/verdicts/choose.py`), in turn from strata of size, vantage, loss and handshake. The
labels (`tests/verdicts/labels.jsonl`) were written from tshark's output, without a look at the analysis. Each has its evidence. 24 flows were labelled
twice, independently: all 24 main limits agree with what the other label allows, 23 are the same.

All flows of a capture are in one half. The tuning half is for work on the rules. The test half was judged once
(`tests/verdicts/look.py`), before any rule was mended by its flows. Since then rules were mended by its misses too. **It is no longer blind**: only
the figures of the first look say how good the rules are on flows that they were not made by. Captures in formats that the analysis does not read (snoop) are left out. The captures are not part of the repository.

The page is made by `UNBLOAT_BLESS=1 pytest tests/verdicts`.
"""


def row(cells: list[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |\n"


def table(titles: list[object], rows: list[list[object]]) -> str:
    return row(titles) + "|---" * len(titles) + "|\n" + "".join(row(cells) for cells in rows)


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "none"


def page(tuning: list[labelled.Judged], test: list[labelled.Judged]) -> str:
    text = HEAD + "\n## Tuning half\n" + half({"reached": tuning})
    stored, first = look.first_look()
    text += (
        f"\n## Test half\n\nJudged at commit {stored['commit']} on {stored['date']}, and today.\n"
    )
    return text + half({"first look": first, "today, no longer blind": test})


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


def test_the_page_in_the_docs_is_what_comes_out(judged: list[labelled.Judged]) -> None:
    test = list(labelled.judge_all(SHARED / "captures" / "real", "test"))
    same(PAGE, page(judged, test))


def test_every_label_has_its_flow_and_known_words() -> None:
    flows = labelled.lines("flows.jsonl")
    labels = {labelled.key(label): label for label in labelled.lines("labels.jsonl")}
    assert set(labels) == {labelled.key(flow) for flow in flows}
    assert len(flows) >= 120
    for label in labels.values():
        assert label["reason"]
        assert set(label["true"].values()) <= set(labelled.SEVERITIES)
        assert not set(label["true"]) & set(label["open"])


def test_no_capture_is_in_both_halves() -> None:
    halves: dict[str, set[str]] = {}
    for flow in labelled.lines("flows.jsonl"):
        halves.setdefault(flow["file"], set()).add(flow["half"])
    assert all(len(half) == 1 for half in halves.values())


def test_two_labels_of_a_flow_agree() -> None:
    labels = {labelled.key(label): label for label in labelled.lines("labels.jsonl")}
    pairs = [
        (label, labels[labelled.key(label)]) for label in labelled.lines("second_labels.jsonl")
    ]
    assert len(pairs) == 24
    assert sum(one["limit"] == other["limit"] for one, other in pairs) == 23
    assert all(one["limit"] in {other["limit"], *other["also"]} for one, other in pairs)


def test_a_wrong_verdict_counts(judged: list[labelled.Judged]) -> None:
    """The judge fails: with each flow's label exchanged for the next one's, most flows no longer agree."""
    moved = [
        labelled.Judged(one.flow, other.label, one.limit)
        for one, other in zip(judged, judged[1:] + judged[:1], strict=True)
    ]
    assert labelled.figures(moved)["limits right"] < 0.7 * labelled.figures(judged)["limits right"]


def test_the_test_half_is_no_worse_than_at_the_first_look() -> None:
    require("captures")
    _, first = look.first_look()
    now = {one.name: one for one in labelled.judge_all(SHARED / "captures" / "real", "test")}
    assert len(now) == len(first)
    for then in first:
        one = now[then.name]
        assert one.limit_right >= then.limit_right, one.name
        assert set(one.wrong) <= set(then.wrong), one.name
        assert set(one.overstated) <= set(then.overstated), one.name

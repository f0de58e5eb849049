"""The sender's congestion control, recognised in captures of both ends, against the one that was simulated.

docs/generated/congestion-control.md is the table of it; UNBLOAT_BLESS=1 renews it.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from generated_page import same

sys.path.insert(0, str(Path(__file__).parent))

import controls

import unbloat

PAGE = Path(__file__).parents[2] / "docs" / "generated" / "congestion-control.md"
ENDS = ("client", "server")
Answers = dict[tuple[str, str, str], str | None]


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    found: Answers = {}
    for control, link in controls.CASES:
        folder = tmp_path_factory.mktemp("control")
        unbloat.simulate(controls.scenario(control, link), pcap=folder)
        for end in ENDS:
            capture = next(folder.rglob(f"{end}.pcapng"))
            row = unbloat.analyze(capture).flow(0)
            assert (row["congestion_control"] is None) == (
                row["congestion_control_evidence"] is None
            )
            found[control, link, end] = row["congestion_control"]
            capture.unlink()
    return found


def test_nine_of_ten_are_named_where_the_control_was_the_limit(answers: Answers) -> None:
    free = [key for key in answers if key[0] in controls.NAMES and key[1] not in controls.HELD]
    named = [key for key in free if answers[key] == controls.NAMES[key[0]]]
    assert len(named) >= 0.9 * len(free), sorted(set(free) - set(named))


def test_at_most_one_in_fifty_is_wrong(answers: Answers) -> None:
    wrong = [key for key, answer in answers.items() if controls.wrong(key[0], answer)]
    assert len(wrong) <= 0.02 * len(answers), wrong


def test_a_loss_based_sender_that_something_else_holds_back_is_unknown(answers: Answers) -> None:
    held = {
        key: answer
        for key, answer in answers.items()
        if key[1] in controls.HELD and controls.NAMES.get(key[0]) != "bbr"
    }
    assert held
    assert set(held.values()) == {None}


def test_both_ends_say_the_same(answers: Answers) -> None:
    for control, link in controls.CASES:
        at_sender, at_receiver = (answers[control, link, end] for end in ENDS)
        assert at_sender == at_receiver or None in (at_sender, at_receiver), (control, link)


def test_the_table_in_the_docs_is_what_comes_out(answers: Answers) -> None:
    same(PAGE, table(answers))


def table(answers: Answers) -> str:
    """docs/generated/congestion-control.md."""
    heads = ("bbr", "cubic", "reno", "loss-based", None)
    lines = [
        "# Congestion control, recognised",
        "",
        "Each row is a simulated congestion control, each column what the analysis says of it (`congestion_control`). The figures",
        "count captures: uploads of 30 s, each seen at both ends. *Limited* are runs that the receive window or the",
        "application held back: only what probes by itself can be known there. *Wrong* are names of another congestion control,",
        "and `loss-based` for BBR.",
        "",
        "The links: "
        + ", ".join(controls.LINKS)
        + ". Of the others only: "
        + ", ".join(controls.FEW)
        + ".",
        "",
        "The page is made by `UNBLOAT_BLESS=1 pytest tests/known_truth`.",
        "",
        "| simulated | limited | bbr | cubic | reno | loss-based | unknown | wrong |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for control in (*controls.NAMES, *controls.OTHERS):
        for held in (False, True):
            counts = Counter(
                answer
                for (name, link, _), answer in answers.items()
                if name == control and (link in controls.HELD) == held
            )
            cells = [str(counts[head] or "") for head in heads]
            wrong = sum(n for answer, n in counts.items() if controls.wrong(control, answer))
            lines.append(
                "| " + " | ".join((control, "yes" if held else "", *cells, str(wrong or ""))) + " |"
            )
    return "\n".join(lines) + "\n"

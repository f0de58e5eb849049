"""A sample of `make congestion-control`: two senders of a real kernel, captured in a guest; and the judge itself."""

from __future__ import annotations

import platform
from pathlib import Path

import archive
import congestion
import cure_words
import pytest
import sender_links
from requirements import require, unavailable

# A link for tuning: this is a regression test, no judgement.
SAMPLE = ("cubic", "bbr")
LINK = "shallow-0"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[congestion.Row]:
    require(*congestion.PROGRAMS)
    if platform.machine() != "x86_64":
        unavailable("kernels", "guests need the programs of an x86-64 host")
    folder = tmp_path_factory.mktemp("senders")
    cases = [congestion.Case(control, sender_links.links()[LINK]) for control in SAMPLE]
    try:
        said = congestion.run(cases, congestion.guest(place=folder / "guest"), folder)
    except archive.Unavailable as why:
        unavailable("kernels", str(why))
    found = congestion.rows(cases, folder)
    assert len(found) == len(SAMPLE) * len(congestion.ENDS), said
    return found


def test_senders_of_a_real_kernel_are_named_at_both_ends(rows: list[congestion.Row]) -> None:
    assert {(row["control"], row["end"]): row["answer"] for row in rows} == {
        (control, end): control for control in SAMPLE for end in congestion.ENDS
    }


def test_their_cures_are_worded_by_it(rows: list[congestion.Row]) -> None:
    assert [fault for row in rows for fault in row["cure_faults"]] == []


def test_what_is_right_unknown_and_wrong() -> None:
    assert congestion.verdict("cubic", "cubic") == "right"
    assert congestion.verdict("cubic", "loss-based") == "unknown"
    assert congestion.verdict("bbr", "loss-based") == "wrong"
    assert congestion.verdict("vegas", "loss-based") == "wrong"
    assert congestion.verdict("vegas", "delay-based") == "right"
    assert congestion.verdict("htcp", "loss-based") == "right"
    assert congestion.verdict("htcp", "reno") == "wrong"
    assert congestion.verdict("lp", None) == "unknown"


def test_half_of_the_links_are_held_out_and_none_has_moved() -> None:
    links = sender_links.links()
    held = [name for name in links if sender_links.held_out(name)]
    assert len(held) * 2 == len(links) == len(sender_links.KINDS) * sender_links.PER_KIND
    assert links["deep-0"].text() == "deep-0: 10 Mbit/s, 75 ms, FIFO of 271 packets"
    assert links["loss-1"].loss_pct == 0.22


def test_the_committed_page_is_made_of_the_committed_rows() -> None:
    found = congestion.read()
    assert found
    assert congestion.PAGE.read_text() == congestion.page(found)


def test_a_cure_that_does_not_suit_the_sender_is_a_fault() -> None:
    use = "If the sender uses CUBIC, use BBR instead."
    assert cure_words.fault(None, use) is None
    assert cure_words.fault("bbr", use)
    assert cure_words.fault("cubic", use)
    assert cure_words.fault(None, "Use BBR instead of CUBIC (this sender runs CUBIC).")
    assert cure_words.fault("bbr", "This sender runs BBR already.") is None


def test_a_committed_row_has_no_cure_that_does_not_suit_its_sender() -> None:
    found = congestion.read()
    assert sum(row["cures_with_bbr"] for row in found) > 20, "next to nothing was looked at"
    assert [fault for row in found for fault in row["cure_faults"]] == []


def test_captures_of_a_guest_that_was_ended_count_as_far_as_they_go(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(1024))
    assert congestion.members(disk) == {}

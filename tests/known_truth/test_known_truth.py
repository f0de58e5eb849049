"""The analysis against what the simulator knows, at the sender and at the receiver; tshark as a judge from outside.

docs/known-truth.md is the table of all of it; UNBLOAT_BLESS=1 renews it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import held
import paths
import pytest
from generated_page import same
from held import Case
from requirements import require

PAGE = Path(__file__).parents[2] / "docs" / "known-truth.md"
NAMES = list(paths.BODIES)
# The application decides there when data follows an ACK, and the receiver has no way to see that.
NOT_AT_ONCE = ("application", "slow reader")
SENDER_MS = 1.0
RECEIVER_MS = 1.0 + 1.0  # and a tick of the timestamps
Cases = Callable[[str], Case]


@pytest.mark.parametrize("name", NAMES)
def test_the_sender_sees_the_queue_to_a_millisecond(case: Cases, name: str) -> None:
    this = case(name)
    errors = held.delay_errors(this.truth, this.seen["client"], 0, paths.BACK_S)
    assert len(errors) > 500
    assert held.p95(errors) < SENDER_MS


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_AT_ONCE])
def test_the_receiver_sees_the_queue_to_a_millisecond_and_a_tick(case: Cases, name: str) -> None:
    this = case(name)
    assert held.flow(this.seen["server"], 0)["rtt_method"] == "timestamps"
    errors = held.delay_errors(this.truth, this.seen["server"], 0, 0.0)
    assert len(errors) > 500
    assert held.p95(errors) < RECEIVER_MS


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_is_found_at_the_sender_and_every_hole_once_at_the_receiver(
    case: Cases, name: str
) -> None:
    this = case(name)
    for true in this.truth.flows.to_pylist():
        if not true["bytes"]:
            continue
        sender = held.flow(this.seen["client"], true["id"])
        assert sender["retransmissions"] == true["retransmissions"]
        assert (
            sender["retransmissions"] - sender["retransmissions_spurious"] == true["lost_packets"]
        )
        # A timeout that repeats a lone FIN repeats no data.
        assert sender["timeouts"] == (true["timeouts"] if true["retransmissions_timeout"] else 0)
        receiver = held.flow(this.seen["server"], true["id"])
        # The last of a flight, sent again before anything newer, leaves no hole to see.
        assert 0 <= held.holes(this.truth, true["id"]) - receiver["retransmissions"] <= 1
        assert receiver["bytes"] == sender["bytes"] == true["bytes"]


@pytest.mark.parametrize("name", NAMES)
def test_the_sender_names_the_true_limit(case: Cases, name: str) -> None:
    this = case(name)
    assert held.agreement(this.truth, this.seen["client"], 0) >= 0.95


def test_windows_and_marks_are_counted_alike(case: Cases) -> None:
    slow = case("slow reader")
    true, seen = (held.flow(run, 0) for run in (slow.truth, slow.seen["client"]))
    assert true["zero_window_count"] == seen["zero_window_count"] == 6
    assert abs(true["zero_window_s"] - seen["zero_window_s"]) < 0.01
    assert true["zero_window_probes"] == seen["zero_window_probes"] > 0
    marked = case("ECN")
    true, seen = (held.flow(run, 0) for run in (marked.truth, marked.seen["server"]))
    assert true["ecn_ce"] == seen["ecn_ce"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_vantage_is_inferred(case: Cases, name: str) -> None:
    this = case(name)
    for node, vantage in (("client", "sender"), ("server", "receiver")):
        assert held.flow(this.seen[node], 0)["vantage"] == vantage


def tshark(path: Path, expression: str) -> list[str]:
    require("tshark")
    command = [
        "tshark",
        "-n",
        "-r",
        str(path),
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "ip.check_checksum:TRUE",
    ]
    done = subprocess.run([*command, "-Y", expression], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_tshark_finds_nothing_wrong_with_the_frames(case: Cases, name: str) -> None:
    for path in case(name).captures.values():
        assert (
            tshark(path, "_ws.malformed or tcp.checksum.status==0 or ip.checksum.status==0") == []
        )


@pytest.mark.parametrize("name", NAMES)
def test_tshark_counts_as_many_retransmissions(case: Cases, name: str) -> None:
    this = case(name)
    true = sum(row["retransmissions"] for row in this.truth.flows.to_pylist())
    # Nothing comes out of order out of its own sender: what tshark calls so are retransmissions within a round trip.
    again = "(tcp.analysis.retransmission || tcp.analysis.out_of_order) && tcp.len > 0"
    assert len(tshark(this.captures["client"], again)) == true


def test_the_table_in_the_docs_is_what_comes_out(case: Cases) -> None:
    same(PAGE, table([case(name) for name in NAMES]))


def table(cases: list[Case]) -> str:
    """docs/known-truth.md."""
    lines = [
        "# Known truth",
        "",
        "The simulator knows what happened; the analysis sees only captures of it. Each row is an upload of 18 s over",
        "20 Mbit/s and 60 ms (of three flows the first). The last four columns say how far apart the two are. The delay",
        "error is the error of the queueing delay that 95 % of the bins of 10 ms stay below. The other two are the share",
        "of time for which both name the same limit. `bottleneck` and `congestion_window` (a queue above or below a",
        "millisecond) count as one there.",
        "",
        "Known weaknesses: the receiver takes data for the answer to its ACK, which it is not where the application or a",
        "small window sets it off (`application`, `slow reader`). BBR's rounds of minimal RTT are `unknown`.",
        "",
        "The page is made by `UNBLOAT_BLESS=1 pytest tests/known_truth`.",
        "",
        "| scenario | limit | queue p50 / p95 ms | lost | found by sender | holes | found by receiver "
        "| delay error at sender ms | at receiver ms | limit agrees at sender | at receiver |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for this in cases:
        true, sender, receiver = (
            held.flow(run, 0) for run in (this.truth, this.seen["client"], this.seen["server"])
        )
        errors = [
            held.p95(held.delay_errors(this.truth, this.seen[node], 0, lag))
            for node, lag in (("client", paths.BACK_S), ("server", 0.0))
        ]
        shares = [held.agreement(this.truth, this.seen[node], 0) for node in ("client", "server")]
        found = sender["retransmissions"] - sender["retransmissions_spurious"]
        cells = [
            this.name,
            f"`{true['limit'] or main_limit(true)}`",
            f"{true['queue_ms_p50']:.1f} / {true['queue_ms_p95']:.1f}",
            str(true["lost_packets"]),
            str(found),
            str(held.holes(this.truth, 0)),
            str(receiver["retransmissions"]),
            *(f"{error:.2f}" for error in errors),
            *(f"{share:.0%}" for share in shares),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main_limit(row: held.Row) -> str:
    """The limit with the largest share."""
    shares = {
        key.removeprefix("share_"): row[key] or 0.0 for key in row if key.startswith("share_")
    }
    return max(shares, key=shares.__getitem__)

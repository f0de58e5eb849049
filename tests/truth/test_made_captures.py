"""The ready-made pairs with the kernel's own figures beside them: small queue, small buffer, zero windows.

They are not part of the repository: `UNBLOAT_SHARED`, or `../shared`, says where they lie.
"""

from __future__ import annotations

import re
from pathlib import Path

import ours
import pytest

PORT = 5400


def kernel(shared: Path, name: str) -> dict[str, float]:
    """The last `ss -ti` line of a run as figures: `retrans`, `rwnd_limited` (share), `snd_wnd`, `minrtt`."""
    line = (shared / "captures" / "made" / f"kernel_{name}.txt").read_text().splitlines()[-1]
    result = {key: float(value) for key, value in re.findall(r"(\w+):(\d+(?:\.\d+)?)", line)}
    if found := re.search(r"retrans:\d+/(\d+)", line):
        result["retrans"] = float(found[1])
    if found := re.search(r"rwnd_limited:\d+ms\((\d+\.\d+)%\)", line):
        result["rwnd_limited"] = float(found[1]) / 100
    return result


def test_every_retransmission_at_a_small_queue_is_one_at_the_sender(
    made: Path, shared: Path
) -> None:
    figures = ours.figures(made / "truth_bulk_smallq_snd.pcap", PORT)
    assert figures["retransmissions"] == kernel(shared, "bulk_smallq")["retrans"] == 259
    assert figures["retransmitted_bytes"] == kernel(shared, "bulk_smallq")["bytes_retrans"]
    assert (figures["out_of_order"], figures["ambiguous"]) == (0, 0)


def test_the_same_losses_are_losses_at_the_receiver(made: Path) -> None:
    figures = ours.figures(made / "truth_bulk_smallq_rcv.pcap", PORT)
    assert (figures["retransmissions"], figures["out_of_order"], figures["ambiguous"]) == (
        259,
        0,
        0,
    )


@pytest.mark.parametrize("name", ["bulk_smallq", "rwnd", "zerowin"])
@pytest.mark.parametrize("end", ["snd", "rcv"])
def test_the_smallest_rtt_is_the_kernels_at_both_ends(
    made: Path, shared: Path, name: str, end: str
) -> None:
    figures = ours.figures(made / f"truth_{name}_{end}.pcap", PORT)
    # 1 ms is the timestamps' clock, 2 ms the machine's
    assert figures["rtt_ms_min"] == pytest.approx(kernel(shared, name)["minrtt"], abs=3)


@pytest.mark.parametrize("end", ["snd", "rcv"])
def test_a_small_buffer_keeps_the_window_full_nearly_all_the_time(
    made: Path, shared: Path, end: str
) -> None:
    figures = ours.figures(made / f"truth_rwnd_{end}.pcap", PORT)
    share = figures["window_full_s"] / figures["active_s"]
    # by what the window allows: 0.89; the kernel says 0.36, because it asks for cwnd to be larger than the window too
    assert share == pytest.approx(0.89, abs=0.05)
    assert kernel(shared, "rwnd")["rwnd_limited"] < share
    assert figures["in_flight_bytes_max"] == pytest.approx(
        kernel(shared, "rwnd")["snd_wnd"], abs=1448
    )


@pytest.mark.parametrize("end", ["snd", "rcv"])
def test_probes_of_a_zero_window_are_no_keep_alives(made: Path, end: str) -> None:
    figures = ours.figures(made / f"truth_zerowin_{end}.pcap", PORT)
    assert (figures["zero_window_probes"], figures["keep_alives"]) == (4, 0)
    assert figures["zero_window_count"] > 0


def test_a_send_buffer_is_no_receive_window(made: Path) -> None:
    figures = ours.figures(made / "bufsz_limited_snd.pcap", 5300)
    assert (figures["retransmissions"], figures["out_of_order"], figures["zero_window_count"]) == (
        0,
        0,
        0,
    )

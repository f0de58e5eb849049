"""Our packet, byte, retransmission and window figures against tcptrace's own expected outputs.

tcptrace publishes captures with the output it expects for each (`input/OUTPUTbench/*.long`). For every file that is a
pcap, every connection and both directions are compared. A disagreement passes only when `EXPLAINED` gives its reason,
and an explanation that explains nothing fails. Formats that unbloat does not read must be refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import judges
import pytest

import unbloat

# tcptrace's label → ours; windows are looked up at the other direction's flow, because ours belong to the data they limit
FIELDS = {
    "total packets": "packets",
    "actual data pkts": "data_packets",
    "actual data bytes": "payload_bytes",
    "unique bytes sent": "bytes",
    "rexmt data pkts": "retransmissions",
    "rexmt data bytes": "retransmitted_bytes",
    "outoforder pkts": "out_of_order",
    "zwnd probe pkts": "zero_window_probes",
}
WINDOWS = {"max win adv": "rwnd_bytes_max", "min win adv": "rwnd_bytes_min"}
MIRROR = "the mirror port wrote every packet twice, same IP-ID: tcptrace counts both, we drop and count the copies"
CONTROL = (
    "tcptrace counts a retransmitted SYN or FIN as one data packet of one byte; we count payload"
)
SYN_WINDOW = (
    "tcptrace takes the window of the SYN in; ours begin after the handshake, where scaling holds"
)
ONLY_SYN = "no window was advertised after the SYN"
ZERO = "tcptrace leaves zero windows out of the smallest window"
UNACKED = "the last segments were never acknowledged: delivered bytes are acknowledged bytes"
IP_ID = "the IP-IDs of the late segments are larger than those of the ones before: sent again, not overtaken"
PROBES = "tcptrace counts zero-window probes as data"
# (file, label) or (file, label, connection) → why tcptrace's figure is not ours, and where it matters which ours must be.
EXPLAINED: dict[tuple[str, ...], tuple[str, float | None]] = {
    ("6syns.dmp", "rexmt data pkts"): (CONTROL, None),
    ("6syns.dmp", "rexmt data bytes"): (CONTROL, None),
    ("badsyns.dmp", "rexmt data pkts"): (CONTROL, 0),
    ("badsyns.dmp", "rexmt data bytes"): (CONTROL, 0),
    ("badsyns.dmp", "max win adv"): (ONLY_SYN, 0),
    ("badsyns.dmp", "min win adv"): (ONLY_SYN, 0),
    ("bad_tcp_checksum.dmp", "unique bytes sent"): (
        "the peer acknowledges 2,027,236 bytes at once that are not in the file: acknowledged is delivered",
        2033076,
    ),
    ("discard.solaris.dmp", "rexmt data pkts", "3"): (IP_ID, 2),
    ("discard.solaris.dmp", "rexmt data bytes", "3"): (IP_ID, 2920),
    ("discard.solaris.dmp", "outoforder pkts", "3"): (IP_ID, 0),
    ("discard.solaris.dmp", "total packets", "5"): (MIRROR, 44),
    ("discard.solaris.dmp", "actual data pkts", "5"): (MIRROR, 42),
    ("discard.solaris.dmp", "actual data bytes", "5"): (MIRROR, 57344),
    ("discard.solaris.dmp", "rexmt data pkts", "5"): (MIRROR, 21),
    ("discard.solaris.dmp", "rexmt data bytes", "5"): (MIRROR, 28460),
    ("discard.solaris.dmp", "unique bytes sent", "5"): (UNACKED, 26012),
    ("discard.solaris.dmp", "max win adv", "1"): (ONLY_SYN, 0),
    ("discard.solaris.dmp", "min win adv", "1"): (ONLY_SYN, 0),
    ("discard.solaris.dmp", "max win adv", "2"): (ONLY_SYN, 0),
    ("discard.solaris.dmp", "min win adv", "2"): (ONLY_SYN, 0),
    ("discard.solaris.dmp", "min win adv"): (SYN_WINDOW, 10052),
    ("fast_reuse.dmp", "unique bytes sent", "1"): (
        "no SYN: tcptrace does not know the data before the first packet; the first ACK counts one segment more",
        9594,
    ),
    ("first_seg_ooo.dmp", "rexmt data bytes"): (
        "51 of the 151 bytes of the retransmitted segment had been sent before: we count the segment",
        151,
    ),
    ("hardware_dups.dmp", "min win adv"): (SYN_WINDOW, 64240),
    ("http.dmp", "rexmt data pkts"): (CONTROL, 0),
    ("http.dmp", "rexmt data bytes"): (CONTROL, 0),
    ("http.dmp", "max win adv"): (SYN_WINDOW, None),
    ("http.dmp", "min win adv"): (ZERO, 0),
    ("rawip.dmp", "min win adv"): (SYN_WINDOW, 30660),
    ("rawppp.pcap", "unique bytes sent"): (UNACKED, 11680),
    ("single_byte_rexmit.dmp", "unique bytes sent"): (UNACKED, 6855),
    ("single_byte_rexmit.dmp", "rexmt data bytes"): (IP_ID, 2920),
    ("single_byte_rexmit.dmp", "outoforder pkts"): (IP_ID, 0),
    ("urgent.dmp", "min win adv"): (ZERO, 0),
    ("urgent.dmp", "actual data pkts"): (PROBES, 5730),
    ("urgent.dmp", "actual data bytes"): (PROBES, 6192691),
    ("urgent.dmp", "unique bytes sent"): (
        "no SYN, and acknowledged bytes that are not in the file count as delivered",
        None,
    ),
    ("urgent.dmp", "rexmt data pkts"): (IP_ID, 5),
    ("urgent.dmp", "rexmt data bytes"): (IP_ID, None),
    ("urgent.dmp", "outoforder pkts"): (IP_ID, 0),
    ("zwnd.dmp", "actual data pkts"): (PROBES, 17986),
    ("zwnd.dmp", "actual data bytes"): (PROBES, 24554344),
    ("zwnd.dmp", "min win adv"): (ZERO, 0),
}
for file in ("bad_ack_code.dmp", "pcap_v2.2.dmp"):
    EXPLAINED |= {
        (file, "total packets"): (MIRROR, None),
        (file, "rexmt data pkts"): (CONTROL, 0),
        (file, "rexmt data bytes"): (CONTROL, 0),
        (file, "unique bytes sent"): (UNACKED, 4362),
        (file, "min win adv", "1"): (SYN_WINDOW, 16616),
        (file, "min win adv", "2"): (ONLY_SYN, 0),
        (file, "max win adv", "2"): (ONLY_SYN, 0),
    }
EXPLAINED |= {
    ("hardware_dups.dmp", label): (MIRROR, ours)
    for label, ours in (
        ("total packets", 486),
        ("actual data pkts", 483),
        ("actual data bytes", 584267),
        ("rexmt data pkts", 0),
        ("rexmt data bytes", 0),
    )
}
REFUSED = {
    "NASA_ipv6.snoop": "snoop",
    "all.snoop": "snoop",
    "finger.snoop": "snoop",
    "ipv6_ftp_nasa.snp": "snoop",
    "atm.erf": "ERF",
    "chdlc.erf": "ERF",
    "eth.erf": "ERF",
    "finger.netm": "NetMetrix",
    "http.epeek7": "EtherPeek",
    "reno.epeek": "EtherPeek",
    "nlanr.tsh": "TSH",
}


def names(shared: Path) -> list[str]:
    """Inputs with an expected output."""
    return sorted(p.name.removesuffix(".gz.long") for p in bench(shared).glob("*.long"))


def bench(shared: Path) -> Path:
    return shared / "captures" / "real" / "tcptrace" / "input" / "OUTPUTbench"


def capture(shared: Path, name: str) -> Path:
    return bench(shared).parent / f"{name}.gz"


Theirs = tuple[judges.Key, judges.Figures, judges.Figures]


def expected(shared: Path, name: str) -> list[Theirs]:
    """tcptrace's connections, in its order."""
    return judges.long_output((bench(shared) / f"{name}.gz.long").read_text(errors="replace"))


def pair_up(
    run: unbloat.Run, theirs: list[Theirs]
) -> list[tuple[int, Theirs, dict[str, Any], dict[str, Any]]]:
    """tcptrace's connections with ours: same ends, in order of appearance. Ours may name the ends the other way round."""
    flows = {row["id"]: row for row in run.flows.to_pylist()}
    free = [c for c in run.connections.to_pylist() if c["proto"] == "tcp"]
    pairs = []
    for number, connection in enumerate(theirs, 1):
        (a, a_port, b, b_port), _, _ = connection
        for ours in free:
            ends = ((ours["a_addr"], ours["a_port"]), (ours["b_addr"], ours["b_port"]))
            if ends in (((a, a_port), (b, b_port)), ((b, b_port), (a, a_port))):
                turned = ends[0] != (a, a_port)
                first, second = flows[2 * ours["id"] + turned], flows[2 * ours["id"] + (not turned)]
                pairs.append((number, connection, first, second))
                free.remove(ours)
                break
    return pairs


@dataclass(frozen=True)
class Difference:
    """One field of one direction on which we and tcptrace differ."""

    file: str
    label: str
    connection: int
    ours: float
    theirs: float

    def explanation(self) -> tuple[str, ...] | None:
        """The entry of EXPLAINED that covers it: the narrower first, and only if our figure is the one it allows."""
        for key in ((self.file, self.label, str(self.connection)), (self.file, self.label)):
            if key in EXPLAINED and EXPLAINED[key][1] in (None, self.ours):
                return key
        return None


def differences(name: str, run: unbloat.Run, theirs: list[Theirs]) -> list[Difference]:
    """Every field that is not equal. Bytes that were acknowledged, but missed by the capture, are tcptrace's "missed data"."""
    found = []
    pairs = pair_up(run, theirs)
    ours = sum(c["proto"] == "tcp" for c in run.connections.to_pylist())
    if ours != len(theirs) or len(pairs) != len(theirs):
        found.append(Difference(name, "connections", 0, ours, len(theirs)))
    for number, (_, forward, back), first, second in pairs:
        for trace, flow, other in ((forward, first, second), (back, second, first)):
            wanted = {label: flow[field] for label, field in FIELDS.items()}
            wanted |= {label: other[field] for label, field in WINDOWS.items()}
            for label, value in wanted.items():
                known, missed = trace[label], trace.get("missed data")
                acknowledged = (
                    label == "unique bytes sent"
                    and isinstance(missed, float)
                    and value == known + missed
                )
                if (value or 0) != known and not acknowledged:
                    found.append(Difference(name, label, number, value or 0, known))
    return found


def test_every_disagreement_with_tcptrace_is_explained(shared: Path) -> None:
    unexplained, used = [], set()
    for name in names(shared):
        if name in REFUSED:
            continue
        run = unbloat.analyze(capture(shared, name))
        for difference in differences(name, run, expected(shared, name)):
            if (key := difference.explanation()) is None:
                unexplained.append(difference)
            else:
                used.add(key)
    assert unexplained == []
    assert set(EXPLAINED) - used == set(), "explanations that explain nothing"


def test_formats_that_are_no_captures_of_ours_are_refused(shared: Path) -> None:
    for name in REFUSED:
        with pytest.raises(unbloat.CaptureError):
            unbloat.analyze(capture(shared, name))


def test_the_parser_reads_every_line_of_figures(shared: Path) -> None:
    for name in names(shared):
        text = (bench(shared) / f"{name}.gz.long").read_text(errors="replace")
        # two columns of figures: every connection has a line of each kind
        counted = len(re.findall(r"^\s+total packets: .* total packets:", text, re.M))
        assert counted == len(expected(shared, name))
        assert all({*FIELDS, *WINDOWS} <= set(forward) for _, forward, _ in expected(shared, name))

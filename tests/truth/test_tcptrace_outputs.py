"""Our packet, byte, retransmission and window figures against tcptrace's own expected outputs.

tcptrace publishes captures with the output it expects for each (`input/OUTPUTbench/*.long`). For every file that is a
pcap, every connection and both directions are compared. A disagreement passes only when `EXPLAINED` gives its reason,
and an explanation that explains nothing fails. Formats that unbloat does not read must be refused.
"""

from __future__ import annotations

import re
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
# (file, label) → why tcptrace's figure is not ours. A connection number narrows it: (file, label, n).
EXPLAINED: dict[tuple[str, ...], str] = {}
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


def differences(name: str, run: unbloat.Run, theirs: list[Theirs]) -> list[tuple[tuple[str, ...], str]]:
    """Every field that is not equal, under the keys that may explain it."""
    found: list[tuple[tuple[str, ...], str]] = []
    pairs = pair_up(run, theirs)
    ours = sum(c["proto"] == "tcp" for c in run.connections.to_pylist())
    if ours != len(theirs) or len(pairs) != len(theirs):
        found.append(
            ((name, "connections", ""), f"{ours} connections, tcptrace {len(theirs)}, {len(pairs)} in common")
        )
    for number, (_, forward, back), first, second in pairs:
        for way, trace, flow, other in (("a→b", forward, first, second), ("b→a", back, second, first)):
            wanted = {label: flow[field] for label, field in FIELDS.items()}
            wanted |= {label: other[field] for label, field in WINDOWS.items()}
            for label, value in wanted.items():
                if label in trace and (value or 0) != trace[label]:
                    found.append(((name, label, str(number)), f"{way}: {value}, tcptrace {trace[label]:.0f}"))
    return found


def explanation(key: tuple[str, ...]) -> tuple[str, ...] | None:
    """The entry of EXPLAINED that covers a difference: file and field and connection, file and field, or field alone."""
    return next((k for k in (key, key[:2], ("*", key[1])) if k in EXPLAINED), None)


def test_every_disagreement_with_tcptrace_is_explained(shared: Path) -> None:
    open_, used = [], set()
    for name in names(shared):
        if name in REFUSED:
            continue
        run = unbloat.analyze(capture(shared, name))
        for key, text in differences(name, run, expected(shared, name)):
            reason = explanation(key)
            if reason is None:
                open_.append(f"{key[0]} #{key[2]} {key[1]} {text}")
            else:
                used.add(reason)
    assert open_ == []
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

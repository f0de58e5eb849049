"""Rates over time as files: traces in mahimahi's format, and a scenario that `unbloat sim` and `unbloat lab` run.

A trace has a line per packet of 1,500 bytes that the link can deliver, in ms from its begin; the trace begins again at its last
line (mahimahi, USENIX ATC 2015, section 3.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from unbloat.link.model import PACKET_BITS, LinkFit

SCENARIO = """\
# The link that {capture}, connection {connection}, met: `unbloat fit`.
# The rate is the median of {draws} draws; each of draws/*.trace is as likely.
# Not fitted: random loss, ACKs that are held, the congestion control. CUBIC is an assumption.
name = "fitted"
duration = "{duration_s} s"
[link.{way}]
trace = "link.trace"
delay = "{way_us} us"
{buffer}
[link.{back}]
rate = "1 Gbit/s"
delay = "{way_us} us"
[[flow]]
name = "transfer"
from = "{sender}"
to = "{receiver}"
congestion = "cubic"
"""


def opportunities(rates_bps: Sequence[float], slot_s: float) -> list[int]:
    """When each packet may leave, ms, at these rates of slots."""
    found: list[int] = []
    bits = 0.0
    for slot, rate_bps in enumerate(rates_bps):
        more = rate_bps * slot_s
        while (len(found) + 1) * PACKET_BITS <= bits + more:
            share = ((len(found) + 1) * PACKET_BITS - bits) / more
            # mahimahi counts from 0, and our reader as well.
            found.append(round(1000 * slot_s * (slot + share)))
        bits += more
    return found


def trace_text(rates_bps: Sequence[float], slot_s: float) -> str:
    """The file; a link that delivers nothing has one packet at its end, for no reader takes an empty one."""
    end_ms = round(1000 * slot_s * len(rates_bps))
    return "".join(f"{at_ms}\n" for at_ms in opportunities(rates_bps, slot_s) or [end_ms])


def write_link(fitted: LinkFit, folder: Path) -> None:
    """`scenario.toml`, `link.trace` (the median) and `draws/NN.trace`; the folder may be there."""
    draws = folder / "draws"
    draws.mkdir(parents=True, exist_ok=True)
    (folder / "link.trace").write_text(trace_text(fitted.median_bps, fitted.slot_s))
    digits = len(str(len(fitted.draws)))
    for number, rates_bps in enumerate(fitted.draws, 1):
        path = draws / f"{number:0{digits}}.trace"
        path.write_text(trace_text(rates_bps, fitted.slot_s))
    (folder / "scenario.toml").write_text(scenario_text(fitted))


def scenario_text(fitted: LinkFit) -> str:
    """Who opened the connection is the client."""
    upload = fitted.flow["id"] % 2 == 0
    ends, ways = ("client", "server"), ("up", "down")
    return SCENARIO.format(
        capture=in_comment(fitted),
        connection=fitted.connection["id"],
        draws=len(fitted.draws),
        duration_s=max(round(fitted.duration_s), 1),
        way=ways[not upload],
        back=ways[upload],
        sender=ends[not upload],
        receiver=ends[upload],
        way_us=round(500 * fitted.delay_ms),
        buffer=buffer_line(fitted),
    )


def in_comment(fitted: LinkFit) -> str:
    """The name of the capture. A comment ends with its line, whatever a file is called."""
    return " ".join(Path(fitted.capture).name.split())


def buffer_line(fitted: LinkFit) -> str:
    """The queue of the scenario."""
    buffer = fitted.buffer
    if buffer is None:
        return "# The size of the buffer is not known: that of the scenario's default."
    line = (
        f'queue = {{ kind = "droptail", limit = "{max(round(buffer.size_bytes / 1000), 2)} KB" }}'
    )
    return line + ("  # a lower bound: no loss showed its end" if buffer.bytes is None else "")


def mahimahi(fitted: LinkFit, trace: str) -> str:
    """The command that runs a shell behind this link."""
    way = "uplink" if fitted.flow["id"] % 2 == 0 else "downlink"
    buffer = fitted.buffer
    size = buffer and buffer.size_bytes
    queue = f' --{way}-queue=droptail --{way}-queue-args="bytes={round(size)}"' if size else ""
    other = "other-direction.trace"
    traces = f"{trace} {other}" if way == "uplink" else f"{other} {trace}"
    return f"mm-delay {round(fitted.delay_ms / 2)} mm-link {traces}{queue}"

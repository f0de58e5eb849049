"""What is measured: each case is a setting, the traffic through it, and plain figures out of that."""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from bench.emu.costs import memory_mb
from bench.emu.paths import Maker
from bench.emu.tcp import transfer
from emulated_path import FREE, LinkPath, Setting, Tools, address, emulated, path_testbed
from udp_load import FULL, Stream, ideal, rate_setting, saturated, send_udp, traces

# 83 opportunities of 1,500 bytes in each millisecond: 996 Mbit/s
GIGABIT, GIGABIT_BPS = 83, 83 * FULL * 8 * 1000
USERS = 64


@dataclass
class Outcome:
    """What one run gave."""

    figures: dict[str, float]
    histogram_us: list[tuple[int, int]] | None = None


@dataclass(frozen=True)
class Case:
    """One thing to measure on several paths."""

    group: str
    label: str
    setting: Setting
    measure: Callable[[LinkPath, Tools], Outcome]
    only: tuple[str, ...] = ()  # these paths; none: all
    make: Maker | None = None  # a path of its own, for the emulator alone
    rounds: int = 0  # so many at most; 0: as many as asked for

    def __hash__(self) -> int:
        return hash((self.group, self.label))


BOTH_FLOORS = ("floor", "floor, SCHED_FIFO", "unbloat-emu")
USUAL = (*BOTH_FLOORS, "mahimahi", "rattan")


def counted(stream: Stream) -> dict[str, float]:
    """Figures that every UDP case has."""
    return {
        "sent": stream.sent,
        "received": stream.received,
        "socket": stream.socket_drops,
        "overtaken": stream.overtaken,
        "rate_bps": stream.rate_bps,
        "cpu": stream.cpu,
        "sender_late_ms": stream.late_ms,
    }


def rate_held(rate_bps: int, ip_bytes: int, packets: int, path: LinkPath, tools: Tools) -> Outcome:
    """Delivered rate against the rate set."""
    stream = saturated(rate_bps, ip_bytes, packets, path, tools)
    return Outcome(counted(stream) | {"error_pct": (stream.rate_bps / rate_bps - 1) * 100})


def delay_error(
    delay_ms: float, packets_per_s: float, seconds: float, path: LinkPath, tools: Tools
) -> Outcome:
    """One-way delay beyond what was set."""
    stream = send_udp(path, tools, packets_per_s, 200, seconds)
    figures = counted(stream) | {
        name: stream.delay_ms[name] - delay_ms
        for name in ("mean", "min", "p50", "p99", "p999", "max")
    }
    figures["sd"] = math.sqrt(max(stream.delay_ms["variance"], 0.0))
    return Outcome(figures, [(round(us - delay_ms * 1000), n) for us, n in stream.histogram_us])


def tcp(congestion: str, seconds: float, path: LinkPath, tools: Tools) -> Outcome:
    """One connection."""
    done = transfer(path, congestion, seconds)
    return Outcome(
        {"goodput_bps": done.goodput_bps, "retransmits": done.retransmits, "cpu": done.cpu}
    )


def step(packets_per_s: float, seconds: float, path: LinkPath, tools: Tools) -> Outcome:
    """One step of the ladder."""
    stream = send_udp(path, tools, packets_per_s, FULL, seconds)
    lost = (1 - stream.received / stream.sent) * 100 if stream.sent else 0.0
    return Outcome(counted(stream) | {"lost_pct": lost, "p99": stream.delay_ms["p99"]})


def longest_pause(trace: Path) -> float:
    """Seconds without an arrival after which none will come: the longest gap at the beginning, and a second."""
    offered = [ms for ms, n in enumerate(ideal(trace, 30_000)) if n]
    return max((b - a for a, b in pairwise(offered)), default=0) / 1000 + 1


def nrms(got: Sequence[int], wanted: Sequence[int], bin_ms: int) -> float:
    """Root of the mean squared difference per bin over the mean of what was offered."""
    ends = range(0, len(wanted) - bin_ms + 1, bin_ms)
    pairs = [(sum(got[i : i + bin_ms]), sum(wanted[i : i + bin_ms])) for i in ends]
    mean = sum(w for _, w in pairs) / len(pairs)
    return math.sqrt(sum((g - w) ** 2 for g, w in pairs) / len(pairs)) / mean if mean else 0.0


def trace_held(
    trace: Path, packets_per_s: float, seconds: float, path: LinkPath, tools: Tools
) -> Outcome:
    """Delivered bytes against the opportunities, from a second after the beginning to half a second before the end."""
    begin = (time.monotonic_ns() - path.origin_ns) / 1e9
    stream = send_udp(
        path, tools, packets_per_s, FULL, seconds, idle=longest_pause(trace), drain=20.0
    )
    first, last = round((begin + 1) * 1000), round((begin + seconds - 0.5) * 1000)
    figures = counted(stream)
    if path.origin_ns:
        wanted = ideal(trace, last)[first:]
        got = [*stream.per_ms, *[0] * last][first:last]
        total = sum(wanted)
        figures["total"] = sum(got) / total if total else math.nan
        figures |= {f"nrms{b}": nrms(got, wanted, b) for b in (10, 100)}
        figures["offered_bps"] = total * 8000 / len(wanted)
    else:
        figures["total"] = stream.rate_bps / GIGABIT_BPS
    return Outcome(figures)


def crowd(
    targets: Sequence[str], packets_per_s: float, seconds: float, path: LinkPath, tools: Tools
) -> Outcome:
    """Many receivers at once: how even their shares are, what it costs."""
    before = memory_mb(path.pid)
    stream = send_udp(path, tools, packets_per_s, FULL, seconds, to=targets)
    shares = [*stream.per_flow, *[0] * (len(targets) - len(stream.per_flow))]
    mean = sum(shares) / len(shares)
    jain = sum(shares) ** 2 / (len(shares) * sum(s * s for s in shares)) if mean else 0.0
    figures = counted(stream) | {"jain": jain, "rss_before": before, "rss": memory_mb(path.pid)}
    figures |= {"least": min(shares) / mean, "most": max(shares) / mean} if mean else {}
    return Outcome(figures)


def memory(ip_bytes: int, packets: int, path: LinkPath, tools: Tools) -> Outcome:
    """Fills a buffer that hardly drains, and looks how much memory that took."""
    before = memory_mb(path.pid)
    stream = send_udp(path, tools, 50_000, ip_bytes, packets / 50_000, drain=0.5)
    return Outcome(
        {
            "rss_before": before,
            "rss": memory_mb(path.pid),
            "offered": stream.sent * ip_bytes / 1e6,
        }
    )


def cell(users: int) -> str:
    """A server, a base station with a queue for each user, the users."""
    nodes = "\n".join(f'[[node]]\nname = "{name}"' for name in ("server", "base", *names(users)))
    links = [
        link("cell", "server", "base", '"100 Mbit/s"', "user"),
        link("back", "base", "server", f'"{FREE}"'),
    ]
    links += both_ways("base", users, f'"{FREE}"')
    return scenario(nodes, links, users)


def star(users: int) -> str:
    """A server and as many links, each with a slow queue of its own."""
    nodes = "\n".join(f'[[node]]\nname = "{name}"' for name in ("server", *names(users)))
    return scenario(nodes, both_ways("server", users, '"1.5 Mbit/s"'), users)


def names(users: int) -> list[str]:
    return [f"user{i}" for i in range(users)]


def link(name: str, source: str, to: str, rate: str, per: str = "link") -> str:
    """A link with a queue of 50 packets."""
    lines = (
        f'name = "{name}"',
        f'from = "{source}"',
        f'to = "{to}"',
        f"rate = {rate}",
        'delay = "5 ms"',
    )
    queue = ('queue = { kind = "droptail", limit = "50 packets" }', f'queue_per = "{per}"')
    return "\n".join(("[[link]]", *lines, *queue))


def both_ways(middle: str, users: int, rate: str) -> list[str]:
    """A link to each user and back."""
    there = [link(f"to{i}", middle, name, rate) for i, name in enumerate(names(users))]
    return there + [
        link(f"from{i}", name, middle, f'"{FREE}"') for i, name in enumerate(names(users))
    ]


def scenario(nodes: str, links: Sequence[str], users: int) -> str:
    flows = "\n".join(f'[[flow]]\nfrom = "server"\nto = "{name}"' for name in names(users))
    head = 'name = "bench-crowd"\nduration = "600 s"\n[lab]\noffload = "off"'
    return "\n".join((head, nodes, *links, flows))


@contextlib.contextmanager
def crowded(text: str, middle: bool, tools: Tools, setting: Setting) -> Iterator[LinkPath]:
    """The emulator on a star; all users live in one namespace."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        path_testbed(Path(scratch), "a", "m", "b") as made,
    ):
        places = {"server": "a"} | ({"base": "m"} if middle else {})
        places |= dict.fromkeys(names(USERS), "b")
        with emulated(made, text, places) as path:
            if middle:
                shown = made.ask("a", "ip", "-o", "link", "show", "type", "tun")
                base = shown.split(":")[1].strip()
                made.ip(
                    "a",
                    *(
                        f"route append {one}/32 dev {base} src 10.0.0.1"
                        for one in user_addresses(2)
                    ),
                )
            yield path


def user_addresses(first: int) -> list[str]:
    """Addresses of the users, who come after `first` other nodes."""
    return [address(first + i) for i in range(USERS)]


def gigabit(scratch: Path) -> Path:
    """A trace of a gigabit per second."""
    path = scratch / "gigabit.trace"
    path.write_text("".join(f"{ms}\n" for ms in range(1, 11) for _ in range(GIGABIT)))
    return path


def rate_cases(quick: bool) -> list[Case]:
    """100 kbit/s to 1 Gbit/s, at least 2,000 packets each; small ones where full ones would take minutes."""
    steps = [
        (100_000, 64),
        (1_000_000, 200),
        (10_000_000, FULL),
        (100_000_000, FULL),
        (1_000_000_000, FULL),
    ]
    made = []
    for rate, size in [s for s in steps if not quick or s[0] == 100_000_000]:
        packets = max(2000, rate // 8 // size * (1 if quick else 3))
        measure = partial(rate_held, rate, size, packets)
        made.append(
            Case(
                "rate",
                f"{rate / 1e6:g} Mbit/s, {size} B",
                rate_setting(rate, size),
                measure,
                BOTH_FLOORS,
            )
        )
    return made


def delay_cases(quick: bool) -> list[Case]:
    measure = partial(delay_error, 20.0, 10_000, 1.0 if quick else 6.0)
    return [Case("delay", "20 ms, 10,000 packets/s", Setting(20.0), measure)]


def tcp_cases(quick: bool) -> list[Case]:
    """CUBIC and BBR through 20 ms and through nothing, packets one by one and in bundles."""
    made = []
    for delay in (20.0,) if quick else (20.0, 0.0):
        for offload in (False,) if quick else (False, True):
            for congestion in ("cubic",) if quick else ("cubic", "bbr"):
                label = f"{congestion}, {delay:g} ms each way, offload {'on' if offload else 'off'}"
                setting = Setting(delay, offload=offload)
                only = BOTH_FLOORS if offload else USUAL
                made.append(
                    Case("tcp", label, setting, partial(tcp, congestion, 2 if quick else 5), only)
                )
    return made


def ladder_cases(quick: bool) -> list[Case]:
    steps = (80,) if quick else (10, 20, 30, 40, 60, 80, 100, 120)
    measures = [(k, partial(step, k * 1000, 1.0 if quick else 3.0)) for k in steps]
    return [
        Case("ladder", f"{k},000 packets/s", Setting(20.0), measure, USUAL)
        for k, measure in measures
    ]


def gigabit_cases(quick: bool, scratch: Path) -> list[Case]:
    trace = gigabit(scratch)
    setting = Setting(0, GIGABIT_BPS, trace, 5_000_000)
    udp = Case(
        "gigabit", "UDP", setting, partial(trace_held, trace, 95_000, 2.5 if quick else 4.0), USUAL
    )
    if quick:
        return [udp]
    return [
        udp,
        *(
            Case("gigabit", f"TCP {cc}", setting, partial(tcp, cc, 5), USUAL)
            for cc in ("cubic", "bbr")
        ),
    ]


def trace_cases(quick: bool, scratch: Path) -> list[Case]:
    """The recorded traces, 8,000 packets/s offered (96 Mbit/s)."""
    found = traces(scratch)
    if not found:
        print(
            "the recorded traces are left out: no folder traces/mahimahi below UNBLOAT_SHARED",
            flush=True,
        )
    made = []
    for path in found[:1] if quick else found:
        mean = sum(ideal(path, 6_000)) / 6_000  # bytes per ms
        # 200 ms of it: enough for a sender that was kept waiting, little enough to be emptied soon
        setting = Setting(0, 0, path, max(60 * FULL, round(200 * mean)))
        measure = partial(trace_held, path, 8_000, 2.5 if quick else 6.0)
        made.append(Case("traces", path.name, setting, measure, ("unbloat-emu",), rounds=1))
    return made


def crowd_cases(quick: bool) -> list[Case]:
    seconds = 2.0 if quick else 5.0
    one = partial(crowd, user_addresses(2), 12_000, seconds)
    made = [
        Case("crowd", f"one link of 100 Mbit/s, {USERS} users' queues", Setting(), one, ("unbloat-emu",),
             partial(crowded, cell(USERS), True))
    ]  # fmt: skip
    if not quick:
        many = partial(crowd, user_addresses(1), 12_000, seconds)
        label = f"{USERS} links of 1.5 Mbit/s, and as many back"
        made.append(
            Case(
                "crowd",
                label,
                Setting(),
                many,
                ("unbloat-emu",),
                partial(crowded, star(USERS), False),
            )
        )
    return made


def memory_cases(quick: bool) -> list[Case]:
    sizes = ((FULL, 10_000_000),) if quick else ((FULL, 100_000_000), (64, 10_000_000))
    made = []
    for size, buffer in sizes:
        label = f"{buffer / 1e6:g} MB, packets of {size} B"
        setting = Setting(0, 100_000, None, buffer)
        measure = partial(memory, size, int(buffer / size * 1.2))
        made.append(Case("memory", label, setting, measure, ("unbloat-emu",), rounds=1))
    return made


def all_cases(quick: bool, scratch: Path) -> list[Case]:
    """In the order of the page."""
    return [
        *rate_cases(quick),
        *delay_cases(quick),
        *tcp_cases(quick),
        *ladder_cases(quick),
        *gigabit_cases(quick, scratch),
        *trace_cases(quick, scratch),
        *crowd_cases(quick),
        *memory_cases(quick),
    ]

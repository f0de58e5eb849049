"""Role `datagrams`: voice, isochronous probes and pings with a list of intervals; those of one node in one process.

SPEC: `{"role":"datagrams", "address": OWN, "duration_s", "warmup_s", "bin_ms", "calls": [{"flow", "side": "from" or "to",
"peer", "port", "out"}], "sends" and "listens": [{"probe", "peer", "port", "out"}] (isochronous), "pings": the same}`

A packet says when it was sent, on two clocks: CLOCK_MONOTONIC, which is scenario time, and CLOCK_REALTIME, in which the
kernel stamps what arrives (SO_TIMESTAMPNS), so that the delay does not include how late this program was woken.

Differences from the simulator:
- A UDP packet has room for these stamps: 48 bytes on the IP layer at least.
- A packet counts as lost where a later one arrived, or where it was sent so long before the end that it should have; there it
  is known. Packets that are still on the way at the end are neither, as there.
- All figures of a call are computed at its end, from the packets' times, by the simulator's own code.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from typing import Any

from unbloat import _native as native
from unbloat.lab.traffic import sockets
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import READ, Loop, now_ns

# In Linux SO_TIMESTAMPNS and the message that it brings have the same number (asm-generic/socket.h).
SO_TIMESTAMPNS = 35
# Number, CLOCK_MONOTONIC, CLOCK_REALTIME.
_STAMP = struct.Struct("!IQQ")
_IP_UDP = 28
_IP_ICMP = 28
# Later than this nothing comes back that is still of interest; what is younger at the end is neither lost nor answered.
_TIMEOUT_NS = 2_000_000_000


def _socket(kind: int, protocol: int, own: str, priority: int) -> socket.socket:
    sock = socket.socket(
        socket.AF_INET, kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, protocol
    )
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, sockets.tos(priority))
    return sock


def _receive(sock: socket.socket) -> tuple[bytes, str, int] | None:
    """A packet, its sender's address, and when the kernel got it (CLOCK_REALTIME)."""
    try:
        data, extra, _, address = sock.recvmsg(65536, 64)
    except OSError:
        return None
    for level, kind, stamp in extra:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
            seconds, nanoseconds = struct.unpack("qq", stamp)
            return data, address[0], seconds * 1_000_000_000 + nanoseconds
    return data, address[0], time.time_ns()


class Schedule:
    """Sends at given intervals, one after another, repeated; without drift."""

    def __init__(
        self, loop: Loop, start_s: float, every_s: list[float], stop_s: float | None, send: Any
    ) -> None:
        self._loop, self._send = loop, send
        self._steps = [max(round(every * 1e9), 1) for every in every_s]
        self._due = loop.ns(start_s)
        self._stop = None if stop_s is None else loop.ns(stop_s)
        self.count = 0
        loop.at(self._due, self._go)

    def _go(self) -> None:
        if self._stop is not None and self._due >= self._stop:
            return
        self._send(self.count)
        self._due += self._steps[self.count % len(self._steps)]
        self.count += 1
        self._loop.at(self._due, self._go)


def times(start_s: float, every_s: list[float], stop_s: float) -> list[float]:
    """When the other end's schedule sends."""
    found = []
    due = round(start_s * 1e9)
    stop = round(stop_s * 1e9)
    while due < stop:
        found.append(due / 1e9)
        due += max(round(every_s[(len(found) - 1) % len(every_s)] * 1e9), 1)
    return found


class Talker:
    """Sends numbered and stamped UDP packets."""

    def __init__(
        self, sock: socket.socket, peer: tuple[str, int], ip_bytes: int, log: EventLog
    ) -> None:
        self._sock, self._peer, self._log = sock, peer, log
        self._padding = bytes(max(ip_bytes - _IP_UDP - _STAMP.size, 0))
        if ip_bytes < _IP_UDP + _STAMP.size:
            log.error(
                f"packets have {_IP_UDP + _STAMP.size} bytes, not {ip_bytes}: room for their times"
            )
        self._refused = False

    def send(self, number: int) -> None:
        """One packet."""
        try:
            self._sock.sendto(
                _STAMP.pack(number, now_ns(), time.time_ns()) + self._padding, self._peer
            )
        except OSError as error:
            if not self._refused:
                self._log.error(f"a packet could not be sent: {error.strerror}")
            self._refused = True


class Call:
    """One end of a call: sends, and scores what comes."""

    def __init__(self, loop: Loop, spec: dict[str, Any], own: str) -> None:
        self._loop, self._flow, self._side = loop, spec["flow"], spec["side"]
        self._app = self._flow["app"]
        self._log = EventLog(spec["out"])
        self._peer = spec["peer"]
        self._sock = _socket(socket.SOCK_DGRAM, 0, own, self._flow["sender"]["class"])
        self._sock.bind((own, spec["port"]))
        self._talker = Talker(
            self._sock, (spec["peer"], spec["port"]), self._app["bytes"], self._log
        )
        # (when it came, in scenario time; how long it took)
        self._arrived: list[tuple[float, float]] = []

    def start(self) -> None:
        """Time zero is known."""
        self._loop.watch(self._sock.fileno(), READ, self._on_packet)
        Schedule(
            self._loop,
            self._flow["start_s"],
            [self._app["every_s"]],
            self._flow["stop_s"],
            self._talker.send,
        )

    def _on_packet(self, _events: int) -> None:
        while (got := _receive(self._sock)) is not None:
            data, address, at = got
            if address != self._peer or len(data) < _STAMP.size:
                continue
            _, sent, sent_real = _STAMP.unpack_from(data)
            delay = max(at - sent_real, 0) / 1e9
            self._arrived.append((self._loop.seconds(sent) + delay, delay))

    def finish(self, end_s: float) -> None:
        """The scores of what this end received."""
        stop = self._flow["stop_s"]
        until = end_s if stop is None else min(stop, end_s)
        sent = times(self._flow["start_s"], [self._app["every_s"]], until)
        windows, total = native.voice_scores(
            self._app["every_s"],
            self._app["jitter_buffer_s"],
            self._app["jitter_min_s"],
            sent,
            self._arrived,
        )
        # The end called "to" receives what "from" sends.
        there = self._side == "to"
        if there:
            for t_s, value in windows:
                self._log.write("app", t_s=t_s, name="mos_10s", value=value)
        if total is not None:
            self._log.write("app", t_s=end_s, name="mos" if there else "mos_back", value=total)
        self._log.close()


class Listener:
    """The far end of an isochronous probe."""

    def __init__(self, loop: Loop, spec: dict[str, Any], own: str) -> None:
        self._loop, self._probe, self._peer = loop, spec["probe"], spec["peer"]
        self._log = EventLog(spec["out"])
        self._sock = _socket(socket.SOCK_DGRAM, 0, own, 1)
        self._sock.bind((own, spec["port"]))
        # Number of the packet: when it was sent, how long it took.
        self._seen: dict[int, tuple[float, float]] = {}

    def start(self) -> None:
        """Time zero is known."""
        self._loop.watch(self._sock.fileno(), READ, self._on_packet)

    def _on_packet(self, _events: int) -> None:
        while (got := _receive(self._sock)) is not None:
            data, address, at = got
            if address != self._peer or len(data) < _STAMP.size:
                continue
            number, sent, sent_real = _STAMP.unpack_from(data)
            self._seen.setdefault(number, (self._loop.seconds(sent), max(at - sent_real, 0) / 1e6))

    def finish(self, end_s: float) -> None:
        """A row for every packet of the schedule."""
        planned = times(self._probe["start_s"], self._probe["every_s"], end_s)
        for number, t_s in enumerate(planned):
            self._seen.setdefault(number, (t_s, -1.0))
        _record_rows(self._log, self._seen, "owd_ms", end_s)


def _record_rows(
    log: EventLog, rows: dict[int, tuple[float, float]], name: str, end_s: float
) -> None:
    """Probe rows; a negative delay: no answer."""
    last = max((number for number, (_, delay) in rows.items() if delay >= 0), default=-1)
    for number, (t_s, delay) in sorted(rows.items()):
        there = delay >= 0
        lost = not there and (number < last or t_s < end_s - _TIMEOUT_NS / 1e9)
        figures = {"rtt_ms": None, "owd_ms": None, name: delay if there else None}
        log.write("probe", t_s=t_s, lost=lost, **figures)
    log.close()


class Ping:
    """ICMP echo at a list of intervals, which the system's ping cannot do."""

    def __init__(self, loop: Loop, spec: dict[str, Any], own: str, ident: int) -> None:
        self._loop, self._probe, self._peer = loop, spec["probe"], spec["peer"]
        self._log = EventLog(spec["out"])
        self._sock = _socket(socket.SOCK_RAW, socket.IPPROTO_ICMP, own, self._probe["class"])
        self._sock.bind((own, 0))
        self._ident = ident
        self._refused = False
        self._data = bytes(max(self._probe["bytes"] - _IP_ICMP, 0))
        # Number of the packet: CLOCK_REALTIME and scenario time of sending; the answer's time in ms, or -1.
        self._sent_real: dict[int, int] = {}
        self._rows: dict[int, tuple[float, float]] = {}

    def start(self) -> None:
        """Time zero is known."""
        self._loop.watch(self._sock.fileno(), READ, self._on_packet)
        Schedule(self._loop, self._probe["start_s"], self._probe["every_s"], None, self._send)

    def _send(self, number: int) -> None:
        head = struct.pack("!BBHHH", 8, 0, 0, self._ident, number & 0xFFFF)
        head = struct.pack(
            "!BBHHH", 8, 0, _checksum(head + self._data), self._ident, number & 0xFFFF
        )
        self._rows[number] = (self._loop.seconds(), -1.0)
        self._sent_real[number & 0xFFFF] = time.time_ns()
        try:
            self._sock.sendto(head + self._data, (self._peer, 0))
        except OSError as error:
            if not self._refused:
                self._log.error(f"a ping could not be sent: {error.strerror}")
            self._refused = True

    def _on_packet(self, _events: int) -> None:
        while (got := _receive(self._sock)) is not None:
            data, address, at = got
            icmp = data[(data[0] & 15) * 4 :] if data else b""
            if address != self._peer or len(icmp) < 8:
                continue
            kind, _, _, ident, low = struct.unpack_from("!BBHHH", icmp)
            if kind != 0 or ident != self._ident or low not in self._sent_real or not self._rows:
                continue
            # The newest packet with these low bits.
            newest = max(self._rows)
            number = newest - ((newest - low) & 0xFFFF)
            t_s, before = self._rows.get(number, (0.0, 0.0))
            if before < 0:
                self._rows[number] = (t_s, max(at - self._sent_real[low], 0) / 1e6)

    def finish(self, end_s: float) -> None:
        """A row for every packet."""
        _record_rows(self._log, self._rows, "rtt_ms", end_s)


def _checksum(data: bytes) -> int:
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def run(spec: dict[str, Any]) -> None:
    """The whole life of the process."""
    loop = Loop()
    own = spec["address"]
    parts: list[Call | Listener | Ping] = [Call(loop, call, own) for call in spec.get("calls", ())]
    parts += [Listener(loop, listen, own) for listen in spec.get("listens", ())]
    # Identifiers of our own, apart from those of the system's ping, which takes its process number.
    parts += [
        Ping(loop, ping, own, (os.getpid() * 31 + i) & 0xFFFF)
        for i, ping in enumerate(spec.get("pings", ()))
    ]
    logs = []
    talkers = []
    for send in spec.get("sends", ()):
        # What the sender has to say goes beside the rows, which are the listener's.
        log = EventLog(send["out"].removesuffix(".jsonl") + ".sender.jsonl")
        logs.append(log)
        sock = _socket(socket.SOCK_DGRAM, 0, own, send["probe"]["class"])
        sock.bind((own, 0))
        talkers.append(
            (
                send["probe"],
                Talker(sock, (send["peer"], send["port"]), send["probe"]["bytes"], log),
            )
        )
    if not loop.wait_for_start():
        return
    for part in parts:
        part.start()
    for probe, talker in talkers:
        Schedule(loop, probe["start_s"], probe["every_s"], None, talker.send)
    end = loop.ns(spec["duration_s"])
    loop.run(end)
    end_s = min(loop.seconds(), spec["duration_s"])
    for part in parts:
        part.finish(end_s)
    for log in logs:
        log.close()

"""Role `streams`: bulk, files, data made at rates, and requests, over TCP; all such ends of one node in one process.

SPEC: `{"role":"streams", "address": OWN, "duration_s", "warmup_s", "bin_ms", "ends": [{"flow": FLOW OF THE PLAN, "side":
"sender" (of the data) or "receiver", "opens": bool, "peer": ADDRESS, "port": PORT OF THE SIDE THAT DOES NOT OPEN, "out":
FILE, "changes": [{"at_s", "what": "congestion" or "window", "to": ALG}], "procs": DESCRIPTOR BY WHICH PROCESSES ENTER THE GROUP
OF A READER THAT ITS PROCESSOR LIMITS, or null}]}`

Differences from the simulator:
- An uploaded file's start is written into its first eight bytes, because another process than the one that started it sees
  its end; a file of less than eight bytes counts from the acceptance of its connection.
- A file counts as arrived when the application has read it; there, when it is in order in the receive buffer. The two
  differ where `read` is slow.
- The next uploaded file, when late, starts when the sender has learnt that the last one is done: half a round trip later.
- Data made at a rate is written every 5 ms, as there, but what the loop is late is written with the next.
"""

from __future__ import annotations

import socket
from functools import partial
from typing import Any

from unbloat.lab.traffic import sockets
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import READ, Loop, now_ns
from unbloat.lab.traffic.processor import Group
from unbloat.lab.traffic.stream import ENDLESS, Stream
from unbloat.lab.traffic.window import Window

_STAMP = 8
# How often data that is made at a rate is written; the simulator's figure.
_WRITE_EVERY_NS = 5_000_000


class End:
    """One flow's end at this node: opens or accepts connections, and runs the flow's application on them."""

    def __init__(self, loop: Loop, spec: dict[str, Any], own: str, warmup_s: float) -> None:
        self.loop, self.spec, self.flow, self.own = loop, spec, spec["flow"], own
        self.side: str = spec["side"]
        self.log = EventLog(spec["out"])
        self.app: dict[str, Any] = self.flow["app"]
        self.kind: str = self.app["kind"]
        self.streams: list[Stream] = []
        # Responses so far.
        self._turn = 0
        self.stopped = False
        self._warmup_s = warmup_s
        self._started_ns = 0
        procs = spec.get("procs")
        self._group = None if procs is None else Group(self.flow["receiver"]["read"], procs)
        self._listening: socket.socket | None = None
        if not spec["opens"]:
            self._listening = self._socket()
            self._listening.bind((own, spec["port"]))
            self._listening.listen(128)
            self._listening.setblocking(False)

    def _socket(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sockets.prepare(sock, self.flow, self.side)
            if self.side == "receiver":
                Window(self.flow["receiver"]["window"]).prepare(sock)
        except OSError as error:
            self.log.error(f"{error.strerror}; this flow does not run")
            self.stopped = True
        return sock

    # ------------------------------------------------------------------------------------------------- connections

    def start(self) -> None:
        """Time zero is known: accepts from now on, opens at the flow's start, stops at its stop."""
        if self._group is not None:
            self._group.begin()
        if self._listening is not None:
            self.loop.watch(self._listening.fileno(), READ, self._accept)
        if self.spec["opens"]:
            self.loop.at(self.loop.ns(self.flow["start_s"]), self._open)
        if self.flow["stop_s"] is not None:
            self.loop.at(self.loop.ns(self.flow["stop_s"]), self.stop)
        for change in self.spec.get("changes", ()):
            self.loop.at(self.loop.ns(change["at_s"]), partial(self._change, change))

    def _open(self) -> None:
        if self.stopped:
            return
        self._started_ns = now_ns()
        sock = self._socket()
        if self.stopped:
            return
        stream = Stream(self.loop, self.log, self.flow, self.side, sock, self._group)
        self._add(stream)
        stream.connect((self.spec["peer"], self.spec["port"]), self.own)
        self._insist(sock)

    def _insist(self, sock: socket.socket) -> None:
        try:
            sockets.against_route(sock, self.flow)
        except OSError as error:
            self.log.error(str(error.strerror))

    def _accept(self, _events: int) -> None:
        assert self._listening is not None
        try:
            sock, _ = self._listening.accept()
        except OSError:
            return
        if self.stopped:
            sock.close()
            return
        self._insist(sock)
        stream = Stream(self.loop, self.log, self.flow, self.side, sock, self._group)
        self._add(stream)
        stream.begin()

    def _add(self, stream: Stream) -> None:
        stream.on_open = self._on_open
        stream.on_bytes = self._on_bytes
        stream.on_end = self._on_over
        stream.asked_ns = self._started_ns
        self.streams.append(stream)

    def _change(self, change: dict[str, Any]) -> None:
        # Connections to come begin with what runs now.
        if change["what"] == "congestion":
            self.flow["sender"]["congestion"] = change["to"]
        else:
            self.flow["receiver"]["window"] = change["to"]
        for stream in list(self.streams):
            if change["what"] == "congestion":
                stream.switch_congestion(sockets.kernel_name(change["to"]))
            else:
                stream.switch_window(change["to"])

    def stop(self) -> None:
        """The application ends: what is in the network still arrives."""
        self.stopped = True
        for stream in list(self.streams):
            stream.pending = 0
            stream.close()

    def sample(self) -> None:
        """Every open connection, now."""
        for stream in list(self.streams):
            stream.sample()
        self.log.flush()

    def finish(self) -> None:
        """The scenario is over."""
        self.sample()
        if self._group is not None:
            self._group.finish()
        self.log.close()

    # ------------------------------------------------------------------------------------------------- application

    def record(self, name: str, since_ns: int) -> None:
        """A figure of the application, in milliseconds; none before the warm-up is over."""
        at = now_ns()
        if not self.stopped and self.loop.seconds(at) >= self._warmup_s:
            self.log.write("app", t_s=self.loop.seconds(at), name=name, value=(at - since_ns) / 1e6)

    @property
    def _stamped(self) -> bool:
        return self.kind == "file" and self.flow["sender_opens"] and self.app["bytes"] >= _STAMP

    def _on_open(self, stream: Stream) -> None:
        if self.side == "sender":
            if self.kind == "bulk":
                stream.write(ENDLESS)
            elif self.kind == "file":
                count = self.app["bytes"]
                if self._stamped:
                    stream.write_bytes(stream.asked_ns.to_bytes(_STAMP, "big"))
                    count -= _STAMP
                stream.write(count)
                stream.close()
            elif self.kind == "rates":
                self._make(stream)
        elif self.kind == "requests":
            self._ask(stream)
        elif self._stamped:
            stream.head_wanted = _STAMP

    def _make(self, stream: Stream) -> None:
        rates = self.app["rates_bps"]
        slot_ns = max(round(self.app["slot_s"] * 1e9), 1)
        made = 0.0
        last = stream.opened_ns

        def write() -> None:
            nonlocal made, last
            if stream.over or stream.closing:
                return
            now = now_ns()
            made += rates[(last - stream.opened_ns) // slot_ns % len(rates)] * (now - last) / 8e9
            last = now
            whole = int(made)
            made -= whole
            if whole:
                stream.write(whole)
            step = (now - stream.opened_ns) // _WRITE_EVERY_NS + 1
            self.loop.at(stream.opened_ns + step * _WRITE_EVERY_NS, write)

        self.loop.at(last + _WRITE_EVERY_NS, write)

    def _ask(self, stream: Stream) -> None:
        if stream.over or stream.closing:
            return
        stream.asked_ns = now_ns()
        stream.got = 0
        stream.write(max(self.app["request_bytes"], 1))

    def _on_bytes(self, stream: Stream, count: int) -> None:
        stream.got += count
        if self.kind == "requests":
            self._on_request_bytes(stream)
        elif self.kind == "file" and self.side == "receiver" and not stream.done:
            if stream.got < self.app["bytes"]:
                return
            stream.done = True
            since = stream.asked_ns or stream.opened_ns
            if self._stamped:
                since = int.from_bytes(stream.head, "big")
            self.record("file_ms", since)
            stream.close()
            self._next_file()

    def _on_request_bytes(self, stream: Stream) -> None:
        if self.side == "sender":
            asked = max(self.app["request_bytes"], 1)
            while stream.got >= asked and not self.stopped:
                stream.got -= asked
                stream.write(self._by_turns("responses_bytes"))
                self._turn += 1
        elif stream.got >= self._by_turns("responses_bytes"):
            stream.got = 0
            self.record("response_ms", stream.asked_ns)
            think_ns = round(self._by_turns("thinks_s") * 1e9)
            self._turn += 1
            self.loop.at(now_ns() + think_ns, lambda: self._ask(stream))

    def _by_turns(self, name: str) -> Any:
        values = self.app[name]
        return values[self._turn % len(values)]

    def _next_file(self) -> None:
        if self.spec["opens"] and self.app["every_s"] is not None and not self.stopped:
            due = self._started_ns + round(self.app["every_s"] * 1e9)
            self.loop.at(max(due, now_ns()), self._open)

    def _on_over(self, stream: Stream) -> None:
        if stream in self.streams:
            self.streams.remove(stream)
        # The receiver has closed, so it has all of an uploaded file.
        if self.kind == "file" and self.side == "sender":
            self._next_file()


def run(spec: dict[str, Any]) -> None:
    """The whole life of the process."""
    loop = Loop()
    ends = [End(loop, end, spec["address"], spec["warmup_s"]) for end in spec["ends"]]
    if not loop.wait_for_start():
        return
    for end in ends:
        end.start()
    bin_ns = max(round(spec["bin_ms"] * 1e6), 1_000_000)

    def sample() -> None:
        for end in ends:
            end.sample()

    loop.every(loop.ns(0) + bin_ns, bin_ns, sample)
    loop.run(loop.ns(spec["duration_s"]))
    for end in ends:
        end.finish()

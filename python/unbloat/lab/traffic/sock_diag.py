"""Connections of programs that are not ours, as the kernel sees them: what `ss -tinm` shows, asked for over netlink.

Each question walks the whole table of the machine's connections (two to three milliseconds on a kernel with a large one),
so they come ten times a second at most; a connection that lives for less may go unseen here.
"""

from __future__ import annotations

import os
import socket
import struct
from typing import Any

from unbloat.lab.traffic import tcp_info
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import Loop, now_ns
from unbloat.lab.traffic.sockets import name_of

# linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h
_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_INFO, _CONG, _MEMORY = 2, 4, 7
# Open, or closing with data on the way: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK, CLOSING.
_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11

_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBIHH16s16sIII")
# Up to the addresses: family, state, timer, retransmits, ports, addresses.
_MESSAGE = struct.Struct("=BBBB2s2s16s16s")
_MESSAGE_LENGTH = 72

MIN_STEP_NS = 100_000_000


class Seen:
    """A connection at one moment."""

    def __init__(self, message: bytes) -> None:
        _, _, _, _, sport, dport, source, destination = _MESSAGE.unpack_from(message)
        self.local = name_of((socket.inet_ntoa(source[:4]), int.from_bytes(sport, "big")))
        self.remote = name_of((socket.inet_ntoa(destination[:4]), int.from_bytes(dport, "big")))
        self.congestion = ""
        info = memory = b""
        at = _MESSAGE_LENGTH
        while at + 4 <= len(message):
            length, kind = struct.unpack_from("=HH", message, at)
            if length < 4:
                break
            value = message[at + 4 : at + length]
            if kind == _INFO:
                info = value
            elif kind == _CONG:
                self.congestion = value.split(b"\0")[0].decode()
            elif kind == _MEMORY:
                memory = value
            at += (length + 3) & ~3
        self.sample: dict[str, Any] = tcp_info.parse(info, memory)


def connections(*, local_port: int = 0, remote_port: int = 0) -> list[Seen]:
    """This namespace's open TCP connections with that port (IPv4)."""
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG
    ) as netlink:
        wanted = 1 << (_INFO - 1) | 1 << (_CONG - 1) | 1 << (_MEMORY - 1)
        ports = socket.htons(local_port), socket.htons(remote_port)
        no_cookie = 0xFFFFFFFF
        request = _REQUEST.pack(
            socket.AF_INET,
            socket.IPPROTO_TCP,
            wanted,
            0,
            _STATES,
            *ports,
            b"",
            b"",
            0,
            no_cookie,
            no_cookie,
        )
        head = _HEADER.pack(
            _HEADER.size + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST_DUMP, 1, 0
        )
        netlink.send(head + request)
        found: list[Seen] = []
        while True:
            data = netlink.recv(1 << 17)
            at = 0
            while at + _HEADER.size <= len(data):
                length, kind, _, _, _ = _HEADER.unpack_from(data, at)
                if kind == _NLMSG_DONE or length < _HEADER.size:
                    return found
                body = data[at + _HEADER.size : at + length]
                if kind == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise OSError(number, f"sock_diag: {os.strerror(number)}")
                if len(body) >= _MESSAGE_LENGTH:
                    found.append(Seen(body))
                at += (length + 3) & ~3


class Watch:
    """Reports a flow's connections, bin by bin."""

    def __init__(
        self, loop: Loop, log: EventLog, flow: dict[str, Any], side: str, **port: int
    ) -> None:
        self._loop, self._log, self._flow, self._side, self._port = loop, log, flow, side, port
        self.seen: set[tuple[str, str]] = set()
        self._failed = False

    def start(self, bin_ms: float) -> None:
        """From now on."""
        step = max(round(bin_ms * 1e6), MIN_STEP_NS)
        self._loop.every(self._loop.ns(0) + step, step, self.look)

    def look(self) -> None:
        """What is there now."""
        t_s = self._loop.seconds(now_ns())
        try:
            found = connections(**self._port)
        except OSError as error:
            if not self._failed:
                self._log.error(f"no samples: {error.strerror}")
            self._failed = True
            return
        for one in found:
            self.record_connection(one.local, one.remote, t_s, one.congestion)
            self._log.write("sample", local=one.local, remote=one.remote, t_s=t_s, **one.sample)
        self._log.flush()

    def record_connection(
        self, local: str, remote: str, t_s: float, congestion: str | None
    ) -> None:
        """A connection, the first time that it is seen."""
        if (local, remote) in self.seen:
            return
        self.seen.add((local, remote))
        self._log.write(
            "connection",
            local=local,
            remote=remote,
            t_s=t_s,
            congestion=congestion,
            transfer=self._flow["name"],
            data="local" if self._side == "sender" else "remote",
        )

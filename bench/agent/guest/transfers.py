"""Files over TCP, timed by their client: the server at the far end (run as a program), `seconds` here.

The time is that from connecting to the last byte's arrival at the receiver, of all connections together. With an idle time a
connection carries the file twice, and the second one, after so long without data, is timed.
"""

from __future__ import annotations

import socket
import struct
import threading
import time

PORT = 5300
HEAD = struct.Struct("!?QI")
"""Whether the client sends, bytes, how often."""
CHUNK = bytes(1 << 16)


def send(peer: socket.socket, left: int) -> None:
    """So many bytes."""
    while left:
        left -= peer.send(CHUNK[: min(left, len(CHUNK))])


def take(peer: socket.socket, left: int) -> None:
    """So many bytes, or an error."""
    while left:
        got = len(peer.recv(min(left, len(CHUNK))))
        if got == 0:
            raise ConnectionError("the connection ended early")
        left -= got


def answer(peer: socket.socket) -> None:
    """One connection at the far end. A byte confirms a file that arrived, and asks for one."""
    with peer:
        up, size, times = HEAD.unpack(peer.recv(HEAD.size, socket.MSG_WAITALL))
        for _ in range(times):
            if up:
                take(peer, size)
                peer.sendall(b".")
            else:
                take(peer, 1)
                send(peer, size)


def serve() -> None:
    """Until it is killed."""
    family = socket.AF_INET6
    with socket.create_server(("::", PORT), family=family, backlog=64, dualstack_ipv6=True) as all_:
        while True:
            peer, _ = all_.accept()
            threading.Thread(target=answer, args=(peer,), daemon=True).start()


def fetch(up: bool, address: str, size: int, idle_s: float, took: list[float]) -> None:
    """One connection; its time goes to `took`."""
    times = 2 if idle_s else 1
    begun = time.monotonic()
    with socket.create_connection((address, PORT)) as peer:
        peer.sendall(HEAD.pack(up, size, times))
        for number in range(times):
            if number:
                time.sleep(idle_s)
                begun = time.monotonic()
            if up:
                send(peer, size)
                take(peer, 1)
            else:
                peer.sendall(b".")
                take(peer, size)
    took.append(time.monotonic() - begun)


def seconds(up: bool, address: str, size: int, count: int, idle_s: float) -> float:
    """All connections together. Raises `ConnectionError` if one failed."""
    took: list[float] = []
    threads = [
        threading.Thread(target=fetch, args=(up, address, size, idle_s, took)) for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(took) < count:
        raise ConnectionError("a transfer failed")
    return max(took)


if __name__ == "__main__":
    serve()

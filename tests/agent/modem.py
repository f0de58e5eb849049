"""What stands in for a modem: a socket that sends reports to every client, relayed from another
modem or made up."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

EVERY_S = 0.01
"""Between reports that are made up, and between looks for new clients."""


class Modem:
    """Sends what `report` returns. `report` may wait for a moment and then return None: nothing."""

    def __init__(self, path: Path, report: Callable[[], bytes | None]) -> None:
        self.path, self.report = path, report
        self.over, self.quiet = threading.Event(), threading.Event()
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(str(path))
        self.listening.listen()
        self.listening.setblocking(False)
        self.thread = threading.Thread(target=self._send)
        self.thread.start()

    def _send(self) -> None:
        clients: list[socket.socket] = []
        while not self.over.is_set():
            with contextlib.suppress(BlockingIOError):
                clients.append(self.listening.accept()[0])
            record = self.report()
            if record is None or self.quiet.is_set():
                continue
            for one in list(clients):
                try:
                    one.send(record)
                except OSError:
                    clients.remove(one)
                    one.close()
        for one in clients:
            one.close()

    def cut(self) -> None:
        """It is gone, and so is its socket."""
        self.over.set()
        self.thread.join()
        self.listening.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Modem:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()


def relay(source: Path, path: Path) -> Modem:
    """The reports of another modem, as they come."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(str(source))
    asking.settimeout(0.1)

    def report() -> bytes | None:
        try:
            return asking.recv(64)
        except TimeoutError:
            return None

    return Modem(path, report)


def steady(path: Path, occupancy: int, drained: int) -> Modem:
    """A hundred times a second as many bytes in its buffer, and so many that it has moved since."""

    def reports() -> Iterator[bytes]:
        number = 0
        while True:
            time.sleep(EVERY_S)
            number += 1
            yield struct.pack(
                "<4sHHQQQQQ", b"UBTM", 1, 0, number, time.monotonic_ns(), occupancy, drained, 0
            )

    return Modem(path, reports().__next__)

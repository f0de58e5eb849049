"""A server of ndt7 that shares no code with the client: the package websockets, and this host's TCP_INFO.

    python ndt7_server.py ADDRESS PORT

It says "listening" and serves, without TLS, until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import sys
import time

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

SUBPROTOCOL = Subprotocol("net.measurementlab.ndt.v7")
# Of a test, and between two measurements, as ndt-server.
RUNTIME_S, MEASURE_S = 10.0, 0.25
FIRST, MAX = 1 << 13, 1 << 20
# Of `struct tcp_info` (include/uapi/linux/tcp.h): offset and form of each field that the specification names.
FIELDS = {
    "RTT": (68, "I"),
    "RTTVar": (72, "I"),
    "BytesAcked": (120, "Q"),
    "BytesReceived": (128, "Q"),
    "MinRTT": (148, "I"),
    "BusyTime": (168, "Q"),
    "RWndLimited": (176, "Q"),
    "SndBufLimited": (184, "Q"),
    "BytesSent": (200, "Q"),
    "BytesRetrans": (208, "Q"),
}


def measurement(connection: ServerConnection, begun_s: float) -> str:
    """What this end says."""
    own = connection.transport.get_extra_info("socket")
    info = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 224)
    values: dict[str, int] = {
        name: struct.unpack_from(form, info, at)[0] for name, (at, form) in FIELDS.items()
    }
    values["ElapsedTime"] = int((time.monotonic() - begun_s) * 1e6)
    ends = {"Client": str(connection.remote_address), "Server": str(connection.local_address)}
    return json.dumps({"ConnectionInfo": ends, "Origin": "server", "TCPInfo": values})


async def download(connection: ServerConnection, begun_s: float) -> None:
    """Sends as fast as it can."""
    # It fills the queue, whatever this host prefers.
    own = connection.transport.get_extra_info("socket")
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
    size, total, said_s = FIRST, 0, begun_s
    block = os.urandom(size)
    while (now_s := time.monotonic()) < begun_s + RUNTIME_S:
        await connection.send(block)
        total += size
        if size < MAX and size < total / 16:
            size *= 2
            block = os.urandom(size)
        if now_s >= said_s + MEASURE_S:
            said_s = now_s
            await connection.send(measurement(connection, begun_s))


async def upload(connection: ServerConnection, begun_s: float) -> None:
    """Receives, and says what it has."""

    async def receive() -> None:
        async for _ in connection:
            pass

    receiving = asyncio.create_task(receive())
    while time.monotonic() < begun_s + RUNTIME_S and not receiving.done():
        await connection.send(measurement(connection, begun_s))
        await asyncio.sleep(MEASURE_S)
    await connection.close()
    await receiving


async def handle(connection: ServerConnection) -> None:
    """One test."""
    request = connection.request
    tests = {"/ndt/v7/download": download, "/ndt/v7/upload": upload}
    if request is None or request.path not in tests or connection.subprotocol != SUBPROTOCOL:
        return
    with contextlib.suppress(ConnectionClosed):
        await tests[request.path](connection, time.monotonic())


async def main(address: str, port: int) -> None:
    """Serves."""
    words = {"subprotocols": [SUBPROTOCOL], "compression": None, "max_size": 1 << 24}
    async with serve(handle, address, port, **words) as server:  # type: ignore[arg-type]
        print("listening", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))

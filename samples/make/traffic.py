"""What runs inside the namespaces: bulk sender, reader with a rate profile, request and response, a few datagrams.

Each program ends by itself and prints one JSON object: what the kernel's TCP_INFO says when everything was acknowledged.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import sys
import threading
import time

# struct tcp_info of linux/tcp.h: 8 bytes of states and options, 24 u32, 4 u64, 6 u32, 4 u64, 2 u32, 2 u64, 4 u32
LAYOUT = "=8B24I4Q6I4Q2I2Q4I"
NAMES = (
    "rto_us ato_us snd_mss rcv_mss unacked sacked lost retrans fackets last_data_sent last_ack_sent last_data_recv "
    "last_ack_recv pmtu rcv_ssthresh rtt_us rttvar_us snd_ssthresh snd_cwnd advmss reordering rcv_rtt_us rcv_space "
    "total_retrans pacing_rate max_pacing_rate bytes_acked bytes_received segs_out segs_in notsent_bytes min_rtt_us "
    "data_segs_in data_segs_out delivery_rate busy_us rwnd_limited_us sndbuf_limited_us delivered delivered_ce "
    "bytes_sent bytes_retrans dsack_dups reord_seen rcv_ooopack snd_wnd"
)
CHUNK = bytes(65536)


def tcp_info(sock: socket.socket) -> dict[str, int]:
    """The kernel's figures of this connection."""
    size = struct.calcsize(LAYOUT)
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size).ljust(size, b"\0")
    fields = struct.unpack(LAYOUT, raw)
    return {"ca_state": fields[1], "timer_retransmits": fields[2]} | dict(
        zip(NAMES.split(), fields[8:], strict=True)
    )


def family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def send(args: argparse.Namespace) -> dict[str, object]:
    """Bulk data, or bursts of it, until the time or the bytes are used up; then wait until all of it is acknowledged."""
    results: list[dict[str, object]] = []
    for _ in range(args.times):
        with socket.socket(family(args.host), socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, args.congestion.encode())
            if args.sndbuf:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, args.sndbuf)
            sock.connect((args.host, args.port))
            if args.rate:
                sock.setsockopt(
                    socket.SOL_SOCKET, 47, args.rate // 8
                )  # SO_MAX_PACING_RATE, bytes per second
            sock.settimeout(1.0)
            results.append(push(sock, args))
        time.sleep(args.pause)
    return {"connections": results}


def push(sock: socket.socket, args: argparse.Namespace) -> dict[str, object]:
    """Send on one connection and return its end figures."""
    stop, sent = time.monotonic() + args.seconds, 0
    while time.monotonic() < stop and (not args.bytes or sent < args.bytes):
        try:
            sent += sock.send(CHUNK[: args.bytes - sent] if args.bytes else CHUNK)
        except TimeoutError:
            continue
    # The figures must cover the FIN too, and a FIN is all that can still be retransmitted after
    # this.
    deadline = time.monotonic() + args.drain
    while (info := tcp_info(sock))["bytes_acked"] < sent and time.monotonic() < deadline:
        time.sleep(0.02)
    # If the last retransmission was spurious, the receiver says so (DSACK) up to a round trip later.
    time.sleep(2 * info["rtt_us"] / 1e6)
    info = tcp_info(sock)
    name = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
    if name != args.congestion:
        raise SystemExit(f"asked for {args.congestion}, got {name}")
    return {"port": sock.getsockname()[1], "congestion": name, "sent": sent, "tcp_info": info}


def sink(args: argparse.Namespace) -> dict[str, object]:
    """Accept and read: as fast as it comes, or by a profile of Mbit/s per slot, the last slot for ever."""
    listener = socket.create_server((args.host, args.port), family=family(args.host))
    if args.rcvbuf:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, args.rcvbuf)
    results: list[dict[str, object]] = []

    def read(sock: socket.socket) -> None:
        begin, taken, total, slot = time.monotonic(), 0.0, 0, args.slot
        allowed = 0.0
        while True:
            if args.profile:
                at = time.monotonic() - begin
                n = min(int(at / slot), len(args.profile) - 1)
                allowed += (at - taken) * args.profile[n] * 125000
                taken = at
                if allowed < 4096:
                    time.sleep(0.005)
                    continue
            data = sock.recv(min(65536, int(allowed)) if args.profile else 262144)
            if not data:
                break
            allowed -= len(data)
            total += len(data)
        results.append(
            {"port": sock.getpeername()[1], "received": total, "tcp_info": tcp_info(sock)}
        )
        sock.close()

    threads = []
    for _ in range(args.times):
        sock, _peer = listener.accept()
        threads.append(threading.Thread(target=read, args=(sock,)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return {"connections": results}


def answer(args: argparse.Namespace) -> dict[str, object]:
    """Answer each 4-byte request with as many bytes as it asks for; runs until it is ended."""
    listener = socket.create_server((args.host, args.port), family=family(args.host), backlog=64)

    def serve(sock: socket.socket) -> None:
        while len(ask := sock.recv(4, socket.MSG_WAITALL)) == 4:
            sock.sendall(bytes(struct.unpack("!I", ask)[0]))
        sock.close()

    while True:
        sock, _peer = listener.accept()
        threading.Thread(target=serve, args=(sock,), daemon=True).start()


def web(args: argparse.Namespace) -> dict[str, object]:
    """A page every `pause`: one connection kept open for short requests, a new one for each larger object."""
    took: list[float] = []
    stop = time.monotonic() + args.seconds
    with socket.create_connection((args.host, args.port)) as kept:
        while time.monotonic() < stop:
            begin = time.monotonic()
            kept.sendall(struct.pack("!I", 700))
            kept.recv(700, socket.MSG_WAITALL)
            with socket.create_connection((args.host, args.port)) as sock:
                sock.sendall(struct.pack("!I", args.bytes))
                sock.recv(args.bytes, socket.MSG_WAITALL)
            took.append(round(time.monotonic() - begin, 4))
            time.sleep(max(0.0, begin + args.pause - time.monotonic()))
    return {"page_s": took}


def datagrams(args: argparse.Namespace) -> dict[str, object]:
    """Small UDP packets at a steady pace, as a call would send them."""
    count = 0
    with socket.socket(family(args.host), socket.SOCK_DGRAM) as sock:
        stop = time.monotonic() + args.seconds
        while time.monotonic() < stop:
            sock.sendto(bytes(120), (args.host, args.port))
            count += 1
            time.sleep(args.pause)
    return {"datagrams": count}


def absorb(args: argparse.Namespace) -> dict[str, object]:
    """Take datagrams in, so that no ICMP error answers them; runs until it is ended."""
    with socket.socket(family(args.host), socket.SOCK_DGRAM) as sock:
        sock.bind((args.host, args.port))
        while True:
            sock.recv(2048)


VERBS = {f.__name__: f for f in (send, sink, answer, web, datagrams, absorb)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("verb", choices=sorted(VERBS))
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--bytes", type=int, default=0)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--drain", type=float, default=15.0)
    parser.add_argument("--congestion", default="cubic")
    parser.add_argument("--sndbuf", type=int, default=0)
    parser.add_argument("--rcvbuf", type=int, default=0)
    parser.add_argument("--rate", type=int, default=0, help="pacing, bit/s")
    parser.add_argument(
        "--profile",
        type=lambda t: [float(x) for x in t.split("/")],
        default=[],
        help="Mbit/s per slot: 0/6/6",
    )
    parser.add_argument("--slot", type=float, default=1.0, help="seconds")
    args = parser.parse_args()
    json.dump(VERBS[args.verb](args), sys.stdout)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()

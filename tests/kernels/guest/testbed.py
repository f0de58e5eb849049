"""A path inside the guest: client, router and server in namespaces of their own, and its figures.

The bottleneck is the router's token bucket (tbf) with a long FIFO; netem at the server adds the
delay. Throughput is what reached the receiver's device, delay is that of pings beside the transfer.
CUBIC's HyStart is off, so that the FIFO fills within seconds. Shares no code with the lab.
"""

import ctypes
import os
import re
import statistics
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup/client")
SERVER = "10.0.2.2"
# Bottleneck of each way: its device at the router, rate and FIFO.
DOWN = ("c0", "8mbit", 2_000_000)
UP = ("s0", "2mbit", 1_000_000)
# bpf(2): commands that walk the ids of programs, maps and links.
NEXT_ID = {"programs": 11, "maps": 12, "links": 31}
BPF_CALL = 321
LIBC = ctypes.CDLL(None, use_errno=True)


def shell(command: str, check: bool = True) -> str:
    """Runs a command; its output."""
    done = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if check and done.returncode:
        raise RuntimeError(f"{command}: {done.stdout} {done.stderr}")
    return (done.stdout + done.stderr).strip()


def inside(space: str, *argv: str) -> list[str]:
    """A command in a network namespace."""
    return ["nsenter", f"--net=/run/netns/{space}", "--", *argv]


def veth() -> None:
    """eth0 of the client and c0 of the router."""
    shell("ip link add eth0 netns c type veth peer name c0 netns r")


def build(
    pair: Callable[[], None] = veth,
    inner: Callable[[], None] | None = None,
    queues: Sequence[tuple[str, str, int]] = (DOWN, UP),
    hystart: bool = False,
) -> None:
    """Namespaces c, r and s, their addresses, and the queues.

    pair: makes eth0 of the client and c0 of the router; inner: makes a device `inner` of both on
    top, which then has the addresses; queues: device of the router, rate and FIFO in bytes.
    """
    for space in "crs":
        shell(f"ip netns add {space} && ip -n {space} link set lo up")
    pair()
    shell("ip link add eth0 netns s type veth peer name s0 netns r")
    for space, device in (("c", "eth0"), ("r", "c0"), ("r", "s0"), ("s", "eth0")):
        offloads_off(space, device)
        shell(f"ip -n {space} link set {device} up")
    if inner:
        inner()
    client, router = ("inner", "inner") if inner else ("eth0", "c0")
    addresses = (
        ("c", client, "1.2"),
        ("r", router, "1.1"),
        ("r", "s0", "2.1"),
        ("s", "eth0", "2.2"),
    )
    for space, device, address in addresses:
        shell(f"ip -n {space} addr add 10.0.{address}/24 dev {device}")
        shell(f"ip -n {space} link set {device} up")
    shell("ip -n c route add default via 10.0.1.1")
    shell("ip -n s route add default via 10.0.2.1")
    write_in("r", "/proc/sys/net/ipv4/ip_forward", "1")
    for space in "cs":
        write_in(space, "/proc/sys/net/ipv4/tcp_no_metrics_save", "1")
    shell("ip netns exec s tc qdisc add dev eth0 root netem delay 60ms limit 100000")
    for device, rate, queue in queues:
        tbf = f"tbf rate {rate} burst 3200 limit {queue}"
        shell(f"ip netns exec r tc qdisc replace dev {device} root {tbf}")
    if not hystart:
        switch = Path("/sys/module/tcp_cubic/parameters/hystart")
        if switch.exists():
            switch.write_text("0")
    CGROUP.mkdir(exist_ok=True)


def write_in(space: str, path: str, text: str) -> None:
    """Writes a file of /proc as a network namespace sees it."""
    code = f"open({path!r}, 'w').write({text!r})"
    subprocess.run(inside(space, "python3", "-c", code), check=True)


def offloads_off(space: str, device: str) -> None:
    """Packets as on a wire: no segmentation or receive offload."""
    code = f"""
import array, fcntl, socket, struct
s = socket.socket()
for command in (0x1f, 0x24, 0x2c, 0x21):
    value = array.array("B", struct.pack("II", command, 0))
    request = struct.pack("16sP8x", b"{device}", value.buffer_info()[0])
    try:
        fcntl.ioctl(s, 0x8946, request)
    except OSError:
        pass
"""
    subprocess.run(inside(space, "python3", "-c", code), check=True)


def count(kind: str) -> int:
    """BPF programs, maps or links in the kernel."""
    number = last = 0
    while True:
        request = ctypes.create_string_buffer(struct.pack("<III", last, 0, 0) + bytes(120))
        if LIBC.syscall(BPF_CALL, NEXT_ID[kind], request, 128) < 0:
            return number
        last = struct.unpack("<I", request.raw[4:8])[0]
        number += 1


def state() -> dict[str, object]:
    """What an agent can leave behind: BPF objects, pins, queue disciplines and filters."""
    found: dict[str, object] = {kind: count(kind) for kind in NEXT_ID}
    found["pins"] = sorted(os.listdir("/sys/fs/bpf"))
    tc = "ip netns exec c tc"
    # A reference count moves by itself.
    queues = re.sub(r" refcnt \S+", "", shell(f"{tc} qdisc show dev eth0"))
    hooks = [shell(f"{tc} filter show dev eth0 {way}", False) for way in ("ingress", "egress")]
    found["device"] = [queues, *(hook for hook in hooks if hook)]
    return found


def left(before: dict[str, object]) -> dict[str, object]:
    """What differs from an earlier state."""
    now = state()
    return {key: [before[key], now[key]] for key in now if now[key] != before[key]}


def _enter() -> None:
    (CGROUP / "cgroup.procs").write_text(str(os.getpid()))


def client(*argv: str) -> subprocess.Popen[str]:
    """A program of the client, in the cgroup that the agent treats."""
    return subprocess.Popen(
        inside("c", *argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=_enter,
    )


def received(process: subprocess.Popen[str]) -> int:
    """Bytes that have reached eth0 of the namespace that a process enters."""
    for _ in range(100):
        text = Path(f"/proc/{process.pid}/net/dev").read_text()
        if found := re.search(r"eth0:\s*(\d+)", text):
            return int(found[1])
        time.sleep(0.02)
    raise RuntimeError("no eth0")


def wait_until_empty() -> None:
    """Both queues of the router are empty again, at most 20 s later."""
    for _ in range(100):
        backlogs = re.findall(r"backlog (\S+)b ", shell("ip netns exec r tc -s qdisc show"))
        if all(backlog == "0" for backlog in backlogs):
            return
        time.sleep(0.2)


class Transfer:
    """One connection with pings beside it; the first `settle_s` seconds do not count."""

    port = 5200

    def __init__(self, way: str, seconds: float = 11.0, settle_s: float = 4.0) -> None:
        Transfer.port += 1
        self.way, self.seconds, self.settle_s = way, seconds, settle_s
        port = str(Transfer.port)
        self.server = subprocess.Popen(
            inside("s", "iperf3", "-s", "-1", "-p", port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        time.sleep(0.6)
        reverse = ["-R"] if way == "down" else []
        self.ping = client("ping", "-n", "-i", "0.1", "-w", str(int(seconds)), SERVER)
        self.iperf = client(
            *("iperf3", "-c", SERVER, "-p", port, "-t", str(int(seconds)), *reverse)
        )
        self.begun = time.monotonic()
        self.receiver = self.iperf if way == "down" else self.server
        # Bytes that had arrived, by seconds of the transfer.
        self.arrived = [0]
        self.look = threading.Thread(target=self._look, daemon=True)
        self.look.start()

    def _look(self) -> None:
        begun_with = received(self.receiver)
        for second in range(1, int(self.seconds)):
            self.wait(second)
            self.arrived.append(received(self.receiver) - begun_with)

    def wait(self, until_s: float) -> None:
        """Sleeps until so many seconds of the transfer have passed."""
        time.sleep(max(0.0, self.begun + until_s - time.monotonic()))

    def now(self) -> float:
        """Seconds of the transfer that have passed."""
        return round(time.monotonic() - self.begun, 1)

    def figures(self) -> dict[str, object]:
        """Delay and throughput after the settling time."""
        self.wait(self.settle_s)
        first, first_at = received(self.receiver), time.monotonic()
        self.wait(self.seconds - 0.5)
        last, last_at = received(self.receiver), time.monotonic()
        pings = self.ping.communicate(timeout=90)[0]
        try:
            self.iperf.communicate(timeout=60)
        finally:
            for process in (self.iperf, self.server):
                process.kill()
                process.wait()
        wait_until_empty()
        answers = [
            (int(number), float(ms))
            for number, ms in re.findall(r"icmp_seq=(\d+) .*time=([\d.]+)", pings)
        ]
        delays = sorted(ms for number, ms in answers if number > self.settle_s * 10)
        found: dict[str, object] = {
            "by_second": self._by_second(answers),
            "mbps": round((last - first) * 8 / (last_at - first_at) / 1e6, 2),
            "pings": len(delays),
        }
        if delays:
            found["p50_ms"] = round(statistics.median(delays))
            found["p95_ms"] = round(delays[int(len(delays) * 0.95)])
        return found

    def _by_second(self, answers: list[tuple[int, float]]) -> list[tuple[float, int | None]]:
        """Mbit/s of each second, and the median RTT of the pings sent in it."""
        seconds = []
        for second, (before, after) in enumerate(pairwise(self.arrived)):
            sent = [ms for number, ms in answers if (number - 1) // 10 == second]
            median = round(statistics.median(sent)) if sent else None
            seconds.append((round((after - before) * 8 / 1e6, 1), median))
        return seconds


MODEM = r'''
"""A modem that reports the queue of the bottleneck, in the agent's telemetry format."""
import os, socket, struct, time

index = socket.if_nametoindex("s0")
netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
netlink.bind((0, 0))
GET_QDISC, NEW_QDISC, DONE, STATISTICS, BASIC, QUEUE, ROOT = 38, 36, 3, 7, 1, 3, 0xFFFFFFFF


def attributes(data, at, end):
    while at < end:
        size, kind = struct.unpack_from("<HH", data, at)
        yield kind & 0x3FFF, at + 4, at + size
        at += (size + 3) & ~3


def look():
    body = struct.pack("<BxxxiIII", 0, index, 0, 0, 0)
    netlink.send(struct.pack("<IHHII", 16 + len(body), GET_QDISC, 0x301, 1, 0) + body)
    sent = backlog = 0
    while True:
        data, at = netlink.recv(65536), 0
        while at < len(data):
            size, kind = struct.unpack_from("<IH", data, at)
            if kind == DONE:
                return sent, backlog
            _, device, _, parent = struct.unpack_from("<BxxxiII", data, at + 16)
            if kind == NEW_QDISC and device == index and parent == ROOT:
                for name, start, end in attributes(data, at + 36, at + size):
                    if name == STATISTICS:
                        for inner, first, _ in attributes(data, start, end):
                            if inner == BASIC:
                                sent = struct.unpack_from("<Q", data, first)[0]
                            if inner == QUEUE:
                                backlog = struct.unpack_from("<II", data, first)[1]
            at += (size + 3) & ~3


listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("/run/modem.sock")
listener.listen()
listener.setblocking(False)
readers, number, before = [], 0, look()[0]
print("ready", flush=True)
while True:
    try:
        readers.append(listener.accept()[0])
    except BlockingIOError:
        pass
    time.sleep(0.005)
    number += 1
    sent, backlog = look()
    now = time.monotonic_ns()
    report = struct.pack("<4sHHQQQQQ", b"UBTM", 1, 0, number, now, backlog, sent - before, 0)
    before = sent
    for reader in list(readers):
        try:
            reader.send(report)
        except OSError:
            readers.remove(reader)
'''


class Modem:
    """Reports the uplink's queue while the block runs."""

    path = "/run/modem.sock"

    def __enter__(self) -> "Modem":
        self.process = subprocess.Popen(
            inside("r", "python3", "-c", MODEM),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.process.stdout.readline()
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        os.unlink(self.path)

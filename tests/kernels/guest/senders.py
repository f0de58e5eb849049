"""Uploads by congestion controls of the guest's kernel, captured at both ends.

signal: the cases of the kernel's command line, `control:link` · model: client, bottleneck, path and server in namespaces
of their own: the token bucket (tbf) with its queue, then netem with the delay and the random loss · action: one upload
per case; both captures go to the second disk as a tar stream, and a line of JSON to the second serial port
"""

import ctypes
import json
import os
import selectors
import signal
import socket
import subprocess
import tarfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sender_links
import testbed
from sender_links import Link
from testbed import shell

LIBC = ctypes.CDLL(None, use_errno=True)
NEW_NET = 0x40000000
ADDRESS = ("10.0.3.2", 5001)
# Bytes of each packet that the captures keep: all headers.
SNAP = 96
DISK = Path("/dev/vda")
# A hundredth of the receive buffer.
READ_AT_ONCE = 65536
# After the upload, for what is still queued.
DRAIN_S = 20


@contextmanager
def within(space: str) -> Iterator[None]:
    """Sockets and sysctls of a network namespace."""
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    other = os.open(f"/run/netns/{space}", os.O_RDONLY)
    try:
        if LIBC.setns(other, NEW_NET):
            raise OSError(ctypes.get_errno(), f"setns {space}")
        yield
    finally:
        LIBC.setns(own, NEW_NET)
        os.close(own)
        os.close(other)


def build() -> None:
    """c — r — q — s: r has the bottleneck, q the path behind it."""
    for number, (left, right) in enumerate((("c", "r"), ("r", "q"), ("q", "s")), 1):
        for space in (left, right):
            if not Path(f"/run/netns/{space}").exists():
                shell(f"ip netns add {space} && ip -n {space} link set lo up")
        shell(f"ip link add {right} netns {left} type veth peer name {left} netns {right}")
        for space, device, host in ((left, right, 1), (right, left, 2)):
            shell(f"ip -n {space} addr add 10.0.{number}.{host}/24 dev {device}")
            shell(f"ip -n {space} link set {device} up")
    shell("ip -n c route add default via 10.0.1.2")
    shell("ip -n r route add 10.0.3.0/24 via 10.0.2.2")
    shell("ip -n q route add 10.0.1.0/24 via 10.0.2.1")
    shell("ip -n s route add default via 10.0.3.1")
    for space, device in (("r", "c"), ("r", "q"), ("q", "r"), ("q", "s"), ("s", "q")):
        testbed.offloads_off(space, device)
    for space in "rq":
        with within(space):
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    with within("c"):
        Path("/proc/sys/net/ipv4/tcp_no_metrics_save").write_text("1")


def set_link(link: Link) -> None:
    """Queue disciplines of a link, in place of the last one's."""
    segments = 65535 if link.offload else 1
    shell(f"ip -n c link set dev r gso_max_segs {segments}")
    for space, device in (("r", "q"), ("q", "s"), ("q", "r")):
        shell(f"ip netns exec {space} tc qdisc del dev {device} root", check=False)
    tc = "ip netns exec r tc qdisc add dev q"
    shell(f"{tc} root handle 1: tbf rate {link.rate_mbps}mbit burst 3200 limit {link.queue}")
    if link.codel:
        shell(f"{tc} parent 1:1 handle 10: {link.codel}")
    loss = f"loss {link.loss_pct}%" if link.loss_pct else ""
    forth, back = link.rtt_ms // 2, link.rtt_ms - link.rtt_ms // 2
    shell(f"ip netns exec q tc qdisc add dev s root netem limit 100000 delay {forth}ms {loss}")
    shell(f"ip netns exec q tc qdisc add dev r root netem limit 100000 delay {back}ms")


def capture(space: str, device: str, to: Path) -> "subprocess.Popen[bytes]":
    """Starts tcpdump, and waits until it reads."""
    started = subprocess.Popen(
        testbed.inside(
            *(space, "tcpdump", "-i", device, "-s", str(SNAP), "-B", "8192", "-Z", "root"),
            *("-n", "-w", str(to), "tcp"),
        ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert started.stderr
    line = started.stderr.readline().decode()
    if "listening" not in line:
        raise RuntimeError(f"tcpdump: {line}{started.stderr.read().decode()}")
    return started


def upload(control: str, seconds: float, at_once: int = READ_AT_ONCE) -> tuple[int, str]:
    """One connection that always has data to send: how many bytes arrived, and by which congestion control.

    at_once: bytes for which the receiver waits before it reads.
    """
    with within("s"):
        listener = socket.create_server(ADDRESS)
    # DCTCP's requests for ECN are granted by DCTCP alone.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    with within("c"):
        sender = socket.socket()
    sender.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, control.encode())
    sender.connect(ADDRESS)
    receiver = listener.accept()[0]
    sender.setblocking(False)
    receiver.setblocking(False)
    # Python is woken for many segments at once, which is most of what a guest costs.
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, at_once)
    block, arrived = bytes(65536), 0
    wait = selectors.DefaultSelector()
    wait.register(sender, selectors.EVENT_WRITE)
    wait.register(receiver, selectors.EVENT_READ)
    end, sending = time.monotonic() + seconds, True
    while time.monotonic() < end + DRAIN_S:
        for key, _ in wait.select(0.1):
            if key.fileobj is receiver:
                data = receiver.recv(1 << 20)
                arrived += len(data)
                if not data:
                    end = 0
            elif sending:
                with suppress(BlockingIOError):
                    sender.send(block)
        if sending and time.monotonic() > end:
            sending = False
            wait.unregister(sender)
            sender.shutdown(socket.SHUT_WR)
    name = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0").decode()
    for each in (sender, receiver, listener):
        each.close()
    return arrived, name


def case(control: str, link: Link, tar: tarfile.TarFile) -> dict[str, object]:
    """One upload, captured."""
    shell(f"modprobe -q tcp_{control}", check=False)
    set_link(link)
    files = {end: Path(f"/tmp/{end}.pcap") for end in ("sender", "receiver")}
    running = [
        capture("c", "r", files["sender"]),
        capture("s", "q", files["receiver"]),
    ]
    try:
        arrived, name = upload(control, sender_links.SECONDS)
        time.sleep(0.5)
    finally:
        notes = []
        for process in running:
            process.send_signal(signal.SIGINT)
            notes.append((process.communicate(timeout=60)[1] or b"").decode())
    for end, path in files.items():
        tar.add(path, f"{control}:{link.name}:{end}.pcap")
        path.unlink()
    dropped = [line for note in notes for line in note.splitlines() if "dropped by kernel" in line]
    return {
        "mbps": round(arrived * 8 / sender_links.SECONDS / 1e6, 2),
        "dropped": dropped,
        "ran": name,
    }


def main() -> None:
    words = dict(
        word.split("=", 1) for word in Path("/proc/cmdline").read_text().split() if "=" in word
    )
    links = sender_links.links()
    shell("modprobe -q virtio_blk; modprobe -q sch_codel", check=False)
    # tcpdump looks its user up.
    Path("/etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    build()
    with (
        open("/dev/ttyS1", "w", buffering=1) as out,
        DISK.open("wb") as disk,
        tarfile.open(fileobj=disk, mode="w|") as tar,
    ):
        for name in words["cases"].split(","):
            control, link = name.split(":")
            try:
                result = case(control, links[link], tar)
            except Exception:
                result = {"failed": traceback.format_exc()[-1500:]}
            disk.flush()
            out.write(json.dumps({name: result}) + "\n")


if __name__ == "__main__":
    main()

"""In a guest: uploads under the cures that a kernel or the agent has, over the kernel's own queues, captured at both ends.

signal: the cases of the kernel's command line, `link:cure`, and what its `links` says of each link · model: the path c — r — q — s of
`senders.py`; at r a shaper or nothing, at q a token bucket (tbf) with a FIFO or FQ-CoDel, and netem with the RTT for the ACKs · action: an
upload per case; both captures go to the second disk as a tar stream, and a line of JSON to the second serial port

A link's rate counts the bytes of IP packets, as the emulator's does. The token bucket holds one packet, which does not wait
where it is full. All of the RTT is on the way of the ACKs: a device has one root queue, and that of the data is the token bucket. At either
end this differs from halves by the clock alone. The shaper is behind a router: where packets in it still belong to the sender's socket, its
kernel lets no more than two wait (TCP small queues).
"""

import json
import signal
import socket
import subprocess
import tarfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import senders
import testbed
from testbed import inside, shell

# Of one upload, s.
SECONDS = 30
ENDS = {"client": ("c", "r"), "server": ("s", "q")}
# The sender's congestion control is CUBIC where the cure is none.
CONTROLS = {"bbr": "bbr", "newreno": "reno"}
UNTREATED = "cubic"
# The namespace in which the agent runs, and its settings. Trials would lift a cure in the midst of the upload.
AGENTS = {
    "drwa": ("s", ("uplink.mode=off", "trial.enabled=false")),
    "acks": ("c", ("uplink.mode=acks", "receive.enabled=false", "trial.enabled=false")),
}
AGENT = ("unbloat-agent", "--runtime", "/run/agent", "--pins", "/sys/fs/bpf/unbloat", "--json")
# A processor that QEMU emulates needs seconds to start an agent.
AGENT_LIMIT_S = 120
# Bytes of a full frame; the queues count those of its Ethernet header by default.
ETHERNET_BYTES = 14
BURST_BYTES = 1514 + 26
# Of a queue whose discipline has a limit of its own.
LONG_BYTES = 10_000_000


@dataclass(frozen=True)
class Bottleneck:
    """A link as the host describes it: `name:rate:shaper:buffer:rtt`."""

    name: str
    rate_kbps: int
    shaped_kbps: int
    """Of a shaper in front of it."""
    buffer_bytes: int
    """0 is FQ-CoDel."""
    rtt_us: int
    """Without a queue."""


def bottleneck(text: str) -> Bottleneck:
    """One of the host's descriptions."""
    name, *numbers = text.split(":")
    return Bottleneck(name, *map(int, numbers))


def set_queues(link: Bottleneck, cure: str) -> None:
    """Queue disciplines of a case, in place of the last one's."""
    for space, device in (("r", "q"), ("q", "s"), ("q", "r")):
        shell(f"ip netns exec {space} tc qdisc del dev {device} root", check=False)
    tc = "ip netns exec q tc qdisc add dev"
    shell(
        f"{tc} s root handle 1: stab overhead -{ETHERNET_BYTES} linklayer ethernet"
        f" tbf rate {link.rate_kbps}kbit burst {BURST_BYTES} limit {link.buffer_bytes or LONG_BYTES}"
    )
    if cure == "fq_codel" or not link.buffer_bytes:
        shell(f"{tc} s parent 1:1 handle 10: fq_codel")
    shell(f"{tc} r root netem limit 100000 delay {link.rtt_us}us")
    if cure == "cake":
        # With the word `overhead` it counts the bytes of IP packets.
        shaper = f"cake bandwidth {link.shaped_kbps}kbit overhead 0"
        shell(f"ip netns exec r tc qdisc add dev q root {shaper}")


def agent(space: str, *argv: str) -> None:
    """A command of the agent in a namespace, which has to work."""
    done = subprocess.run(
        inside(space, *AGENT, *argv),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=AGENT_LIMIT_S,
    )
    if done.returncode:
        raise RuntimeError(f"unbloat-agent {argv[0]}: {done.stderr[-1000:]}")


def asked() -> dict[str, Any]:
    """What the agent says of itself."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect("/run/agent/control.sock")
        client.sendall(json.dumps({"ask": "status"}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(client.makefile().readline())
    return answer


@contextmanager
def treated(cure: str) -> Iterator[dict[str, Any]]:
    """An agent while the block runs, where the cure has one: whether it held the upload halfway, and its problems."""
    said: dict[str, Any] = {}
    if cure not in AGENTS:
        yield said
        return
    space, settings = AGENTS[cure]
    agent(space, "on", *(word for setting in settings for word in ("--set", setting)))

    def look() -> None:
        answer = asked()
        said["applied"] = any(flow.get("applied") for flow in answer.get("flows") or ())
        said["problems"] = answer.get("problems")

    timer = threading.Timer(SECONDS / 2, look)
    try:
        timer.start()
        yield said
    finally:
        timer.join()
        agent(space, "off")


@contextmanager
def captured(files: dict[str, Path]) -> Iterator[list[str]]:
    """Captures of both ends while the block runs; then what tcpdump says that it missed."""
    missed: list[str] = []
    running = [senders.capture(*ENDS[end], path) for end, path in files.items()]
    try:
        yield missed
        # For the last packets.
        time.sleep(0.5)
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
            note = (process.communicate(timeout=60)[1] or b"").decode()
            missed += [
                line
                for line in note.splitlines()
                if "dropped by kernel" in line and not line.startswith("0 ")
            ]


def case(link: Bottleneck, cure: str, tar: tarfile.TarFile) -> dict[str, object]:
    """One upload, captured."""
    set_queues(link, cure)
    files = {end: Path(f"/tmp/{end}.pcap") for end in ENDS}
    control = CONTROLS.get(cure, UNTREATED)
    with treated(cure) as agent_said, captured(files) as missed:
        # The law needs to see every read: the receiver reads what there is.
        arrived, ran = senders.upload(control, SECONDS, at_once=1)
    for end, path in files.items():
        tar.add(path, f"{link.name}:{cure}:{end}.pcap")
        path.unlink()
    if ran != control:
        raise RuntimeError(f"the sender ran {ran}")
    queues = shell("ip netns exec r tc -s qdisc show; ip netns exec q tc -s qdisc show")
    return {"bytes": arrived, "missed": missed, "agent": agent_said, "queues": queues[-1500:]}


def main() -> None:
    words = dict(
        word.split("=", 1) for word in Path("/proc/cmdline").read_text().split() if "=" in word
    )
    links = {link.name: link for link in map(bottleneck, words["links"].split(","))}
    shell("modprobe -q virtio_blk; modprobe -q sch_cake", check=False)
    # tcpdump looks its user up.
    Path("/etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    senders.build()
    # Every packet as on a wire: the sender's device gets no segment of several packets.
    testbed.offloads_off("c", "r")
    shell("ip -n c link set dev r gso_max_segs 1")
    with (
        open("/dev/ttyS1", "w", buffering=1) as out,
        senders.DISK.open("wb") as disk,
        tarfile.open(fileobj=disk, mode="w|") as tar,
    ):
        for name in words["cases"].split(","):
            link, cure = name.split(":")
            begun = time.monotonic()
            try:
                result = case(links[link], cure, tar)
            except Exception:
                result = {"failed": traceback.format_exc()[-1500:]}
            disk.flush()
            result["seconds"] = round(time.monotonic() - begun, 1)
            out.write(json.dumps({name: result}) + "\n")


if __name__ == "__main__":
    main()

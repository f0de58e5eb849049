"""In a guest: pairs of runs on one link, without the agent and with it.

The kernel's command line names the numbers of the pairs (`cases=0,1`), the link and the files. Each pair prints one line of JSON to
the second serial port. Client c, router r and server s are namespaces. The router's token buckets give 5 Mbit/s with a FIFO of
75 KB in each direction, netem at the server adds 60 ms. An emulated processor needs ten times as long as a real one to verify and
start the agent's programs. Transfers therefore begin when the agent uses less than a tenth of the processor.
"""

import json
import os
import subprocess
import time
import traceback
from pathlib import Path

import testbed
from testbed import CGROUP, SERVER, inside, shell

PORT = 5300
QUEUES = (("c0", "5mbit", 75_000), ("s0", "5mbit", 75_000))
AGENT = ("unbloat-agent", "--runtime", "/run/agent", "--pins", "/sys/fs/bpf/unbloat")
TICK = os.sysconf("SC_CLK_TCK")
# Keys of the tunnel's two ends: any 32 bytes are a private key.
KEYS = {
    "c": "Y2xpZW50Y2xpZW50Y2xpZW50Y2xpZW50Y2xpZW50MDA=",
    "r": "cm91dGVycm91dGVycm91dGVycm91dGVycm91dGVyMDA=",
}


def cards() -> None:
    """The same names for two cards of the machine, which a hub connects."""
    shell("modprobe virtio_net")
    for device, space, name in (("eth0", "c", "eth0"), ("eth1", "r", "c0")):
        shell(f"ip link set {device} netns {space} && ip -n {space} link set {device} name {name}")
    shell("ip netns exec c ls -d /sys/class/net/eth0/queues/tx-0/byte_queue_limits")


def vlan() -> None:
    """VLAN 7 on the pair."""
    for space, device in (("c", "eth0"), ("r", "c0")):
        shell(f"ip -n {space} link add link {device} name inner type vlan id 7")


def wireguard() -> None:
    """A tunnel on the pair, between 10.0.9.1 and .2."""
    public = {space: shell(f"echo {key} | wg pubkey") for space, key in KEYS.items()}
    for space, device, peer, number in (("c", "eth0", "r", 1), ("r", "c0", "c", 2)):
        Path("/run/key").write_text(KEYS[space])
        shell(f"ip -n {space} addr add 10.0.9.{number}/24 dev {device}")
        shell(f"ip -n {space} link add inner type wireguard")
        shell(
            f"ip netns exec {space} wg set inner listen-port 51820 private-key /run/key"
            f" peer {public[peer]} allowed-ips 0.0.0.0/0 endpoint 10.0.9.{3 - number}:51820"
        )


def build(link: str) -> None:
    """The path with this link between client and router, and a server for transfers."""
    testbed.build(
        pair=cards if link == "bql" else testbed.veth,
        inner={"vlan": vlan, "wireguard": wireguard}.get(link),
        queues=QUEUES,
        hystart=True,
    )
    server = inside("s", "python3", "/transfers.py", "serve")
    subprocess.Popen(server, stdin=subprocess.DEVNULL)
    while str(PORT) not in shell("ip netns exec s ss -Hltn"):
        time.sleep(0.1)
    # The first packet resolves addresses, and makes the tunnel's keys.
    shell(f"ip netns exec c ping -n -c 3 -i 0.2 {SERVER}")


def processor_s(pid: int) -> float:
    """Seconds that a process has used."""
    times = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(times[11]) + int(times[12])) / TICK


def wait_until_started(pid: int) -> None:
    """The agent uses less than a tenth of the processor for a second; a minute at most."""
    for _ in range(60):
        before = processor_s(pid)
        time.sleep(1)
        if processor_s(pid) - before < 0.1:
            return
    raise RuntimeError("the agent does not come to rest")


def play(files: list[tuple[str, str, str]], with_agent: bool) -> dict[str, float]:
    """The seconds of each file, and the agent's CPU seconds."""
    took: dict[str, float] = {"cpu_s": 0.0}
    agent = None
    if with_agent:
        # Unlike nsenter, `ip netns exec` shows the namespace's own devices in /sys.
        argv = ["ip", "netns", "exec", "c", *AGENT, "serve", "--set", f"scope.cgroup={CGROUP}"]
        agent = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert agent.stdout is not None
        line = agent.stdout.readline().strip()
        if line != "on":
            raise RuntimeError(f"the agent said {line!r}: {agent.communicate(timeout=30)[1]}")
        wait_until_started(agent.pid)
    for way, size, label in files:
        client = testbed.client("python3", "/transfers.py", way, SERVER, size, "1")
        took[label] = float(client.communicate(timeout=120)[0])
    if agent:
        took["cpu_s"] = processor_s(agent.pid)
        agent.terminate()
        agent.communicate(timeout=60)
    return took


def main() -> None:
    words = dict(
        word.split("=", 1) for word in Path("/proc/cmdline").read_text().split() if "=" in word
    )
    files = []
    for file in words["files"].split(","):
        way, size, label = file.split(":")
        files.append((way, size, label.replace("_", " ")))
    with open("/dev/ttyS1", "w", buffering=1) as results:
        problem = ""
        try:
            build(words["link"])
        except Exception:
            problem = traceback.format_exc()[-1500:]
        for name in words["cases"].split(","):
            order = (False, True) if int(name) % 2 == 0 else (True, False)
            try:
                if problem:
                    raise RuntimeError(problem)
                runs = {with_agent: play(files, with_agent) for with_agent in order}
                result: dict[str, object] = {"off": runs[False], "on": runs[True]}
            except Exception:
                result = {"failed": traceback.format_exc()[-1500:]}
            print(json.dumps({name: result}), file=results)


main()

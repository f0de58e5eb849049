"""The cases of a guest: what the agent can do on this kernel, and what it leaves behind.

The kernel's command line names the cases (`cases=a,b`). Each prints one line of JSON to the second
serial port as soon as it ends, so that a guest that hangs loses only what came after.
"""

import contextlib
import json
import os
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import laws
import testbed
from testbed import Modem, Transfer

AGENT = ("unbloat-agent", "--runtime", "/run/agent", "--pins", "/sys/fs/bpf/unbloat", "--json")
# Trials would lift the cure in the midst of a measurement of seconds.
COMMON = (f"scope.cgroup={testbed.CGROUP}", "scope.device=eth0", "trial.enabled=false")
DOWNLOAD = ("receive.lambda=1.5", "uplink.mode=off")
ACKS = ("receive.enabled=false", "uplink.mode=acks")
GATE = ("receive.enabled=false", "uplink.mode=gate", f"uplink.telemetry={Modem.path}")
BBR = ("receive.enabled=false", "uplink.mode=off", 'congestion.routes={ "10.0.0.0/8" = "bbr" }')
# Compiled tests of the agent's crate; that of ACK-window rewriting; how long one may take.
TESTS, PACKETS = Path("/tests"), "acks"
TESTS_LIMIT_S = 600
Result = dict[str, object]


def agent(*argv: str) -> Result:
    """A command of the agent, in the client's namespace: its JSON, exit code and error text."""
    done = subprocess.run(
        testbed.inside("c", *AGENT, *argv),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        answer = {}
    return {**answer, "rc": done.returncode, "error": done.stderr.strip()[-1200:]}


def on(settings: tuple[str, ...]) -> Result:
    words = [word for setting in (*COMMON, *settings) for word in ("--set", setting)]
    return agent("on", *words)


class RefusedError(Exception):
    """The agent did not begin; its reason, and what it left."""


def begin(settings: tuple[str, ...], before: dict[str, object]) -> None:
    """`on`, which has to work; else everything is undone."""
    begun = on(settings)
    if begun["rc"]:
        agent("off")
        raise RefusedError({"refused": begun["error"], "left": testbed.left(before)})


def processes(supervisors: bool) -> list[int]:
    """The agent, and where asked for its supervisor."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_text().split("\0")
            if Path(words[0]).name == AGENT[0] and (supervisors or "supervise" not in words):
                found.append((("supervise" not in words), int(path.parent.name)))
    # The supervisor first: it would start the agent again.
    return [number for _, number in sorted(found)]


def transfer(way: str) -> Callable[[], Result]:
    return lambda: Transfer(way).figures()


def cured(way: str, settings: tuple[str, ...], modem: bool = False) -> Callable[[], Result]:
    """A transfer that begins after the agent; then `off`, and what is left."""

    def case() -> Result:
        before = testbed.state()
        with Modem() if modem else contextlib.nullcontext():
            begin(settings, before)
            time.sleep(2.5 if modem else 0)
            running = Transfer(way)
            running.wait(running.settle_s - 0.5)
            status = agent("status")
            result = running.figures()
            ended = agent("off")
        time.sleep(0.5)
        result |= {key: status.get(key) for key in ("cures", "problems")}
        flows = status.get("flows")
        result["applied"] = isinstance(flows, list) and any(flow.get("applied") for flow in flows)
        result["off"] = ended["rc"]
        result["left"] = testbed.left(before)
        return result

    return case


def existing() -> Result:
    """A download that begins before the agent. It takes long: its old queue has to drain first."""
    before = testbed.state()
    running = Transfer("down", seconds=26, settle_s=18)
    running.wait(3)
    begun = on(("receive.lambda=2", "uplink.mode=off"))
    on_s = running.now()
    result = running.figures()
    agent("off")
    time.sleep(0.5)
    return result | {"on": begun["rc"], "on_s": on_s, "left": testbed.left(before)}


def handed_over() -> Result:
    """An upload in which another agent takes over, and the cure stays; what both leave."""
    before = testbed.state()
    begin(ACKS, before)
    # An emulated processor needs up to 15 s to start an agent.
    running = Transfer("up", seconds=32, settle_s=24)
    running.wait(2)
    words = [word for setting in (*COMMON, *ACKS) for word in ("--set", setting)]
    argv = testbed.inside("c", *AGENT, "serve", "--take-over", *words)
    second = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert second.stdout is not None
    said = second.stdout.readline().strip()
    agents = len(processes(supervisors=False))
    result = running.figures()
    ended = agent("off")
    second.wait(30)
    time.sleep(0.5)
    return result | {
        "second": '"on"' in said,
        "agents": agents,
        "off": ended["rc"],
        "left": testbed.left(before),
    }


def without_types() -> Result:
    """Uploads where the kernel's types are hidden: with ACK-window rewriting, and with the gate."""
    testbed.shell("mount -t tmpfs none /sys/kernel/btf")
    try:
        gate = cured("up", GATE, modem=True)()
        return cured("up", ACKS)() | {"gate": gate}
    finally:
        testbed.shell("busybox umount /sys/kernel/btf")


def killed(both: bool) -> Callable[[], Result]:
    """kill -9 of the agent, or of agent and supervisor, in a transfer; what is left, and `off`.

    In a download with all cures. Where the kernel takes none for downloads, in an upload.
    """

    def case() -> Result:
        before = testbed.state()
        way = "down"
        try:
            begin(("receive.lambda=1.5", "uplink.mode=acks"), before)
        except RefusedError:
            way = "up"
            begin(ACKS, before)
        running = Transfer(way, seconds=14, settle_s=9)
        running.wait(5)
        for number in processes(supervisors=both):
            os.kill(number, 9)
        killed_s = running.now()
        result = running.figures() | {"killed_s": killed_s}
        result["left_after_kill"] = testbed.left(before)
        result["processes"] = len(processes(supervisors=True))
        ended = agent("off")
        time.sleep(0.5)
        return result | {"way": way, "off": ended["rc"], "left": testbed.left(before)}

    return case


def congestion_of_sockets() -> list[str]:
    """Congestion control of the client's connections."""
    listed = testbed.shell("ip netns exec c ss -Htin state established")
    return sorted({word for word in listed.split() if word in ("cubic", "bbr", "reno")})


def congestion(new: bool) -> Callable[[], Result]:
    """An upload whose congestion control the agent sets, and `off`.

    new: it begins after the agent, which leaves alone what existed before. Else it exists when the
    agent begins, and `off` gives back what it had.
    """

    def case() -> Result:
        before = testbed.state()
        settings = (*BBR, f"congestion.live={'false' if new else 'true'}")
        if new:
            begin(settings, before)
        running = Transfer("up", seconds=8, settle_s=6)
        running.wait(2)
        if not new:
            untreated = congestion_of_sockets()
            try:
                begin(settings, before)
            except RefusedError:
                running.figures()
                raise
        treated = congestion_of_sockets()
        agent("off")
        time.sleep(0.5)
        given_back = congestion_of_sockets()
        running.figures()
        found: Result = {"treated": treated, "after_off": given_back, "left": testbed.left(before)}
        return found if new else {"untreated": untreated, **found}

    return case


def conformance(packets: bool) -> Callable[[], Result]:
    """The agent's own tests, which run its BPF programs: of each what it said.

    packets: those of ACK-window rewriting, which take most of the time. Else all others.
    """

    def case() -> Result:
        said: dict[str, str] = {}
        for program in sorted(TESTS.iterdir()):
            if (program.name == PACKETS) != packets:
                continue
            done = subprocess.run(
                [program, "--show-output", "--test-threads=1"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TESTS_LIMIT_S,
            )
            own = laws.said(done.stdout)
            if done.returncode and "failed" not in own.values():
                own["all"] = f"failed: exit code {done.returncode}: {done.stderr[-400:]}"
            said |= {f"{program.name}: {test}": word for test, word in own.items()}
        return {"tests": said}

    return case


CASES: dict[str, Callable[[], Result]] = {
    "features": lambda: agent("features"),
    "conformance": conformance(packets=False),
    "conformance-acks": conformance(packets=True),
    "download": transfer("down"),
    "download-cured": cured("down", DOWNLOAD),
    "download-existing": existing,
    "upload": transfer("up"),
    "upload-acks": cured("up", ACKS),
    "upload-gate": cured("up", GATE, modem=True),
    "congestion-new": congestion(new=True),
    "congestion": congestion(new=False),
    "hand-over": handed_over,
    "without-types": without_types,
    "killed-agent": killed(both=False),
    "killed-both": killed(both=True),
}


def main() -> None:
    words = Path("/proc/cmdline").read_text().split()
    chosen = dict(word.split("=", 1) for word in words if "=" in word)["cases"].split(",")
    testbed.build()
    with open("/dev/ttyS1", "w", buffering=1) as results:
        for name in chosen:
            begun = time.monotonic()
            try:
                result = CASES[name]()
            except RefusedError as refused:
                result = refused.args[0]
            except Exception as error:
                trace = traceback.format_exc()[-1500:]
                result = {"failed": f"{type(error).__name__}: {error}"[:600], "trace": trace}
            result["seconds"] = round(time.monotonic() - begun, 1)
            print(json.dumps({name: result}), file=results)


main()

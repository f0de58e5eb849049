"""What packets can travel through: the floor, the emulator, and other emulators where they are installed.

For ours the sender's and the receiver's side are two namespaces; mahimahi and rattan make a namespace of their own
around the sender, inside one of ours.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "lab"))

import emulated_path
from emulated_path import (
    Lines,
    LinkPath,
    Setting,
    Tools,
    command_in,
    kernel_losses,
    path_testbed,
    softnet_losses,
)

# The length of the transmit queue of the floor's devices: as the emulator's.
TXQUEUELEN = 10_000

Maker = Callable[[Tools, Setting], AbstractContextManager[LinkPath]]


@contextlib.contextmanager
def floor(tools: Tools, setting: Setting, fifo: bool = False) -> Iterator[LinkPath]:
    """Our own minimal forwarder."""
    with tempfile.TemporaryDirectory() as scratch, path_testbed(Path(scratch), "a", "b") as made:
        before = softnet_losses()
        figures = (
            setting.delay_ms * 1000,
            setting.rate_bps,
            setting.buffer_bytes,
            TXQUEUELEN,
            setting.offload,
            fifo,
        )
        a, b = made.spaces.values()
        command = [str(tools.floor), a, "up", b, "down", *(str(int(f)) for f in figures)]
        # In the sender's namespace, as good as any: it enters those of its devices by name.
        process = made.start("a", *command)
        lines = Lines(process)
        lines.wait_for("ready")
        made.ip("a", "addr add 10.0.0.1/32 dev up", "route add 10.0.0.2/32 dev up src 10.0.0.1")
        made.ip("b", "addr add 10.0.0.2/32 dev down", "route add 10.0.0.1/32 dev down src 10.0.0.2")
        name = "floor, SCHED_FIFO" if fifo else "floor"
        ends = (command_in(made, "a"), command_in(made, "b"))
        path = LinkPath(name, *ends, "10.0.0.2", process.pid)
        yield path
        path.kernel = kernel_losses(made)
        path.kernel["softnet"] += softnet_losses() - before
        process.terminate()
        path.summary = json.loads(lines.wait_for("packets"))
        path.named["dropped"] = sum(path.summary["dropped"])
        path.named["refused"] = sum(path.summary["refused"])


def fast_floor(tools: Tools, setting: Setting) -> AbstractContextManager[LinkPath]:
    """The same before all others."""
    return floor(tools, setting, fifo=True)


def as_unprivileged() -> list[str]:
    """mahimahi refuses to be started by root."""
    return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def shell_of(wrapper: Sequence[str], variable: str) -> Callable[[Sequence[str]], list[str]]:
    """A command inside another emulator's shell; `ADDRESS` in it becomes what the emulator's variable says."""

    def wrapped(command: Sequence[str]) -> list[str]:
        inner = " ".join(
            f'"${variable}"' if word == "ADDRESS" else shlex.quote(word) for word in command
        )
        return [*wrapper, "sh", "-c", inner]

    return wrapped


def mahimahi_command(setting: Setting, scratch: Path) -> list[str]:
    """The nested shells of a setting."""
    command = ["mm-delay", str(round(setting.delay_ms))] if setting.delay_ms else []
    if setting.trace:
        queue = f"--uplink-queue=droptail --uplink-queue-args=bytes={setting.buffer_bytes}".split()
        command += ["mm-link", str(setting.trace), str(back_trace(scratch)), *queue, "--"]
    return command or ["mm-delay", "0"]


def back_trace(scratch: Path) -> Path:
    """The way back of mm-link needs a trace, too: the same gigabit for all."""
    path = scratch / "back.trace"
    path.write_text("".join("1\n" for _ in range(83)))
    return path


def rattan_command(setting: Setting) -> list[str]:
    """rattan's command line of a setting."""
    delay = f"{setting.delay_ms:g}ms"
    command = ["rattan", "link", "--uplink-delay", delay, "--downlink-delay", delay]
    if setting.trace:
        command += ["--uplink-trace", str(setting.trace)]
    elif setting.rate_bps:
        command += ["--uplink-bandwidth", f"{setting.rate_bps}bps"]
    return [*command, "--"]


@contextlib.contextmanager
def emulator(tools: Tools, setting: Setting) -> Iterator[LinkPath]:
    """`unbloat-emu` between two namespaces."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        emulated_path.emulator(Path(scratch), setting) as path,
    ):
        yield path


@contextlib.contextmanager
def other(name: str, variable: str, command: list[str]) -> Iterator[LinkPath]:
    """Another emulator: it starts again with each sender, so its processor time is not taken."""
    with tempfile.TemporaryDirectory() as scratch, path_testbed(Path(scratch), "m") as made:
        before = softnet_losses()
        wrapped = shell_of(made.argv("m", *command), variable)
        path = LinkPath(name, wrapped, command_in(made, "m"), "ADDRESS", 0)
        yield path
        path.kernel = kernel_losses(made)
        path.kernel["softnet"] += softnet_losses() - before


@contextlib.contextmanager
def mahimahi(tools: Tools, setting: Setting) -> Iterator[LinkPath]:
    """mm-delay and mm-link (setuid root, started by an unprivileged user)."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)
        command = [*as_unprivileged(), *mahimahi_command(setting, Path(scratch))]
        with other("mahimahi", "MAHIMAHI_BASE", command) as path:
            yield path


@contextlib.contextmanager
def rattan(tools: Tools, setting: Setting) -> Iterator[LinkPath]:
    """`rattan link`."""
    with other("rattan", "RATTAN_BASE", rattan_command(setting)) as path:
        yield path


def makers(tools: Tools) -> dict[str, Maker]:
    """All that can be measured here, by name; a line says what cannot."""
    known: dict[str, Maker] = {"floor": floor, "floor, SCHED_FIFO": fast_floor}
    if tools.emulator:
        known["unbloat-emu"] = emulator
    for name, program, maker in (("mahimahi", "mm-delay", mahimahi), ("rattan", "rattan", rattan)):
        if shutil.which(program):
            known[name] = maker
        else:
            print(f"{name} is left out: {program} is not on the PATH", flush=True)
    return known

"""Guests under QEMU whose clock counts instructions, stopped, stored, and resumed as often as one likes.

signal: a guest that stops itself (`guest/frozen.py`) · model: `-icount shift=0,sleep=off`: one instruction is a nanosecond of the
guest's clock, and an idle guest does not wait; the load of the host changes nothing · action: QEMU's migration to a file, and from
it · source: QEMU's documentation of `-icount`, of `migrate` and of `fw_cfg`

The guest's memory is a file. A guest that is stored writes to a copy of its own; one that only runs maps that file privately, so
that nothing is copied (`x-ignore-shared`).
"""

from __future__ import annotations

import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import image
import machine

# Of the guests' random numbers.
SEED = 1
# Without the two, the kernel copies by `rep movsb`, of which each byte would count as an instruction.
NO_BYTEWISE = ",-erms,-fsrm"
HUB = tuple(
    word
    for name in ("a", "b")
    for word in (
        "-netdev",
        f"hubport,id={name},hubid=0",
        "-device",
        f"virtio-net-pci,netdev={name},romfile=",
    )
)
# As many bytes in each word: the guest's kernel keeps the size.
WORD_BYTES = 256
POLL_S = 0.1
STOPPED = "guest-panicked"
# Of a stored guest.
MEMORY, DEVICES = "memory", "devices"
MEMORY_BYTES = 1 << 30


class GuestError(Exception):
    """A guest did not do what it had to do."""


class Guest:
    """One QEMU. `state`: the folder where another one was stored; `to`: the folder where this one will be."""

    def __init__(
        self,
        image: Path,
        initramfs: Path,
        release: str,
        folder: Path,
        word: dict[str, Any],
        state: Path | None = None,
        to: Path | None = None,
    ) -> None:
        self.to = to
        memory = _memory(state, to) if to else state / MEMORY if state else None
        self.console, self.results = folder / "console.txt", folder / "results.jsonl"
        monitor = folder / "monitor"
        options = [
            *("-accel", "tcg", "-cpu", machine.processor(release) + NO_BYTEWISE),
            *("-smp", "1", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot"),
            "-object",
            f"memory-backend-file,id=ram,size=1G,mem-path={memory},share={'on' if to else 'off'}",
            *("-machine", "pc,memory-backend=ram"),
            *("-kernel", str(image), "-initrd", str(initramfs)),
            "-append",
            "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off script=never_worse",
            *("-serial", f"file:{self.console}", "-serial", f"file:{self.results}"),
            *("-qmp", f"unix:{monitor},server=on,wait=off"),
            *("-device", "pvpanic-pci", "-action", "panic=pause"),
            *("-fw_cfg", f"name=opt/unbloat/word,string={_padded(word)}"),
            *HUB,
            *machine.clock(SEED),
        ]
        if state:
            options += ["-incoming", "defer"]
        self.errors = folder / "errors.txt"
        with self.errors.open("w") as errors:
            argv = ["qemu-system-x86_64", *options]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=errors)
        self.monitor = self._connect(monitor)
        self.answers = self.monitor.makefile()
        self.answers.readline()
        self.do("qmp_capabilities")
        shared = {"capability": "x-ignore-shared", "state": True}
        self.do("migrate-set-capabilities", capabilities=[shared])
        if state:
            self.do("migrate-incoming", uri=f"exec:cat {state / DEVICES}")
            self.wait_for(STOPPED, 120)
            self.do("cont")

    def _connect(self, path: Path) -> socket.socket:
        for _ in range(600):
            opened = socket.socket(socket.AF_UNIX)
            try:
                opened.connect(str(path))
            except OSError:
                opened.close()
                time.sleep(POLL_S)
                if self.process.poll() is not None:
                    break
            else:
                return opened
        raise GuestError(f"QEMU did not start: {self._said()}")

    def _said(self) -> str:
        return f"{self.errors.read_text()[-800:]} {self.result()} {self.console_end()}"

    def console_end(self) -> str:
        """The last that its kernel and its script said."""
        return self.console.read_text(errors="replace")[-4000:] if self.console.exists() else ""

    def do(self, command: str, **arguments: Any) -> Any:
        """A command of QEMU's monitor."""
        asked = json.dumps({"execute": command, "arguments": arguments}) + "\n"
        with suppress(OSError):
            self.monitor.sendall(asked.encode())
            for line in self.answers:
                answer = json.loads(line)
                if "return" in answer:
                    return answer["return"]
                if "error" in answer:
                    raise GuestError(f"{command}: {answer['error']}")
        raise GuestError(f"QEMU ended: {self._said()}")

    def wait_for(self, wanted: str, limit_s: float) -> None:
        """Until it has this state."""
        until = time.monotonic() + limit_s
        while (state := self.do("query-status")["status"]) != wanted:
            if time.monotonic() > until or state == "shutdown":
                raise GuestError(f"{state} instead of {wanted}: {self._said()}")
            time.sleep(POLL_S)

    def store(self, limit_s: float) -> None:
        """Runs until it stops itself, and stores that."""
        assert self.to
        self.wait_for(STOPPED, limit_s)
        if result := self.result():
            raise GuestError(str(result))
        self.do("migrate", uri=f"exec:cat > {self.to / DEVICES}")
        while (found := self.do("query-migrate"))["status"] != "completed":
            if found["status"] in ("failed", "cancelled"):
                raise GuestError(f"storing: {found}")
            time.sleep(POLL_S)

    def result(self) -> dict[str, Any] | None:
        """What it wrote."""
        for line in self.results.read_text(errors="replace").splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue
            if "result" in said:
                found: dict[str, Any] = said["result"]
                return found
        return None

    def answer(self, limit_s: float) -> dict[str, Any]:
        """Waits for what it writes at its end."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise GuestError(f"not done in {limit_s:g} s: {self.console_end()}") from None
        found = self.result()
        if found is None or "failed" in found:
            raise GuestError(f"{found or self.console_end()}")
        return found

    def end(self) -> None:
        """Ends QEMU."""
        self.process.kill()
        self.process.wait()
        self.answers.close()
        self.monitor.close()


def _memory(state: Path | None, to: Path) -> Path:
    """A file for the memory of a guest that will be stored."""
    to.mkdir()
    memory = to / MEMORY
    if state:
        subprocess.run(["cp", "--sparse=always", state / MEMORY, memory], check=True)
    else:
        with memory.open("wb") as made:
            made.truncate(MEMORY_BYTES)
    return memory


def _padded(word: dict[str, Any]) -> str:
    # A comma would end the option.
    return json.dumps(word).ljust(WORD_BYTES).replace(",", ",,")


@contextmanager
def guest(
    kernel: image.Kernel,
    initramfs: Path,
    word: dict[str, Any],
    state: Path | None = None,
    to: Path | None = None,
) -> Iterator[Guest]:
    """A guest from its boot, or from a stored state; ended with the block."""
    with tempfile.TemporaryDirectory(prefix="unbloat-guest-") as folder:
        made = Guest(kernel.image, initramfs, kernel.release, Path(folder), word, state, to)
        try:
            yield made
        finally:
            made.end()

"""Guests under QEMU whose clock counts instructions, stopped, stored, and resumed as often as one likes.

signal: a guest that stops itself (`guest/frozen.py`) · model: `-icount shift=0,sleep=off`: one instruction is a nanosecond of the
guest's clock, and an idle guest does not wait; the load of the host changes nothing · action: QEMU's migration to a file, and from
it · source: QEMU's documentation of `-icount`, of `migrate` and of `fw_cfg`
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

import machine

CLOCK = ("-icount", "shift=0,sleep=off", "-rtc", "base=2026-01-01,clock=vm", "-seed", "1")
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


class GuestError(Exception):
    """A guest did not do what it had to do."""


class Guest:
    """One QEMU. `state`: where another one's was stored."""

    def __init__(
        self,
        image: Path,
        initramfs: Path,
        release: str,
        folder: Path,
        word: dict[str, Any],
        state: Path | None = None,
    ) -> None:
        self.console, self.results = folder / "console.txt", folder / "results.jsonl"
        monitor = folder / "monitor"
        options = [
            *("-accel", "tcg", "-cpu", machine.processor(release) + NO_BYTEWISE),
            *("-smp", "1", "-m", "1024", "-nodefaults", "-display", "none", "-no-reboot"),
            *("-kernel", str(image), "-initrd", str(initramfs)),
            "-append",
            "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off script=never_worse",
            *("-serial", f"file:{self.console}", "-serial", f"file:{self.results}"),
            *("-qmp", f"unix:{monitor},server=on,wait=off"),
            *("-device", "pvpanic-pci", "-action", "panic=pause"),
            *("-fw_cfg", f"name=opt/unbloat/word,string={_padded(word)}"),
            *HUB,
            *CLOCK,
        ]
        if state:
            options += ["-incoming", f"exec:cat {state}"]
        self.errors = folder / "errors.txt"
        with self.errors.open("w") as errors:
            argv = ["qemu-system-x86_64", *options]
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=errors)
        self.monitor = self._connect(monitor)
        self.answers = self.monitor.makefile()
        self.answers.readline()
        self.do("qmp_capabilities")

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

    def store(self, to: Path, limit_s: float) -> None:
        """Runs until it stops itself, and stores that."""
        self.wait_for(STOPPED, limit_s)
        if result := self.result():
            raise GuestError(str(result))
        self.do("migrate", uri=f"exec:cat > {to}")
        while (found := self.do("query-migrate"))["status"] != "completed":
            if found["status"] in ("failed", "cancelled"):
                raise GuestError(f"storing: {found}")
            time.sleep(POLL_S)

    def resume(self) -> None:
        """Goes on from where another one stopped."""
        self.wait_for(STOPPED, 120)
        self.do("cont")

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


def _padded(word: dict[str, Any]) -> str:
    # A comma would end the option.
    return json.dumps(word).ljust(WORD_BYTES).replace(",", ",,")


@contextmanager
def guest(
    kernel: Any, initramfs: Path, word: dict[str, Any], state: Path | None = None
) -> Iterator[Guest]:
    """A guest from its boot, or from a stored state; ended with the block."""
    with tempfile.TemporaryDirectory(prefix="unbloat-guest-") as folder:
        made = Guest(kernel.image, initramfs, kernel.release, Path(folder), word, state)
        try:
            if state:
                made.resume()
            yield made
        finally:
            made.end()

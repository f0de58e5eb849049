"""Programs that are not ours, started so that they cannot outlive us."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def dies_with_us(number: int = signal.SIGKILL) -> Callable[[], None]:
    """For `preexec_fn`: the kernel sends the child this signal when we are gone, however that came about."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)

    return ask


def start(
    argv: list[str], *, when_we_die: int = signal.SIGKILL, **options: Any
) -> subprocess.Popen[bytes]:
    """A child that dies with us; its own standard input is empty."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(argv, preexec_fn=dies_with_us(when_we_die), **options)


def end(
    process: subprocess.Popen[bytes], number: int = signal.SIGTERM, timeout_s: float = 1.0
) -> None:
    """Asks it to end, then makes it."""
    if process.poll() is None:
        process.send_signal(number)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()


def adopt_orphans() -> None:
    """What our children leave behind becomes ours, not the machine's."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(timeout_s: float) -> None:
    """Waits for all that is still ours to end."""
    until = time.monotonic() + timeout_s
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return

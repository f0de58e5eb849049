"""A browser over its debugging pipe: JSON messages that end in NUL, commands on descriptor 3, answers on 4."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from unbloat.lab.traffic.subprocesses import adopt_orphans, dies_with_us, reap_orphans

Json = dict[str, Any]
Answer = Callable[[Json], None]

# For root in a closed namespace; nothing of its own on the network.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-client-side-phishing-detection",
    "--disable-domain-reliability",
    "--disable-features=OptimizationHints,MediaRouter,Translate,NetworkPrediction",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-proxy-server",
    "--remote-debugging-pipe",
)
# No connections before they are asked for: 2 is "never predict".
_PREFERENCES = {"net": {"network_prediction_options": 2}}
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


class Browser:
    """A headless Chromium."""

    def __init__(self, program: str, work: str) -> None:
        os.makedirs(f"{work}/profile/Default", exist_ok=True)
        with open(f"{work}/profile/Default/Preferences", "w", encoding="ascii") as file:
            json.dump(_PREFERENCES, file)
        adopt_orphans()
        theirs_in, self._out = (_high(fd) for fd in os.pipe())
        self.fd, theirs_out = (_high(fd) for fd in os.pipe())
        ask = dies_with_us(signal.SIGKILL)

        def prepare() -> None:
            ask()
            os.dup2(theirs_in, 3)
            os.dup2(theirs_out, 4)

        self.process = subprocess.Popen(
            [program, *_FLAGS, f"--user-data-dir={work}/profile", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=prepare,
            pass_fds=(3, 4),
            start_new_session=True,
            cwd=work,
            env={
                "PATH": os.environ.get("PATH", os.defpath),
                "HOME": work,
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
            },
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._rest = b""
        self._count = 0
        self._answers: dict[int, Answer] = {}
        self.on_event: Callable[[str, str, Json], None] = lambda _session, _method, _params: None

    def send(
        self, method: str, params: Json, session: str = "", then: Answer | None = None
    ) -> None:
        """A command; `then` gets the answer: `result` or `error`."""
        self._count += 1
        message: Json = {"id": self._count, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        if then is not None:
            self._answers[self._count] = then
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]

    def read(self, _events: int = 0) -> None:
        """What the browser said, handed out. Ends with an error where the browser has ended."""
        piece = os.read(self.fd, 1 << 20)
        if not piece:
            raise OSError("the browser ended")
        *messages, self._rest = (self._rest + piece).split(b"\0")
        for raw in messages:
            message = json.loads(raw)
            if "id" in message:
                then = self._answers.pop(message["id"], None)
                if then is not None:
                    then(message)
            else:
                self.on_event(
                    message.get("sessionId", ""), message["method"], message.get("params", {})
                )

    def wait(self, done: Callable[[], bool], timeout_s: float) -> None:
        """Hands out what it says until `done`."""
        until = time.monotonic() + timeout_s
        while not done():
            left = until - time.monotonic()
            if left <= 0:
                raise OSError(f"the browser did not answer within {timeout_s:g} s")
            if select.select([self.fd], [], [], left)[0]:
                self.read()

    def end(self) -> None:
        """Gone, with all its processes: there is nothing to be saved."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        reap_orphans(5.0)


def _high(fd: int) -> int:
    """Out of the way of descriptors 3 and 4."""
    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return high

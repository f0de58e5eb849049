"""`unbloat-emu` as a process: it writes events as JSON lines and reads the words `go` and `stop`.

Its events are `devices`, `started`, `counters` once a second, and `done`. Each event has a timeout. A program that dies,
stays silent or writes anything else becomes one `LabError` with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from unbloat.errors import LabError
from unbloat.lab.cleanup.session import Session
from unbloat.lab.process import Child
from unbloat.lab.requirements import found
from unbloat.lab.setup.namespaces import Device

# Making TUN devices takes milliseconds; traces of a day take seconds to read.
DEVICES_S, STARTED_S = 20.0, 5.0
# After the scenario's end: writing the logs.
DONE_S = 20.0

Event = dict[str, Any]


class Emulator:
    """One run of `unbloat-emu`; `namespaces` gives each node of the scenario its namespace."""

    def __init__(
        self,
        session: Session,
        scenario: Path,
        out: Path,
        namespaces: Mapping[str, str],
        logs: Path,
        options: Sequence[str] = (),
    ) -> None:
        program = found("unbloat-emu") or "unbloat-emu"
        argv = [program, "run", str(scenario), "--out", str(out)]
        for node, namespace in namespaces.items():
            argv += ["--netns", f"{node}={namespace}"]
        self.child = Child(session, "unbloat-emu", [*argv, *options], logs)
        self.summary: Event | None = None

    def devices(self) -> list[Device]:
        """The TUN devices, which are there now."""
        event = self.expect("devices", DEVICES_S)
        try:
            return [Device.of(device) for device in event["devices"]]
        except (KeyError, TypeError, IndexError) as error:
            raise LabError(f"unbloat-emu named devices without {error}") from None

    def go(self) -> tuple[int, int]:
        """Starts the links' clock; time zero on the monotonic clock and on the calendar's, in ns."""
        self.child.say("go")
        event = self.expect("started", STARTED_S)
        try:
            return int(event["t0_monotonic_ns"]), int(event["t0_unix_ns"])
        except (KeyError, TypeError, ValueError) as error:
            raise LabError(f"unbloat-emu started without its time ({error})") from None

    def expect(self, kind: str, within_s: float) -> Event:
        """The next event, which must be this one."""
        event = parsed(self.child.line(within_s, f'event "{kind}"'))
        if event["event"] != kind:
            raise LabError(f'unbloat-emu: expected event "{kind}", got "{event["event"]}"')
        return event

    def read_events(self) -> list[Event]:
        """What it has said since; the summary is kept."""
        events = [parsed(line) for line in self.child.read_lines()]
        for event in events:
            if event["event"] == "done":
                self.summary = event
        return events

    def stop(self) -> Event:
        """Ends it before the end of the scenario; its summary."""
        self.child.say("stop")
        return self.finish()

    def finish(self) -> Event:
        """Waits for the summary, lets go of the devices, and waits for the program's end."""
        while self.summary is None:
            event = parsed(self.child.line(DONE_S, 'event "done"'))
            if event["event"] == "done":
                self.summary = event
        self.child.let_go()
        if not self.child.wait(DONE_S):
            raise LabError(f"unbloat-emu did not end within {DONE_S:g} s of being done")
        if self.child.process.returncode != 0:
            raise self.child.failure(self.child.status())
        return self.summary


def parsed(line: str) -> Event:
    """A line as an event."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise LabError(f"unbloat-emu said what is no event: {line[:100]!r}")
    return event

"""What can go wrong, in few names: everything is an `UnbloatError`; an unreadable input is a `CaptureError`, a scenario
that cannot be run a `ScenarioError`, a lab that failed while it ran a `LabError`, what unbloat-agent refused an `AgentError`."""

from __future__ import annotations


class UnbloatError(ValueError):
    """Anything that unbloat refuses, with one clear line."""


class CaptureError(UnbloatError):
    """An input that cannot be read from its very beginning: no capture, or one of a format that is not known."""


class ScenarioError(UnbloatError):
    """A scenario that cannot be run: a wrong key or value, with its line; or contradictions."""


class TraceMissing(ScenarioError):
    """A scenario that names a trace which is not there."""


class LabError(UnbloatError):
    """A lab that failed while it ran: a program died, a namespace vanished, the disk is full."""


class AgentError(UnbloatError):
    """What unbloat-agent could not do, with its own exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class LinkUnknown(UnbloatError):
    """A capture that does not show the rate of a link, with what it shows."""

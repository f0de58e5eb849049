"""What can go wrong, in two names: everything is an `UnbloatError`, an unreadable input is a `CaptureError`."""

from __future__ import annotations


class UnbloatError(ValueError):
    """Anything that unbloat refuses, with one clear line."""


class CaptureError(UnbloatError):
    """An input that cannot be read from its very beginning: no capture, or one of a format that is not known."""

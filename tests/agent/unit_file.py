"""The unit file, read as far as the tests need it."""

from __future__ import annotations

from pathlib import Path

UNIT = Path(__file__).resolve().parents[2] / "packaging/systemd/unbloat-agent.service"


def values(key: str) -> list[str]:
    """Every value of a key."""
    lines = [
        line.partition("=") for line in UNIT.read_text().splitlines() if not line.startswith("#")
    ]
    return [value for name, _, value in lines if name == key]


def value(key: str) -> str:
    """Of a key that is there once."""
    (one,) = values(key)
    return one


def capabilities() -> list[str]:
    """As CAP_BPF."""
    return value("CapabilityBoundingSet").split()


def with_only(*held: str) -> list[str]:
    """A command line's beginning, so that what follows has these capabilities and never gets another, whatever it starts."""
    words = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in held)])
    return ["setpriv", "--no-new-privs", "--bounding-set", words, "--inh-caps", words]

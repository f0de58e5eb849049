"""Scenarios as objects: what a scenario file says, built in Python.

Plain values, lists and dictionaries under the keys of docs/scenario.md become TOML text. Nothing is checked here: the one
checker is the native side, which names key and nearest known name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unbloat.errors import ScenarioError
from unbloat.text.toml import TomlError, inline, toml

Value = str | int | float | bool | Sequence[Any] | Mapping[str, Any]


@dataclass
class Scenario:
    """A scenario; its fields are the top-level keys of a file, and what is None is left to its default.

    >>> upload = Scenario("upload", duration="10 s")
    >>> upload.link("up", rate="4 Mbit/s", delay="30 ms").link("down", rate="20 Mbit/s", delay="30 ms")
    ... # doctest: +ELLIPSIS
    Scenario(name='upload', ...
    >>> upload.flow(**{"from": "client"}, congestion="cubic", app={"kind": "bulk"})  # doctest: +ELLIPSIS
    Scenario(name='upload', ...
    """

    name: str = "scenario"
    about: str | None = None
    duration: str | None = None
    warmup: str | None = None
    seed: int | None = None
    bin: str | None = None
    nodes: list[dict[str, Value]] = field(default_factory=list)
    links: dict[str, dict[str, Value]] = field(default_factory=dict)
    device: dict[str, Value] | None = None
    router: dict[str, Value] | None = None
    flows: list[dict[str, Value]] = field(default_factory=list)
    probes: list[dict[str, Value]] = field(default_factory=list)
    changes: list[dict[str, Value]] = field(default_factory=list)
    lab: dict[str, Value] | None = None
    sweep: dict[str, Value] = field(default_factory=dict)
    expectations: list[dict[str, Value]] = field(default_factory=list)
    traces: dict[str, str] = field(default_factory=dict)

    def link(self, name: str, **keys: Value) -> Scenario:
        """Adds `[link.NAME]`."""
        self.links[name] = keys
        return self

    def flow(self, **keys: Value) -> Scenario:
        """Adds a `[[flow]]`; `from` is a word of Python: write `sender="client"` for it, `receiver` is the table."""
        self.flows.append(
            {"from" if key == "sender" else key: value for key, value in keys.items()}
        )
        return self

    def probe(self, **keys: Value) -> Scenario:
        """Adds a `[[probe]]`."""
        self.probes.append(keys)
        return self

    def change(self, at: str, **keys: Value) -> Scenario:
        """Adds a `[[change]]`; keys with dots go into `**{"link.up.rate": "1 Mbit/s"}`."""
        self.changes.append({"at": at, **keys})
        return self

    def expect(self, **keys: Value) -> Scenario:
        """Adds an `[[expect]]`."""
        self.expectations.append(keys)
        return self

    def to_dict(self) -> dict[str, Any]:
        """As the file's keys are called."""
        keys = {
            "name": self.name,
            "about": self.about,
            "duration": self.duration,
            "warmup": self.warmup,
            "seed": self.seed,
            "bin": self.bin,
            "traces": self.traces,
            "node": self.nodes,
            "link": self.links,
            "device": self.device,
            "router": self.router,
            "flow": self.flows,
            "probe": self.probes,
            "change": self.changes,
            "lab": self.lab,
            "sweep": self.sweep,
            "expect": self.expectations,
        }
        return {key: value for key, value in keys.items() if value not in (None, [], {})}

    def to_toml(self) -> str:
        """The text of the file."""
        return text_of(self.to_dict())


def text_of(table: Mapping[str, Any]) -> str:
    """A dictionary as the text of a file."""
    try:
        return toml(table)
    except TomlError as error:
        raise ScenarioError(str(error)) from None


def value_text(value: object, key: str) -> str:
    """The value of a key as the text of a file has it."""
    try:
        return inline(value, key).as_string()
    except TomlError as error:
        raise ScenarioError(str(error)) from None


@dataclass(frozen=True)
class Source:
    """The text of a scenario and where it came from."""

    text: str
    path: Path | None
    """None: it was no file."""

    @property
    def directory(self) -> Path | None:
        """Where the file lies."""
        return None if self.path is None else self.path.parent

    @property
    def prefix(self) -> str:
        """What an error begins with."""
        return "" if self.path is None else f"{self.path}: "


def names_a_file(text: str) -> bool:
    """Whether there is a file of this name; a text that no name can be is none."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # longer than a name may be, or with a zero byte
        return False


def source_of(scenario: str | os.PathLike[str] | Mapping[str, Any] | Scenario | Source) -> Source:
    """The text of whatever a scenario was given as: a path, TOML text (it has a line break or `=`), a dictionary, an object."""
    if isinstance(scenario, Source):
        return scenario
    if isinstance(scenario, Scenario):
        return Source(scenario.to_toml(), None)
    if isinstance(scenario, Mapping):
        return Source(text_of(scenario), None)
    if (
        isinstance(scenario, str)
        and ("\n" in scenario or "=" in scenario)
        and not names_a_file(scenario)
    ):
        return Source(scenario, None)
    path = Path(scenario)
    if path.is_dir():
        raise IsADirectoryError(21, "is a directory, not a scenario", str(path))
    try:
        return Source(path.read_text(encoding="utf-8"), path)
    except UnicodeDecodeError:
        raise ScenarioError(f"{path}: is no text") from None

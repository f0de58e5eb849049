"""One run of a scenario: what it needs, and what it gives. Both can be sent to another process or machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unbloat.errors import ScenarioError, TraceMissing
from unbloat.run.arrow import EXTRA, arrow_table
from unbloat.scenario.sweep import Labels

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Job:
    """One run to be made. Everything in it can be sent to another process or machine."""

    text: str
    prefix: str
    labels: Labels
    overrides: tuple[tuple[str, str], ...]
    seed: int
    traces: dict[str, str]
    pcap: str | None
    events: bool


Result = tuple[dict[str, Any], "dict[str, pa.Table]"]


@dataclass(frozen=True)
class Failed:
    """A run that could not be made where it was sent, and why."""

    reason: str


def run_job(job: Job, progress: Callable[[float], None] | None = None) -> Result | TraceMissing:
    """One run, here and now: what it says of itself, and its tables. A missing trace is an answer, not an error."""
    import unbloat._native as _native

    try:
        result: dict[str, Any] = _native.simulate(
            job.text,
            overrides=list(job.overrides),
            seed=job.seed,
            traces=job.traces,
            pcap_dir=job.pcap,
            events=job.events,
            progress=progress or nothing_to_say,
        )
    except _native.TraceMissing as error:
        return TraceMissing(f"{job.prefix}{error}")
    except _native.ScenarioError as error:
        raise ScenarioError(f"{job.prefix}{error}") from None
    tables = {name: arrow_table(columns) for name, columns in result["tables"].items()}
    assert tables.keys() >= {*EXTRA, "samples"}, "the native side makes every table"
    return dict(result["run"]), tables


def nothing_to_say(_share: float) -> None:
    """Without a callback the native side would never look for Ctrl-C."""

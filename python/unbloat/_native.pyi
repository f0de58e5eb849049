"""The extension module: reads captures and hands out whole columns. Nothing is decided in Python that was decided there."""

from collections.abc import Callable
from typing import Any

Column = tuple[str, str, bytes, bytes | None, bytes | None]
"""name, type (u8 u16 u32 u64 f32 f64 bool str), data, Arrow validity bitmap or None, int32 offsets of a str."""

class CaptureError(ValueError): ...
class ScenarioError(ValueError): ...
class TraceMissing(ScenarioError): ...

Pairs = list[tuple[str, str]]
"""Dotted keys of a scenario with their values as TOML or plain text; or labels."""

version: str

def analyze(
    paths: list[str],
    *,
    bin_ms: float = 100.0,
    samples: str | list[int] | None = None,
    events: str | list[int] | None = None,
    segments: str | list[int] | None = None,
    max_segments: int = 200_000,
    span: tuple[int, int] | None = None,
    unpacked: tuple[int, int] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, object]: ...
def locate(
    paths: list[str],
    *,
    bin_ms: float = 100.0,
    connection: int | None = None,
    one_clock: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]: ...
def fit_rate(
    paths: list[str],
    flow: int,
    *,
    beside: list[int],
    draws: int,
    seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]: ...
def modem_log(path: str) -> dict[str, Any]: ...
def modem_clock(path: str, captures: list[str], hosts: list[str]) -> dict[str, Any]: ...
def mos(delay_ms: float, loss: float) -> float: ...
def pause_steps(
    pauses_s: list[float], extras_ms: list[float]
) -> list[tuple[float, float, float]]: ...
def voice_scores(
    every_s: float,
    jitter_buffer_s: float | None,
    jitter_min_s: float | None,
    sent_s: list[float],
    arrived_s: list[tuple[float, float]],
) -> tuple[list[tuple[float, float]], float | None]: ...
def rules() -> list[tuple[str, str, str, str]]: ...
def linktypes() -> list[tuple[int, str]]: ...
def simulate(
    text: str,
    *,
    overrides: Pairs = ...,
    seed: int | None = None,
    traces: dict[str, str] = ...,
    pcap_dir: str | None = None,
    events: bool = False,
    progress: Callable[[float], None] | None = None,
) -> dict[str, object]: ...
def scenario_plan(
    text: str, *, overrides: Pairs = ..., seed: int | None = None, traces: dict[str, str] = ...
) -> str: ...
def scenario_runs(text: str, *, set: Pairs = ...) -> list[tuple[Pairs, Pairs, int]]: ...
def scenario_traces(text: str, *, set: Pairs = ...) -> list[str]: ...
def scenario_about(text: str) -> tuple[str, str]: ...
def scenario_expectations(text: str, *, set: Pairs = ...) -> list[dict[str, object]]: ...
def scenario_metrics() -> list[tuple[str, str, bool, str]]: ...
def algorithms() -> list[dict[str, object]]: ...

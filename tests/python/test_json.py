"""`--json`: names and nesting of the format, and nothing that is not JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import unbloat
from unbloat.run.json import json_line, nested, run_object


def test_a_statistic_is_an_object_and_null_when_never_measured(capture: Path) -> None:
    flows = run_object(unbloat.analyze(capture))["flows"]
    assert flows[0]["rtt_ms"] == {
        "count": 9000,
        "min": 50.2,
        "p50": 800.0,
        "p95": 2100.0,
        "p99": 2300.0,
        "max": 2411.0,
    }
    assert flows[0]["rwnd_bytes"] == {"min": 65000, "max": 1050000, "last": 1050000}
    assert flows[1]["rtt_ms"] is None
    assert not any(name.startswith("rtt_ms_") for name in flows[0])


def test_evidence_is_an_object(capture: Path) -> None:
    findings = run_object(unbloat.analyze(capture))["findings"]
    assert findings[1]["values"] == {"queue_ms_p95": 2040.0, "grade": "F"}


def test_the_object_has_the_keys_of_the_format(capture: Path) -> None:
    value = run_object(unbloat.analyze(capture))
    assert list(value) == ["format", "run", "connections", "flows", "findings"]
    value = run_object(unbloat.analyze(capture), series=("samples", "events"))
    assert list(value)[5:] == ["samples", "events"]


def test_one_connection_brings_only_its_own_rows(capture: Path) -> None:
    value = run_object(unbloat.analyze(capture), [1], ["samples"])
    assert [row["id"] for row in value["flows"]] == [2, 3]
    assert {row["flow"] for row in value["samples"]} == {3}
    assert [row["rule"] for row in value["findings"]] == ["capture-quality"]


def test_nothing_in_it_is_nan_or_infinite(capture: Path) -> None:
    def refuse(text: str) -> Any:
        raise AssertionError(text)

    json.loads(
        json_line(run_object(unbloat.analyze(capture), series=("samples",))), parse_constant=refuse
    )
    assert nested({"loss_rate": math.nan, "rtt_ms_min": math.inf, "rtt_ms_max": 2.0}) == {
        "loss_rate": None,
        "rtt_ms": {"min": None, "max": 2.0},
    }

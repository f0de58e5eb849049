"""The correlation of a stage's delay with the bytes there, on rows of known truth."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from unbloat.claims.measure import delay_by_bytes
from unbloat.run.figures import Figures


def queued(*rows: tuple[float, int, float | None], stage: str = "qdisc") -> Figures:
    """A run whose link `up` has these bins: time, bytes, delay."""
    made: list[dict[str, Any]] = [
        {"link": "up", "stage": stage, "t_s": t, "bytes": here, "delay_ms": delay}
        for t, here, delay in rows
    ]
    run = SimpleNamespace(queues=pa.Table.from_pylist(made))
    return cast("Figures", SimpleNamespace(run=run, warmup_s=1.0))


def test_a_delay_in_proportion_to_the_bytes_correlates_fully() -> None:
    figures = queued((1.0, 100, 1.0), (2.0, 200, 2.0), (3.0, 400, 4.0))
    assert delay_by_bytes(figures, "up", "qdisc") == pytest.approx(1.0)


def test_bins_of_the_warm_up_and_without_a_delay_do_not_count() -> None:
    figures = queued(
        (0.5, 900, 0.0), (1.0, 100, 1.0), (2.0, 200, 2.0), (2.5, 900, None), (3.0, 300, 3.0)
    )
    assert delay_by_bytes(figures, "up", "qdisc") == pytest.approx(1.0)


def test_above_the_highest_level_of_a_report_all_bytes_count_alike() -> None:
    figures = queued(
        (1.0, 150_000, 1.0), (2.0, 200_000, 2.0), (3.0, 300_000, 3.0), stage="firmware"
    )
    assert delay_by_bytes(figures, "up", "firmware") is None


def test_two_bins_make_no_correlation() -> None:
    assert delay_by_bytes(queued((1.0, 1, 1.0), (2.0, 2, 2.0)), "up", "qdisc") is None

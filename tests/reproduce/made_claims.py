"""The text of a made-up claim: a scenario of seconds, and a figure with its control."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

SCENARIO = """
name = "made-up"
duration = "4 s"
[link.down]
rate = "4 Mbit/s"
delay = "20 ms"
queue = { kind = "droptail", limit = "1 MB" }
[link.up]
rate = "4 Mbit/s"
delay = "20 ms"
[[flow]]
name = "download"
from = "server"
[[probe]]
name = "ping"
[sweep]
queue = [{ label = "deep" }, { label = "shallow", "link.down.queue" = { kind = "droptail", limit = "20 KB" } }]
[claim]
title = "A deep queue delays"
source = "a test"
mark = "own"
group = "made up"
"""
FIGURE = """
[[figure]]
name = "ping"
metric = "probe_rtt_ms p95"
run = { queue = "deep" }
min = "100 ms"
why = "it is made up"
control = { run = { queue = "shallow" } }
"""

Writer = Callable[..., Path]

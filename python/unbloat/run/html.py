"""A run in a notebook: the verdict and a small chart; no script, nothing loaded.

Colours are mid-tones that can be read on light and dark paper; text takes the notebook's own colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from unbloat.run.tables import RunTables
from unbloat.run.verdict import verdict
from unbloat.text.format import direction_id, ms_text, plural, rate_text, seconds_text
from unbloat.text.terminal import on_grid

WIDTH, HEIGHT = 640, 90
# Points per curve: one per 2 px.
POINTS = WIDTH // 2
GOODPUT, RTT = "#3b82c4", "#d97706"


def run_html(run: RunTables) -> str:
    """Verdict, warnings and the main flow's goodput and RTT over time."""
    info = run.info
    packets = f"{plural(info['packets'], 'packet')} in " if "packets" in info else ""
    head = f"{packets}{seconds_text(info.get('duration_s'))}, {plural(run.connections.num_rows, 'connection')}"
    warnings = "".join(f"<li>{escape(line)}</li>" for line in run.warnings)
    parts = [
        f"<p><b>{escape(run.name)}</b> · {escape(head)}</p>",
        f"<p>{escape(verdict(run))}</p>",
        f"<ul>{warnings}</ul>" if warnings else "",
        chart(run),
    ]
    return f"<div style='max-width:{WIDTH + 20}px'>{''.join(parts)}</div>"


def chart(run: RunTables) -> str:
    """Two curves over one time axis, each on its own scale, as inline SVG."""
    if run.main_flow is None:
        return ""
    try:
        samples = run.samples(flow=run.main_flow)
    except ValueError:  # a stored run without samples: the verdict alone
        return ""
    if samples.num_rows < 2:
        return ""
    times = samples.column("t_s").to_pylist()
    curves = []
    for row, (label, name, colour, text) in enumerate(
        (("goodput", "goodput_bps", GOODPUT, rate_text), ("RTT", "rtt_ms", RTT, ms_text))
    ):
        values = on_grid(times, samples.column(name).to_pylist(), min(POINTS, len(times)))
        top = max((value for value in values if value is not None), default=0.0)
        if top > 0:
            base = (row + 1) * (HEIGHT + 22)
            caption = f"{label}, up to {text(top)}"
            curves.append(
                f"<text x='0' y='{base - HEIGHT - 6}' font-size='12' fill='currentColor'>{escape(caption)}</text>"
            )
            curves += [
                f"<polyline points='{line}' fill='none' stroke='{colour}' stroke-width='1.5'/>"
                for line in lines(values, top, base)
            ]
    height = 2 * (HEIGHT + 22) + 16
    axis = (
        f"<text x='0' y='{height - 2}' font-size='11' fill='currentColor'>{times[0]:.1f} s</text>"
    )
    axis += f"<text x='{WIDTH}' y='{height - 2}' font-size='11' text-anchor='end' fill='currentColor'>{times[-1]:.1f} s</text>"
    label = escape(
        f"Goodput and round-trip time of connection {direction_id(run.main_flow)} over time"
    )
    box = f"viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' style='max-width:100%;height:auto'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' role='img' aria-label='{label}' {box}>{''.join(curves)}{axis}</svg>"


def lines(values: Sequence[float | None], top: float, base: int) -> list[str]:
    """Points of a curve, broken where nothing was measured."""
    result: list[str] = []
    current: list[str] = []
    for place, value in enumerate([*values, None]):
        if value is not None:
            x = place * WIDTH / max(len(values) - 1, 1)
            current.append(f"{x:.1f},{base - value / top * HEIGHT:.1f}")
        elif current:
            # A lone point would be invisible as a line.
            result.append(" ".join(current if len(current) > 1 else current * 2))
            current = []
    return result

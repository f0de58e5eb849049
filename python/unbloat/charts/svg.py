"""What drawings in SVG are made of: axes with round ticks, lines, words and marks.

Colours are classes of the page's style (`page/svg.css.j2`), so that a drawing follows its theme.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

# Ticks of an axis, about.
TICKS = 5
# Width of a character of 11 px, for labels that must not overlap.
CHARACTER = 6.2


@dataclass(frozen=True)
class Scale:
    """From values to places in the drawing."""

    least: float
    most: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value; beyond the ends it is at the end."""
        low, high, here = self.least, self.most, value
        if self.log:
            low, high, here = math.log10(low), math.log10(high), math.log10(max(value, low))
        share = (here - low) / (high - low)
        return self.begin + min(max(share, 0.0), 1.0) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round numbers within the ends."""
        if self.log:
            powers = range(math.floor(math.log10(self.least)), math.ceil(math.log10(self.most)) + 1)
            steps = (1, 2, 5) if self.most / self.least < 300 else (1,)
            found = [step * 10.0**power for power in powers for step in steps]
            return [one for one in found if self.least <= one <= self.most]
        step = nice((self.most - self.least) / TICKS)
        first = math.ceil(self.least / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.most / step + 1e-9) + 1)]


def nice(step: float) -> float:
    """1, 2 or 5 times a power of ten, at least as large."""
    power: float = 10.0 ** math.floor(math.log10(step))
    return next(times * power for times in (1, 2, 5, 10) if times * power >= step * 0.999)


def number_text(value: float) -> str:
    """A number of an axis or a mark: three digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def upright(scale: Scale, tick: float, top: float, bottom: float) -> str:
    """A line of the grid with its number below."""
    x = scale(tick)
    return line(x, top, x, bottom, "grid") + text(x, bottom + 14, number_text(tick), "middle")


def line(x0: float, y0: float, x1: float, y1: float, kind: str = "guide") -> str:
    """A straight line."""
    return f'<line x1="{x0:.1f}" y1="{y0:.1f}" x2="{x1:.1f}" y2="{y1:.1f}" class="{kind}"/>'


def text(x: float, y: float, words: str, anchor: str, kind: str = "tick") -> str:
    """Words in the drawing."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'


def diamond(x: float, y: float, kind: str) -> str:
    """A mark of the source: empty, so that it is seen upon ours."""
    return f'<path d="M{x - 5:.1f} {y:.1f}L{x:.1f} {y - 5:.1f}L{x + 5:.1f} {y:.1f}L{x:.1f} {y + 5:.1f}Z" class="diamond {kind}"/>'

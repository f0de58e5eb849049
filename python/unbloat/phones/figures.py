"""Figures of `reproduce phones`: each series of QCUT's study of traffic, and how far from it a fitted population may be.

The figure of a series is the distance of Kolmogorov and Smirnov at the paper's points: the largest difference between the
share of values there. Tolerances were fixed before the judged phones were made.
"""

from __future__ import annotations

from dataclasses import dataclass

from unbloat.corpus.report.paper import PANELS

# The read-offs are good to about a hundredth, and quantiles of a paper of 15 students are no better than this.
OFTEN = 0.05
# With hundreds of values the sampling error alone is some hundredths (1.36 / √n at n = 500: 0.06).
SOME = 0.10
# … and with about a hundred more than a tenth.
FEW = 0.20
# Forty values and less: 1.36 / √40 = 0.22, beside which the interval needs room.
RARE = 0.30
# Of shares near 1, at a tenth and less of the values: the same in proportion, for very many, thousands and hundreds of them.
TAIL_OFTEN, TAIL_SOME, TAIL_FEW = 0.02, 0.03, 0.05
TOLERANCES = {
    ("qcut_fig1", "upload"): OFTEN,
    ("qcut_fig1", "download"): OFTEN,
    ("qcut_fig1", "both"): OFTEN,
    ("qcut_upload_share", "all sessions"): OFTEN,
    ("qcut_upload_share", "largest 20 %"): SOME,
    ("qcut_fig2", "upload, 0.1–1 MB"): SOME,
    ("qcut_fig2", "upload, 1–10 MB"): FEW,
    ("qcut_fig2", "upload, > 10 MB"): RARE,
    ("qcut_fig2", "download, 0.1–1 MB"): SOME,
    ("qcut_fig2", "download, 1–10 MB"): SOME,
    ("qcut_fig2", "download, > 10 MB"): FEW,
    ("qcut_fig3", "upload"): SOME,
    ("qcut_fig3", "download"): SOME,
    ("qcut_fig3", "upload, 0.1–1 MB"): FEW,
    ("qcut_fig3", "upload, 1–10 MB"): FEW,
    ("qcut_fig3", "upload, > 10 MB"): RARE,
    ("qcut_fig4", "< 5 KB up"): OFTEN,
    # Whole transfers have one queue each: the seconds are many, the transfers are few.
    ("qcut_fig4", "5–100 KB up"): FEW,
    ("qcut_fig4", "> 100 KB up"): FEW,
    # The paper has these curves from their 90th and 95th percentile on. Phones whose ACKs wait for nothing are 0.10, 0.05 and
    # 0.10 away, and must not pass.
    ("qcut_fig4b", "< 5 KB up"): TAIL_OFTEN,
    ("qcut_fig4b", "5–100 KB up"): TAIL_SOME,
    ("qcut_fig4b", "> 100 KB up"): TAIL_FEW,
    ("qcut_fig5", "all slots"): OFTEN,
}


@dataclass(frozen=True)
class Figure:
    """A series with its points."""

    view: str
    series: str
    source: str
    title: str
    points: tuple[tuple[float, float], ...]
    """x and the paper's share."""
    tolerance: float

    @property
    def key(self) -> str:
        """Its name in the store."""
        return f"{self.view} {self.series}"


FIGURES = tuple(
    Figure(panel.view, name, panel.source, panel.title, points, TOLERANCES[panel.view, name])
    for panel in PANELS
    for name, points in panel.series.items()
)

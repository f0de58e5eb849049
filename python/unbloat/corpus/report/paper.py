"""What QCUT's study of traffic says (IMC 2016, section 3): 15 students, 900 GB, from 2013 to 2015.

Its figures are vector graphics: the points were read from them, a few are from its text. They are numbers, not pictures.
"""

from __future__ import annotations

from dataclasses import dataclass

QUARTERS = (0.25, 0.5, 0.75)
TO_90 = (*QUARTERS, 0.9)
TO_95 = (*TO_90, 0.95)
SIZES = (0.75, 0.9, 0.95, 0.99)


@dataclass(frozen=True)
class Panel:
    """One drawing: some series of a view, with the paper's points of each as (x, F)."""

    view: str
    title: str
    source: str
    axis: str
    """What x is, with its unit."""
    least: float
    most: float
    """Ends of the axis: the same for every corpus, so that two pages can be compared."""
    series: dict[str, tuple[tuple[float, float], ...]]
    log: bool = True
    note: str = ""


def at(shares: tuple[float, ...], *values: float) -> tuple[tuple[float, float], ...]:
    """Points of a curve from its quantiles."""
    return tuple(zip(values, shares, strict=True))


PANELS = (
    Panel(
        "qcut_fig1",
        "Size of a session",
        "figure 1",
        "bytes of a session, MB",
        1e-4,
        1e3,
        {
            "upload": (*at(SIZES, 0.0043, 0.0177, 0.0376, 0.248), (1.0, 0.996)),
            "download": (*at(SIZES, 0.0080, 0.0457, 0.173, 4.63), (1.0, 0.978)),
            "both": at((0.5, *SIZES), 0.00106, 0.0142, 0.0659, 0.217, 5.33),
        },
        note="A minute of silence of the device ends a session.",
    ),
    Panel(
        "qcut_upload_share",
        "Upload's share of a session",
        "section 3, text",
        "bytes sent by the device, % of the session's",
        0,
        100,
        {"all sessions": at(QUARTERS, 19, 50, 57), "largest 20 %": at(QUARTERS, 9, 20, 42)},
        log=False,
    ),
    Panel(
        "qcut_fig2",
        "Duration of uploads",
        "figure 2",
        "duration, s",
        0.1,
        1e3,
        {
            "upload, 0.1–1 MB": at(TO_90, 0.61, 1.91, 5.55, 13.5),
            "upload, 1–10 MB": at(TO_90, 8.4, 13.9, 16.8, 28),
            "upload, > 10 MB": at(TO_90, 46.6, 61.4, 148, 307),
        },
        note="A second of silence ends a flow.",
    ),
    Panel(
        "qcut_fig2",
        "Duration of downloads",
        "figure 2",
        "duration, s",
        0.1,
        1e3,
        {
            "download, 0.1–1 MB": at(TO_90, 0.42, 0.67, 1.31, 3.1),
            "download, 1–10 MB": at(TO_90, 2.2, 5.3, 15.2, 32),
            "download, > 10 MB": at(TO_90, 10.2, 18.5, 55, 99),
        },
    ),
    Panel(
        "qcut_fig3",
        "Rate of flows above 3 s",
        "figure 3a",
        "rate, Mbit/s",
        1e-3,
        1e2,
        {
            "upload": at(TO_95, 0.0036, 0.029, 0.79, 3.1, 4.4),
            "download": at(TO_95, 0.10, 0.69, 2.2, 5.9, 8.9),
        },
    ),
    Panel(
        "qcut_fig3",
        "Rate of uploads above 3 s, by size",
        "figure 3b",
        "rate, Mbit/s",
        1e-2,
        1e2,
        {
            "upload, 0.1–1 MB": at(TO_90, 0.20, 0.31, 0.44, 0.65),
            "upload, 1–10 MB": at(TO_90, 1.4, 2.4, 3.89, 5.5),
            "upload, > 10 MB": (*at(TO_90, 1.29, 2.2, 3.2, 4.8), (12.8, 1.0)),
        },
    ),
    Panel(
        "qcut_fig4",
        "Rise of the RTT in a second",
        "figure 4a",
        "mean RTT above each flow's smallest, ms",
        1,
        1e4,
        {
            "< 5 KB up": at((0.5, 0.75, 0.9, 0.95), 22, 53, 193, 288),
            "5–100 KB up": (*at((0.5, 0.75), 28, 143), (500.0, 0.83)),
            "> 100 KB up": (*at(TO_90, 33, 129, 381, 773), (1000.0, 0.93)),
        },
        note="Seconds with less than 5 KB down, by bytes up.",
    ),
    Panel(
        "qcut_fig4b",
        "On-device delay of downloads in a second",
        "figure 4b",
        "mean time from data that came in to its ACK, ms",
        0.1,
        1e4,
        {
            "< 5 KB up": at((0.9, 0.95, 0.99), 14, 27, 61),
            "5–100 KB up": at((0.95, 0.99), 14, 34),
            "> 100 KB up": at((0.9, 0.95, 0.99), 21, 126, 797),
        },
        note="Captures beside the device alone, by bytes up.",
    ),
    Panel(
        "qcut_fig5",
        "TCP connections in a second",
        "figure 5",
        "connections with data",
        0,
        10,
        {
            "all slots": tuple(
                zip(
                    (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0),
                    (0.718, 0.856, 0.925, 0.959, 0.974, 0.981, 0.989, 0.993),
                    strict=True,
                )
            )
        },
        log=False,
    ),
)

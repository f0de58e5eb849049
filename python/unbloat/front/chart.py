"""The scatter of the front: every control on every link, goodput over the untreated one against the excess of the p95.

Up and to the left is better. A small mark is a control on a link, a large one its median over the links. It is drawn by
matplotlib, which is an extra (`pip install unbloat[plots]`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from unbloat.errors import UnbloatError
from unbloat.front.judge import Field, Point
from unbloat.scenario.unjudged import marked

# Marks and colours by control: colours that colour-blind readers distinguish (Okabe and Ito 2008), ours filled and dark.
LOOK = {
    "nothing": ("#999999", "x"),
    "codel": ("#56B4E9", "s"),
    "fq_codel": ("#0072B2", "s"),
    "bbr": ("#E69F00", "^"),
    "bbr3": ("#D55E00", "^"),
    "rledbat": ("#CC79A7", "v"),
    "copa": ("#F0E442", "v"),
    "cake-autorate": ("#009E73", "D"),
    "gate": ("#000000", "P"),
}
OURS = ("#000000", "o")
CONSTANT = ", λ"
"""In the label of a window law with a constant λ, whose mark is not filled."""
# The excess has a logarithmic axis; below a millisecond nothing is distinguished.
MIN_MS = 1.0
# Two panels side by side fit a page of the docs.
SIZE_IN = (10.0, 4.6)


def chart(fields: Sequence[Field], path: Path) -> None:
    """Saves the scatter."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise UnbloatError(
            "the scatter needs matplotlib, which is an extra: pip install 'unbloat[plots]'"
        ) from None
    matplotlib.rcParams["svg.hashsalt"] = "front"  # the same figures give the same file
    figure = Figure(figsize=SIZE_IN, layout="constrained")
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for panel, way in zip(panels, ("down", "up"), strict=True):
        chosen = [field for field in fields if way_of(field) == way]
        panel.set_title(f"{way}: {len(chosen)} links")
        for label, (xs, ys) in places(chosen).items():
            colour, mark = LOOK.get(label, OURS)
            fill = "none" if CONSTANT in label else "full"
            look = {"marker": mark, "color": colour, "fillstyle": fill, "linestyle": ""}
            panel.plot(xs, ys, markersize=3, alpha=0.5, **look)
            panel.plot([median(xs)], [median(ys)], markersize=9, label=marked(label), **look)
        panel.set_xscale("log")
        panel.set_xlabel("p95 of a ping above that of the sender that knows the link, ms")
        panel.axhline(0.95, color="#999999", linewidth=0.6)
        panel.grid(alpha=0.2)
        if chosen:
            panel.legend(fontsize=8, loc="lower right")
    panels[0].set_ylabel("goodput over the untreated one")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def way_of(field: Field) -> str:
    """The direction of the transfer."""
    return "up" if field.group.endswith("up") else "down"


def places(fields: Sequence[Field]) -> dict[str, tuple[list[float], list[float]]]:
    """Where each control lies, at its defaults."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for field in fields:
        for point in defaults(field):
            share = field.share(point)
            if share is not None:
                xs, ys = found.setdefault(point.label, ([], []))
                xs.append(max(field.excess_ms(point), MIN_MS))
                ys.append(share)
    return found


def defaults(field: Field) -> list[Point]:
    """Every control at its published defaults."""
    return [point for point in field.points if point.variant == "default"]

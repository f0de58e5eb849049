"""What `unbloat list` prints: every rule, limit, chart and link type, and the manual page of one rule."""

from __future__ import annotations

from unbloat.errors import UnbloatError
from unbloat.wording import LIMITS

KINDS = ("rules", "limits", "charts", "linktypes")
Entry = tuple[str, str]


def entries(kind: str) -> list[Entry]:
    """Name and one line about it."""
    if kind == "rules":
        from unbloat import _native

        return [(name, about) for name, about, _, _ in _native.rules()]
    if kind == "limits":
        return [(name, words[2]) for name, words in LIMITS.items()]
    if kind == "charts":
        from unbloat.charts import CHARTS

        return [(chart.name, chart.about) for chart in CHARTS]
    if kind == "linktypes":
        from unbloat import _native

        return [(str(number), name) for number, name in _native.linktypes()]
    raise UnbloatError(
        f"nothing is listed under {kind!r}; there are {', '.join(KINDS)}{nearest(kind, KINDS)}"
    )


def page(kind: str, name: str) -> str:
    """The manual page of a rule; of the others the one line that there is."""
    if kind == "rules":
        from unbloat import _native

        for rule, about, source, text in _native.rules():
            if rule == name:
                head = f"{rule}: {about}"
                return f"{head}\n{'=' * len(head)}\n\n{text.strip()}\n\nSource: {source}"
    known = entries(kind)
    for entry, about in known:
        if entry == name:
            return f"{entry}: {about}"
    raise UnbloatError(
        f"no {kind.removesuffix('s')} is called {name!r}{nearest(name, [entry for entry, _ in known])}"
    )


def nearest(name: str, known: list[str] | tuple[str, ...]) -> str:
    """A hint at the name that was probably meant."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""

"""What `unbloat list` prints: every rule, limit, chart, link type, algorithm, metric and scenario, and the manual page of one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from unbloat.bundled import scenarios
from unbloat.errors import UnbloatError
from unbloat.text.format import LIMITS
from unbloat.text.terminal import Terminal

KINDS = ("rules", "limits", "charts", "linktypes", "algorithms", "metrics", "scenarios")
Entry = tuple[str, str]
# Names that an error lists.
HINTS = 4


def entries(kind: str) -> list[Entry]:
    """Name and one line about it."""
    if kind == "rules":
        import unbloat._native as _native

        return [(name, about) for name, about, _, _ in _native.rules()]
    if kind == "limits":
        return [(name, words[2]) for name, words in LIMITS.items()]
    if kind == "charts":
        from unbloat.charts import CHARTS

        return [(chart.name, chart.about) for chart in CHARTS]
    if kind == "linktypes":
        import unbloat._native as _native

        return [(str(number), name) for number, name in _native.linktypes()]
    if kind == "algorithms":
        return [entry for _, group in families() for entry in group]
    if kind == "metrics":
        import unbloat._native as _native

        return [
            (name, f"{about} ({on}{', a distribution' if distribution else ''})")
            for name, on, distribution, about in _native.scenario_metrics()
        ]
    if kind == "scenarios":
        return [(path.stem, scenario_about(path)) for path in scenarios()]
    raise UnbloatError(
        f"nothing is listed under {kind!r}; there are {', '.join(KINDS)}{nearest(kind, [(known, '') for known in KINDS])}"
    )


def groups(kind: str) -> list[tuple[str | None, list[Entry]]]:
    """Entries under their headings: algorithms by family, everything else in one."""
    return [*families()] if kind == "algorithms" else [(None, entries(kind))]


def families() -> list[tuple[str, list[Entry]]]:
    """Algorithms by family."""
    import unbloat._native as _native

    found: dict[str, list[Entry]] = {}
    for one in _native.algorithms():
        found.setdefault(str(one["family"]), []).append((str(one["name"]), str(one["about"])))
    return list(found.items())


def scenario_about(path: Path) -> str:
    """What a scenario file says of itself; it may be a claim, which has more tables than a scenario."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return f"cannot be read: {error}"
    return str(data.get("about") or data.get("name") or "")


def algorithm_pages(name: str) -> str | None:
    """Source and parameters of every algorithm of that name; families share some."""
    import unbloat._native as _native

    pages = []
    for one in _native.algorithms():
        if one["name"] != name:
            continue
        head = f"{name}, {one['family']}: {one['about']}"
        lines = [head, "=" * len(head), "", f"Source: {one['source']}"]
        params: Any = one["params"]
        for param in params:
            limits = f", {param['min']} to {param['max']}" if param["min"] is not None else ""
            default = "not given" if param["default"] is None else param["default"]
            lines += [
                "",
                f"{param['name']} = {default}  ({param['unit']}{limits})",
                f"    {param['about']}",
            ]
        pages.append("\n".join(lines))
    return "\n\n".join(pages) or None


def page(kind: str, name: str) -> str:
    """The manual page of a rule or an algorithm, the text of a scenario; of the others the one line that there is."""
    if kind == "algorithms" and (text := algorithm_pages(name)) is not None:
        return text
    if kind == "scenarios":
        for path in scenarios():
            if path.stem == name:
                return path.read_text(encoding="utf-8").rstrip()
    if kind == "rules":
        import unbloat._native as _native

        for rule, about, source, text in _native.rules():
            if rule == name:
                head = f"{rule}: {about}"
                return f"{head}\n{'=' * len(head)}\n\n{text.strip()}\n\nSource: {source}"
    known = entries(kind)
    for entry, about in known:
        if entry == name:
            return f"{entry}: {about}"
    raise UnbloatError(f"no {kind.removesuffix('s')} is called {name!r}{nearest(name, known)}")


def nearest(name: str, known: list[tuple[str, str]]) -> str:
    """A hint at the name that was probably meant: one that is like it, else those whose text has the word."""
    from difflib import get_close_matches

    if close := get_close_matches(name, [entry for entry, _ in known], n=1):
        return f"; did you mean {close[0]}?"
    named = [entry for entry, about in known if name and name.lower() in about.lower()]
    return f"; its word is in the text of {', '.join(named[:HINTS])}" if named else ""


def show_list(kind: str, name: str | None) -> None:
    """`unbloat list`"""
    terminal = Terminal(sys.stdout)
    if name is not None:
        for text in page(kind, name).splitlines():
            terminal.line(text)
        return
    found = groups(kind)
    room = max((len(entry) for _, known in found for entry, _ in known), default=0)
    for place, (heading, known) in enumerate(found):
        if heading is not None:
            if place:
                terminal.line()
            terminal.line(terminal.style(heading, "dim"))
        for entry, about in known:
            terminal.wrapped(
                about, terminal.style(entry.ljust(room), "bold") + "  ", " " * (room + 2)
            )

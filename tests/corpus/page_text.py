"""Tables of a page as text."""

from __future__ import annotations

from html.parser import HTMLParser


class Tables(HTMLParser):
    """Rows of every table, cell by cell; what stands below a share in small is behind a `|`."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begins a table, a row or a cell."""
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self.inside = True
        elif tag == "span" and ("class", "interval") in attrs:
            self.tables[-1][-1][-1] += "|"

    def handle_endtag(self, tag: str) -> None:
        """Ends a cell."""
        if tag in ("td", "th"):
            self.inside = False

    def handle_data(self, data: str) -> None:
        """Text of a cell."""
        if self.inside:
            self.tables[-1][-1][-1] += data


def table(page: str, first: str) -> list[list[str]]:
    """The rows of the table whose first heading is `first`, without its headings."""
    parser = Tables()
    parser.feed(page)
    return next(rows[1:] for rows in parser.tables if rows[0][0] == first)

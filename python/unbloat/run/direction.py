"""One direction of a connection, by the connection's id and an arrow: `3→` is its data from a to b, `3←` from b to a.

`3` alone is the direction with more payload. Shells read `<` and `>` themselves, so that these need quotes.
"""

from __future__ import annotations

import re

from unbloat.errors import UnbloatError
from unbloat.run.run import Run
from unbloat.run.tables import Row

FORM = re.compile(r"(\d+)(?:(→|>)|(←|<))?")


def main_direction(run: Run, connection: int) -> Row:
    """The flow that carried more: payload where there is some, else bytes on the wire."""
    pair = [run.flow(2 * connection), run.flow(2 * connection + 1)]
    return max(
        pair, key=lambda flow: (flow["payload_bytes"] or 0, flow["wire_bytes"] or 0, -flow["id"])
    )


def flow_of(run: Run, text: str) -> int:
    """The flow that `text` names. Raises `UnbloatError` where it is not of that form, or there is no such connection."""
    match = FORM.fullmatch(text.strip())
    if match is None:
        raise UnbloatError(
            f"{text}: expected the id of a connection, with an arrow for one direction: 3, 3→ or 3←"
        )
    connection = int(run.connection(int(match[1]))["id"])
    if match[2]:
        return 2 * connection
    return 2 * connection + 1 if match[3] else int(main_direction(run, connection)["id"])

"""Names of the connections in a status of the agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unbloat.text.format import endpoint_text

ARROWS = {"receive": "↓", "acks down": "↓", "acks up": "↑"}


def flow_name(flow: Mapping[str, Any]) -> str:
    """A connection as its remote end, with the direction of its data."""
    arrow = ARROWS.get(str(flow.get("cure")), "·")
    return (
        f"{arrow} {endpoint_text(str(flow.get('remote') or ''), flow.get('remote_port'), width=39)}"
    )


def flow_key(flow: Mapping[str, Any]) -> str:
    """Identifies a connection."""
    return f"{flow.get('cure')} {flow.get('remote')} {flow.get('remote_port')} {flow.get('local_port')}"

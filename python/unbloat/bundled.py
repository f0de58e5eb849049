"""What comes with unbloat: small captures made by the project itself (samples/README.md says how), and scenarios."""

from __future__ import annotations

from pathlib import Path

from unbloat.errors import UnbloatError

# Installed beside this file; in a source tree at its top.
PLACES = (Path(__file__).parent / "samples", Path(__file__).parents[2] / "samples")
# The one that shows the most: a queue of seconds, and then a receive window that is full.
FIRST = "bloated-cubic-upload"
PATTERNS = ("*.pcapng.zst", "*.pcapng.gz", "*.pcapng", "*.pcap.zst", "*.pcap.gz", "*.pcap")


# Claims and examples as scenario files, the same way.
SCENARIO_PLACES = (Path(__file__).parent / "scenarios", Path(__file__).parents[2] / "scenarios")


def scenarios() -> list[Path]:
    """The bundled scenario files, by name; none where unbloat was installed without them."""
    for place in SCENARIO_PLACES:
        if found := sorted(place.glob("*.toml")):
            return found
    return []


def samples() -> list[Path]:
    """The bundled captures: the bloated upload first, the others by name."""
    for place in PLACES:
        found = {path for pattern in PATTERNS for path in place.glob(pattern)}
        if found:
            return sorted(found, key=lambda path: (not path.name.startswith(FIRST), path.name))
    raise UnbloatError(f"no bundled captures in {PLACES[0]}: unbloat was installed without them")

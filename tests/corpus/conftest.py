"""A few captures of short transfers, made once by the simulator: equal in every run of the tests."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import unbloat

UPLOAD = """
name = "upload"
about = "A short upload, for tests."
duration = "4 s"
[link.up]
rate = "{rate} Mbit/s"
delay = "20 ms"
queue = {{ kind = "droptail", limit = "300 packets" }}
[link.down]
rate = "20 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
stop = "{stop} s"
"""
RATES_MBIT = (2, 5, 10, 20)


@pytest.fixture(scope="session")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Four captures of a client, the smallest first."""
    made = []
    for rate in RATES_MBIT:
        folder = tmp_path_factory.mktemp(f"rate{rate}")
        scenario = folder / "upload.toml"
        scenario.write_text(UPLOAD.format(rate=rate, stop=2))
        unbloat.simulate(scenario, pcap=folder)
        made.append(next(folder.rglob("client.pcapng")))
    return made


@pytest.fixture
def phones(tmp_path: Path, captures: list[Path]) -> Path:
    """A folder per phone, three captures in each."""
    top = tmp_path / "phones"
    for phone in range(3):
        folder = top / f"phone{phone}"
        folder.mkdir(parents=True)
        for number in range(3):
            shutil.copy(
                captures[(phone + number) % len(captures)], folder / f"capture-{number}.pcapng"
            )
    return top

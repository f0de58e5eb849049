"""What `unbloat measure` says of Wi-Fi, on a real kernel with radios of mac80211_hwsim, judged by `iw`.

One guest with one of Debian's kernels for hardware. The radios have no air between them: every packet arrives, the signal
is the same all the time. The server's radio leaves the cell for a moment.
"""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import Any

import archive
import machine
import prepare
import pytest
import run
from requirements import require, unavailable

from unbloat.lab.requirements import found

FAMILY = "6.12"
SEED = 1


@pytest.fixture(scope="module")
def guest() -> dict[str, Any]:
    """The surroundings of a measurement, and what iw showed before and after it."""
    require("unbloat-measure", *run.PROGRAMS, "iw")
    if platform.machine() != "x86_64":
        unavailable("kernels", "guests need the programs of an x86-64 host")
    program = Path(found("unbloat-measure") or "unbloat-measure")
    try:
        made = prepare.guest(FAMILY, program, flavour=archive.WHOLE)
    except archive.Unavailable as why:
        unavailable("kernels", str(why))
    ran: machine.Run = made.run(["wifi"], words="script=wifi", seed=SEED)
    if "wifi" not in ran.cases:
        pytest.fail(f"{ran.why_missing()}; the end of its console:\n{ran.console}", pytrace=False)
    result = ran.cases["wifi"]
    assert "failed" not in result, result["failed"]
    return result


def number(text: str, name: str) -> float:
    """A figure of iw."""
    match = re.search(rf"{name}:\s*(-?[\d.]+)", text)
    assert match, f"iw says nothing of {name}: {text}"
    return float(match[1])


def test_the_station_is_as_iw_shows_it(guest: dict[str, Any]) -> None:
    around, before, after = guest["surroundings"], guest["before"], guest["after"]
    assert around["kind"] == "wifi", guest["error"]
    wifi = around["wifi"]
    assert wifi["signal_dbm"] == number(after["station"], "signal")
    # Of the last packet: those of the measurement's end are the same in both.
    assert wifi["sent_mbps"] == number(after["station"], "tx bitrate")
    packets, retries, failed = (
        number(after["station"], name) - number(before["station"], name)
        for name in ("tx packets", "tx retries", "tx failed")
    )
    assert packets > 100, "it measured"
    assert failed > 0, "the server's radio was off for a moment"
    # iw also counts the few packets between its own readings and the measurement's.
    assert wifi["retries_per_packet"] == pytest.approx(retries / packets, rel=0.02)
    assert wifi["failed_share"] == pytest.approx(failed / packets, rel=0.02)


def test_a_survey_of_other_channels_says_nothing_of_this_one(guest: dict[str, Any]) -> None:
    """The driver has times of the scan, and marks no channel as the one in use."""
    survey = guest["after"]["survey"]
    assert number(survey, "channel busy time") > 0
    assert "[in use]" not in survey
    assert guest["surroundings"]["wifi"]["channel_busy_share"] is None


def test_nothing_names_the_network_or_a_station(guest: dict[str, Any]) -> None:
    address = re.search(r"Station (\S+)", guest["after"]["station"])
    assert address
    assert address[1] not in str(guest["surroundings"])
    assert "cell" not in str(guest["surroundings"])

"""What a measurement says of the client's device: its queue disciplines, and the modem behind it.

Ethernet named as a modem's device, with queue disciplines of `tc`; a program `mmcli` that prints what mmcli 1.20.4 printed of a
modem with LTE and 5G. Wi-Fi is judged in `tests/kernels/test_wifi.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from path import Measured, ended
from requirements import require

CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
DEVICE = "wwan0"
RATE = ("rate", "20mbit")
MODEM = "/org/freedesktop/ModemManager1/Modems/8"
IMEI = "490154203237518"
# What it printed, without empty parts; the equipment's number is of a test of the standard.
PRINTED = {
    "-L": {"modem-list": [MODEM]},
    f"-m {MODEM}": {
        "modem": {
            "3gpp": {"imei": IMEI, "operator-code": "00101", "operator-name": "TheOperator"},
            "generic": {
                "access-technologies": ["lte", "5gnr"],
                "equipment-identifier": IMEI,
                "ports": ["cdc-wdm0 (qmi)", f"{DEVICE} (net)"],
                "signal-quality": {"recent": "yes", "value": "70"},
                "state": "connected",
            },
        }
    },
    f"-m {MODEM} --signal-get": {
        "modem": {
            "signal": {
                "5g": {"error-rate": "--", "rsrp": "-101.00", "rsrq": "-12.00", "snr": "3.00"},
                "evdo": {"ecio": "--", "error-rate": "--", "io": "--", "rssi": "--", "sinr": "--"},
                "lte": {"rsrp": "-96.00", "rsrq": "-11.00", "rssi": "-67.00", "snr": "12.40"},
                "refresh": {"rate": "5"},
                "threshold": {"error-rate": "no", "rssi": "0"},
            }
        }
    },
}


class Modem(Measured):
    """Client and server, joined by a device that is named as a modem's."""

    def build(self) -> None:
        """Addresses, and 20 Mbit/s at the client."""
        self.veth("client", "server", DEVICE)
        for node, address in (("client", CLIENT), ("server", SERVER)):
            self.address(node, DEVICE, f"{address}/24")
        for words in (
            ("qdisc", "add", "dev", DEVICE, "root", "handle", "1:", "htb", "default", "10"),
            ("class", "add", "dev", DEVICE, *("parent", "1:", "classid", "1:10"), "htb", *RATE),
            ("qdisc", "add", "dev", DEVICE, "parent", "1:10", "pfifo", "limit", "20"),
        ):
            self.ask("client", "tc", *words)


@pytest.fixture
def modem(tmp_path: Path) -> Iterator[Modem]:
    require("root", "unbloat-measure", "tc")
    sysctls = {"net.ipv6.conf.default.disable_ipv6": "1"}
    with Modem(tmp_path, "client", "server", server=SERVER, sysctls=sysctls) as made:
        made.serve()
        yield made


def mmcli(folder: Path) -> Path:
    """A program of that name, in a folder."""
    folder.mkdir()
    lines = [f"'{words} -J') echo '{json.dumps(text)}' ;;" for words, text in PRINTED.items()]
    program = folder / "mmcli"
    program.write_text("\n".join(('#!/bin/sh\ncase "$*" in', *lines, "*) exit 1 ;;\nesac\n")))
    program.chmod(0o755)
    return folder


def measured(modem: Modem, path: str, *words: str) -> tuple[str, int, dict[str, Any]]:
    """The screen, or the exit code and the result."""
    # With the namespace's own /sys, which the testbed leaves as it is.
    begin = ("ip", "netns", "exec", modem.spaces["client"], "env", f"PATH={path}")
    program = (modem.program, *modem.target, "--quick", "--phases", "up", "--yes")
    client = modem.start("client", *begin, *program, *words)
    if "--json" in words:
        return "", *ended(client)
    return client.communicate(timeout=60)[0], client.returncode, {}


def test_queue_disciplines_and_the_modem_are_in_the_result(modem: Modem, tmp_path: Path) -> None:
    path = f"{mmcli(tmp_path / 'bin')}:/usr/bin:/bin"
    _, _, result = measured(modem, path, "--json")
    around = result["surroundings"]
    assert (around["device"], around["kind"], around["qdisc"]) == (DEVICE, "modem", "htb: pfifo")
    found = around["modem"]
    assert (found["technologies"], found["signal_percent"]) == (["lte", "5gnr"], 70)
    signals = {one.pop("technology"): one for one in found["signals"]}
    assert signals == {
        "5g": {"rssi_dbm": None, "rsrp_dbm": -101, "rsrq_db": -12, "snr_db": 3},
        "lte": {"rssi_dbm": -67, "rsrp_dbm": -96, "rsrq_db": -11, "snr_db": 12.4},
    }
    assert not [word for word in (IMEI, "TheOperator", "00101") if word in str(result)]
    screen, _, _ = measured(modem, path)
    assert (
        f"Modem {DEVICE}: lte, 5gnr; signal 70 %; 5g -101 dBm, SNR 3 dB; lte -96 dBm, SNR 12 dB."
        in screen
    )


def test_without_its_program_nothing_is_known_of_the_modem(modem: Modem, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _, _, result = measured(modem, str(tmp_path / "empty"), "--json")
    around = result["surroundings"]
    assert (around["kind"], around["modem"]) == ("modem", None)

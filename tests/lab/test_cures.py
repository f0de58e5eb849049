"""Where an agent runs and how it is configured: from plans alone."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from running import SHORT, plan_of

from unbloat.lab.agent.config import Cure, configuration, cures, unsupported_cures
from unbloat.lab.setup.unsupported import unsupported_in_plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RATE = '{ kind = "drwa", form = "rate", alpha = 8, lambda = 1.5 }'
TETHERED = """
duration = "2 s"
node = [{ name = "laptop" }, { name = "phone", window = WINDOW }, { name = "server" }]
[[flow]]
name = "first"
from = "FROM"
to = "TO"
"""
LINK = '[[link]]\nname = "{0}-{1}"\nfrom = "{0}"\nto = "{1}"\nrate = "2 Mbit/s"\ndelay = "5 ms"\n'
ENDS = ("laptop", "phone"), ("phone", "laptop"), ("phone", "server"), ("server", "phone")


def tethered(start: str, end: str, window: str = RATE) -> str:
    """A laptop behind a phone that has a law on forwarded ACKs."""
    text = TETHERED.replace("WINDOW", window).replace("FROM", start).replace("TO", end)
    return text + "".join(LINK.format(*pair) for pair in ENDS)


def agent_config(text: str, cure: Cure) -> dict[str, Any]:
    """The agent's configuration, read."""
    plan = plan_of(text)
    device = "" if cure.link is None else plan["links"][cure.link]["name"]
    return tomllib.loads(configuration(cure, device, Path("/cgroup"), Path("/emu/telemetry.sock")))


def only_cure(text: str) -> tuple[Cure, dict[str, Any]]:
    """The one agent of a scenario."""
    plan = plan_of(text)
    assert unsupported_in_plan(plan) == []
    (cure,) = cures(plan)
    return cure, agent_config(text, cure)


def download(law: str, more: str = "") -> str:
    """The short scenario the other way round, with a law of the receiver."""
    text = SHORT.replace('from = "client"\n', f'from = "server"\n[flow.receiver]\nwindow = {law}\n')
    return text + more


def test_a_receiver_with_drwa_has_an_agent_with_its_parameters_and_nothing_else() -> None:
    law = '{ kind = "drwa", lambda = 1.5, alpha = 14, quick = true, min_window = 3, rtt_min_age = "30 s" }'
    cure, config = only_cure(download(law))
    assert (cure.node, cure.link) == (0, None)
    assert config["scope"] == {"cgroup": "/cgroup", "device": ""}
    receive = config["receive"]
    assert (receive["enabled"], receive["lambda"], receive["form"]) == (True, 1.5, "paper")
    assert (receive["average"], receive["quick"], receive["floor"]) == (0.875, True, 3)
    assert (receive["start"], receive["only"]) == ("0 B", [])
    assert (receive["largest"], receive["rtt_min_age"]) == ("16777216 B", "30000000 us")
    # An RTTmin that ages is that of one connection.
    assert (receive["shared_minimum"], receive["fair"]) == (False, False)
    assert config["uplink"] == {"mode": "off"}
    assert config["forward"]["enabled"] is False
    assert config["trial"]["enabled"] is False


def test_the_agents_own_law_averages_the_rate_and_may_be_fair() -> None:
    law = '{ kind = "drwa", form = "agent", fair = true }'
    _, config = only_cure(download(law))
    assert (config["receive"]["form"], config["receive"]["fair"]) == ("rate", True)


def test_without_any_law_there_is_no_agent() -> None:
    assert cures(plan_of(SHORT)) == []


def test_uploads_are_held_on_the_acks_that_come_in_local_and_tethered() -> None:
    for start in ("phone", "laptop"):
        cure, config = only_cure(tethered(start, "server"))
        assert (cure.node, cure.receive, cure.forward) == (1, None, None)
        assert config["scope"]["device"] == "phone-server"
        assert (config["uplink"]["mode"], config["uplink"]["lambda"]) == ("acks", 1.5)
        assert (config["receive"]["enabled"], config["forward"]["enabled"]) == (False, False)


def test_downloads_of_a_host_behind_the_node_are_forwarded() -> None:
    _, config = only_cure(tethered("server", "laptop"))
    assert (config["forward"]["enabled"], config["forward"]["lambda"]) == (True, 1.5)
    assert config["scope"]["device"] == "phone-server"
    assert config["uplink"] == {"mode": "off"}


def test_a_law_on_forwarded_acks_needs_no_agent_where_none_are_forwarded() -> None:
    assert cures(plan_of(tethered("server", "phone"))) == []


def test_a_gate_is_the_agents_where_the_scenario_says_so() -> None:
    text = SHORT + '[device]\ngate = { kind = "qcut_d", target = "30 ms", floor = 4 }\n'
    assert cures(plan_of(text)) == []
    _, config = only_cure(text + '[lab]\ngate = "agent"\n')
    assert config["uplink"] == {
        "mode": "gate",
        "telemetry": "/emu/telemetry.sock",
        "driver": False,
        "target": "30000 us",
        "slack": "0 us",
        "floor": 4,
        "patience": "1000000 us",
        "hold": False,
        "pace": False,
    }


def test_where_only_some_hosts_are_limited_the_agent_is_configured_with_them() -> None:
    nodes = (
        'node = [{ name = "a" }, { name = "server-1" }, { name = "server-2" }]\nduration = "2 s"\n'
    )
    text = nodes + "".join(
        LINK.format(*pair) for one in ("server-1", "server-2") for pair in (("a", one), (one, "a"))
    )
    text += '[[flow]]\nfrom = "server-1"\nto = "a"\n[[flow]]\nfrom = "server-2"\nto = "a"\n'
    text += f"[flow.receiver]\nwindow = {RATE}\n"
    _, config = only_cure(text)
    assert config["receive"]["only"] == ["10.0.0.3/32"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            download(RATE, '[[flow]]\nname = "other"\nfrom = "server"\n'),
            "other: window autotune beside drwa from the same host: unbloat-agent knows downloads by where they come from",
        ),
        (
            download(
                RATE,
                '[[flow]]\nname = "other"\nfrom = "server"\n[flow.receiver]\nwindow = "drwa"\n',
            ),
            "client: flow0, other want different laws of their windows; an agent has one",
        ),
        (
            download('{ kind = "drwa", lambda = 0.5 }'),
            "flow0: window.lambda = 0.5: unbloat-agent wants 1 at least",
        ),
        (
            download('{ kind = "drwa", estimator = "window" }'),
            "flow0: window.estimator window: unbloat-agent measures by timestamps where there are any",
        ),
        (
            tethered("laptop", "server", '"drwa"'),
            "phone: window.form = paper: on forwarded ACKs unbloat-agent has rate",
        ),
        (
            tethered("laptop", "phone").replace("server", "mast"),
            "phone: window: no way leads to a node called server…, so that it has no uplink",
        ),
        (
            SHORT + '[device]\ngate = "qcut_b"\n[lab]\ngate = "agent"\n',
            "client: gate qcut_b is none of unbloat-agent's (qcut_d is)",
        ),
        (
            SHORT + '[device]\ngate = { kind = "qcut_d", refuse = true }\n',
            "client: gate.refuse: the emulator has a queue above its gate; unbloat-agent has none (lab.gate)",
        ),
        (
            SHORT + f'[device]\ngate = "qcut_d"\nwindow = {RATE}\n[lab]\ngate = "agent"\n',
            "client: gate and window: an agent holds uploads in one way",
        ),
        (
            SHORT
            + '[device]\n[lab]\ngate = "agent"\n[[change]]\nat = "1 s"\n"device.gate" = "qcut_d"\n',
            "at 1 s: client: a gate of unbloat-agent holds from beginning to end",
        ),
    ],
)
def test_what_an_agent_cannot_do_is_said_with_its_key(text: str, words: str) -> None:
    plan = plan_of(text)
    assert words in unsupported_in_plan(plan)
    assert len(unsupported_cures(plan)) <= 1

"""An outage in the middle of an upload, of the data or of the ACKs: the limit `timeout` against the simulator's truth.

A small fixed window is full when the outage begins: time without an answer must not be blamed on it.
"""

from __future__ import annotations

from pathlib import Path

import held
import paths
import pytest

import unbloat
from unbloat.run.run import Run

BEGIN_S, END_S = 6, 11
WINDOW = '[flow.receiver]\nwindow = { kind = "fixed", window = "60 KB" }'


def outage(folder: Path, link: str) -> tuple[Run, Run, Run]:
    """Truth, and the analysis at the client (sender) and at the server."""
    links = paths.links(paths.QUEUE + "\nloss = 0")
    body = links.replace('name = "back"', 'name = "back"\nloss = 0') + paths.flow(WINDOW)
    changes = "".join(
        f'[[change]]\nat = "{at} s"\n"link.{link}.loss" = {loss}\n'
        for at, loss in ((BEGIN_S, 1), (END_S, 0))
    )
    truth = unbloat.simulate(paths.HEAD.format(name="outage") + body + changes, pcap=folder)
    assert isinstance(truth, Run)
    captures = {path.stem: path for path in folder.rglob("*.pcapng")}
    return truth, unbloat.analyze(captures["client"]), unbloat.analyze(captures["server"])


@pytest.mark.parametrize("link", ["bottleneck", "back"])
def test_time_without_an_answer_is_the_limit_timeout_and_nothing_else(
    tmp_path: Path, link: str
) -> None:
    truth, client, server = outage(tmp_path, link)
    true, seen = held.flow(truth, 0), held.flow(client, 0)
    assert true["timeouts"] == seen["timeouts"] >= 3
    # The timer backs off, so that the silence ends after the outage.
    assert true["share_timeout"] * true["active_s"] > END_S - BEGIN_S - 1
    # At the receiver the repeated segments that were lost show by the identification of the next.
    for end in (seen, held.flow(server, 0)):
        for share in ("share_timeout", "share_receive_window"):
            assert abs(end[share] - true[share]) < 0.05, share
    assert held.agreement(truth, client, 0) >= 0.95
    findings = {row["rule"]: row for row in client.findings.to_pylist() if row["flow"] == 0}
    silence = findings["no-answer"]
    assert silence["severity"] == "warning"
    assert silence["text"].startswith("The receiver fell silent for ")
    assert silence["to_s"] + held.offset(client) > END_S - 0.1
    assert "retransmission-timeouts" not in findings, "one outage is one stop"

"""Role `iperf3`: bulk traffic made by iperf3; one process per flow and side.

SPEC: `{"role":"iperf3", "address": OWN, "duration_s", "warmup_s", "bin_ms", "flow", "part": "server" or "client", "side":
"sender" or "receiver", "peer", "port", "out", "json": FILE, "notes": [TEXT]}`

Its own report (JSON) is kept beside the rows; connections and samples are the kernel's, asked for
by bins. The data connection comes from port 20,000 above the server's, which distinguishes it from
iperf3's control connection.

Differences from the simulator:
- iperf3's control connection comes first, so data begins two round trips later.
- The class is that of both directions: iperf3 sets it on both ends.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from typing import Any

from unbloat.lab.traffic import sockets, subprocesses
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import Loop
from unbloat.lab.traffic.sock_diag import Watch

_DATA_PORT = 20_000
_TIMEOUT_S = 2.0
# The client's last message reaches the server in a round trip; a link that was cut at the end brings none.
_LAST_MESSAGE_S = 0.5
# Two processes of one testbed reach the same moment within a few ms; a starved one is tens of ms late.
_AT_THE_END_S = 0.1
# Of statistics about a socket that has been closed (tcp_info.c of iperf3).
_CLOSED = "getsockopt - Bad file descriptor"


def _argv(spec: dict[str, Any], length_s: float) -> list[str]:
    flow = spec["flow"]
    argv = ["iperf3", "--json", "-p", str(spec["port"]), "-B", spec["address"]]
    # Its shortest interval is a tenth of a second.
    argv += ["-i", f"{min(max(spec['bin_ms'] / 1e3, 0.1), 60.0):g}"]
    if spec["part"] == "server":
        return [*argv, "-s", "-1"]
    sender = flow["sender"]
    argv += [
        "-c",
        spec["peer"],
        "--cport",
        str(spec["port"] + _DATA_PORT),
        "-t",
        f"{max(round(length_s), 1)}",
    ]
    argv += [
        "-C",
        sockets.kernel_name(sender["congestion"]),
        "-S",
        str(sockets.tos(sender["class"])),
    ]
    if not flow["sender_opens"]:
        argv.append("-R")
    mss = sender["mss_bytes"] + (12 if sender["timestamps"] else 0)
    if mss != 1460:
        argv += ["-M", str(mss)]
    law = flow["receiver"]["window"]
    if law["kind"] == "fixed":
        # -w is SO_RCVBUF, which the kernel doubles.
        buffer = law["rmem_max"] if not law.get("window") else 2 * law["window"]
        argv += ["-w", str(-(-buffer // 2))]
    return argv


def run(spec: dict[str, Any]) -> None:
    """The whole life of the process."""
    loop = Loop()
    flow = spec["flow"]
    log = EventLog(spec["out"])
    for note in spec["notes"]:
        log.error(note)
    process: subprocess.Popen[bytes] | None = None
    lasted = stopped = over = False
    with open(spec["json"], "wb") as report:

        def begin(length_s: float) -> None:
            nonlocal process
            process = subprocesses.start(
                _argv(spec, length_s), stdout=report, stderr=subprocess.STDOUT
            )

        def stop() -> None:
            nonlocal stopped
            if process is not None and not stopped:
                # It writes its report. Once only: a signal meanwhile makes it write a second one into the same file.
                process.send_signal(signal.SIGINT)
                stopped = True

        def look() -> None:
            nonlocal lasted
            lasted = process is not None and process.poll() is None

        server = spec["part"] == "server"
        if server:
            begin(0)
            _wait_until_listening(spec["port"])
        end_s = (
            spec["duration_s"]
            if flow["stop_s"] is None
            else min(flow["stop_s"], spec["duration_s"])
        )
        if loop.wait_for_start():
            data_port = spec["port"] + _DATA_PORT
            where = {"remote_port": data_port} if server else {"local_port": data_port}
            Watch(loop, log, flow, spec["side"], **where).start(spec["bin_ms"])
            loop.at(loop.ns(end_s - _AT_THE_END_S), look)
            if not server:
                # To the whole second above: it is stopped at the right time.
                loop.at(loop.ns(flow["start_s"]), lambda: begin(end_s - flow["start_s"] + 1))
                loop.at(loop.ns(end_s), stop)
            loop.run(loop.ns(spec["duration_s"]))
            over = loop.seconds() >= spec["duration_s"]
        if process is not None:
            # A server ends, with its report, when its client does.
            if not (server and over and _ended(process, _LAST_MESSAGE_S)):
                stop()
            if not _ended(process, _TIMEOUT_S):
                subprocesses.end(process)
    _complain(spec, log, lasted)
    log.close()


def _ended(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _wait_until_listening(port: int) -> None:
    want = f":{port:04X} "
    for _ in range(500):
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as file:
                if any(want in line and " 0A " in line for line in file):
                    return
        time.sleep(0.01)
    raise OSError(f"iperf3 does not listen on port {port}")


def _complain(spec: dict[str, Any], log: EventLog, lasted: bool) -> None:
    """What iperf3 itself found wrong."""
    for error in errors_of_its_own(spec["json"], lasted):
        log.error(f"iperf3: {error}")


def errors_of_its_own(report: str, lasted: bool) -> list[str]:
    """Errors of a report that do not follow from the end of the run.

    Both sides are stopped at the end, and whichever is first resets the connection of the other one, which has `lasted`
    until then. A side whose peer ends closes its streams; a timer of its statistics that is due at that moment asks about a
    closed socket. iperf3 adds that error as a second `error` of the same object, so all of them are read.
    """
    try:
        with open(report, encoding="utf-8") as file:
            top = json.load(file, object_pairs_hook=list)
        errors = [str(value) for key, value in top if key == "error" and value]
    except (OSError, ValueError, TypeError):
        return ["no report"]
    stopped = ["interrupt", "terminated"] + ["reset by peer"] * lasted
    own = [error for error in errors if not any(word in error for word in stopped)]
    if len(own) < len(errors):
        own = [error for error in own if error != _CLOSED]
    return own

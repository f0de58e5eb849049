"""Role `nginx`: the server of pages and video segments; one process per serving node, a port per flow.

SPEC: `{"role":"nginx", "address": OWN, "duration_s", "warmup_s", "bin_ms", "work": DIRECTORY, "sites": [{"flow", "port",
"out"}]}`

The listening sockets are made here, with the flow's congestion control, class, segment size and buffer, and handed over
as nginx hands them to its own successor (environment variable NGINX); what it accepts inherits them. Where a route names
a congestion control, the route wins: the kernel's rule for accepted connections.

Differences from the simulator:
- An answer has nginx's header (about 200 bytes) besides the object.
- A connection of less than a tenth of a second is known from the access log alone: without samples, its congestion control
  unknown.
- Congestion control cannot change in mid-run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from typing import Any

from unbloat.lab.traffic import page, sockets, subprocesses
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import Loop, now_ns
from unbloat.lab.traffic.sock_diag import Watch

# As long as any scenario.
_KEEP_ALIVE = "86400"

_CONFIG = """daemon off;
user root;
worker_processes 1;
pid {work}/nginx.pid;
error_log {work}/error.log warn;
events {{ worker_connections 8192; }}
http {{
    log_format lab '$msec $remote_addr:$remote_port $server_port $status $request_length $bytes_sent $request_time $request_uri';
    access_log {work}/access.log lab buffer=64k flush=1s;
    client_body_temp_path {work}/temp;
    proxy_temp_path {work}/temp;
    fastcgi_temp_path {work}/temp;
    uwsgi_temp_path {work}/temp;
    scgi_temp_path {work}/temp;
    default_type application/octet-stream;
    sendfile on;
    tcp_nopush on;
    etag off;
    server_tokens off;
    large_client_header_buffers 4 1m;
    keepalive_timeout {keep}s;
    keepalive_requests 1000000;
{servers}}}
"""
_SERVER = """    server {{
        listen {address}:{port};
        root {root};
        location = /page {{ default_type text/html; }}
    }}
"""


def _listen(site: dict[str, Any], own: str, log: EventLog) -> socket.socket | None:
    flow = site["flow"]
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sockets.prepare(sock, flow, "sender")
    except OSError as error:
        log.error(f"{error.strerror}; this flow does not run")
        return None
    sock.bind((own, site["port"]))
    sock.listen(511)
    sock.set_inheritable(True)
    return sock


def _start(spec: dict[str, Any], logs: list[EventLog]) -> subprocess.Popen[bytes] | None:
    work = spec["work"]
    os.makedirs(f"{work}/temp", exist_ok=True)
    servers = []
    open_sockets = []
    for site, log in zip(spec["sites"], logs, strict=True):
        root = f"{work}/{site['flow']['name']}"
        for text in page.write_site(site["flow"]["app"], root):
            log.error(text)
        sock = _listen(site, spec["address"], log)
        if sock is not None:
            open_sockets.append(sock)
            servers.append(_SERVER.format(address=spec["address"], port=site["port"], root=root))
    if not open_sockets:
        return None
    config = f"{work}/nginx.conf"
    with open(config, "w", encoding="utf-8") as file:
        file.write(_CONFIG.format(work=work, keep=_KEEP_ALIVE, servers="".join(servers)))
    numbers = [sock.fileno() for sock in open_sockets]
    process = subprocesses.start(
        ["nginx", "-p", f"{work}/", "-c", config, "-e", f"{work}/error.log"],
        pass_fds=numbers,
        env={
            "PATH": os.environ.get("PATH", os.defpath),
            "NGINX": "".join(f"{n};" for n in numbers),
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # It takes its worker with it, which SIGKILL would leave behind.
        when_we_die=signal.SIGTERM,
    )
    for sock in open_sockets:
        sock.close()
    # The sockets accept from the start; that nginx has read its configuration is seen by its pid file.
    for _ in range(500):
        if process.poll() is not None:
            raise OSError(f"nginx ended at once: {_last_line(f'{work}/error.log')}")
        if os.path.exists(f"{work}/nginx.pid"):
            break
        time.sleep(0.01)
    return process


def _last_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip().rsplit("\n", 1)[-1]
    except OSError:
        return "no error log"


def _record_unseen(spec: dict[str, Any], loop: Loop, watches: dict[int, Watch]) -> None:
    """Connections that were too short for a look: from the access log."""
    offset = time.time_ns() - now_ns()
    try:
        with open(f"{spec['work']}/access.log", encoding="utf-8", errors="replace") as file:
            lines = [line.split() for line in file]
    except OSError:
        return
    for words in lines:
        if len(words) < 8 or int(words[2]) not in watches:
            continue
        begun = float(words[0]) - float(words[6])
        t_s = loop.seconds(round(begun * 1e9) - offset)
        local = sockets.name_of((spec["address"], int(words[2])))
        watches[int(words[2])].record_connection(local, words[1], t_s, None)


def run(spec: dict[str, Any]) -> None:
    """The whole life of the process."""
    loop = Loop()
    logs = [EventLog(site["out"]) for site in spec["sites"]]
    process = _start(spec, logs)
    watches = {
        site["port"]: Watch(loop, log, site["flow"], "sender", local_port=site["port"])
        for site, log in zip(spec["sites"], logs, strict=True)
    }
    try:
        if not loop.wait_for_start():
            return
        for watch in watches.values():
            watch.start(spec["bin_ms"])

        def alive() -> None:
            if process is not None and process.poll() is not None:
                raise OSError(f"nginx ended: {_last_line(spec['work'] + '/error.log')}")

        loop.every(loop.ns(1), 1_000_000_000, alive)
        loop.run(loop.ns(spec["duration_s"]))
    finally:
        if process is not None:
            subprocesses.end(process)
        if loop.t0:
            _record_unseen(spec, loop, watches)
        for log in logs:
            log.close()

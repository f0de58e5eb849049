"""Role `browser`: pages loaded by headless Chromium, with the browser's own timings; one process per web flow.

SPEC: `{"role":"browser", "address": OWN, "duration_s", "warmup_s", "bin_ms", "flow", "peer", "port", "out", "work":
DIRECTORY, "notes": [TEXT]}`

Every page has a context of its own, with an empty cache and no connections; it is thrown away when the page is there, which
closes its connections. The context of the next page is made at once, so that the page begins at its time.

Differences from the simulator:
- Requests are the browser's own: about 400 bytes, whatever `request` says.
- The page begins with the first SYN (`connectStart`), as there; what the browser does before is left out. What it does between
  objects (script, rendering) is in `page_load_ms`, beside the scenario's `compute`, for which the script waits.
- Six connections at most. A connection that takes longer than 250 ms to open has a second one beside it: Chromium's rule.
- When an address of the host changes, Chromium closes its connections, also in the middle of a page. The lab's namespaces
  have fixed IPv4 addresses alone.
- A late page is followed by the next as soon as its context is made, about 50 ms later.
- A browser answers `stop` at once: the page under way is given up; there, what is in the network still arrives.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from unbloat.lab.traffic.devtools import PROGRAMS, Browser
from unbloat.lab.traffic.log import EventLog
from unbloat.lab.traffic.loop import READ, Loop, hurry, now_ns
from unbloat.lab.traffic.page import computed_ms, document
from unbloat.lab.traffic.sock_diag import Watch

# On a busy machine; it takes one or two.
_START_TIMEOUT_S = 60.0

Json = dict[str, Any]


@contextmanager
def rehearsal(app: Json) -> Iterator[str]:
    """The page, with little objects, on this namespace's loopback."""
    text = document(app).encode("ascii")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = text if self.path == "/page" else b"x"
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """No access log: requests are not of interest."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/page"
    finally:
        server.shutdown()
        server.server_close()


class Pages:
    """Loads one page after another."""

    def __init__(self, loop: Loop, browser: Browser, log: EventLog, spec: Json) -> None:
        self._loop, self._browser, self._log = loop, browser, log
        self._flow, self._warmup_s = spec["flow"], spec["warmup_s"]
        self._url = f"http://{spec['peer']}:{spec['port']}/page"
        self._context = self._session = ""
        self.prepared = False
        self._due_ns: int | None = None
        self._begun_ns: int | None = None
        self._complained = False
        self.stopped = False
        self.warm = False
        browser.on_event = self._on_event

    # A chain of answers: context, target, session, ready.

    def prepare(self) -> None:
        """A fresh context."""
        self.prepared = False
        self._browser.send(
            "Target.createBrowserContext", {"disposeOnDetach": True}, then=self._on_context
        )

    def _on_context(self, answer: Json) -> None:
        self._context = self._result(answer)["browserContextId"]
        self._browser.send(
            "Target.createTarget",
            {"url": "about:blank", "browserContextId": self._context},
            then=self._on_target,
        )

    def _on_target(self, answer: Json) -> None:
        self._browser.send(
            "Target.attachToTarget",
            {"targetId": self._result(answer)["targetId"], "flatten": True},
            then=self._on_session,
        )

    def _on_session(self, answer: Json) -> None:
        self._session = self._result(answer)["sessionId"]
        self._browser.send("Runtime.enable", {}, self._session)
        self._browser.send(
            "Runtime.addBinding", {"name": "pageDone"}, self._session, then=self._on_ready
        )

    def _on_ready(self, answer: Json) -> None:
        self._result(answer)
        self.prepared = True
        if self._due_ns is not None:
            self.begin_at(self._due_ns)

    @staticmethod
    def _result(answer: Json) -> Json:
        if "error" in answer:
            raise OSError(f"the browser refused: {answer['error'].get('message', answer['error'])}")
        result: Json = answer["result"]
        return result

    def warm_up(self, url: str) -> None:
        """A first page that does not count: fresh processes are several times slower."""
        self._browser.send("Page.navigate", {"url": url}, self._session)

    # ------------------------------------------------------------------------------------------------------- pages

    def begin_at(self, when_ns: int) -> None:
        """The next page, at that time, or as soon as its context is there."""
        self._due_ns = when_ns
        if self.prepared:
            self._due_ns = None
            self._loop.at(when_ns, self._begin)

    def _begin(self) -> None:
        if self.stopped:
            return
        self._begun_ns = now_ns()
        self._browser.send(
            "Page.navigate", {"url": self._url}, self._session, then=self._on_navigated
        )

    def _on_navigated(self, answer: Json) -> None:
        if self.stopped:
            return
        failed = self._result(answer).get("errorText")
        if failed:
            self._over(f"{self._url}: {failed}")

    def _on_event(self, session: str, method: str, params: Json) -> None:
        if method != "Runtime.bindingCalled" or session != self._session:
            return
        if not self.warm:
            self.warm = True
            self._browser.send("Target.disposeBrowserContext", {"browserContextId": self._context})
            self.prepare()
        elif self._begun_ns is not None:
            report = json.loads(params["payload"])
            if report["e"]:
                self._over(report["e"])
            else:
                self._record(report)
                self._over("")

    def _over(self, error: str) -> None:
        if error and not self._complained:
            # Once: what goes wrong goes wrong every time.
            self._complained = True
            self._log.error(f"page not loaded: {error}")
        begun, self._begun_ns = self._begun_ns, None
        self._browser.send("Target.disposeBrowserContext", {"browserContextId": self._context})
        self.prepare()
        every_ns = round(self._flow["app"]["every_s"] * 1e9)
        self.begin_at(max((begun or now_ns()) + every_ns, now_ns()))

    def _record(self, report: Json) -> None:
        offset_ns = time.time_ns() - now_ns()

        def t_s(ms: float) -> float:
            return self._loop.seconds(round((report["t"] + ms) * 1e6) - offset_ns)

        document = report["a"][0]
        start = document[0]
        rows = [(document[1], "connect_ms", document[1] - start)]
        for _, _, asked, first, last, _ in report["a"]:
            rows.append((first, "first_byte_ms", first - asked))
            rows.append((last, "object_ms", last - asked))
        end = max(timing[4] for timing in report["a"]) + computed_ms(self._flow["app"])
        rows.append((end, "page_load_ms", end - start))
        # In order of time; at the same time the page comes last.
        for at, name, value in sorted(rows, key=lambda row: row[0]):
            if t_s(at) >= self._warmup_s:
                self._log.write("app", t_s=t_s(at), name=name, value=value)

    def stop(self) -> None:
        """No more pages; the one under way is given up."""
        self.stopped = True
        self._begun_ns = None
        if self._context:
            self._browser.send("Target.disposeBrowserContext", {"browserContextId": self._context})

    def finish(self) -> None:
        """A page that never came is reported as the time that it has taken so far."""
        at = now_ns()
        if self._begun_ns is not None and self._loop.seconds(at) >= self._warmup_s:
            age = (at - self._begun_ns) / 1e6
            self._log.write("app", t_s=self._loop.seconds(at), name="page_unfinished_ms", value=age)


def run(spec: Json) -> None:
    """The whole life of the process."""
    loop = Loop()
    log = EventLog(spec["out"])
    for note in spec["notes"]:
        log.error(note)
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        raise OSError("chromium is not installed")
    browser = Browser(program, spec["work"])
    try:
        hurry()
        pages = Pages(loop, browser, log, spec)
        pages.prepare()
        browser.wait(lambda: pages.prepared, _START_TIMEOUT_S)
        with rehearsal(spec["flow"]["app"]) as url:
            pages.warm_up(url)
            browser.wait(lambda: pages.warm and pages.prepared, _START_TIMEOUT_S)
        if not loop.wait_for_start():
            return
        flow = spec["flow"]
        loop.watch(browser.fd, READ, browser.read)
        Watch(loop, log, flow, "receiver", remote_port=spec["port"]).start(spec["bin_ms"])
        pages.begin_at(loop.ns(flow["start_s"]))
        if flow["stop_s"] is not None:
            loop.at(loop.ns(flow["stop_s"]), pages.stop)
        loop.run(loop.ns(spec["duration_s"]))
        pages.finish()
    finally:
        log.close()
        browser.end()
        shutil.rmtree(f"{spec['work']}/profile", ignore_errors=True)

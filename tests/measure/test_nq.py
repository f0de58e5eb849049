"""The RPM server against an HTTP/2 client of others: both sets of names, what each resource does, and each limit."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import zlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from requirements import require

from unbloat.lab.requirements import found
from unbloat.lab.testbed import TIMEOUT_S, end, until

TOKEN = "0123456789abcdef"
NAMES = {
    "small": ("small_download_url", "small_https_download_url"),
    "large": ("large_download_url", "large_https_download_url"),
    "upload": ("upload_url", "https_upload_url"),
}
# Of the server: connections of the client that measures.
MAX_CONNECTIONS = 256
# Larger than the windows of HTTP/2, so that it passes only if it is read.
BODY = 10_000_000


class Served:
    """A server on the loopback device."""

    def __init__(self, *words: str) -> None:
        program = found("unbloat-measure") or ""
        argv = (program, "serve", "--listen", "127.0.0.1:0", "--nq", "0", *words)
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process: subprocess.Popen[str] = subprocess.Popen(argv, text=True, **pipes)
        assert self.process.stdout is not None
        self.own = self.process.stdout.readline().split()[2:]
        """The words by which a client of our own finds the server."""
        name, self.url = self.process.stdout.readline().split()
        assert name == "RPM:"
        self.port = httpx.URL(self.url).port

    def at(self, path: str) -> str:
        return f"https://127.0.0.1:{self.port}{path}"

    def log(self) -> str:
        """What it has said, next."""
        assert self.process.stderr is not None
        return self.process.stderr.readline()


@contextlib.contextmanager
def served(*words: str) -> Iterator[Served]:
    require("unbloat-measure")
    server = Served(*words)
    try:
        yield server
    finally:
        end(server.process)


def client(own: str = "127.0.0.1", http2: bool = True) -> httpx.Client:
    """One whose connections come from this address."""
    transport = httpx.HTTPTransport(
        verify=False, http1=not http2, http2=http2, local_address=own, trust_env=False
    )
    return httpx.Client(transport=transport, timeout=TIMEOUT_S)


def must_wait(answer: httpx.Response) -> bool:
    """Whether it gets 503, and when it may come again."""
    return answer.status_code == 503 and answer.headers["retry-after"] == "60"


def may_measure(server: Served, own: str = "127.0.0.1") -> bool:
    """Whether a new connection from this address is served."""
    with client(own) as asks:
        return asks.get(server.url).status_code == 200


def bytes_until_cut(answer: httpx.Response) -> int:
    """How much there is before the server ends it."""
    had = 0
    try:
        for piece in answer.iter_raw():
            had += len(piece)
    except (httpx.RemoteProtocolError, httpx.ReadError):
        return had
    raise AssertionError("it came to its end")


@pytest.mark.parametrize("http2", [True, False], ids=["HTTP/2", "HTTP/1.1"])
def test_each_resource_is_under_both_names_and_does_what_the_draft_says(http2: bool) -> None:
    with served() as server, client(http2=http2) as asks:
        answer = asks.get(server.url)
        assert answer.http_version == ("HTTP/2" if http2 else "HTTP/1.1")
        assert answer.headers["content-type"] == "application/json"
        found = answer.json()
        assert found["version"] == 1
        assert set(found["urls"]) == {name for pair in NAMES.values() for name in pair}
        urls = {what: {found["urls"][name] for name in pair} for what, pair in NAMES.items()}
        small, large, upload = (urls[what].pop() for what in NAMES)
        assert not any(urls.values()), "both names have the same URL"
        assert {httpx.URL(url).netloc for url in (small, large, upload)} == {
            f"127.0.0.1:{server.port}".encode()
        }

        assert len(asks.get(small).content) == 1
        sent = asks.post(upload, content=(bytes(100_000) for _ in range(BODY // 100_000)))
        assert (sent.status_code, sent.content) == (200, b"")
        with asks.stream("GET", large) as answer:
            assert answer.headers["content-type"] == "application/octet-stream"
            assert int(answer.headers["content-length"]) == 8_000_000_000
            had = bytearray()
            for piece in answer.iter_raw():
                had += piece
                if len(had) > BODY:
                    break
        assert len(zlib.compress(had)) > len(had), "no link compresses it"

        for path in ("/", "/etc/passwd", "/nq/../../etc/passwd", "/.well-known/", "/nq"):
            assert asks.get(server.at(path)).status_code == 404
        refused = asks.post(large)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET")
        assert asks.get(upload).headers["allow"] == "POST"
        asks.close()
        words = server.log().split()
    assert words[:3] == ["127.0.0.1:", "measured", "RPM"]
    up_mb, down_mb = int(words[6]), int(words[9])
    assert up_mb == BODY // 1_000_000
    assert down_mb >= BODY // 1_000_000


def test_one_address_measures_at_a_time_and_one_connection_too_many_gets_503() -> None:
    with (
        served() as server,
        client() as one,
        client() as again,
        client("127.0.0.2") as other,
        one.stream("GET", server.at("/nq/large")) as load,
    ):
        assert load.status_code == 200
        assert must_wait(other.get(server.url)), "another address"
        with contextlib.ExitStack() as held:
            address = ("127.0.0.1", server.port)
            for _ in range(MAX_CONNECTIONS - 1):
                held.enter_context(socket.create_connection(address, timeout=TIMEOUT_S))
            assert must_wait(again.get(server.at("/nq/small"))), "one connection too many"
            # Its place was never one of the guest's, so it has to come with a new one.
            again.close()
        until(lambda: may_measure(server), TIMEOUT_S, every_s=0.2)
        load.close()
        one.close()
        until(lambda: may_measure(server, "127.0.0.2"), TIMEOUT_S, every_s=0.2)


def test_who_has_had_its_bytes_has_to_wait() -> None:
    with served("--max-data", "3 MB") as server:
        with client() as asks, asks.stream("GET", server.at("/nq/large")) as answer:
            assert bytes_until_cut(answer) <= 3_000_000
        assert server.log().endswith(", until a limit\n")
        with client() as asks:
            assert must_wait(asks.get(server.url))
        with client("127.0.0.2") as asks:
            sent = asks.post(server.at("/nq/upload"), content=bytes(BODY // 5))
            assert sent.status_code == 200, "another address has bytes of its own"


def test_a_client_of_our_own_has_the_server_to_itself() -> None:
    with served() as server, client() as asks:
        program = found("unbloat-measure") or ""
        words = (*server.own, "--quick", "--phases", "down", "--max-data", "100 MB", "--json")
        with asks.stream("GET", server.at("/nq/large")) as load:
            assert load.status_code == 200
            measures = subprocess.Popen((program, *words), stdout=subprocess.DEVNULL)
            bytes_until_cut(load)
            assert measures.poll() is None
        with client() as later:
            assert must_wait(later.get(server.url))
        assert measures.wait(TIMEOUT_S) in (0, 5)
        until(lambda: may_measure(server), TIMEOUT_S, every_s=0.2)

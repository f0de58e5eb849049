"""Object stores as processes of their own on this machine: a server of any kind, and one that speaks S3."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

BUCKET = "captures"


class Server:
    """A program that listens, on a port that stays the same."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def serve(self, *words: str) -> None:
        """Starts it, by a module of Python and its arguments, and waits until it listens."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while True:
            assert self.process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except ConnectionRefusedError:
                time.sleep(0.05)

    def kill(self) -> None:
        """Ends it with all that it holds."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Store(Server):
    """moto's server."""

    def found_by(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Sets the environment in which s3fs finds it."""
        monkeypatch.setenv("AWS_ENDPOINT_URL", self.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")

    def start(self) -> None:
        """Starts it, without objects."""
        self.serve("moto.server", "-H", "127.0.0.1", "-p", str(self.port))
        self.client().create_bucket(Bucket=BUCKET)

    def client(self) -> Any:
        """What puts objects there."""
        import boto3

        return boto3.client("s3", endpoint_url=self.url, region_name="us-east-1")

    def put(self, objects: dict[str, bytes]) -> None:
        """Stores objects."""
        client = self.client()
        with ThreadPoolExecutor(8) as pool:
            list(
                pool.map(
                    lambda one: client.put_object(Bucket=BUCKET, Key=one[0], Body=one[1]),
                    objects.items(),
                )
            )

    def names(self, prefix: str) -> list[str]:
        """Names of all objects that begin so."""
        pages = (
            self.client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
        )
        return [one["Key"] for page in pages for one in page.get("Contents", [])]

    def get(self, name: str) -> bytes:
        """The content of an object."""
        data: bytes = self.client().get_object(Bucket=BUCKET, Key=name)["Body"].read()
        return data

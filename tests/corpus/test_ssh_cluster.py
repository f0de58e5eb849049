"""The recipe of a cluster by SSH, between two network namespaces: the bytes of one process."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from dask_cluster import two_machines, with_this
from results import final, run

pytest.importorskip("distributed")
asyncssh = pytest.importorskip("asyncssh")

HERE = Path(__file__).parent
SCRIPT = HERE.parents[1] / "docs" / "examples" / "ssh_cluster.py"
HOSTS = ("10.9.8.1", "10.9.8.2")

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
    pytest.mark.skipif(shutil.which("ip") is None, reason="needs ip"),
]


def keys(home: Path) -> tuple[Path, Path]:
    """A home with a user's key and known hosts; the key of the hosts, and what they accept."""
    (home / ".ssh").mkdir(mode=0o700, parents=True)
    user, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user.write_private_key(home / ".ssh/id_ed25519")
    user.write_public_key(home / "accepted")
    host.write_private_key(home / "host")
    public = host.export_public_key().decode().strip()
    (home / ".ssh/known_hosts").write_text("".join(f"{one} {public}\n" for one in HOSTS))
    return home / "host", home / "accepted"


@contextlib.contextmanager
def started(words: Sequence[object], env: dict[str, str]) -> Iterator[str]:
    """A program that prints a line when it is ready; the line."""
    process = subprocess.Popen(
        [str(word) for word in words], env=env, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(timeout=60)


def test_the_recipe_by_ssh_gives_the_same_bytes(phones: Path, tmp_path: Path) -> None:
    run(phones, tmp_path / "one")
    host_key, accepted = keys(tmp_path / "home")
    env = os.environ | {"HOME": str(tmp_path / "home"), "PYTHONPATH": with_this(tmp_path)}
    server = [sys.executable, HERE / "ssh_server.py"]
    with two_machines() as machines, contextlib.ExitStack() as stack:
        for machine, host in zip(machines, HOSTS, strict=True):
            # Dask asks the routes for a machine's own address; nothing is sent there.
            route = ["ip", "route", "add", "default", "dev", "cable"]
            subprocess.run([*machine, *route], check=True)
            serve = [*machine, *server, host, host_key, accepted]
            assert stack.enter_context(started(serve, env)) == "ready"
        cluster = [*machines[0], sys.executable, SCRIPT, HOSTS[0], *HOSTS]
        address = stack.enter_context(started(cluster, env))
        assert address.startswith(f"tcp://{HOSTS[0]}:")
        words = ["-m", "unbloat", "corpus", "run", str(phones), "--out", str(tmp_path / "out")]
        done = subprocess.run(
            [*machines[0], sys.executable, *words, "--dask", address],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert final(tmp_path / "out") == final(tmp_path / "one")

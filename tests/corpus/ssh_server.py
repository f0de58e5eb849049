"""An SSH server for tests: `ssh_server.py HOST HOST_KEY AUTHORIZED_KEYS`. It runs commands as this user, and ends them with their connection."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

import asyncssh


async def run(process: Any) -> None:
    """One command, with its input and outputs over the connection."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_shell(
        process.command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    try:
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        ended = asyncio.ensure_future(child.wait())
        gone = asyncio.ensure_future(process.wait_closed())
        await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    process.exit(await child.wait())


async def main() -> None:
    """Serves until it is killed."""
    host, key, users = sys.argv[1:]
    await asyncssh.listen(
        host,
        22,
        server_host_keys=[key],
        authorized_client_keys=users,
        process_factory=run,
        encoding=None,
    )
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

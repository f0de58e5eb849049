"""A client of a Dask cluster: of processes that are started here, or of a scheduler at an address."""

from __future__ import annotations

import contextlib
import logging
import re
import signal
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

from unbloat.errors import UnbloatError
from unbloat.tasks.memory import SETTINGS
from unbloat.tasks.worker import MAX_LOST

# The address that stands for processes of this machine.
LOCAL = "local"
ADDRESS = re.compile(r"(tcp|tls)://\S+:\d+$")
# More than any task has.
LARGE = "1 TB"
# For a scheduler to answer, s.
CONNECT_S = 5.0


@contextlib.contextmanager
def connected(address: str, jobs: int) -> Iterator[Any]:
    """A client of the cluster; that of this machine ends with it."""
    if address != LOCAL and not ADDRESS.match(address):
        raise UnbloatError(
            f"--dask {address}: takes local, or the address of a scheduler, as tcp://10.0.0.1:8786"
        )
    try:
        import dask.config
        import distributed
    except ImportError:
        raise UnbloatError("--dask needs Dask distributed: pip install 'unbloat[dask]'") from None
    silence()
    with contextlib.ExitStack() as stack:
        # Dask would warn that a task with a long trace is large.
        stack.enter_context(
            dask.config.set({"distributed.admin.large-graph-warning-threshold": LARGE})
        )
        if address == LOCAL:
            stack.enter_context(
                dask.config.set(
                    {
                        "distributed.scheduler.allowed-failures": MAX_LOST - 1,
                        # Stacks of workers, a hundred a second, for a page that is not shown here: 10 MB in each worker.
                        "distributed.worker.profile.enabled": False,
                    }
                )
            )
            where: Any = stack.enter_context(
                without_ctrl_c(
                    distributed.LocalCluster,
                    n_workers=jobs,
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                    env=SETTINGS,
                )
            )
        else:
            where = address
        try:
            client: Any = without_ctrl_c(
                distributed.Client, where, timeout=CONNECT_S, set_as_default=False
            )
        except (OSError, ValueError):
            raise UnbloatError(f"{address}: no Dask scheduler answers") from None
        with client:
            yield client


def silence() -> None:
    """No log of Dask: lost workers are counted here, and an end of the run is one line."""
    for name in ("tornado", "asyncio", "distributed", *logging.root.manager.loggerDict):
        if name.split(".")[0] in ("tornado", "asyncio", "distributed"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def without_ctrl_c(make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What `make` makes. Its threads, and the processes that they start at any time, do not see Ctrl-C, which is for this one."""
    # Python's own helper process, which would be started with the first of them, unblocks the signal where it is started.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return make(*arguments, **named)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

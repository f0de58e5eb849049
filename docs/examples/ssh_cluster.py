"""A Dask cluster on machines that SSH reaches, until Ctrl-C: prints the address for `--dask`.

    python3 ssh_cluster.py SCHEDULER WORKER…     each a host; WORKER once per process that it shall have

Every host has the same version of unbloat, and the Python that runs this script at the same place. Host keys have to be known
(`~/.ssh/known_hosts`), and the user's key has to be accepted. Needs `pip install 'unbloat[dask]' asyncssh` where it runs.
"""

from __future__ import annotations

import signal
import sys

from distributed import SSHCluster

if __name__ == "__main__":
    with SSHCluster(
        sys.argv[1:],
        # A task uses one processor.
        worker_options={"nthreads": 1},
        scheduler_options={"dashboard": False},
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})

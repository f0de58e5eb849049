"""Memory that is free goes back to the system, so that a process holds no more after many captures than after one."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

# Of mallopt in malloc.h of glibc: a block from `LARGE_BYTES` on is mapped by itself and goes back when it is freed. Left
# alone, glibc raises that size to 32 MB, and the tables of a unit stay behind as holes in its heap.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
LARGE_BYTES = 256 << 10
# Of a process that analyses units, from its start.
SETTINGS = {"ARROW_DEFAULT_MEMORY_POOL": "system"}


def lean_memory() -> Callable[[], object]:
    """Keeps what units leave behind small. The result gives the rest back, after each unit."""
    # Arrow's own allocators keep the pages of one unit beside those of the native side. Arrow reads this when it is
    # imported; after that, what it allocates inside itself stays with its own.
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.set_memory_pool(arrow.system_memory_pool())
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_ARENA_MAX, 1)
        libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        libc.mallopt(M_TRIM_THRESHOLD, LARGE_BYTES)
    return give_back


def give_back() -> None:
    """Gives back what is free, also between what is not; elsewhere than with glibc nothing."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)

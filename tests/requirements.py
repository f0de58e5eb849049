"""What a test needs of the machine: one place that leaves tests out, with the reason.

`UNBLOAT_REQUIRE=root,bpf,tshark` in the environment names what has to be there: a test left out for one of these names
fails instead. `UNBLOAT_REQUIRE=all` names everything. So a run on a machine that should have everything cannot be
green by leaving tests out. Names are those below, and those of programs.
"""

from __future__ import annotations

import importlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("UNBLOAT_SHARED", ROOT.parent / "shared"))
"""Captures and traces of others, which are no part of the repository."""
CAPTURES_MORE = tuple(
    Path(folder)
    for folder in os.environ.get("UNBLOAT_CAPTURES_MORE", str(SHARED / "captures" / "more")).split(
        ":"
    )
)
"""Folders of captures of public repositories, each as OWNER/NAME/PATH; `tests/verdicts/captures_*.jsonl` list them."""
CHROMIUM = os.environ.get("UNBLOAT_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
CONTAINER_ALLOWED = {
    "tun": "/dev/net/tun",
    "bpf": "/sys/kernel/btf/vmlinux",
    "bpffs": "/sys/fs/bpf",
}


def _cgroup() -> bool:
    return " cgroup2 " in Path("/proc/self/mounts").read_text()


def _ours(name: str) -> bool:
    from unbloat.lab.requirements import found

    return found(name) is not None


AVAILABLE: dict[str, tuple[Callable[[], bool], str]] = {
    "root": (lambda: os.geteuid() == 0, "network namespaces, TUN devices and BPF need root"),
    "cgroup": (_cgroup, "no cgroup v2 is mounted"),
    "chromium": (
        Path(CHROMIUM).exists,
        f"no chromium at {CHROMIUM} (UNBLOAT_CHROMIUM names another)",
    ),
    "captures": ((SHARED / "captures").is_dir, f"{SHARED} holds no captures; set UNBLOAT_SHARED"),
    "traces": ((SHARED / "traces").is_dir, f"{SHARED} holds no traces; set UNBLOAT_SHARED"),
    "unbloat-emu": (lambda: _ours("unbloat-emu"), "unbloat-emu is not installed"),
    "unbloat-agent": (lambda: _ours("unbloat-agent"), "unbloat-agent is not installed"),
    "unbloat-measure": (lambda: _ours("unbloat-measure"), "unbloat-measure is not installed"),
    "unbloat-modem": (lambda: _ours("unbloat-modem"), "unbloat-modem is not installed"),
} | {name: (Path(path).exists, f"{path} is not there") for name, path in CONTAINER_ALLOWED.items()}
"""Whether something is there, and what is said where it is not; any other name is a program's."""


def required() -> set[str]:
    """The names in UNBLOAT_REQUIRE."""
    return set(os.environ.get("UNBLOAT_REQUIRE", "").replace(",", " ").split())


def unavailable(name: str, reason: str) -> NoReturn:
    """Leaves the test out, or fails it where `name` is required."""
    if required() & {name, "all"}:
        pytest.fail(f"{name} is required (UNBLOAT_REQUIRE): {reason}", pytrace=False)
    pytest.skip(f"{name}: {reason}", allow_module_level=True)


def require(*names: str) -> None:
    """Leaves the test out unless all of these are there."""
    for name in names:
        there, reason = AVAILABLE.get(name, (None, "not installed"))
        if not (there() if there is not None else shutil.which(name) is not None):
            unavailable(name, reason)


def require_module(name: str) -> ModuleType:
    """A Python module that need not be there."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        unavailable(name.partition(".")[0], str(error))


def requires(*names: str) -> pytest.MarkDecorator:
    """`require` as a decorator."""
    return pytest.mark.requires(*names)


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known."""
    config.addinivalue_line("markers", "requires(*names): left out where one of these is missing")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before the fixtures, which may need the same."""
    for mark in item.iter_markers("requires"):
        require(*mark.args)

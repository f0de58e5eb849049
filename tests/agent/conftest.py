"""What tests of the agent share: what they need, and a second try where the machine was too busy for the first."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test with beds runs again, in a folder of its own, if it failed on a machine that starved it: what is wrong is wrong both times."""
    from starving import Watch

    words = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    folder = words.get("tmp_path")
    if not isinstance(folder, Path):
        return None
    watch = Watch()
    try:
        pyfuncitem.obj(**words)
        return True
    except Exception as error:
        watch.end()
        why = watch.why(folder)
        if not why:
            raise
        said = str(error).strip().splitlines()[:1]
        pyfuncitem.warn(
            pytest.PytestWarning(f"tried again, since {why}; {type(error).__name__}: {said}")
        )
    finally:
        watch.end()
    second = folder / "again"
    second.mkdir()
    pyfuncitem.obj(**words | {"tmp_path": second})
    return True


@pytest.fixture
def receiving() -> None:
    """Root, BPF, the agent, the emulator and the judges; else the test is left out, with the reason."""
    from receive_bed import cgroups, program

    if os.geteuid() != 0:
        pytest.skip("needs root: network namespaces and BPF")
    ours = {"unbloat-emu": "UNBLOAT_EMU", "unbloat-agent": "UNBLOAT_AGENT"}
    missing = [name for name, variable in ours.items() if program(name, variable) is None]
    others = ("ip", "ss", "ping", "iperf3", "tcpdump", "tshark")
    missing += [name for name in others if shutil.which(name) is None]
    missing += [
        path
        for path in ("/dev/net/tun", "/sys/kernel/btf/vmlinux", "/sys/fs/bpf")
        if not Path(path).exists()
    ]
    if missing:
        pytest.skip(f"the agent cannot be tried here: no {', '.join(missing)}")
    try:
        cgroups()
    except FileNotFoundError as error:
        pytest.skip(str(error))

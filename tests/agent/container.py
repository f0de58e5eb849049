"""Containers for the agent: systemd-nspawn itself, and by hand what podman gives.

podman is too large to be installed for a test. What it gives was read from /proc/self/status, /proc/self/mountinfo and
/proc/self/ns inside `podman run --network none --rootfs DIR` (podman 4.3.1 with crun 1.8.1, cgroup v2), and is made here
by unshare, mount and setpriv: namespaces of its own for network, mounts, processes and cgroups, but not for users;
sysfs and cgroup v2 read-only; no bpf file system; the capabilities below; and a filter of system calls that refuses bpf
and mount unless CAP_SYS_ADMIN is given.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agent_program import agent_path

PODMAN = [
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
]
"""The capabilities that podman 4.3.1 gives (CapEff 00000000a80425fb)."""

# Runs a command behind a filter that refuses system calls with EPERM: sys.argv is their names, then the command.
_REFUSING = """
import ctypes, errno, os, struct, sys
numbers = {"x86_64": {"mount": 165, "bpf": 321}, "aarch64": {"mount": 40, "bpf": 280}}[os.uname().machine]
numbers |= {"open_tree": 428, "fsopen": 430}
calls = [numbers[name] for name in sys.argv[1].split(",")]
refused = [(0x15, len(calls) - n, 0, call) for n, call in enumerate(calls)]
rows = [(0x20, 0, 0, 0), *refused, (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x50000 | errno.EPERM)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = struct.pack("HxxxxxxP", len(rows), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
for option, value, where in ((38, 1, None), (22, 2, program)):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
    if libc.prctl(option, ctypes.c_ulong(value), where, 0, 0):
        sys.exit(os.strerror(ctypes.get_errno()))
os.execvp(sys.argv[2], sys.argv[2:])
"""


def refusing(calls: str, *argv: str) -> tuple[str, ...]:
    """A command behind a filter of system calls, as containers have it: those named are refused with EPERM."""
    return (sys.executable, "-c", _REFUSING, calls, *argv)


def podman(script: str, *argv: str, add: Sequence[str] = (), bpf: bool = False) -> str:
    """What a script says where podman would have started it, with `--cap-add` for `add`; `bpf`: and with
    `--volume /sys/fs/bpf:/sys/fs/bpf`. `argv` are its arguments."""
    made = "mount --bind /sys/fs/bpf /run && " if bpf else ""
    placed = "mount --move /run /sys/fs/bpf && " if bpf else ""
    mounted = (
        f"mount --make-rprivate / && {made}"
        "umount --recursive --lazy /sys && mount -t sysfs -o ro,nosuid,nodev,noexec sysfs /sys && "
        "mount -t cgroup2 -o ro,nosuid,nodev,noexec cgroup2 /sys/fs/cgroup && "
        f"{placed}"
        'exec "$@"'
    )
    held = ",".join(["-all", *(f"+{name}" for name in (*PODMAN, *add))])
    confined: tuple[str, ...] = ("setpriv", "--bounding-set", held, "sh", "-c", script, "sh", *argv)
    if "sys_admin" not in add:
        confined = refusing("bpf,mount", *confined)
    spaces = ("--net", "--mount", "--pid", "--cgroup", "--fork", "--kill-child", "--mount-proc")
    return _said(["unshare", *spaces, "sh", "-c", mounted, "sh", *confined])


class Nspawn:
    """A root file system with the host's /usr and the agent, for systemd-nspawn."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        for name in ("usr", "etc", "proc", "sys", "dev", "run", "tmp", "var", "opt", "root"):
            (self.root / name).mkdir(parents=True)
        for name in ("bin", "lib", "lib64", "sbin"):
            if Path("/", name).is_symlink():
                (self.root / name).symlink_to(Path("/", name).readlink())
        (self.root / "etc/os-release").write_text("ID=test\n")
        shutil.copy(agent_path(), self.root / "opt/unbloat-agent")

    def argv(self, *options: str) -> list[str]:
        """Its command line, without that of the container. systemd itself does not run here: nothing is registered."""
        alone = ("--quiet", "--register=no", "--keep-unit", "--bind-ro=/usr", "--resolv-conf=off")
        # It leaves directories below /run/systemd, where /run is no tmpfs.
        placed = 'mkdir -p /run/systemd && mount -t tmpfs tmpfs /run/systemd && exec "$@"'
        own = ("unshare", "--mount", "sh", "-c", placed, "sh")
        return [*own, "systemd-nspawn", *alone, f"--directory={self.root}", *options]

    def run(self, script: str, *options: str) -> str:
        """What a script says in it, on both outputs."""
        return _said([*self.argv(*options), "sh", "-c", script])


def _said(argv: Sequence[str]) -> str:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return done.stdout

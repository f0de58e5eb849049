"""Builds what a guest boots from: a kernel, and an initramfs with everything that its cases use.

Nothing is mounted from the host. The initramfs consists of three archives, which the kernel unpacks
one over the other: the userland of this host (built once), the kernel's modules (once per package),
and the agent with the cases (each time).
"""

import hashlib
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

GUEST = Path(__file__).parent / "guest"
PROGRAMS = ("/usr/bin/python3", "iperf3", "tc", "ip", "ss", "ping", "nsenter", "bash")
# Only some scripts use these.
EXTRA_PROGRAMS = ("wg", "tcpdump", "iw")
SEARCHED = "/usr/sbin:/usr/bin:/sbin:/bin"
APPLETS = [
    "sh",
    "mount",
    "modprobe",
    "insmod",
    "poweroff",
    "sleep",
    "cat",
    "ls",
    "dmesg",
    "ln",
    "mkdir",
    "sysctl",
    "kill",
]
# Standard-library packages that no case imports, and the C modules with many libraries.
UNUSED = [
    "test",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "distutils",
    "tkinter",
    "unittest",
    "pydoc_data",
    "config-*",
]
UNUSED_MODULES = re.compile(r"_(tkinter|sqlite3|curses|dbm|gdbm)")
DRIVERS = (
    *("net/veth", "net/tun", "net/ifb", "net/dummy", "net/wireguard/wireguard"),
    *("net/virtio_net", "net/net_failover", "block/virtio_blk", "firmware/qemu_fw_cfg"),
    # Radios without hardware, in kernels that are not for virtual machines alone; since 6.4 in a folder of their own.
    *("net/wireless/mac80211_hwsim", "net/wireless/virtual/mac80211_hwsim"),
)


@dataclass(frozen=True)
class Kernel:
    """An unpacked kernel: its image, and an archive of its network modules."""

    release: str
    image: Path
    modules: Path


def userland(cache: Path) -> Path:
    """The programs of this host that a guest needs, with their libraries."""
    names = [*PROGRAMS, *filter(_has, EXTRA_PROGRAMS)]
    # Another list of programs is another archive.
    archive = cache / f"userland-{_digest(*names)}.cpio"
    if archive.exists():
        return archive
    root = _empty(cache / "userland")
    for name in ["bin", "sbin", "proc", "sys", "dev", "run", "tmp", "etc", "lib", "lib64"]:
        (root / name).mkdir()
    (root / "bin/busybox").write_bytes(Path(_program("busybox")).read_bytes())
    (root / "bin/busybox").chmod(0o755)
    for applet in APPLETS:
        (root / "bin" / applet).symlink_to("busybox")
    # The kernel calls this path for modules.
    (root / "sbin/modprobe").symlink_to("../bin/busybox")
    binaries = [Path(_program(name)).resolve() for name in names]
    for name, binary in zip(names, binaries, strict=True):
        shutil.copy(binary, root / "bin" / Path(name).name)
    library = _standard_library()
    kept = shutil.ignore_patterns(*UNUSED, "__pycache__", "dist-packages", "site-packages")
    shutil.copytree(library, root / library.relative_to("/"), ignore=kept)
    modules = []
    for module in (root / library.relative_to("/") / "lib-dynload").glob("*.so"):
        if UNUSED_MODULES.match(module.name):
            module.unlink()
        else:
            modules.append(module)
    # busybox may be a build that needs libraries.
    _copy_libraries(root, [root / "bin/busybox", *binaries, *modules])
    return _pack(root, archive)


def kernel(packages: list[Path], cache: Path) -> Kernel:
    """Unpacks a kernel's packages, without installing them."""
    name = packages[0].parent.name
    folder = cache / "unpacked" / f"{name}-{_digest(*DRIVERS)}"
    image, modules, release = folder / "vmlinuz", folder / "modules.cpio", folder / "release"
    if not release.exists():
        shutil.rmtree(folder, ignore_errors=True)
        whole = _empty(folder / "whole")
        for package in packages:
            subprocess.run(["dpkg-deb", "-x", package, whole], check=True)
        # In /boot and /lib/modules; both in /usr/lib/modules since 6.19.
        built = next(whole.rglob("vmlinuz*"))
        found = next(path for path in whole.rglob("lib/modules/*") if path.is_dir())
        version = found.name
        root = _empty(folder / "root")
        target = root / "lib/modules" / version
        target.mkdir(parents=True)
        for path in found.glob("modules.*"):
            shutil.copy(path, target)
        for path in _needed_modules(found / "kernel"):
            place = target / "kernel" / path.relative_to(found / "kernel")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
        packed = [str(path) for path in root.rglob("*.ko.xz")]
        if packed:
            subprocess.run(["unxz", *packed], check=True)
        subprocess.run([_program("busybox"), "depmod", "-b", root, version], check=True)
        shutil.copy(built, image)
        _pack(root, modules)
        shutil.rmtree(whole)
        release.write_text(version)
    return Kernel(release.read_text(), image, modules)


def initramfs(
    to: Path,
    programs: Sequence[Path],
    base: Path,
    modules: Path,
    extra: Sequence[Path] = (),
    tests: Sequence[Path] = (),
) -> Path:
    """All three archives in one file: later ones add to earlier ones.

    programs: for its folder `bin`, with their libraries; tests: the same for its folder `tests`;
    extra: scripts for its root folder.
    """
    root = _empty(to.parent / "case")
    (root / "bin").mkdir()
    (root / "tests").mkdir()
    for place, files in (("bin", programs), ("tests", tests)):
        for program in files:
            shutil.copy(program, root / place / program.name)
        _copy_libraries(root, list(files))
    for path in (*GUEST.iterdir(), *extra):
        if path.is_file():
            shutil.copy(path, root / path.name)
    (root / "init").chmod(0o755)
    own = _pack(root, to.parent / "case.cpio")
    with to.open("wb") as whole:
        for part in (base, modules, own):
            whole.write(part.read_bytes())
    return to


def _standard_library() -> Path:
    """That of the guest's Python, which need not be the Python that runs this."""
    code = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    asked = [PROGRAMS[0], "-I", "-c", code]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def _needed_modules(folder: Path) -> list[Path]:
    parts = [
        folder / name for name in ("net", "lib", "crypto", "arch/x86/crypto", "drivers/virtio")
    ]
    modules = [path for part in parts for path in part.rglob("*.ko*")]
    for driver in DRIVERS:
        modules += (folder / "drivers").glob(f"{driver}.ko*")
    return modules


def _copy_libraries(root: Path, binaries: Sequence[Path]) -> None:
    for binary in binaries:
        listed = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
        for library in set(re.findall(r"/lib\S*", listed)):
            place = root / library.lstrip("/")
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, place)


def _digest(*words: str) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()[:8]


def _has(name: str) -> bool:
    return shutil.which(name, path=SEARCHED) is not None


def _program(name: str) -> str:
    found = shutil.which(name, path=SEARCHED)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return found


def _empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def _pack(root: Path, archive: Path) -> Path:
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(
        ["cpio", "-o", "-H", "newc", "--quiet", "--owner=0:0"],
        input=names.encode(),
        cwd=root,
        stdout=subprocess.PIPE,
        check=True,
    )
    archive.write_bytes(packed.stdout)
    shutil.rmtree(root)
    return archive

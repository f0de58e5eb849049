"""Fetches the newest cloud kernel of each version family from Debian's archive.

apt does the work with a configuration of its own below the cache directory: nothing is installed on
the host, and the host's own lists and sources stay as they are. Signatures are verified as usual.
A package's name contains the version, so the newest is looked up by `apt-cache`, each time.
"""

import functools
import re
import subprocess
from pathlib import Path

# The family's name, and the suite that carries it. `newest` is whatever is newest in backports.
SUITES = {
    "5.10": "bullseye-security",
    "6.1": "bookworm-security",
    "6.12": "trixie-security",
    "6.18": "trixie-backports",
    "newest": "trixie-backports",
}
FAMILIES = tuple(SUITES)
# Debian's builds of a version: for virtual machines; with the drivers of hardware as well, Wi-Fi among them, four times as large.
CLOUD, WHOLE = "cloud-amd64", "amd64"
# Of one command of apt.
LIMIT_S = 150
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class Unavailable(Exception):
    """The archive, or the kernel in it, cannot be reached."""


def _mirror(part: str) -> str:
    """Where the host's own apt finds that part of the archive."""
    words = ("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages")
    done = subprocess.run(words, capture_output=True, text=True)
    for place in done.stdout.split():
        if place.rstrip("/").endswith(f"/{part}"):
            return place.rstrip("/")
    raise Unavailable(f"apt on this host has no source of {part}")


class Archive:
    """One private apt configuration below `cache`, and the packages downloaded through it."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def fetch(self, family: str, flavour: str = CLOUD) -> list[Path]:
        """The .deb files of a family's newest kernel: one, or binary and modules apart (6.19 on)."""
        suite = SUITES[family]
        names = self._names(suite)
        version, packages = _newest(family, names, flavour)
        if not packages:
            raise Unavailable(f"no {flavour} kernel of family {family} in {suite}")
        folder = self.cache / "kernels" / (version if flavour == CLOUD else f"{version}-{flavour}")
        folder.mkdir(parents=True, exist_ok=True)
        found = sorted(folder.glob("*.deb"))
        if len(found) != len(packages):
            self._apt(suite, "apt-get", "download", *packages, cwd=folder)
            found = sorted(folder.glob("*.deb"))
        return found

    @functools.cache  # noqa: B019 - one object per run
    def _names(self, suite: str) -> tuple[str, ...]:
        root = self._root(suite)
        for folder in ("state/lists/partial", "cache/archives/partial", "etc/preferences.d"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        place = _mirror("debian-security" if suite.endswith("-security") else "debian")
        (root / "sources.list").write_text(f"deb [signed-by={KEYRING}] {place} {suite} main\n")
        (root / "status").write_text("")
        self._apt(suite, "apt-get", "update", "-q", "-o", "Acquire::Check-Valid-Until=false")
        listed = self._apt(suite, "apt-cache", "pkgnames", "linux-")
        return tuple(listed.split())

    def _root(self, suite: str) -> Path:
        return (self.cache / "apt" / suite).absolute()

    def _apt(self, suite: str, tool: str, *words: str, cwd: Path | None = None) -> str:
        root = self._root(suite)
        options = {
            "Dir::Etc::sourcelist": root / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferences": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State": root / "state",
            "Dir::State::status": root / "status",
            "Dir::Cache": root / "cache",
            "APT::Architecture": "amd64",
            "APT::Architectures": "amd64",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "20",
            "Acquire::https::Timeout": "20",
        }
        # Options follow the sub-command's words; apt accepts them anywhere.
        argv = [tool, *words]
        for key, value in options.items():
            argv += ["-o", f"{key}={value}"]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, cwd=cwd, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            raise Unavailable(f"{' '.join(argv[:3])}: no answer in {LIMIT_S} s") from None
        if done.returncode or "Failed to fetch" in done.stderr:
            raise Unavailable(f"{' '.join(argv[:3])}: {done.stderr.strip()[-500:]}")
        return done.stdout


def _newest(family: str, names: tuple[str, ...], flavour: str = CLOUD) -> tuple[str, list[str]]:
    """The newest version of a family, and its packages."""
    # A version has no word of letters alone, as `rt` and `cloud` of other flavours.
    pattern = re.compile(rf"linux-(image|binary|modules)-(\d(?:(?!-[a-z]+-)[^ ])*)-{flavour}")
    kernels: dict[str, dict[str, str]] = {}
    for name in names:
        if match := pattern.fullmatch(name):
            kernels.setdefault(match[2], {})[match[1]] = name
    fitting = [
        version
        for version, parts in kernels.items()
        if (("binary" in parts and "modules" in parts) or "image" in parts)
        and "rc" not in version
        and (family == "newest" or re.match(rf"{re.escape(family)}\.", version))
    ]
    if not fitting:
        return "", []
    version = max(fitting, key=lambda text: [int(part) for part in re.findall(r"\d+", text)])
    parts = kernels[version]
    if "binary" in parts and "modules" in parts:
        return version, [parts["binary"], parts["modules"]]
    return version, [parts["image"]]

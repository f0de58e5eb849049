"""The agent's Rust tests that run its BPF programs, compiled for a guest.

They compare each window, limit and estimate of the programs in the kernel with those of the same law in Rust
(`crates/algo`). cargo compiles them, and says where they lie; their debug information stays behind.
"""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Files of crates/agent/tests; each of their tests runs programs in the kernel. By the case that runs them.
CASES = {
    "conformance": (
        "conformance",
        "conformance_afc",
        "conformance_gate",
        "conformance_pacing",
        "gate_choice",
    ),
    "conformance-acks": ("acks",),
}
FILES = tuple(name for names in CASES.values() for name in names)


@dataclass(frozen=True)
class Tests:
    """Test programs, and the names of all their tests as a guest reports them."""

    programs: tuple[Path, ...]
    names: frozenset[str]


def compiled(to: Path) -> Tests:
    """Compiles the tests, or takes what is compiled already, into a folder."""
    words = [word for name in FILES for word in ("--test", name)]
    # The whole workspace, as `./check` tests it: what it has compiled is taken.
    command = ["cargo", "test", "--no-run", "--message-format=json", "--workspace"]
    done = subprocess.run(
        [*command, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    found, names = [], []
    for line in done.stdout.splitlines():
        said = json.loads(line)
        # Examples and other packages are named as well.
        if (
            said.get("executable")
            and said["target"]["kind"] == ["test"]
            and Path(said["target"]["src_path"]).parent == ROOT / "crates/agent/tests"
        ):
            name = said["target"]["name"]
            subprocess.run(["strip", "-o", to / name, said["executable"]], check=True)
            found.append(to / name)
            listed = subprocess.run([to / name, "--list"], capture_output=True, text=True)
            tests = [
                test.removesuffix(": test")
                for test in listed.stdout.splitlines()
                if test.endswith(": test")
            ]
            names += [f"{name}: {test}" for test in tests]
    if sorted(program.name for program in found) != sorted(FILES):
        raise RuntimeError(f"compiled: {found}")
    return Tests(tuple(found), frozenset(names))

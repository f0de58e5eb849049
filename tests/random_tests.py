"""`python tests/random_tests.py [ROUNDS] [SEED]`: property tests with new cases, a seed per round, until one fails.

`./check` draws the same cases every time (`.cargo/config.toml`, `tests/conftest.py`). Here a failure is a defect of the
code, or a case that the test should exclude. The last line names the command that draws the same cases again. Proptest and
hypothesis also shrink the case, and print it; proptest writes its seed into a file beside the test, which ./check then
draws too. Commit that file with the repair.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-m", "hypothesis", "--hypothesis-profile=new"]
ROUNDS = 10


def targets() -> list[str]:
    """The options of `cargo test` for the crates with property tests: their libraries, and the files that have some."""
    options = ["--lib"]
    for crate in sorted((ROOT / "crates").iterdir()):
        inside = {
            path.relative_to(crate).parts
            for path in crate.rglob("*.rs")
            if "proptest!" in path.read_text()
        }
        if inside:
            options += ["-p", f"unbloat-{crate.name}"]
        names = {Path(parts[1]).stem for parts in inside if parts[0] == "tests"}
        options += [f"--test={name}" for name in sorted(names)]
    return options


def main() -> int:
    """Exit code 1 at the first round that fails."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    first = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 32)
    for seed in range(first, first + rounds):
        print(f"== seed {seed}", flush=True)
        env = os.environ | {"PROPTEST_RNG_SEED": str(seed)}
        commands = [
            ["cargo", "test", "--quiet", "--no-fail-fast", *targets()],
            *(
                [*PYTEST, f"--hypothesis-seed={seed}", f"tests/{folder}"]
                for folder in ("python", "report")
            ),
        ]
        codes = [
            subprocess.run(command, cwd=ROOT, env=env, check=False).returncode
            for command in commands
        ]
        if any(codes):
            print(f"failed; the same cases again: python tests/random_tests.py 1 {seed}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

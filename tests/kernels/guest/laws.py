"""What a compiled Rust test program says of each of its tests. Runs in the guest, and in the tests of the host."""

import re

# A test that finds no BPF, or too old a kernel, says so and passes.
LEFT_OUT = "left out: "


def said(output: str) -> dict[str, str]:
    """`same`, `failed`, or why it was left out, of each test; from `--show-output --test-threads=1`."""
    found = {
        name: "same" if word == "ok" else "failed"
        for name, word in re.findall(r"^test (\S+) \.\.\. (\w+)$", output, re.MULTILINE)
    }
    for name, own in re.findall(
        r"^---- (\S+) stdout ----\n(.*?)(?=^----|^\S+:$|\Z)", output, re.MULTILINE | re.DOTALL
    ):
        for line in own.splitlines():
            if line.startswith(LEFT_OUT) and found.get(name) == "same":
                found[name] = line
    return found

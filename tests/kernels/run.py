"""The agent on other kernels: `make kernels`, or `python3 tests/kernels/run.py [FAMILY …]`.

Boots the newest cloud kernel of each family of Debian's archive in QEMU, without hardware
virtualization, and tries there what the agent can do: each BPF object, a download and an upload
with and without a cure, `off`, and kill -9. Nothing is installed on the host; packages and images
lie in target/kernels.

It writes docs/generated/kernels.jsonl, a line per kernel and case, and the table kernels.md beside
it. A kernel that has lines of the present agent is not run again, unless `--again` says so.

`./check` runs less: tests/kernels/test_guests.py.

Every figure is one run under emulation. Compare the rows with and without a cure on one kernel, not
kernels with each other.
"""

import argparse
import json
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import archive
import machine
import prepare

ROOT = Path(__file__).resolve().parents[2]
LINES = ROOT / "docs" / "generated" / "kernels.jsonl"
PAGE = LINES.with_suffix(".md")
CASES = (
    *("features", "download", "download-cured", "download-existing", "upload", "upload-acks"),
    *("upload-gate", "congestion", "hand-over", "without-types", "killed-agent", "killed-both"),
)
Line = dict[str, Any]
# What the host needs for it.
PROGRAMS = (
    *("qemu-system-x86_64", "busybox", "cpio", "unxz", "apt-get", "dpkg-deb"),
    *("iperf3", "tc", "ss", "ping", "nsenter"),
)
PACKAGES = "qemu-system-x86 busybox-static cpio xz-utils iperf3 iproute2 iputils-ping"


def main() -> int:
    options = arguments()
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        print(f"missing: {', '.join(missing)}; apt install {PACKAGES}", file=sys.stderr)
        return 2
    wanted = options.families or list(archive.FAMILIES)
    agent = options.agent or ROOT / ".venv/bin/unbloat-agent"
    commit = agent_commit()
    lines = read()
    for family in wanted:
        done = {
            line["case"] for line in lines if (line["family"], line["commit"]) == (family, commit)
        }
        cases = [case for case in options.cases if options.again or case not in done]
        if not cases:
            print(f"{family}: has results of {commit}", file=sys.stderr)
            continue
        try:
            found = run(family, cases, agent)
        except archive.Unavailable as why:
            print(f"{family}: skipped: {why}", file=sys.stderr)
            continue
        for line in found:
            line |= {"family": family, "commit": commit, "date": date.today().isoformat()}
        new = {(line["family"], line["case"]) for line in found}
        lines = [line for line in lines if (line["family"], line["case"]) not in new] + found
        write(lines, options.out)
    return int(any("failed" in line["result"] for line in lines if line["family"] in wanted))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=", ".join(archive.FAMILIES))
    parser.add_argument("--cases", type=lambda text: text.split(","), default=list(CASES))
    parser.add_argument("--agent", type=Path, help="instead of that in .venv")
    parser.add_argument("--again", action="store_true", help="also what has results already")
    parser.add_argument("--out", type=Path, default=LINES, help="instead of docs/generated")
    return parser.parse_args()


def agent_commit() -> str:
    """The last commit that changed the agent."""
    command = ["git", "log", "-1", "--format=%h", "--", "crates/agent", "crates/settings"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def results(ran: machine.Run, cases: list[str]) -> dict[str, dict[str, Any]]:
    """A result per case. One that is missing says why, with the end of the console."""
    missing = {"failed": f"no result: {ran.why_missing()}", "console": ran.console}
    return {case: ran.cases.get(case, missing) for case in cases}


def run(family: str, cases: list[str], agent: Path) -> list[Line]:
    """One guest: a line per case."""
    guest = prepare.guest(family, agent)
    release = guest.kernel.release
    lines = []
    for case, result in results(guest.run(cases), cases).items():
        if "failed" in result:
            print(f"{release}: {case}: {result['failed']}", file=sys.stderr)
        lines.append({"kernel": release, "case": case, "result": result})
    return lines


def read() -> list[Line]:
    if not LINES.exists():
        return []
    return [json.loads(line) for line in LINES.read_text().splitlines()]


def write(lines: list[Line], to: Path) -> None:
    order = {family: number for number, family in enumerate(archive.FAMILIES)}
    lines.sort(key=lambda line: (order[line["family"]], CASES.index(line["case"])))
    to.write_text("".join(json.dumps(line, sort_keys=True) + "\n" for line in lines))
    to.with_suffix(".md").write_text(page(lines))


def page(lines: list[Line]) -> str:
    """The table: a column per kernel."""
    families = [name for name in archive.FAMILIES if any(line["family"] == name for line in lines)]
    by_place = {(line["family"], line["case"]): line["result"] for line in lines}
    releases = {line["family"]: line["kernel"].removesuffix("-cloud-amd64") for line in lines}
    days = sorted({line["date"] for line in lines})
    commits = sorted({line["commit"] for line in lines})
    text = [
        "# The agent on other kernels",
        "",
        f"Made by `make kernels` on {', '.join(days)} with the agent of commit {' and '.join(commits)};",
        "kernels.jsonl beside this page has the commit of each result. Kernels are the newest cloud",
        "kernels of Debian's archive. Each runs in a guest that QEMU emulates, without hardware",
        "virtualization. The path is veth: down 8 Mbit/s with a FIFO of 2 MB, up 2 Mbit/s with 1 MB,",
        "60 ms, CUBIC without HyStart.",
        "",
        "Every figure is one run. Compare the rows of one column, not the columns: an emulated host is",
        "slow, and times are its own. A transfer's cells are the RTT's median and 95th percentile in ms,",
        "of pings beside it, and the Mbit/s that reached the receiver.",
        "",
        "## Features",
        "",
        *table(releases, families, feature_rows(families, by_place)),
        "",
        "## Transfers and ends",
        "",
        *table(releases, families, case_rows(families, by_place)),
        "",
        "*nothing left* counts BPF programs, maps, links, pins, queue disciplines and filters after `off`.",
        "kill -9 comes at second 5 of a download. Where the kernel takes no cure for downloads, it is an",
        "upload. Delay and rate are those of seconds 9 to 13.5. The supervisor undoes what the agent has",
        "changed. If it was killed, too, the lease ends the cure, and `off` removes what is left.",
        "Where existing connections are not supported, their row shows the delay without a cure.",
        "",
        *reasons(families, by_place, releases),
    ]
    return "\n".join(text).rstrip() + "\n"


def table(releases: dict[str, str], families: list[str], rows: list[list[str]]) -> list[str]:
    head = ["", *(releases[family] for family in families)]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def feature_rows(families: list[str], results: dict[tuple[str, str], Any]) -> list[list[str]]:
    names: dict[str, str] = {}
    works: dict[tuple[str, str], bool] = {}
    for family in families:
        for feature in results.get((family, "features"), {}).get("features", []):
            names[feature["id"]] = feature["feature"]
            works[family, feature["id"]] = feature["works"]
    said = {True: "yes", False: "**no**", None: "not run"}
    return [[name, *(said[works.get((f, key))] for f in families)] for key, name in names.items()]


def case_rows(families: list[str], results: dict[tuple[str, str], Any]) -> list[list[str]]:
    labels = {
        "download": "download without a cure",
        "download-cured": "… λ = 1.5",
        "download-existing": "… of a connection that existed, λ = 2",
        "upload": "upload without a cure",
        "upload-acks": "… ACK-window rewriting",
        "upload-gate": "… the gate, with a modem's reports",
        "congestion": "congestion control: with the agent, after `off`",
        "hand-over": "an upload in which another agent takes over",
        "without-types": "ACK-window rewriting without the kernel's types; the gate",
        "killed-agent": "kill -9 of the agent",
        "killed-both": "kill -9 of agent and supervisor",
    }
    return [
        [label, *(cell(case, results.get((family, case))) for family in families)]
        for case, label in labels.items()
    ]


def cell(case: str, result: Any) -> str:
    if result is None:
        return "not run"
    if "failed" in result:
        return "failed"
    if "refused" in result or result.get("on"):
        return "refused"
    if "treated" in result:
        text = f"{'/'.join(result['treated'])}, {'/'.join(result['after_off'])}"
    else:
        text = f"{result.get('p50_ms', '?')}/{result.get('p95_ms', '?')} ms, {result['mbps']:.2f}"
    if result.get("way") == "up":
        text += " (upload)"
    if "gate" in result:
        text += f"; {cell('upload-gate', result['gate'])}"
    if not result.get("second", True) or result.get("agents", 1) != 1:
        text += "; not taken over"
    # A gate applies no window.
    if case != "upload-gate" and result.get("applied") is False:
        text += "; not applied"
    if "left" in result:
        text += "; something left" if result["left"] else "; nothing left"
    return text


def reasons(
    families: list[str], results: dict[tuple[str, str], Any], releases: dict[str, str]
) -> list[str]:
    """What is missing or left, in the words of the agent and its kernel."""
    found = []
    for family in families:
        own = {case: result for (name, case), result in results.items() if name == family}
        for feature in own.get("features", {}).get("features", []):
            if not feature["works"]:
                found.append(
                    f"- {releases[family]}, {feature['id']}: `{quoted(feature['missing'])}`"
                )
        for case, result in own.items():
            for key in ("failed", "refused"):
                if key in result:
                    line = result[key].strip().splitlines()
                    found.append(
                        f"- {releases[family]}, {case}: `{quoted(line[-1]) if line else key}`"
                    )
            if result.get("left"):
                found.append(f"- {releases[family]}, {case}: left: `{json.dumps(result['left'])}`")
    return ["## What is missing, as the agent says it", "", *found] if found else []


def quoted(text: str) -> str:
    """Fit to stand between backticks."""
    return text.replace("`", "")


if __name__ == "__main__":
    sys.exit(main())

"""The page of the agent on other kernels: its lines in, Markdown out.

A cell is one run, or the median of several with their range.
"""

import json
import statistics
from pathlib import Path
from typing import Any

import archive

LINES = Path(__file__).resolve().parents[2] / "docs" / "generated" / "kernels.jsonl"
# How often a repeated case runs, each time with other random numbers. Fixed before the first run.
RUNS = 5
Line = dict[str, Any]
Result = dict[str, Any]
# Results of a family and case, in the order of their runs.
Results = dict[tuple[str, str], list[Result]]
# Below the table, where some lines are of before guests had clocks that count instructions.
EARLIER = (
    "",
    "\\* Of an earlier agent, and with the host's clock: the load of the host changed delay and rate.",
)
# The rows of the second table.
LABELS = {
    "conformance": "tests: the laws in the kernel and in Rust, the gate's choice",
    "conformance-acks": "tests: ACK-window rewriting, packet by packet",
    "download": "download without a cure",
    "download-cured": "… λ = 1.5",
    "download-existing": "… of a connection that existed, λ = 2",
    "upload": "upload without a cure",
    "upload-acks": "… ACK-window rewriting",
    "upload-gate": "… the gate, with a modem's reports",
    "congestion-new": "congestion control of a new connection: with the agent, after `off`",
    "congestion": "… of one that existed: before, with the agent, after `off`",
    "hand-over": "an upload in which another agent takes over",
    "without-types": "ACK-window rewriting without the kernel's types; the gate",
    "killed-agent": "kill -9 of the agent",
    "killed-both": "kill -9 of agent and supervisor",
}
CASES = ("features", *LABELS)


def page(lines: list[Line]) -> str:
    """The tables: a column per kernel."""
    families = [name for name in archive.FAMILIES if any(line["family"] == name for line in lines)]
    results: Results = {}
    for line in sorted(lines, key=lambda line: line["run"]):
        results.setdefault((line["family"], line["case"]), []).append(line["result"])
    newest = sorted(lines, key=lambda line: line["date"])
    releases = {line["family"]: line["kernel"].removesuffix("-cloud-amd64") for line in newest}
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
        "A guest's clock counts instructions, one per nanosecond, so that the load of the host changes no",
        "figure. Times are the guest's own: they say nothing of how fast a program runs on a real",
        "processor.",
        "",
        "A transfer's cells are the RTT's median and 95th percentile in ms, of pings beside it, and the",
        f"Mbit/s that reached the receiver. {runs(results)}",
        "",
        "## Features",
        "",
        *table(releases, families, feature_rows(families, results)),
        "",
        "## Conformance, transfers and ends",
        "",
        *table(releases, families, case_rows(families, results)),
        "",
        "*nothing left* counts BPF programs, maps, links, pins, queue disciplines and filters after `off`.",
        "kill -9 comes at second 5 of a download. Where the kernel takes no cure for downloads, it is an",
        "upload. Delay and rate are those of seconds 9 to 13.5. The supervisor undoes what the agent has",
        "changed. If it was killed, too, the lease ends the cure, and `off` removes what is left.",
        "A connection that existed has filled its queue when the agent starts; its row shows seconds 18 to",
        "25.5. Where existing connections are not supported, that is the delay without a cure. There a",
        "new connection also keeps its congestion control after `off`.",
        *(EARLIER if any(map(earlier, lines)) else ()),
        "",
        *reasons(families, results, releases),
    ]
    return "\n".join(text).rstrip() + "\n"


def runs(results: Results) -> str:
    """How many runs a cell is."""
    counts = [len(of) for of in results.values() if len(of) > 1]
    if not counts:
        return "Every figure is one run."
    fewest, most = min(counts), max(counts)
    words = f"{most} runs" if fewest == most else f"{fewest} to {most} runs"
    return (
        f"A figure with a range is the\nmedian of {words} with other random numbers; {RUNS} were fixed "
        "before the first. All others\nare one run."
    )


def table(releases: dict[str, str], families: list[str], rows: list[list[str]]) -> list[str]:
    head = ["", *(releases[family] for family in families)]
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *rows)]


def feature_rows(families: list[str], results: Results) -> list[list[str]]:
    names: dict[str, str] = {}
    works: dict[tuple[str, str], bool] = {}
    for family in families:
        for feature in _first(results, family, "features").get("features", []):
            names[feature["id"]] = feature["feature"]
            works[family, feature["id"]] = feature["works"]
    said = {True: "yes", False: "**no**", None: "not run"}
    return [[name, *(said[works.get((f, key))] for f in families)] for key, name in names.items()]


def case_rows(families: list[str], results: Results) -> list[list[str]]:
    return [
        [label, *(cell(case, results.get((family, case), [])) for family in families)]
        for case, label in LABELS.items()
    ]


def earlier(line: Line) -> bool:
    """Whether a line of the second table was made with the host's clock."""
    return bool(line["case"] != "features" and line["result"].get("clock") == "host")


def cell(case: str, results: list[Result]) -> str:
    """The runs of a case in a few words."""
    if any(result.get("clock") == "host" for result in results):
        own = [{k: v for k, v in result.items() if k != "clock"} for result in results]
        return cell(case, own) + " \\*"
    if not results:
        return "not run"
    for word, keys in (("failed", ("failed",)), ("refused", ("refused", "on"))):
        count = sum(any(result.get(key) for key in keys) for result in results)
        if count:
            return word if count == len(results) else f"{word} in {count} of {len(results)} runs"
    first = results[0]
    if "tests" in first:
        return conformance(first["tests"])
    if "treated" in first:
        parts = ("untreated", "treated", "after_off")
        text = ", ".join("/".join(first[part]) for part in parts if part in first)
    else:
        delay = "/".join(figure(results, key, "{:.0f}") for key in ("p50_ms", "p95_ms"))
        text = f"{delay} ms, {figure(results, 'mbps', '{:.2f}')}"
    if first.get("way") == "up":
        text += " (upload)"
    if "on_s" in first:
        text += f"; agent from {first['on_s']} s on"
    if "gate" in first:
        text += f"; {cell('upload-gate', [result['gate'] for result in results])}"
    if any(not result.get("second", True) or result.get("agents", 1) != 1 for result in results):
        text += "; not taken over"
    # A gate applies no window.
    if case != "upload-gate" and any(result.get("applied") is False for result in results):
        text += "; not applied"
    if "left" in first:
        text += (
            "; something left" if any(result["left"] for result in results) else "; nothing left"
        )
    return text


def figure(results: list[Result], key: str, form: str) -> str:
    """One run's figure, or the median of several with their range."""
    figures = [result[key] for result in results if key in result]
    if len(figures) < len(results):
        return "?"
    text = form.format(statistics.median(figures))
    if len(figures) == 1:
        return text
    return f"{text} ({form.format(min(figures))}–{form.format(max(figures))})"


def conformance(tests: dict[str, str]) -> str:
    """How many tests said the same as the laws."""
    count = dict.fromkeys(("same", "left out", "failed"), 0)
    for said in tests.values():
        count[said.split(":")[0]] += 1
    text = f"{count['same']} of {len(tests)} pass"
    for word in ("left out", "failed"):
        if count[word]:
            text += f", {count[word]} {word}"
    return text


def reasons(families: list[str], results: Results, releases: dict[str, str]) -> list[str]:
    """What is missing or left, in the words of the agent and its kernel."""
    found = []
    for family in families:
        for feature in _first(results, family, "features").get("features", []):
            if not feature["works"]:
                found.append(
                    f"- {releases[family]}, {feature['id']}: `{quoted(feature['missing'])}`"
                )
        tests = _first(results, family, "conformance").get("tests", {})
        found += [
            f"- {releases[family]}, {name}: `{quoted(said)}`"
            for name, said in sorted(tests.items())
            if said != "same"
        ]
        for case in CASES:
            for result in results.get((family, case), []):
                for key in ("failed", "refused"):
                    if key in result:
                        line = result[key].strip().splitlines()
                        found.append(
                            f"- {releases[family]}, {case}: `{quoted(line[-1]) if line else key}`"
                        )
                if result.get("left"):
                    left = json.dumps(result["left"])
                    found.append(f"- {releases[family]}, {case}: left: `{left}`")
    return ["## What is missing, as the agent says it", "", *found] if found else []


def _first(results: Results, family: str, case: str) -> Result:
    return next(iter(results.get((family, case), [])), {})


def quoted(text: str) -> str:
    """Fit to stand between backticks."""
    return text.replace("`", "")

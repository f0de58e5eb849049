"""Chooses the flows of the second test half, by a rule that was fixed before the draw; with `choose.py`'s flows and strata.

The first test half was judged once and is used for tuning since. These flows are of captures of which none was drawn before:
the unused ones of the shared folder, and public ones of `captures_more.jsonl` (repository, commit, path and SHA-256; they are not
part of the repository). The pool of a repository is its files of 20 kB to 4 MiB whose name ends as a capture's does: smaller ones
seldom hold a flow of 11 data packets. A capture is left out if it

- is none that the analysis reads (pcap or pcapng, also in gzip),
- has the bytes of another in the pool, or of one of which a flow is in `flows.jsonl`,
- holds a flow (addresses, ports, first time) of such a capture.

A flow that two captures hold counts for the first. Drawn in turn from all strata as in the first draw, in another order.

Of the 64 flows so drawn, 47 turned out to be limited by their application, and few are bulk transfers. So a third draw adds up to
`BULK` of those, of the same pool, again by a rule that was fixed before it. A bulk transfer has the minimum of most findings (100 kB, 30
segments, 1 s), no pause of a quarter of its time, and 80 % of its segments as long as its longest one or longer than 1000 bytes.

    python tests/verdicts/choose_second.py list MORE > tests/verdicts/captures_more.jsonl
    python tests/verdicts/choose_second.py draw CAPTURES MORE >> tests/verdicts/flows.jsonl
    python tests/verdicts/choose_second.py bulk CAPTURES MORE >> tests/verdicts/flows.jsonl

`MORE` holds each file as OWNER/NAME/PATH of its repository.
"""

import collections
import gzip
import hashlib
import itertools
import json
import pathlib
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import choose

FOLDER = pathlib.Path(__file__).parent
#: Written down before the draw.
SEED = 20261125
FLOWS = 64
PER_FILE = 4
SHORT = 12
HALF = "second test"
#: Of the third draw, written down before it.
BULK_SEED = 20261126
BULK = 18
BULK_PER_FILE = 2
SMALLEST, LARGEST = 20_000, 4 << 20
ENDINGS = (".pcap", ".pcapng", ".cap", ".trace", ".dmp")
#: The public repositories, by the commit that the files are of.
REPOSITORIES = {
    "EricssonResearch/spindump": "fa722fd2034a6b79e7211f2f60e0bbf9a671662e",
    "arkime/arkime": "2d2f3678796bcedc6655a276f476b7ddd457f3f2",
    "chrissanders/packets": "0412fb1dc0aa671128f9da6689e0dbd4459c0b51",
    "ntop/nDPI": "3b1286ab03b0c9223ac208a01868d8c1f6c0ae00",
    "seladb/PcapPlusPlus": "200853b3a0b5ea2c443d6bee1a67f9c9c67b8f1b",
    "the-tcpdump-group/tcpdump": "39b50f76672bca4af7d7eb52604c5b692c6b6b2c",
    "zeek/zeek": "a13de64fbbdb01f90961c04719b308fbbb6d199e",
}
#: First bytes of pcap (both byte orders, micro- and nanoseconds) and pcapng.
MAGIC = tuple(
    bytes.fromhex(word) for word in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")
)
Key = tuple[str, str, float]


def digest(capture: pathlib.Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(capture.read_bytes()).hexdigest()


def readable(capture: pathlib.Path) -> bool:
    """Whether the file is pcap or pcapng, also in gzip."""
    data = capture.read_bytes()
    if data[:2] == b"\x1f\x8b":
        with gzip.open(capture) as packed:
            data = packed.read(4)
    return data[:4] in MAGIC


def listing(more: pathlib.Path, repositories: dict[str, str]) -> list[dict[str, str]]:
    """The public captures of the pool: one line of `captures_more.jsonl` each."""
    rows = []
    for repository, commit in repositories.items():
        for capture in sorted((more / repository).rglob("*")):
            name = capture.name.lower().removesuffix(".gz")
            if (
                capture.is_file()
                and name.endswith(ENDINGS)
                and SMALLEST <= capture.stat().st_size < LARGEST
                and readable(capture)
            ):
                path = str(capture.relative_to(more / repository))
                rows.append(
                    {"file": f"{repository}/{path}", "commit": commit, "sha256": digest(capture)}
                )
    return rows


def keys(flows: list[dict[str, Any]]) -> set[Key]:
    """What names a flow in whatever capture it is."""
    return {(flow["src"], flow["dst"], round(flow["first_s"], 3)) for flow in flows}


def listed(more: pathlib.Path, name: str) -> dict[str, pathlib.Path]:
    """The captures of a list, which must be the very files."""
    files = {}
    for row in map(json.loads, (FOLDER / name).read_text().splitlines()):
        files[row["file"]] = more / row["file"]
        if digest(files[row["file"]]) != row["sha256"]:
            raise SystemExit(f"{row['file']} is not the file that the draw was made from")
    return files


def pool(files: dict[str, pathlib.Path], seen: set[str]) -> list[dict[str, Any]]:
    """The flows to draw from: of captures of which none was seen, each flow once."""
    with ThreadPoolExecutor(2) as workers:
        flows_of = dict(
            zip(files, workers.map(choose.flows_of, files.values(), files.keys()), strict=True)
        )
    digests = {digest(files[name]) for name in seen}
    known = {key for name in seen for key in keys(flows_of[name])}
    flows: list[dict[str, Any]] = []
    for name, path in files.items():
        if name in seen or digest(path) in digests or keys(flows_of[name]) & known:
            continue
        digests.add(digest(path))
        already = keys(flows)
        flows += [flow for flow in flows_of[name] if not keys([flow]) & already]
    return flows


def is_bulk(flow: dict[str, Any], path: pathlib.Path) -> bool:
    """Whether a flow is a bulk transfer, by the times and lengths of its segments."""
    if flow["bytes"] < 100_000 or flow["packets"] < 30:
        return False
    rows = [
        (float(row["frame.time_epoch"]), int(row["tcp.len"]))
        for row in choose.packets(path)
        if int(row["tcp.stream"]) == flow["stream"]
        and f"{row['ip.src'] or row['ipv6.src']} {row['tcp.srcport']}" == flow["src"]
        and int(row["tcp.len"] or 0) > 0
    ]
    times = [time for time, _ in rows]
    lasted = times[-1] - times[0]
    full = min(max(length for _, length in rows), 1000)
    pause = max(after - before for before, after in itertools.pairwise(times))
    long = sum(length >= full for _, length in rows)
    return lasted >= 1 and pause < lasted / 4 and long >= 0.8 * len(rows)


def main() -> None:
    """Prints the public captures of the pool, or one line of JSON for each flow of the second test half."""
    if sys.argv[1] == "list":
        for row in listing(pathlib.Path(sys.argv[2]), REPOSITORIES):
            print(json.dumps(row))
        return
    captures, more = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    drawn = [json.loads(line) for line in (FOLDER / "flows.jsonl").read_text().splitlines()]
    seen = {flow["file"] for flow in drawn if flow["half"] in ("tuning", "test")}
    files = {
        str(path.relative_to(captures)): path
        for path in sorted(captures.rglob("*"))
        if path.is_file() and (readable(path) or str(path.relative_to(captures)) in seen)
    } | listed(more, "captures_more.jsonl")
    flows = pool(files, seen)
    chosen = choose.choose(flows, random.Random(SEED), FLOWS, PER_FILE, SHORT)
    if sys.argv[1] == "bulk":
        already = keys(chosen)
        flows = [
            flow
            for flow in flows
            if not keys([flow]) & already and is_bulk(flow, files[flow["file"]])
        ]
        chosen = choose.choose(flows, random.Random(BULK_SEED), BULK, BULK_PER_FILE, 0)
    strata = collections.Counter((flow["size"], flow["vantage"]) for flow in flows)
    print(len({flow["file"] for flow in flows}), "captures", dict(strata), file=sys.stderr)
    for flow in sorted(chosen, key=lambda flow: (flow["file"], flow["first_frame"])):
        print(json.dumps(flow | {"half": HALF}))


if __name__ == "__main__":
    main()

"""Chooses the flows of the third test half, by a rule that was fixed before the draw; with the strata and the pool of `choose_second.py`.

The second test half was judged once and is used for tuning since. These flows are of public repositories of which no capture was used
before, with files of 20 kB to 4 MiB, of which none has the bytes or holds a flow of a capture that an earlier draw used. Two captures of
VNC are left out, since tshark dissects them for minutes; the first run of the draw was ended there, before it had a result.

Most flows of public captures are limited by their application, so the bulk transfers are drawn first: up to `BULK`, by the rule of
`choose_second.is_bulk`. The other flows follow, `FLOWS` in all or fewer: never more than twice the bulk transfers, so that these are half of
the set, one of a capture. At most `PER_FILE` of a capture are drawn, and at most `SHORT` of the shortest size.

    python tests/verdicts/choose_third.py CAPTURES MORE THIRD >> tests/verdicts/flows.jsonl

`CAPTURES` and `MORE` are those of the earlier draws. `THIRD` holds each file as OWNER/NAME/PATH of its repository. The captures that hold
a drawn flow are named in `captures_third.jsonl`, which is written beside.
"""

import collections
import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import choose
import choose_second

LISTING = choose_second.FOLDER / "captures_third.jsonl"
HALF = "third test"
#: Written down before the draw.
SEED = 20261127
FLOWS = 60
BULK = 40
PER_FILE = 3
SHORT = 4
SLOW = "OISF/suricata-verify/tests/rfb-protocol-"
#: The public repositories, by the commit that the files are of.
REPOSITORIES = {
    "Ctpy/awbestimation": "c7764ab29f2daa9d5c50fe73a95d5b8164c629b3",
    "Lekensteyn/wireshark-notes": "b166e14c2bf79f4a61cbcd01ca92a2c418ac9550",
    "OISF/suricata-verify": "10a45e4bad6d29d0f1239d93119ea24e1bbdab19",
    "automayt/ICS-pcap": "13b7ae335529146b40535c2d7aa756886040d8ad",
    "bbejleri/WiresharkTrace-Timestamps": "63eae6581c2b48b6909654c408c1dbc84843c7ba",
    "f18m/large-pcap-analyzer": "67d444c7552dd184f77663453a5231eeb786a111",
    "ferozbaig96/pcaps": "1c2616f6fc469d917c8581696c38adc8dd0bc975",
    "fkie-cad/pcapFS": "602239bfcffd24976d7330847b68d18d6a7a9a98",
    "lucadibello/tcp-congestion-analysis-tool": "ae37890eae31d2d99369533ab34bd8933ae20dcc",
    "markofu/pcaps": "437d66912ac72155c227bc987ab6e9aa430b2285",
    "mukul2604/pcap-analyzer": "a8eacc2c659e02b92ad66bccd17d11f2a675a842",
    "obonaventure/cnp3": "155b3a61690f282a7c72fe117fcd3b83c7c09035",
    "theanthonypeterson/TCPlot": "63c3b20b7c8ef38ad1b224f873f296b528eab7f6",
}


def main() -> None:
    """Writes `captures_third.jsonl` and prints one line of JSON for each flow of the third test half."""
    folders = [pathlib.Path(word) for word in sys.argv[1:4]]
    drawn = map(json.loads, (choose_second.FOLDER / "flows.jsonl").read_text().splitlines())
    seen = {flow["file"] for flow in drawn if flow["half"] != HALF}
    rows = [
        row
        for row in choose_second.listing(folders[2], REPOSITORIES)
        if not row["file"].startswith(SLOW)
    ]
    files = {
        name: next(top / name for top in folders[:2] if (top / name).exists()) for name in seen
    } | {row["file"]: folders[2] / row["file"] for row in rows}
    flows = choose_second.pool(files, seen)
    bulk = [flow for flow in flows if choose_second.is_bulk(flow, files[flow["file"]])]
    order = random.Random(SEED)
    chosen = choose.choose(bulk, order, BULK, PER_FILE, 0)
    print(len(flows), "flows", len(bulk), "bulk", len(chosen), "bulk drawn", file=sys.stderr)

    used = collections.Counter(flow["file"] for flow in chosen)
    already = choose_second.keys(bulk)
    others = [
        flow
        for flow in flows
        if used[flow["file"]] < PER_FILE and not choose_second.keys([flow]) & already
    ]
    room = min(FLOWS - len(chosen), len(chosen))
    chosen += choose.choose(others, order, room, 1, SHORT)

    held = {flow["file"] for flow in chosen}
    LISTING.write_text("".join(json.dumps(row) + "\n" for row in rows if row["file"] in held))
    for flow in sorted(chosen, key=lambda flow: (flow["file"], flow["first_frame"])):
        print(json.dumps(flow | {"half": HALF}))


if __name__ == "__main__":
    main()

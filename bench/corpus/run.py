"""What a corpus costs: `python3 bench/corpus/run.py` measures, prints the tables and writes each to `bench/RESULTS.md`
once it is made.

signal: 20 GB of the captures of `bench/make_captures.c`, a hundred thousand small ones, a hundred million seconds of slots
model:  the same bytes read by `unbloat analyze`, one process and one for each processor, and by `unbloat corpus run` with
        one, two and four jobs and workers of Dask, rounds interleaved; all files lie in memory, so that no disk decides
action: the corpus's rate as a share of `analyze`'s; the largest resident set and the time for a hundred to a hundred thousand
        files; the time of a run that finds everything done; the time of a query

The large captures are links to two files: a corpus reads each name as a unit of its own. Run it with the Python that has unbloat
installed, on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from bench.results import machine, put_section  # noqa: E402
from bench.run import SHAPES, Cost, build, generate, measure  # noqa: E402

UNBLOAT = [sys.executable, "-m", "unbloat"]
# Full packets and cut ones, 20 GB together: links of each to one file.
LARGE = {"full": 8, "many": 12}
QUICK = {"full10": 4, "many10": 6}
JOBS = (1, 2, 4)
DASK = ("--dask", "local")
# So many files show what Dask adds to each.
DASK_FILES = 1_000
GOAL_SHARE = 0.9
GOAL_RESUMED_S = 10.0
GOAL_WORKER_MB = 300.0
# A hundred million seconds of four hundred phones.
SLOTS, DEVICES = 100_000_000, 400
# A file system allows 65,000 links to a file.
LINKS = 50_000
PER_FOLDER = 1_000
SHORT = """
name = "short"
about = "A short upload."
duration = "1 s"
[link.up]
rate = "10 Mbit/s"
delay = "20 ms"
[link.down]
rate = "20 Mbit/s"
delay = "20 ms"
[[flow]]
name = "upload"
from = "client"
to = "server"
stop = "0.1 s"
"""
# Sessions of an hour, each device one after the other; half of the seconds without an RTT.
MADE_SLOTS = """
COPY (
  SELECT 'unit' || (i // 3600) AS unit, 'phone' || (i // ({slots} // {devices})) AS device, 'file' || (i // 3600) AS file,
         1.7e9 + (i // 3600) * 4000.0 AS t0_s, (i % 3600)::DOUBLE AS from_s,
         (hash(i) % 200000)::UBIGINT AS bytes_up, (hash(i + 1) % 2000000)::UBIGINT AS bytes_down,
         (1 + hash(i + 2) % 8)::BIGINT AS connections,
         CASE WHEN hash(i + 3) % 2 = 0 THEN 20.0 + (hash(i + 4) % 1000) END AS rtt_ms,
         CASE WHEN hash(i + 3) % 2 = 0 THEN (hash(i + 4) % 1000)::DOUBLE END AS rtt_rise_ms,
         CASE WHEN hash(i + 5) % 2 = 0 THEN (hash(i + 6) % 1000) / 10.0 END AS ack_delay_ms
  FROM range({slots}) t(i)
) TO '{folder}' (FORMAT parquet, COMPRESSION zstd, PER_THREAD_OUTPUT, FILE_SIZE_BYTES '128MB')
"""
QUESTIONS = {
    "bytes of each device": "SELECT device, sum(bytes_up), sum(bytes_down) FROM slots GROUP BY device ORDER BY device",
    "p95 of the rise of the RTT, by device and hour, where more than 100 KB went up": """
        SELECT device, hour(make_timestamp(CAST((t0_s + from_s) * 1e6 AS BIGINT))) AS hour, count(*),
               approx_quantile(rtt_rise_ms, 0.95)
        FROM slots WHERE bytes_up > 100000 GROUP BY ALL ORDER BY ALL""",
    "the hundred seconds with the largest rise": "SELECT * FROM slots ORDER BY rtt_rise_ms DESC NULLS LAST LIMIT 100",
}


def links(files: dict[str, Path], counts: dict[str, int], into: Path) -> int:
    """So many names for each file; the bytes of all."""
    total = 0
    for shape, count in counts.items():
        (into / shape).mkdir(parents=True)
        for n in range(count):
            os.link(files[shape], into / shape / f"{n:02d}.pcap")
        total += count * files[shape].stat().st_size
    return total


def analysed_s(names: Sequence[Path], at_a_time: int) -> float:
    """Seconds in which as many processes of `unbloat analyze` read these files, each process one file after the other."""
    shares = [list(names[n::at_a_time]) for n in range(at_a_time)]
    begin = time.perf_counter()
    running = [
        subprocess.Popen(
            ["sh", "-c", 'for f; do "$0" -m unbloat analyze "$f"; done', sys.executable, *share],
            stdout=subprocess.DEVNULL,
        )
        for share in shares
    ]
    if any(process.wait() for process in running):
        raise SystemExit("unbloat analyze failed")
    return time.perf_counter() - begin


def corpus(tools: Path, source: Path, out: Path, *words: str) -> Cost:
    """What a run of a corpus costs."""
    return measure(tools, [*UNBLOAT, "corpus", "run", str(source), "--out", str(out), *words])[0]


def digest(out: Path) -> str:
    """Of all bytes of the tables."""
    whole = hashlib.blake2b(digest_size=16)
    for path in sorted((out / "table").rglob("*.parquet")):
        whole.update(str(path.relative_to(out)).encode() + path.read_bytes())
    return whole.hexdigest()


def rate(tools: Path, data: Path, scratch: Path, counts: dict[str, int], rounds: int) -> list[str]:
    """The corpus beside `analyze`."""
    source = scratch / "large"
    total = links({shape: generate(shape, data, tools) for shape in counts}, counts, source)
    names = sorted(source.rglob("*.pcap"))
    for shape in counts:
        (data / f"{shape}.pcap").read_bytes()  # into memory
    took: dict[str, list[float]] = defaultdict(list)
    memory: dict[str, float] = {}
    tables: dict[str, str] = {}
    cores = os.cpu_count() or 1
    for n in range(rounds):
        for at_a_time in (1, cores):
            took[f"analyze, {at_a_time} at a time"].append(analysed_s(names, at_a_time))
        runs = [(f"corpus, {jobs} jobs", jobs, ()) for jobs in JOBS]
        for name, jobs, words in [*runs, (f"corpus, {cores} workers of Dask", cores, DASK)]:
            out = scratch / f"out-{len(tables)}"
            cost = corpus(tools, source, out, "--jobs", str(jobs), *words)
            took[name].append(cost.wall)
            memory[name] = max(cost.rss, memory.get(name, 0))
            tables[name] = digest(out)
            shutil.rmtree(out)
        say(
            f"round {n + 1} of {rounds}: "
            + ", ".join(f"{k} {v[-1]:.1f} s" for k, v in took.items())
        )
    if len(set(tables.values())) != 1:
        raise SystemExit(f"the tables differ: {tables}")
    alone = statistics.median(took["analyze, 1 at a time"])
    lines = [
        f"{len(names)} captures, {total / 1e9:.1f} GB, in memory: "
        + ", ".join(f"{count} × `{shape}` ({SHAPES[shape]})" for shape, count in counts.items())
        + f". Medians of {rounds} rounds, interleaved. The tables had the same bytes in every run.",
        "",
        f"| what | s | MB/s | of {cores} × analyze | of {cores} analyses at a time | largest process, MB |",
        "|---|---|---|---|---|---|",
    ]
    beside = statistics.median(took[f"analyze, {cores} at a time"])
    for name, several in took.items():
        wall = statistics.median(several)
        lines.append(
            f"| {name} | {wall:.1f} ({min(several):.1f} to {max(several):.1f}) | {total / wall / 1e6:.0f} | "
            f"{alone / wall / cores:.0%} | {beside / wall:.0%} | {memory[name]:.0f} |"
            if name in memory
            else f"| {name} | {wall:.1f} ({min(several):.1f} to {max(several):.1f}) | {total / wall / 1e6:.0f} | "
            f"{alone / wall / cores:.0%} | {beside / wall:.0%} | |"
        )
    own = (
        statistics.median(took[f"corpus, {cores} jobs"])
        if cores in JOBS
        else min(map(min, took.values()))
    )
    share = alone / own / cores
    return [
        *lines,
        "",
        f"Goal: at least {GOAL_SHARE:.0%} of {cores} × analyze: {share:.0%}, {kept(share >= GOAL_SHARE)}. "
        f"A process at most {GOAL_WORKER_MB:.0f} MB: {max(memory.values()):.0f} MB, "
        f"{kept(max(memory.values()) <= GOAL_WORKER_MB)}.",
    ]


def files(tools: Path, scratch: Path, most: int) -> list[str]:
    """Memory and time by the number of files."""
    lines = [
        "| files | first run, s | ms per file | nothing to do, s | largest process, MB |",
        "|---|---|---|---|---|",
    ]
    capture = small_capture(scratch / "small")
    resumed, count, about = 0.0, 100, ""
    while count <= most:
        source, out = scratch / f"files-{count}", scratch / f"of-{count}"
        for first in range(0, count, LINKS):
            small = scratch / f"small-{count}-{first}"
            shutil.copy(capture, small)
            for n in range(first, min(first + LINKS, count)):
                folder = source / f"{n // PER_FOLDER:03d}"
                folder.mkdir(parents=True, exist_ok=True)
                os.link(small, folder / f"{n:06d}.pcapng")
        begun, again = corpus(tools, source, out), corpus(tools, source, out)
        if count == DASK_FILES:
            by_dask = corpus(tools, source, scratch / "of-dask", *DASK)
            sizes = [path.stat().st_size for path in (out / "table").rglob("*.parquet")]
            about = (
                f"{count:,} files by {os.cpu_count() or 1} workers of Dask: {by_dask.wall:.1f} s, "
                f"{(by_dask.wall - begun.wall) * 1e3 / count:.1f} ms per file more, the start of the cluster included. "
                f"Tables of {count:,} files: {sum(sizes) / 1e6:.1f} MB."
            )
            shutil.rmtree(scratch / "of-dask")
        say(f"{count} files: {begun.wall:.1f} s, then {again.wall:.1f} s, {begun.rss:.0f} MB")
        resumed, memory = again.wall, max(begun.rss, again.rss)
        lines.append(
            f"| {count:,} | {begun.wall:.1f} | {begun.wall * 1e3 / count:.1f} | {again.wall:.1f} | {memory:.0f} |"
        )
        shutil.rmtree(out)
        shutil.rmtree(source)
        count *= 10
    return [
        *lines,
        "",
        about,
        "",
        f"Goal: listed and resumed in less than {GOAL_RESUMED_S:.0f} s: {resumed:.1f} s, {kept(resumed < GOAL_RESUMED_S)}.",
    ]


def small_capture(folder: Path) -> Path:
    """A capture of a short upload, by the simulator."""
    import unbloat

    folder.mkdir()
    scenario = folder / "short.toml"
    scenario.write_text(SHORT)
    unbloat.simulate(scenario, pcap=folder)
    return next(folder.rglob("client.pcapng"))


def query(tools: Path, scratch: Path, slots: int) -> list[str]:
    """Questions to many slots: a corpus of one capture whose table of slots is replaced."""
    import duckdb

    out = scratch / "queried"
    corpus(tools, small_capture(scratch / "one"), out)
    folder = out / "table" / "slots"
    shutil.rmtree(folder)
    duckdb.sql(MADE_SLOTS.format(slots=slots, devices=DEVICES, folder=folder))
    size = sum(path.stat().st_size for path in folder.iterdir())
    lines = ["| question | s | largest process, MB |", "|---|---|---|"]
    for name, sql in QUESTIONS.items():
        cost = measure(tools, [*UNBLOAT, "corpus", "query", str(out), sql, "--csv"])[0]
        say(f"{name}: {cost.wall:.1f} s, {cost.rss:.0f} MB")
        lines.append(f"| {name} | {cost.wall:.1f} | {cost.rss:.0f} |")
    return [f"{slots:,} seconds of {DEVICES} devices, {size / 1e9:.1f} GB of Parquet.", "", *lines]


def kept(it: bool) -> str:
    """A word for a table."""
    return "kept" if it else "not kept"


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="a tenth of everything; nothing is written"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("rate", "files", "query"), help="one of the three")
    parser.add_argument(
        "--data", type=Path, default=HERE.parent / "data", help="where the capture files are made"
    )
    args = parser.parse_args()
    args.data.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=args.data) as folder:
        scratch = Path(folder)
        build(scratch)
        counts = QUICK if args.quick else LARGE
        most = 1_000 if args.quick else 100_000
        slots = SLOTS // 10 if args.quick else SLOTS
        parts: dict[str, tuple[str, Callable[[], list[str]]]] = {
            "rate": ("rate", lambda: rate(scratch, args.data, scratch, counts, args.rounds)),
            "files": ("number of files", lambda: files(scratch, scratch, most)),
            "query": ("queries", lambda: query(scratch, scratch, slots)),
        }
        for part, (name, made) in parts.items():
            if args.only not in (None, part):
                continue
            # The load before it, not its own.
            where = machine(f", Python {platform.python_version()}")
            text = [f"Made by `python3 bench/corpus/run.py`; {where}.", "", *made()]
            title = f"## Corpus: {name}"
            print("\n".join([title, "", *text]), flush=True)
            if not args.quick:
                put_section(title, text)


if __name__ == "__main__":
    main()

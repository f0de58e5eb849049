"""`unbloat corpus run`: sources to units, units without a receipt to the pool, then all parts to the tables."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unbloat.corpus.cluster import UnitCluster
from unbloat.corpus.cluster_task import MARKS, TOKEN
from unbloat.corpus.compact import compact
from unbloat.corpus.ledger import Ledger
from unbloat.corpus.pool import Pool
from unbloat.corpus.receipts import Receipts
from unbloat.corpus.remote_ledger import RemoteLedger, ledger_at
from unbloat.corpus.sources import Search, find_units
from unbloat.corpus.unit import DONE, FAILED, Receipt, Unit
from unbloat.corpus.unit_table import UnitTable
from unbloat.errors import UnbloatError

if TYPE_CHECKING:
    from unbloat.corpus.anonymise import Pseudonyms

# A slow disk under other load still reads 8 MB/s.
TIMEOUT_PER_GB_S = 120.0
# Of every unit besides: to start, to open a remote file, to try again.
TIMEOUT_BASE_S = 60.0

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass(frozen=True)
class RunOptions:
    """How a corpus is run. `include`, `device_from` and `merge` decide what the units are, `anonymise` their names; the others change no result."""

    jobs: int | None = None
    include: str | None = None
    device_from: str | None = None
    merge: bool = False
    """Files of a rotating capture are one unit."""
    anonymise: Path | None = None
    """File with the key of pseudonyms."""
    limit: int | None = None
    retry_failed: bool = False
    timeout_per_gb_s: float = TIMEOUT_PER_GB_S
    timeout_base_s: float = TIMEOUT_BASE_S
    dask: str | None = None
    """`local`, or the address of a Dask scheduler, instead of the pool of this machine."""


@dataclass
class Outcome:
    """What a run did."""

    found: int
    """Units of the sources."""
    ran: int
    done: int
    """Of all units of the sources, now."""
    size_bytes: int
    """Of the units that ran."""
    errors: list[str]
    """A line for each unit of the sources that is bad or failed, or is not there."""
    shown: list[str]
    """The same with the names of files, also if pseudonyms stand for them elsewhere."""


def run_corpus(
    sources: Iterable[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    options: RunOptions | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Analyses what has no result yet. A capture that cannot be read is in the outcome, never an exception."""
    options = options or RunOptions()
    with contextlib.closing(ledger_at(out)) as ledger:
        if options.dask is not None and isinstance(ledger, RemoteLedger):
            raise UnbloatError("--dask needs --out to be a folder that all workers see, not a URL")
        return run_into(ledger, sources, options, progress)


def run_into(
    ledger: Ledger,
    sources: Iterable[str | os.PathLike[str]],
    options: RunOptions,
    progress: Progress | None,
) -> Outcome:
    """As `run_corpus`, with the ledger of a corpus."""
    pseudonyms = pseudonyms_of(options.anonymise, ledger.out)
    fingerprint = None if pseudonyms is None else pseudonyms.fingerprint()
    if ledger.usable():
        ledger.same_key(fingerprint)
    search = Search(options.include, pattern(options.device_from), options.merge, str(ledger.out))
    units = find_units([os.fspath(source) for source in sources], search, ledger.scratch)
    if not len(units) and search.missing:
        raise FileNotFoundError(2, os.strerror(2), search.missing[0])
    if not len(units):
        raise UnbloatError(
            "no capture was found: the names of captures end in .pcap, .pcapng, .cap or .dmp; "
            "--include takes others"
        )
    by_name = units
    if pseudonyms is not None:
        units = UnitTable.of(ledger.scratch, map(pseudonyms.hidden, by_name))
    ledger.begin(fingerprint)
    with ledger.lock():
        clean(ledger)
        manifest = ledger.add_to_manifest(units)
        receipts = known_receipts(ledger, units, options)
        todo = units.beyond(receipts).first(options.limit)
        settings: dict[str, Any] = {"out": str(ledger.out)}
        if pseudonyms is not None:
            settings["key"] = pseudonyms.key.hex()
        run_units(ledger, todo, receipts, options, settings, progress)
        compact(ledger, manifest, receipts)
        (ledger.out / "running").unlink(missing_ok=True)
    own, ran = receipts.among(units), receipts.among(todo)
    errors = sorted(own.errors())
    shown = errors
    if pseudonyms is not None:
        wanted = {line.partition(": ")[0] for line in errors}
        hidden = ((pseudonyms.name("file", unit["file"]), unit["file"]) for unit in by_name)
        names = {name: file for name, file in hidden if name in wanted}
        shown = [named(line, names) for line in errors]
    reason = "no such file or directory"
    absent = [pseudonyms.name("file", one) if pseudonyms else one for one in search.missing]
    return Outcome(
        found=len(units),
        ran=len(ran),
        done=len(own.of_state(DONE)),
        size_bytes=ran.size_bytes(),
        errors=[f"{name}: {reason}" for name in absent] + errors,
        shown=[f"{name}: {reason}" for name in search.missing] + shown,
    )


def pseudonyms_of(key: Path | None, out: Path) -> Pseudonyms | None:
    """What stands for names and addresses, if a key is given."""
    if key is None:
        return None
    from unbloat.corpus.anonymise import Pseudonyms, read_key

    if Path(os.path.abspath(key)).is_relative_to(out):
        raise UnbloatError(f"{key}: the key has to lie outside of the results")
    return Pseudonyms(read_key(key))


def named(line: str, names: Mapping[str, str]) -> str:
    """An error with the name of the file for its pseudonym."""
    file, colon, rest = line.partition(": ")
    return names.get(file, file) + colon + rest


def pattern(text: str | None) -> re.Pattern[str] | None:
    """The expression that finds devices."""
    if text is None:
        return None
    try:
        return re.compile(text)
    except re.error as error:
        raise UnbloatError(f"--device-from {text}: is no regular expression: {error}") from None


def clean(ledger: Ledger) -> None:
    """Removes half written files of a run that was killed, and marks that one runs now."""
    mark = ledger.out / "running"
    if mark.exists():
        shutil.rmtree(ledger.out / MARKS, ignore_errors=True)
        (ledger.out / TOKEN).unlink(missing_ok=True)
        for folder, _, names in os.walk(ledger.out):
            for name in names:
                if name.startswith(".tmp-"):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(os.path.join(folder, name))
    mark.touch()


def known_receipts(ledger: Ledger, units: UnitTable, options: RunOptions) -> Receipts:
    """Receipts of units that are not run again."""
    receipts = ledger.receipts()
    if options.retry_failed:
        failed = receipts.among(units).of_state(FAILED).kept("key")
        for key in failed.each_key():
            ledger.remove(key)
        receipts.remove(failed)
    return receipts


def run_units(
    ledger: Ledger,
    todo: UnitTable,
    receipts: Receipts,
    options: RunOptions,
    settings: dict[str, Any],
    progress: Progress | None,
) -> None:
    """Runs units, and adds their receipts."""
    total = todo.size_bytes()
    done_bytes = 0

    def finished(receipt: Receipt) -> None:
        nonlocal done_bytes
        receipts.add([receipt])
        ledger.stored(receipt)
        done_bytes += receipt["size_bytes"]

    def running(read_bytes: int) -> None:
        if progress is not None:
            progress(min(done_bytes + read_bytes, total), total)

    def timed(unit: Unit) -> Unit:
        allowed_s = options.timeout_base_s + options.timeout_per_gb_s * unit["size_bytes"] / 1e9
        return unit | {"timeout_s": allowed_s}

    if len(todo):
        jobs = min(options.jobs or os.cpu_count() or 1, len(todo))
        try:
            if options.dask is None:
                Pool(ledger, jobs, settings, finished, running).run(map(timed, todo))
            else:
                cluster = UnitCluster(ledger, options.dask, jobs, settings, finished, running)
                cluster.run_units(map(timed, todo))
        except KeyboardInterrupt:
            ledger.flush()
            raise
        ledger.flush()

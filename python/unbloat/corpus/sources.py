"""From sources to units: folders, globs, files, URLs, and the members of archives.

A folder gives the captures and archives in it, by their names; a file that is named itself is always taken. Symbolic
links in folders and archives are skipped: they may lead anywhere, or in a circle. Nothing is read but directories of archives.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

from unbloat.corpus.archive import ArchiveError, archive_kind, members
from unbloat.corpus.remote import filesystem, open_url
from unbloat.corpus.rotating import joined
from unbloat.corpus.scratch import Scratch
from unbloat.corpus.unit import Unit, is_remote, make_unit, without_credentials
from unbloat.corpus.unit_table import UnitTable
from unbloat.errors import UnbloatError

# What captures are called; rotating ones end in a number.
CAPTURE = re.compile(r"\.(pcap|pcapng|cap|dmp|tcpdump)([._-]?\d+)?(\.(gz|zst))?$", re.I)
MAGIC = re.compile(r"[*?\[]")


@dataclass
class Search:
    """What is looked for, and what was missing."""

    include: str | None = None
    device_from: re.Pattern[str] | None = None
    merge: bool = False
    """Files of a rotating capture are one unit."""
    leave_out: str | None = None
    """The folder of results, which may lie among the sources."""
    missing: list[str] = field(default_factory=list)

    def wanted(self, name: str) -> bool:
        """Whether a file of a folder or an archive is taken."""
        if self.include is not None:
            return fnmatch(name, self.include) or fnmatch(PurePosixPath(name).name, self.include)
        return CAPTURE.search(name) is not None

    def device(self, name: str, folder: str) -> str:
        """The device of a capture: what the expression finds in its name, else the folder's name."""
        if self.device_from is None:
            return folder
        match = self.device_from.search(name)
        if match is None:
            return ""
        return (match[1] if match.lastindex else match[0]) or ""


def find_units(sources: Iterable[str], search: Search, scratch: Scratch | None = None) -> UnitTable:
    """Every unit once, the largest first."""
    units = (
        unit
        for source in sources
        for unit in (remote(source, search) if is_remote(source) else local(source, search))
    )
    found = joined(each_once(units)) if search.merge else units
    return UnitTable.of(scratch or Scratch(), found)


def each_once(units: Iterable[Unit]) -> Iterator[Unit]:
    """The first one of each key."""
    seen: set[bytes] = set()
    for unit in units:
        key = bytes.fromhex(unit["key"])
        if key not in seen:
            seen.add(key)
            yield unit


def local(source: str, search: Search) -> Iterator[Unit]:
    """Units of a path or a glob."""
    if os.path.lexists(source):
        paths = [source]
    elif MAGIC.search(source):
        paths = sorted(glob.glob(source, recursive=True))
    else:
        paths = []
    if not paths:
        search.missing.append(source)
    for path in paths:
        whole = os.path.abspath(path)
        if os.path.isdir(whole):
            yield from in_folder(whole, search)
        elif os.path.exists(whole):
            yield from of_file(whole, os.stat(whole), search)
        else:
            search.missing.append(path)


def in_folder(top: str, search: Search) -> Iterator[Unit]:
    """Units of a folder and the folders in it."""
    pending = [top]
    while pending:
        folder = pending.pop()
        if folder == search.leave_out:
            continue
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError:
            search.missing.append(folder)
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.is_file(follow_symlinks=False):
                name = entry.path[len(top) :].lstrip("/")
                if archive_kind(name) is not None or search.wanted(name):
                    yield from of_file(entry.path, entry.stat(follow_symlinks=False), search)


def of_file(path: str, facts: os.stat_result, search: Search) -> Iterator[Unit]:
    """Units of one file."""
    size = facts.st_size if stat.S_ISREG(facts.st_mode) else 0
    yield from of_url(path, size, str(facts.st_mtime_ns), search)


def remote(url: str, search: Search) -> Iterator[Unit]:
    """Units of whatever fsspec opens."""
    files, path = filesystem(url)
    try:
        if MAGIC.search(path):
            listed: dict[str, Any] = files.glob(path, detail=True)
        elif files.isdir(path):
            listed = {
                name: info
                for name, info in files.find(path, detail=True).items()
                if archive_kind(name) is not None or search.wanted(name)
            }
        else:
            listed = {path: files.info(path)}
    except FileNotFoundError:
        listed = {}
    except Exception as error:  # each store has errors of its own
        raise UnbloatError(f"{without_credentials(url)}: cannot be listed: {error}") from None
    if not listed:
        search.missing.append(without_credentials(url))
    # Credentials of the source belong to each of its files.
    user = re.match(r"[^/]*//([^/@]*@)?", url)
    for name, info in sorted(listed.items()):
        if info.get("type", "file") != "file" or info.get("islink"):
            continue
        whole = files.unstrip_protocol(name)
        if user is not None and user[1] and user[1] not in whole:
            whole = whole.replace("://", f"://{user[1]}", 1)
        stamp = next(
            (
                str(info[known])
                for known in ("ETag", "etag", "md5Hash", "mtime", "LastModified", "created")
                if info.get(known)
            ),
            "",
        )
        yield from of_url(whole, int(info.get("size") or 0), stamp, search)


def of_url(url: str, size: int, stamp: str, search: Search) -> Iterator[Unit]:
    """The capture itself, the members of an archive, or the packed archive as a whole."""
    shown = PurePosixPath(without_credentials(url))
    folder = shown.parent.name
    kind = archive_kind(shown.name)
    if kind is None:
        yield make_unit(url, "file", size, stamp, search.device(str(shown), folder))
    elif kind == "packed":
        yield make_unit(
            url, kind, size, stamp, search.device(str(shown), folder), include=search.include
        )
    else:
        try:
            with open_url(url) as file:
                for member in members(file, kind):
                    if search.wanted(member.name):
                        yield make_unit(
                            url,
                            kind,
                            member.size_bytes,
                            stamp,
                            search.device(f"{shown}!{member.name}", folder),
                            member.name,
                            offset=member.offset,
                            number=member.number,
                        )
        except (ArchiveError, OSError) as error:
            # What came before stays; the archive itself is named as bad.
            yield make_unit(url, "broken", size, stamp, folder, error=str(error))

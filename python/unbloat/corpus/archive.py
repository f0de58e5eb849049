"""Members of archives as streams, under limits. No path of an archive is ever written, so none can lead anywhere.

A tar without packing and a zip are entered at any member, which makes each a unit. A packed tar has to be read from its
beginning: it is one unit, and its captures are analysed one after the other.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

KINDS = (
    (re.compile(r"\.tar$", re.I), "tar"),
    (re.compile(r"\.zip$", re.I), "zip"),
    (re.compile(r"\.(tgz|tbz2?|txz|tar\.(gz|bz2|xz))$", re.I), "packed"),
)
# More than any archive of captures has; a directory of more would fill the memory.
MAX_MEMBERS = 1_000_000
# Captures shrink to a fifth, those of empty packets to a fiftieth. Bombs reach a thousand.
MAX_RATIO = 200
# Below this, any ratio is harmless.
HARMLESS_BYTES = 16 << 20
BLOCK_BYTES = 1 << 20
# What damaged archives raise.
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
    gzip.BadGzipFile,
)


class ArchiveError(ValueError):
    """An archive that is larger than the limits, or damaged."""


class Damaged(ArchiveError):
    """An archive that breaks off, or has other bytes than it says. What came before is good."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"the archive is damaged: {error}")


@dataclass(frozen=True)
class Member:
    """A file in an archive."""

    name: str
    size_bytes: int
    """As stored."""
    offset: int
    """Of its data in a tar."""
    number: int
    """Its place in the directory of a zip."""


def archive_kind(name: str) -> str | None:
    """`tar`, `zip`, `packed`, or None for what is no archive."""
    return next((kind for pattern, kind in KINDS if pattern.search(name)), None)


def members(file: IO[bytes], kind: str) -> Iterator[Member]:
    """Regular files of a tar or zip, in their order. Damage ends the list with an `ArchiveError`."""
    try:
        if kind == "zip":
            with zipfile.ZipFile(file) as archive:
                listed = archive.infolist()
                within_limit(len(listed))
                for number, info in enumerate(listed):
                    # The upper half of the attributes is the mode of Unix; 0o120000 is a link.
                    link = (info.external_attr >> 16) & 0o170000 == 0o120000
                    if not info.is_dir() and not link:
                        yield Member(info.filename, info.compress_size, 0, number)
            return
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for number, entry in enumerate(entries(archive)):
                if entry.isreg() and not entry.issparse():
                    yield Member(entry.name, entry.size, entry.offset_data, number)
    except DAMAGE as error:
        raise Damaged(error) from None


def within_limit(count: int) -> None:
    """Refuses an archive of too many members."""
    if count > MAX_MEMBERS:
        raise ArchiveError(f"the archive has more than {MAX_MEMBERS:,} members")


def entries(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Entries one by one. tarfile keeps all of them by itself, which a long archive must not."""
    count = 0
    while (entry := archive.next()) is not None:
        count += 1
        within_limit(count)
        archive.members.clear()  # type: ignore[attr-defined]
        yield entry


class Bounded(io.RawIOBase):
    """A stream that ends with an error once it is longer than its packed form can honestly be."""

    def __init__(self, unpacked: Any, packed_bytes: Counted | int) -> None:
        self.unpacked, self.packed_bytes = unpacked, packed_bytes
        self.count_bytes = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Bytes, or an `ArchiveError`."""
        try:
            # One step of unpacking: a longer read would lose, at the damage, what is good before it.
            data: bytes = self.unpacked.read1(size)
        except DAMAGE as error:
            raise Damaged(error) from None
        self.count_bytes += len(data)
        packed = self.packed_bytes
        before = packed if isinstance(packed, int) else packed.count_bytes
        if self.count_bytes > max(MAX_RATIO * before, HARMLESS_BYTES):
            raise ArchiveError(
                f"unpacks to more than {MAX_RATIO} times its size, which no capture does; stopped"
            )
        return data


class Counted(io.RawIOBase):
    """Counts the bytes read of a file."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.count_bytes = file, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        """Reads and counts."""
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.count_bytes += len(data)
        return len(data)


def zip_member(file: IO[bytes], number: int) -> Bounded:
    """A member of a zip, unpacked as it is read."""
    try:
        archive = zipfile.ZipFile(file)
        info = archive.infolist()[number]
        return Bounded(archive.open(info), info.compress_size)
    except (*DAMAGE, IndexError) as error:
        raise Damaged(error) from None


def packed_members(counted: Counted) -> Iterator[tuple[str, IO[bytes]]]:
    """Names and streams of a packed tar, each to be read before the next is asked for."""
    raw: Any = io.BufferedReader(counted, BLOCK_BYTES)
    begin = raw.peek(6)
    opener: Any = gzip.open
    if begin.startswith(b"BZh"):
        opener = bz2.open
    elif begin.startswith(b"\xfd7zXZ\x00"):
        opener = lzma.open
    try:
        with (
            opener(raw) as unpacked,
            tarfile.open(
                fileobj=Bounded(unpacked, counted), mode="r|", bufsize=BLOCK_BYTES
            ) as archive,
        ):
            for entry in entries(archive):
                stream = archive.extractfile(entry) if entry.isreg() else None
                if stream is not None:
                    yield entry.name, stream
    except DAMAGE as error:
        raise Damaged(error) from None

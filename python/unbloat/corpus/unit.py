"""A unit of work: one capture, one member of an archive, one packed archive, or the files of one rotating capture. Its key decides whether it is done.

Units and receipts are plain dictionaries, so that any executor can carry them to another process. A URL may hold
credentials: `url` opens the unit and stays in memory, `file` is what keys, tables and messages show.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from unbloat.version import __version__

Unit = dict[str, Any]
Receipt = dict[str, Any]

# Fate of a unit: analysed; no capture; anything else that went wrong.
DONE, BAD, FAILED = "done", "bad", "failed"
# Raised when the same capture gives other tables: every unit is then analysed again.
TABLES_VERSION = 3
ANALYSIS = f"{__version__}/{TABLES_VERSION}"
# Parameters of a URL that prove who asks.
SECRET = re.compile(r"signature|credential|token|secret|password|^sig$|^key$|access", re.I)
REMOTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
# Between an archive and its member in the names of units.
INSIDE = "!"


def is_remote(source: str) -> bool:
    """Whether a source is a URL rather than a path."""
    return REMOTE.match(source) is not None


def without_credentials(url: str) -> str:
    """The URL without user, password and signatures; a path as it is."""
    if not is_remote(url):
        return url
    try:
        parts = urlsplit(url)
        query = [pair for pair in parse_qsl(parts.query, True) if not SECRET.search(pair[0])]
    except ValueError:  # half a bracket: no address that could be opened
        return url.rpartition("@")[2]
    return urlunsplit(
        parts._replace(netloc=parts.netloc.rpartition("@")[2], query=urlencode(query))
    )


def make_unit(
    url: str,
    kind: str,
    size_bytes: int,
    stamp: str,
    device: str,
    member: str | None = None,
    **where: Any,
) -> Unit:
    """A unit. `kind` is `file`, `tar` or `zip` (a member), `packed` (a whole archive), `series` (files of one capture) or `broken`; `stamp` changes with its content."""
    file = without_credentials(url)
    return {
        "key": unit_key(file, size_bytes, stamp, member, {"device": device}),
        "url": url,
        "file": file if member is None else f"{file}{INSIDE}{member}",
        "kind": kind,
        "member": member,
        "size_bytes": size_bytes,
        "device": device,
        **where,
    }


def unit_key(
    file: str, size_bytes: int, stamp: str, member: str | None, options: Mapping[str, Any]
) -> str:
    """What names the result of a unit: another content, option or version gives another key."""
    facts = [file, size_bytes, stamp, member, options, ANALYSIS]
    # Names of files need not be UTF-8.
    text = json.dumps(facts, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=16).hexdigest()

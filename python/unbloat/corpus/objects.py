"""The objects below a URL: read, listed by all pages, written whole, removed. A store that does not answer is asked again."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from unbloat.corpus.remote import StoreError, asked, filesystem
from unbloat.corpus.unit import without_credentials
from unbloat.corpus.work import RETRY_AFTER_S
from unbloat.errors import UnbloatError

# Objects that are asked for together; all of them are in memory for a moment.
TOGETHER = 256

Answer = TypeVar("Answer")


class Objects:
    """What lies below a URL. Every method raises `UnbloatError` where the store does not answer, or refuses."""

    def __init__(self, url: str) -> None:
        self.files, top = filesystem(url)
        self.top = top.rstrip("/")
        self.name = without_credentials(url).rstrip("/")
        # It would print a traceback of a request whose connection broke, which is asked again here.
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer of the store, which is asked three times. `FileNotFoundError` where there is no such object."""
        for pause_s in (*RETRY_AFTER_S, None):
            try:
                with without_sigpipe():
                    return asked(question)  # type: ignore[no-any-return]
            except PermissionError:
                raise UnbloatError(f"{self.name}: permission denied") from None
            except StoreError as error:
                if pause_s is None:
                    raise UnbloatError(f"{self.name}: {error}") from None
                time.sleep(pause_s)
        raise AssertionError("the last attempt ends")

    def get(self, name: str) -> bytes | None:
        """The content of an object; None where it is not there."""
        try:
            return bytes(self.ask(lambda: self.files.cat_file(f"{self.top}/{name}")))
        except FileNotFoundError:
            return None

    def listed(self, name: str) -> list[str]:
        """Names of all objects below one, all pages of them."""
        self.files.invalidate_cache()
        try:
            found: list[str] = self.ask(lambda: self.files.find(f"{self.top}/{name}".rstrip("/")))
        except FileNotFoundError:
            return []
        return sorted(path[len(self.top) + 1 :] for path in found)

    def fetch(self, names: Sequence[str]) -> Iterable[tuple[str, bytes | None]]:
        """The content of several objects; None for one that is not there."""
        for begin in range(0, len(names), TOGETHER):
            some = names[begin : begin + TOGETHER]
            paths = [f"{self.top}/{name}" for name in some]

            def content(paths: list[str] = paths) -> dict[str, Any]:
                found: dict[str, Any] = self.files.cat(paths, on_error="return")
                for one in found.values():
                    if isinstance(one, Exception) and not isinstance(one, FileNotFoundError):
                        raise one
                return found

            found = self.ask(content)
            for name, path in zip(some, paths, strict=True):
                data = found.get(path)
                yield name, bytes(data) if isinstance(data, bytes) else None

    def put(self, name: str, data: bytes) -> None:
        """Writes an object: one PUT, which is done as a whole or not at all."""
        self.write(lambda: self.files.pipe_file(f"{self.top}/{name}", data))

    def put_file(self, path: Path, name: str) -> None:
        """Writes a file as an object; a large one in pieces, which the store puts together at its end."""
        self.write(lambda: self.files.put_file(str(path), f"{self.top}/{name}"))

    def write(self, question: Callable[[], Any]) -> None:
        """Asks a store to write."""
        try:
            self.ask(question)
        except FileNotFoundError:
            raise UnbloatError(f"{self.name}: there is no such bucket or folder") from None

    def bring(self, name: str, path: Path) -> None:
        """Stores an object in a file. Raises `FileNotFoundError`."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.ask(lambda: self.files.get_file(f"{self.top}/{name}", str(path)))

    def remove(self, name: str) -> None:
        """Removes an object, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.ask(lambda: self.files.rm_file(f"{self.top}/{name}"))


@contextlib.contextmanager
def without_sigpipe() -> Iterator[None]:
    """Meanwhile a store that closes a connection is an error of a write, not the end of this process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGPIPE, before)

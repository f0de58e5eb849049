"""Files by path or URL. URLs need fsspec, which is optional; a path never does."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import IO, Any

from unbloat.corpus.unit import is_remote, without_credentials
from unbloat.errors import UnbloatError

# Read in one request from an object store.
BLOCK_BYTES = 8 << 20


def filesystem(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it."""
    try:
        import fsspec.core
    except ImportError:
        raise UnbloatError(
            f"{without_credentials(url)}: a URL needs fsspec: pip install 'unbloat[corpus]'"
        ) from None
    # It names each of its own attempts; what they lead to is an error here.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    try:
        files, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UnbloatError(f"{without_credentials(url)}: {error}") from None
    return files, str(path)


class StoreError(OSError):
    """A store that did not answer, or not with what was asked for. Trying again may help."""


class RemoteFile(io.RawIOBase):
    """A remote file. Each store has errors of its own, most of which are no `OSError`: here they are."""

    def __init__(self, files: Any, path: str) -> None:
        self.file: Any = asked(lambda: files.open(path, "rb", block_size=BLOCK_BYTES))

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """Most are."""
        return bool(self.file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Another place of it."""
        return int(asked(lambda: self.file.seek(offset, whence)))

    def read(self, size: int = -1) -> bytes:
        """Bytes, or a `StoreError`."""
        return bytes(asked(lambda: self.file.read(size)))

    def readinto(self, buffer: Any) -> int:
        """Bytes, or a `StoreError`."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Closes the file below as well."""
        if not self.closed:
            self.file.close()
        super().close()


def asked(question: Callable[[], Any]) -> Any:
    """The answer of a store."""
    try:
        return question()
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        # Its text may hold the signature of a URL.
        raise StoreError(f"the store did not answer ({type(error).__name__})") from None


def open_url(url: str) -> IO[bytes]:
    """A file to read, at any place of it. A remote one raises `StoreError`, besides what says that it is not there."""
    if not is_remote(url):
        return open(url, "rb", buffering=0)
    return RemoteFile(*filesystem(url))  # type: ignore[return-value]

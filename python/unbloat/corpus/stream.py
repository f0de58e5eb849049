"""One native pass over a stream: a thread feeds a pipe, whose other end the analysis opens like any file.

So a member of an archive or a remote capture is analysed without a copy on this machine. A local file is opened
by the analysis itself. The analysis unpacks both, under the limit of members of archives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from unbloat.corpus.archive import HARMLESS_BYTES, MAX_RATIO, Damaged
from unbloat.errors import CaptureError
from unbloat.run.arrow import arrow_table

if TYPE_CHECKING:
    import pyarrow as pa

Progress = Callable[[int], None]
"""Called with the bytes read so far, about ten times a second; an exception stops the analysis."""
Analysed = tuple[dict[str, Any], dict[str, "pa.Table"]]

BLOCK_BYTES = 1 << 20
# What Linux allows without rights; other systems keep their own size.
PIPE_BYTES = 1 << 20


def analyse_path(path: str, shown: str, progress: Progress) -> Analysed:
    """What run says of a file, and its tables, `samples` included. Messages name it as `shown`."""
    return analyse_files({path: shown}, progress)


def analyse_files(files: Mapping[str, str], progress: Progress) -> Analysed:
    """As `analyse_path`, of several files as one capture, in the order of time: paths, and how messages name them."""
    import unbloat._native as _native

    def renamed(text: str) -> str:
        for path, shown in files.items():
            text = text.replace(path, shown)
        return text

    try:
        result: dict[str, Any] = _native.analyze(
            list(files),
            samples="all",
            unpacked=(MAX_RATIO, HARMLESS_BYTES),
            progress=lambda done, _total: progress(done),
        )
    except _native.CaptureError as error:
        raise CaptureError(renamed(str(error))) from None
    info = dict(result["run"])
    info["warnings"] = [renamed(str(line)) for line in info.get("warnings", [])]
    return info, {name: arrow_table(columns) for name, columns in result["tables"].items()}


def analyse_stream(stream: IO[bytes], shown: str, progress: Progress) -> Analysed:
    """As `analyse_path`, of whatever can be read in sequence. What comes before damage counts."""
    reader, writer = os.pipe()
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    failed: list[BaseException] = []

    def feed() -> None:
        try:
            with os.fdopen(writer, "wb", buffering=0) as out:
                while block := stream.read(BLOCK_BYTES):
                    view = memoryview(block)
                    while view:
                        view = view[out.write(view) :]
        except BrokenPipeError:
            pass  # the analysis has seen enough
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    try:
        result = analyse_path(f"/dev/fd/{reader}", shown, progress)
    except CaptureError:
        os.close(reader)
        thread.join()
        # An archive that cannot be unpacked is the cause, a capture that breaks off the effect.
        if failed:
            raise failed[0] from None
        raise
    except BaseException:
        os.close(reader)
        raise
    os.close(reader)
    thread.join()
    if failed and not isinstance(failed[0], Damaged):
        raise failed[0]
    if failed:  # as a capture that breaks off: analysed up to there, with a warning
        result[0]["warnings"].append(f"{shown}: {failed[0]}")
    return result

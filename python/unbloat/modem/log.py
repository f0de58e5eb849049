"""`modem_log`: the DIAG log of a Qualcomm modem as tables, as `unbloat-modem decode` reads it."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unbloat.errors import CaptureError
from unbloat.run.arrow import arrow_table

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ModemLog:
    """What a modem logged, in the order of its own clock: `modem_ns` is ns since 1980-01-06, or since its start."""

    buffer: pa.Table
    """`modem_ns`, `bytes`: what waited in the modem, once per TTI of 1 ms."""
    grants: pa.Table
    """`modem_ns`, `layer` (`mac`, `phy`), `granted_bytes`, `padding_bytes`, `retransmission`: one row per block."""
    records: pa.Table
    """`modem_ns`, `code`, `name`, `version`, `entries`, `described`, `unread`: the records as they were handed over."""
    damaged: int
    """Frames that were damaged; 1 more where the log breaks off."""

    @property
    def unread(self) -> dict[str, int]:
        """Records that were not read, by code, version and reason."""
        rows = (row for row in self.records.to_pylist() if row["unread"] is not None)
        return dict(
            Counter(f"{row['code']} version {row['version']}: {row['unread']}" for row in rows)
        )


def modem_log(path: str | os.PathLike[str]) -> ModemLog:
    """Read a log (.qmdl, .mi2log, .dlf). Raises `CaptureError` for what is none, and `FileNotFoundError`."""
    import unbloat._native as _native

    with open(
        path, "rb"
    ):  # what the operating system refuses, in its words and with the name of the file
        pass
    try:
        result = _native.modem_log(os.fspath(path))
    except _native.CaptureError as error:
        raise CaptureError(str(error)) from None
    tables = {name: arrow_table(columns) for name, columns in result["tables"].items()}
    return ModemLog(tables["buffer"], tables["grants"], tables["records"], result["damaged"])

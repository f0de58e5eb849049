"""Epoch times in UTC."""

from __future__ import annotations

import time

from unbloat.text.format import NOTHING

# A capture may hold any 64 bits as a time: what is in no calendar of four digits is no time of day either.
MAX_S = 253_402_300_800.0


def day_text(epoch_s: float) -> str:
    """A date."""
    return moment(epoch_s, "%Y-%m-%d")


def minute_text(epoch_s: float) -> str:
    """A date and a time of day."""
    return moment(epoch_s, "%Y-%m-%d %H:%M")


def moment(epoch_s: float, form: str) -> str:
    """In the form of `strftime`."""
    return time.strftime(form, time.gmtime(epoch_s)) if 0 <= epoch_s < MAX_S else NOTHING

"""`unbloat.corpus(PATH)`, or of a URL. What reads tables is loaded at the first call: most commands need none of it."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unbloat.corpus.corpus import Corpus


def corpus(path: str | os.PathLike[str]) -> Corpus:
    """Opens what `unbloat corpus run` stored, in a folder or at a URL that fsspec opens."""
    from unbloat.corpus.corpus import Corpus
    from unbloat.corpus.remote_ledger import ledger_at

    ledger = ledger_at(path)
    try:
        found = Corpus(ledger)
    except BaseException:
        ledger.close()
        raise
    weakref.finalize(found, ledger.close)
    return found

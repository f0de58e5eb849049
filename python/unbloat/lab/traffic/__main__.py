"""`python .../unbloat/lab/traffic ROLE SPEC`: one traffic program.

Dozens of these start at once, so nothing heavy may be imported: run as a file, the packages above this one are put in
place without running their `__init__` (which bring pyarrow and the command line along).
"""

from __future__ import annotations

import sys
from types import ModuleType


def _light_parents() -> None:
    """Parents of this package, so that `unbloat.lab.traffic.x` can be imported and nothing else is."""
    here = __file__.rsplit("/", 1)[0]
    lab = here.rsplit("/", 1)[0]
    for name, place in (
        ("unbloat", lab.rsplit("/", 1)[0]),
        ("unbloat.lab", lab),
        ("unbloat.lab.traffic", here),
    ):
        module = ModuleType(name)
        module.__path__ = [place]
        sys.modules[name] = module


if __name__ == "__main__":
    if "unbloat" not in sys.modules:
        _light_parents()
    from unbloat.lab.traffic.roles import main

    sys.exit(main(sys.argv[1:]))

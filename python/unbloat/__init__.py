"""unbloat: what held a transfer back, and how much queue stood in the way.

>>> import unbloat
>>> run = unbloat.analyze("upload.pcapng")   # doctest: +SKIP
>>> print(run.verdict)                       # doctest: +SKIP
"""

from unbloat.capture.analyze import analyze
from unbloat.comparison.compare import Comparison, compare
from unbloat.corpus.open import corpus
from unbloat.errors import (
    CaptureError,
    LabError,
    LinkUnknown,
    ScenarioError,
    TraceMissing,
    UnbloatError,
)
from unbloat.lab.execute import lab
from unbloat.link.fit import fit
from unbloat.link.model import LinkFit
from unbloat.modem.log import ModemLog, modem_log
from unbloat.path.locate import Located, locate
from unbloat.prediction.predict import WhatIf, what_if
from unbloat.run.open import open_run
from unbloat.run.run import Run
from unbloat.scenario.scenario import Scenario
from unbloat.scenario.simulate import simulate
from unbloat.scenario.sweep import RunSet
from unbloat.version import __version__

__all__ = [
    "CaptureError",
    "Comparison",
    "LabError",
    "LinkFit",
    "LinkUnknown",
    "Located",
    "ModemLog",
    "Run",
    "RunSet",
    "Scenario",
    "ScenarioError",
    "TraceMissing",
    "UnbloatError",
    "WhatIf",
    "__version__",
    "analyze",
    "compare",
    "corpus",
    "fit",
    "lab",
    "locate",
    "modem_log",
    "open_run",
    "simulate",
    "what_if",
]

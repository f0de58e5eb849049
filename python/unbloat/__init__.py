"""unbloat: what held a transfer back, and how much queue stood in the way.

>>> import unbloat
>>> run = unbloat.analyze("upload.pcapng")   # doctest: +SKIP
>>> print(run.verdict)                       # doctest: +SKIP
"""

from unbloat.analyze import analyze
from unbloat.compare import Comparison, compare
from unbloat.dataset import Run
from unbloat.errors import CaptureError, LabError, ScenarioError, TraceMissing, UnbloatError
from unbloat.lab import lab
from unbloat.locate import Located, locate
from unbloat.runset import RunSet
from unbloat.scenario import Scenario
from unbloat.simulate import simulate
from unbloat.store import open_run

# pyproject.toml takes the version of the package from here.
__version__ = "0.1.0"

__all__ = [
    "CaptureError",
    "Comparison",
    "LabError",
    "Located",
    "Run",
    "RunSet",
    "Scenario",
    "ScenarioError",
    "TraceMissing",
    "UnbloatError",
    "__version__",
    "analyze",
    "compare",
    "lab",
    "locate",
    "open_run",
    "simulate",
]

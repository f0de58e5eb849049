"""Each scenario is run once: what the simulator knows, and what the analysis finds in its captures."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import paths
from held import Case

import unbloat
from unbloat.run.run import Run


@pytest.fixture(scope="session")
def case(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    @cache
    def made(name: str) -> Case:
        folder = tmp_path_factory.mktemp("known")
        truth = unbloat.simulate(paths.scenario(name), pcap=folder)
        assert isinstance(truth, Run)
        captures = {path.stem: path for path in folder.rglob("*.pcapng")}
        seen = {node: unbloat.analyze(path) for node, path in captures.items()}
        return Case(name, truth, captures, seen)

    return made

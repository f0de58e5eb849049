"""What is installed is what is in the tree: pyproject.toml lists every folder of python/unbloat that is a package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_package_is_installed() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    listed = re.search(r"^packages = \[(.*?)^\]", text, re.M | re.S)
    assert listed
    folders = {path.parent for path in (ROOT / "python").rglob("__init__.py")}
    packages = {".".join(folder.relative_to(ROOT / "python").parts) for folder in folders}
    assert packages <= set(re.findall(r'"([^"]+)"', listed[1]))

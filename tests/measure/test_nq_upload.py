"""A request beside an upload on one connection to `unbloat measure serve --nq` waits for the link's queue, not for a window."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from path import Link, MeasuredPath

from unbloat.lab.testbed import output

pytestmark = pytest.mark.usefixtures("machine")

PORT = 8443
# 100 ms of queue.
UP, DOWN = Link(2, 25), Link(20, 500)
UPLOAD_S = 3


def test_a_small_request_is_answered_soon_beside_an_upload(tmp_path: Path) -> None:
    """A window of 4 MB is 16 s of this link; of 64 kB, 0.26 s. Beside them there are the queue, and 20 ms."""
    with MeasuredPath(tmp_path, UP, DOWN) as made:
        made.serve("--nq", str(PORT))
        program = Path(__file__).with_name("http2_upload.py")
        words = (sys.executable, str(program), made.server, str(PORT), str(UPLOAD_S))
        took_s = float(output(made.start("client", *words)))
    assert 0.1 < took_s < 1, "it waited for the link, and not for long"

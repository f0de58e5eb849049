"""Files that commands write: refusals of the operating system as usage errors, and the report of a run."""

from __future__ import annotations

from pathlib import Path

from unbloat.errors import UnbloatError
from unbloat.run.run import Run

# Connections whose series a report draws; one pass over the capture computes all of them.
CHARTED = 20
CHARTED_COUNTED = 5


class writing:
    """Turns the operating system's refusal to write into a wrong argument, which it is."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if isinstance(error, OSError):
            raise UnbloatError(
                f"{self.path}: cannot be written: {(error.strerror or str(error)).lower()}"
            ) from None


def need_writable(path: Path) -> None:
    """Refuses a place that cannot be written before the work begins, and leaves no file there."""
    with writing(path):
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()


def write_run_page(run: Run, path: Path) -> None:
    """The report; what it draws is computed in one pass first."""
    from unbloat.report import write_report

    with writing(path):
        path.touch()  # before the second pass, so that a wrong path costs no time
        # Runs of a scenario have their series; segments are in the captures, where there are any.
        run.load(charted(run), ("samples", "events", *([] if run.made else ["segments"])))
        write_report(run, path)


def charted(run: Run) -> list[int]:
    """The connections that the report draws: the largest of TCP, and of what is merely counted."""
    columns = (run.connections.column(name).to_pylist() for name in ("bytes", "id", "proto"))
    ordered = sorted(zip(*columns, strict=True), key=lambda row: (-row[0], row[1]))
    tcp = [id_ for _, id_, proto in ordered if proto == "tcp"]
    counted = [id_ for _, id_, proto in ordered if proto != "tcp"]
    return tcp[:CHARTED] + counted[:CHARTED_COUNTED]

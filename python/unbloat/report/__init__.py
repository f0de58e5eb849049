"""The self-contained HTML report of a run."""

from unbloat.report.write import ReportInfo, write_report

__all__ = ["ReportInfo", "write_report"]

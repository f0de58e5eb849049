"""The self-contained HTML report of a run, and the page that lays runs side by side."""

from .compare_page import write_compare
from .write import ReportInfo, write_report

__all__ = ["ReportInfo", "write_compare", "write_report"]

"""`from unbloat.plots import plot`: the figure for a paper under its public name (docs/python.md)."""

from unbloat.capture.plot import plot

__all__ = ["plot"]

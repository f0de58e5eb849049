"""Captures: analysed, shown, plotted."""

"""Captures of one path at several points."""

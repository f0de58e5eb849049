"""Scenarios: read, simulated, swept, held against expectations."""

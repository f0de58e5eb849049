"""Scenarios: read, simulated, swept, compared with expectations."""

"""The agent inside a lab."""

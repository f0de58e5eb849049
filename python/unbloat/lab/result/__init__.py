"""The result of a lab run, from its raw files."""

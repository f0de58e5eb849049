"""A model of the slowest link of a path, from one capture."""

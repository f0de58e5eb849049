"""Text for a terminal: numbers, tables, progress."""

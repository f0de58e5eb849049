"""The tables of one run: read, written, summed up."""

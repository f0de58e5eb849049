"""The tables of one run: held, read, written, summed up."""

"""The DIAG log of a modem, and its place beside a capture of the host."""

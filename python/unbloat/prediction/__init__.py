"""`what-if`: what each cure would do to the transfer of a capture."""

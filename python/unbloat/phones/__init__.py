"""Synthetic phones: captures of known sessions and known queues, against which the views of a corpus are checked."""

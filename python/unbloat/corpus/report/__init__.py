"""The page of a corpus."""

"""Many captures on one machine: each is analysed once, and the tables of all are one data set (docs/commands/corpus.md)."""

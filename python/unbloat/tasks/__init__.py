"""Plain tasks on the workers of a Dask cluster: captures of a corpus, runs of a sweep, seeds of a claim."""

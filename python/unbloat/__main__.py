"""`python -m unbloat` is `unbloat`."""

from unbloat.cli.arguments import program

# Processes that Python starts, as those of a Dask cluster, load this module again under another name.
if __name__ == "__main__":
    program()

"""`python -m unbloat` is `unbloat`."""

from unbloat.cli import main

main()

"""`python -m unbloat` is `unbloat`."""

from unbloat.cli.arguments import main

main()

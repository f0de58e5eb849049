"""The program `unbloat` with the stand-in for the extension module: what the snapshots of the command line run."""

import sys

import fake_native

import unbloat

sys.modules["unbloat._native"] = fake_native
setattr(unbloat, "_native", fake_native)  # noqa: B010 -- a module has no such attribute to assign to

from unbloat.cli.arguments import main  # noqa: E402

main()

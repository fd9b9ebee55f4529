"""`python -m posd` is `posd`."""

from posd.cli.main import main

main(prog_name="posd")

"""`python -m posd` is `posd`."""

from posd.cli.entry import main

main()

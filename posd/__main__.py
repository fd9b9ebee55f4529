"""Run the command `posd` by `python -m posd`."""

from posd.cli.entry import main

main()

"""`posd simulate`: simulated terminals, alone."""

from posd.cli.simulate.command import simulate

__all__ = ["simulate"]

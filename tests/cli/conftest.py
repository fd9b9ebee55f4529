"""A shop with one simulated terminal, for the tests of a file."""

from collections.abc import Iterator

import pytest

from posd.sandbox import Sandbox
from tests.rig.commands import Done, posd


class Shop(Sandbox):
    """A daemon with a simulated terminal, and functions that run commands."""

    def run(self, *arguments: str) -> Done:
        """Run a command in this process to its end."""
        return posd(*arguments, config=self.config_path)

    def approved(self, *arguments: str) -> str:
        """Run a command that must be approved. Return the id of the payment."""
        return self.run(*arguments).ends(0).stdout.split()[1]


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """Yield a shop with fast terminals. A payment of 8 to 33 s takes well under a second."""
    with Shop(speed=200.0, patient=True) as machine:
        yield machine

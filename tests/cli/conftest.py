"""A shop with one simulated terminal, for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.cli.processes import Shop


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    """Yield a shop with fast terminals. A payment of 8 to 33 s takes well under a second."""
    with Shop(speed=200.0, patient=True) as machine:
        yield machine

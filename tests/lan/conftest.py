"""What the runs on networks of their own need; where it is missing they are skipped, and the summary says so."""

import pytest

from tests.lan.network import why_not
from tests.lan.programs import AVAHI
from tests.support.needs import lacking

#: Longest that one of these tests may take, in seconds: it waits several times, and each time has its own limit.
TEST_SECONDS = 300


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give the tests of this directory their time."""
    item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _networks() -> None:
    """Network namespaces can be made here."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def avahi() -> None:
    """There is an avahi-daemon."""
    if missing := lacking(AVAHI):
        pytest.skip(missing)

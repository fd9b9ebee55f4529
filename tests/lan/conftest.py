"""Requirements of the tests on real networks. Where one is missing, the tests are skipped and the summary says so."""

import pytest

from tests.lan.network import why_not
from tests.lan.programs import AVAHI
from tests.support.needs import lacking

#: Time limit of each of these tests, in seconds. A test waits several times, each time with a limit of its own.
TEST_SECONDS = 300


def pytest_itemcollected(item: pytest.Item) -> None:
    """Set the time limit of the tests in this directory."""
    item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _networks() -> None:
    """Skip the test if network namespaces cannot be made here."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def avahi() -> None:
    """Skip the test if there is no avahi-daemon."""
    if missing := lacking(AVAHI):
        pytest.skip(missing)

"""Requirements of the tests on real networks. If a requirement is missing, the tests are skipped, and the summary
reports this.
"""

import pytest

from tests.lan.network import why_not
from tests.lan.street import AVAHI
from tests.rig.needs import lacking

#: Time limit of each of these tests, in seconds. A test has several waits with limits of their own.
TEST_SECONDS = 300


def pytest_itemcollected(item: pytest.Item) -> None:
    """Set the time limit of the tests in this directory."""
    item.add_marker(pytest.mark.timeout(TEST_SECONDS))


@pytest.fixture(scope="session", autouse=True)
def _networks() -> None:
    """Skip the test if this machine cannot make network namespaces."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def avahi() -> None:
    """Skip the test if this machine has no avahi-daemon."""
    if missing := lacking(AVAHI):
        pytest.skip(missing)

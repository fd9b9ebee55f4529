"""Settings of all tests, and what they measured."""

from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

# Whether an example comes quickly says something about the machine, not about posd.
settings.register_profile("posd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("posd")

TOLD = "told"


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Tell what a test has counted: it is printed at the end, whichever process the test ran in."""
    return partial(record_property, TOLD)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests told."""
    reports = terminalreporter.getreports("passed")
    told = [str(text) for report in reports for name, text in report.user_properties if name == TOLD]
    if told:
        terminalreporter.section("counted")
    for text in told:
        terminalreporter.write_line(text)

"""Settings of all tests, what they measured, and which of them could not run."""

import os
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

# Whether an example comes quickly says something about the machine, not about posd.
settings.register_profile("posd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("posd")

TOLD = "told"
#: What marks the report of a test that needs root.
NEEDS_ROOT = ("needs root", True)


@pytest.fixture
def tell(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Tell what a test has counted: it is printed at the end, whichever process the test ran in."""
    return partial(record_property, TOLD)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what needs root where this is not root."""
    if item.get_closest_marker("root") is None:
        return
    item.user_properties.append(NEEDS_ROOT)
    if os.geteuid() != 0:
        pytest.skip("it needs root")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the tests told, and, so that nobody takes it for tested, what was left out for want of root."""
    reports = terminalreporter.getreports("passed")
    told = [str(text) for report in reports for name, text in report.user_properties if name == TOLD]
    if told:
        terminalreporter.section("counted")
    for text in told:
        terminalreporter.write_line(text)
    left_out = [
        item for item in terminalreporter.getreports("skipped") if NEEDS_ROOT in map(tuple, item.user_properties)
    ]
    if left_out:
        terminalreporter.section("NOT TESTED HERE", "!", red=True, bold=True)
    for report in left_out:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        terminalreporter.write_line(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}", red=True)
    if left_out:
        terminalreporter.write_line(
            "To test this too, on Debian: apt-get install iproute2 avahi-daemon, and as root: pytest -m root"
        )

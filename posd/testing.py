"""Fixtures of pytest for the tests of a till: posd and a simulated terminal as processes (docs/guides/testing.md).

In the conftest.py at the root of the tests:

    pytest_plugins = ["posd.testing"]
"""

from collections.abc import Iterator

import pytest

from posd.client.connection import SOCKET_VARIABLE
from posd.sandbox import Sandbox, SandboxFailed, SimulatedTerminal

__all__ = ["Sandbox", "SandboxFailed", "SimulatedTerminal", "posd_sandbox", "posd_sandbox_session"]


@pytest.fixture(scope="session")
def posd_sandbox_session() -> Iterator[Sandbox]:
    """Start posd and a simulated terminal for the whole run. A project overrides this fixture for another speed."""
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def posd_sandbox(
    posd_sandbox_session: Sandbox, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Sandbox]:
    """Return posd with an empty database and a reset terminal. POSD_SOCKET is set to its socket.

    A failed test shows the ends of their logs.
    """
    sandbox = posd_sandbox_session
    if sandbox.used:
        sandbox.renew()
    sandbox.used = True
    monkeypatch.setenv(SOCKET_VARIABLE, str(sandbox.till_socket))
    yield sandbox
    request.node.add_report_section("teardown", "posd", "\n".join(sandbox.tails()))

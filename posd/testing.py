"""pytest fixtures for the tests of a till: posd and a simulated terminal as processes (docs/guides/testing.md).

Write into the conftest.py at the root of the tests:

    pytest_plugins = ["posd.testing"]
"""

from collections.abc import Iterator

import pytest

from posd.client.connection import SOCKET_VARIABLE
from posd.sandbox import Sandbox, SandboxFailed, SimulatedTerminal

__all__ = ["Sandbox", "SandboxFailed", "SimulatedTerminal", "posd_sandbox", "posd_sandbox_session"]


@pytest.fixture(scope="session")
def posd_sandbox_session() -> Iterator[Sandbox]:
    """Start posd and a simulated terminal for the whole test run.

    For another speed, a project overrides this fixture.
    """
    with Sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def posd_sandbox(
    posd_sandbox_session: Sandbox, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Sandbox]:
    """Yield a sandbox with an empty database and a new terminal. POSD_SOCKET is set to the till socket.

    If a test fails, pytest shows the end of both logs.
    """
    sandbox = posd_sandbox_session
    if sandbox.used:
        sandbox.renew()
    sandbox.used = True
    monkeypatch.setenv(SOCKET_VARIABLE, str(sandbox.till_socket))
    yield sandbox
    request.node.add_report_section("teardown", "posd", "\n".join(sandbox.tails()))

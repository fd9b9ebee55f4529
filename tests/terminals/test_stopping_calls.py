"""The clients of the terminals are created at the start, and send nothing after the stop began."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from posd.config import load
from posd.terminals.attempt import NotSent
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.shop import answering
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

SERIAL = "SN-1"


def configuration(home: Path, more: str) -> Path:
    """Write a configuration with one terminal. Return the path."""
    config = home / "config.toml"
    config.write_text(toml(home, f'[[terminals]]\nserial = "{SERIAL}"\n{more}\n'))
    return config


@pytest.fixture
async def terminal(tmp_path: Path) -> AsyncIterator[ScriptedTerminal]:
    async with scripted_terminal(tmp_path, "one") as terminal:
        terminal.start = terminal.abort = answering(200, b"{}")
        yield terminal


@pytest.fixture
def fleet(tmp_path: Path, terminal: ScriptedTerminal) -> Fleet:
    more = f'base_url = "{terminal.base_url}"\nca_file = "{terminal.ca_file}"\nconnect_timeout_seconds = 60'
    return Fleet(load(configuration(tmp_path, more)).terminals)


async def test_a_call_after_the_stop_began_sends_nothing(fleet: Fleet, terminal: ScriptedTerminal) -> None:
    fleet.cancel_calls()
    attempt = await fleet.of(SERIAL).device.call("GET", terminal.base_url)
    assert attempt == NotSent("posd was stopped before the terminal answered")
    assert terminal.requests == []
    await fleet.close()


async def test_an_unusable_ca_file_is_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    terminals = load(configuration(tmp_path, f'ca_file = "{tmp_path}/ca.pem"')).terminals
    with pytest.raises(OSError, match="contains no readable certificate"):
        Fleet(terminals)

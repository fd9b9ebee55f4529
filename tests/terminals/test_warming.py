"""The clients of the terminals are created when the daemon is ready, or when the first call needs one."""

import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from posd.config import load
from posd.terminals.attempt import NotSent, Replied
from posd.terminals.fleet import Fleet
from posd.terminals.settings import TerminalSettings
from tests.support.daemon import toml
from tests.support.shop import answering
from tests.support.terminal import ScriptedTerminal, scripted_terminal

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


async def test_a_call_finds_its_client_with_and_without_warming_up(fleet: Fleet, terminal: ScriptedTerminal) -> None:
    before = fleet.of(SERIAL).device
    assert isinstance(await before.call("GET", terminal.base_url), Replied)
    await fleet.warm_up()
    assert fleet.of(SERIAL).device is before
    await fleet.close()


async def test_a_client_created_after_the_stop_began_sends_nothing(fleet: Fleet, terminal: ScriptedTerminal) -> None:
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


@pytest.mark.quick(1)
@pytest.mark.parametrize("warm", [False, True])
def test_warming_up_loads_what_calls_need(tmp_path: Path, warm: bool) -> None:
    config = configuration(tmp_path, "")
    script = (
        "import asyncio, pathlib, sys\n"
        "from posd.config import load\nfrom posd.terminals.fleet import Fleet\n"
        f"fleet = Fleet(load(pathlib.Path({str(config)!r})).terminals)\n"
        f"if {warm}: asyncio.run(fleet.warm_up())\n"
        "print('posd.terminals.client' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"{warm}\n"


def test_the_loop_and_a_thread_that_ask_at_once_get_the_same_client(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def make() -> Any:
        with suppress(threading.BrokenBarrierError):  # in Python 3.11 only one thread at a time enters this function
            both.wait(0.2)
        return object()

    settings = TerminalSettings(load(configuration(tmp_path, "")).terminals[0], make)
    with ThreadPoolExecutor() as threads:
        assert set(threads.map(lambda _: settings.device, range(2))) == {settings.device}

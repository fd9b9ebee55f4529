"""`posd terminals find` on a real network: what it offers, whom it finds, and where it has no way to."""

import asyncio
import sys

import pytest

from posd import tls
from tests.cli.processes import Done
from tests.lan.street import SERIAL, TERMINAL, Street, base_url, net, open_street

pytestmark = [pytest.mark.root, pytest.mark.slow]


async def find(street: Street, *arguments: str) -> Done:
    """Run it on posd's machine, with a configuration that pins the terminal."""
    shown = tls.describe(street.certificates.certificate).fingerprint_sha256
    pin = f'serial = "{SERIAL}"\nfingerprint_sha256 = "{shown}"'
    config = street.home / "find.toml"
    config.write_text(street.daemon.config.replace(f'serial = "{SERIAL}"', pin))
    command = (sys.executable, "-m", "posd", "--config", str(config), "terminals", "find", *arguments)
    process = await asyncio.create_subprocess_exec(
        *street.pos.command(*command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    stdout, stderr = await process.communicate()
    assert process.returncode is not None
    return Done(process.returncode, stdout.decode(), stderr.decode())


async def test_it_finds_a_terminal_that_does_not_announce_itself_where_it_is_told_to_look() -> None:
    async with open_street() as street:
        await street.terminal(street.switch.machine("terminal", net(TERMINAL)), mdns=None)
        offered = await find(street)
        assert (offered.returncode, offered.stdout) == (2, "")
        assert "say where to look: --subnet 10.77.0.0/24 (eth0)" in offered.stderr
        found = await find(street, "--subnet", "10.77.0.0/24")
        assert (found.returncode, found.stderr) == (0, "")
        assert f'    base_url = "{base_url(TERMINAL)}"' in found.stdout.splitlines()
        # The line makes it work: nothing else tells posd where the terminal is.
        await street.daemon.stop()
        line = f'serial = "{SERIAL}"\nbase_url = "{base_url(TERMINAL)}"'
        street.daemon.config = street.daemon.config.replace(f'serial = "{SERIAL}"', line)
        await street.daemon.start()
        await street.approved(await street.charge())


async def test_it_says_where_this_machine_has_no_way_to() -> None:
    async with open_street(start=False) as street:
        done = await find(street, "--subnet", "10.99.0.0/30")
    assert (done.returncode, done.stderr) == (1, "")
    assert "Tried 2 of 2 addresses" in done.stdout
    assert "This machine has no way to some of them" in done.stdout

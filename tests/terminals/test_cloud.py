"""Terminals in the cloud together with local terminals: addresses, authentication, and callbacks."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from posd.base import ids
from posd.base.ids import Channel
from posd.config import load
from posd.records.callback_urls import CallbackUrls
from posd.terminals.announcements import Announcement
from posd.terminals.fleet import Fleet
from posd.terminals.terminal import AddressChange
from tests.core.scenarios import IDENTITY
from tests.rig.shop import answering
from tests.rig.terminal import ScriptedTerminal, scripted_terminal

KEY = bytes(32)
PATH = ids.path(Channel.TRANSACTION, IDENTITY, ids.token(KEY, Channel.TRANSACTION, IDENTITY))
LOCAL, CLOUD = "SN-LOCAL", "SN-CLOUD"

HEADERS = """
[terminal_defaults]
headers = {X-Store = "14"}
[profile]
headers = {X-Lan = "lan"}
[profile.cloud]
headers = {Authorization = {file = "service.token"}}
"""


@pytest.fixture
async def terminals(tmp_path: Path) -> AsyncIterator[dict[str, ScriptedTerminal]]:
    """Run one local terminal and the cloud service, each with its own CA."""
    async with AsyncExitStack() as stack:
        found = {}
        for serial in (LOCAL, CLOUD):
            found[serial] = await stack.enter_async_context(scripted_terminal(tmp_path, serial))
            found[serial].start = answering(200, b"{}")
        yield found


def fleet_of(home: Path, terminals: dict[str, ScriptedTerminal]) -> Fleet:
    (home / "service.token").write_text("Bearer service\n")
    entries = "".join(terminals[serial].toml for serial in (LOCAL, CLOUD))
    public = '[webhooks]\npublic_url = "https://pos.example"\n'
    (home / "config.toml").write_text(f'{public}{HEADERS}{entries}access_mode = "cloud"\n')
    return Fleet(load(home / "config.toml").terminals)


async def test_a_local_announcement_does_not_affect_a_terminal_in_the_cloud(
    tmp_path: Path, terminals: dict[str, ScriptedTerminal]
) -> None:
    fleet = fleet_of(tmp_path, terminals)
    returned: list[str] = []
    fleet.listen(returned.append, AddressChange.RETURNED)
    before = list(fleet.documents({}, everything=True))
    for number in range(10):
        host = f"192.0.2.{number}"
        found = Announcement(f"n{number}", CLOUD, (host,), 6869, "B", "M", "2026-11-20T10:00:00.000Z")
        assert not fleet.announce(found)
        assert fleet.withdraw(found.name) is None
        assert not fleet.announce(found)
        assert fleet.of(CLOUD).addresses.base_url == terminals[CLOUD].base_url
    assert list(fleet.documents({}, everything=True)) == before
    assert returned == []
    # Events from the cloud still update the cloud's terminal.
    fleet.heard_from(CLOUD, "2026-11-20T10:00:01.000Z", brand="B2")
    for failure in ("no connection", None):
        fleet.of(CLOUD).note_call(terminals[CLOUD].base_url, failure)
    (document,) = (item for item in fleet.documents({}, everything=False) if item.serial == CLOUD)
    assert document.brand == "B2"
    assert document.last_seen is not None
    assert document.last_seen > "2026-11-20T10:00:01.000Z"
    assert returned == [CLOUD]
    await fleet.close()


async def test_a_device_that_announces_a_cloud_serial_loses_its_old_announcement(
    tmp_path: Path, terminals: dict[str, ScriptedTerminal]
) -> None:
    fleet = fleet_of(tmp_path, terminals)
    seen = "2026-11-20T10:00:00.000Z"
    assert fleet.announce(Announcement("n", "SN-STRANGER", "192.0.2.1", 6869, None, None, seen))
    assert not fleet.announce(Announcement("n", CLOUD, "192.0.2.1", 6869, None, None, seen))
    assert [item.serial for item in fleet.documents({}, everything=True)] == [LOCAL, CLOUD]
    await fleet.close()


@pytest.mark.parametrize(
    "public_url",
    [
        "https://pos.example",
        "https://pos.example/",
        "https://pos.example:8443",
        "https://[2001:db8::1]:8443",
        "https://example.com/shop-14",
        "https://example.com/shop-14/till/",
    ],
)
async def test_the_service_calls_back_at_the_public_url(public_url: str) -> None:
    urls = CallbackUrls((KEY,), "advertised.example", 8443, public_url)
    # posd needs no route to the service for these events.
    url = await urls.url(Channel.TRANSACTION, IDENTITY, "https://nowhere.invalid", "cloud")
    assert url == f"{public_url.rstrip('/')}{PATH}"
    assert "//" not in url.removeprefix("https://")


async def test_a_local_terminal_never_gets_the_public_url() -> None:
    for advertised, host in (("", "127.0.0.1"), ("pos.shop.example", "pos.shop.example")):
        urls = CallbackUrls((KEY,), advertised, 8443, "https://pos.example")
        url = await urls.url(Channel.TRANSACTION, IDENTITY, "https://127.0.0.1:1", "local")
        assert url == f"https://{host}:8443{PATH}"

"""Streams of the real daemon. Streams have no gap over restarts and restores. Slow readers do not delay payments."""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from posd.base.limits import STREAMS_OF_PROCESS
from tests.e2e.test_backup import back_up, posd_command
from tests.rig.daemon import Daemon
from tests.rig.senders import ask_on, crowd
from tests.rig.shop import Shop
from tests.rig.slow import named_quick
from tests.rig.streams import Message, messages, stream, told

#: Limit of a wait in seconds.
PATIENCE_SECONDS = 60.0
#: Seconds until a client calls a stopped daemon again.
AGAIN_SECONDS = 0.05
#: Number of simultaneous streams, and of slow readers during a payment.
THOUSAND = 1000


class Reader:
    """Follower of a stream over restarts. The follower resumes with the id of the last event, as clients should."""

    def __init__(self, socket: Path, path: str, last: int | str | None = None) -> None:
        self._socket = socket
        self._path = path
        self._news = asyncio.Event()
        self.last = last
        #: Messages with an id, and the names of messages without an id.
        self.found: list[Message] = []
        self.told: list[str] = []

    async def follow(self) -> None:
        """Follow the stream until cancelled or until the outcome arrives."""
        while "outcome" not in self.told:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, AssertionError, ValueError):
                async with stream(self._socket, self._path, self.last) as source:
                    async for message in source:
                        self._take(message)
            await asyncio.sleep(AGAIN_SECONDS)

    def _take(self, message: Message) -> None:
        if message.id is None:
            self.told.append(message.event)
        else:
            self.found.append(message)
            self.last = message.id
        self._news.set()

    async def until(self, what: Any) -> None:
        """Wait until the condition is true."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not what(self):
                self._news.clear()
                await self._news.wait()


@asynccontextmanager
async def following(*readers: Reader) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(reader.follow()) for reader in readers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def feed(posd: Daemon, after: str | int = 0) -> list[Any]:
    """Return all pages of the feed after a number."""
    found: list[Any] = []
    while (page := (await posd.call("GET", f"/feed?after={after}&limit=500")).json)["changes"]:
        found += page["changes"]
        after = page["next_after"]
    return found


async def newest(posd: Daemon) -> Any:
    """Return the last page of the feed."""
    page = (await posd.call("GET", "/feed?limit=500")).json
    while page["changes"]:
        page = (await posd.call("GET", f"/feed?after={page['place']}&limit=500")).json
    return page


def documents(reader: Reader) -> list[Any]:
    return [message.json for message in reader.found]


@pytest.mark.parametrize("times", named_quick((1, 3), (1,)))
async def test_the_feed_continues_over_many_restarts_without_a_gap_or_a_repeat(own: Shop, times: int) -> None:
    posd, signals = own.daemon, [signal.SIGTERM, signal.SIGKILL] * times
    plain, checked = Reader(posd.till_socket, "/feed"), Reader(posd.till_socket, "/feed?after=start")
    async with following(plain, checked):
        payment = await own.started()
        for number in signals:
            other = await own.started()
            assert await payment.event("CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED") == 200
            last = (await newest(posd))["next_after"]
            for reader in (plain, checked):  # a stream must be open when posd stops
                await reader.until(lambda it, last=last: it.found and it.found[-1].json["seq"] >= last)
            running = asyncio.create_task(payment.event("APPROVAL_REQUESTED", "CARD_PRESENTED"))
            await posd.stop(number)
            await asyncio.gather(running, return_exceptions=True)
            await posd.start()
            await payment.end()
            payment = other
        await payment.end()
        pages = await feed(posd)
        for reader in (plain, checked):
            await reader.until(lambda it: it.found[-1].json["seq"] >= pages[-1]["seq"])
    for reader in (plain, checked):
        assert documents(reader) == pages
        assert Counter(reader.told) == {"draining": signals.count(signal.SIGTERM)}
    assert [message.id for message in plain.found] == [change["seq"] for change in pages]
    numbers = [int(str(message.id).partition("-")[0]) for message in checked.found]
    assert numbers == sorted(set(numbers)) == [change["seq"] for change in pages]


@pytest.mark.asyncio(loop_scope="module")
async def test_an_event_id_of_another_payment_is_reported(shop: Shop) -> None:
    posd = shop.daemon
    one, other = await shop.started(), await shop.started()
    await one.end()
    await other.end()
    (listed,) = (await posd.call("GET", f"/transactions/{one.identity}/events")).json["events"]
    async with stream(posd.till_socket, f"/transactions/{other.identity}/events", listed["seq"]) as source:
        found = [message async for message in source]
    assert [message.event for message in found] == ["notice", "state", "TERMINAL_CANCELED", "outcome"]
    assert found[0].json["code"] == "place_unknown"


@pytest.mark.quick(1)
@pytest.mark.parametrize("lost", [False, True])
async def test_a_reader_continues_after_a_restore(own: Shop, home: Path, lost: bool) -> None:
    posd = own.daemon
    before = await own.started()
    await before.end()
    await back_up(posd, home / "backup.db")
    backed_up = (await newest(posd))["next_after"]
    since = await own.started()
    await since.end()
    place = await newest(posd)
    kept = await feed(posd, backed_up)

    await posd.kill()
    if lost:
        for suffix in ("", "-wal", "-shm"):
            posd.database.with_name(posd.database.name + suffix).unlink(missing_ok=True)
    code, _, said = await posd_command(posd, "restore", str(home / "backup.db"))
    assert code == 0, said
    await posd.start()
    if lost:  # posd starts no new id until an operator confirms the restore
        code, _, said = await posd_command(posd, "restore", "--seen", "--operator", "Ana")
        assert code == 0, said
    later = await own.started()
    plain = Reader(posd.till_socket, "/feed", place["next_after"])
    checked = Reader(posd.till_socket, "/feed", place["place"])
    async with following(plain, checked):
        for reader in (plain, checked):
            await reader.until(lambda it: any(change["id"] == later.identity for change in documents(it)))
    for reader in (plain, checked):
        assert reader.told == ["notice"]
        told = documents(reader)
        assert min(change["seq"] for change in told) > place["next_after"], "numbers never decrease"
        if not lost:  # the feed repeats the records that the restore took over
            assert {(item["id"], item["reason"], item["at"]) for item in kept} <= {
                (item["id"], item["reason"], item["at"]) for item in told
            }
    page = (await posd.call("GET", f"/feed?after={place['place']}")).json
    assert [(item["code"], item["seq"]) for item in page["notices"]] == [("place_unknown", place["next_after"])]
    await later.end()


async def test_the_feed_reports_what_retention_removed(own: Shop) -> None:
    posd = own.daemon
    gone = await own.started()
    await gone.approve()
    place = (await newest(posd))["place"]
    kept = await own.started()
    reply = await posd.call("POST", "/prune", {"older_than_days": 0}, socket=posd.admin_socket)
    assert reply.json["removed"]["changes"] > 0
    page = (await posd.call("GET", "/feed?limit=500")).json
    assert {change["id"] for change in page["changes"]} == {kept.identity}
    assert [item["code"] for item in page["notices"]] == ["changes_removed"]
    reader = Reader(posd.till_socket, "/feed")
    async with following(reader):
        await reader.until(lambda it: len(it.found) >= len(page["changes"]))
    assert (reader.told, documents(reader)[: len(page["changes"])]) == (["notice"], page["changes"])
    behind = (await posd.call("GET", f"/feed?after={place}&limit=500")).json
    assert behind["notices"] == [item for item in page["notices"] if int(place.split("-")[0]) < item["seq"]]
    await kept.end()


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("count", named_quick((100, THOUSAND), (100,)))
async def test_a_thousand_simultaneous_streams_all_get_a_change(shop: Shop, count: int) -> None:
    posd = shop.daemon
    payment = await shop.started()
    paths = (f"/transactions/{payment.identity}/events", f"/feed?after={(await newest(posd))['next_after']}")

    async def first(reader: asyncio.StreamReader) -> Any:
        return (await anext(told(messages(reader)))).json

    with crowd(posd.till_socket, count, STREAMS_OF_PROCESS.value) as connections:
        opened = [await ask_on(one, paths[n % 2], "accept: text/event-stream\r\n") for n, one in enumerate(connections)]
        for item in opened:
            assert (await item.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert await payment.event("TERMINAL_CANCELED") == 200
        found = await asyncio.gather(*(first(item.reader) for item in opened))
        assert {item["event"]["status"] for item in found[::2]} == {"TERMINAL_CANCELED"}
        assert {item["id"] for item in found[1::2]} == {payment.identity}
        for item in opened:
            item.hang_up()

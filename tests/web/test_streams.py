"""Streams on real sockets and a real database. Each stream is bounded, can be resumed, and ends with a reason."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from starlette.requests import Request
from structlog.testing import capture_logs

from posd.api import feed, routes
from posd.api.feed import FeedStream
from posd.base.clocks import wall
from posd.calls import app, streams
from posd.calls.app import LocalApp, json_response
from posd.calls.parameters import Route
from posd.calls.streams import CallContext, wants_stream
from posd.daemon import sockets
from posd.httpd import connection
from posd.httpd.admission import ListenerPolicy, RejectedTraffic
from posd.httpd.connection import WRITE_AHEAD_BYTES
from posd.httpd.server import HttpListener
from posd.payments.handlers import name
from posd.records.pages import FeedPosition
from posd.records.quotas import Quotas
from posd.storage import changes
from posd.storage.batch import RecordedChange, WriteTransaction
from posd.storage.store import Store
from posd.upkeep import retention
from tests.rig.streams import Connection, Message, ask, messages
from tests.rig.waits import until

#: Maximum duration of a wait, in seconds.
PATIENCE = 30.0
#: Replacements of `TAKE_SECONDS` and `LINGER_SECONDS` for tests that wait until these times are over, in seconds.
SHORT = 0.2
#: Number of changes that exceeds the buffers of kernel and posd for a client that does not read.
MANY = 4000
#: Factor for the growth of asyncio's buffer by an eighth.
SPARE = 1.125


@dataclass
class House:
    """The feed of a database, served on a socket."""

    store: Store
    context: CallContext
    socket: Path
    listener: HttpListener
    noise: RejectedTraffic
    reads: list[object] = field(default_factory=list)

    async def record(self, count: int, reason: str = "event") -> None:
        """Record this many changes."""
        await self.store.write(partial(_record, count=count, reason=reason))

    async def get(self, query: str = "", headers: str = "") -> Any:
        """Return a page of the feed, or a problem."""
        asked = await ask(self.socket, f"/feed{query}", headers)
        try:
            return (await asked.reply())[1]
        finally:
            asked.hang_up()

    @asynccontextmanager
    async def follow(self, query: str = "", last_event_id: str = "") -> AsyncIterator[Connection]:
        """Open a stream, and read its head."""
        resume = f"last-event-id: {last_event_id}\r\n" if last_event_id else ""
        reader = await ask(self.socket, f"/feed{query}", f"accept: text/event-stream\r\n{resume}")
        try:
            async with asyncio.timeout(PATIENCE):
                assert (await reader.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
            yield reader
        finally:
            reader.hang_up()

    async def empty(self) -> None:
        """Wait until no connection is left."""
        await until(lambda: not self.listener.connections)

    def held(self) -> int:
        """Return how many bytes asyncio buffers."""
        return sum(item.get_write_buffer_size() for item in self.listener._connections.values() if item is not None)


def _record(unit: WriteTransaction, count: int, reason: str) -> None:
    for number in range(count):
        identity = f"00000000-0000-4000-8000-{number:012}"
        at = datetime.now(UTC).isoformat()
        changes.record(unit, RecordedChange(0, at, "transaction", identity, reason, "active", None, None, ()))


@pytest.fixture
async def house() -> AsyncIterator[House]:
    with TemporaryDirectory(prefix="posd-") as home:
        store = await Store.open(Path(home) / "posd.db", Path(home) / "posd.db.lock")
        quotas, noise, path = Quotas(), RejectedTraffic(), Path(home) / "till.sock"
        context = CallContext(store, lambda: datetime.now(UTC), quotas, lambda: None, lambda _approvals: None)
        app = LocalApp(
            (
                (
                    next(row for row in routes.SERVICE_ROUTES if row.path == "/v1/feed"),
                    FeedStream(context, lambda: False).read_feed,
                ),
                (Route("GET", "/v1/large", "large", "A large answer.", {}), large),
                (Route("GET", "/v1/ending", "ending", "A stream that ends at once.", {}), partial(ending, context)),
            ),
            quotas.in_flight,
        )
        listener = HttpListener(
            app,
            sockets.unix_socket(path, ""),
            ListenerPolicy(
                name="till.sock",
                keep_alive_seconds=PATIENCE,
                max_connections=2000,
                state={"admin": False, "feed": False},
            ),
            noise,
            wall,
        )
        listener.start()
        house = House(store, context, path, listener, noise)
        read = context.read

        async def counted(function: Any) -> Any:
            house.reads.append(function)
            return await read(function)

        context.read = counted  # type: ignore[method-assign]
        yield house
        store.hub.drain()
        await listener.close(PATIENCE)
        await store.close()


async def ending(context: CallContext, request: Request) -> Any:
    async def read() -> streams.MessageBatch:
        return streams.MessageBatch(streams.message("outcome", "x" * 1_000_000), last=True)

    return context.streams.answer(request, "events", "nobody", read)


#: Bytes of a response that is larger than every buffer of a socket.
LARGE = 8_000_000


async def large(_request: Request) -> Any:
    """Send a very large response, like a long list."""
    return json_response({"large": "x" * LARGE})


async def rest(reader: Connection) -> list[Message]:
    """Read a stream to its end."""
    return [message async for message in messages(reader.reader)]


def numbers(found: list[Message]) -> list[int]:
    return [message.json["seq"] for message in found if message.id is not None]


async def ended(house: House, reason: str, count: int = 1) -> None:
    """Wait until this many streams have ended for this reason."""
    await until(lambda: house.context.streams.ended["feed", reason] >= count)


# Slow readers.


@pytest.mark.slow
async def test_a_slow_reader_is_cut_off_with_a_message_and_can_resume_at_its_place(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "TAKE_SECONDS", SHORT)
    await house.record(MANY, "long " * 200)
    with capture_logs() as lines:
        async with house.follow("?limit=500") as slow:
            await ended(house, "cut_off")
            held = house.held()
            found = await rest(slow)
            await house.empty()
    most = (WRITE_AHEAD_BYTES + streams.BATCH_BYTES + 2048) * SPARE
    assert WRITE_AHEAD_BYTES < held < most
    *changed, last = found
    assert (last.event, last.id, last.json["code"]) == ("cut_off", None, "cut_off")
    assert "Last-Event-ID" in last.json["detail"]
    told = [line for line in lines if line["event"] == "stream.cut_off"]
    assert [(line["kind"], line["log_level"]) for line in told] == [("feed", "warning")]
    assert 0 < len(changed) < MANY
    monkeypatch.undo()
    async with house.follow("?limit=500", str(changed[-1].id)) as again:
        source = messages(again.reader)
        more = [await anext(source) for _ in range(MANY - len(changed))]
    assert numbers(changed) + numbers(more) == list(range(1, MANY + 1))
    assert house.context.streams.ended["feed", "cut_off"] == 1


async def test_a_client_that_never_reads_again_is_disconnected(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TAKE_SECONDS", SHORT)
    monkeypatch.setattr(connection, "LINGER_SECONDS", SHORT)
    await house.record(MANY)
    async with house.follow() as slow:
        await ended(house, "cut_off")
        await house.empty()
        assert house.held() == 0
        found: list[Message] = []
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # the kernel's bytes end within a message
            async for item in messages(slow.reader):
                found.append(item)  # noqa: PERF401 - the test also needs the lines before an error
    assert numbers(found) == list(range(1, len(found) + 1))
    assert "cut_off" not in {item.event for item in found}


@pytest.mark.parametrize("reads", [True, False])
async def test_an_idle_stream_is_cut_off_if_the_client_does_not_read_its_heartbeats(
    house: House, monkeypatch: pytest.MonkeyPatch, reads: bool
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", SHORT / 10)
    monkeypatch.setattr(streams, "TAKE_SECONDS", SHORT)
    await house.record(3)
    async with house.follow() as reader:
        if reads:
            received = b""
            async with asyncio.timeout(PATIENCE):
                while received.count(b":\n\n") < 25:  # a client that reads nothing is cut off earlier
                    received += await reader.reader.read(4096)
            assert house.context.streams.ended["feed", "cut_off"] == 0
            assert house.context.streams.open["feed"] == 1
            return
        reader.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await ended(house, "cut_off")
        reader.writer.transport.resume_reading()  # type: ignore[attr-defined]
        found = await rest(reader)
    assert [message.event for message in found] == ["transaction"] * 3 + ["cut_off"]


def test_the_detector_measures_how_long_a_client_reads_nothing() -> None:
    lying, now = 0, 100.0
    client = streams.SlowReaderDetector(lambda: lying, lambda: now)
    client.wrote()
    now += 50
    assert client.look() == 0, "nothing is unread"
    lying = 10
    client.wrote()
    now += 20
    assert client.look() == 20
    lying = 20
    client.wrote()
    now += 5
    assert client.look() == 25, "more is unread, and still nothing was read"
    lying = 19
    assert client.look() == 0, "something was read"
    now += 3
    assert client.look() == 3
    lying = 0
    assert client.look() == 0


async def test_an_unread_response_ends_its_connection(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TAKE_SECONDS", SHORT)
    with capture_logs() as lines:
        till = await ask(house.socket, "/large")
        await until(lambda: house.held() > 0)
        await house.empty()
    assert house.noise.counts["untaken_answer"] == 1
    assert [line["kind"] for line in lines if line["event"] == "listener.refused"] == ["untaken_answer"]
    assert not [line for line in lines if line["log_level"] == "error"]
    till.hang_up()


async def test_a_slow_reader_gets_all_of_a_large_response(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader may be very slow. At each check of this test the time is over, but the client has read bytes since the
    previous check.
    """
    looks = iter(range(10**9, 0, -1))
    monkeypatch.setattr(connection, "TAKE_SECONDS", 0.0)
    monkeypatch.setattr(connection, "untaken", lambda _transport: next(looks))
    till = await ask(house.socket, "/large")
    status, document = await till.reply()
    assert (status, len(document["large"])) == (200, LARGE)
    assert house.noise.counts["untaken_answer"] == 0
    assert next(looks) < 10**9 - 10
    till.hang_up()


async def test_a_client_that_resumes_too_slowly_gets_the_rest(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """posd has cut the reader off. posd keeps the remaining bytes as long as the client continues to read."""
    enough, looks = asyncio.Event(), 0

    def less_each_time(_transport: object) -> int:
        nonlocal looks
        looks += 1
        if looks == 20:
            enough.set()
        return -looks

    monkeypatch.setattr(connection, "TAKE_SECONDS", SHORT)
    monkeypatch.setattr(connection, "LINGER_SECONDS", SHORT / 10)
    await house.record(MANY)
    async with house.follow("?limit=500") as slow:
        await ended(house, "cut_off")
        monkeypatch.setattr(connection, "untaken", less_each_time)
        async with asyncio.timeout(PATIENCE):
            await enough.wait()
        found = await rest(slow)
    assert found[-1].event == "cut_off"


async def test_an_outcome_in_an_unread_batch_is_not_delivered(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TAKE_SECONDS", SHORT)
    slow = await ask(house.socket, "/ending", "accept: text/event-stream\r\n")
    counted = house.context.streams.ended
    await until(lambda: counted["events", "cut_off"] > 0)
    assert counted["events", "outcome"] == 0
    assert b"event: cut_off" in await slow.reader.read(-1)
    slow.hang_up()


async def test_unread_responses_of_many_requests_stay_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TAKE_SECONDS", SHORT)
    await house.record(500)
    till = await ask(house.socket, "/feed?limit=500")
    till.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(20):
        till.writer.write(b"GET /v1/feed?limit=500 HTTP/1.1\r\nhost: posd\r\n\r\n")
    await until(lambda: house.noise.counts["untaken_answer"] > 0)
    await house.empty()
    till.hang_up()


async def test_no_page_is_read_for_a_client_that_has_left(house: House) -> None:
    """Otherwise the connections of an ended till stay open until posd has read and encoded a page for each."""
    await house.record(10)
    for _ in range(5):
        (await ask(house.socket, "/feed")).hang_up()
    assert len((await house.get())["changes"]) == 10
    await house.empty()
    assert len(house.reads) == 1


# Ends of a stream.


async def test_a_stop_of_posd_ends_streams_with_a_reason_and_refuses_new_streams(house: House) -> None:
    await house.record(2)
    async with house.follow() as one, house.follow("?after=2") as other:
        source = messages(one.reader)
        assert [await anext(source) for _ in range(2)]
        house.store.hub.drain()
        (last,) = [message async for message in source]
        assert [(item.event, item.id, item.json["code"]) for item in (last, *await rest(other))] == [
            ("draining", None, "draining")
        ] * 2
    refused = await house.get("", "accept: text/event-stream\r\n")
    assert (refused["code"], refused["status"]) == ("draining", 503)
    assert house.context.streams.ended["feed", "draining"] == 2


async def test_a_database_that_cannot_be_read_ends_a_stream_with_a_problem(house: House) -> None:
    async with house.follow() as reader:
        await until(lambda: bool(house.reads))
        await house.record(1)
        source = messages(reader.reader)
        await anext(source)
        house.store._closed = True
        await house.store.writer.write(partial(_record, count=1, reason="event"))
        *_, last = [message async for message in source]  # a read in progress may have returned the change
        house.store._closed = False
    assert (last.event, last.json["code"]) == ("problem", "storage_unavailable")


# Starts of a stream.


@pytest.mark.parametrize("value", ["", " ", "x", "-1", "1-", "1-5F3A9C01", "1.0", "99999999999999999999", "\u0663"])
async def test_an_invalid_place_is_refused(house: House, value: str) -> None:
    headers = f"accept: text/event-stream\r\nlast-event-id: {value.encode().decode('latin-1')}\r\n"
    refused = await house.get("", headers)
    assert (refused["status"], [item["path"] for item in refused["errors"]]) == (422, ["Last-Event-ID"])


async def test_the_last_event_id_is_used_instead_of_the_query(house: House) -> None:
    await house.record(5)
    async with house.follow("?after=1", "3") as reader:
        assert (await anext(messages(reader.reader))).id == 4
    async with house.follow("?after=1") as reader:
        assert (await anext(messages(reader.reader))).id == 2


async def test_a_head_request_gets_only_the_head_and_the_connection_stays_open(house: House) -> None:
    reader, writer = await asyncio.open_unix_connection(str(house.socket))
    head = b"HEAD /v1/feed HTTP/1.1\r\nhost: posd\r\naccept: text/event-stream\r\n\r\n"
    async with asyncio.timeout(PATIENCE):
        for _ in range(2):
            writer.write(head)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert b"content-type: text/event-stream; charset=utf-8\r\n" in answer
            assert b"cache-control: no-store\r\n" in answer
    writer.transport.abort()
    assert house.context.streams.open["feed"] == 0


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (["text/event-stream"], True),
        (["Text/Event-Stream; q=0.5"], True),
        (["application/json;q=0.9, text/event-stream"], True),
        (["application/json, text/event-stream"], True),
        (["application/json", "text/event-stream;q=1.0"], True),
        (["text/event-stream;q=0.1, */*;q=0.9"], True),
        (["application/json, text/event-stream;q=0.5"], False),
        (["text/event-stream;q=0"], False),
        (["text/event-streams"], False),
        (["application/text/event-stream"], False),
        (["text/*"], False),
        (["*/*"], False),
        ([], False),
        (["text/event-stream;q=x"], True),
    ],
)
def test_a_stream_is_sent_only_if_a_client_accepts_it_and_prefers_no_document(accept: list[str], wanted: bool) -> None:
    headers = [(b"accept", value.encode()) for value in accept]
    assert wants_stream(Request({"type": "http", "headers": headers})) is wanted


@pytest.mark.parametrize(
    ("status", "event"),
    [
        ("APPROVAL", "APPROVAL"),
        ("ODD\nid: 7", "ODD id: 7"),
        ("", "unknown:"),
        *((f" {word}\r", f"unknown:{word}") for word in sorted(streams.OWN_NAMES)),
    ],
)
def test_a_payment_status_cannot_imitate_an_event_name_of_posd(status: str, event: str) -> None:
    assert name(status) == event


# Payments come first.


async def test_a_reader_far_behind_waits_while_changes_arrive(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "GIVE_WAY_SECONDS", 3.0)
    await house.record(feed.FAR_BEHIND + 10)
    far = asyncio.create_task(house.get("?after=1"))
    assert len((await house.get(f"?after={feed.FAR_BEHIND}"))["changes"]) == 10, "a reader near the end does not wait"
    monkeypatch.setattr(feed, "BUSY_SECONDS", 0.0)
    assert (await house.get("?after=1"))["changes"], "no change was recorded recently"
    assert not far.done()
    assert (await far)["changes"][0]["seq"] == 2


async def test_delayed_pages_of_a_process_wait_in_a_queue_and_none_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "GIVE_WAY_SECONDS", 3 * app.TURN_SECONDS)
    await house.record(feed.FAR_BEHIND + 10)
    pages = await asyncio.gather(*(house.get(f"?after={number}") for number in range(1, 7)))
    assert [page.get("code", page["changes"][0]["seq"]) for page in pages] == [2, 3, 4, 5, 6, 7]


async def test_a_stream_catches_up_to_the_end_while_changes_are_recorded(house: House) -> None:
    await house.record(feed.FAR_BEHIND + 210)
    async with house.follow("?limit=100", "1") as reader:
        source = messages(reader.reader)
        found = [await anext(source) for _ in range(feed.FAR_BEHIND + 209)]
    assert [item.json["seq"] for item in found] == list(range(2, feed.FAR_BEHIND + 211))


# Tests of retention and of other databases.


async def test_a_reader_behind_removed_changes_gets_a_notice(house: House) -> None:
    await house.record(6)
    await house.store.write(partial(retention.remove_lines, numbers=[2, 3]))
    page = await house.get("?after=1")
    assert [item["seq"] for item in page["changes"]] == [4, 5, 6]
    assert [(item["code"], item["seq"]) for item in page["notices"]] == [("changes_removed", 3)]
    assert page["first_seq"] == 4, "the removed changes leave a gap before it"
    for after in (2, 3, 4):
        expected = ["changes_removed"] if after < 3 else []
        assert [item["code"] for item in (await house.get(f"?after={after}"))["notices"]] == expected
    async with house.follow("", "1") as reader:
        source = messages(reader.reader)
        notice, *changed = [await anext(source) for _ in range(4)]
    assert (notice.event, notice.id, notice.json["code"], notice.json["seq"]) == ("notice", None, "changes_removed", 3)
    assert numbers(changed) == [4, 5, 6]


async def test_a_live_stream_gets_no_notice_about_removed_changes_that_it_received(house: House) -> None:
    await house.record(4)
    async with house.follow("?limit=1") as reader:
        source = messages(reader.reader)
        assert numbers([await anext(source) for _ in range(4)]) == [1, 2, 3, 4]
        await house.store.write(partial(retention.remove_lines, numbers=[1, 2]))
        await house.record(1)
        assert numbers([await anext(source)]) == [5], "it had received the removed changes"


async def test_reading_from_a_place_beyond_the_feed_restarts_at_the_beginning(house: House) -> None:
    await house.record(3)
    page = await house.get("?after=10000")
    assert (page["changes"], page["next_after"], page["place"]) == ([], 0, "start")
    assert [(item["code"], item["seq"]) for item in page["notices"]] == [("place_unknown", 0)]
    async with house.follow("?after=10000") as reader:
        source = messages(reader.reader)
        notice, *changed = [await anext(source) for _ in range(4)]
    assert (notice.event, notice.json["code"]) == ("notice", "place_unknown")
    assert numbers(changed) == [1, 2, 3]


async def test_a_place_with_a_check_code_is_valid_only_in_its_own_database(house: House) -> None:
    await house.record(3)
    page = await house.get("?after=start&limit=2")
    assert await house.get(f"?after={page['place']}") == await house.get("?after=2")
    async with house.follow("?after=start") as reader:
        source = messages(reader.reader)
        texts = [line.id for line in [await anext(source) for _ in range(3)]]
    assert texts[1] == page["place"]
    for text in texts:
        assert (await house.get(f"?after={text}"))["notices"] == []
    # Another database, with other changes under the same numbers.
    await house.store.write(lambda unit: unit.db.execute("UPDATE changes SET at = '2020-01-01T00:00:00.000Z'"))
    for headers in ("", "accept: text/event-stream\r\n"):
        if not headers:
            other = await house.get(f"?after={texts[1]}")
            assert [item["code"] for item in other["notices"]] == ["place_unknown"]
            assert (other["changes"], other["next_after"], other["place"]) == ([], 0, "start")
            continue
        async with house.follow("", str(texts[1])) as reader:
            source = messages(reader.reader)
            assert (await anext(source)).event == "notice"
            assert numbers([await anext(source) for _ in range(3)]) == [1, 2, 3]


async def test_reading_from_a_place_between_two_databases_continues_after_the_gap(house: House) -> None:
    await house.record(3)
    await house.store.write(lambda unit: unit.db.execute("UPDATE sqlite_sequence SET seq = 1000"))
    await house.record(2)
    page = await house.get("?after=500")
    assert [(item["code"], item["seq"]) for item in page["notices"]] == [("place_unknown", 500)]
    assert [item["seq"] for item in page["changes"]] == [1001, 1002]


async def test_the_place_of_a_removed_change_stays_valid(house: House) -> None:
    await house.record(3)
    await house.store.write(partial(retention.remove_lines, numbers=[2]))
    page = await house.get("?after=2&limit=1")
    assert ([item["seq"] for item in page["changes"]], page["notices"]) == ([3], [])
    await house.store.write(partial(retention.remove_lines, numbers=[3]))
    page = await house.get("?after=3")
    assert (page["changes"], page["next_after"], page["place"], page["notices"]) == ([], 3, "3-00000000", [])
    assert (await house.get("?after=3-00000000"))["notices"] == []


@pytest.mark.parametrize("text", ["0", "12", "12-5f3a9c01", "start"])
def test_a_place_is_written_in_the_form_in_which_it_was_read(text: str) -> None:
    assert str(FeedPosition.parse(text)) == text

"""The relay sends every change of a lane once and in order, despite any fault. Server, daemon and process are real."""

import json
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from posd.config.schema import RelayConfig
from posd.relay.stream import SubjectMoved, connected
from tests.relay.lane import Lane, once_each, sent
from tests.relay.nats_server import NatsServer
from tests.rig.needs import needs
from tests.rig.shop import Payment, Shop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs("nats-server")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        await server.make_stream()
        yield server


@pytest.fixture
def lane(shop: Shop, server: NatsServer) -> Lane:
    return Lane(shop.daemon, server)


async def paid(shop: Shop) -> Payment:
    payment = await shop.started()
    await payment.approve()
    return payment


async def test_the_complete_feed_arrives_unchanged(lane: Lane, shop: Shop) -> None:
    payment = await paid(shop)
    await lane.once()
    begin, *changes, state = await lane.messages()
    feed = json.loads((await shop.daemon.call("GET", "/feed")).body)
    head = {"v": 1, "merchant": "m1", "lane": lane.name, "database_id": feed["database_id"]}
    assert head.items() <= begin.items()
    assert (begin["kind"], begin["first_seq"], begin["previous"]) == ("begin", 1, None)
    assert sent(changes) == await lane.feed()
    assert sent(changes)[-1]["outcome"]["transaction_reference"]
    assert sent(changes)[-1]["id"] == payment.identity
    assert (state["kind"], state["last_seq"]) == ("state", sent(changes)[-1]["seq"])
    assert (state["health"], state["open"]) == ({"status": "ok"}, 0)
    assert state["as_of"] <= state["at"]


async def test_only_new_changes_are_sent(lane: Lane, shop: Shop) -> None:
    await paid(shop)
    await lane.once()
    before = len(await lane.messages())
    await paid(shop)
    await lane.once()
    new = (await lane.messages())[before:]
    assert [message["kind"] for message in new] == ["changes", "state"]
    assert sent(await lane.messages()) == await lane.feed()


async def test_the_relay_follows_the_feed_and_stops_cleanly(lane: Lane, shop: Shop) -> None:
    relay = await lane.start()
    await lane.until_complete()
    payment = await paid(shop)
    found = await lane.until_complete()
    assert sent(found)[-1]["id"] == payment.identity
    assert await relay.stop() == 0
    assert relay.lines[-1]["event"] == "relay.stopped"


async def test_a_message_has_at_most_a_batch_of_changes(lane: Lane, shop: Shop) -> None:
    await paid(shop)
    lane.settings = "batch = 3"
    await lane.once()
    runs = await lane.messages("changes")
    assert {len(message["changes"]) for message in runs[:-1]} == {3}
    assert sent(runs) == await lane.feed()


async def test_a_kill_at_any_instant_loses_nothing_and_sends_nothing_twice(lane: Lane, shop: Shop) -> None:
    lane.settings = "batch = 1"
    payments = [await paid(shop) for _ in range(6)]
    for count in range(6):
        relay = await lane.start()
        await lane.server.until(lane.subject, lambda last: last.get("last_seq", 0) >= 5 * count)  # noqa: B023
        await relay.stop(signal.SIGKILL)
    await lane.once()
    assert sent(await lane.messages()) == await lane.feed()
    assert {payment.identity for payment in payments} <= {change["id"] for change in sent(await lane.messages())}


async def test_two_relays_for_one_lane_send_each_change_once(lane: Lane, shop: Shop) -> None:
    lane.settings = "batch = 1"
    relays = [await lane.start(), await lane.start()]
    for _ in range(5):
        await paid(shop)
    found = await lane.until_complete()
    assert [await relay.stop() for relay in relays] == [0, 0]
    assert sent(found) == await lane.feed()
    assert any(line["event"] == "relay.overtaken" for relay in relays for line in relay.lines)


async def test_a_late_publish_is_not_stored(lane: Lane, shop: Shop) -> None:
    """A client library may send the message after a reconnection."""
    await lane.once()
    last = (await lane.messages())[-1]
    config = RelayConfig(
        servers=(lane.server.url,), lane="", stream="POSD", credentials_file=None, user="", password_file=None,
        certificate=None, private_key=None, ca_file=None, metrics_listen=None, batch=1, state_seconds=1, metadata=False,
    )  # fmt: skip
    async with connected(config, lane.subject, "_I.m1.x") as stream:
        with pytest.raises(SubjectMoved):
            await stream.publish(b"{}", last["sequence"] - 1)
        assert (await stream.last())[0] == last["sequence"]


async def test_messages_that_the_stream_lost_are_sent_again(lane: Lane, shop: Shop) -> None:
    lane.settings = "batch = 5"
    for _ in range(2):
        await paid(shop)
    await lane.once()
    for kept in (2, 0):
        await lane.server.forget(*(message["sequence"] for message in (await lane.messages())[kept:]))
        assert once_each(await lane.messages()) != await lane.feed()
        await lane.once()
        assert once_each(await lane.messages()) == await lane.feed()
        assert (await lane.messages())[0]["kind"] == "begin"


async def test_an_operator_can_make_the_relay_send_again_from_a_chosen_change(lane: Lane, shop: Shop) -> None:
    await paid(shop)
    await lane.once()
    before = len(await lane.messages())
    await lane.once("--from", "3")
    assert sent((await lane.messages())[before:]) == (await lane.feed())[2:]
    relay = await lane.start("--once", "--from", "100000")
    assert await relay.ended() == 1
    assert "--from 100000" in relay.lines[-1]["error"]


STRANGE: dict[str, tuple[bytes | dict[str, Any], str]] = {
    "a message of another program": (b"nonsense", "not from a relay"),
    "another lane": ({"kind": "begin", "lane": "other", "first_seq": 1, "previous": None}, "of the lane m1.other"),
    "another database": ({"kind": "begin", "database_id": "x", "first_seq": 1, "previous": None}, "of the database x"),
    "past the feed": ({"kind": "lost", "from_seq": 1, "to_seq": 999_999, "reason": ""}, "goes up to change 999999"),
    "another change with the sent number": (
        {"kind": "changes", "first_seq": 1, "last_seq": 2, "changes": [], "place": "2-00000000"},
        "not the change that was sent",
    ),
}


@pytest.mark.parametrize(("message", "words"), STRANGE.values(), ids=STRANGE)
async def test_after_a_foreign_message_the_relay_sends_nothing(
    lane: Lane, shop: Shop, message: bytes | dict[str, Any], words: str
) -> None:
    await paid(shop)
    here = json.loads((await shop.daemon.call("GET", "/feed")).body)["database_id"]
    if isinstance(message, dict):
        message = json.dumps({"merchant": "m1", "lane": lane.name, "database_id": here, "at": ""} | message).encode()
    await lane.server.put(lane.subject, message)
    relay = await lane.start()
    assert await relay.ended() == 1
    assert relay.lines[-1]["event"] == "relay.refused"
    assert words in relay.lines[-1]["error"]
    assert relay.lines[-1]["detail"]


async def test_a_lane_begins_again_after_a_lost_database(lane: Lane, shop: Shop) -> None:
    await paid(shop)
    lost = {"kind": "lost", "merchant": "m1", "lane": lane.name, "database_id": "lost", "at": "", "reason": ""}
    lost |= {"from_seq": 1, "to_seq": 4}
    await lane.server.put(lane.subject, json.dumps(lost).encode())
    await lane.once("--begin")
    _, begin, *others = await lane.messages()
    assert (begin["kind"], begin["previous"]) == ("begin", {"database_id": "lost", "last_seq": 4})
    assert sent(others) == await lane.feed()


@pytest.mark.slow
async def test_without_a_stream_the_relay_says_how_to_create_it_and_waits(lane: Lane, server: NatsServer) -> None:
    lane.settings = 'stream = "NONE"'
    relay = await lane.start("--once")
    assert await relay.ended() == 3
    assert "posd collect --init" in relay.lines[-1]["detail"]


async def test_without_posd_or_a_server_the_relay_says_which_is_unreachable(lane: Lane, server: NatsServer) -> None:
    away = Lane(lane.daemon, NatsServer(lane.daemon.directory))
    relay = await away.start("--once")
    assert await relay.ended() == 3
    assert f"127.0.0.1:{away.server.port}" in relay.lines[-1]["error"]
    waiting = await away.start()
    assert (await waiting.log_line("relay.waiting"))["retry_s"] > 0
    assert await waiting.stop() == 0

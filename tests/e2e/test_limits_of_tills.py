"""A till that reaches a limit gets a problem, and no other till is affected (posd.base.limits)."""

import asyncio
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base.limits import CONNECTIONS_OF_PROCESS, PRINT_JOBS_OF_PROCESS, STREAMS_OF_PROCESS
from posd.client import Posd, Problem
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon, running
from tests.rig.senders import ask_on, process
from tests.rig.shop import Shop
from tests.rig.streams import ask
from tests.rig.terminal import scripted_terminal, taking_print
from tests.rig.usage import descriptors
from tests.rig.waits import until
from tests.rig.webhooks import faults

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST = CONNECTIONS_OF_PROCESS.value


async def metric(posd: Daemon, name: str) -> int:
    """Return how often a limit was reached."""
    text = await posd.metrics(posd.admin_socket)
    found = re.search(rf'^posd_limit_reached_total{{limit="{name}"}} (\d+)$', text, re.MULTILINE)
    assert found is not None, name
    return int(found[1])


async def down_to(pid: int, count: int) -> None:
    """Wait until a process has at most this many descriptors."""
    await until(lambda: descriptors(pid) <= count)


async def answered(connections: list[Any]) -> list[tuple[int, Any]]:
    """Send a request on each connection. Return the responses. The connections stay open."""
    asked = [await ask_on(item, "/version") for item in connections]
    found = list(await asyncio.gather(*(item.reply() for item in asked)))
    for item in asked:
        item.hang_up()
    return found


async def test_a_till_that_uses_all_its_connections_does_not_affect_other_tills(shop: Shop) -> None:
    posd = shop.daemon
    assert posd.process is not None
    before, line = descriptors(posd.pid), len(posd.lines)
    reached = await metric(posd, "connections_of_process")
    payment = await shop.started()
    with process(posd.till_socket, MOST) as held, process(posd.till_socket, 1) as other:
        greedy = held
        assert {status for status, _ in await answered(greedy[:5])} == {200}
        with process(posd.till_socket, 1) as another:
            assert [status for status, _ in await answered(another)] == [200]
        assert [status for status, _ in await answered(other)] == [200]
        # Terminals, other tills and operators are not affected.
        assert (await posd.call("GET", "/status-of-nothing", socket=posd.admin_socket)).status == 404
        assert (await posd.call("GET", "/health")).status == 200
        await payment.end()
        assert (await payment.get())["outcome"]["result"] == "canceled"
    await down_to(posd.pid, before + 4)
    assert await metric(posd, "connections_of_process") == reached
    assert not [item for item in posd.lines[line:] if item["event"] == "limit.reached"]
    assert not faults(posd)


async def test_a_till_over_its_limit_gets_429_with_any_http_client_until_it_closes_a_connection(shop: Shop) -> None:
    posd = shop.daemon
    await asyncio.gather(*(posd.call("GET", "/version") for _ in range(3)))
    mine = [await ask(posd.till_socket, "/version") for _ in range(MOST)]
    for item in mine:
        assert (await item.reply())[0] == 200
    reply = await posd.call("GET", "/version")
    assert (reply.status, reply.headers["retry-after"]) == (429, "1")
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.json["code"], reply.json["limit"]) == ("limit_reached", "connections_of_process")
    client = Posd(posd.till_socket)
    with pytest.raises(Problem) as told:
        await asyncio.to_thread(client.version)
    assert (told.value.code, told.value.retry_after_seconds) == ("limit_reached", 1)
    for item in mine:
        item.hang_up()
    async with asyncio.timeout(30):
        while (await posd.call("GET", "/version")).status == 429:  # not all closed connections are detected yet
            pass


async def test_the_streams_of_one_till_are_limited(shop: Shop) -> None:
    posd, most = shop.daemon, STREAMS_OF_PROCESS.value
    streams = "accept: text/event-stream\r\n"
    with process(posd.till_socket, most + 1) as greedy, process(posd.till_socket, 1) as other:
        opened = [await ask_on(item, "/feed", streams) for item in greedy[:most]]
        for item in opened:
            assert (await item.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        refused = await ask_on(greedy[most], "/feed", streams)
        status, problem = await refused.reply()
        assert (status, problem["code"], problem["limit"]) == (429, "limit_reached", "streams_of_process")
        following = await ask_on(other[0], "/feed", streams)
        assert (await following.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        opened.pop().hang_up()
        greedy[most - 1].close()

        async def taken() -> bool:
            with process(posd.till_socket, 1) as _:
                pass
            asked = await ask_on(greedy[most], "/feed", streams)
            head = await asked.reader.readuntil(b"\r\n\r\n")
            asked.hang_up()
            return head.startswith(b"HTTP/1.1 200")

        async with asyncio.timeout(30):
            while not await taken():  # the daemon may not have detected the end of the other stream
                pass
        for item in (*opened, following, refused):
            item.hang_up()


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="function")
async def test_endless_printing_does_not_fill_the_disk_and_blocks_no_payment(home: Path) -> None:
    most, size = PRINT_JOBS_OF_PROCESS.value, 240_000
    async with scripted_terminal(home) as terminal, running(home, terminal.toml) as posd:
        terminal.print_start = taking_print
        document, statuses = {"lines": ["x" * (size - 100)]}, [201]
        while 429 not in statuses:  # eight simultaneous jobs share a commit
            calls = [posd.call("PUT", f"/print-jobs/{uuid4()}", {"document": document}) for _ in range(8)]
            replies = await asyncio.gather(*calls)
            statuses += [reply.status for reply in replies]
        assert set(statuses) == {201, 429}
        reply = next(reply for reply in replies if reply.status == 429)
        assert (reply.json["code"], reply.json["limit"]) == ("limit_reached", "print_jobs_of_process")
        assert reply.headers["retry-after"] == str(reply.json["retry_after_seconds"])
        assert len(statuses) * size > most * 0.9
        assert sum(item.stat().st_size for item in posd.database.parent.glob("posd.db*")) < most * 1.2
        identity = str(uuid4())
        assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
        assert await metric(posd, "print_jobs_of_process") == statuses.count(429)
        await posd.log_line("limit.reached", code="print_jobs_of_process")

"""Whoever is authentic does harm: a terminal sends events without end, a till opens connections without end."""

import asyncio
import json
import os
import ssl
import sys
import time
from collections.abc import Iterator
from itertools import count
from random import Random
from uuid import UUID

import httpx2

from tests.chaos.faults import Fault
from tests.chaos.street import ADVERTISED_HOST, DAEMON_HOST
from tests.chaos.surroundings import Surroundings
from tests.support.events import event

#: Events that are sent to one callback address, in how many connections, and how long at most, in seconds.
EVENTS, SENDERS, FLOOD_SECONDS = 3_000, 8, 30.0
#: How much each of them brings that nobody needs, in bytes.
FILLING = 600
#: Connections of one till, and how long they are kept, in seconds.
CONNECTIONS, HELD_SECONDS = 2_000, 8.0


async def flood(around: Surroundings, fault: Fault) -> None:
    """Send junk to the callback address of a payment that runs; others go on meanwhile."""
    street = around.street
    who = ""

    def started(name: str, line: dict[str, object]) -> bool:
        nonlocal who
        if name in street.terminals and line["kind"] == "start" and line["runs"]:
            who = name
        return bool(who)

    await street.happenings.wait(started)
    if not who:
        return  # the tills are done
    terminal = street.terminals[who]
    trusted = ssl.create_default_context(cafile=str(street.terminal_ca))
    async with httpx2.AsyncClient(verify=trusted, timeout=5) as client:
        if terminal.proxy.upstream is None:
            return  # it was killed in that moment
        host, port = terminal.proxy.upstream
        try:
            bodies = (await client.get(f"https://{host}:{port}/simulator/requests")).json()
        except httpx2.TransportError:
            return
    request = json.loads(bodies[-1])
    identity, url = request["client_transaction_id"], request["events_webhook_url"]
    around.flooded.add(identity.lower())
    async with street.daemon_lock, around.others_served("a flood"):
        await _send(around, url.replace(ADVERTISED_HOST, DAEMON_HOST), identity, who)


async def _send(around: Surroundings, url: str, identity: str, serial: str) -> None:
    numbers = count()
    end = time.monotonic() + FLOOD_SECONDS
    context = ssl.create_default_context(cafile=str(around.street.daemon.ca))
    rng = Random(identity)

    def bodies() -> Iterator[bytes]:
        for number in numbers:
            if number >= EVENTS or time.monotonic() > end:
                return
            status = "CARD_PRESENTED" if number % 10 else "UNHEARD_OF"
            body = event(identity, status, "TERMINAL_ACKNOWLEDGED", serial, filling="x" * FILLING)
            body["event_id"] = str(UUID(int=rng.getrandbits(128), version=4))
            text = json.dumps(body).encode()
            yield text if number % 5 else text[: len(text) // 2]

    source = bodies()

    async def sender() -> None:
        async with httpx2.AsyncClient(verify=context, timeout=5) as client:
            for body in source:
                try:
                    reply = await client.post(url, content=body, headers={"content-type": "application/json"})
                    around.seen[f"events of floods answered {reply.status_code}"] += 1
                except httpx2.TransportError:
                    around.seen["events of floods not answered"] += 1

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    around.seen["floods"] += 1


async def hold_connections(around: Surroundings, fault: Fault) -> None:
    """Let one till open connections without end, and keep them; others go on meanwhile."""
    street = around.street
    async with street.daemon_lock, around.others_served("connections without end"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.chaos.hoarder", "--socket", str(street.daemon.till_socket)),
            *("--count", str(CONNECTIONS), "--seconds", str(HELD_SECONDS)),
            stdout=asyncio.subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        said, _ = await process.communicate()
    if process.returncode != 0:
        street.faults.append(f"the till that holds connections ended with {process.returncode}")
        return
    around.seen["tills that opened connections without end"] += 1
    for name, number in json.loads(said).items():
        around.seen[f"connections of these {name}"] += number

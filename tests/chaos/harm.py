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
from typing import Any
from uuid import UUID

import httpx2

from tests.chaos.faults import Fault
from tests.chaos.processes import Line
from tests.chaos.street import ADVERTISED_HOST, DAEMON_HOST, Street, TerminalProcess
from tests.chaos.surroundings import Surroundings
from tests.support.events import event

#: Events that are sent to one callback address, in how many connections, and how long at most, in seconds.
EVENTS, SENDERS, FLOOD_SECONDS = 3_000, 8, 30.0
#: How much useless data each of them brings, in bytes.
FILLING = 600
#: Connections of one till, and how long they are kept, in seconds.
CONNECTIONS, HELD_SECONDS = 2_000, 8.0


async def flood(around: Surroundings, fault: Fault) -> bool:
    """Send junk to the callback address of a payment that runs; others go on meanwhile."""
    street = around.street
    while (who := await _next_start(street)) is not None:
        request = await _newest_request(street, street.terminals[who])
        if request is None:
            continue  # it was killed in that moment
        identity, url = request["client_transaction_id"], request["events_webhook_url"]
        around.flooded.add(identity.lower())
        async with street.daemon_lock, around.others_served("a flood"):
            await _send(around, url.replace(ADVERTISED_HOST, DAEMON_HOST), identity, who)
        return True
    return False  # the tills are done


async def _next_start(street: Street) -> str | None:
    """Wait until a payment runs on a terminal; return which, None where no more come."""
    found: list[str] = []

    def started(name: str, line: Line) -> bool:
        if name in street.terminals and line["kind"] == "start" and line["runs"]:
            found.append(name)
        return bool(found)

    await street.happenings.wait(started)
    return found[0] if found else None


async def _newest_request(street: Street, terminal: TerminalProcess) -> Any:
    """Return the newest start that a terminal got, None where it cannot be asked."""
    if terminal.proxy.upstream is None:
        return None
    host, port = terminal.proxy.upstream
    trusted = ssl.create_default_context(cafile=str(street.terminal_ca))
    try:
        async with httpx2.AsyncClient(verify=trusted, timeout=5) as client:
            bodies = (await client.get(f"https://{host}:{port}/simulator/requests")).json()
    except httpx2.TransportError:
        return None
    return json.loads(bodies[-1]) if bodies else None


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


async def hold_connections(around: Surroundings, fault: Fault) -> bool:
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
        return False
    around.seen["tills that opened connections without end"] += 1
    for name, number in json.loads(said).items():
        around.seen[f"connections of these {name}"] += number
    return True

"""Long lists of the real daemon. A list with the bodies of a terminal that sends without end holds little memory."""

import asyncio
import json
from pathlib import Path
from time import monotonic

from tests.rig.shop import Shop
from tests.rig.usage import MIB, forget_peak, resident_bytes
from tests.store.filled import filling, name

#: Number of events, and text in each of them. A terminal may send four times as many of this size for one payment.
EVENTS = 500
PADDING = "text of the till, " * 3000
#: Number of clients that read the list at the same time.
CLIENTS = 4
#: Maximum growth of the memory, and longest wait of another call in seconds.
MEMORY = 32 * MIB
WAIT_SECONDS = 2.0


async def get(socket: Path, path: str) -> bytes:
    """Return the body of a response, which ends with the connection."""
    reader, writer = await asyncio.open_unix_connection(socket)
    writer.write(f"GET /v1{path} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert head.startswith(b"HTTP/1.1 200")
    return body


async def test_a_long_list_of_events_holds_little_memory_and_delays_no_other_call(own: Shop) -> None:
    posd = own.daemon
    await posd.stop()
    with filling(posd.database) as filled:
        filled.db.execute("BEGIN")
        filled.pay(1)
        for number in range(EVENTS):
            filled.event(name(1), "TERMINAL_APPROVED", event_id=f"e{number}", padding=PADDING)
        filled.db.execute("COMMIT")
    await posd.start()
    assert posd.process is not None
    pid, path = posd.pid, f"/transactions/{name(1)}"
    await get(posd.till_socket, path)
    before = resident_bytes(pid)
    forget_peak(pid)
    reading = asyncio.gather(
        get(posd.till_socket, f"{path}/history"), *(get(posd.till_socket, f"{path}/events") for _ in range(CLIENTS))
    )
    while not reading.done():
        began = monotonic()
        await get(posd.till_socket, "/version")
        assert monotonic() - began < WAIT_SECONDS
        await asyncio.sleep(0.05)
    history, *lists = map(json.loads, await reading)
    for found in lists:
        assert found == lists[0]
    numbers = [item["seq"] for item in lists[0]["events"]]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == sum(line["kind"] == "event" for line in history["history"]) >= EVENTS
    assert resident_bytes(pid, "VmHWM") - before < MEMORY

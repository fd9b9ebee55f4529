"""One charge from the till's socket to the terminal and back, and the log lines."""

import asyncio
import json
from pathlib import Path
from uuid import uuid4

from posd.base.clocks import wall
from posd.logs import output
from tests.e2e.conftest import CHARGE
from tests.rig.daemon import Daemon
from tests.rig.events import body
from tests.rig.https import deliver
from tests.rig.tables import there
from tests.rig.terminal import Request, ScriptedTerminal, http


async def test_every_doubt_and_refusal_and_crash_is_logged(posd: Daemon, terminal: ScriptedTerminal) -> None:
    refused, doubtful = str(uuid4()), str(uuid4())

    async def refuse(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(422, b"{}"))

    async def fail(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(500, b"{}"))

    terminal.start = refuse
    await posd.call("PUT", f"/transactions/{refused}", CHARGE)
    await posd.log_line("payment.outcome", transaction=refused, result="not_started", evidence="refusal")
    terminal.start = fail
    await posd.call("PUT", f"/transactions/{doubtful}", CHARGE)
    await posd.log_line("payment.attention", transaction=doubtful, code="in_doubt", level="warning")
    await posd.kill()
    await posd.start()
    await posd.log_line("payment.taken_over", transaction=doubtful, phase="in_doubt")
    assert not [line for line in posd.lines if line.get("transaction") == refused]


async def test_an_event_is_logged_with_its_own_status(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    await posd.call("PUT", f"/transactions/{identity}", CHARGE)
    callback = terminal.requests[0].callback
    assert await deliver(callback, body(identity, "TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED"), posd.ca) == 200
    assert await deliver(callback, body(identity, "CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED"), posd.ca) == 200
    line = await posd.log_line("webhook.event", status="CARD_PRESENTED")
    assert (line["verdict"], line["phase"]) == ("after_final", "final")
    assert list(line)[:3] == ["timestamp", "level", "event"], "the members that people search for come first"


async def test_an_abort_needs_no_body(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    await posd.call("PUT", f"/transactions/{identity}", CHARGE)
    refused = await posd.call("POST", f"/transactions/{identity}/abort", {"reason": "x"})
    assert (refused.status, refused.json["code"], len(terminal.requests)) == (422, "invalid_request", 1)
    terminal.abort = None
    assert (await posd.call("POST", f"/transactions/{identity}/abort", {})).status == 202


def test_a_forbidden_log_field_is_dropped_and_named() -> None:
    fields = {"event": "payment.started", "transaction": "t", "token": "secret", "reason": None}
    ((made,), _) = output.renderer({}, wall)(output.LineSink("posd.test"), "info", fields)
    line = json.loads(made(0.0))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "event": "payment.started",
        "logger": "posd.test",
        "transaction": "t",
        "dropped": ["token"],
    }


async def test_a_payment_loads_no_further_library(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    async def libraries() -> set[str]:
        maps = await asyncio.to_thread(Path(f"/proc/{there(posd.process).pid}/maps").read_text)
        return {line.split(maxsplit=5)[5] for line in maps.splitlines() if ".so" in line}

    before = await libraries()
    assert (await posd.call("PUT", f"/transactions/{identity}", CHARGE)).status == 201
    await posd.approve(terminal.requests[0].callback, identity)
    assert await libraries() == before

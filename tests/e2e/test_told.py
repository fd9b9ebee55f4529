"""What is told to people: in the log, and of everything that is wrong with a call."""

import asyncio
from uuid import uuid4

from tests.e2e.conftest import CHARGE
from tests.support.daemon import Daemon
from tests.support.events import body
from tests.support.https import deliver
from tests.support.terminal import Request, ScriptedTerminal, http


async def test_doubt_a_refusal_and_what_is_taken_over_after_a_crash_are_in_the_log(
    posd: Daemon, terminal: ScriptedTerminal
) -> None:
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


async def test_an_event_is_told_with_its_own_status(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    await posd.call("PUT", f"/transactions/{identity}", CHARGE)
    callback = terminal.requests[0].callback
    assert await deliver(callback, body(identity, "TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED"), posd.ca) == 200
    assert await deliver(callback, body(identity, "CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED"), posd.ca) == 200
    line = await posd.log_line("webhook.event", status="CARD_PRESENTED")
    assert (line["verdict"], line["phase"]) == ("after_final", "final")
    assert list(line)[:3] == ["timestamp", "level", "event"], "what a person looks for first comes first"


async def test_an_abort_takes_no_body(posd: Daemon, terminal: ScriptedTerminal, identity: str) -> None:
    await posd.call("PUT", f"/transactions/{identity}", CHARGE)
    refused = await posd.call("POST", f"/transactions/{identity}/abort", {"reason": "x"})
    assert (refused.status, refused.json["code"], len(terminal.requests)) == (422, "invalid_request", 1)
    terminal.abort = None
    assert (await posd.call("POST", f"/transactions/{identity}/abort", {})).status == 202

"""What the log says, and what it never says."""

import json
import subprocess
import sys
from pathlib import Path

from posd.base.clocks import wall
from posd.logs import output
from tests.support.daemon import running
from tests.support.events import APPROVED, body
from tests.support.https import deliver
from tests.support.terminal import ScriptedTerminal

SECRETS = {"reference": "ticket-4711", "customer_email": "somebody@example.com"}


async def test_a_payment_is_told_without_token_metadata_body_or_header(
    home: Path, terminal: ScriptedTerminal, identity: str
) -> None:
    toml = terminal.toml + '[terminals.headers]\nX-Api-Key = "secret-header-value"\n'
    async with running(home, toml, '[logging]\nlevel = "debug"\n') as posd:
        request = {"amount": {"iva": 1.20, "subtotal_iva": 10.00}, "metadata": SECRETS}
        await posd.call("PUT", f"/transactions/{identity}", request)
        assert terminal.requests[0].headers["x-api-key"] == "secret-header-value"
        callback = terminal.requests[0].callback
        for status, previous in APPROVED:
            operation = {"type": "CHARGE", "metadata": SECRETS, "events_webhook_url": callback}
            await deliver(callback, body(identity, status, previous, operation=operation), posd.ca)
        assert await deliver(callback, b'{"reference": "ticket-4711"', posd.ca) == 400
        assert await deliver(callback[:-2] + "xx", b"ticket-4711", posd.ca) == 403
        await posd.outcome(identity)
        lines = list(posd.lines)

    told = [line["event"] for line in lines]
    for event in ("payment.started", "payment.answered", "webhook.event", "payment.outcome", "webhook.quarantined"):
        assert event in told
    text = json.dumps(lines)
    token = callback.rsplit("/", 1)[1]
    for secret in (token, "secret-header-value", "ticket-4711", "somebody@example.com", "events_webhook_url", "A1B2C3"):
        assert secret not in text
    assert not [line for line in lines if "dropped" in line]
    assert all(line["level"] in ("debug", "info", "warning") for line in lines)


def test_a_field_that_no_line_may_have_is_dropped_and_named() -> None:
    fields = {"event": "payment.started", "transaction": "t", "token": "secret", "reason": None}
    ((made,), _) = output.Renderer({}, wall)(output.LineSink("posd.test"), "info", fields)
    line = json.loads(made(0.0))
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "level": "info",
        "event": "payment.started",
        "logger": "posd.test",
        "transaction": "t",
        "dropped": ["token"],
    }


def test_lines_with_any_content_are_written_in_order_by_loop_and_threads() -> None:
    script = """
import asyncio, threading
import structlog
from posd.logs import output as logs
logs.configure("info")
log = structlog.get_logger("posd.test")
async def main():
    log.info("first")
    log.info("second", detail="\\ud800")
    await asyncio.to_thread(log.info, "of a thread")
    log.debug("never")
    log.info("last of the loop")
log.info("before")
asyncio.run(main())
log.info("after")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [line["event"] for line in lines] == [
        *("before", "first", "second", "of a thread", "last of the loop", "after")
    ]
    assert lines[2]["detail"] == "\ud800"
    assert all(line["logger"] == "posd.test" and line["level"] == "info" for line in lines)


def test_a_log_without_a_reader_is_no_fault() -> None:
    script = """
import os, structlog
from posd.logs import output as logs
logs.configure("info")
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
structlog.get_logger("posd.test").info("gone")
logs.writer.drain()
os._exit(7)
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (7, b"")


def test_without_an_output_lines_are_told_as_errors_are_and_nothing_fails() -> None:
    script = """
import asyncio, sys, structlog
from posd.logs import output as logs
logs.configure("info")
log = structlog.get_logger("posd.test")
sys.stdout = None  # as where it was closed before posd began
async def main():
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: sys.exit(1))
    log.info("of the loop")
asyncio.run(main())
log.info("after")
logs.writer.drain()
sys.stderr = None
log.info("to nobody")
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert [json.loads(line)["event"] for line in ended.stderr.splitlines()] == ["of the loop", "after"]

"""What the log says, and what it never says."""

import json
import subprocess
import sys

from posd.base.clocks import wall
from posd.logs import output


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

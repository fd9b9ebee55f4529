"""A repeated line is written a few times and then counted. The count is complete."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from posd.cli.explain.catalogue import events
from posd.logs import output
from posd.logs.output import LIMITS, MAX_KEYS, MINUTE, TROUBLE, LineCounter, LineLimit, limit_of
from tests.e2e.conftest import home, terminal  # noqa: F401 - fixtures
from tests.rig.daemon import running
from tests.rig.https import deliver
from tests.rig.terminal import ScriptedTerminal

LIMIT = LineLimit(3, MINUTE)
#: Number of lines that exceeds any limit.
FLOOD = 60


def test_the_first_lines_of_a_window_are_written_and_the_rest_counted() -> None:
    windows = LineCounter()
    assert [windows.admit(("a", "info"), LIMIT, now) for now in (0, 1, 2, 3, 59)] == [True] * 3 + [False] * 2
    assert windows.admit(("b", "info"), LIMIT, 3)
    assert windows.next_end() == 60
    assert windows.take(59.9) == []
    assert windows.take(60) == [(("a", "info"), 2)]
    assert windows.next_end() is None
    assert windows.admit(("a", "info"), LIMIT, 60)


def test_omitted_lines_are_reported_at_any_later_time() -> None:
    windows = LineCounter()
    assert [windows.admit(("a", "info"), LIMIT, 0) for _ in range(5)].count(True) == 3
    assert not windows.admit(("a", "info"), LIMIT, 1000)  # the end of the window is not logged yet
    assert windows.take(1001) == [(("a", "info"), 3)]


def test_a_window_that_omitted_no_line_needs_no_report() -> None:
    windows = LineCounter()
    assert all(windows.admit(("a", "info"), LIMIT, at) for at in (0, 1, 2, 61, 62, 63))
    assert windows.next_end() is None


def test_in_a_full_table_further_keys_share_one_entry() -> None:
    windows = LineCounter()
    passed = sum(windows.admit(("a", "info", number), LIMIT, 0) for number in range(10 * MAX_KEYS))
    assert passed == MAX_KEYS + LIMIT.lines
    assert len(windows._windows) == MAX_KEYS + 1
    assert windows.take(60) == [(("a", "info"), 9 * MAX_KEYS - LIMIT.lines)]
    assert windows.admit(("a", "info", -1), LIMIT, 60)


def test_a_full_table_is_not_searched_for_each_line() -> None:
    windows = LineCounter(max_keys=2)
    for key, at in (("first", 0.0), ("second", 0.0), ("third", 59.5), ("fourth", 60.1), ("fifth", 60.6)):
        assert windows.admit(("a", "info", key), LIMIT, at)
    assert list(windows._windows) == [("a", "info"), ("a", "info", "fifth")]


def test_omitted_lines_with_a_field_named_kind_are_reported_too() -> None:
    """The line of the report also has a field `kind`."""
    floods = output.FloodFilter()
    line = {"event": "stream.cut_off", "level": "warning", "kind": "feed"}
    for _ in range(LIMITS["stream.cut_off"].lines):
        floods.admit(line, 0.0)
    with pytest.raises(structlog.DropEvent):
        floods.admit(line, 0.0)
    with capture_logs() as lines:
        floods.tell()
    assert [(item["event"], item["kind"], item["count"]) for item in lines] == [("log.collapsed", "stream.cut_off", 1)]


def test_the_report_of_omitted_lines_names_the_counted_fields() -> None:
    floods = output.FloodFilter()
    line = {"event": "webhook.quarantined", "level": "warning", "terminal": "SN-1", "transaction": "7f3c"}
    for _ in range(LIMITS["webhook.quarantined"].lines):
        floods.admit(line, 0.0)
    with pytest.raises(structlog.DropEvent):
        floods.admit(line, 0.0)
    floods.admit(line | {"transaction": "another"}, 0.0)
    with capture_logs() as lines:
        floods.tell()
    (told,) = lines
    assert (told["terminal"], told["transaction"], told.get("print_job")) == ("SN-1", "7f3c", None)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 100)), max_size=200), st.integers(1, 3))
def test_each_line_is_written_or_counted(lines: list[tuple[str, float]], keys: int) -> None:
    windows, now, written, told = LineCounter(keys), 0.0, 0, 0
    for key, pause in lines:
        now += pause
        written += windows.admit((key, "info", key), LIMIT, now)
        if pause > 50:
            told += sum(count for _, count in windows.take(now))
    assert written + told + sum(count for _, count in windows.take(float("inf"))) == len(lines)


def test_each_log_event_with_a_warning_or_an_error_has_a_limit() -> None:
    for name, event in events().items():
        for level in event.levels:
            assert level in ("debug", "info") or limit_of(name, level) is not None, name
        assert LIMITS.get(name, TROUBLE).lines >= 1, name


def test_the_log_lines_of_a_payment_without_faults_are_never_omitted() -> None:
    for event in ("payment.started", "payment.answered", "payment.outcome", "print.started", "print.answered"):
        assert limit_of(event, "info") is None
    assert "transaction" in LIMITS["payment.attention"].by
    assert "transaction" in LIMITS["webhook.event"].by


def test_each_window_is_reported_at_its_end_and_all_at_the_stop() -> None:
    """The window is a second instead of a minute.

    The lines come from a loop and a thread, and some are left at the end.
    """
    script = """
import asyncio, threading
from posd.logs import output as logs
logs.TROUBLE = logs.LineLimit(2, 0.2)
import structlog
logs.configure("warning")
log = structlog.get_logger("posd.test")
async def main():
    for number in range(5):
        log.warning("a.flood", transaction=str(number))
    await asyncio.sleep(0)  # they are written at the end of the turn
    while logs.floods._timer is not None:
        await asyncio.sleep(0)
    await asyncio.to_thread(lambda: [log.error("a.flood") for _ in range(4)])
asyncio.run(main())
logs.floods.tell()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [(line["event"], line["level"], line.get("count")) for line in lines] == [
        ("a.flood", "warning", None),
        ("a.flood", "warning", None),
        ("log.collapsed", "warning", 3),
        ("a.flood", "error", None),
        ("a.flood", "error", None),
        ("log.collapsed", "warning", 2),
    ]
    assert lines[2]["kind"] == "a.flood"


async def test_refusals_of_strangers_are_one_line_and_one_total(
    home: Path,  # noqa: F811
    terminal: ScriptedTerminal,  # noqa: F811
) -> None:
    async with running(home, terminal.toml) as posd:
        for _ in range(FLOOD // 2):
            await deliver(f"https://127.0.0.1:{posd.port}/nothing", b"", posd.ca)
        await posd.stop()
    told = [line for line in posd.lines if line.get("kind") == "unknown_path"]
    assert [line["count"] for line in told] == [1, FLOOD // 2 - 1]

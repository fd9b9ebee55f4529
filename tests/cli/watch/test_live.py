"""`posd watch` with a real daemon and simulated terminals, and its lists with any content, at any width."""

import asyncio
import json
import os
import pty
import re
import select
import signal
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from posd.cli.app.context import RESULT_CODES
from posd.cli.watch import state
from posd.cli.watch.app import RowPage
from posd.cli.watch.state import Away, ListName, Shop, WatchState
from posd.cli.watch.texts import lines, rates
from tests.cli.watch.shops import BUSY, NOW, at, drawn, identity, in_doubt, payment, terminal
from tests.rig import forks
from tests.rig.commands import posd_on_terminal, started_posd
from tests.rig.counter import PATIENCE, Counter, open_counter
from tests.rig.documents import attention, outcome
from tests.rig.pseudo_terminal import OnTerminal, on_terminal
from tests.rig.strange import STRANGE, assert_lines
from tests.rig.tables import there
from tests.rig.watch_screen import seen

#: Escape sequences that begin and end the alternate screen.
OTHER_SCREEN, OWN_SCREEN = "\x1b[?1049h", "\x1b[?1049l"
#: Word on the bottom line. The view draws this line last.
DRAWN = "reconcile"


@pytest.fixture(scope="module")
def shop_of_all() -> Iterator[Counter]:
    with TemporaryDirectory(prefix="posd-") as home, open_counter(Path(home)) as counter:
        yield counter


@pytest.fixture
def shop(shop_of_all: Counter) -> Iterator[Counter]:
    """Yield the shop. After a failed test, start its stopped processes and end open payments."""
    yield shop_of_all
    shop_of_all.tidy()


async def test_the_view_follows_a_payment_from_its_start_to_its_end(
    shop: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "LOOK_SECONDS", 1.0)
    async with seen(shop.socket) as view:
        await view.shows("no payment is open")
        await asyncio.to_thread(shop.charge, 11.2, scenario="by-hand")
        await view.shows("SN-0001", "charge", "11.20", "[ack]·card·bank·end", "waiting for card")
        await view.shows("SN-0001", "reachable", "charge: waiting for card")
        await asyncio.to_thread(shop.hand, "present-card")
        await view.shows("SN-0001", "11.20", "ack·card·[bank]·end", "at the bank")
        await asyncio.to_thread(shop.hand, "approve")
        await view.shows("SN-0001", "11.20", "ack·card·bank·[end]", "approved")
        await view.shows("last hour", " ended · ", "% approved")  # the number includes payments of other tests
        await view.shows("SN-0001", "free")
        await view.press("q")
    assert view.app.return_code == 0


def aborts(shop: Counter, payment: str) -> int:
    """Return the number of aborts of a payment that the first terminal received."""
    return sum(line["kind"] == "abort" and line["client_transaction_id"] == payment for line in shop.ledger())


async def test_the_abort_key_asks_first_and_ends_the_payment(shop: Counter) -> None:
    payment = shop.charge(25, scenario="wait-for-abort")
    async with seen(shop.socket) as view:
        await view.selects("SN-0001", "25.00", "waiting for card")
        for key in ("n", "q", "a", "s", "enter"):
            await view.after("a", "abort the payment of 25.00 on SN-0001?")
            await view.after(key, "not aborted")
        assert not aborts(shop, payment)
        await view.press("a", "y")
        await view.selects("SN-0001", "25.00", "[end]", "canceled")
        await view.after("a", "cannot abort", "it has ended")
        assert shop.ended(payment)["result"] == "canceled"
        assert aborts(shop, payment)


async def test_an_abort_applies_to_the_payment_that_the_question_named(shop: Counter) -> None:
    """Another payment becomes the most urgent during the question."""
    first = shop.charge(25, scenario="wait-for-abort")
    async with seen(shop.socket) as view:
        await view.selects("SN-0001", "25.00")
        await view.press("a")
        second = await asyncio.to_thread(shop.charge, 26, "SN-0002", scenario="wait-for-abort")
        await view.shows("SN-0002", "26.00")
        await view.press("y")
        assert (await asyncio.to_thread(shop.ended, first))["result"] == "canceled"
        assert shop.transaction(second)["outcome"] is None


async def test_the_reconcile_key_shows_the_state_of_the_payment(shop: Counter) -> None:
    payment = shop.charge(31, "SN-0002", scenario="wait-for-abort")
    async with seen(shop.socket) as view:
        await view.selects("SN-0002", "31.00")
        assert shop.transaction(payment)["last_search"] is None
        await view.after("r", "the payment of 31.00 on SN-0002 is still open (waiting for card)")
        assert shop.transaction(payment)["last_search"] is not None
        await asyncio.to_thread(shop.hand, "present-card", "SN-0002")
        await asyncio.to_thread(shop.hand, "approve", "SN-0002")
        await view.selects("SN-0002", "31.00", "approved")
        await view.after("r", "The customer was charged.", "the payment of 31.00 on SN-0002: approved")


async def test_a_page_is_drawn_when_its_layout_is_ready_and_only_while_open(shop: Counter) -> None:
    async with seen(shop.socket) as view:
        opened = view.app.push_screen(page := RowPage("a page"))
        view.app.say("drawn now", "green")
        view.app.draw()
        await opened
        await view.shows("drawn now")
        await view.app.pop_screen()
        page.show(None, "too late")
        await view.shows("ATTENTION")


async def test_the_page_of_a_payment_and_the_help_page_can_be_used(shop: Counter) -> None:
    payment = shop.charge(42, scenario="by-hand")
    async with seen(shop.socket) as view:
        await view.selects("42.00")
        await view.after("s", "client_transaction_id", payment)
        await view.after("end", "event TERMINAL_ACKNOWLEDGED")
        await asyncio.to_thread(shop.hand, "present-card")  # the view reads the page again after a change
        await view.until(
            lambda lines: (
                view.app.screen.query_one("VerticalScroll").scroll_end(animate=False)
                or any("event APPROVAL_REQUESTED" in line for line in lines)
            ),
            "no",
        )
        await view.after("home", "client_transaction_id", payment)
        await view.after("escape", "ATTENTION")
        await view.after("question_mark", "select a row")
        await view.after("q", "ATTENTION")
        await view.press("tab")
        await view.selects("SN-0001", "reachable")
        await view.after("a", "abort is for payments")
        await view.press("down")
        await view.selects("SN-0002", "reachable")
        await view.press("shift+tab")
        await view.selects("42.00")
        await view.press("tab", "enter")
        await view.shows("base_url", "https://127.0.0.1")
        await view.press("q", "q")
    assert view.app.return_code == 0


async def test_a_resized_screen_is_filled(shop: Counter) -> None:
    async with seen(shop.socket) as view:
        await view.shows("q quit")
        for columns, height in ((140, 50), (40, 10), (20, 4), (3, 2), (1, 1), (80, 24)):
            await view.pilot.resize_terminal(columns, height)
            whole = ("posd"[:columns], {columns})
            await view.until(
                lambda lines: (lines[0][:4], {len(line) for line in lines}) == whole,  # noqa: B023
                f"not drawn for {columns} columns",
            )
        await view.shows("q quit")


@pytest.mark.slow
async def test_the_view_continues_after_a_restart_of_the_daemon(shop: Counter) -> None:
    async with seen(shop.socket) as view:
        await view.shows("  ok")
        await asyncio.to_thread(shop.run, shop.daemon.kill())
        await view.shows("posd cannot be reached since", "trying again in")
        assert "away" in view.lines()[0]
        await view.press("a")  # keys still work
        await asyncio.to_thread(shop.run, shop.daemon.start())
        await view.shows("posd is back")
        assert "ok" in view.lines()[0]
        await asyncio.to_thread(shop.until, lambda: shop.get("/terminals")["terminals"][0]["reachable"], "no terminal")
        await asyncio.to_thread(shop.charge, 17, scenario="by-hand")
        await view.shows("17.00", "[ack]")
        await asyncio.to_thread(shop.hand, "present-card")
        await asyncio.to_thread(shop.hand, "approve")
        await view.shows("17.00", "approved")


@pytest.mark.quick(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_view_and_restores_the_screen(shop: Counter, number: signal.Signals) -> None:
    with on_terminal(shop.socket, "watch") as view:
        view.writes(OTHER_SCREEN)
        view.writes(DRAWN)
        view.process.send_signal(number)
        view.writes(OWN_SCREEN)
        assert view.ends() == 0


def patched(tmp_path: Path, code: str) -> str:
    """Return a program that runs this code and then posd."""
    (program := tmp_path / "patched.py").write_text(f"{code}\nfrom posd.cli.entry import main\nmain()\n")
    return str(program)


WITHOUT_TEXTUAL = "import sys\nsys.modules['textual'] = None\n"


def test_an_internal_fault_restores_the_screen_and_prints_one_message(shop: Counter, tmp_path: Path) -> None:
    code = (
        "import posd.cli.watch.texts as texts\ndef broken(*_):\n    raise ValueError('broken')\ntexts.header = broken\n"
    )
    with on_terminal(shop.socket, "watch", program=patched(tmp_path, code)) as view:
        view.writes(OWN_SCREEN)
        assert view.ends() == 1
        assert b"a fault of posd itself: ValueError: broken" in view.raw


def test_the_view_writes_few_bytes_and_is_redrawn_after_ctrl_z(shop: Counter) -> None:
    shop.charge(9, scenario="by-hand")
    with on_terminal(shop.socket, "watch") as view:
        view.writes(DRAWN)
        # Two of these reads are longer: the first covers the start, and a busy machine can delay another.
        assert median(len(view.writes("  SN-0001  charge")) for _ in range(5)) < 2000
        os.write(view.keys, b"\x1a")
        view.writes(OWN_SCREEN)
        deadline = time.monotonic() + PATIENCE
        while view.state() != "T":
            assert time.monotonic() < deadline
            view.read(0.05)
        assert termios.tcgetattr(view.device)[3] & termios.ICANON
        view.process.send_signal(signal.SIGCONT)
        view.writes(OTHER_SCREEN)
        view.writes(DRAWN)
        os.write(view.keys, b"\x03")
        assert view.ends() == 0


def test_a_closed_terminal_window_ends_the_view(shop: Counter) -> None:
    keys, device = pty.openpty()
    streams = {"stdin": device, "stdout": device, "stderr": device}
    environment = os.environ | {"TERM": "xterm"}
    process = forks.Forked(("--socket", str(shop.socket), "watch"), **streams, env=environment, session=True)
    os.close(device)
    OnTerminal(process, keys, device).writes(DRAWN)
    os.close(keys)
    process.wait(PATIENCE)


@pytest.mark.slow
def test_a_blocked_screen_does_not_block_the_view(shop: Counter) -> None:
    with on_terminal(shop.socket, "watch", size=(200, 300)) as view:
        # The terminal does not read, and frames of 300 columns fill the kernel's buffer.
        deadline = time.monotonic() + PATIENCE
        while select.select([], [view.device], [], 0)[1]:
            assert time.monotonic() < deadline
            view.process.send_signal(signal.SIGWINCH)
            time.sleep(0.05)
        os.write(view.keys, b"q")
        assert view.process.wait(PATIENCE) == 0


def test_the_variable_no_color_removes_colours_and_without_utf_8_the_view_is_ascii(shop: Counter) -> None:
    with on_terminal(shop.socket, "watch", PYTHONIOENCODING="ascii", NO_COLOR="1") as view:
        view.writes("TERMINALS")
        before = view.raw
        view.writes(DRAWN)
        assert before.isascii()
        codes = {code for found in re.findall(rb"\x1b\[([0-9;]*)m", before) for code in found.split(b";")}
        assert not codes & {b"%d%d" % (tens, colour) for tens in (3, 4, 9) for colour in range(8)}
        os.write(view.keys, b"q")
        assert view.ends() == 0


def test_without_textual_the_message_says_what_to_install_or_use(shop: Counter, tmp_path: Path) -> None:
    with on_terminal(shop.socket, "watch", program=patched(tmp_path, WITHOUT_TEXTUAL)) as view:
        assert view.ends() == 2
        assert (b"pip install 'posd[watch]'" in view.raw, b"posd status --watch" in view.raw) == (True, True)


def test_the_option_watch_of_status_shows_each_change(shop: Counter, tmp_path: Path) -> None:
    with on_terminal(shop.socket, "status", "--watch", program=patched(tmp_path, WITHOUT_TEXTUAL)) as view:
        view.writes("open payments  none")
        shop.charge(12, scenario="by-hand")
        view.writes("12.00")
        view.process.send_signal(signal.SIGINT)
        view.writes(OWN_SCREEN)
        assert view.ends() == 0


@pytest.mark.slow
def test_with_json_each_later_change_is_one_line(shop: Counter) -> None:
    with started_posd("watch", "--json", environment={"POSD_SOCKET": str(shop.socket)}) as process:
        stdout, stderr = there(process.stdout), there(process.stderr)
        # The view has no past data, so the test makes payments until the view shows a payment.
        shop.until(lambda: shop.charge(3) and select.select([stdout], [], [], 0.5)[0], "silent")
        assert json.loads(stdout.readline())["kind"] == "transaction"
        shop.run(shop.daemon.kill())
        assert "posd is away" in stderr.readline()
        shop.run(shop.daemon.start())
        assert "posd is back" in stderr.readline()
        shop.until(lambda: shop.get("/terminals", {"check": "true"})["terminals"][0]["reachable"], "no terminal")
        payment = shop.charge(4)
        results: list[str | None] = []
        while not results or results[-1] is None:
            change = json.loads(stdout.readline())
            results += [change["result"]] if change["id"] == payment else []
        assert results[-1] == "approved"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
        assert "Traceback" not in stderr.read()


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_missing_daemon_is_reported_at_the_start(tmp_path: Path, options: str) -> None:
    posd_on_terminal("watch", *options.split(), socket=tmp_path / "absent.sock").ends(3, "is posd running")


# Lists.


FULL, ENDS = (
    "the last write failed: disk full; free the disk",
    "it ends in 3 days; " + "renew it (posd tls renew); " * 8,
)
FAILING = {
    "status": "failing",
    "checks": {
        "storage": {"status": "failing", "detail": FULL, "commands": []},
        "certificate": {"status": "degraded", "detail": ENDS, "commands": []},
        "clock": {"status": "ok", "detail": "2026"},
    },
}
# Texts that a stranger may send: a terminal's serial, a message, an address.
CHARACTERS = st.characters(codec="utf-8") | st.sampled_from("\x1b[2J\x07\x9b字😀\u0301\u200d\u202e\n\t")
TEXTS = st.sampled_from([*STRANGE.values()]) | st.text(CHARACTERS, max_size=40)


def ended(number: int, seconds: float, took: float, result: str = "approved") -> Any:
    """Return a payment that ended this many seconds ago and lasted this long."""
    event = {**outcome(result, {"kind": "event", "event_id": identity(99)}), "decided_at": at(seconds)}
    return payment(number, seconds + took, "APPROVAL", phase="final", outcome=event, next_step="done")


@st.composite
def shops(draw: st.DrawFn) -> Shop:
    strange = draw(TEXTS)
    reachable = draw(st.lists(st.sampled_from([True, False, None]), max_size=4))
    terminals = [
        terminal(number, serial=f"{strange}{number}", reachable=each, reason=strange)
        for number, each in enumerate(reachable)
    ]
    states = st.sampled_from([None, "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", strange])
    marks = [{**attention(draw(st.sampled_from(["gap", "stalled", strange])), strange), "since": at(30)}]
    payments = [
        payment(number, 7.0**number, draw(states), terminal=strange, type=strange or "void", attention=marks)
        for number in range(draw(st.integers(0, 12)))
    ]
    health = {"status": strange, "checks": {strange: {"status": "degraded", "detail": strange, "commands": []}}}
    return Shop(health, strange, terminals, payments, [*payments, in_doubt(7, 9)], [ended(50, 2, 3)])


@given(shops(), st.integers(1, 140))
def test_each_line_fits_the_screen_and_is_safe_to_write(shop: Shop, columns: int) -> None:
    for section in ListName:
        rows = [row for row in shop.rows(NOW) if row.section is section]
        written = lines(section, rows, columns, NOW)
        assert len(written) == len(rows)
        for line in written:
            assert cell_len(line.plain) <= columns
            assert line.plain.isprintable()
    for away in (None, Away(shop.version, NOW, NOW)):
        for text in drawn(WatchState(shop, away), 4000):
            assert_lines(text)


@pytest.mark.parametrize("away", [None, Away("word " * 99 + "end", NOW, NOW)], ids=["posd runs", "posd is away"])
def test_the_table_has_all_faults_of_posd_and_their_cures(away: Away | None) -> None:
    state = WatchState(replace(BUSY, health=FAILING), away)
    words = " ".join(" ".join(drawn(state, 40)).split())
    for said in [away.reason] if away else [FULL, ENDS]:
        assert " ".join(said.split()) in words


def test_an_ended_payment_stays_for_some_seconds() -> None:
    shop = Shop(recent=[ended(1, 9, 5), ended(2, 11, 5)], open=[payment(3, 70)])
    assert [row.identity for row in shop.rows(NOW)] == [identity(3), identity(1)]


def test_the_figures_are_those_of_the_daemons_report() -> None:
    assert rates(Shop(), NOW).plain == "last hour no payment ended"
    results = [dict.fromkeys(RESULT_CODES, 5) | {"approved": 180, "open": 7}] * 2
    seconds = {"count": 400, "median": Decimal("5.0"), "p95": Decimal(95)}
    shop = Shop(figures={"results": results, "seconds": seconds}, recent=[ended(1, 59, 3), ended(2, 61, 3)])
    assert rates(shop, NOW).plain == "last hour 400 ended · 90% approved · half in 5.0 s, 95% in 95 s · 1/min"

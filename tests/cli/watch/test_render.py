"""The frames: as they stand in screens/, and within the screen for any state and any size."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.cli.app import times
from posd.cli.payments.show import Link
from posd.cli.watch.render import frame, furthest, keys_line, once, share
from posd.cli.watch.screen import ASCII, UNICODE, Screen, text_of, width
from posd.cli.watch.state import Kind, Page, Row, Section, Shop, Status, Ui, marked, settle
from tests.cli.documents import attention
from tests.cli.watch.shops import (
    BUSY,
    CROWDED,
    EMPTY,
    HEALTH,
    NOW,
    at,
    ended,
    identity,
    in_doubt,
    payment,
    state_of,
    terminal,
    text,
    view,
)

SCREENS = Path(__file__).parent / "screens"

FAILING = {
    "status": "failing",
    "checks": {
        "storage": {"status": "failing", "detail": "the last write failed: disk full; free the disk"},
        "certificate": {"status": "degraded", "detail": "it ends in 3 days; " + "renew it (posd tls renew); " * 8},
        "clock": {"status": "ok", "detail": "2026"},
    },
}
ROW = Row(Section.OPEN, Kind.PAYMENT, identity(1), payment(1, 64))
TOLD = {
    "document": ended(1, "amount_differs", 30, "asked for 11.20, authorized 10.00"),
    "history": [
        {"at": at(60), "kind": "intent", "terminal": "SN-0001"},
        {"at": at(59), "kind": "attempt", "judgement": "acknowledged", "http_status": 200, "reason": None},
        {"at": at(30), "kind": "event", "seq": 1, "status": "APPROVAL", "verdict": "applied"},
    ],
    "events": [{"seq": 1, "event": {"status": "APPROVAL", "reading_type": "CHIP"}}],
    "chain": [],
}


@pytest.fixture(autouse=True, scope="module")
def written_alike() -> Iterator[None]:
    """Times are the same wherever and whenever this runs."""
    times.use(utc=True, year=NOW.year)
    yield
    times.use(utc=False)


def away() -> Any:
    state = state_of(BUSY)
    state.unreachable("nobody listens on it: posd is not running (posd run)", NOW - timedelta(seconds=5), 9)
    return state


def selected(section: Section, number: int) -> Ui:
    rows = [row for row in state_of(CROWDED).rows(NOW) if row.section is section]
    return Ui(selected=rows[number].key)


ASKING = Ui(asking=("Ask the terminal to abort the payment of 11.20 on SN-0001?  y: yes, any other key: no", ROW))

#: name -> what is looked at, and the size.
GOLDEN: dict[str, tuple[Any, int, int]] = {
    "empty-80x24": (view(state_of(EMPTY, rates=False)), 80, 24),
    "busy-80x24": (view(state_of(BUSY)), 80, 24),
    "busy-120x40": (view(state_of(BUSY)), 120, 40),
    "busy-40x10": (view(state_of(BUSY)), 40, 10),
    "busy-20x4": (view(state_of(BUSY)), 20, 4),
    "busy-ascii-80x24": (view(state_of(BUSY), glyphs=ASCII), 80, 24),
    "crowded-80x24": (view(state_of(CROWDED)), 80, 24),
    "crowded-scrolled-80x24": (view(state_of(CROWDED), selected(Section.OPEN, 17)), 80, 24),
    "crowded-40x10": (view(state_of(CROWDED), selected(Section.ATTENTION, 19)), 40, 10),
    "away-80x24": (view(away()), 80, 24),
    "away-40x10": (view(away()), 40, 10),
    "failing-80x24": (view(state_of(replace(BUSY, health=FAILING))), 80, 24),
    "asking-80x24": (view(state_of(BUSY), ASKING), 80, 24),
    "help-80x24": (view(state_of(BUSY), Ui(page=Page("help"))), 80, 24),
    "show-80x24": (view(state_of(BUSY), Ui(page=Page(f"payment {identity(1)}", ROW, TOLD), scroll=10)), 80, 24),
    "show-40x10": (view(state_of(BUSY), Ui(page=Page(f"payment {identity(1)}", ROW, TOLD), scroll=99)), 40, 10),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_screens(name: str) -> None:
    what, columns, height = GOLDEN[name]
    assert text(what, columns, height) == (SCREENS / f"{name}.txt").read_text()


def test_each_screen_of_the_directory_is_held() -> None:
    assert {path.stem for path in SCREENS.iterdir()} == set(GOLDEN)


# What a stranger may send: a terminal's serial, a message, an address.
STRANGE = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("\x1b[2J\x07\x9b字😀\u0301\u200d\u202e\n\t")), max_size=40
)


@st.composite
def shops(draw: st.DrawFn) -> Shop:
    strange = draw(STRANGE)
    terminals = [
        terminal(
            number, serial=strange + str(number), reachable=draw(st.sampled_from([True, False, None])), reason=strange
        )
        for number in range(draw(st.integers(0, 12)))
    ]
    states = st.sampled_from([None, "TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", strange])
    numbers = range(draw(st.integers(0, 12)))
    marks = [{**attention(draw(st.sampled_from(["gap", "stalled", strange])), strange), "since": at(30)}]
    payments = [
        payment(
            number,
            7.0**number,
            draw(states),
            terminal=strange,
            type=draw(st.sampled_from(["charge", "void", strange])),
            attention=marks,
        )
        for number in numbers
    ]
    health = {"status": strange, "checks": {strange: {"status": "degraded", "detail": strange}}}
    return Shop(draw(st.sampled_from([HEALTH, health])), strange, terminals, payments, [*payments, in_doubt(7, 9)])


@st.composite
def uis(draw: st.DrawFn) -> Ui:
    page = draw(st.sampled_from([None, None, Page("help"), Page("payment", ROW), Page("payment", ROW, TOLD)]))
    status = draw(st.one_of(st.none(), STRANGE.map(Status)))
    question = draw(st.one_of(st.none(), STRANGE.map(lambda words: (words, ROW))))
    return Ui(
        place=draw(st.integers(0, 30)), page=page, scroll=draw(st.integers(0, 50)), status=status, asking=question
    )


@given(shops(), uis(), st.integers(1, 140), st.integers(1, 60), st.booleans(), st.booleans(), st.booleans())
def test_a_frame_stays_in_the_screen_and_is_safe_to_write(
    shop: Shop, ui: Ui, columns: int, height: int, is_away: bool, unicode: bool, scrolled: bool
) -> None:
    state = state_of(shop)
    if is_away:
        state.unreachable("x" * 100, NOW, 2)
    rows = state.rows(NOW)
    if scrolled and rows:
        ui.selected = rows[-1].key
    settle(ui, rows)
    what = view(state, ui, UNICODE if unicode else ASCII)
    lines = frame(what, columns, height)
    assert len(lines) <= height
    for line in lines:
        assert width(text_of(line)) <= columns
        assert text_of(line).isprintable()
        assert unicode or text_of(line).isascii()
    assert frame(what, columns, height) == lines
    chosen = marked(ui, rows)
    if (
        chosen is not None
        and ui.page is None
        and height > 20
        and columns > 10
        and not (is_away or ui.status or ui.asking)
    ):
        assert sum(text_of(line).startswith("▸ " if unicode else "> ") for line in lines) == 1


@given(st.integers(0, 40), st.lists(st.integers(0, 30), min_size=3, max_size=3))
def test_lines_are_shared_fairly(room: int, needs: list[int]) -> None:
    given_ = share(room, needs)
    assert sum(given_) == min(room, sum(needs))
    assert all(got <= need for got, need in zip(given_, needs, strict=True))
    for got, need in zip(given_, needs, strict=True):
        if got < need:  # no other list has more than one line more
            assert max(given_) <= got + 1


def test_a_clock_that_ticks_is_a_few_bytes() -> None:
    screen, state = Screen(colour=True), state_of(EMPTY, rates=False)
    written = []
    for second in range(120):
        now = NOW + timedelta(seconds=second)
        written.append(len(screen.frame(frame(view(state)._replace(now=now), 80, 24), 80, 24)))
    assert max(written[1:]) <= 13  # from 14:30:59 to 14:31:00
    assert sum(written[60:]) <= 600  # a minute


def test_a_payment_that_moves_on_is_a_few_cells() -> None:
    screen = Screen(colour=True)
    before, after = payment(1, 5), payment(1, 5, "CARD_PRESENTED")
    screen.frame(frame(view(state_of(replace(EMPTY, open=[before]))), 80, 24), 80, 24)
    text = screen.frame(frame(view(state_of(replace(EMPTY, open=[after]))), 80, 24), 80, 24)
    assert len(text) <= 300


@pytest.mark.parametrize(("columns", "least"), [(80, "quit"), (40, "abort"), (20, "help"), (3, "quit")])
def test_where_there_is_no_room_for_all_keys_the_most_important_stay(columns: int, least: str) -> None:
    assert least in text_of(keys_line(columns))
    assert columns < 10 or width(text_of(keys_line(columns))) <= columns


def test_a_page_can_be_scrolled_to_its_last_line_and_no_further() -> None:
    page = Ui(page=Page("help"))
    page.scroll = furthest(view(state_of(EMPTY), page), 40, 10)
    last = text(view(state_of(EMPTY), page), 40, 10)
    page.scroll += 10
    assert text(view(state_of(EMPTY), page), 40, 10) == last
    page.scroll -= 11
    assert text(view(state_of(EMPTY), page), 40, 10) != last


def test_a_page_names_what_a_payment_derives_from() -> None:
    known = Link("original", identity(2), ended(2, "gap", 9))
    lost = Link("derived", identity(3), None, "not known here")
    page = Page("payment", ROW, {**TOLD, "chain": [known, lost]})
    shown = text(view(state_of(EMPTY), Ui(page=page)), 100, 60)
    assert f"charge  11.20  approved  {identity(2)}" in shown
    assert f"{identity(3)} (not known here)" in shown


def test_once_tells_all_with_commands_that_can_be_copied() -> None:
    lines = [text_of(line) for line in once(view(state_of(CROWDED)), 80)]
    assert sum(" SN-" in line for line in lines) >= 40 + 30 + 20
    for number in range(1, 21):
        assert any(line.strip() == f"posd acknowledge {identity(number)} missing_reference" for line in lines)

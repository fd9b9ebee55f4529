"""What each key does to what is looked at, and what it asks for."""

from dataclasses import replace
from typing import Any

import pytest

from posd.cli.watch.control import Do, Wish, press, why_not_abortable
from posd.cli.watch.state import Kind, Page, Row, Section, State, Status, Ui, marked, settle
from tests.cli.watch.shops import BUSY, EMPTY, NOW, ended, identity, in_doubt, payment, state_of

ROWS = state_of(BUSY).rows(NOW)
OLD, PAYMENT, READ, PRINT, BANK, GONE = (row for row in ROWS if row.section is Section.OPEN)
TERMINAL = ROWS[0]
DOUBT, DIFFERS = (row for row in ROWS if row.section is Section.ATTENTION)


def ui_at(row: Row | None, **changes: Any) -> Ui:
    return Ui(selected=None if row is None else row.key, **changes)


def pressed(ui: Ui, key: str, rows: list[Row] = ROWS) -> Wish | None:
    settle(ui, rows)
    return press(key, ui, rows, room=5, furthest=12)


@pytest.mark.parametrize(
    ("start", "keys", "row"),
    [
        (None, "", DOUBT),  # what presses most
        (None, "down", DIFFERS),
        (None, "up", GONE),
        (DIFFERS, "down down", DIFFERS),
        (TERMINAL, "up", TERMINAL),
        (PAYMENT, "down down", PRINT),
        (TERMINAL, "page down", OLD),
        (DIFFERS, "home", TERMINAL),
        (TERMINAL, "end page up", ROWS[-6]),
        (TERMINAL, "tab", OLD),
        (READ, "tab", DOUBT),
        (DIFFERS, "tab", TERMINAL),
        (READ, "x", READ),
    ],
)
def test_where_keys_lead(start: Row | None, keys: str, row: Row) -> None:
    ui = ui_at(start)
    for key in keys.replace("page ", "page_").split():
        assert pressed(ui, key.replace("_", " ")) is None
    assert marked(ui, ROWS) == row


@pytest.mark.parametrize(
    ("row", "key", "wish"),
    [
        (PAYMENT, "s", Wish(Do.TELL, PAYMENT)),
        (TERMINAL, "enter", Wish(Do.TELL, TERMINAL)),
        (PRINT, "enter", Wish(Do.TELL, PRINT)),
        (PAYMENT, "r", Wish(Do.RECONCILE, PAYMENT)),
        (DIFFERS, "r", Wish(Do.RECONCILE, DIFFERS)),
        (PAYMENT, "q", Wish(Do.QUIT)),
        (PAYMENT, "redraw", Wish(Do.REDRAW)),
        (PAYMENT, "escape", None),
        (PRINT, "r", None),
        (TERMINAL, "r", None),
    ],
)
def test_what_keys_ask_for(row: Row, key: str, wish: Wish | None) -> None:
    assert pressed(ui_at(row), key) == wish


@pytest.mark.parametrize(
    ("answer", "wish"), [("y", Wish(Do.ABORT, PAYMENT)), ("n", None), ("escape", None), ("q", None)]
)
def test_an_abort_is_asked_about_first(answer: str, wish: Wish | None) -> None:
    ui = ui_at(PAYMENT)
    assert pressed(ui, "a") is None
    assert ui.asking is not None
    assert "abort the payment of 11.20 on SN-0001?" in ui.asking[0]
    assert pressed(ui, answer) == wish
    assert ui.asking is None


def test_the_question_stays_about_the_payment_that_it_names() -> None:
    ui = ui_at(PAYMENT)
    pressed(ui, "a")
    others = [row for row in ROWS if row.identity != PAYMENT.identity]
    assert pressed(ui, "y", others) == Wish(Do.ABORT, PAYMENT)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (PAYMENT, None),
        (DOUBT, None),
        (BANK, "the bank was asked already"),
        (GONE, "it has ended"),
        (DIFFERS, "it has ended"),
        (PAYMENT._replace(document=payment(1, 5, abortable=False, released=True)), "was released"),
        (PAYMENT._replace(document=payment(1, 5, abortable=False)), "another terminal"),
        (PAYMENT._replace(document=ended(1, "gap", 5)), "it has ended"),
    ],
)
def test_where_no_abort_can_be_sent_it_is_told_why(row: Row, words: str | None) -> None:
    why = why_not_abortable(row)
    assert (why is None) == (words is None)
    ui = ui_at(row)
    assert press("a", ui, [row], room=5, furthest=0) is None
    if words is None:
        assert ui.asking is not None
    else:
        assert ui.asking is None
        assert ui.status is not None
        assert words in ui.status.text


@pytest.mark.parametrize("row", [PRINT, TERMINAL])
def test_what_is_for_payments_says_so(row: Row) -> None:
    ui = ui_at(row)
    pressed(ui, "a")
    assert ui.status is not None
    assert "is for payments" in ui.status.text


@pytest.mark.parametrize("back", ["q", "escape"])
def test_a_page_scrolls_acts_and_goes(back: str) -> None:
    ui = ui_at(PAYMENT)
    pressed(ui, "enter")
    assert ui.page is not None
    assert ui.page.of == PAYMENT
    for key, scroll in (("down", 1), ("page down", 6), ("end", 12), ("down", 12), ("up", 11), ("home", 0), ("up", 0)):
        assert pressed(ui, key) is None
        assert ui.scroll == scroll
    assert pressed(ui, "r") == Wish(Do.RECONCILE, PAYMENT)
    assert pressed(ui, "enter") is None
    pressed(ui, "tab")
    assert marked(ui, ROWS) == PAYMENT
    assert pressed(ui, back) is None
    assert ui.page is None
    assert marked(ui, ROWS) == PAYMENT


def test_help_comes_and_goes() -> None:
    ui = ui_at(PAYMENT)
    for key, page in (("?", Page("help")), ("q", None), ("h", Page("help")), ("escape", None)):
        pressed(ui, key)
        assert ui.page == page


def test_a_key_takes_off_what_was_said_but_not_what_is_under_way() -> None:
    ui = ui_at(PAYMENT, status=Status("asking …"))
    pressed(ui, "down")
    assert ui.status is not None
    ui.status = Status("asked", until=NOW)
    pressed(ui, "down")
    assert ui.status is None


def test_where_a_row_is_gone_the_one_in_its_place_is_marked() -> None:
    ui = ui_at(PAYMENT)
    settle(ui, ROWS)
    settle(ui, [row for row in ROWS if row is not PAYMENT])
    assert ui.selected == READ.key
    only_last = [row for row in ROWS if row.section is not Section.OPEN or row is GONE]
    settle(ui, only_last)
    assert ui.selected == GONE.key
    settle(ui, [row for row in ROWS if row.section is not Section.OPEN])
    assert ui.selected is None  # what presses most


def test_nothing_at_all_can_be_selected_shown_or_aborted() -> None:
    ui = Ui()
    for key in ("down", "end", "tab", "enter", "a", "r", "escape"):
        assert pressed(ui, key, []) is None
    assert (ui.page, ui.asking, marked(ui, [])) == (None, None, None)


def test_what_blocks_a_terminal_stands_first_and_then_the_newest() -> None:
    attention = [ended(1, "gap", 50), ended(2, "gap", 5), in_doubt(3, 99), in_doubt(4, 700)]
    rows = State(replace(EMPTY, attention=attention)).rows(NOW)
    assert [row.identity for row in rows] == [identity(number) for number in (3, 4, 2, 1)]
    assert marked(Ui(), rows) == rows[0]


def test_terminals_that_do_not_answer_stand_first_and_open_payments_by_age() -> None:
    order = [row.identity for row in ROWS if row.section is Section.TERMINALS]
    assert order == ["SN-0005", "SN-0001", "SN-0002", "SN-0003", "SN-0004"]
    assert [row.identity for row in (OLD, PAYMENT, READ)] == [identity(4), identity(1), identity(2)]


def test_an_ended_payment_lingers_with_what_is_known_of_it() -> None:
    state = state_of(BUSY)
    assert (GONE.ended or {})["result"] == "approved"
    state.known(payment(7, 9, client_transaction_id=GONE.identity))
    (row,) = [row for row in state.rows(NOW) if row.ended is not None]
    assert (row.kind, row.identity, row.document["type"]) == (Kind.PAYMENT, GONE.identity, "charge")
    state.known(payment(8, 9))  # of one that is not shown
    assert identity(8) not in {row.identity for row in state.rows(NOW)}

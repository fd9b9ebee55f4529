"""Tables on a terminal. Tables fit the width, break no word, and do not break important text."""

import pytest
from rich.cells import cell_len

from posd.cli.app.tables import ASCII, UNICODE, Id, Layout, Number, laid_out, short_ids
from posd.cli.app.times import TimeCell
from tests.cli.documents import AT

ONE, TWIN, OTHER = (
    "7f3c1f0e-0001-4000-8000-00000000000a",
    "7f3c1f0e-0002-4000-8000-00000000000b",
    "aaaa0000-0000-4000-8000-000000000001",
)
COLUMNS = ("created", "transaction", "terminal", "type", "amount", "state", "sale")
#: Difficult rows: long serials, 8 digits, ids with the same beginning, the longest attention, and wide characters.
ROWS = [
    (TimeCell(AT), Id(ONE), "P8-2026-ECUADOR-QUITO-0000000123", "charge", Number("12345678.99"), "approved", "2026/1"),
    (
        TimeCell(AT),
        Id(TWIN),
        "字字字字字字字字字字字字",
        "pre-auth",
        Number("1.00"),
        "declined !conflicting_final",
        "-",
    ),
    (TimeCell(AT), Id(OTHER), "SN-1\x1b[2J", "refund", Number("-"), "in doubt !quarantined_event !in_doubt", "-"),
]
LAYOUT = Layout(whole="transaction", under="terminal", cut="terminal", extra=("sale",))


def drawn(room: int, glyphs: tuple[str, str] = UNICODE) -> list[str]:
    table = laid_out(COLUMNS, ROWS, room, LAYOUT, glyphs=glyphs)
    return [*table.head, table.rule, *table.body]


@pytest.mark.parametrize("room", [*range(20, 130, 7), 80, 200])
def test_no_line_is_wider_than_the_screen(room: int) -> None:
    assert max(map(cell_len, drawn(room))) <= room


@pytest.mark.parametrize("room", [80, 100, 120, 200])
def test_important_text_is_not_broken(room: int) -> None:
    lines = drawn(room)
    words = {word for line in lines for word in line.split()}
    assert {"12345678.99", "approved", "declined", "!conflicting_final", "!quarantined_event", "pre-auth"} <= words
    ids = (ONE, TWIN, OTHER) if room == 200 else ("7f3c1f0e-0001", "7f3c1f0e-0002", "aaaa0000")
    assert set(ids) <= words
    assert "\x1b" not in "".join(lines)
    assert any(line.rstrip().endswith("sale") for line in lines[:2]) == (room == 200)


def test_a_long_serial_keeps_both_its_ends() -> None:
    [serial] = [word for line in drawn(80) for word in line.split() if word.startswith("P8-")]
    head, mark, tail = serial.partition("…")
    assert mark
    assert "P8-2026-ECUADOR-QUITO-0000000123".startswith(head)
    assert "P8-2026-ECUADOR-QUITO-0000000123".endswith(tail)
    assert "~" in "".join(drawn(80, ASCII)).replace("…", "")


def test_numbers_are_aligned_right_and_text_is_broken_between_words() -> None:
    table = laid_out(("what", "sum"), [("some words that are long", Number("7")), ("x", Number("123.00"))], 22)
    assert table.head == ["what               sum"]
    assert table.body == ["some words           7", "that are long", "x               123.00"]


def test_short_ids_are_long_enough_to_be_distinct() -> None:
    assert short_ids([ONE, OTHER, ONE]) == ["7f3c1f0e", "aaaa0000", "7f3c1f0e"]
    assert short_ids([ONE, TWIN, OTHER, "receipt-10"]) == ["7f3c1f0e-0001", "7f3c1f0e-0002", "aaaa0000", "receipt-10"]
    assert short_ids([OTHER[:-1] + "3", OTHER, OTHER[:-2] + "44"]) == [OTHER[:-1] + "3", OTHER, OTHER[:-2] + "4"]
    assert short_ids([]) == []


def test_an_empty_optional_column_is_omitted() -> None:
    rows = [("SN-0001", "-", "x"), ("SN-0002", "", "-")]
    table = laid_out(("terminal", "ticket", "reference"), rows, 200, Layout(extra=("ticket", "reference")))
    assert table.head == ["terminal  reference"]

"""Lists with any content. Lists fit the screen at any width, and show all commands as text."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from posd.cli.app.context import RESULT_CODES
from posd.cli.watch.state import Away, ListName, Shop, WatchState
from posd.cli.watch.texts import lines, rates
from tests.cli.documents import attention, outcome
from tests.cli.watch.shops import BUSY, NOW, at, drawn, identity, in_doubt, payment, terminal
from tests.support.strange import STRANGE, assert_lines

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


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (78, ["SN-0001", "charge", "11.20", "[ack]·card·bank·end", "waiting for card"]),
        (38, ["SN-0001", "11.20", "waiting"]),
        (18, ["SN-0001"]),
    ],
)
def test_without_room_for_all_columns_the_most_important_stay(columns: int, shown: Sequence[str]) -> None:
    rows = [row for row in BUSY.rows(NOW) if row.section is ListName.OPEN]
    written = "\n".join(line.plain for line in lines(ListName.OPEN, rows, columns, NOW))
    assert [word for word in shown if word not in written] == []


@pytest.mark.parametrize("away", [None, Away("word " * 99 + "end", NOW, NOW)], ids=["there", "away"])
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

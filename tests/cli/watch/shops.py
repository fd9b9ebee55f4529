"""Documents of shops in the daemon's form, for frames of `posd watch`."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from posd.cli.app.connection import decode
from posd.cli.watch.state import ListName, Shop, WatchState
from posd.cli.watch.texts import header, lines, nothing, notice, rates, title
from tests.rig.documents import attention, outcome, print_job, transaction
from tests.rig.documents import terminal as any_terminal

NOW = datetime(2026, 11, 20, 14, 30, 15, tzinfo=UTC)
HEALTH = {"status": "ok", "checks": {"storage": {"status": "ok", "detail": "the database can be read"}}}
REASON = "nothing listens there: the device is on; start its payment application, or correct the port"


def at(seconds: float) -> str:
    """Return the API's time this many seconds ago."""
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def identity(number: int) -> str:
    """Return an id for tests."""
    return f"7f3c0000-0000-4000-8000-{number:012}"


def terminal(number: int, **changes: Any) -> dict[str, Any]:
    """Return a reachable terminal that runs nothing."""
    own = {"serial": f"SN-{number:04}", "base_url": f"https://192.168.1.{number}:6869", "last_seen": at(3)}
    return any_terminal(**own | changes)


def payment(number: int, seconds: float, status: str | None = "TERMINAL_ACKNOWLEDGED", **changes: Any) -> Any:
    """Return an open payment on the terminal with this number. The payment began this many seconds ago."""
    document = {"client_transaction_id": identity(number), "terminal": f"SN-{number:04}", "created_at": at(seconds)}
    document |= {"status": status, "phase": "active", "next_step": "wait", "abortable": status != "APPROVAL_REQUESTED"}
    return decode(json.dumps(transaction(**document | changes)))  # with exact numbers, as read from the API


def ended(number: int, code: str, seconds: float, detail: str = "") -> Any:
    """Return a final payment whose attention is this many seconds old."""
    event = outcome("approved", {"kind": "event", "event_id": identity(99)}, reached_acquirer=True)
    marks = [{**attention(code, detail), "since": at(seconds)}]
    return payment(number, seconds + 10, "APPROVAL", phase="final", outcome=event, next_step="done", attention=marks)


def in_doubt(number: int, seconds: float) -> Any:
    """Return a payment in doubt that needs a person."""
    marks = [{**attention("in_doubt", "the connection broke off"), "since": at(seconds)}]
    return payment(number, seconds + 5, None, phase="in_doubt", next_step="ask_person", attention=marks)


DOUBT = in_doubt(4, 700)
BUSY = Shop(
    health=HEALTH,
    version="1.2.3",
    terminals=[*map(terminal, range(1, 5)), terminal(5, reachable=False, last_seen=at(4000), reason=REASON)],
    open=[
        payment(3, 2, "APPROVAL_REQUESTED"),
        payment(2, 15, "CARD_PRESENTED", type="pre-auth"),
        payment(1, 64),
        DOUBT,
    ],
    attention=[DOUBT, ended(1, "amount_differs", 3700, "asked for 11.20, authorized 10.00")],
    open_prints=[print_job(created_at=at(9), status="IN_PROGRESS")],
)


def drawn(state: WatchState, room: int) -> list[str]:
    """Return all texts of the view."""
    every = state.shop.rows(NOW)
    texts = [header(state, NOW, room), notice(state, NOW, room, 1000), rates(state.shop, NOW)]
    for section in ListName:
        rows = [row for row in every if row.section is section]
        texts += [title(section, rows, state.shop), *(lines(section, rows, room, NOW) or [nothing(section)])]
    return [text.plain for text in texts]

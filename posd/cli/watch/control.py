"""What a key does to what is looked at, and what it asks for. It changes the `Ui` and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from posd.cli.watch.rows import heading, what
from posd.cli.watch.state import Kind, Page, Row, Status, Ui, marked, move, next_section

#: Further than any list or page is long.
FAR = 1_000_000


class Do(Enum):
    """What a key asks for."""

    QUIT = auto()
    REDRAW = auto()
    TELL = auto()
    ABORT = auto()
    RECONCILE = auto()


class Wish(NamedTuple):
    """What is asked for, and the row that it is about."""

    do: Do
    row: Row | None = None


#: key -> rows, or lines of a page, that it goes further; None stands for a page.
STEPS: Mapping[str, int | None] = {
    "up": -1,
    "down": 1,
    "page up": None,
    "page down": None,
    "home": -FAR,
    "end": FAR,
}


def press(key: str, ui: Ui, rows: Sequence[Row], *, room: int, furthest: int) -> Wish | None:
    """Let a key act. `room`: the lines that are seen at once; `furthest`: how far down a page can be scrolled."""
    if key == "redraw":
        return Wish(Do.REDRAW)
    if ui.asking is not None:
        question, ui.asking = ui.asking, None
        return _answer(key, ui, question[1])
    if ui.status is not None and ui.status.until is not None:
        ui.status = None
    if key in STEPS:
        steps = STEPS[key]
        if steps is None:
            steps = room if key == "page down" else -room
        if ui.page is None:
            move(ui, rows, steps)
        else:
            ui.scroll = min(max(0, min(ui.scroll, furthest) + steps), furthest)
        return None
    chosen = marked(ui, rows) if ui.page is None else ui.page.of
    handler = KEYS.get(key)
    return None if handler is None else handler(ui, rows, chosen)


def _answer(key: str, ui: Ui, row: Row) -> Wish | None:
    if key in ("y", "Y"):
        return Wish(Do.ABORT, row)
    ui.status = Status("not aborted", "dim")
    return None


def _quit(ui: Ui, _rows: Sequence[Row], _chosen: Row | None) -> Wish | None:
    return Wish(Do.QUIT) if ui.page is None else _back(ui, _rows, _chosen)


def _back(ui: Ui, _rows: Sequence[Row], _chosen: Row | None) -> Wish | None:
    ui.page, ui.scroll = None, 0
    return None


def _help(ui: Ui, _rows: Sequence[Row], _chosen: Row | None) -> Wish | None:
    ui.page, ui.scroll = Page("help"), 0
    return None


def _tab(ui: Ui, rows: Sequence[Row], _chosen: Row | None) -> Wish | None:
    if ui.page is None:
        next_section(ui, rows)
    return None


def _show(ui: Ui, _rows: Sequence[Row], chosen: Row | None) -> Wish | None:
    if ui.page is not None or chosen is None:
        return None
    ui.selected = chosen.key
    ui.page, ui.scroll = Page(heading(chosen), chosen), 0
    return Wish(Do.TELL, chosen)


def _abort(ui: Ui, _rows: Sequence[Row], chosen: Row | None) -> Wish | None:
    row = _payment(ui, chosen, "abort")
    if row is None:
        return None
    if (reason := why_not_abortable(row)) is not None:
        ui.status = Status(f"cannot abort {what(row)}: {reason}", "yellow")
    else:
        question = (
            f"Ask the terminal to abort {what(row)}? The customer may be faster: the outcome still has to be awaited."
        )
        ui.asking = (f"{question}  y: yes, any other key: no", row)
    return None


def _reconcile(ui: Ui, _rows: Sequence[Row], chosen: Row | None) -> Wish | None:
    row = _payment(ui, chosen, "reconcile")
    if row is None:
        return None
    ui.status = Status(f"asking {row.document['terminal']} how {what(row)} stands …", "cyan")
    return Wish(Do.RECONCILE, row)


def _payment(ui: Ui, chosen: Row | None, key: str) -> Row | None:
    if chosen is None:
        return None
    if chosen.kind is not Kind.PAYMENT:
        ui.status = Status(f"{key} is for payments: select one of them first", "yellow")
        return None
    return chosen


def why_not_abortable(row: Row) -> str | None:
    """Return why no abort can be sent for a payment; None where one can."""
    document = row.document
    if row.ended is not None or document.get("phase") == "final":
        return "it has ended"
    if document["abortable"]:
        return None
    if document["released"]:
        return "its terminal was released, and may run something else by now"
    if document["status"] == "APPROVAL_REQUESTED":
        return "the bank was asked already; wait for its outcome"
    return "it may run on another terminal than the one asked, or has left it; ask how it stands (r)"


KEYS: Mapping[str, Callable[[Ui, Sequence[Row], Row | None], Wish | None]] = {
    "q": _quit,
    "Q": _quit,
    "escape": _back,
    "?": _help,
    "h": _help,
    "tab": _tab,
    "enter": _show,
    "s": _show,
    "a": _abort,
    "r": _reconcile,
}

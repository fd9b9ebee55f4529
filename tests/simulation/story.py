"""The story of a run in plain words: what happened when, of the payments that a broken promise is about.

Its material are the notes of the world: a moment, who, what, and the particulars. A note of a kind that is not known
here is told as it stands.
"""

import json
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from tests.simulation.loop import BEGIN
from tests.simulation.world import Note, Result

#: What stands for an id in a message of a check.
_ID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|job-\d+")
_SALE: Final = re.compile(r"\bsale (\d+)\b")
#: Notes that are told before a broken promise that names no payment.
BEFORE: Final = 25
#: Members of a document that are told of it.
TOLD: Final = (
    *("client_transaction_id", "event_id", "status", "phase", "result", "next_step", "code", "detail"),
    *("printJobId", "sale", "errorCode", "supersedes"),
)
#: Lists that the person reads: each names many payments.
LISTS: Final = ("/v1/feed", "/v1/transactions?")
#: Longest line, in characters.
WIDTH: Final = 400


def concerned(result: Result) -> frozenset[str]:
    """Return the ids that the broken promises are about, with all others of their sales."""
    ids = {found for failure in result.failures for found in _ID.findall(failure)}
    numbers = {int(found) for failure in result.failures for found in _SALE.findall(failure)}
    for number, made in result.ids.items():
        if number in numbers or not ids.isdisjoint(made):
            ids |= {*made}
    return frozenset(ids)


def tell(result: Result, *, everything: bool = False) -> str:
    """Tell the story: of what the broken promises are about and of the faults, or of everything."""
    ids = concerned(result)
    told = [note for note in result.notes if everything or _concerns(note, ids)]
    if not everything and not ids:
        told = [*_before(result.notes)]
    zone = "the shop's clock, if it is right, in UTC"
    began = result.plan.began
    return "\n".join((f"seconds of the run, {zone}", *(_line(note, began) for note in told)))


def about_plan(result: Result) -> str:
    """Tell which sales and faults a run had, where they are few."""
    plan = result.plan
    sales = [f"sale {sale.number} at till {sale.till}: {sale.cents / 100:.2f}, {sale.manner}" for sale in plan.sales]
    faults = [
        f"fault {fault.number} at {fault.at:.1f}: {fault.kind}, target {fault.target}, for {fault.seconds:.1f} s"
        for fault in plan.faults
    ]
    lines = [f"{len(sales)} sales", *_few(sales), f"{len(faults)} faults", *_few(faults)]
    return "\n".join(lines)


def _few(lines: Sequence[str], most: int = 12) -> list[str]:
    return [f"  {line}" for line in lines[:most]] + ([f"  … and {len(lines) - most} more"] if len(lines) > most else [])


def _concerns(note: Note, ids: Collection[str]) -> bool:
    _, what = note
    if what[0] in ("CHECK", "fault", "fault ends", "killed", "stopped", "cannot start"):
        return True
    if what[0] == "log" and what[1] == "error":
        return True
    if what[0] == "person" and str(what[2]).startswith(LISTS):
        return False
    words = " ".join(map(_text, what))
    return any(identity in words for identity in ids)


def _before(notes: Sequence[Note]) -> Iterator[Note]:
    """Yield the faults, the broken promises and what came just before them."""
    wrong = [place for place, (_, what) in enumerate(notes) if what[0] == "CHECK"]
    near = {place for end in wrong for place in range(end - BEFORE, end + 1)}
    for place, note in enumerate(notes):
        if place in near or _concerns(note, ()):
            yield note


def _line(note: Note, began: datetime) -> str:
    at, what = note
    clock = began + timedelta(seconds=at)
    return f"{at - BEGIN:12.6f}  {clock:%d %b %H:%M:%S}  {_words(what)}"[:WIDTH]


def _words(what: Sequence[object]) -> str:
    match what:
        case ("log", level, event, identity):
            return f"posd logs {event} ({level})" + (f" of {identity}" if identity else "")
        case ("CHECK", problem):
            return f"*** A PROMISE DOES NOT HOLD: {problem}"
        case ("fault", kind, target, seconds):
            return f"--- fault begins: {kind}, target {target}, for {seconds} s"
        case ("fault ends", kind):
            return f"--- fault ends: {kind}"
        case ("killed", power):
            return "--- the power of the machine is cut" if power else "--- posd is killed"
        case ("stopped",):
            return "--- posd has stopped in order"
        case ("cannot start", error):
            return f"--- posd cannot start: {error}"
        case (serial, "called", method, path, body):
            return f"posd -> {serial}: {method} {path} {_said(body)}"
        case (serial, "answers", identity, how):
            return f"{serial} -> posd: answers the start of {identity}: {how}"
        case (serial, "finds", identity, how):
            return f"{serial} -> posd: answers the search for {identity}: {how}"
        case (serial, "stops", identity, how):
            return f"{serial} -> posd: answers the abort while {identity} runs: {how}"
        case (serial, "state", identity, status):
            return f"{serial}: {identity} is {status}"
        case (serial, "posted", status, body):
            return f"{serial} -> posd: {_said(body)}: answered {status}"
        case (serial, "no answer", error, body):
            return f"{serial} -> posd: {_said(body)}: NOT ANSWERED ({error})"
        case (till, "step", identity, step):
            return f"{till}: {identity} ended; next_step {step}"
        case (till, "aside", method, path, status, body):
            return f"{till} -> posd, on a connection of its own: {method} {path}: {status} {_said(body)}"
        case (who, method, path, status, body):
            return f"{who} -> posd: {method} {path}: {status} {_said(body)}"
    return " ".join(map(_text, what))


def _text(what: object) -> str:
    return what.decode("utf-8", "replace") if isinstance(what, bytes) else str(what)


def _said(what: object) -> str:
    """Return what a body says, in short: the members of `TOLD` that it has, or all of what is no such document."""
    text = _text(what)
    try:
        document = json.loads(text)
    except ValueError:
        return text
    if not isinstance(document, dict):
        return text
    said = [f"{name} {document[name]}" for name in TOLD if document.get(name) is not None]
    if isinstance(attention := document.get("attention"), list):  # the end of the feed counts them
        said += [f"attention {item['code']}" for item in attention]
    return ", ".join(said) if said else text

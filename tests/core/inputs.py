"""Inputs of a walk over a transaction: events, replies to the start, replies to searches, decisions of operators.

The name identifies an input. Inputs with the same name have the same effect.
"""

import json
from collections.abc import Callable, Mapping, Sequence

from posd.payments.answers import (
    Answer,
    Canceled,
    Judgement,
    SearchFailed,
    SearchHit,
    SearchMiss,
    StartAccepted,
    read_reply,
)
from posd.payments.lifecycle import FINALS
from posd.payments.model import AttentionCode, Evidence, EvidenceKind, Result, Transaction
from posd.payments.transitions import (
    RepeatedEvent,
    advance,
    conclude_start,
    interrupted,
    proved,
    quarantined,
    released,
    resolved,
    searched,
    silent,
)
from posd.records.model import Phase
from posd.terminals.attempt import Doubtful, ErrorEnvelope, NotSent, Replied, StartRefused
from tests.core.scenarios import IDENTITY, NOW, Path, read
from tests.core.walks import Deck, Input
from tests.rig.events import body

USER_CANCELED = ErrorEnvelope("TERMINAL-SUNMI", "-1", "canceled by the user", certain=True, whole=True)

JUDGEMENTS: Mapping[str, Judgement] = {
    "acknowledged": StartAccepted("SN-TEST"),
    "lost": Doubtful("no reply in time"),
    "refused": StartRefused(409, "busy"),
    "unsent": NotSent("connection refused"),
    "canceled": Canceled(200, "canceled", USER_CANCELED),
}


def content(status: str, previous: str | None = None, reference: str = "r-1", **changes: object) -> bytes:
    """Return an event's bytes. The same arguments give the same bytes."""
    if status == "APPROVAL":
        response = {"transaction_reference": reference, "ticket_number": "000123", "authorized_amount": 11.20}
        changes = {"raw_response": response} | changes
    event_id = f"{status} {reference} after {previous}"
    return body(IDENTITY, status, previous, **{"event_id": event_id} | changes)


def final_of(data: bytes) -> tuple[str, ...]:
    """Return a text with the final state and the reference of an event, or () if the event is not final."""
    event = read(data)
    if event.status not in FINALS:
        return ()
    reference = event.raw_response.transaction_reference if event.raw_response else None
    return (f"{event.status} {reference}" if reference else event.status,)


def event(data: bytes) -> Input:
    """Return the input of an event that arrives for the first time."""
    read_event = read(data)

    def apply(transaction: Transaction) -> Transaction:
        return advance(transaction, read_event, seen=RepeatedEvent.NEW, now=NOW)[0]

    return Input(f"event {read_event.event_id}", apply, final_of(data), full=True, body=data)


def events(path: Path, most: int) -> list[Deck]:
    """Return the events of a path as decks for a walk (`walks.Deck`). Each event occurs at most `most` times.

    Events with the same content are equal.
    """
    return [Deck((event(content(*edge)),), most, kind=str(edge)) for edge in path]


def search(name: str, answer: Answer, finals: Sequence[str] = (), *, full: bool = False) -> Input:
    """Return an input for the result of a search."""
    return Input(f"search: {name}", lambda transaction: searched(transaction, answer, NOW), tuple(finals), full)


def found(*bodies: bytes) -> Input:
    """Return an input for a search that finds these events."""
    finals = [final for data in bodies for final in final_of(data)]
    names = ", ".join(read(data).event_id for data in bodies)
    return search(names, SearchHit(tuple(data.decode() for data in bodies)), finals, full=True)


NO_ANSWER = (search("none", SearchMiss()), search("no answer", SearchFailed("HTTP 404", 404)))
UNUSABLE = search(
    "unusable", read_reply(Replied(200, json.dumps({"client_transaction_id": IDENTITY}).encode()), "", IDENTITY)
)


def answers(path: Path) -> list[Input]:
    """Return all replies to a search that report as much data as the path's events."""
    bodies = [content(*edge) for edge in {status: (status, previous) for status, previous in path}.values()]
    alone = [found(data) for data in bodies]
    return [*NO_ANSWER, UNUSABLE, *alone, found(*bodies), found(*reversed(bodies)), found(*bodies[:2])]


def poor_answers(path: Path) -> list[Input]:
    """Return replies that report only a state, without the acquirer's response, the reason, and the reading type."""
    bare = {"raw_response": None, "failure_reason": None, "reading_type": None}
    edges = {status: (status, previous) for status, previous in path}.values()
    bodies = [content(*edge, previous_status=None, **bare) for edge in edges]
    final = final_of(content(*path[-1]))
    alone = [_poor(data) for data in bodies[:-1]]
    return [*alone, _poor(bodies[-1], finals=final), _poor(*bodies, finals=final)]


def _poor(*bodies: bytes, finals: Sequence[str] = ()) -> Input:
    names = ", ".join(read(data).event_id for data in bodies)
    return search(f"poor {names}", SearchHit(tuple(data.decode() for data in bodies)), finals)


def reply(judgement: Judgement) -> Callable[[Transaction], Transaction]:
    """Return the effect of the reply to the start."""
    return lambda transaction: conclude_start(transaction, judgement, NOW)


def _interrupted(transaction: Transaction) -> Transaction:
    """Recover a transaction as a daemon does at its start.

    A transaction stays unchanged if its phase is not `starting`.
    """
    return interrupted(transaction, NOW) if transaction.phase is Phase.STARTING else transaction


#: Ends of a start: a judged reply, or the death of the daemon.
REPLIES = (*(Input(name, reply(judgement)) for name, judgement in JUDGEMENTS.items()), Input("crash", _interrupted))


def while_open(effect: Callable[[Transaction], Transaction]) -> Callable[[Transaction], Transaction]:
    """Return an effect that does not change a final transaction."""
    return lambda transaction: transaction if transaction.phase is Phase.FINAL else effect(transaction)


def _resolved(result: Result) -> Callable[[Transaction], Transaction]:
    return while_open(lambda transaction: resolved(transaction, result, "Ana", "seen on the slip", None, NOW))


#: Decisions of operators, and the reconciler's complete proof.
PEOPLE = (
    *(Input(f"resolve {result}", _resolved(result)) for result in Result),
    Input("release", while_open(lambda transaction: released(transaction, NOW))),
)
PROOF = Input(
    "proof", lambda transaction: proved(transaction, (Evidence(kind=EvidenceKind.SEARCH, at="", result="none"),), NOW)
)
SILENCES = tuple(
    Input(f"silence: {code}", while_open(lambda transaction, code=code: silent(transaction, code, 60, NOW)))
    for code in (AttentionCode.NO_CALLBACK, AttentionCode.STALLED)
)
CALLBACK = Input("unusable callback", lambda transaction: quarantined(transaction, "not JSON", NOW))


def named(value: object) -> str:
    """Return a name for a parameter. The name is the same in every process, although sets have no order."""
    return str(sorted(value)) if isinstance(value, set) else str(value)

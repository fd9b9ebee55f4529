"""Journal entries. The effect and the name of each entry are the same after storage."""

import json
from base64 import b64encode
from datetime import datetime, timedelta
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments import transitions
from posd.payments.answers import SearchFailed, SearchHit, SearchMiss, StartAccepted
from posd.payments.entries import (
    AbortAnswered,
    AbortRequested,
    AddressBack,
    AddressLost,
    Attempted,
    CallbackBrokeOff,
    Dismissed,
    Disputed,
    Entry,
    Interrupted,
    JudgedStart,
    NothingHeard,
    OutcomeRead,
    OutcomeUnread,
    Overrun,
    ProvedNotStarted,
    Quarantined,
    Reapplied,
    Released,
    Resolved,
    Searched,
    TakenOver,
    Undisputed,
    Unlikely,
    apply,
    feed_word,
    replay,
)
from posd.payments.model import AttentionCode, Evidence, EvidenceKind, Result, Transaction
from posd.payments.transitions import New, RepeatedEvent, recognise
from posd.payments.wire import TransactionEvent
from posd.records.model import QUARANTINED_LINE, TAKEN_OVER_LINE, Phase, facts_of, own_line
from posd.terminals.attempt import Attempt, Doubtful, NotSent, Replied, ReplyLost, StartRefused
from tests.core.inputs import content
from tests.core.scenarios import ACK, CANCELED, CARD, IDENTITY, NOW, REQUESTED, read, starting
from tests.rig.tables import every

ACKNOWLEDGEMENT = Replied(200, json.dumps({"status": ACK, "terminal": {"serialNumber": "SN-TEST"}}).encode())
PIECE = Evidence(kind=EvidenceKind.SEARCH, at="2026-11-20T10:42:03.000Z", result="none")
FINAL = SearchHit((content("APPROVAL", REQUESTED).decode(),))

#: Every entry, the word in the feed, and the decision that the entry records.
ENTRIES = [
    (
        Attempted(ACKNOWLEDGEMENT),
        "acknowledged",
        lambda was: transitions.conclude_start(was, StartAccepted("SN-TEST"), NOW),
    ),
    (
        Attempted(Replied(409, b"\xff\x00busy")),
        "refused",
        lambda was: transitions.conclude_start(was, StartRefused(409, "\ufffd\0busy"), NOW),
    ),
    (Attempted(NotSent("refused")), "unsent", lambda was: transitions.conclude_start(was, NotSent("refused"), NOW)),
    (Attempted(ReplyLost("reset")), "in_doubt", lambda was: transitions.conclude_start(was, Doubtful("reset"), NOW)),
    (
        Attempted(Replied(200, ACKNOWLEDGEMENT.body, complete=False)),
        "in_doubt",
        lambda was: transitions.conclude_start(
            was, Doubtful("the terminal answered HTTP 200 with something that is not an acknowledgement"), NOW
        ),
    ),
    (Interrupted(), "interrupted", lambda was: transitions.interrupted(was, NOW)),
    (Searched(SearchMiss()), "search:none", lambda was: transitions.searched(was, SearchMiss(), NOW)),
    (
        Searched(SearchFailed("no", 404)),
        "search:no_answer",
        lambda was: transitions.searched(was, SearchFailed("no", 404), NOW),
    ),
    (Searched(FINAL), "search:found", lambda was: transitions.searched(was, FINAL, NOW)),
    (AbortRequested(probe=False, uid=1000), "abort_requested", lambda was: transitions.aborting(was, NOW, may_be=True)),
    (AbortRequested(probe=True), "probe_requested", lambda was: was),
    (AbortAnswered(Replied(200, b"{}")), "abort:taken", lambda was: transitions.touched(was, NOW)),
    (AbortAnswered(Replied(409, b"")), "abort:nothing_running", lambda was: was),
    (AbortAnswered(NotSent("refused")), "abort:unreachable", lambda was: transitions.aborting(was, NOW, may_be=False)),
    (AbortAnswered(ReplyLost("reset")), "abort:unknown", lambda was: was),
    (Quarantined("not JSON"), "quarantined", lambda was: transitions.quarantined(was, "not JSON", NOW)),
    (
        NothingHeard(AttentionCode.STALLED, 60.0),
        "stalled",
        lambda was: transitions.silent(was, AttentionCode.STALLED, 60.0, NOW),
    ),
    (
        NothingHeard(AttentionCode.NO_CALLBACK, 10.0),
        "no_callback",
        lambda was: transitions.silent(was, AttentionCode.NO_CALLBACK, 10.0, NOW),
    ),
    (ProvedNotStarted((PIECE, PIECE)), "proof", lambda was: transitions.proved(was, (PIECE, PIECE), NOW)),
    (Released("Ana", "slip", None), "release", lambda was: transitions.released(was, NOW)),
    (
        Resolved("Ana", "slip", 1000, Result.APPROVED, "r-1"),
        "resolve",
        lambda was: transitions.resolved(was, Result.APPROVED, "Ana", "slip", "r-1", NOW),
    ),
    (
        Dismissed("Ana", "slip", 1000, AttentionCode.IN_DOUBT),
        "acknowledge",
        lambda was: transitions.dismissed(was, AttentionCode.IN_DOUBT, NOW),
    ),
    (
        Unlikely(("asked for 112.00, authorized 0.01",), by_sum=True),
        "approval_unlikely",
        lambda was: transitions.unlikely(was, ("asked for 112.00, authorized 0.01",), by_sum=True, now=NOW),
    ),
    (CallbackBrokeOff(), "callback_broke_off", lambda was: transitions.touched(was, NOW)),
    (TakenOver("torn"), "taken_over", lambda was: transitions.taken_over(was, "torn", NOW)),
    (Overrun(), "event_limit", lambda was: transitions.overrun(was, NOW)),
    (Reapplied(), "reapplied", lambda was: transitions.dismissed(was, AttentionCode.QUARANTINED_EVENT, NOW)),
    (AddressLost("10.0.0.7"), "address_changed", lambda was: transitions.address_lost(was, "10.0.0.7", NOW)),
    (Disputed("why"), "identity_conflict", lambda was: transitions.disputed(was, "why", NOW)),
    (Undisputed(), "identity_settled", lambda was: transitions.dismissed(was, AttentionCode.IDENTITY_CONFLICT, NOW)),
    (AddressBack("10.0.0.7"), "address_back", lambda was: transitions.address_back(was, NOW)),
    (OutcomeUnread(), "outcome_unread", lambda was: transitions.unread(was, NOW)),
    (OutcomeRead(), "outcome_read", lambda was: transitions.dismissed(was, AttentionCode.OUTCOME_UNREAD, NOW)),
]

#: Transactions to which the entries are applied. Every entry with an effect changes at least one of them.
BEGINNINGS = (
    starting(),
    transitions.interrupted(starting(), NOW),
    transitions.quarantined(transitions.interrupted(starting(), NOW), "not JSON", NOW),
    transitions.address_lost(starting(), "10.0.0.7", NOW),
    transitions.disputed(starting(), "why", NOW),
    transitions.aborting(starting(), NOW, may_be=True),
    transitions.unread(starting(), NOW),
)


def written_down(entry: Entry) -> Entry:
    """Return an entry after it was stored and read."""
    return msgspec.json.decode(msgspec.json.encode(entry), type=Entry)  # type: ignore[arg-type]


def word_of(entry: Entry) -> str:
    return feed_word(JudgedStart.of(entry, IDENTITY) if isinstance(entry, Attempted) else entry)


def test_the_table_has_every_kind_of_entry() -> None:
    assert {type(entry) for entry, _, _ in ENTRIES} == set(get_args(Entry))


@every(("entry", "word", "effect"), ENTRIES, ids=[f"{word}" for _, word, _ in ENTRIES])
def test_a_stored_entry_keeps_its_effect_and_its_name(entry, word, effect) -> None:  # type: ignore[no-untyped-def]
    back = written_down(entry)
    assert back == entry
    assert word_of(back) == word
    for beginning in BEGINNINGS:
        assert apply(beginning, back, NOW) == effect(beginning)


@every("entry", [entry for entry, _, _ in ENTRIES], ids=[word for _, word, _ in ENTRIES])
def test_every_entry_except_a_search_record_can_change_a_transaction(entry: Entry) -> None:
    changed = any(apply(beginning, entry, NOW) != beginning for beginning in BEGINNINGS)
    left_to_searches = (AbortRequested(probe=True), AbortAnswered(Replied(409, b"")), AbortAnswered(ReplyLost("reset")))
    assert changed is (entry not in left_to_searches)


#: Ends of a payment: by an operator's decision, by an inference, or by an event.
ENDS = (
    transitions.resolved(starting(), Result.DECLINED, "Ana", "slip", None, NOW),
    transitions.conclude_start(starting(), NotSent("refused"), NOW),
    transitions.searched(starting(), FINAL, NOW),
)


@every("entry", [entry for entry, _, _ in ENTRIES], ids=[word for _, word, _ in ENTRIES])
def test_a_payment_has_an_outcome_exactly_if_it_is_final(entry: Entry) -> None:
    """A restore combines two records, so any entry can follow any end."""
    for end in ENDS:
        after = apply(end, entry, NOW)
        assert (after.phase is Phase.FINAL) == (after.outcome is not None), end.outcome


@every("end", ENDS)
def test_an_operators_decision_after_an_end_changes_nothing(end: Transaction) -> None:
    said = Resolved("Ana", "slip", 1000, Result.CANCELED, None)
    assert apply(end, said, NOW) is end
    assert apply(end, TakenOver("torn"), NOW) is end


EVENTS = [
    content(ACK),
    content(CARD, ACK),
    content(CARD, CARD),
    content(REQUESTED, CARD),
    content("APPROVAL", REQUESTED),
    content("APPROVAL", REQUESTED, reference="r-2"),
    content("DECLINED", REQUESTED),
    content(CANCELED, CARD),
    content(CARD, ACK, event_id=f"{ACK} r-1 after None"),  # another event has the same event_id
    content("DECLINED", REQUESTED, event_id=f"{ACK} r-1 after None"),
    content("WARMING_UP", ACK),
]


@given(st.lists(st.sampled_from([*EVENTS, *(entry for entry, _, _ in ENTRIES)]), max_size=12))
def test_replaying_the_record_gives_the_same_transaction(things: list[bytes | Entry]) -> None:
    lived, verdicts = starting(), []
    record: list[tuple[datetime, Entry | tuple[TransactionEvent, New]]] = []
    bodies: dict[str, list[bytes]] = {}
    for number, thing in enumerate(things):
        at = NOW + timedelta(seconds=number)
        if not isinstance(thing, bytes):
            lived = apply(lived, thing, at)
            record.append((at, written_down(thing)))
            continue
        event = read(thing)
        known = bodies.setdefault(event.event_id, [])
        seen = recognise(thing, known)
        if seen is not RepeatedEvent.REPEATED:
            known.append(thing)
            lived, verdict = transitions.advance(lived, event, seen=seen, now=at)
            verdicts.append(verdict)
            record.append((at, (event, seen)))
    assert replay(starting(), record) == (lived, verdicts)


def test_a_replay_without_inputs_changes_nothing() -> None:
    begun: Transaction = starting()
    assert replay(begun, []) == (begun, [])


def written_before(kind: str, status: int, document: object) -> Entry:
    """Return an entry as recorded by a version of posd that ignored errors in replies."""
    body = b64encode(json.dumps(document).encode()).decode()
    attempt = {"type": "replied", "status": status, "body": body, "complete": True}
    return msgspec.json.decode(json.dumps({"kind": kind, "attempt": attempt}), type=Entry)


@every(
    ("status", "document", "phase", "result"),
    [
        (200, {"type": "TERMINAL-SUNMI", "code": "-1"}, Phase.IN_DOUBT, None),
        (402, {"type": "ACQUIRER", "code": "51"}, Phase.FINAL, Result.NOT_STARTED),
        (409, "busy", Phase.FINAL, Result.NOT_STARTED),
        (200, {"status": ACK, "type": "TERMINAL", "code": "TER-003"}, Phase.ACTIVE, None),
        (200, {"status": ACK, "object": {"client_transaction_id": "another"}}, Phase.ACTIVE, None),
        (200, {"object": {"status": ACK}}, Phase.IN_DOUBT, None),
        (200, {"status": ACK, "terminal": {"serial_number": "SN-2"}}, Phase.ACTIVE, None),
    ],
    ids=str,
)
def test_a_reply_keeps_the_judgement_of_the_version_that_recorded_it(
    status: int, document: object, phase: Phase, result: Result | None
) -> None:
    after = apply(starting(), written_before("attempt", status, document), NOW)
    assert (after.phase, after.outcome and after.outcome.result, after.mismatched) == (phase, result, False)


def test_an_operators_decision_stays_after_an_upgrade() -> None:
    entry = written_before("attempt", 200, {"type": "TERMINAL-SUNMI", "code": "-1"})
    resolved = Resolved("Ana", "slip says paid", 1, Result.APPROVED)
    after, _ = replay(starting(), [(NOW, entry), (NOW, resolved)])
    assert after.outcome is not None
    assert (after.outcome.result, after.outcome.evidence[0].operator) == (Result.APPROVED, "Ana")


@every(
    ("status", "document", "word", "heard"),
    [
        (200, {"type": "TERMINAL", "code": "TER-002"}, "abort:taken", True),
        (409, {"type": "TERMINAL", "code": "TER-003"}, "abort:nothing_running", False),
    ],
    ids=str,
)
def test_an_abort_keeps_the_judgement_of_the_version_that_recorded_it(
    status: int, document: object, word: str, *, heard: bool
) -> None:
    entry = written_before("abort_answered", status, document)
    assert word_of(entry) == word
    assert apply(starting(), entry, NOW).heard is heard


def test_a_line_of_the_history_has_only_described_fields() -> None:
    line = own_line((TAKEN_OVER_LINE, QUARANTINED_LINE), "2026-01-01T00:00:00.000Z", Quarantined("why", "SN-9"))
    assert msgspec.to_builtins(line) == {"at": "2026-01-01T00:00:00.000Z", "kind": "quarantined", "reason": "why"}


@pytest.mark.parametrize(
    ("attempt", "status", "reason"),
    [
        (NotSent("connection refused"), None, "connection refused"),
        (ReplyLost("reset"), None, "reset"),
        (Replied(409, b"{}"), 409, None),
    ],
    ids=["not-sent", "reply-lost", "replied"],
)
def test_the_history_of_a_call_has_the_status_or_the_reason_for_no_reply(
    attempt: Attempt, status: int | None, reason: str | None
) -> None:
    assert facts_of(attempt) == {"http_status": status, "reason": reason}

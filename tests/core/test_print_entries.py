"""Journal of a print job. Every order of reply, webhook and poll leads to one end.

A job derived from the journal equals the recorded job.
"""

from base64 import b64encode
from datetime import timedelta
from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.printing import model
from posd.printing.entries import (
    MAX_CALLBACKS,
    Called,
    Created,
    Dismissed,
    Entry,
    Interrupted,
    Polled,
    Quarantined,
    Reapplied,
    Resolved,
    Stuck,
    TakenOver,
    Turn,
    apply,
    feed_word,
    repeats,
    replay,
)
from posd.printing.model import FINALS, JobReport, PrintAttentionCode, PrintJob, PrintStatus
from posd.printing.wire import NoAnswer, PollAnswered
from posd.records.model import QUARANTINED_LINE, TAKEN_OVER_LINE, own_line
from posd.terminals.attempt import NotSent, Replied, ReplyLost
from tests.core.test_printing import NOW, active, codes, starting


def called(status: str, **more: str) -> Called:
    return Called(msgspec.json.encode({"printJobId": "job-1", "status": status, "externalReference": ""} | more))


def polled(status: str) -> Polled:
    return Polled(PollAnswered(JobReport(status)))


REPLIES: dict[str, Entry] = {
    "accepted": Created(Replied(202, b'{"printJobId": "job-1"}')),
    "lost": Created(ReplyLost("reset")),
    "refused": Created(Replied(409, b"there already")),
    "interrupted": Interrupted(in_line=False),
}
STEPS = (called("COMPLETED"), polled("PENDING"), polled("IN_PROGRESS"), polled("COMPLETED"), Stuck(300))


def walk(job: PrintJob, entries: tuple[Entry, ...]) -> list[PrintJob]:
    """Return the job after each entry."""
    states = []
    for entry in entries:
        job = apply(job, entry, NOW)
        states.append(job)
    return states


@pytest.mark.parametrize("reply", REPLIES)
def test_the_order_of_a_reply_and_a_webhook_and_polls_does_not_change_the_end(reply: str) -> None:
    orders = list(permutations((REPLIES[reply], *STEPS)))
    for order in orders:
        states = walk(starting(), order)
        first = next(entry for entry in order if entry in (called("COMPLETED"), polled("COMPLETED")))
        job = states[-1]
        decided_by = "webhook" if isinstance(first, Called) else "poll"
        assert (job.phase, job.status, job.decided_by) == ("final", "COMPLETED", decided_by), order
        assert codes(job) <= {"outcome_corrected"}, order
        if reply != "refused" or isinstance(order[-1], Created):
            assert not job.attention, order
        ends = [state.decided_by for state in states if state.status in FINALS]
        assert len(set(ends)) == 1, "the job ended once"
    assert len(orders) == 720


def test_of_two_finals_the_first_counts_in_every_order() -> None:
    steps = (called("COMPLETED"), called("FAILED", errorCode="E-7"), REPLIES["accepted"], polled("IN_PROGRESS"))
    for order in permutations(steps):
        first = next(entry for entry in order if isinstance(entry, Called))
        job = walk(starting(), order)[-1]
        assert (job.status, job.decided_by) == ("COMPLETED" if first == steps[0] else "FAILED", "webhook")
        assert codes(job) == {"conflicting_final"}


ANY = st.sampled_from(
    [
        *REPLIES.values(),
        *STEPS,
        Turn(),
        Turn("https://192.0.2.9"),
        Interrupted(in_line=True),
        Created(NotSent("refused")),
        Polled(NoAnswer("the terminal answered HTTP 404", 404)),
        called("FAILED", errorCode="E-7"),
        called("JAMMED"),
        Quarantined("no JSON"),
        Reapplied(),
        Resolved("Ana", "paper came", 1000, PrintStatus.FAILED),
        Dismissed("Ana", "seen", None, PrintAttentionCode.OUTCOME_CORRECTED),
    ]
)


@given(st.lists(ANY, max_size=12))
def test_the_first_report_counts_and_the_journal_gives_the_same_job(entries: list[Entry]) -> None:
    states = walk(starting(), tuple(entries))
    stated = None
    for job in states:
        assert (job.phase == "final") == (job.decided_by is not None)
        if stated is not None:
            assert (job.status, job.decided_by) == stated, "the terminal's first report counts"
        if job.decided_by in model.STATED:
            stated = (job.status, job.decided_by)
        if job.decided_by in model.NOT_ACCEPTED:
            assert job.status is None
            assert job.reason
    inputs = [(NOW + timedelta(seconds=index), entry) for index, entry in enumerate(entries)]
    derived = replay(starting(), inputs)
    final = states[-1] if states else starting()
    names = ("phase", "status", "decided_by", "reason", "error_code", "terminal_job_id", "heard", "acknowledged")
    assert [getattr(derived, name) for name in names] == [getattr(final, name) for name in names]
    assert codes(derived) == codes(final)


def test_a_reapplied_webhook_clears_its_attention_and_a_partly_restored_job_is_in_doubt() -> None:
    job = apply(active(), Quarantined("no JSON"), NOW)
    assert apply(job, Reapplied(), NOW).attention == ()
    assert apply(starting(), TakenOver("half of it could be read"), NOW).phase == "in_doubt"


def test_an_invalid_reply_changes_nothing() -> None:
    assert apply(active(), Polled(NoAnswer("404", 404)), NOW) == active()


@pytest.mark.parametrize(
    ("entry", "word"),
    [
        (REPLIES["accepted"], "accepted"),
        (REPLIES["lost"], "in_doubt"),
        (REPLIES["refused"], "refused"),
        (Created(NotSent("no way")), "unsent"),
        (called("COMPLETED"), "webhook:COMPLETED"),
        (polled("IN_PROGRESS"), "poll:IN_PROGRESS"),
        (Polled(NoAnswer("404", 404)), "poll:no_answer"),
        (Interrupted(in_line=True), "interrupted"),
        (Stuck(3), "print_stuck"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_entry_has_its_name_in_the_feed(entry: Entry, word: str) -> None:
    assert feed_word(entry) == word


def test_an_entry_is_shown_by_the_line_of_its_type() -> None:
    line = own_line((TAKEN_OVER_LINE, QUARANTINED_LINE), "2026-11-20T10:42:03.000Z", Quarantined("no JSON"))
    assert type(line) is QUARANTINED_LINE
    assert msgspec.to_builtins(line) == {"at": "2026-11-20T10:42:03.000Z", "kind": "quarantined", "reason": "no JSON"}


def test_a_webhook_with_the_same_job_and_status_is_a_repeat() -> None:
    first = called("COMPLETED")
    job = apply(active(), first, NOW)
    taken = [first.body]
    assert repeats(job, first.body, taken, NOW)
    assert repeats(job, called("COMPLETED", more="x").body, taken, NOW), "the webhook has the same job and status"
    assert not repeats(job, called("FAILED").body, taken, NOW), "it contradicts"
    assert not repeats(active(), first.body, [], NOW)
    failed, explained = called("FAILED"), called("FAILED", errorCode="E-7")
    assert not repeats(apply(active(), failed, NOW), explained.body, [failed.body], NOW), "it completes the error"
    seen = Dismissed("Ana", "seen", None, PrintAttentionCode.CONFLICTING_FINAL)
    job = apply(apply(job, failed, NOW), seen, NOW)
    assert repeats(job, failed.body, [first.body, failed.body], NOW), "it raises no attention again"
    by_poll = apply(active(), polled("COMPLETED"), NOW)
    assert not repeats(by_poll, first.body, [], NOW), "the first webhook is stored, although a poll was faster"


def test_webhooks_are_stored_up_to_a_limit_but_the_end_is_always_stored() -> None:
    job = active()
    taken = [called(f"STATE {number}").body for number in range(MAX_CALLBACKS)]
    assert repeats(job, called("STATE 100").body, taken, NOW)
    assert not repeats(job, called("COMPLETED").body, taken, NOW)
    assert not repeats(job, called("STATE 100").body, taken[1:], NOW)


@pytest.mark.parametrize(
    ("status", "phase", "decided_by"), [(200, "active", None), (422, "final", "refusal"), (500, "in_doubt", None)]
)
def test_a_reply_keeps_the_judgement_of_the_version_that_recorded_it(
    status: int, phase: str, decided_by: str | None
) -> None:
    """An earlier version recorded a reply with an error of the acquirer. That version ignored errors in replies."""
    body = b64encode(b'{"type": "ACQUIRER", "code": "51"}').decode()
    attempt = {"type": "replied", "status": status, "body": body, "complete": True}
    entry = msgspec.json.decode(msgspec.json.encode({"kind": "attempt", "attempt": attempt}), type=Entry)
    job = apply(starting(), entry, NOW)
    assert (job.phase, job.decided_by) == (phase, decided_by)

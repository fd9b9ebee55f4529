"""Print jobs: the conclusion from each reply, and the effect of later reports."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from posd.base.times import iso
from posd.printing import model
from posd.printing.model import (
    FINALS,
    NOT_ACCEPTED,
    SETTLED,
    DecidedBy,
    JobAccepted,
    JobReport,
    PrintAttentionCode,
    PrintJob,
    PrintStatus,
    belongs,
)
from posd.records.model import Phase
from posd.terminals.attempt import Doubtful, NotSent, StartRefused
from tests.rig.tables import every

NOW = datetime(2026, 11, 20, 10, 42, 3, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
TAKEN = JobAccepted()


def starting(**changes: object) -> PrintJob:
    """Return a job whose request is being sent."""
    job = PrintJob(
        print_job_id="job-1",
        terminal="SN-1",
        created_at=iso(NOW),
        updated_at=iso(NOW),
        phase=Phase.STARTING,
        sent_to="https://127.0.0.1:6869",
    )
    return msgspec.structs.replace(job, **changes)


def active() -> PrintJob:
    return model.conclude(starting(), TAKEN, NOW)


def ended(by: DecidedBy) -> PrintJob:
    """Return a job that ended by this source. If the terminal or an operator reported the end, it is COMPLETED."""
    match by:
        case DecidedBy.REFUSAL:
            return model.conclude(starting(), StartRefused(422, "no paper"), NOW)
        case DecidedBy.UNSENT:
            return model.conclude(starting(), NotSent("connection refused"), NOW)
        case DecidedBy.OPERATOR:
            return model.resolved(active(), PrintStatus.COMPLETED, NOW)
        case _:
            return model.take(active(), JobReport("COMPLETED", "job-1"), by, NOW)


def codes(job: PrintJob) -> set[str]:
    return {item.code for item in job.attention}


@pytest.mark.parametrize(
    ("judgement", "phase", "status", "decided_by", "reason"),
    [
        (TAKEN, "active", "PENDING", None, None),
        (JobAccepted(report=JobReport("IN_PROGRESS")), "active", "IN_PROGRESS", None, None),
        (JobAccepted(report=JobReport("QUEUED")), "active", "PENDING", None, None),
        (JobAccepted(report=JobReport("COMPLETED")), "final", "COMPLETED", "poll", None),
        (StartRefused(422, "no paper"), "final", None, "refusal", "the terminal refused it (HTTP 422): no paper"),
        (StartRefused(409, " "), "final", None, "refusal", "the terminal refused it (HTTP 409)"),
        (NotSent("no way"), "final", None, "unsent", "it was not sent: no way"),
        (Doubtful("reset"), "in_doubt", None, None, None),
    ],
    ids=str,
)
def test_each_judgement_has_its_effect_on_a_job(
    judgement: model.Judgement, phase: str, status: str | None, decided_by: str | None, reason: str | None
) -> None:
    job = model.conclude(starting(queued=True), judgement, LATER)
    assert (job.phase, job.status, job.decided_by, job.reason) == (phase, status, decided_by, reason)
    assert codes(job) == ({"in_doubt"} if phase == "in_doubt" else set())
    assert not job.queued
    assert (job.accepted_at is None) == (status is None)
    assert job.updated_at == iso(LATER)


@pytest.mark.parametrize("judgement", [StartRefused(500, ""), NotSent("no way")], ids=["refused", "unsent"])
def test_a_refusal_after_a_callback_is_not_an_end(judgement: model.Judgement) -> None:
    unusable = model.quarantined(starting(), "it is not JSON", NOW)
    job = model.conclude(unusable, judgement, LATER)
    assert (job.phase, job.decided_by, codes(job)) == ("in_doubt", None, {"in_doubt", "quarantined_event"})
    running = model.take(starting(), JobReport("PENDING", "job-1"), DecidedBy.WEBHOOK, NOW)
    assert model.conclude(running, judgement, LATER) == running
    doubtful = model.interrupted(starting(), NOW, in_line=False)
    assert model.conclude(doubtful, judgement, LATER) == doubtful


def test_a_doubt_does_not_withdraw_a_webhook() -> None:
    job = ended(DecidedBy.WEBHOOK)
    assert model.conclude(job, Doubtful("reset"), LATER) == job


def test_the_reply_gives_the_terminals_id_of_the_job() -> None:
    job = model.conclude(starting(), JobAccepted("T-9"), NOW)
    assert (job.terminal_job_id, job.asked_as, active().asked_as) == ("T-9", "T-9", "job-1")
    assert codes(job) == set()
    assert model.conclude(starting(), JobAccepted("job-1"), NOW).terminal_job_id is None
    assert [belongs(job, named) for named in ("job-1", "T-9", "T-8")] == [True, True, False]
    assert [belongs(active(), named) for named in ("job-1", "T-9")] == [True, False]


@pytest.mark.parametrize(
    "job",
    [
        starting(),
        model.conclude(starting(), Doubtful("reset"), NOW),
        model.rebuild(JobReport("COMPLETED", "T-9"), "job-1", NOW),
    ],
    ids=["starting", "in_doubt", "orphan"],
)
def test_any_id_is_accepted_until_a_report_has_the_terminals_own_id(job: PrintJob) -> None:
    assert belongs(job, "T-9")
    job = model.take(job, JobReport("PENDING", "T-9"), DecidedBy.WEBHOOK, NOW)
    assert (job.phase, job.terminal_job_id) == ("active", "T-9")
    assert [belongs(job, named) for named in ("job-1", "T-9", "T-8")] == [True, True, False]


@pytest.mark.parametrize(
    ("named", "own", "attention"),
    [(None, "T-9", set()), ("T-9", "T-9", set()), ("T-8", "T-8", {"id_mismatch"}), ("job-1", None, {"id_mismatch"})],
)
def test_a_reply_with_another_id_than_an_earlier_callback_is_reported(
    named: str | None, own: str | None, attention: set[str]
) -> None:
    called = model.take(starting(), JobReport("COMPLETED", "T-9"), DecidedBy.WEBHOOK, NOW)
    job = model.conclude(called, JobAccepted(named), LATER)
    assert (job.terminal_job_id, codes(job)) == (own, attention)
    assert (job.phase, job.status, job.decided_by) == ("final", "COMPLETED", "webhook")


@every("source", [DecidedBy.WEBHOOK, DecidedBy.POLL])
@every("word", ["PENDING", "IN_PROGRESS", "COMPLETED", "FAILED", "JAMMED"])
@every("phase", ["starting", "in_doubt", "active"])
def test_a_report_on_an_open_job_has_its_effect(phase: str, word: str, source: model.Source) -> None:
    before = {
        "starting": starting(queued=True),
        "in_doubt": model.conclude(starting(), Doubtful("reset"), NOW),
        "active": active(),
    }[phase]
    job = model.take(before, JobReport(word, None, "ref", "E-7", "out of paper"), source, LATER)
    assert job.heard
    assert job.accepted_at == (before.accepted_at or iso(LATER))
    assert not job.queued
    if word in FINALS:
        assert (job.phase, job.status, job.decided_by, job.attention) == ("final", word, source, ())
        error = ("E-7", "out of paper") if word == "FAILED" else (None, None)
        assert (job.error_code, job.error_message) == error
    else:
        assert (job.phase, job.status) == ("active", word if word != "JAMMED" else "PENDING")
        assert job.decided_by is None
        assert codes(job) == ({"unknown_status"} if word == "JAMMED" else set())


def test_a_state_never_goes_back() -> None:
    job = model.take(active(), JobReport("IN_PROGRESS"), DecidedBy.WEBHOOK, NOW)
    assert model.take(job, JobReport("PENDING"), DecidedBy.POLL, LATER) == job


def test_the_end_of_a_job_settles_its_attentions() -> None:
    job = model.stuck(active(), 300, NOW)
    assert codes(job) == {"print_stuck"}
    job = model.take(model.quarantined(job, "no JSON", NOW), JobReport("JAMMED"), DecidedBy.POLL, NOW)
    assert codes(job) == {"print_stuck", "quarantined_event", "unknown_status"}
    assert {PrintAttentionCode(code) for code in codes(job)} < set(SETTLED)
    assert model.take(job, JobReport("COMPLETED"), DecidedBy.POLL, LATER).attention == ()
    resolved = model.resolved(job, PrintStatus.FAILED, LATER)
    assert (resolved.phase, resolved.status, resolved.decided_by) == ("final", "FAILED", "operator")
    assert codes(resolved) == {"quarantined_event", "unknown_status"}


@every("by", list(DecidedBy))
@every("word", ["PENDING", "IN_PROGRESS", "COMPLETED", "FAILED", "JAMMED"])
def test_reports_after_the_end_of_a_job_do_not_change_the_end(by: DecidedBy, word: str) -> None:
    before = ended(by)
    job = model.take(before, JobReport(word, error_code="E-7"), DecidedBy.POLL, LATER)
    assert job.heard
    if by in (DecidedBy.WEBHOOK, DecidedBy.POLL):
        assert (job.status, job.decided_by) == ("COMPLETED", by)
        assert codes(job) == ({"conflicting_final"} if word == "FAILED" else set())
    elif word in FINALS:
        assert (job.status, job.decided_by, job.reason) == (word, "poll", None)
        assert codes(job) == (set() if before.status == word else {"outcome_corrected"})
    elif by in NOT_ACCEPTED:
        assert (job.phase, job.status) == ("active", word if word != "JAMMED" else "PENDING")
        assert (job.decided_by, job.reason) == (None, None)
        assert codes(job) == {"outcome_corrected"} | ({"unknown_status"} if word == "JAMMED" else set())
    else:
        assert (job.phase, job.status, job.decided_by, job.attention) == ("final", "COMPLETED", "operator", ())


def test_the_error_of_a_failure_is_completed_and_not_replaced() -> None:
    job = model.take(active(), JobReport("FAILED"), DecidedBy.POLL, NOW)
    assert (job.error_code, job.error_message) == (None, None)
    job = model.take(job, JobReport("FAILED", error_code="E-7", error_message="jam"), DecidedBy.WEBHOOK, LATER)
    assert (job.decided_by, job.error_code, job.error_message) == ("poll", "E-7", "jam")
    again = model.take(job, JobReport("FAILED", error_code="E-8", error_message="cut"), DecidedBy.WEBHOOK, LATER)
    assert (again.error_code, again.error_message) == ("E-7", "jam")


@pytest.mark.parametrize("by", sorted(NOT_ACCEPTED))
def test_an_unusable_callback_withdraws_the_conclusion_not_accepted(by: DecidedBy) -> None:
    job = model.quarantined(ended(by), "no JSON", LATER)
    assert (job.phase, job.decided_by, job.reason) == ("in_doubt", None, None)
    assert codes(job) == {"in_doubt", "quarantined_event", "outcome_corrected"}


def test_an_unusable_callback_does_not_withdraw_a_report_or_a_decision() -> None:
    for by in (DecidedBy.WEBHOOK, DecidedBy.OPERATOR):
        job = model.quarantined(ended(by), "no JSON", LATER)
        assert (job.phase, job.decided_by, codes(job)) == ("final", by, {"quarantined_event"})


def test_a_restart_puts_a_starting_job_in_doubt() -> None:
    sent = model.interrupted(starting(), LATER, in_line=False)
    assert (sent.phase, codes(sent)) == ("in_doubt", {"in_doubt"})
    waiting = model.interrupted(starting(queued=True), LATER, in_line=True)
    assert (waiting.phase, waiting.decided_by, waiting.queued) == ("final", "unsent", False)
    heard = model.interrupted(model.quarantined(starting(queued=True), "no JSON", NOW), LATER, in_line=True)
    assert heard.phase == "in_doubt"


def test_a_waiting_job_is_sent_to_the_present_address() -> None:
    waiting = starting(queued=True)
    assert (model.turn(waiting, None, LATER).queued, model.turn(waiting, None, LATER).sent_to) == (
        False,
        waiting.sent_to,
    )
    assert model.turn(waiting, "https://192.0.2.9", LATER).sent_to == "https://192.0.2.9"
    orphan = starting(sent_to=None)
    assert model.turn(orphan, "https://192.0.2.9", LATER).orphan, "a restore found only the journal of the job"


def test_only_an_open_job_updates_its_terminal() -> None:
    assert (starting().updates_terminal, ended(DecidedBy.POLL).updates_terminal) == (True, False)


def test_only_an_accepted_job_can_be_stuck() -> None:
    for job in (starting(), model.conclude(starting(), Doubtful("reset"), NOW), ended(DecidedBy.POLL)):
        assert model.stuck(job, 300, LATER) == job
    assert "(unknown)" in model.stuck(msgspec.structs.replace(active(), terminal=None), 1, LATER).attention[0].detail


def test_an_attention_keeps_its_first_time_and_is_acknowledged_by_an_operator() -> None:
    job = model.quarantined(model.quarantined(active(), "first", NOW), "second", LATER)
    (attention,) = job.attention
    assert attention.since == iso(NOW)
    assert attention.detail.endswith("second")
    assert model.dismissed(job, PrintAttentionCode.QUARANTINED_EVENT, LATER).attention == ()


def test_an_orphan_is_rebuilt_from_its_webhook() -> None:
    orphan = model.rebuild(JobReport("COMPLETED", "job-1", "ticket 7"), "job-1", NOW)
    assert (orphan.orphan, orphan.terminal, orphan.external_reference) == (True, None, "ticket 7")
    job = model.take(orphan, JobReport("COMPLETED", "job-1"), DecidedBy.WEBHOOK, NOW)
    assert (job.status, job.decided_by, codes(job)) == ("COMPLETED", "webhook", {"orphan"})
    assert not starting().orphan


def test_a_job_that_a_restore_could_not_read_is_in_doubt() -> None:
    job = model.taken_over(starting(terminal=None, sent_to=None), "no more than its id could be read", LATER)
    assert (job.phase, job.heard, codes(job)) == ("in_doubt", True, {"in_doubt", "orphan"})

"""A fault of posd during a wait is not an outcome of the payment. The command continues to wait. After a lasting fault
the payment counts as open (exit 4).
"""

import json
import time
from decimal import Decimal
from pathlib import Path

import pytest

from posd.cli.app.connection import Api, Problem
from posd.cli.app.outcome import TimedOut, start
from tests.cli.documents import COMPLETED, ID, JOB, answer, attention, outcome, print_job, transaction
from tests.cli.processes import asked, posd
from tests.cli.stub import Answer, Stub, problem
from tests.support.tables import every

FULL = problem(503, "storage_unavailable", "the disk is full")
FAULT = problem(500, "internal_error", "a fault")
GONE = problem(404, "not_found", "no such payment", ',"never_started":true')
FOREIGN = Answer(200, b"<html>", "text/html")
STOPPING = problem(503, "draining", "stopping")

ACTIVE = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED", next_step="wait")
RUNS = answer(ACTIVE, 201)
APPROVED = transaction(outcome=outcome("approved", {"kind": "event", "event_id": "e-1"}), next_step="done")
END = Answer(200, b"event: outcome\ndata: {}\n\n", "text/event-stream")
CHARGE = ("charge", "5", "--id", ID)
AWAIT = ("await", ID)
PRINT = ("print", __file__, "--id", JOB)
WAIT_FOR_PRINT = ("print-jobs", JOB, "--wait")
NO_MORE = "Do not start this payment again before you know its outcome."
NO_PRINT = "Do not print it again under another id before you know the result."


#: Command that waits -> responses before the fault.
WAITING = {CHARGE: [RUNS], AWAIT: [RUNS], PRINT: [answer(print_job(), 201)]}


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", WAITING, ids=lambda command: command[0])
@pytest.mark.parametrize("trouble", [FULL, FAULT], ids=["full", "fault"])
def test_a_wait_continues_over_temporary_faults(command: tuple[str, ...], trouble: Answer) -> None:
    script = [RUNS, trouble, answer(ACTIVE), trouble, answer(ACTIVE), END, trouble, answer(APPROVED)]
    if command is PRINT:
        script = [*WAITING[PRINT], trouble, trouble, answer(print_job(), 202), trouble, answer(COMPLETED)]
    done = asked(script, *command)
    assert done.returncode == 0, done.stderr
    waits = "print job" if command is PRINT else "payment"
    for said in (f"posd does not answer; waiting for it (the {waits} goes on): ", "posd is back"):
        assert said in done.stdout


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", WAITING, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [(FAULT, "a fault"), (GONE, "no such payment"), (FOREIGN, "is not posd's")],
    ids=["fault", "gone", "foreign"],
)
def test_after_a_permanent_fault_the_payment_counts_as_open(
    command: tuple[str, ...], trouble: Answer, words: str
) -> None:
    done = asked([*WAITING[command], *[trouble] * 100], *command)
    assert done.returncode == 4, done.stderr
    for each in (words, "Its outcome is not known", NO_PRINT if command is PRINT else NO_MORE):
        assert each in done.stderr


@every("trouble", [FULL, FAULT, FOREIGN], ["full", "fault", "foreign"])
@every(
    ("command", "words"),
    [
        (AWAIT, [f"posd await {ID}", "Do not start this transaction again before you know its outcome."]),
        ((*AWAIT, "--json"), []),
        (WAIT_FOR_PRINT, [NO_PRINT]),
    ],
)
def test_an_unreadable_payment_is_not_reported_as_failed(
    command: tuple[str, ...], words: list[str], trouble: Answer
) -> None:
    done = asked([trouble], *command)
    assert (done.returncode, [each for each in words if each not in done.stderr]) == (4, [])
    assert "Its outcome is not known" in done.stderr


def test_an_unknown_payment_is_refused_and_a_missing_posd_is_unreachable() -> None:
    unknown, stopping = asked([GONE], *AWAIT), asked([STOPPING], *AWAIT)
    assert (unknown.returncode, stopping.returncode) == (1, 3)
    assert unknown.stderr == "posd: no such payment\n  more about it: posd explain not_found\n"


@every(
    ("arguments", "left", "code"),
    [
        (AWAIT, {"result": "approved"}, 0),
        (AWAIT, {"result": "declined"}, 1),
        (AWAIT, {"result": "of a newer posd"}, 4),
        (CHARGE, {"result": "approved"}, 4),
        (WAIT_FOR_PRINT, {"print_status": "COMPLETED"}, 0),
        (WAIT_FOR_PRINT, {"print_status": None}, 1),
    ],
)
def test_a_wait_for_a_removed_payment_gets_its_result(
    arguments: tuple[str, ...], left: dict[str, str | None], code: int
) -> None:
    """A start counts as open, because the removed payment may belong to another sale."""
    pruned = problem(410, "pruned", "used before; it ended so", "," + json.dumps(left).strip("{}"))
    done, program = asked([pruned], *arguments), asked([pruned], *arguments, "--json")
    assert (done.returncode, program.returncode, program.document["code"]) == (code, code, "pruned")
    assert "used before; it ended so" in done.stderr


@every(
    ("reply", "words"),
    [
        (Answer(201, b"<html>"), "is not posd's"),
        (Answer(201, b'{"phase":'), "is not posd's"),
        (Answer(404, b"<html>", "text/html"), "is not posd's"),
        (FAULT, "a fault"),
    ],
)
def test_a_start_with_an_unreadable_response_may_have_started(reply: Answer, words: str) -> None:
    done = asked([reply], *CHARGE)
    assert done.returncode == 4, done.stderr
    for each in (words, "The payment may have started; if so, it goes on.", NO_MORE, f"posd await {ID}"):
        assert each in done.stderr


def test_a_charge_without_a_response_is_not_reported_as_running() -> None:
    done = asked([Answer(cut=True), problem(422, "invalid_request", "the request is wrong")], "charge", "1")
    assert ("may have started" in done.stdout, "goes on" in done.stdout) == (True, False)


def test_a_result_of_a_newer_posd_is_not_reported_as_a_refusal() -> None:
    newer = answer(transaction(outcome=outcome("approved_in_part", {"kind": "event", "event_id": "e-1"})))
    done, program = asked([newer], *AWAIT), asked([newer], *AWAIT, "--json")
    assert (done.returncode, program.returncode) == (4, 4)
    assert "approved_in_part" in done.stdout
    assert program.document["outcome"]["result"] == "approved_in_part"


# Messages for a call that did not reach posd, and for a call in doubt.


def test_for_a_given_id_only_this_call_is_reported_to_have_started_nothing(tmp_path: Path) -> None:
    """An earlier call with the same id may have started the payment."""
    away = {"config": tmp_path / "none.toml", "socket": tmp_path / "none"}
    fresh, again = posd("charge", "5", **away), posd(*CHARGE, **away)
    new, printed = posd("print", __file__, **away), posd(*PRINT, **away)
    assert {done.returncode for done in (fresh, again, new, printed)} == {3}
    assert "Nothing was started." in fresh.stderr
    assert "Nothing was sent to the printer." in new.stderr
    assert "Nothing was" not in again.stderr + printed.stderr
    assert "This call started nothing, but an earlier one with the same --id may have." in again.stderr
    assert "This call sent nothing to the printer, but an earlier one with the same --id may have." in printed.stderr


@every("phase", ["starting", "in_doubt"])
def test_a_start_in_doubt_is_not_reported_as_started(phase: str) -> None:
    doubt = answer(transaction(phase=phase, attention=[attention("no_answer", "it did not answer")]), 201)
    done, program = (asked([doubt], *CHARGE, "--no-wait", *more) for more in ((), ("--json",)))
    assert (done.returncode, program.returncode, program.document["phase"]) == (4, 4, phase)
    assert "started on" not in done.stdout
    assert "The payment may have started; if so, it goes on." in done.stderr
    assert NO_MORE in done.stderr


@every("body", [b'{"of":"a newer posd"}', b"[]"])
@every("arguments", [CHARGE, AWAIT, PRINT[:2], WAIT_FOR_PRINT, ("show", ID)])
def test_an_unreadable_response_is_not_a_refusal(arguments: tuple[str, ...], body: bytes) -> None:
    done = asked([Answer(201, body)] * 8, *arguments)
    reads = arguments[0] == "show"
    assert done.returncode == (1 if reads else 4), done.stderr
    assert reads or "a fault of posd itself" in done.stderr
    assert reads or "Whether it was done is not known" in done.stderr


# The call that starts a payment.


REQUEST = {"amount": {"subtotal_iva0": Decimal("10.10")}}


def test_a_start_without_a_response_is_repeated_unchanged(tmp_path: Path) -> None:
    away: list[str] = []
    with Stub(tmp_path / "s", [Answer(cut=True), STOPPING, RUNS]) as stub, Api(stub.socket) as api:
        reply = start(api, "/transactions/x", REQUEST, deadline=None, away=away.append)
    assert (reply.status, len(stub.calls)) == (201, 3)
    assert len({(call.method, call.path, call.body) for call in stub.calls}) == 1
    assert away[1] == "stopping"


@every("refusal", [problem(409, "terminal_busy", "busy"), STOPPING])
def test_a_refused_start_is_not_repeated(tmp_path: Path, refusal: Answer) -> None:
    with Stub(tmp_path / "s", [refusal]) as stub, Api(stub.socket) as api, pytest.raises(Problem):
        start(api, "/transactions/x", REQUEST, deadline=None, away=lambda _: None)
    assert len(stub.calls) == 1


def test_a_start_without_a_response_stops_at_the_deadline(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [Answer(cut=True)]) as stub, Api(stub.socket) as api, pytest.raises(TimedOut):
        start(api, "/transactions/x", REQUEST, deadline=time.monotonic(), away=lambda _: None)


def test_a_failing_health_is_a_response_and_a_draining_daemon_is_a_problem(tmp_path: Path) -> None:
    script = [Answer(503, b'{"status":"failing"}'), STOPPING]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        assert api.get("/health", also={503}).body == {"status": "failing"}
        with pytest.raises(Problem, match="stopping"):
            api.get("/health", also={503})

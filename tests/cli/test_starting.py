"""`posd charge` and similar commands: requests, commands after a refusal, the end of a wait, and faults of posd."""

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from posd.cli.app.connection import Api, Problem
from posd.cli.payments.words import operation
from tests.rig.commands import FILE_TO_PRINT, asked, check, posd
from tests.rig.documents import COMPLETED, ID, JOB, OTHER_ID, answer, attention, outcome, print_job, transaction
from tests.rig.stub import Answer, Stub, problem
from tests.rig.tables import every

NEW_ID = "7f3c0000-0000-4000-8000-0000000000ff"

#: Command -> type in the API, and noun in sentences.
TYPES = {
    "charge": ("charge", "payment"),
    "preauth": ("pre-auth", "pre-authorization"),
    "reauth": ("re-auth", "re-authorization"),
    "capture": ("capture", "capture"),
    "tip": ("post-tip", "tip"),
    "void": ("void", "void"),
}


def final(kind: str, result: str = "approved", **fields: Any) -> list[Answer]:
    """Return the response for an operation that has ended."""
    done = result == "approved"
    ended = outcome(result, {"kind": "event", "event_id": "e-1"}, reached_acquirer=done, **fields)
    return [answer(transaction(type=kind, outcome=ended, next_step="done" if done else "new_id_ok"), 201)]


@every(("line", "body"), tomllib.loads(Path(__file__).with_name("starts.toml").read_text()).items())
def test_the_typed_values_are_sent(line: str, body: str) -> None:
    kind, _ = TYPES[line.split()[0]]
    [call] = asked(final(kind), *shlex.split(line), "--id", NEW_ID).ends(0).calls
    assert (call.method, call.path) == ("PUT", f"/v1/transactions/{NEW_ID}")
    assert json.loads(call.body, parse_float=str) == {"type": kind} | json.loads(body, parse_float=str)


TWO = f',"transactions":["{ID}","{OTHER_ID}"]'
SHOW_BOTH = f"  posd show {ID}\n  posd show {OTHER_ID}\n"
MEANT = 'If it is meant, say so with \\"additional\\": true'
WRONG_TIP = ',"errors":[{"path":"/amount/tip","message":"too long"}]'


@every(
    ("refusal", "told"),
    [
        (problem(409, "already_derived", MEANT, TWO), f"If it is meant, say so with --additional\n{SHOW_BOTH}"),
        (problem(422, "amount_exceeds", "too much", TWO), f"too much\n{SHOW_BOTH}"),
        (problem(422, "unknown_original", "give it as `transaction_reference`"), "give it as --reference UUID\n"),
        (problem(409, "terminal_busy", "wait", f',"blocking_transaction":"{ID}"'), f"wait\n  posd show {ID}\n"),
        (problem(422, "invalid_request", "it is wrong", WRONG_TIP), "it is wrong\n  /amount/tip: too long\n"),
    ],
)
def test_a_refusal_shows_the_commands(refusal: Answer, told: str) -> None:
    document = json.loads(refusal.body)
    code = 2 if document["status"] == 422 else 1
    said = f"Nothing was started.\nposd: {told}  more about it: posd explain {document['code']}\n"
    check(f"capture {NEW_ID} 5", [refusal], code, said, as_json=True)


@every("command", TYPES)
def test_an_operation_is_named_by_its_type(command: str) -> None:
    """After a lost response, or at the end of a wait, the operation is open. A decline says what is unchanged."""
    kind, noun = TYPES[command]
    line = (
        f"{command} {'' if command in ('charge', 'preauth') else ID} {'' if command == 'void' else '5'} --id {NEW_ID}"
    )
    lost = f"posd: a fault in {{this one}}\nThe {noun} may have started; if so, it goes on."
    check(line, [problem(500, "internal_error", "a fault in {this one}")], 4, lost, f"posd await {NEW_ID}")
    check(line, final(kind, "declined"), 1, operation(kind).undone, "next: To try again, start a new ")
    running = transaction(client_transaction_id=NEW_ID, type=kind, phase="active", status="TERMINAL_ACKNOWLEDGED")
    script = [answer(running, 201), answer(running), Answer(200, b"", "text/event-stream")]
    cut, program = (asked(script, *shlex.split(line), "--timeout", "0", *more).ends(4) for more in ((), ("--json",)))
    open_ = [f"Still open; the {noun} goes on.", f"Do not start this {noun} again before you know its outcome."]
    cut.ends(4, *open_, f"posd await {NEW_ID}", f"posd abort {NEW_ID}")
    assert program.document["outcome"] is None


def test_a_void_says_whether_it_was_a_cancellation_or_a_refund() -> None:
    told = {"cancellation": "a cancellation", "refund": "a refund", None: "posd does not know whether"}
    for reversal, words in told.items():
        done = asked(final("void", reversal=reversal), "void", ID).ends(0)
        assert [words in line for line in done.lines if line.startswith("result: The original was reversed")] == [True]


# A fault of posd during a wait is not an outcome of the payment. After a lasting fault the payment counts as open.


FULL = problem(503, "storage_unavailable", "the disk is full")
FAULT = problem(500, "internal_error", "a fault")
GONE = problem(404, "not_found", "no such payment", ',"never_started":true')
FOREIGN = Answer(200, b"<html>", "text/html")
STOPPING = problem(503, "draining", "stopping")
WRONG = problem(422, "invalid_request", "the request is wrong")

ACTIVE = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED", next_step="wait")
RUNS = answer(ACTIVE, 201)
EVENT = {"kind": "event", "event_id": "e-1"}
APPROVED = transaction(outcome=outcome("approved", EVENT), next_step="done")
END = Answer(200, b"event: outcome\ndata: {}\n\n", "text/event-stream")
CHARGE, AWAIT, PRINT = f"charge 5 --id {ID}", f"await {ID}", f"print {FILE_TO_PRINT} --id {JOB}"
WAIT_FOR_PRINT = f"print-jobs {JOB} --wait"
NO_MORE = "Do not start this payment again before you know its outcome."
NO_PRINT = "Do not print it again under another id before you know the result."
UNKNOWN, MAY_RUN = "Its outcome is not known", "The payment may have started; if so, it goes on."

#: Command that waits -> responses before the fault.
WAITING = {CHARGE: [RUNS], AWAIT: [RUNS], PRINT: [answer(print_job(), 201)]}


@pytest.mark.quick(2)
@pytest.mark.parametrize("line", WAITING)
@pytest.mark.parametrize("trouble", [FULL, FAULT], ids=["full", "fault"])
def test_a_wait_continues_over_temporary_faults(line: str, trouble: Answer) -> None:
    script = [RUNS, trouble, answer(ACTIVE), trouble, answer(ACTIVE), END, trouble, answer(APPROVED)]
    if line is PRINT:
        script = [*WAITING[PRINT], trouble, trouble, answer(print_job(), 202), trouble, answer(COMPLETED)]
    waits = "print job" if line is PRINT else "payment"
    check(line, script, 0, f"posd does not answer; waiting for it (the {waits} goes on): ", "posd is back")


@pytest.mark.quick(2)
@pytest.mark.parametrize("line", WAITING)
@pytest.mark.parametrize(
    ("trouble", "words"), [(FAULT, "a fault"), (GONE, "no such payment"), (FOREIGN, "is not posd's")]
)
def test_after_a_permanent_fault_the_payment_counts_as_open(line: str, trouble: Answer, words: str) -> None:
    done = asked([*WAITING[line], *[trouble] * 100], *shlex.split(line))
    done.ends(4, words, UNKNOWN, NO_PRINT if line is PRINT else NO_MORE)


@every("trouble", [FULL, FAULT, FOREIGN], ["full", "fault", "foreign"])
def test_an_unreadable_payment_is_not_reported_as_failed(trouble: Answer) -> None:
    check(AWAIT, [trouble], 4, UNKNOWN, AWAIT, NO_MORE.replace("payment", "transaction"))
    check(f"{AWAIT} --json", [trouble], 4, UNKNOWN)
    check(WAIT_FOR_PRINT, [trouble], 4, UNKNOWN, NO_PRINT)


def test_an_unknown_payment_and_a_missing_posd_have_different_exit_codes() -> None:
    check(AWAIT, [GONE], 1, "posd: no such payment\n  more about it: posd explain not_found\n")
    check(AWAIT, [STOPPING], 3)


@every(
    ("line", "left", "code"),
    [
        (AWAIT, {"result": "approved"}, 0),
        (AWAIT, {"result": "declined"}, 1),
        (AWAIT, {"result": "of a newer posd"}, 4),
        (CHARGE, {"result": "approved"}, 4),
        (WAIT_FOR_PRINT, {"print_status": "COMPLETED"}, 0),
        (WAIT_FOR_PRINT, {"print_status": None}, 1),
    ],
)
def test_a_wait_for_a_removed_payment_gets_its_result(line: str, left: dict[str, str | None], code: int) -> None:
    """A start counts as open, because the removed payment may belong to another sale."""
    pruned = problem(410, "pruned", "used before; it ended so", "," + json.dumps(left).strip("{}"))
    check(line, [pruned], code, "used before; it ended so", as_json=True)


def test_a_start_with_an_unreadable_response_may_have_started() -> None:
    for reply in (Answer(201, b"<html>"), Answer(201, b'{"phase":'), Answer(404, b"<html>", "text/html")):
        check(CHARGE, [reply], 4, "is not posd's", MAY_RUN, NO_MORE, AWAIT)
    check(CHARGE, [FAULT], 4, "a fault", MAY_RUN, NO_MORE, AWAIT)
    check("charge 1", [Answer(cut=True), WRONG], 4, "may have started", lacks=["goes on"])


def test_neither_a_doubt_nor_an_unknown_result_is_reported_as_certain() -> None:
    for phase in ("starting", "in_doubt"):
        doubt = answer(transaction(phase=phase, attention=[attention("no_answer", "it did not answer")]), 201)
        check(f"{CHARGE} --no-wait", [doubt], 4, MAY_RUN, NO_MORE, lacks=["started on"], as_json=True)
    newer = answer(transaction(outcome=outcome("approved_in_part", EVENT)))
    check(AWAIT, [newer], 4, "approved_in_part", as_json=True)


# Messages for a call that did not reach posd, and for a call in doubt.


def test_with_a_given_id_the_message_says_that_an_earlier_call_may_have_been_sent(tmp_path: Path) -> None:
    """An earlier call with the same id may have started the payment."""
    earlier = "but an earlier one with the same --id may have."
    for line, nothing in ((CHARGE, "Nothing was started."), (PRINT, "Nothing was sent to the printer.")):
        words = shlex.split(line)
        posd(*words[:2], socket=tmp_path / "none").ends(3, nothing, lacks=[earlier])
        posd(*words, socket=tmp_path / "none").ends(3, earlier, lacks=["Nothing was"])


@every("body", [b'{"of":"a newer posd"}', b"[]"])
@every("line", [CHARGE, AWAIT, f"print {FILE_TO_PRINT}", WAIT_FOR_PRINT, f"show {ID}"])
def test_an_unreadable_response_is_not_a_refusal(line: str, body: bytes) -> None:
    done = asked([Answer(201, body)] * 8, *shlex.split(line))
    told = ("a fault of posd itself", "posd cannot tell whether this was done")
    done.ends(1) if line.startswith("show") else done.ends(4, *told)


# The call that starts a payment.


def test_only_a_start_without_a_response_is_repeated_unchanged_until_the_deadline() -> None:
    done = asked([Answer(cut=True), STOPPING, *final("charge")], *shlex.split(CHARGE)).ends(0)
    assert (len(done.calls), len({(call.method, call.path, call.body) for call in done.calls})) == (3, 1)
    check(CHARGE, [STOPPING], 3)
    check(f"{CHARGE} --timeout 0", [Answer(cut=True)], 4, MAY_RUN)


def test_failing_health_is_a_response_but_a_stopping_daemon_is_a_problem(tmp_path: Path) -> None:
    script = [Answer(503, b'{"status":"failing"}'), STOPPING]
    with Stub(tmp_path / "s", script) as stub, Api(stub.socket) as api:
        assert api.get("/health", also={503}).body == {"status": "failing"}
        with pytest.raises(Problem, match="stopping"):
            api.get("/health", also={503})

"""Operators' commands on a payment: the question, the screen before the question, and the request of the contract."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from posd.base.files import login_name, user_name
from posd.cli.payments.words import meaning
from tests.cli.documents import COMPLETED, ID, JOB, OTHER_ID, answer, attention, outcome, print_job, transaction
from tests.cli.processes import asked, asked_on_terminal, posd
from tests.cli.stub import Answer, Stub, problem
from tests.support.tables import every

BY_ANA = ("--operator", "Ana", "--note", "the slip says so", "--yes")
SAID = {"operator": "Ana", "note": "the slip says so"}
APPROVED = outcome("approved", {"kind": "event", "event_id": "e-1"}, status="APPROVAL", reached_acquirer=True)
CONFLICT = attention("conflicting_final", "two finals: APPROVAL (reference a) stands, DECLINED arrived after it")
AT = "2026-11-20T14:02:11.123Z"

# Reconcile.

#: posd knows which device is the terminal.
SURE = answer({"serial": "SN-0001", "identity": {"conflict": False}})
CONFLICTING = answer({"identity": {"conflict": True}})
REMOVED = problem(404, "not_found", "cannot find it")


def test_reconcile_of_a_forgotten_payment_names_the_command_for_a_person() -> None:
    """The text does not suggest a wait for a customer who has left."""
    search = {"at": AT, "result": "none"}
    found = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED", next_step="ask_person", last_search=search)
    done = asked([answer(found), SURE], "reconcile", ID)
    assert "present the card" not in done.stdout
    assert "still open (no outcome, started " in done.stdout
    assert "to settle it\n" in done.stdout
    assert f"    posd reconcile {ID}\n    posd release {ID}\n    posd resolve {ID} RESULT\n" in done.stdout
    done = asked([answer(found | {"attention": [attention("address_changed")]}), SURE], "reconcile", ID)
    assert "to settle it" not in done.stdout  # the attention has the advice
    assert f"    posd resolve {ID} RESULT\n" in done.stdout


@every(
    ("result", "terminal", "first", "words"),
    [
        ("found", SURE, "The terminal knows this payment", ""),
        ("none", SURE, "The terminal answered", "That alone proves nothing"),
        ("no_answer", SURE, "The terminal gave no usable answer", "does not show whether the customer was charged"),
        ("none", CONFLICTING, "The device", "it may not be terminal SN-0001"),
        *(
            (result, REMOVED, "Terminal SN-0001 is no longer in the configuration", "whether the customer was charged")
            for result in ("none", "no_answer")
        ),
    ],
)
def test_reconcile_shows_the_result_and_the_next_step_and_exits_4_while_open(
    result: str, terminal: Answer, first: str, words: str
) -> None:
    """The terminal may not have received the search. The text does not say that the terminal replied."""
    found = transaction(last_search={"at": AT, "result": result}, next_step="wait")
    done = asked([answer(found), terminal], "reconcile", ID)
    more = [] if result == "found" else [("GET", "/terminals/SN-0001", None)]
    assert done.sent == [("POST", f"/transactions/{ID}/reconcile", None), *more]
    assert (done.returncode, done.stderr, done.stdout.startswith(first)) == (4, "", True), done.stdout
    for each in (words, "still open (in doubt, started ", "next: Wait for the outcome."):
        assert each in done.stdout


@every(("result", "code"), [("approved", 0), ("declined", 1)])
def test_reconcile_of_a_payment_that_ended_exits_by_its_outcome(result: str, code: int) -> None:
    ended = transaction(outcome=outcome(result, {"kind": "search"}), last_search={"at": AT, "result": "found"})
    assert asked([answer(ended)], "reconcile", ID).returncode == code


# Requests of the commands release, resolve and acknowledge.


RELEASED = transaction(released=True, attention=[attention("released", "by Ana")])
CLOSED = {
    result: transaction(outcome=outcome(result, {"kind": "operator", **SAID}, reached_acquirer=None), next_step="done")
    for result in ("approved", "not_started")
}
LEFT = transaction(outcome=APPROVED, attention=[attention("amount_differs", "asked for 11.20, authorized 11.00")])
PRINTED = print_job(status="COMPLETED", decided_by="operator")
MARKED = COMPLETED | {"attention": [attention("orphan", "it was not known")]}
OF_PRINT_JOB = ("acknowledge", JOB, "--print-job", "outcome_corrected")
BOTH = {"result": "approved", "transaction_reference": OTHER_ID}


@every(
    ("arguments", "body", "document", "words"),
    [
        (
            ("release", ID),
            {},
            RELEASED,
            ("posd does not know yet whether the customer was charged", f"posd resolve {ID} RESULT"),
        ),
        *(
            (
                ("resolve", ID, result),
                {"result": result, "transaction_reference": None},
                document,
                (": by Ana, note: the slip says so", f"result: {meaning(document)[1]}"),
            )
            for result, document in CLOSED.items()
        ),
        (
            ("resolve", ID, "approved", "--reference", OTHER_ID.upper()),
            BOTH,
            CLOSED["approved"],
            ("By an operator's decision",),
        ),
        (("acknowledge", ID, "gap"), {"code": "gap"}, LEFT, ("gap is cleared.", "attention amount_differs: asked for")),
        (
            ("resolve", JOB, "COMPLETED"),
            {"result": "COMPLETED"},
            PRINTED,
            ("An operator recorded that the document is printed.",),
        ),
        (OF_PRINT_JOB, {"code": "outcome_corrected"}, MARKED, (f"    posd acknowledge --print-job {JOB} orphan",)),
    ],
)
def test_a_decision_in_a_script_is_sent_and_shown(
    arguments: tuple[str, ...], body: dict[str, Any], document: dict[str, Any], words: tuple[str, ...]
) -> None:
    done, program = (asked([answer(document)], *arguments, *BY_ANA, *more) for more in ((), ("--json",)))
    kind = "print-jobs" if arguments[1] == JOB else "transactions"
    assert done.sent == program.sent == [("POST", f"/{kind}/{arguments[1]}/{arguments[0]}", body | SAID)]
    assert (done.returncode, done.stderr) == (program.returncode, program.stderr) == (0, "")
    assert [each for each in words if each not in done.stdout] == []
    assert program.document == document


def test_resolve_sends_the_data_of_a_payment_that_a_restore_lost() -> None:
    given = ("--amount", "11.20", "--terminal", "SN-0001", "--type", "refund", "--original", OTHER_ID, "--sale", "s-1")
    done = asked([answer(transaction(phase="final", outcome=APPROVED))], "resolve", ID, "approved", *given, *BY_ANA)
    assert done.returncode == 0
    [(_, _, body)] = done.sent
    assert b'"subtotal_iva0":11.20' in done.calls[0].body
    assert body | {"terminal": "SN-0001", "type": "refund", "original": OTHER_ID, "sale": "s-1"} == body


@every(("arguments", "code"), [((), 1), (("--amount", "11.20"), 0)])
def test_a_person_sees_that_posd_has_no_record_before_creating_one(arguments: tuple[str, ...], code: int) -> None:
    gone = problem(404, "not_found", "no transaction is known here", ',"never_started":false')
    script = [gone, answer(transaction(phase="final", outcome=APPROVED))]
    seen = asked_on_terminal(script, "resolve", ID, "approved", *arguments, "--note", "x", types="y\n")
    assert seen.returncode == code, seen.screen
    assert [call.method for call in seen.calls] == ["GET", *(["POST"] if arguments else [])]
    assert r"\n" not in seen.screen


# Refusals.


@every("arguments", [("release", ID), ("resolve", ID, "declined"), ("resolve", JOB, "FAILED"), OF_PRINT_JOB])
@every(
    ("refusal", "code"),
    [
        (problem(409, "already_final", "cannot release: it has already ended (approved)"), 1),
        (problem(404, "not_found", "no transaction is known here; check the id"), 1),
        (problem(403, "forbidden", "this call is for operators: use the admin socket"), 2),
        (Answer(cut=True), 3),
    ],
)
def test_a_refusal_shows_the_daemons_text_and_after_a_lost_response_success_is_possible(
    arguments: tuple[str, ...], refusal: Answer, code: int
) -> None:
    done = asked([refusal], *arguments, *BY_ANA)
    assert done.returncode == code
    assert json.loads(refusal.body).get("detail", "") in done.stderr
    see = "print-jobs" if arguments[1] == JOB else "show"
    lost = f"posd may have done this nevertheless. See:  posd {see} {arguments[1]}"
    assert (lost in done.stderr) == refusal.cut


def test_an_operator_who_uses_the_tills_socket_by_a_variable_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = problem(403, "forbidden", "this call is for operators: use the admin socket")
    with Stub(tmp_path / "s", [refusal, refusal]):
        named = posd("release", ID, *BY_ANA, socket=tmp_path / "s")
        monkeypatch.setenv("POSD_SOCKET", str(tmp_path / "s"))
        led = posd("release", ID, *BY_ANA)
    assert (named.returncode, led.returncode) == (2, 2)
    assert f"POSD_SOCKET is set in this shell and names {tmp_path / 's'}" in led.stderr
    assert "unset POSD_SOCKET" in led.stderr
    assert "POSD_SOCKET" not in named.stderr


# The operator.


def operator() -> str:
    """Return the recorded operator of a release by this process."""
    [(_, _, body)] = asked([answer(transaction())], "release", ID, "--note", "x").sent
    return str(body["operator"])


def test_the_operator_is_the_calling_user_for_any_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id in a container often has no name."""
    for name in ("SUDO_USER", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert operator() == user_name(os.getuid())
    nameless = next(uid for uid in range(4242, 60_000) if login_name(uid) is None)
    with monkeypatch.context() as patched:
        patched.setattr(os, "getuid", lambda: nameless)
        assert operator() == str(nameless)
    monkeypatch.setenv("SUDO_USER", "berta")
    assert operator() == "berta"


# Commands on a terminal.


def test_release_on_a_terminal_shows_the_payment_and_asks_for_a_note_and_a_confirmation() -> None:
    script = [answer(transaction(attention=[attention("in_doubt", "no answer")])), answer(transaction(released=True))]
    seen = asked_on_terminal(script, "release", ID, "--operator", "Ana", types=" \nit hangs \ny\n")
    assert (seen.returncode, seen.fits()) == (0, True), seen.screen
    assert seen.sent == [
        ("GET", f"/transactions/{ID}", None),
        ("POST", f"/transactions/{ID}/release", {"operator": "Ana", "note": "it hangs"}),
    ]
    for part in ("SN-0001", "11.20", "in doubt", "It does not decide whether the", f"    posd abort {ID}\n", "[y/N]"):
        assert part in seen.screen


COUNTS_AS = "books the payment as {}: the customer counts as"


@every(
    ("result", "words"),
    [
        ("approved", f"{COUNTS_AS} charged."),
        ("canceled", f"{COUNTS_AS} not charged, and the till may start it again."),
    ],
)
def test_resolve_on_a_terminal_explains_the_decision_and_a_no_changes_nothing(result: str, words: str) -> None:
    seen = asked_on_terminal([answer(transaction(abortable=False))], "resolve", ID, result, "--note", "x", types="n\n")
    assert (seen.returncode, [call.method for call in seen.calls]) == (1, ["GET"])
    for each in (words.format(result), "A later report of the terminal overrides it.", "Nothing was changed."):
        assert each in seen.words
    assert ("Without --reference" in seen.words) == (result == "approved")
    assert "posd abort" not in seen.words


def test_acknowledge_on_a_terminal_shows_why_the_attention_is_open() -> None:
    conflict = transaction(outcome=APPROVED, attention=[CONFLICT, attention("gap", "an event is missing")])
    script = [answer(conflict), answer(transaction(outcome=APPROVED))]
    seen = asked_on_terminal(script, "acknowledge", ID, "conflicting_final", "--note", "x", types="y\n")
    assert (seen.returncode, [call.method for call in seen.calls]) == (0, ["GET", "POST"]), seen.screen
    assert "two finals: APPROVAL" in seen.screen
    assert "an event is missing" not in seen.screen


@every(
    ("arguments", "why"),
    [
        (("release", ID), "cannot release it: it has already ended (approved)"),
        (("resolve", ID, "declined"), "cannot resolve it: it has already ended (approved)"),
        (("acknowledge", ID, "gap"), "it is not open for"),
        (("resolve", JOB, "FAILED", "--note", "x"), "cannot resolve it: it has already ended (printed)"),
        ((*OF_PRINT_JOB, "--note", "x"), f"it is not open for {JOB} (open: none)"),
    ],
)
def test_a_closed_decision_causes_no_question(arguments: tuple[str, ...], why: str) -> None:
    document = COMPLETED if arguments[1] == JOB else transaction(outcome=APPROVED)
    seen = asked_on_terminal([answer(document)], *arguments, types="x\ny\n")
    assert (seen.returncode, [call.method for call in seen.calls]) == (1, ["GET"])
    assert (why in seen.words, "[y/N]" in seen.screen) == (True, False)


def test_json_stays_valid_with_a_question() -> None:
    released = transaction(released=True)
    script = [answer(transaction()), answer(released)]
    seen = asked_on_terminal(script, "release", ID, "--json", types="it hangs\ny\n", pipe=True)
    assert (seen.returncode, json.loads(seen.piped)) == (0, released), seen.screen
    assert "It does not decide whether the" in seen.screen


def test_yes_does_not_ask() -> None:
    seen = asked_on_terminal([answer(transaction(released=True))], "release", ID, "--note", "x", "--yes")
    assert (seen.returncode, [call.method for call in seen.calls]) == (0, ["POST"]), seen.screen

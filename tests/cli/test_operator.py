"""Operators' commands on a payment: the question, the screen before the question, and the request of the contract."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from posd.base.files import login_name, user_name
from posd.cli.payments.words import meaning
from tests.rig.commands import asked, check, posd
from tests.rig.documents import (
    ANSWERS,
    AT,
    COMPLETED,
    ID,
    JOB,
    OTHER_ID,
    answer,
    attention,
    outcome,
    print_job,
    transaction,
)
from tests.rig.stub import Answer, Stub, problem
from tests.rig.tables import every

BY_ANA = "--operator Ana --note 'the slip says so' --yes"
SAID = {"operator": "Ana", "note": "the slip says so"}
APPROVED = outcome("approved", {"kind": "event", "event_id": "e-1"}, status="APPROVAL", reached_acquirer=True)

# Reconcile.

#: posd knows which device is the terminal.
SURE = answer({"serial": "SN-0001", "identity": {"conflict": False}})
CONFLICTING = answer({"identity": {"conflict": True}})
REMOVED = problem(404, "not_found", "cannot find it")
IN_DOUBT = f"    posd resolve {ID} RESULT\n"


def searched(result: str, **fields: Any) -> Answer:
    return answer(transaction(last_search={"at": AT, "result": result}, **fields))


def test_reconcile_of_a_payment_that_needs_a_person_names_the_commands() -> None:
    """The text does not suggest a wait for a customer who has left."""
    running: dict[str, Any] = {"phase": "active", "status": "TERMINAL_ACKNOWLEDGED", "next_step": "ask_person"}
    commands = f"    posd reconcile {ID}\n    posd release {ID}\n{IN_DOUBT}"
    words = ("still open (no outcome, started ", "to settle it\n", commands)
    check(f"reconcile {ID}", [searched("none", **running), SURE], 4, *words, lacks=["present the card", "next: "])
    running["attention"] = [attention("address_changed")]  # the attention has the advice
    check(f"reconcile {ID}", [searched("none", **running), SURE], 4, IN_DOUBT, lacks=["to settle it"])


GONE = "Terminal SN-0001 is no longer in the configuration"


@every(
    ("result", "terminal", "words"),
    [
        ("found", [], ["The terminal knows this payment"]),
        ("none", [SURE], ["The terminal answered", "That alone proves nothing"]),
        ("no_answer", [SURE], ["gave no usable answer", "does not show whether the customer was charged"]),
        ("none", [CONFLICTING], ["The device", "perhaps it is not terminal SN-0001"]),
        ("none", [REMOVED], [GONE, "whether the customer was charged"]),
        ("no_answer", [REMOVED], [GONE, "whether the customer was charged"]),
    ],
)
def test_reconcile_shows_the_next_step_and_exits_4_if_the_payment_is_open(
    result: str, terminal: list[Answer], words: list[str]
) -> None:
    """The terminal may not have received the search. The text does not say that the terminal replied."""
    sent = [("POST", f"/transactions/{ID}/reconcile", None), *[("GET", "/terminals/SN-0001", None)] * len(terminal)]
    words += ["still open (in doubt, started ", "next: Wait for the outcome."]
    check(f"reconcile {ID}", [searched(result, next_step="wait"), *terminal], 4, *words, sent=sent)


# Requests of the commands release, resolve and acknowledge.


RELEASED = transaction(released=True, attention=[attention("released", "by Ana")])
CLOSED = {
    result: transaction(outcome=outcome(result, {"kind": "operator", **SAID}, reached_acquirer=None), next_step="done")
    for result in ("approved", "not_started")
}
LEFT = transaction(outcome=APPROVED, attention=[attention("amount_differs", "asked for 11.20, authorized 11.00")])
PRINTED = print_job(status="COMPLETED", decided_by="operator")
MARKED = COMPLETED | {"attention": [attention("orphan", "it was not known")]}
OF_PRINT_JOB = f"acknowledge {JOB} --print-job outcome_corrected"


@every(
    ("line", "body", "document", "words"),
    [
        (f"release {ID}", {}, RELEASED, ["does not know yet whether the customer was charged", IN_DOUBT]),
        *(
            (
                f"resolve {ID} {result}",
                {"result": result, "transaction_reference": None},
                document,
                [": by Ana, note: the slip says so", f"result: {meaning(document)[1]}"],
            )
            for result, document in CLOSED.items()
        ),
        (
            f"resolve {ID} approved --reference {OTHER_ID.upper()}",
            {"result": "approved", "transaction_reference": OTHER_ID},
            CLOSED["approved"],
            ["By an operator's decision"],
        ),
        (f"acknowledge {ID} gap", {"code": "gap"}, LEFT, ["gap is cleared.", "attention amount_differs: asked for"]),
        (f"resolve {JOB} COMPLETED", {"result": "COMPLETED"}, PRINTED, ["recorded that the document is printed."]),
        (OF_PRINT_JOB, {"code": "outcome_corrected"}, MARKED, [f"    posd acknowledge {JOB} orphan"]),
    ],
)
def test_a_decision_in_a_script_is_sent_and_shown(
    line: str, body: dict[str, Any], document: dict[str, Any], words: list[str]
) -> None:
    verb, identity, *_ = line.split()
    call = ("POST", f"/{'print-jobs' if identity == JOB else 'transactions'}/{identity}/{verb}", body | SAID)
    check(f"{line} {BY_ANA}", [answer(document)], 0, *words, sent=[call], as_json=True)


def test_resolve_sends_the_data_of_a_payment_that_a_restore_lost() -> None:
    given = f"--amount 11.20 --terminal SN-0001 --type refund --original {OTHER_ID} --sale s-1 {BY_ANA}"
    done = asked([answer(transaction(outcome=APPROVED))], "resolve", ID, "approved", *shlex.split(given)).ends(0)
    [(_, _, body)] = done.sent
    assert b'"subtotal_iva0":11.20' in done.calls[0].body
    assert body | {"terminal": "SN-0001", "type": "refund", "original": OTHER_ID, "sale": "s-1"} == body


# Refusals.


@every("line", [f"release {ID}", f"resolve {ID} declined", f"resolve {JOB} FAILED", OF_PRINT_JOB])
def test_a_refusal_is_shown_and_a_lost_response_is_reported_as_uncertain(line: str) -> None:
    lost = f"may have done this nevertheless. See:  posd show {line.split()[1]}"
    for refusal, code, words in (
        (problem(409, "already_final", "the payment has already ended"), 1, "the payment has already ended"),
        (problem(404, "not_found", "no transaction is known here"), 1, "no transaction is known here"),
        (problem(403, "forbidden", "use the admin socket"), 2, "use the admin socket"),
        (Answer(cut=True), 3, lost),
    ):
        check(f"{line} {BY_ANA}", [refusal], code, words, lacks=[] if refusal.cut else [lost])


def test_a_refused_operator_is_told_if_a_variable_names_the_tills_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal = problem(403, "forbidden", "this call is for operators: use the admin socket")
    command = ("release", ID, *shlex.split(BY_ANA))
    with Stub(tmp_path / "s", [refusal, refusal]):
        posd(*command, socket=tmp_path / "s").ends(2, lacks=["POSD_SOCKET"])
        monkeypatch.setenv("POSD_SOCKET", str(tmp_path / "s"))
        told = f"POSD_SOCKET is set in this shell and names {tmp_path / 's'}"
        posd(*command).ends(2, told, "unset POSD_SOCKET")


def test_the_operator_is_the_calling_user_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user id in a container often has no name."""

    def operator() -> str:
        [(_, _, body)] = asked([answer(transaction())], "release", ID, "--note", "x").sent
        return str(body["operator"])

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


DOUBTFUL = answer(transaction(attention=[attention("in_doubt", "no answer")]))
FREED, ENDED = answer(transaction(released=True)), answer(transaction(outcome=APPROVED))
RELEASE_TEXT = "It does not decide whether the"
#: Reply of the admin socket to the call that the till socket refuses.
MAY = answer(ANSWERS["get_clock"]["200"])


def test_before_confirming_the_clock_a_person_sees_the_doubts_about_it() -> None:
    seen, line = MAY, "clock confirm --operator Ana"
    asked_first = ("the clock says", "Does another clock show the same time and day? [y/N]")
    check(line, [seen], 1, *asked_first, "Nothing was changed.", sent=[("GET", "/clock", None)], types="n\n")
    confirmed = [("GET", "/clock", None), ("POST", "/clock/confirm", {"operator": "Ana"})]
    check(line, [seen, seen], 0, *asked_first, sent=confirmed, types="y\n")
    check(line, [seen], 0, lacks=["[y/N]"], sent=confirmed[1:])


def test_release_on_a_screen_shows_the_payment_and_asks_for_a_note() -> None:
    released = ("POST", f"/transactions/{ID}/release", {"operator": "Ana", "note": "it hangs"})
    sent = [("GET", f"/transactions/{ID}", None), released]
    running = "may still be running the payment."
    words = ("SN-0001", "11.20", "in doubt", RELEASE_TEXT, running, f"    posd abort {ID}\n", "[y/N]")
    check(f"release {ID} --operator Ana", [DOUBTFUL, FREED], 0, *words, sent=sent, types=" \nit hangs \ny\n")
    check(f"release {ID} --note x --yes", [FREED], 0, lacks=["[y/N]"], types="")


def test_resolve_on_a_screen_explains_the_decision_and_the_answer_no_stops_it() -> None:
    open_ = [MAY, answer(transaction(abortable=False))]
    more = "Without --reference"
    for result, counts in (("approved", "charged."), ("canceled", "not charged, and the till may start it again.")):
        words = [f"books the payment as {result}: the customer counts as {counts}", "Nothing was changed."]
        words += ["A later report of the terminal overrides it.", *([more] if result == "approved" else [])]
        lacks = ["posd abort", *([] if result == "approved" else [more])]
        check(f"resolve {ID} {result} --note x", open_, 1, *words, lacks=lacks, types="n\n")


def test_a_person_sees_that_posd_has_no_record_before_creating_one() -> None:
    gone = problem(404, "not_found", "no transaction is known here", ',"never_started":false')
    check(f"resolve {ID} approved --note x", [MAY, gone], 1, lacks=[r"\n"], types="y\n")
    check(f"resolve {ID} approved --amount 11.20 --note x", [MAY, gone, ENDED], 0, lacks=[r"\n"], types="y\n")


def test_acknowledge_on_a_screen_shows_why_the_attention_is_open() -> None:
    why = "two final events: APPROVAL (reference a) counts, DECLINED arrived after it"
    marks = [attention("conflicting_final", why), attention("gap", "an event is missing")]
    script = [MAY, answer(transaction(outcome=APPROVED, attention=marks)), ENDED]
    line = f"acknowledge {ID} conflicting_final --note x"
    check(line, script, 0, "two final events: APPROVAL", lacks=["an event is missing"], types="y\n")


@every(
    ("line", "why"),
    [
        (f"release {ID}", "cannot release it: it has already ended (approved)"),
        (f"resolve {ID} declined", "cannot resolve it: it has already ended (approved)"),
        (f"acknowledge {ID} gap", "it is not open for"),
        (f"resolve {JOB} FAILED --note x", "cannot resolve it: it has already ended (printed)"),
        (f"{OF_PRINT_JOB} --note x", f"it is not open for {JOB} (open: none)"),
    ],
)
def test_a_record_that_is_already_decided_causes_no_question(line: str, why: str) -> None:
    script = [*([] if "release" in line else [MAY]), answer(COMPLETED) if JOB in line else ENDED]
    check(line, script, 1, why, lacks=["[y/N]"], types="x\ny\n")


@every("line", [f"resolve {ID} declined", f"resolve {JOB} FAILED", f"acknowledge {ID} gap"])
def test_on_the_tills_socket_a_decision_is_refused_before_the_question(line: str) -> None:
    refusal = problem(403, "forbidden", "this call is for operators: use the admin socket")
    sent = [("GET", "/clock", None)]  # a call for operators only
    check(line, [refusal], 2, "use the admin socket", lacks=["[y/N]", "Why ("], sent=sent, types="x\ny\n")


def test_the_question_of_a_command_is_not_in_its_json() -> None:
    seen = asked([DOUBTFUL, FREED], "release", ID, "--json", types="it hangs\ny\n", pipe=True)
    assert seen.ends(0, RELEASE_TEXT).stdout == f"{FREED.body.decode()}\n"

"""Operators' commands on a payment: the question, the display before it, and the request of the contract."""

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from posd.base.files import login_name, user_name
from posd.cli.payments import decide as commands
from posd.cli.payments.words import meaning
from tests.cli.documents import ID, OTHER_ID, answer, attention, outcome, transaction
from tests.cli.print_documents import COMPLETED, JOB, print_job
from tests.cli.processes import PATIENCE, posd, posd_interrupted, posd_on_terminal
from tests.cli.stub import Answer, Stub, problem

BY_ANA = ("--operator", "Ana", "--note", "the slip says so", "--yes")
APPROVED = outcome("approved", {"kind": "event", "event_id": "e-1"}, status="APPROVAL", reached_acquirer=True)
CONFLICT = attention("conflicting_final", "two finals: APPROVAL (reference a) stands, DECLINED arrived after it")


def sent(stub: Stub) -> list[tuple[str, str, Any]]:
    return [(call.method, call.path.removeprefix("/v1"), json.loads(call.body or b"null")) for call in stub.calls]


def fits(screen: str) -> bool:
    return all(cell_len(line) <= 80 for line in screen.split("\n"))


# reconcile

#: It is sure which device is the terminal.
SURE = answer({"serial": "SN-0001", "identity": {"conflict": False}})


def test_reconcile_of_one_that_the_terminal_forgot_leads_to_how_a_person_settles_it(tmp_path: Path) -> None:
    """Not to a customer who has left."""
    found = transaction(
        phase="active",
        status="TERMINAL_ACKNOWLEDGED",
        next_step="ask_person",
        last_search={"at": "2026-11-20T14:02:11.123Z", "result": "none"},
    )
    with Stub(tmp_path / "s", [answer(found), SURE]):
        done = posd("reconcile", ID, socket=tmp_path / "s")
    assert "present the card" not in done.stdout
    assert "still open (no outcome, started " in done.stdout
    assert "to settle it\n" in done.stdout
    assert f"    posd reconcile {ID}\n    posd release {ID}\n    posd resolve {ID} RESULT\n" in done.stdout
    with Stub(tmp_path / "s", [answer(found | {"attention": [attention("address_changed")]}), SURE]):
        done = posd("reconcile", ID, socket=tmp_path / "s")
    assert "to settle it" not in done.stdout  # the attention has the advice
    assert f"    posd resolve {ID} RESULT\n" in done.stdout


CONFLICTING = answer({"identity": {"conflict": True}})
REMOVED = problem(404, "not_found", "cannot find it")


@pytest.mark.parametrize(
    ("result", "terminal", "first", "words"),
    [
        ("found", SURE, "The terminal knows this payment", ""),
        ("none", SURE, "The terminal answered", "That alone proves nothing"),
        ("no_answer", SURE, "The terminal gave no usable answer", "does not show whether the customer was charged"),
        ("none", CONFLICTING, "The device", "it may not be terminal SN-0001"),
        ("none", REMOVED, "Terminal SN-0001 is no longer in the configuration", "whether the customer was charged"),
        (
            "no_answer",
            REMOVED,
            "Terminal SN-0001 is no longer in the configuration",
            "whether the customer was charged",
        ),
    ],
)
def test_reconcile_says_what_came_and_what_is_next_and_exits_4_while_open(
    tmp_path: Path, result: str, terminal: Answer, first: str, words: str
) -> None:
    """A terminal that may not have been asked is not reported to have replied."""
    found = transaction(last_search={"at": "2026-11-20T14:02:11.123Z", "result": result}, next_step="wait")
    with Stub(tmp_path / "s", [answer(found), terminal]) as stub:
        done = posd("reconcile", ID, socket=tmp_path / "s")
    asked = [] if result == "found" else [("GET", "/terminals/SN-0001", None)]
    assert sent(stub) == [("POST", f"/transactions/{ID}/reconcile", None), *asked]
    assert (done.returncode, done.stderr, done.stdout.startswith(first)) == (4, "", True), done.stdout
    for each in (words, "still open (in doubt, started ", "next: Wait for the outcome."):
        assert each in done.stdout


@pytest.mark.parametrize(("result", "code"), [("approved", 0), ("declined", 1)])
def test_reconcile_of_a_payment_that_ended_exits_by_its_outcome(tmp_path: Path, result: str, code: int) -> None:
    found = {"at": "2026-11-20T14:02:11.123Z", "result": "found"}
    ended = transaction(outcome=outcome(result, {"kind": "search", "event_id": "e-1"}), last_search=found)
    with Stub(tmp_path / "s", [answer(ended), answer(ended)]):
        assert posd("reconcile", ID, socket=tmp_path / "s").returncode == code
        done = posd("reconcile", ID, "--json", socket=tmp_path / "s")
    assert (done.returncode, json.loads(done.stdout)) == (code, ended)


def test_reconcile_shows_on_a_terminal_that_it_asks(tmp_path: Path) -> None:
    found = transaction(
        last_search={"at": "2026-11-20T14:02:11.123Z", "result": "none"}, attention=[attention("in_doubt", "lost")]
    )
    with Stub(tmp_path / "s", [answer(found), SURE]):
        seen = posd_on_terminal("reconcile", ID, socket=tmp_path / "s")
    assert seen.returncode == 4
    assert "asking the terminal" in seen.screen
    assert f"    posd release {ID}\n" in seen.screen
    assert fits(seen.screen)


@pytest.mark.slow
def test_a_wait_for_the_terminals_answer_that_is_cut_short_exits_4(tmp_path: Path) -> None:
    done = posd_interrupted(tmp_path, "reconcile", ID)
    assert done.returncode == 4
    assert f"posd show {ID}" in done.stderr
    assert "Traceback" not in done.stderr


def test_reconcile_gives_up_at_its_own_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    over, began = threading.Event(), time.monotonic()
    monkeypatch.setattr(commands, "RECONCILE_SECONDS", 0.2)
    with Stub(tmp_path / "s", [Answer(before=over.wait, cut=True)]):
        done = posd("reconcile", ID, socket=tmp_path / "s")
        over.set()
    assert done.returncode == 3
    assert "did not answer within 0.2 s" in done.stderr
    assert time.monotonic() - began < PATIENCE


# release, resolve, acknowledge: requests


RELEASED = transaction(released=True, attention=[attention("released", "by Ana")])
BY_HER = {"kind": "operator", "operator": "Ana", "note": "the slip says so"}
CLOSED = {
    result: transaction(outcome=outcome(result, BY_HER, reached_acquirer=None), next_step="done")
    for result in ("approved", "not_started")
}
LEFT = transaction(outcome=APPROVED, attention=[attention("amount_differs", "asked for 11.20, authorized 11.00")])


PRINTED = print_job(status="COMPLETED", decided_by="operator")
MARKED = COMPLETED | {"attention": [attention("orphan", "it was not known")]}
OF_PRINT_JOB = ("acknowledge", JOB, "--print-job", "outcome_corrected")
BOTH = {"result": "approved", "transaction_reference": OTHER_ID}


@pytest.mark.parametrize(
    ("arguments", "body", "document", "words"),
    [
        (
            ("release", ID),
            {},
            RELEASED,
            ("It is not known yet whether the customer was charged", f"posd resolve {ID} RESULT"),
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
            ("An operator recorded that it is printed.",),
        ),
        (OF_PRINT_JOB, {"code": "outcome_corrected"}, MARKED, (f"    posd acknowledge --print-job {JOB} orphan",)),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, tuple) else "",
)
def test_a_decision_in_a_script_is_sent_and_shown(
    tmp_path: Path, arguments: tuple[str, ...], body: dict[str, Any], document: dict[str, Any], words: tuple[str, ...]
) -> None:
    with Stub(tmp_path / "s", [answer(document), answer(document)]) as stub:
        done = posd(*arguments, *BY_ANA, socket=tmp_path / "s")
        program = posd(*arguments, *BY_ANA, "--json", socket=tmp_path / "s")
    kind = "print-jobs" if arguments[1] == JOB else "transactions"
    call = ("POST", f"/{kind}/{arguments[1]}/{arguments[0]}", {**body, "operator": "Ana", "note": "the slip says so"})
    assert sent(stub) == [call, call]
    assert (done.returncode, done.stderr) == (0, "")
    for each in words:
        assert each in done.stdout
    assert (program.returncode, json.loads(program.stdout), program.stderr) == (0, document, "")


def test_resolve_sends_what_a_payment_was_that_a_restore_lost(tmp_path: Path) -> None:
    given = ("--amount", "11.20", "--terminal", "SN-0001", "--type", "refund", "--original", OTHER_ID, "--sale", "s-1")
    with Stub(tmp_path / "s", [answer(transaction(phase="final", outcome=APPROVED))]) as stub:
        done = posd("resolve", ID, "approved", *given, *BY_ANA, socket=tmp_path / "s")
        print_job = posd("resolve", "job-1", "COMPLETED", *given, *BY_ANA, socket=tmp_path / "s")
    assert (done.returncode, print_job.returncode) == (0, 2)
    [(_, _, body)] = sent(stub)
    assert b'"subtotal_iva0":11.20' in stub.calls[0].body
    assert body | {"terminal": "SN-0001", "type": "refund", "original": OTHER_ID, "sale": "s-1"} == body


@pytest.mark.parametrize(("arguments", "code"), [((), 1), (("--amount", "11.20"), 0)])
def test_a_person_is_shown_that_posd_has_no_record_before_one_is_made(
    tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    gone = problem(404, "not_found", "no transaction is known here", ',"never_started":false')
    with Stub(tmp_path / "s", [gone, answer(transaction(phase="final", outcome=APPROVED))]) as stub:
        seen = posd_on_terminal(
            "resolve", ID, "approved", *arguments, "--note", "x", socket=tmp_path / "s", types="y\n"
        )
    assert seen.returncode == code, seen.screen
    assert [call.method for call in stub.calls] == ["GET", *(["POST"] if arguments else [])]


def test_without_a_person_to_ask_a_payment_is_resolved_by_yes_alone(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", []) as stub:
        done = posd("resolve", ID, "approved", "--note", "the slip says so", socket=tmp_path / "s")
    assert (done.returncode, stub.calls) == (2, [])
    assert "--yes" in done.stderr


# refusals


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("release", ID), "--note"),
        (("resolve", ID, "declined", "--operator", "Ana"), "--note"),
        (("acknowledge", ID, "gap"), "--note"),
        (("release", ID, "--note", "  "), "--note"),
        (("release", ID, "--note", "x", "--operator", " "), "--operator"),
        (("resolve", ID, "paid", *BY_ANA), "not_started"),
        (("resolve", ID, "declined", "--reference", OTHER_ID, *BY_ANA), "--reference"),
        (("resolve", ID, "approved", "--reference", "17", *BY_ANA), "--reference"),
        (("release", "17", *BY_ANA), "ID"),
        (("resolve", JOB, "COMPLETED", "--operator", "Ana"), "--note"),
        (("resolve", f"{JOB}x", "approved", *BY_ANA), f"'{JOB}x' is not the id of a payment"),
        (("resolve", "a/b", "FAILED", *BY_ANA), "is not the id of a print job"),
        (("resolve", JOB, "completed", *BY_ANA), "COMPLETED"),
        (("resolve", JOB, "COMPLETED", "--reference", ID, *BY_ANA), "--reference"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_what_is_wrong_is_named_and_nothing_is_sent(tmp_path: Path, arguments: tuple[str, ...], names: str) -> None:
    with Stub(tmp_path / "s", []) as stub:
        done = posd(*arguments, socket=tmp_path / "s")
    assert stub.calls == []
    assert done.returncode == 2
    assert names in done.stderr


@pytest.mark.parametrize(
    "arguments", [("release", ID), ("resolve", ID, "declined"), ("resolve", JOB, "FAILED"), OF_PRINT_JOB], ids=" ".join
)
def test_a_refusal_is_told_in_the_daemons_words_and_a_lost_answer_may_mean_that_it_was_done(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    refusals = (
        (problem(409, "already_final", "cannot release: it has already ended (approved)"), 1),
        (problem(404, "not_found", "no transaction is known here; check the id"), 1),
        (problem(403, "forbidden", "this call is for operators: use the admin socket"), 2),
        (Answer(cut=True), 3),
    )
    see = "print-jobs" if arguments[1] == JOB else "show"
    with Stub(tmp_path / "s", [refusal for refusal, _ in refusals]):
        for refusal, code in refusals:
            done = posd(*arguments, *BY_ANA, socket=tmp_path / "s")
            assert done.returncode == code
            assert json.loads(refusal.body).get("detail", "") in done.stderr
            lost = f"It may have been done nevertheless; see:  posd {see} {arguments[1]}"
            assert (lost in done.stderr) == refusal.cut


def test_an_operator_whom_a_variable_led_to_the_tills_socket_is_told(
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


# who decides


def test_the_operator_is_who_calls_whatever_the_environment_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    with Stub(tmp_path / "s", [answer(transaction()), answer(transaction())]) as stub:
        posd("release", ID, "--note", "x", socket=tmp_path / "s")
        monkeypatch.setenv("SUDO_USER", "berta")
        posd("release", ID, "--note", "x", socket=tmp_path / "s")
    assert [body["operator"] for _, _, body in sent(stub)] == [user_name(os.getuid()), "berta"]


def test_an_operator_without_a_login_name_is_the_user_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container a user id often has no name."""
    nameless = next(uid for uid in range(4242, 60_000) if login_name(uid) is None)
    for name in ("SUDO_USER", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: nameless)
    with Stub(tmp_path / "s", [answer(transaction())]) as stub:
        assert posd("release", ID, "--note", "x", socket=tmp_path / "s").returncode == 0
    assert [body["operator"] for _, _, body in sent(stub)] == [str(nameless)]


# on a terminal


def test_release_on_a_terminal_shows_the_payment_and_asks_for_the_note_and_once_more(tmp_path: Path) -> None:
    doubtful = transaction(attention=[attention("in_doubt", "no answer")])
    with Stub(tmp_path / "s", [answer(doubtful), answer(transaction(released=True))]) as stub:
        seen = posd_on_terminal("release", ID, "--operator", "Ana", socket=tmp_path / "s", types=" \nit hangs \ny\n")
    assert seen.returncode == 0, seen.screen
    assert sent(stub) == [
        ("GET", f"/transactions/{ID}", None),
        ("POST", f"/transactions/{ID}/release", {"operator": "Ana", "note": "it hangs"}),
    ]
    for part in ("SN-0001", "11.20", "in doubt", "It does not decide whether the", f"    posd abort {ID}\n", "[y/N]"):
        assert part in seen.screen
    assert fits(seen.screen.replace("]: ", "]:\n").replace("payment): ", "payment):\n"))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("result", "words"),
    [
        ("approved", "books the payment as approved: the customer counts as charged."),
        (
            "canceled",
            "books the payment as canceled: the customer counts as not charged, and the till may start it again.",
        ),
    ],
)
def test_resolve_on_a_terminal_says_what_it_means_and_a_no_changes_nothing(
    tmp_path: Path, result: str, words: str
) -> None:
    with Stub(tmp_path / "s", [answer(transaction(abortable=False))]) as stub:
        seen = posd_on_terminal("resolve", ID, result, "--note", "x", socket=tmp_path / "s", types="n\n")
    assert seen.returncode == 1
    assert [call.method for call in stub.calls] == ["GET"]
    text = " ".join(seen.screen.split())
    assert words in text
    assert "A later report of the terminal overrides it." in text
    assert ("Without --reference" in text) == (result == "approved")
    assert "posd abort" not in text
    assert "Nothing was changed." in text


def test_acknowledge_on_a_terminal_shows_why_the_attention_is_open(tmp_path: Path) -> None:
    conflict = transaction(outcome=APPROVED, attention=[CONFLICT, attention("gap", "an event is missing")])
    with Stub(tmp_path / "s", [answer(conflict), answer(transaction(outcome=APPROVED))]) as stub:
        seen = posd_on_terminal(
            "acknowledge", ID, "conflicting_final", "--note", "x", socket=tmp_path / "s", types="y\n"
        )
    assert seen.returncode == 0, seen.screen
    assert [call.method for call in stub.calls] == ["GET", "POST"]
    assert "two finals: APPROVAL" in seen.screen
    assert "an event is missing" not in seen.screen


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("release", ID), "cannot release it: it has already ended (approved)"),
        (("resolve", ID, "declined"), "cannot resolve it: it has already ended (approved)"),
        (("acknowledge", ID, "gap"), "it is not open for"),
        (("resolve", JOB, "FAILED", "--note", "x"), "cannot resolve it: it has already ended (printed)"),
        ((*OF_PRINT_JOB, "--note", "x"), f"it is not open for {JOB} (open: none)"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_decision_that_is_not_open_any_more_is_not_asked_for(
    tmp_path: Path, arguments: tuple[str, ...], why: str
) -> None:
    document = COMPLETED if arguments[1] == JOB else transaction(outcome=APPROVED)
    with Stub(tmp_path / "s", [answer(document)]) as stub:
        seen = posd_on_terminal(*arguments, socket=tmp_path / "s", types="x\ny\n")
    assert seen.returncode == 1
    assert why in " ".join(seen.screen.split())
    assert "[y/N]" not in seen.screen
    assert [call.method for call in stub.calls] == ["GET"]


def test_yes_does_not_ask(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(transaction(released=True))]) as stub:
        seen = posd_on_terminal("release", ID, "--note", "x", "--yes", socket=tmp_path / "s")
    assert seen.returncode == 0, seen.screen
    assert [call.method for call in stub.calls] == ["POST"]


def test_json_stays_json_where_a_question_is_asked(tmp_path: Path) -> None:
    released = transaction(released=True)
    with Stub(tmp_path / "s", [answer(transaction()), answer(released)]):
        seen = posd_on_terminal("release", ID, "--json", socket=tmp_path / "s", types="it hangs\ny\n", pipe=True)
    assert seen.returncode == 0, seen.screen
    assert json.loads(seen.piped) == released
    assert "It does not decide whether the" in seen.screen


# prune


def test_where_nothing_is_old_prune_does_not_ask(tmp_path: Path) -> None:
    removed = {"transactions": 0, "print_jobs": 0, "quarantined": 0, "changes": 0}
    nothing = {"before": "2025-10-16T00:00:00.000Z", "dry_run": True, "removed": removed, "kept": {}}
    with Stub(tmp_path / "s", [answer(nothing | {"bytes_before": 0, "bytes_returned": 0})]) as stub:
        seen = posd_on_terminal("prune", socket=tmp_path / "s", types="n\n")
    assert (seen.returncode, "There is nothing to remove." in seen.screen) == (0, True), seen.screen
    assert sent(stub) == [("POST", "/prune", {"dry_run": True})]

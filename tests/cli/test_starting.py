"""`posd charge` and similar commands: requests, wrong usage, and the commands after a refusal."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from posd.cli.payments.start import STARTS
from tests.cli.documents import ID, OTHER_ID, answer, outcome, transaction
from tests.cli.processes import PATIENCE, posd
from tests.cli.stub import Answer, Stub, problem

REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
NEW_ID = "7f3c0000-0000-4000-8000-0000000000ff"

#: the words of each command that has an original; the types are the API's.
DERIVED = {"reauth": "re-auth", "capture": "capture", "tip": "post-tip", "void": "void"}
TYPES = {"charge": "charge", "preauth": "pre-auth", **DERIVED}


def final(kind: str, result: str = "approved", **fields: Any) -> dict[str, Any]:
    done = result == "approved"
    ended = outcome(result, {"kind": "event", "event_id": "e-1"}, reached_acquirer=done, **fields)
    return transaction(type=kind, outcome=ended, next_step="done" if done else "new_id_ok")


def sent(tmp_path: Path, *arguments: str) -> tuple[str, str, dict[str, Any]]:
    """Run a command to its approval; return method and path of its only call, and the body with exact numbers."""
    with Stub(tmp_path / "s", [answer(final(TYPES[arguments[0]]), 201)]) as stub:
        done = posd(*arguments, "--id", NEW_ID, socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    [call] = stub.calls
    return call.method, call.path, json.loads(call.body, parse_float=str)


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (("charge", "12.50"), {"type": "charge", "amount": {"subtotal_iva0": "12.50"}}),
        (("preauth", "100"), {"type": "pre-auth", "amount": {"subtotal_iva0": 100}}),
        (
            ("preauth", "--subtotal-iva", "10.00", "--iva", "1.20", "--sale", "s", "--metadata", "room=7"),
            {
                "type": "pre-auth",
                "amount": {"subtotal_iva": "10.00", "iva": "1.20"},
                "sale": "s",
                "metadata": {"room": "7"},
            },
        ),
        (("reauth", ID, "120"), {"type": "re-auth", "amount": {"subtotal_iva0": 120}, "original": ID}),
        (("capture", ID.upper(), "99.10"), {"type": "capture", "amount": {"subtotal_iva0": "99.10"}, "original": ID}),
        (
            ("capture", "--reference", REFERENCE.upper(), "5"),
            {"type": "capture", "amount": {"subtotal_iva0": 5}, "transaction_reference": REFERENCE},
        ),
        (
            ("capture", "5", "--reference", REFERENCE, "--terminal", "SN-2", "--additional"),
            {
                "type": "capture",
                "amount": {"subtotal_iva0": 5},
                "transaction_reference": REFERENCE,
                "terminal": "SN-2",
                "additional": True,
            },
        ),
        (("charge", "5", "--repeat"), {"type": "charge", "amount": {"subtotal_iva0": 5}, "additional": True}),
        (
            ("capture", ID, "--subtotal-iva", "1", "--option", "is_deferred=true"),
            {"type": "capture", "amount": {"subtotal_iva": 1}, "original": ID, "options": {"is_deferred": True}},
        ),
        (("tip", ID, "1.5"), {"type": "post-tip", "amount": {"subtotal_iva0": "1.5"}, "original": ID}),
        (("tip", ID, "--tip", "1.5"), {"type": "post-tip", "amount": {"tip": "1.5"}, "original": ID}),
        (("void", ID), {"type": "void", "original": ID}),
        (("void", "--reference", REFERENCE), {"type": "void", "transaction_reference": REFERENCE}),
        (("void", ID, "3.00"), {"type": "void", "original": ID, "amount": {"subtotal_iva0": "3.00"}}),
        (("void", ID, "--iva", "0"), {"type": "void", "original": ID, "amount": {"iva": 0}}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_typed_is_what_is_sent(tmp_path: Path, arguments: tuple[str, ...], body: dict[str, Any]) -> None:
    assert sent(tmp_path, *arguments) == ("PUT", f"/v1/transactions/{NEW_ID}", body)


@pytest.mark.quick(27)
@pytest.mark.parametrize("command", DERIVED)
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "neither ORIGINAL nor --reference is given"),
        (("5",), "neither ORIGINAL nor --reference is given"),
        ((ID, "5", "--reference", REFERENCE), "ORIGINAL and --reference are both given"),
        ((ID, "--reference", REFERENCE), "ORIGINAL and --reference are both given"),
        (("5", "6", "--reference", REFERENCE), "'6' is not allowed"),
        (("7f3c0000x", "5"), "'7f3c0000x' is not the id of a payment"),
        (("7f3c000", "5"), "its first characters, 8 at least"),
        (("1234567", "5"), "neither ORIGINAL nor --reference is given"),
        (("5", ID), "neither ORIGINAL nor --reference is given"),
        ((ID, "5,00"), "'5,00' is not an amount"),
        (("5,00", "--reference", REFERENCE), "'5,00' is not an amount"),
        ((ID, "5", "--reference", "17"), "--reference"),
        ((ID, "5", "--subtotal-iva0", "5"), "AMOUNT and --subtotal-iva0"),
        ((ID, "5", "--id", "17"), "--id"),
        ((ID, "5", "6"), "unexpected extra argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_named_and_nothing_is_sent(
    tmp_path: Path, command: str, arguments: tuple[str, ...], words: str
) -> None:
    with Stub(tmp_path / "s", []) as stub:
        done = posd(command, *arguments, socket=tmp_path / "s")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert stub.calls == []


@pytest.mark.parametrize(
    "arguments", [(row.name, *([ID] if row.original else [])) for row in STARTS if row.needs_amount], ids=" ".join
)
def test_all_but_a_void_need_an_amount(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = posd(*arguments, socket=tmp_path / "s")
    assert done.returncode == 2
    assert "no amount: give AMOUNT" in done.stderr


@pytest.mark.parametrize("command", ["charge", "preauth"])
@pytest.mark.parametrize("option", ["--reference", "--original"])
def test_what_begins_a_chain_names_nothing(tmp_path: Path, command: str, option: str) -> None:
    done = posd(command, "5", option, REFERENCE, socket=tmp_path / "s")
    assert done.returncode == 2
    assert option in done.stderr


# refusals


SHOW_BOTH = [f"  posd show {ID}", f"  posd show {OTHER_ID}"]
TWO = f',"transactions":["{ID}","{OTHER_ID}"]'


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (
            problem(
                409, "already_derived", 'there is already X. If this is meant, say so with \\"additional\\": true', TWO
            ),
            ["posd: there is already X. If this is meant, say so with --additional", *SHOW_BOTH],
        ),
        (problem(422, "amount_exceeds", "too much", TWO), ["posd: too much", *SHOW_BOTH]),
        (
            problem(422, "unknown_original", "it is a charge; if you have it, give it as `transaction_reference`"),
            ["posd: it is a charge; if you have it, give it as --reference UUID"],
        ),
        (problem(409, "terminal_busy", "busy; wait for it"), ["posd: busy; wait for it"]),
    ],
    ids=["already_derived", "amount_exceeds", "unknown_original", "terminal_busy"],
)
def test_a_refusal_tells_what_to_type(tmp_path: Path, refusal: Answer, told: list[str]) -> None:
    with Stub(tmp_path / "s", [refusal, refusal]):
        done = posd("capture", NEW_ID, "5", socket=tmp_path / "s")
        program = posd("capture", NEW_ID, "5", "--json", socket=tmp_path / "s")
    code = json.loads(refusal.body)["code"]
    assert done.stderr.splitlines() == ["Nothing was started.", *told, f"  more about it: posd explain {code}"]
    assert program.stdout.encode() == refusal.body + b"\n"


# messages


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("arguments", "noun"),
    [
        (("charge", "5"), "payment"),
        (("preauth", "5"), "pre-authorization"),
        (("reauth", ID, "5"), "re-authorization"),
        (("capture", ID, "5"), "capture"),
        (("tip", ID, "5"), "tip"),
        (("void", ID), "void"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else value,
)
def test_what_is_left_open_is_called_what_it_is(tmp_path: Path, arguments: tuple[str, ...], noun: str) -> None:
    running = transaction(type=TYPES[arguments[0]], phase="active", status="TERMINAL_ACKNOWLEDGED")
    unclear = problem(500, "internal_error", "a fault in {this}")
    no_events = Answer(200, b"", "text/event-stream")
    with Stub(tmp_path / "s", [unclear, answer(running, 201), answer(running), no_events]):
        lost = posd(*arguments, "--id", NEW_ID, socket=tmp_path / "s")
        cut = posd(*arguments, "--timeout", "0", socket=tmp_path / "s")
        # A wait leaves its reading thread behind; a command's process ends with it, a test's does not.
        for thread in threading.enumerate():
            if "(_read)" in thread.name:
                thread.join(PATIENCE)
    assert (lost.returncode, cut.returncode) == (4, 4)
    assert f"posd: a fault in {{this}}\nThe {noun} may have started; if so, it goes on." in lost.stderr
    assert f"posd await {NEW_ID}" in lost.stderr
    assert f"Still open; the {noun} goes on." in cut.stderr
    assert f"Do not start this {noun} again before you know its outcome." in cut.stderr


@pytest.mark.parametrize("command", DERIVED)
def test_without_waiting_it_says_that_it_runs_and_how_to_go_on(tmp_path: Path, command: str) -> None:
    running = transaction(type=DERIVED[command], phase="active", status="TERMINAL_ACKNOWLEDGED")
    with Stub(tmp_path / "s", [answer(running, 201)]):
        done = posd(command, OTHER_ID, "5", "--no-wait", socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert "present the card" not in done.stdout
    assert f"posd await {ID}" in done.stdout


@pytest.mark.parametrize(
    ("reversal", "words"),
    [("cancellation", "a cancellation"), ("refund", "a refund"), (None, "posd does not know whether")],
)
def test_a_void_says_what_it_was(tmp_path: Path, reversal: str | None, words: str) -> None:
    with Stub(tmp_path / "s", [answer(final("void", reversal=reversal), 201)]):
        done = posd("void", ID, socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    [told] = [line for line in done.stdout.splitlines() if line.startswith("result: The original was reversed")]
    assert words in told

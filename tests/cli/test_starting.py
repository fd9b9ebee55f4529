"""`posd charge` and similar commands: requests, commands after a refusal, and the end of a wait."""

import json
from typing import Any

from tests.cli.documents import ID, OTHER_ID, answer, outcome, transaction
from tests.cli.processes import asked
from tests.cli.stub import Answer, problem
from tests.support.tables import every

REFERENCE = "0c0ffee0-0000-4000-8000-00000000000a"
NEW_ID = "7f3c0000-0000-4000-8000-0000000000ff"

#: Command with an original -> type in the API.
DERIVED = {"reauth": "re-auth", "capture": "capture", "tip": "post-tip", "void": "void"}
TYPES = {"charge": "charge", "preauth": "pre-auth", **DERIVED}


def final(kind: str, result: str = "approved", **fields: Any) -> dict[str, Any]:
    done = result == "approved"
    ended = outcome(result, {"kind": "event", "event_id": "e-1"}, reached_acquirer=done, **fields)
    return transaction(type=kind, outcome=ended, next_step="done" if done else "new_id_ok")


BOTH = {"subtotal_iva": "10.00", "iva": "1.20"}


@every(
    ("line", "body"),
    [
        ("charge 12.50", {"amount": {"subtotal_iva0": "12.50"}}),
        ("charge 5 --repeat", {"amount": {"subtotal_iva0": 5}, "additional": True}),
        ("preauth 100", {"amount": {"subtotal_iva0": 100}}),
        (
            "preauth --subtotal-iva 10.00 --iva 1.20 --sale s --metadata room=7",
            {"amount": BOTH, "sale": "s", "metadata": {"room": "7"}},
        ),
        (f"reauth {ID} 120", {"amount": {"subtotal_iva0": 120}, "original": ID}),
        (f"capture {ID.upper()} 99.10", {"amount": {"subtotal_iva0": "99.10"}, "original": ID}),
        (
            f"capture --reference {REFERENCE.upper()} 5",
            {"amount": {"subtotal_iva0": 5}, "transaction_reference": REFERENCE},
        ),
        (
            f"capture 5 --reference {REFERENCE} --terminal SN-2 --additional",
            {
                "amount": {"subtotal_iva0": 5},
                "transaction_reference": REFERENCE,
                "terminal": "SN-2",
                "additional": True,
            },
        ),
        (
            f"capture {ID} --subtotal-iva 1 --option is_deferred=true",
            {"amount": {"subtotal_iva": 1}, "original": ID, "options": {"is_deferred": True}},
        ),
        (f"tip {ID} 1.5", {"amount": {"subtotal_iva0": "1.5"}, "original": ID}),
        (f"tip {ID} --tip 1.5", {"amount": {"tip": "1.5"}, "original": ID}),
        (f"void {ID}", {"original": ID}),
        (f"void --reference {REFERENCE}", {"transaction_reference": REFERENCE}),
        (f"void {ID} 3.00", {"original": ID, "amount": {"subtotal_iva0": "3.00"}}),
        (f"void {ID} --iva 0", {"original": ID, "amount": {"iva": 0}}),
    ],
)
def test_the_typed_values_are_sent(line: str, body: dict[str, Any]) -> None:
    kind = TYPES[line.split()[0]]
    done = asked([answer(final(kind), 201)], *line.split(), "--id", NEW_ID)
    assert done.returncode == 0, done.stderr
    [call] = done.calls
    assert (call.method, call.path) == ("PUT", f"/v1/transactions/{NEW_ID}")
    assert json.loads(call.body, parse_float=str) == {"type": kind} | body


# Refusals.


SHOW_BOTH = [f"  posd show {ID}", f"  posd show {OTHER_ID}"]
TWO = f',"transactions":["{ID}","{OTHER_ID}"]'
MEANT = 'there is already X. If this is meant, say so with \\"additional\\": true'


@every(
    ("refusal", "told"),
    [
        (
            problem(409, "already_derived", MEANT, TWO),
            ["posd: there is already X. If this is meant, say so with --additional", *SHOW_BOTH],
        ),
        (problem(422, "amount_exceeds", "too much", TWO), ["posd: too much", *SHOW_BOTH]),
        (
            problem(422, "unknown_original", "it is a charge; if you have it, give it as `transaction_reference`"),
            ["posd: it is a charge; if you have it, give it as --reference UUID"],
        ),
        (problem(409, "terminal_busy", "busy; wait for it"), ["posd: busy; wait for it"]),
        (
            problem(422, "invalid_request", "it is wrong", ',"errors":[{"path":"/amount/tip","message":"too long"}]'),
            ["posd: it is wrong", "  /amount/tip: too long"],
        ),
    ],
)
def test_a_refusal_shows_the_commands(refusal: Answer, told: list[str]) -> None:
    done, program = (asked([refusal], "capture", NEW_ID, "5", *more) for more in ((), ("--json",)))
    code = json.loads(refusal.body)["code"]
    assert done.stderr.splitlines() == ["Nothing was started.", *told, f"  more about it: posd explain {code}"]
    assert program.stdout.encode() == refusal.body + b"\n"


# Messages.


@every(
    ("line", "noun"),
    [
        ("charge 5", "payment"),
        ("preauth 5", "pre-authorization"),
        (f"reauth {ID} 5", "re-authorization"),
        (f"capture {ID} 5", "capture"),
        (f"tip {ID} 5", "tip"),
        (f"void {ID}", "void"),
    ],
)
def test_an_open_operation_is_named_by_its_type(line: str, noun: str) -> None:
    running = transaction(type=TYPES[line.split()[0]], phase="active", status="TERMINAL_ACKNOWLEDGED")
    lost = asked([problem(500, "internal_error", "a fault in {this}")], *line.split(), "--id", NEW_ID)
    no_events = Answer(200, b"", "text/event-stream")
    cut = asked([answer(running, 201), answer(running), no_events], *line.split(), "--timeout", "0")
    assert (lost.returncode, cut.returncode) == (4, 4)
    assert f"posd: a fault in {{this}}\nThe {noun} may have started; if so, it goes on." in lost.stderr
    assert f"posd await {NEW_ID}" in lost.stderr
    assert f"Still open; the {noun} goes on." in cut.stderr
    assert f"Do not start this {noun} again before you know its outcome." in cut.stderr


@every(
    ("reversal", "words"),
    [("cancellation", "a cancellation"), ("refund", "a refund"), (None, "posd does not know whether")],
)
def test_a_void_says_whether_it_was_a_cancellation_or_a_refund(reversal: str | None, words: str) -> None:
    done = asked([answer(final("void", reversal=reversal), 201)], "void", ID)
    assert done.returncode == 0, done.stderr
    [told] = [line for line in done.lines if line.startswith("result: The original was reversed")]
    assert words in told

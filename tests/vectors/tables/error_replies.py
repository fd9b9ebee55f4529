"""What a terminal answers with an error in it, to a start, an abort or a print job (terminal API, Refusals)."""

from typing import Any

from tests.vectors.case import Case, reply
from tests.vectors.tables.print_webhooks import JOB, state
from tests.vectors.tables.start_replies import ACTIVE, DOUBT, GOOD, NOT_STARTED
from tests.vectors.wire import IDENTITY, OTHER, SECOND, TERMINAL, Literal, body, changed

REFUSED = NOT_STARTED | {"evidence": "refusal"}
CANCELED = REFUSED | {"outcome": "canceled"}
SOURCE = "local API, the outcome; terminal API, Refusals"


def error(type_: object = "TERMINAL", code: object = "TER-004", **more: object) -> dict[str, Any]:
    """Return an error envelope; None leaves a member out."""
    named = {"type": type_, "code": code, "message": "no"}
    return {name: value for name, value in named.items() if value is not None} | more


USER_CANCELED = error("TERMINAL-SUNMI", "-1")


def starts() -> list[Case]:
    """Return the replies to the start."""
    found: list[Case] = []

    def add(
        name: str,
        about: str,
        content: object,
        expect: dict[str, Any],
        status: int = 200,
        terminal: tuple[str | None, str | None] | None = None,
        **given: object,
    ) -> None:
        answer = {"reply": reply(status, content if isinstance(content, bytes) else body(content))}
        if "evidence" in expect:
            named = None if terminal is None else dict(zip(("type", "code"), terminal, strict=True)) | {"message": "no"}
            expect = expect | {"terminal": named}
        start = {"client_transaction_id": IDENTITY, "terminal": TERMINAL, **answer, **given}
        found.append(Case("start-reply", name, about, SOURCE, start, expect))

    # A refusal keeps the terminal's own words.
    for type_, code, status in (
        ("PARAMETER", "PAR-003", 422),
        ("TERMINAL", "TER-003", 409),
        ("TERMINAL", "TER-002", 409),
        ("AUTHENTICATION", "AUTH-001", 401),
        ("NOT_FOUND", "NF-001", 404),
        ("CONFIGURATION", "CONF-4007", 400),
        ("MANUFACTURER", "MAN-30005", 400),
        ("CLOUDPAYMENT_VALIDATION_ERROR", "401", 401),
        ("TERMINAL-SUNMI", "-1", 400),
    ):
        name = f"error-{type_}-{code}".lower().replace("_", "-")
        add(name, f"HTTP {status} with {type_} {code}", error(type_, code), REFUSED, status, (type_, code))
    add("error-no-type", "HTTP 400 and a code alone", error(None), REFUSED, 400, (None, "TER-004"))
    add("error-no-code", "HTTP 400 and a type alone", error(code=None), REFUSED, 400, ("TERMINAL", None))
    add("error-code-number", "a number as the code: its digits", error(code=17), REFUSED, 400, ("TERMINAL", "17"))
    add("error-neither", "HTTP 400 with a message alone", error(None, None), REFUSED, 400)
    add("error-in-failure", "inside `failure`", {"failure": error()}, REFUSED, 409, ("TERMINAL", "TER-004"))
    add("error-in-object", "inside `object`", {"object": error()}, REFUSED, 409, ("TERMINAL", "TER-004"))
    deeper = {"object": {"failure": error()}}
    add("error-in-failure-of-object", "inside `failure` of `object`", deeper, REFUSED, 409, ("TERMINAL", "TER-004"))
    about_it = error(object={"client_transaction_id": "1018282", "terminal_id": "1", "serial_number": SECOND})
    add(
        "error-object",
        "`object` names another payment: it may be what runs",
        about_it,
        REFUSED,
        409,
        ("TERMINAL", "TER-004"),
    )
    add("error-event", "HTTP 409 with an object that is no error", {"object": {"code": "7"}}, REFUSED, 409)

    # The acquirer may have been asked: no status makes that a refusal.
    for status in (200, 302, 400, 402, 409, 422, 499, 500):
        add(f"acquirer-{status}", f"HTTP {status} of the acquirer", error("ACQUIRER", "51"), DOUBT, status)
    add("acquirer-lower-case", "the type in lower case", error("acquirer", "51"), DOUBT, 422)
    add("acquirer-space", "a space behind the type", error("Acquirer ", "51"), DOUBT, 422)
    add("acquirer-old-code", "a code as older documents have it", error("PAYMENT", "ACQ-13"), DOUBT, 422)
    add("acquirer-code-no-dash", "such a code without its dash", error("PAYMENT", " acq13"), DOUBT, 422)
    add("acquirer-in-failure", "inside `failure`", {"failure": error("ACQUIRER", "51")}, DOUBT, 422)
    add(
        "acquirer-beside", "two errors, one of them of the acquirer", error(failure=error("ACQUIRER", "51")), DOUBT, 422
    )
    twice = b'{"type": "ACQUIRER", "type": "TERMINAL", "code": "TER-004", "message": "no"}'
    add("acquirer-twice", "two types, one of them the acquirer", twice, DOUBT, 422)
    add(
        "acquirer-trusted",
        "the profile trusts errors under 2xx: not this",
        error("ACQUIRER", "51"),
        DOUBT,
        errors_in_2xx=True,
    )
    for status in (408, 500, 503):
        add(f"doubt-{status}-error", f"HTTP {status} with an error", error(), DOUBT, status)

    # An error under 2xx.
    sunmi = ("TERMINAL-SUNMI", "-1")
    add("canceled", "the cardholder canceled it", USER_CANCELED, CANCELED, 200, sunmi)
    add("canceled-202", "under HTTP 202", USER_CANCELED, CANCELED, 202, sunmi)
    add("canceled-number", "the code is a number", error("TERMINAL-SUNMI", Literal("-1")), CANCELED, 200, sunmi)
    add("canceled-in-failure", "inside `failure`", {"failure": USER_CANCELED}, CANCELED, 200, sunmi)
    add("canceled-in-object", "inside `object`", {"object": USER_CANCELED}, CANCELED, 200, sunmi)
    add("canceled-not-approved", "`approved` is false", USER_CANCELED | {"approved": False}, CANCELED, 200, sunmi)
    ours = USER_CANCELED | {"object": {"client_transaction_id": IDENTITY.upper()}}
    add("canceled-ours", "it names our id", ours, CANCELED, 200, sunmi)
    add(
        "canceled-trusted",
        "the profile trusts errors: still canceled",
        USER_CANCELED,
        CANCELED,
        200,
        sunmi,
        errors_in_2xx=True,
    )
    known = {"client_transaction_id": IDENTITY, "terminal_id": "1", "serial_number": SECOND, "failure": None}
    about = {"failure": USER_CANCELED | {"param": "", "object": known}}
    add("canceled-about", "it names our id and a terminal inside `failure`", about, CANCELED, 200, sunmi)
    doubtful: dict[str, tuple[str, object]] = {
        "another": ("it names another id", USER_CANCELED | {"object": {"client_transaction_id": OTHER}}),
        "approved": ("`approved` is true", USER_CANCELED | {"approved": True}),
        "status": ("a state of the terminal beside it", USER_CANCELED | {"status": "CARD_PRESENTED"}),
        "response": (
            "the acquirer's answer beside it",
            USER_CANCELED | {"rawResponse": {"transaction_status": "ERROR"}},
        ),
        "lower-case": ("the type in lower case", error("terminal-sunmi", "-1")),
        "code": ("another code", error("TERMINAL-SUNMI", "-2")),
        "code-twice": ("two codes", b'{"type": "TERMINAL-SUNMI", "code": "-2", "code": "-1", "message": "no"}'),
        "two": ("two errors", USER_CANCELED | {"failure": error()}),
        "damaged": ("a byte of the code is damaged", b'{"type": "TERMINAL-SUNMI", "code": "-1\xff", "message": "no"}'),
        "list": ("in a list", [USER_CANCELED]),
        "transaction": ("a transaction beside it", USER_CANCELED | {"transaction": {"status": "APPROVAL"}}),
        "data": ("some data beside it", USER_CANCELED | {"data": {"transaction_reference": "r-1"}}),
        "operation": ("an operation with a state", USER_CANCELED | {"operation": {"status": "APPROVAL"}}),
        "failure-object": ("a state deeper in it", USER_CANCELED | {"failure": {"object": {"status": "APPROVAL"}}}),
        "object-object": ("a state two objects deeper", USER_CANCELED | {"object": {"object": {"status": "APPROVAL"}}}),
        "too-deep": ("deeper than errors are", {"object": {"object": {"object": {"object": USER_CANCELED}}}}),
        "acquirers-code": ("the acquirer's code beside it", USER_CANCELED | {"kushki_response": {"code": "000"}}),
        "authorization": ("an authorization code beside it", USER_CANCELED | {"authorization_code": "123456"}),
        "error": ("another error under another name", USER_CANCELED | {"error": {"type": "ACQUIRER", "code": "1"}}),
        "failures": ("a list of failures beside it", USER_CANCELED | {"failure": [{"type": "ACQUIRER"}]}),
        "acquirer-object": ("the acquirer's type in `object`", USER_CANCELED | {"object": {"type": "ACQUIRER"}}),
        "message-object": ("an object as the message", USER_CANCELED | {"message": {"status": "APPROVAL"}}),
        "object-twice": (
            "two objects",
            b'{"type": "TERMINAL-SUNMI", "code": "-1", "object": {"code": "-1"}, "object": {"status": "APPROVAL"}}',
        ),
        "failure-another": (
            "it names another id inside `failure`",
            {"failure": USER_CANCELED | {"object": {"client_transaction_id": OTHER}}},
        ),
        "id-number": ("it names an id that is no text", USER_CANCELED | {"object": {"client_transaction_id": 7}}),
    }
    for name, (about, content) in doubtful.items():
        add(f"canceled-{name}", f"a cancellation, but {about}", content, DOUBT)
    add("error-200", "an error under HTTP 200: the profile does not say what that means", error(), DOUBT)
    add("trusted", "the profile says: not started", error(), REFUSED, 200, ("TERMINAL", "TER-004"), errors_in_2xx=True)
    busy = error("TERMINAL", "TER-003")
    add("trusted-202", "under HTTP 202", busy, REFUSED, 202, ("TERMINAL", "TER-003"), errors_in_2xx=True)
    untrue: dict[str, tuple[str, object]] = {
        "no-type": ("no type", error(None)),
        "no-code": ("no code", error(code=None)),
        "another": ("another id", error(client_transaction_id=OTHER)),
        "approved": ("`approved` is true", error(approved=True)),
        "reference": ("a reference beside it", error(object={"transaction_reference": "r-1"})),
        "zeros": ("a code that some take for an approval", error(code="00")),
        "acknowledged": ("an acknowledgement beside it", GOOD | error()),
        "transaction": ("a transaction beside it", error(transaction={"status": "APPROVAL"})),
        "authorization": ("an authorization code beside it", error(authorization_code="123456")),
    }
    for name, (about, content) in untrue.items():
        add(f"trusted-{name}", f"the profile trusts errors under 2xx, but {about}", content, DOUBT, errors_in_2xx=True)
    # Nothing in an answer to a start approves, and an acknowledgement with an error is none.
    response = {"transaction_status": "APPROVAL", "transaction_reference": "r-1"}
    add(
        "sync-approved",
        "an approval of a synchronous call: no state of it",
        {"approved": True, "rawResponse": response},
        DOUBT,
    )
    add("sync-code", "a code of zeros", {"code": "00", "message": "approved"}, DOUBT)
    add("sync-declined", "declined", {"approved": False, "raw_response": {"transaction_status": "DECLINED"}}, DOUBT)
    add("acknowledged-error", "an acknowledgement and an error", GOOD | error(), DOUBT)
    add("acknowledged-failure", "an acknowledgement and a failure", GOOD | {"failure": {"code": "7"}}, DOUBT)
    add("acknowledged-in-object", "the acknowledgement inside `object`", {"message": "ok", "object": GOOD}, ACTIVE)
    another = changed(GOOD, "operation.client_transaction_id", OTHER)
    add("acknowledged-in-object-another", "of another payment", {"object": another}, DOUBT)
    add("acknowledged-in-object-two", "two states", {"status": "OK", "object": GOOD}, DOUBT)
    both = {"terminal": {"serialNumber": TERMINAL, "serial_number": SECOND}}
    add("twice-serial-names", "two serials under two names", GOOD | both, DOUBT)
    same = {"terminal": {"serialNumber": TERMINAL, "serial_number": TERMINAL}}
    add("acknowledged-serial-names", "the same serial under two names", GOOD | same, ACTIVE)
    return found


def others() -> list[Case]:
    """Return the replies to an abort and to a print job."""
    aborts = {
        "empty-object": ("{} with HTTP 200", 200, {}, "taken"),
        "error-200": ("an error under HTTP 200 says nothing certain", 200, error(), "unknown"),
        "error-409": ("an error with HTTP 409: nothing runs", 409, error("TERMINAL", "TER-002"), "nothing_running"),
        "busy-409": ("busy: something runs, whatever the status says", 409, error("TERMINAL", "TER-003"), "unknown"),
        "busy-lower-case": ("busy, in lower case", 409, error("TERMINAL", "ter-003"), "unknown"),
        "busy-failure": ("busy inside `failure`", 409, {"failure": error("TERMINAL", "TER-003")}, "unknown"),
        "busy-400": ("busy with another status", 400, error("TERMINAL", "TER-003"), "unknown"),
        "busy-second": ("two errors, one of them busy", 400, error(failure=error(code="TER-003")), "unknown"),
        "acquirer-409": ("HTTP 409 of the acquirer", 409, error("ACQUIRER", "51"), "unknown"),
        "acquirer-no-code": ("HTTP 409 and the acquirer's type alone", 409, {"type": "ACQUIRER"}, "unknown"),
        "no-type-409": ("HTTP 409 and a code alone", 409, error(None, "TER-002"), "nothing_running"),
        "two-409": ("HTTP 409 with two errors", 409, error(failure=error(code="TER-002")), "unknown"),
        "message-409": ("HTTP 409 and a message alone", 409, {"message": "nothing"}, "nothing_running"),
        "code-200": ("a code alone is no error for certain", 200, {"code": "ABORTED"}, "taken"),
        "failure-200": ("a failure", 200, {"failure": {"code": "7"}}, "unknown"),
        "error-401": ("refused for want of authentication", 401, error("AUTHENTICATION", "AUTH-001"), "not_taken"),
    }
    found = [
        Case("abort-reply", name, about, SOURCE, {"reply": reply(status, body(content))}, {"answer": answer})
        for name, (about, status, content, answer) in aborts.items()
    ]
    doubt = state("in_doubt", None, None, "in_doubt")
    named = {"printJobId": JOB, "status": "PENDING"}
    prints = {
        "error-202": ("an error under HTTP 202: it may have the job", 202, error("TERMINAL-PRINTER", "1"), doubt),
        "error-202-taken": ("an error beside its state", 202, error() | named, doubt),
        "error-in-failure": ("a failure", 202, {"failure": {"code": "7"}} | named, doubt),
        "error-409": ("HTTP 409 with an error", 409, error("TERMINAL", "TER-003"), state("final", None, "refusal")),
    }
    for name, (about, status, content, after) in prints.items():
        given = {"print_job_id": JOB, "reply": reply(status, body(content))}
        expect = {"after": after, "terminal_job_id": None}
        found.append(Case("print-start-reply", name, about, SOURCE, given, expect))
    poll = {
        "print_job_id": JOB,
        "terminal_job_id": None,
        "reply": reply(200, body(error("NOT_FOUND", "NF-001", status=404))),
    }
    nothing = {"status": None, "after": state("active", "PENDING", None)}
    found.append(
        Case("print-poll-reply", "error-200", "an error that names a status of its own", SOURCE, poll, nothing)
    )
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*starts(), *others()]

"""Print webhooks of a job that the terminal has taken (spec 2.3, 6.4)."""

from typing import Any

from tests.vectors.case import Body, Case, as_body, parts
from tests.vectors.wire import body

JOB = "job-1042"
OTHER = "job-9999"

DONE = {"printJobId": JOB, "status": "COMPLETED", "externalReference": "ticket 1042"}
FAILED = {
    "printJobId": JOB,
    "status": "FAILED",
    "externalReference": "",
    "errorCode": "PAPER_OUT",
    "errorMessage": "The printer is out of paper",
}


def state(phase: str, status: str | None, by: str | None, *attention: str, **errors: str) -> dict[str, Any]:
    return {
        "phase": phase,
        "status": status,
        "decided_by": by,
        "error_code": errors.get("code"),
        "error_message": errors.get("message"),
        "attention": sorted(attention),
    }


#: A job that the terminal has taken and of which nothing more is known.
PENDING = state("active", "PENDING", None)
COMPLETED = state("final", "COMPLETED", "webhook")
BROKEN = state("final", "FAILED", "webhook", code="PAPER_OUT", message="The printer is out of paper")


def cases() -> list[Case]:
    """Return webhooks of a job that the terminal has taken."""
    found: list[Case] = []

    def taken(name: str, about: str, content: bytes | Body, reads: dict[str, Any], after: dict[str, Any]) -> None:
        given = {"print_job_id": JOB, "terminal_job_id": None, "body": as_body(content)}
        found.append(
            Case("print-webhook", name, about, "spec 2.3, 6.4", given, {"reply": 200, "reads": reads, "after": after})
        )

    def refused(name: str, about: str, content: bytes | Body, status: int = 400) -> None:
        given = {"print_job_id": JOB, "terminal_job_id": None, "body": as_body(content)}
        after = PENDING | {"attention": ["quarantined_event"]}
        found.append(Case("print-webhook", name, about, "spec 2.3, design 5", given, {"reply": status, "after": after}))

    def without(document: dict[str, Any], *names: str) -> dict[str, Any]:
        return {name: value for name, value in document.items() if name not in names}

    taken("completed", "printed", body(DONE), DONE, COMPLETED)
    taken(
        "completed-no-reference",
        "printed, without a reference of the till",
        body(DONE | {"externalReference": ""}),
        DONE | {"externalReference": ""},
        COMPLETED,
    )
    taken("failed", "not printed, with the printer's code", body(FAILED), FAILED, BROKEN)
    taken(
        "failed-no-error",
        "not printed, and not said why",
        body(without(FAILED, "errorCode", "errorMessage")),
        without(FAILED, "errorCode", "errorMessage"),
        state("final", "FAILED", "webhook"),
    )
    taken(
        "failed-code-number",
        "the code as a number: its digits",
        body(FAILED | {"errorCode": 7}),
        FAILED | {"errorCode": "7"},
        BROKEN | {"error_code": "7"},
    )
    for kind, value in {"null": None, "list": [], "object": {}, "true": True}.items():
        taken(
            f"failed-error-{kind}",
            f"the error is of another kind: {kind}",
            body(FAILED | {"errorCode": value, "errorMessage": value}),
            without(FAILED, "errorCode", "errorMessage"),
            state("final", "FAILED", "webhook"),
        )
        taken(
            f"completed-reference-{kind}",
            f"the reference is of another kind: {kind}",
            body(DONE | {"externalReference": value}),
            DONE | {"externalReference": ""},
            COMPLETED,
        )
    taken(
        "completed-reference-missing",
        "no externalReference",
        body(without(DONE, "externalReference")),
        DONE | {"externalReference": ""},
        COMPLETED,
    )
    taken(
        "completed-with-error",
        "printed, with an error against the spec: it belongs to FAILED alone",
        body(DONE | {"errorCode": "E", "errorMessage": "m"}),
        DONE | {"errorCode": "E", "errorMessage": "m"},
        COMPLETED,
    )
    taken("extra", "more members", body(DONE | {"copies": 1, "new": {"a": []}}), DONE, COMPLETED)
    taken("form-space", "white space around it", b"\r\n " + body(DONE) + b"\n", DONE, COMPLETED)
    taken(
        "form-escaped", "a word in escapes", body(DONE).replace(b'"COMPLETED"', b'"\\u0043OMPLETED"'), DONE, COMPLETED
    )
    taken(
        "pending",
        "PENDING, which is never delivered by the spec: no end",
        body(DONE | {"status": "PENDING"}),
        DONE | {"status": "PENDING"},
        PENDING,
    )
    taken(
        "in-progress",
        "IN_PROGRESS, which is never delivered by the spec: no end",
        body(DONE | {"status": "IN_PROGRESS"}),
        DONE | {"status": "IN_PROGRESS"},
        state("active", "IN_PROGRESS", None),
    )
    for name, word in {"new": "JAMMED", "lower-case": "completed", "space": "COMPLETED ", "nul": "COMPLETED\0"}.items():
        taken(
            f"status-{name}",
            f"a state that the spec does not have: {word!r}; no end",
            body(DONE | {"status": word}),
            DONE | {"status": word},
            state("active", "PENDING", None, "unknown_status"),
        )
    taken("twice-same", "all twice, and the same", body(DONE)[:-1] + b", " + body(DONE)[1:], DONE, COMPLETED)
    taken(
        "twice-unread",
        "a member that posd does not read says two things",
        body(DONE)[:-1] + b', "x": 1, "x": 2}',
        DONE,
        COMPLETED,
    )

    refused("another-job", "another job than that of the address", body(DONE | {"printJobId": OTHER}))
    for name, word in {"upper-case": JOB.upper(), "space": f"{JOB} ", "nul": f"{JOB}\0", "dots": ".."}.items():
        refused(f"id-{name}", f"printJobId is {word!r}: not the job of the address", body(DONE | {"printJobId": word}))
    for field in ("printJobId", "status"):
        word = "id" if field == "printJobId" else "status"
        refused(f"{word}-missing", f"{field} is missing", body(without(DONE, field)))
        for kind, value in {
            "null": None,
            "empty": "",
            "list": [JOB],
            "object": {},
            "true": True,
            "long": "x" * 257,
        }.items():
            refused(f"{word}-{kind}", f"{field} is of another kind: {kind}", body(DONE | {field: value}))
    refused("twice-id", "two jobs", body(DONE)[:-1] + b', "printJobId": "job-9999"}')
    refused("twice-status", "two states", body(DONE)[:-1] + b', "status": "FAILED"}')
    refused("twice-status-before", "two states", b'{"status": "FAILED", ' + body(DONE)[1:])
    refused("snake-case", "names of the other channel's manner", body({"print_job_id": JOB, "status": "COMPLETED"}))
    refused("list", "a list", body([DONE]))
    refused("null", "null", b"null")
    refused("empty", "no body", b"")
    refused("html", "a page", b"<html></html>")
    refused("cut", "its last byte is missing", body(DONE)[:-1])
    taken("garbage-after", "more bytes after it: read without them", body(DONE) + b"x", DONE, COMPLETED)
    taken("bom", "a byte order mark: read without it", b"\xef\xbb\xbf" + body(DONE), DONE, COMPLETED)
    refused("utf-16", "UTF-16", body(DONE).decode().encode("utf-16"))
    shown = DONE | {"errorMessage": "\ufffd"}
    taken("bad-utf-8", "no UTF-8: shown as U+FFFD", body(DONE)[:-1] + b', "errorMessage": "\xff"}', shown, COMPLETED)
    half = body(DONE)[:-1] + b', "errorMessage": "\\ud800"}'
    taken("lone-surrogate", "half a character: shown as U+FFFD", half, shown, COMPLETED)
    taken("nan", "NaN: read around it", body(DONE)[:-1] + b', "x": NaN}', DONE, COMPLETED)
    deep = parts((body(DONE)[:-1] + b', "x": ', 1), (b"[", 10_000), (b"]", 10_000), (b"}", 1))
    taken("deep", "10,000 levels: read around them", deep, DONE, COMPLETED)
    bad = body(DONE | {"printJobId": "#"}).replace(b"#", b"job-\xff042")
    left = without(DONE, "printJobId")
    taken("id-bad-utf-8", "a byte of the id is damaged: the address says it", bad, left, COMPLETED)
    refused("status-bad-utf-8", "a byte of the status is damaged", body(DONE).replace(b"COMPLETED", b"COMPL\xffTED"))
    refused("event", "an event of a payment at a print job's address", b'{"event_id": "e", "status": "APPROVAL"}')
    size = len(body(DONE))
    refused(
        "size-over-the-limit", "one byte over the limit of 64 KiB", parts((body(DONE), 1), (b" ", 65_537 - size)), 413
    )
    taken(
        "size-at-the-limit",
        "as large as the limit, 64 KiB",
        parts((body(DONE), 1), (b" ", 65_536 - size)),
        DONE,
        COMPLETED,
    )
    return found

"""What a terminal answers to the creation of a print job, and to a poll for it (spec 3.2, 4.3, 6.4).

No shape of these replies is shown: a 2xx to the creation means that the terminal has the job, with any body,
and what cannot be read of a poll says nothing.
"""

from typing import Any

from tests.vectors.case import Body, Case, parts, reply
from tests.vectors.tables.print_webhooks import JOB, OTHER, PENDING, state
from tests.vectors.wire import Literal, body

#: How the terminal itself calls the job, where its reply to the creation has said so.
OWN = "T-77"


def creations() -> list[Case]:
    """Return the replies to the creation of a job."""
    found: list[Case] = []

    def add(name: str, about: str, answer: dict[str, Any], after: dict[str, Any], own: str | None = None) -> None:
        given = {"print_job_id": JOB, **answer}
        found.append(
            Case(
                "print-start-reply",
                name,
                about,
                "spec 4.3, design 4 step 5",
                given,
                {"after": after, "terminal_job_id": own},
            )
        )

    def answered(
        name: str,
        about: str,
        content: bytes | Body,
        after: dict[str, Any] = PENDING,
        status: int = 202,
        own: str | None = None,
    ) -> None:
        add(name, about, {"reply": reply(status, content)}, after, own)

    add(
        "transport-not-sent",
        "no connection: nothing was written",
        {"transport": "not_sent"},
        state("final", None, "unsent"),
    )
    add(
        "transport-lost",
        "written, and no whole reply came",
        {"transport": "lost"},
        state("in_doubt", None, None, "in_doubt"),
    )
    answered("taken", "taken, with our id and its state", body({"printJobId": JOB, "status": "PENDING"}))
    for status in (200, 201, 204, 206, 299):
        answered(f"taken-{status}", f"HTTP {status}: any 2xx", b"", PENDING, status)
    for name, content in {
        "html": b"<html>ok</html>",
        "list": b"[]",
        "null": b"null",
        "cut": b'{"printJobId": "job',
        "text": b'"ok"',
        "bad-utf-8": b"\xff",
        "empty-object": b"{}",
    }.items():
        answered(f"taken-{name}", "a body that says nothing: the terminal has the job", content)
    answered("taken-own-id", "the terminal calls it by an id of its own", body({"printJobId": OWN}), own=OWN)
    answered("taken-own-id-number", "its own id as a number", body({"id": 4711}), own="4711")
    answered("taken-own-id-snake-case", "its own id under another name", body({"print_job_id": OWN}), own=OWN)
    for name, value in {"dots": "..", "empty": "", "long": "x" * 257, "list": [], "null": None}.items():
        answered(
            f"taken-id-{name}",
            "an id that cannot stand in the path of a poll: as if there were none",
            body({"printJobId": value}),
        )
    answered(
        "taken-two-ids",
        "two ids under one name: it is not known which",
        b'{"printJobId": "T-77", "printJobId": "T-78"}',
    )
    answered(
        "taken-in-progress",
        "it prints",
        body({"printJobId": JOB, "status": "IN_PROGRESS"}),
        state("active", "IN_PROGRESS", None),
    )
    answered(
        "taken-completed",
        "printed already",
        body({"printJobId": JOB, "status": "COMPLETED"}),
        state("final", "COMPLETED", "poll"),
    )
    answered(
        "taken-failed",
        "failed already",
        body({"status": "FAILED", "errorCode": "E-1", "errorMessage": "jam"}),
        state("final", "FAILED", "poll", code="E-1", message="jam"),
    )
    answered("taken-unknown-status", "a word of its own for taken", body({"status": "QUEUED"}))
    answered("taken-two-states", "two states: neither is believed", b'{"status": "FAILED", "status": "COMPLETED"}')
    answered("taken-deep", "1,000 levels", parts((b"[", 1000), (b"]", 1000)))
    for status in (301, 302, 400, 401, 403, 404, 409, 413, 422, 429):
        answered(f"refused-{status}", f"HTTP {status}: not taken", b"no", state("final", None, "refusal"), status)
    for status in (408, 500, 502, 503, 504):
        answered(
            f"doubt-{status}",
            f"HTTP {status}: it may have it",
            b"no",
            state("in_doubt", None, None, "in_doubt"),
            status,
        )
    return found


def polls() -> list[Case]:
    """Return the replies to a poll for a job that the terminal has taken."""
    found: list[Case] = []
    named = {"printJobId": JOB, "status": "COMPLETED"}
    done = state("final", "COMPLETED", "poll")

    def add(
        name: str, about: str, answer: dict[str, Any], says: str | None, after: dict[str, Any], own: str | None = None
    ) -> None:
        given = {"print_job_id": JOB, "terminal_job_id": own, **answer}
        found.append(
            Case("print-poll-reply", name, about, "spec 3.2, 6.4; design 6", given, {"status": says, "after": after})
        )

    def answered(
        name: str,
        about: str,
        content: bytes | Body,
        says: str | None,
        after: dict[str, Any] = PENDING,
        status: int = 200,
        own: str | None = None,
    ) -> None:
        add(name, about, {"reply": reply(status, content)}, says, after, own)

    add("transport-not-sent", "no connection", {"transport": "not_sent"}, None, PENDING)
    add("transport-lost", "no whole reply", {"transport": "lost"}, None, PENDING)
    answered("completed", "printed", body(named), "COMPLETED", done)
    answered("completed-list", "printed, in a list", body([named]), "COMPLETED", done)
    answered(
        "completed-among-others",
        "printed, among others",
        body([{"printJobId": OTHER, "status": "FAILED"}, named]),
        "COMPLETED",
        done,
    )
    answered(
        "completed-no-id",
        "an answer without an id is one to the question",
        body({"status": "COMPLETED"}),
        "COMPLETED",
        done,
    )
    answered(
        "completed-snake-case",
        "the id under another name",
        body({"print_job_id": JOB, "status": "COMPLETED"}),
        "COMPLETED",
        done,
    )
    answered(
        "completed-own-id",
        "under the terminal's own id",
        body({"printJobId": OWN, "status": "COMPLETED"}),
        "COMPLETED",
        done,
        own=OWN,
    )
    answered(
        "completed-both-ids",
        "its own id and ours",
        body({"id": 5, "printJobId": JOB, "status": "COMPLETED"}),
        "COMPLETED",
        done,
    )
    answered(
        "failed",
        "failed, with the code",
        body({"printJobId": JOB, "status": "FAILED", "errorCode": "E", "errorMessage": "jam"}),
        "FAILED",
        state("final", "FAILED", "poll", code="E", message="jam"),
    )
    answered("pending", "still waits", body(named | {"status": "PENDING"}), "PENDING")
    answered(
        "in-progress",
        "it prints",
        body(named | {"status": "IN_PROGRESS"}),
        "IN_PROGRESS",
        state("active", "IN_PROGRESS", None),
    )
    answered("completed-twice", "printed, said twice", body([named, named]), "COMPLETED", done)
    unknown = state("active", "PENDING", None, "unknown_status")
    answered("unknown", "a state that the spec does not have", body(named | {"status": "JAMMED"}), "JAMMED", unknown)
    answered(
        "lower-case", "another spelling: another word", body(named | {"status": "completed"}), "completed", unknown
    )
    strange: dict[str, bytes | Body] = {
        "another": body({"printJobId": OTHER, "status": "COMPLETED"}),
        "own-id-unknown": body({"printJobId": OWN, "status": "COMPLETED"}),
        "others": body([{"printJobId": OTHER, "status": "FAILED"}, {"printJobId": "x", "status": "COMPLETED"}]),
        "two-states": body([named, named | {"status": "FAILED"}]),
        "list-no-ids": body([{"status": "FAILED"}, {"status": "COMPLETED"}]),
        "no-status": body({"printJobId": JOB}),
        "status-empty": body(named | {"status": ""}),
        "status-list": body(named | {"status": ["COMPLETED"]}),
        "status-true": body(named | {"status": True}),
        "twice-status": body(named)[:-1] + b', "status": "FAILED"}',
        "twice-id": body(named)[:-1] + b', "printJobId": "job-9999"}',
        "twice-id-before": b'{"printJobId": "job-9999", ' + body(named)[1:],
        "empty-list": b"[]",
        "empty-object": b"{}",
        "text": b'"COMPLETED"',
        "null": b"null",
        "empty": b"",
        "html": b"<html>COMPLETED</html>",
        "cut": body(named)[:-1],
        "status-bad-utf-8": body(named).replace(b"COMPLETED", b"COMPL\xffTED"),
        "id-bad-utf-8": body(named | {"printJobId": "#"}).replace(b"#", b"job\xff1042"),
        "wrapped": body({"data": named}),
        "deep": parts((b"[", 1000), (b"]", 1000)),
    }
    damaged: dict[str, bytes] = {
        "garbage-after": body(named) + b"x",
        "bom": b"\xef\xbb\xbf" + body(named),
        "bad-utf-8": body(named)[:-1] + b', "x": "\xff"}',
        "nan": body(named | {"x": Literal("NaN")}),
    }
    for name, content in damaged.items():
        answered(f"damaged-{name}", "printed, and a part of it cannot be read", content, "COMPLETED", done)
    for name, content in strange.items():
        answered(f"nothing-{name}", "it says nothing of this job", content, None)
    for status in (204, 302, 400, 401, 404, 408, 410, 500, 503):
        answered(
            f"nothing-{status}",
            f"HTTP {status} proves nothing",
            b"" if status == 204 else body(named),
            None,
            status=status,
        )
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*creations(), *polls()]

"""Print jobs for people: the list, a job with its history, and the wait for the end of a job."""

from typing import Any

from tests.cli.documents import COMPLETED, FAILED, JOB, REFUSED, answer, attention, print_job
from tests.cli.processes import asked
from tests.cli.stub import Answer
from tests.support.tables import every

STUCK = print_job(status="IN_PROGRESS", attention=[attention("print_stuck", "for 300 s")])
DOUBTFUL = print_job(status=None, phase="in_doubt", attention=[attention("in_doubt", "no answer")])


def page(*jobs: dict[str, Any], cursor: str | None = None) -> Answer:
    return answer({"print_jobs": list(jobs), "next_cursor": cursor})


@every(
    ("arguments", "query"),
    [
        ((), "limit=50"),
        (("--open",), "limit=50&open=true"),
        (("--attention",), "limit=50&attention=true"),
        (("--terminal", "SN-1", "--limit", "7"), "limit=7&terminal=SN-1"),
    ],
)
def test_the_filters_are_the_filters_of_the_api(arguments: tuple[str, ...], query: str) -> None:
    done = asked([page()], "print-jobs", *arguments)
    assert (done.returncode, done.calls[0].path) == (0, f"/v1/print-jobs?{query}"), done.stderr


def test_the_table_has_one_row_for_each_job() -> None:
    jobs = (STUCK, DOUBTFUL, COMPLETED, FAILED, REFUSED, print_job(terminal=None, external_reference="ticket\t7"))
    head, *rows = asked([page(*jobs)], "print-jobs").rows
    assert head == ["created", "print job", "terminal", "reference", "state"]
    states = ("printing !print_stuck", "in doubt !in_doubt", "printed", "failed", "refused")
    assert [row[1:] for row in rows] == [
        *([JOB, "SN-0001", "-", state] for state in states),
        [JOB, "-", r"ticket\t7", "waiting to print"],
    ]


def test_all_asks_page_after_page() -> None:
    script = [page(STUCK, cursor="c1"), page(COMPLETED)]
    done, program = (asked(script, "print-jobs", "--all", *more) for more in ((), ("--json",)))
    assert done.calls[1].path == "/v1/print-jobs?limit=50&cursor=c1"
    assert len(done.lines) == 3
    assert program.lines == [reply.body.decode() for reply in script]
    assert "--all shows them" in asked(script[:1], "print-jobs").stderr


#: An entry of the history -> text and details.
HISTORY: list[tuple[dict[str, Any], list[str]]] = [
    ({"kind": "intent", "terminal": "SN-0001"}, ["recorded, about to be sent", "SN-0001"]),
    (
        {"kind": "attempt", "judgement": "accepted", "http_status": 202, "reason": None},
        ["sent: the terminal accepted it", "HTTP 202"],
    ),
    (
        {"kind": "poll", "status": "IN_PROGRESS", "http_status": None, "reason": None},
        ["terminal asked: IN_PROGRESS", ""],
    ),
    ({"kind": "turn"}, ["next to be sent", ""]),
    ({"kind": "interrupted", "in_line": True}, ["posd was stopped before it sent this job", ""]),
    ({"kind": "interrupted", "in_line": False}, ["posd was stopped while it sent the job", ""]),
    ({"kind": "print_stuck", "seconds": 300}, ["no end reported for 300 s", ""]),
    (
        {"kind": "webhook", "status": "FAILED", "error_code": "E7", "error_message": "no paper", "body": {}},
        ["the terminal reported FAILED", "no paper, code E7"],
    ),
    ({"kind": "new_kind", "value": 7}, ["new_kind", "value 7"]),
]


@every(("end", "code"), [(COMPLETED, 0), (FAILED, 1)])
def test_a_command_waits_for_the_end_of_a_job(end: dict[str, Any], code: int) -> None:
    script = [answer(print_job()), answer(print_job(status="IN_PROGRESS"), 202), answer(end)]
    done = asked(script, "print-jobs", JOB, "--wait")
    assert (done.returncode, "  IN_PROGRESS\n" in done.stdout) == (code, True)
    program = asked([answer(end)], "print-jobs", JOB, "--wait", "--json")
    assert (program.returncode, program.document) == (code, end)

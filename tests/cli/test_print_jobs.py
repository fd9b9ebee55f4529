"""Print jobs for people: the list, one with its history, and an operator's decision."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from tests.cli.documents import AT, ID, answer, attention
from tests.cli.print_documents import COMPLETED, FAILED, JOB, REFUSED, print_job
from tests.cli.processes import posd, posd_on_terminal
from tests.cli.stub import Answer, Stub

STUCK = print_job(status="IN_PROGRESS", attention=[attention("print_stuck", "for 300 s")])
DOUBTFUL = print_job(status=None, phase="in_doubt", attention=[attention("in_doubt", "no answer")])


def page(*jobs: dict[str, Any], cursor: str | None = None) -> Answer:
    return answer({"print_jobs": list(jobs), "next_cursor": cursor})


# the list


@pytest.mark.parametrize(
    ("arguments", "query"),
    [
        ((), "limit=50"),
        (("--open",), "limit=50&open=true"),
        (("--attention",), "limit=50&attention=true"),
        (("--terminal", "SN-1", "--limit", "7"), "limit=7&terminal=SN-1"),
    ],
    ids=" ".join,
)
def test_the_filters_are_those_of_the_api(tmp_path: Path, arguments: tuple[str, ...], query: str) -> None:
    with Stub(tmp_path / "s", [page()]) as stub:
        done = posd("print-jobs", *arguments, socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert stub.calls[0].path == f"/v1/print-jobs?{query}"


def test_the_table_has_a_row_a_job(tmp_path: Path) -> None:
    jobs = (STUCK, DOUBTFUL, COMPLETED, FAILED, REFUSED, print_job(terminal=None, external_reference="ticket\t7"))
    with Stub(tmp_path / "s", [page(*jobs)]):
        done = posd("print-jobs", socket=tmp_path / "s")
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["created", "print job", "terminal", "reference", "state"]
    assert [row[1:] for row in rows[1:]] == [
        [JOB, "SN-0001", "-", "printing !print_stuck"],
        [JOB, "SN-0001", "-", "in doubt !in_doubt"],
        [JOB, "SN-0001", "-", "printed"],
        [JOB, "SN-0001", "-", "failed"],
        [JOB, "SN-0001", "-", "refused"],
        [JOB, "-", r"ticket\t7", "waiting to print"],
    ]


def test_all_asks_page_after_page(tmp_path: Path) -> None:
    script = [page(STUCK, cursor="c1"), page(COMPLETED)]
    with Stub(tmp_path / "s", [*script, *script, script[0]]) as stub:
        done = posd("print-jobs", "--all", socket=tmp_path / "s")
        pages = posd("print-jobs", "--all", "--json", socket=tmp_path / "s").stdout.splitlines()
        first = posd("print-jobs", socket=tmp_path / "s")
    assert stub.calls[1].path == "/v1/print-jobs?limit=50&cursor=c1"
    assert len(done.stdout.splitlines()) == 3
    assert [json.loads(line)["print_jobs"] for line in pages] == [[STUCK], [COMPLETED]]
    assert "--all shows them" in first.stderr


def test_attention_says_what_to_do_and_to_type(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [page(STUCK, DOUBTFUL)]):
        done = posd("print-jobs", "--attention", socket=tmp_path / "s")
    lines = done.stdout.splitlines()
    assert lines[lines.index("print_stuck") + 1].startswith("  The terminal accepted it long ago")
    assert lines[lines.index("in_doubt") + 1].startswith("  The terminal may have accepted it")
    assert lines.count(f"    posd resolve {JOB} FAILED") == 2


def test_no_print_jobs_is_a_sentence_for_people(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [page()]):
        seen = posd_on_terminal("print-jobs", socket=tmp_path / "s")
    assert seen.screen.strip() == "No print jobs."


def test_on_a_terminal_the_table_fits_and_no_id_is_broken(tmp_path: Path) -> None:
    long = print_job(print_job_id=ID, external_reference="2026-11-20/till-3/1042", attention=STUCK["attention"])
    with Stub(tmp_path / "s", [page(long)]):
        seen = posd_on_terminal("print-jobs", socket=tmp_path / "s")
    assert f"  {ID[:8]}  " in seen.screen
    assert all(cell_len(line) <= 80 for line in seen.screen.split("\n"))


# one of them


def test_one_is_shown_with_its_history(tmp_path: Path) -> None:
    history = [
        {"at": AT, "kind": "intent", "terminal": "SN-0001"},
        {"at": AT, "kind": "attempt", "judgement": "accepted", "http_status": 202, "reason": None},
        {"at": AT, "kind": "poll", "status": "IN_PROGRESS", "http_status": None, "reason": None},
        {"at": AT, "kind": "turn"},
        {"at": AT, "kind": "interrupted", "in_line": True},
        {"at": AT, "kind": "interrupted", "in_line": False},
        {"at": AT, "kind": "print_stuck", "seconds": 300},
        {"at": AT, "kind": "webhook", "status": "FAILED", "error_code": "E7", "error_message": "no paper", "body": {}},
        {"at": AT, "kind": "new_kind", "value": 7},
    ]
    with Stub(tmp_path / "s", [answer(FAILED), answer({"history": history}), answer(FAILED)]) as stub:
        done = posd("print-jobs", JOB, socket=tmp_path / "s")
        program = posd("print-jobs", JOB, "--json", socket=tmp_path / "s")
    assert done.returncode == program.returncode == 0, done.stderr
    assert [call.path for call in stub.calls] == [
        f"/v1/print-jobs/{JOB}",
        f"/v1/print-jobs/{JOB}/history",
        f"/v1/print-jobs/{JOB}",
    ]
    lines = done.stdout.splitlines()
    assert "error: out of paper (E7)" in lines
    rows = [line.split("\t")[1:] for line in lines[lines.index("time\twhat\tdetails") + 1 :]]
    assert rows == [
        ["recorded, about to be sent", "SN-0001"],
        ["sent: the terminal accepted it", "HTTP 202"],
        ["terminal asked: IN_PROGRESS", ""],
        ["next to be sent", ""],
        ["posd was stopped before it sent this job", ""],
        ["posd was stopped while it sent the job", ""],
        ["no end reported for 300 s", ""],
        ["the terminal reported FAILED", "no paper, code E7"],
        ["new_kind", "value 7"],
    ]
    assert json.loads(program.stdout) == FAILED


def test_an_open_one_says_what_happens_now_and_what_to_do(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(DOUBTFUL), answer({"history": []})]):
        done = posd("print-jobs", JOB, socket=tmp_path / "s")
    assert "now: cannot tell whether the terminal accepted it: posd asks again." in done.stdout
    assert "attention in_doubt: no answer" in done.stdout


@pytest.mark.parametrize(("end", "code"), [(COMPLETED, 0), (FAILED, 1)], ids=["completed", "failed"])
def test_its_end_can_be_waited_for(tmp_path: Path, end: dict[str, Any], code: int) -> None:
    script = [answer(print_job()), answer(print_job(status="IN_PROGRESS"), 202), answer(end), answer(end)]
    with Stub(tmp_path / "s", script):
        done = posd("print-jobs", JOB, "--wait", socket=tmp_path / "s")
        again = posd("print-jobs", JOB, "--wait", "--json", socket=tmp_path / "s")
    assert (done.returncode, again.returncode) == (code, code)
    assert "  IN_PROGRESS\n" in done.stdout
    assert json.loads(again.stdout) == end


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--wait",), "--wait is for one print job"),
        (("..",), "is not the id of a print job"),
        (("--limit", "0"), "--limit"),
    ],
    ids=["wait for all", "dots", "limit"],
)
def test_wrong_usage_is_named_and_nothing_is_asked(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    with Stub(tmp_path / "s", []) as stub:
        done = posd("print-jobs", *arguments, socket=tmp_path / "s")
    assert done.returncode == 2
    assert words in done.stderr
    assert stub.calls == []


def test_resolve_on_a_terminal_shows_the_job_and_asks(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(STUCK), answer(FAILED | {"decided_by": "operator"})]) as stub:
        seen = posd_on_terminal(
            "resolve", JOB, "FAILED", "--operator", "Ana", socket=tmp_path / "s", types="jammed\ny\n"
        )
    assert seen.returncode == 0, seen.screen
    assert [call.method for call in stub.calls] == ["GET", "POST"]
    text = " ".join(seen.screen.split())
    assert "books the print job as not printed: it can be printed again" in text
    assert "Why (it is kept with the print job): " in text
    assert json.loads(stub.calls[1].body)["note"] == "jammed"

"""Promises of every command that calls posd: the JSON, the screen of 80 columns, and the end of a wait for the
response.
"""

import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from posd.cli.operate import database
from posd.cli.payments import decide
from tests.cli.documents import AT, FAILED, ID, JOB, answer, attention, outcome, print_job, transaction
from tests.cli.processes import PATIENCE, asked, asked_on_terminal, posd, posd_interrupted
from tests.cli.stub import Answer, Stub
from tests.cli.test_quarantine import CHANGED, entry, page, result
from tests.cli.test_terminals import CLAIMED, LOST
from tests.support.tables import every

APPROVED = transaction(outcome=outcome("approved", {"kind": "search", "event_id": "e-1"}))
DECLINED = transaction(outcome=outcome("declined", {"kind": "search", "event_id": "e-1"}))
HISTORY = {"history": [{"at": AT, "kind": "search", "result": None}]}
LISTED = {"transactions": [transaction(attention=[attention("orphan")])], "next_cursor": None}
DOUBTFUL = transaction(last_search={"at": AT, "result": "none"}, attention=[attention("in_doubt", "lost")])
SURE = answer({"serial": "SN-0001", "identity": {"conflict": False}})


@every(
    ("line", "document", "code"),
    [
        (f"show {ID}", APPROVED, 0),
        (f"show {ID} --history", HISTORY, 0),
        ("list --attention", LISTED, 0),
        (f"reconcile {ID}", APPROVED, 0),
        (f"reconcile {ID}", DECLINED, 1),
        ("terminals", {"terminals": [LOST]}, 0),
        (f"print-jobs {JOB}", FAILED, 0),
        ("quarantine 12", entry(12), 0),
        ("reprocess", result(), 0),
        ("reprocess", result(differences=[CHANGED]), 1),
    ],
)
def test_json_is_exactly_the_document_of_the_api(line: str, document: dict[str, Any], code: int) -> None:
    done = asked([answer(document)], *line.split(), "--json")
    assert (done.returncode, done.document, done.stderr) == (code, document, "")
    assert len(done.calls) == 1


WIDE = entry(12345, b"x" * 1_048_576, peer="2001:0db8:85a3:0000:0000:8a2e:0370:7334")
LONG_JOB = print_job(
    print_job_id=ID, external_reference="2026-11-20/till-3/1042", attention=[attention("print_stuck", "for 300 s")]
)
REASON = "SN-3: also announced at https://192.0.2.9:1, which is not trusted: x"
NOTHING_OLD = {
    "before": "2025-10-16T00:00:00.000Z",
    "dry_run": True,
    "removed": {"transactions": 0, "print_jobs": 0, "quarantined": 0, "changes": 0},
    "kept": {},
    "bytes_before": 0,
    "bytes_returned": 0,
    "kept_for_shift": False,
}


@every(
    ("line", "script", "code", "words"),
    [
        ("print-jobs", [answer({"print_jobs": [], "next_cursor": None})], 0, ["No print jobs."]),
        ("print-jobs", [answer({"print_jobs": [LONG_JOB], "next_cursor": None})], 0, [ID[:8]]),
        ("quarantine", [page()], 0, ["Nothing is set aside."]),
        ("quarantine", [page(WIDE, entry(12346))], 0, ["1048576", "7f3c0000 ", "192.168.100.120"]),
        ("terminals", [answer({"terminals": [LOST, CLAIMED]})], 0, ["SN-1: nothing listens there", REASON]),
        ("explain", [], 0, ["posd.cannot_start"]),
        ("explain conflicting_final payments_of_process", [], 0, ["posd acknowledge"]),
        (f"reconcile {ID}", [answer(DOUBTFUL), SURE], 4, ["asking the terminal", f"posd release {ID}"]),
        ("prune", [answer(NOTHING_OLD)], 0, ["There is nothing to remove."]),
    ],
)
def test_a_screen_of_80_columns_has_the_important_text(
    line: str, script: list[Answer], code: int, words: list[str]
) -> None:
    seen = asked_on_terminal(script, *line.split(), types="n\n")
    assert (seen.returncode, seen.fits(), [each for each in words if each not in seen.words]) == (code, True, [])
    assert (len(seen.calls), "192.0.2.8" in seen.screen) == (len(script), False)


@pytest.mark.slow
@every(
    ("line", "script", "words"),
    [
        ("backup /tmp/b.db", [], ["posd may continue with it"]),
        ("reprocess", [], ["posd may continue with it"]),
        (f"reconcile {ID}", [], [f"posd show {ID}"]),
        (
            f"print {__file__} --json",
            [answer(print_job(), 201)],
            ["Stopped waiting; the print job goes on.", f"posd print-jobs {JOB} --wait"],
        ),
    ],
)
def test_ctrl_c_ends_a_wait_with_4_and_says_what_continues(line: str, script: list[Answer], words: list[str]) -> None:
    done = posd_interrupted(*line.split(), answers=script)
    assert (done.returncode, [each for each in words if each not in done.stderr]) == (4, [])
    assert "Traceback" not in done.stderr
    assert not script or done.document == print_job()


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [(decide, "RECONCILE_SECONDS", f"reconcile {ID}"), (database, "REPROCESS_SECONDS", "reprocess")],
)
def test_a_long_call_ends_at_its_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, line: str
) -> None:
    over, began = threading.Event(), time.monotonic()
    assert database.REPROCESS_SECONDS >= 1800
    monkeypatch.setattr(module, name, 0.2)
    with Stub(tmp_path / "s", [Answer(before=over.wait, cut=True)]):
        done = posd(*line.split(), socket=tmp_path / "s")
        over.set()
    assert (done.returncode, "did not answer within 0.2 s" in done.stderr) == (3, True)
    assert time.monotonic() - began < PATIENCE

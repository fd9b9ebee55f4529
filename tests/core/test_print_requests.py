"""The till's print request: all faults together, the comparison with a repeated call, and the body for the terminal."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.ids import is_print_job_id
from posd.base.limits import MAX_DOCUMENT_BYTES
from posd.base.problems import Problem
from posd.printing.entries import Dismissed, Resolved
from posd.printing.model import JobReport, PrintJob, rebuild
from posd.printing.request import (
    DECISIONS,
    MAX_REFERENCE_CHARACTERS,
    PrintRequest,
    differing_fields,
    print_body,
    read_print,
)
from posd.records.request import RequestFault, meaning, read_decision
from tests.core.test_printing import NOW, starting
from tests.rig.tables import every

DOCUMENT = b'{"lines": ["caf\\u00e9", 1.10], "n":1e2}'
URL = "https://127.0.0.1:8443/webhooks/print-jobs/job-1/token"


def job(**changes: Any) -> PrintJob:
    return starting(document=DOCUMENT, external_reference="t7", **changes)


def read(**fields: Any) -> tuple[PrintRequest, tuple[RequestFault, ...]]:
    return read_print(json.dumps({"document": {}} | fields).encode())


@pytest.mark.parametrize("text", ["a", "A.b_c-9", "x" * 64, "...a", "-", "..-"])
def test_valid_ids_are_accepted(text: str) -> None:
    assert is_print_job_id(text)


@pytest.mark.parametrize("text", ["", ".", "..", "....", "x" * 65, "a/b", "a b", "é", "a\n", "%2e"])
def test_invalid_ids_are_refused(text: str) -> None:
    assert not is_print_job_id(text)


def test_the_document_is_stored_verbatim() -> None:
    body = b'{"terminal":"SN-1","external_reference":"t7","document":  ' + DOCUMENT + b' ,"reprint_of":"job-0"}'
    assert read_print(body) == (PrintRequest("SN-1", "t7", DOCUMENT, "job-0"), ())
    assert read(external_reference=None, terminal=None, reprint_of=None) == (PrintRequest(), ())
    assert read(external_reference="") == (PrintRequest(), ())


@every(("more", "paths"), [(0, []), (1, ["/document"])])
def test_the_longest_document_is_accepted(more: int, paths: list[str]) -> None:
    document = {"a": "x" * (MAX_DOCUMENT_BYTES + more - len('{"a": ""}'))}
    _, faults = read(document=document)
    assert [fault.path for fault in faults] == paths


def test_every_fault_is_reported_at_once() -> None:
    body = (
        b'{"terminal": 7, "external_reference": "' + b"x" * (MAX_REFERENCE_CHARACTERS + 1) + b'", "document": [],'
        b' "reprint_of": "..", "a/b": 1, "terminal": 8}'
    )
    request, faults = read_print(body)
    assert request == PrintRequest()
    assert [fault.path for fault in faults] == [
        "/terminal",
        "/a~1b",
        "/terminal",
        "/external_reference",
        "/document",
        "/reprint_of",
    ]
    assert [fault.path for fault in read(reprint_of=7)[1]] == ["/reprint_of"]


@given(st.binary(max_size=60))
def test_any_body_is_parsed_or_refused(body: bytes) -> None:
    try:
        _, faults = read_print(body)
    except Problem:
        return
    assert faults


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({}, []),
        ({"terminal": "SN-1"}, []),
        ({"terminal": "SN-2"}, ["terminal"]),
        ({"external_reference": "t8"}, ["external_reference"]),
        ({"document": b'{"n": 100, "lines": ["caf\xc3\xa9", 1.1]}'}, []),
        ({"document": b'{"n": 100, "lines": [1.1, "caf\xc3\xa9"]}'}, ["document"]),
        ({"document": b'{"n": true, "lines": ["caf\xc3\xa9", 1.1]}'}, ["document"]),
        ({"reprint_of": "job-0"}, ["reprint_of"]),
    ],
    ids=range(8),
)
def test_a_repeated_call_is_compared_with_the_record(changes: dict[str, Any], differing: list[str]) -> None:
    request = msgspec.structs.replace(PrintRequest(None, "t7", DOCUMENT), **changes)
    assert differing_fields(job(), request, ()) == differing
    again = msgspec.structs.replace(request, reprint_of="Job-0")
    assert differing_fields(job(reprint_of="job-0"), again, ()) == [name for name in differing if name != "reprint_of"]
    for reprinted in (None, "job-9"):
        again = msgspec.structs.replace(request, reprint_of=reprinted)
        assert "reprint_of" in differing_fields(job(reprint_of="job-0"), again, ())
    orphan = rebuild(JobReport("COMPLETED", "job-1"), "job-1", NOW)
    assert differing_fields(orphan, request, (RequestFault("", "is nothing"),)) == []


@every(
    ("one", "other"),
    [("true", "false"), ("true", "1"), ("true", '"JSON True"'), ('"1"', "1"), ('"a"', '"b"'), ("null", "false")],
)
def test_documents_with_different_meaning_differ(one: str, other: str) -> None:
    assert meaning(one.encode()) != meaning(other.encode())


def test_a_faulty_field_counts_as_different() -> None:
    request = PrintRequest(None, "t7", DOCUMENT)
    assert differing_fields(job(), request, (RequestFault("/a~1b", ""), RequestFault("/terminal", ""))) == [
        "a~1b",
        "terminal",
    ]
    assert differing_fields(job(), request, (RequestFault("", "is not an object"),)) == ["body"]


def test_the_request_to_the_terminal_is_exact() -> None:
    body = print_body(job(), URL, "document")
    own = f'{{"printJobId":"job-1","externalReference":"t7","webhookUrl":"{URL}","document":'
    assert body == own.encode() + DOCUMENT + b"}"
    assert b"events_webhook_url" not in body
    assert list(json.loads(print_body(job(), URL, "receipt"))) == [
        "printJobId",
        "externalReference",
        "webhookUrl",
        "receipt",
    ]


def test_members_of_the_document_do_not_replace_those_of_posd() -> None:
    document = b'{"printJobId": "mine", "webhookUrl": "https://else", "lines": [1.10]}'
    sent = print_body(starting(document=document), URL, "")
    assert sent == f'{{"printJobId":"job-1","externalReference":"","webhookUrl":"{URL}","lines":[1.10]}}'.encode()


def test_an_operators_decision_is_parsed() -> None:
    body = b'{"result": "FAILED", "operator": " Ana ", "note": "no paper came"}'
    decision, faults = read_decision(DECISIONS["resolve"], body, 1000)
    assert (faults, msgspec.structs.astuple(decision)) == ((), ("Ana", "no paper came", 1000, "FAILED"))
    assert isinstance(decision, Resolved)
    decision, faults = read_decision(
        DECISIONS["acknowledge"], b'{"code":"orphan","operator":"Ana","note":"seen"}', None
    )
    assert (faults, isinstance(decision, Dismissed)) == ((), True)


@pytest.mark.parametrize("call", ["resolve", "acknowledge"])
@pytest.mark.parametrize("word", ["PENDING", "approved", "", None, 7])
def test_every_fault_of_a_decision_is_reported(call: str, word: Any) -> None:
    own, first = {"resolve": ("result", "COMPLETED"), "acknowledge": ("code", "in_doubt")}[call]
    body = {own: word, "operator": "", "note": "x" * 1025, "extra": 1}
    decision, faults = read_decision(DECISIONS[call], json.dumps(body).encode(), None)
    assert getattr(decision, own) == first
    assert [fault.path for fault in faults] == ["/extra", "/operator", "/note", f"/{own}"]


def test_a_decision_that_is_not_an_object_is_refused() -> None:
    _, faults = read_decision(DECISIONS["resolve"], b"[]", None)
    assert faults[0] == RequestFault("", "must be a JSON object")
    with pytest.raises(Problem, match="nothing was changed"):
        read_decision(DECISIONS["resolve"], b"{", None)

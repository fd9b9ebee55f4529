"""Bodies of operators' decisions. A refusal names every fault with its pointer."""

import json

import pytest

from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.payments.entries import Dismissed, Released, Resolved
from posd.payments.model import AttentionCode, Result
from posd.payments.request import DECISIONS, Decision, PaymentFacts
from posd.records.request import (
    MAX_NOTE_CHARACTERS,
    MAX_OPERATOR_CHARACTERS,
    RequestFault,
    check,
    decided,
    read_decision,
)
from tests.core.inputs import named
from tests.rig.tables import every

WHO = {"operator": "Ana", "note": "seen on the slip"}
REFERENCE = "5B6F6A5E-0B0A-4D7C-9D55-0F6B1C2A9E11"


def faults(call: str, document: object) -> dict[str, str]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return {fault.path: fault.message for fault in read_decision(DECISIONS[call], data, None)[1]}


@every(
    ("call", "own", "decision"),
    [
        ("release", {}, Released("Ana", "seen on the slip", 1000)),
        *[("resolve", {"result": str(result)}, Resolved("Ana", "seen on the slip", 1000, result)) for result in Result],
        (
            "resolve",
            {"result": "approved", "transaction_reference": REFERENCE},
            Resolved("Ana", "seen on the slip", 1000, Result.APPROVED, REFERENCE.lower()),
        ),
        (
            "resolve",
            {"result": "declined", "transaction_reference": None},
            Resolved("Ana", "seen on the slip", 1000, Result.DECLINED),
        ),
        *[
            ("acknowledge", {"code": str(code)}, Dismissed("Ana", "seen on the slip", 1000, code))
            for code in AttentionCode
        ],
    ],
    ids=named,
)
def test_a_decision_is_parsed(call: str, own: dict[str, object], decision: Decision) -> None:
    (found, facts), faults = read_decision(DECISIONS[call], json.dumps(WHO | own).encode(), 1000)
    assert (found, faults) == (decision, ())
    assert facts == (PaymentFacts(None, None, b"{}") if call == "resolve" else None)


def test_the_data_about_a_lost_payment_is_parsed() -> None:
    data = {"terminal": "SN-2", "type": "void", "amount": {"subtotal_iva0": 5}, "sale": "cafe\u0301"}
    document = WHO | {"result": "approved", "original": REFERENCE} | data
    (_, facts), faults = read_decision(DECISIONS["resolve"], json.dumps(document).encode(), None)
    amount = b'{"iva":0,"subtotal_iva":0,"subtotal_iva0":5}'
    assert facts == PaymentFacts("SN-2", OperationType.VOID, amount, "caf\u00e9", REFERENCE.lower())
    assert faults == ()


def test_blanks_around_the_texts_are_removed() -> None:
    body = json.dumps({"operator": " Ana ", "note": "\tsaid so\n"}).encode()
    assert read_decision(DECISIONS["release"], body, None) == ((Released("Ana", "said so", None), None), ())


@pytest.mark.parametrize("data", [b"", b"{", b"operator=Ana", b'{"operator": NaN}', b'{"a": "\xff"}'])
def test_a_body_that_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(Problem) as raised:
        read_decision(DECISIONS["release"], data, None)
    assert raised.value.code == "malformed_json"


@every(
    ("call", "document", "paths"),
    [
        ("release", [], {"", "/operator", "/note"}),
        ("release", "Ana", {"", "/operator", "/note"}),
        ("release", {}, {"/operator", "/note"}),
        ("release", {"operator": "Ana"}, {"/note"}),
        ("release", {"operator": 7, "note": []}, {"/operator", "/note"}),
        ("release", {"operator": "", "note": "  "}, {"/operator", "/note"}),
        ("release", {"operator": "\ufeff", "note": "\u3000\t"}, {"/operator", "/note"}),
        (
            "release",
            {"operator": "\x1c", "note": "\x85"},
            set(),
        ),  # the description does not count this character as white space
        ("release", WHO | {"operator": "x" * (MAX_OPERATOR_CHARACTERS + 1)}, {"/operator"}),
        ("release", WHO | {"note": "x" * (MAX_NOTE_CHARACTERS + 1)}, {"/note"}),
        ("release", WHO | {"result": "approved"}, {"/result"}),
        ("release", WHO | {"Operator": "x"}, {"/Operator"}),
        ("release", b'{"operator": "Ana", "operator": "Eva", "note": "x"}', {"/operator"}),
        ("release", WHO | {"a/b~c": 1}, {"/a~1b~0c"}),
        ("release", b'{"operator": "Ana", "note": "x", "a/b": 1, "a/b": 2}', {"/a~1b"}),
        ("resolve", WHO, {"/result"}),
        ("resolve", WHO | {"result": "APPROVED"}, {"/result"}),
        ("resolve", WHO | {"result": None}, {"/result"}),
        ("resolve", WHO | {"result": ["approved"]}, {"/result"}),
        ("resolve", WHO | {"result": "approved", "code": "gap"}, {"/code"}),
        ("resolve", WHO | {"result": "approved", "transaction_reference": "r-1"}, {"/transaction_reference"}),
        ("resolve", WHO | {"result": "approved", "transaction_reference": 7}, {"/transaction_reference"}),
        ("resolve", WHO | {"result": "declined", "transaction_reference": REFERENCE}, {"/transaction_reference"}),
        ("acknowledge", WHO, {"/code"}),
        ("acknowledge", WHO | {"code": "doubt"}, {"/code"}),
        ("acknowledge", {"x": 1}, {"/x", "/operator", "/note", "/code"}),
    ],
    ids=named,
)
def test_every_fault_has_its_pointer(call: str, document: object, paths: set[str]) -> None:
    assert set(faults(call, document)) == paths
    assert all(faults(call, document).values())


def test_the_longest_permitted_texts_are_accepted() -> None:
    assert not faults("release", {"operator": "x" * MAX_OPERATOR_CHARACTERS, "note": "x" * MAX_NOTE_CHARACTERS})


@pytest.mark.parametrize("call", DECISIONS)
def test_an_unknown_field_is_refused_with_the_known_fields(call: str) -> None:
    message = faults(call, WHO | {"x": 1})["/x"]
    assert message.endswith(", ".join(DECISIONS[call][1].__struct_fields__))


@pytest.mark.parametrize(
    ("call", "name", "words"), [("resolve", "result", list(Result)), ("acknowledge", "code", list(AttentionCode))]
)
def test_a_missing_choice_is_refused_with_the_permitted_words(call: str, name: str, words: list[str]) -> None:
    assert faults(call, WHO)[f"/{name}"].endswith(", ".join(words))


def test_all_faults_are_named_in_one_problem() -> None:
    check((), "cannot release")
    with pytest.raises(Problem) as refused:
        check((RequestFault("/operator", "is required"), RequestFault("", "must be a JSON object")), "cannot release")
    assert refused.value.code == "invalid_request"
    assert refused.value.detail == "cannot release: /operator is required; the body must be a JSON object"
    assert refused.value.extra["errors"] == [
        {"path": "/operator", "message": "is required"},
        {"path": "", "message": "must be a JSON object"},
    ]


def test_the_problem_of_an_invalid_decision_says_what_posd_has_not_done() -> None:
    with pytest.raises(Problem, match=r"^the body cannot be read: .*; nothing was changed$") as refused:
        decided(DECISIONS["release"], b"{", None, "cannot release")
    assert refused.value.code == "malformed_json"
    with pytest.raises(Problem, match=r"^cannot release: /operator is required: .*; /note is required: "):
        decided(DECISIONS["release"], b"{}", None, "cannot release")
    body = b'{"operator": "Ana", "note": "it is dark"}'
    decision, _ = decided(DECISIONS["release"], body, 1000, "cannot release")
    assert decision == Released("Ana", "it is dark", 1000)

"""The till's request: all faults together with their pointers, and the body for the terminal."""

import json
from datetime import UTC, datetime
from time import process_time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.calls import parameters
from posd.calls.app import MAX_BODY_BYTES
from posd.httpd.messages import MAX_HEADER_BYTES
from posd.payments.model import Attention, AttentionCode, Transaction
from posd.payments.request import (
    DECISIONS,
    MAX_FREE_FORM_BYTES,
    REFERENCES,
    PaymentFacts,
    StartRequest,
    contradicted,
    differing_fields,
    read_start,
    start_body,
)
from posd.records.request import MAX_FAULTS, FieldReader, check, decided, read_body
from tests.core.inputs import named
from tests.core.scenarios import IDENTITY, NOW, read, starting
from tests.rig.events import body as event_body
from tests.rig.tables import every

AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00}
REFERENCE = "0b7d2a8e-1111-4d7c-9d55-0f6b1c2a9e11"
OTHER = "0b7d2a8e-2222-4d7c-9d55-0f6b1c2a9e11"
NIL, MAX = "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"
DERIVED = ("capture", "re-auth", "post-tip", "void", "refund")
OPTIONAL_AMOUNT = {kind: {"/amount"} if kind in ("void", "refund") else set() for kind in DERIVED}


def faults(document: object) -> dict[str, str]:
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return {fault.path: fault.message for fault in read_start(data)[1]}


def recorded(document: dict[str, object]) -> Transaction:
    request, wrong = read_start(json.dumps(document).encode())
    assert not wrong
    fields = {name: getattr(request, name) for name in ("type", "amount", "sale", "metadata", "options")}
    named = {name: getattr(request, name) for name in REFERENCES}
    return starting(**fields, **named, repeat=request.additional)


def test_the_smallest_request_is_accepted() -> None:
    request, wrong = read_start(b'{"amount": {"subtotal_iva0": 5}}')
    assert not wrong
    assert request == StartRequest(amount=b'{"iva":0,"subtotal_iva":0,"subtotal_iva0":5}')


@every(
    ("document", "paths"),
    [
        ([], {""}),
        (b"7", {""}),
        ({}, {"/amount"}),
        ({"amount": None}, {"/amount"}),
        ({"amount": []}, {"/amount"}),
        ({"amount": {}}, {"/amount"}),
        ({"amount": {"iva": 0}}, {"/amount"}),
        ({"amount": {"iva": -1, "subtotal_iva": "x"}}, {"/amount/iva", "/amount/subtotal_iva"}),
        ({"amount": {"iva": 1, "tip": "x"}}, {"/amount/tip"}),
        ({"amount": {"iva": 1, "a/b~c": True}}, {"/amount/a~1b~0c"}),
        ({"amount": {"iva": 1, "extra_taxes": {"ice": -1}}}, {"/amount/extra_taxes/ice"}),
        ({"amount": {"iva": 1, "extra_taxes": {"extra_taxes": {}}}}, {"/amount/extra_taxes/extra_taxes"}),
        ({"amount": {"iva": 1, "extra_taxes": 7}}, {"/amount/extra_taxes"}),
        ({"amount": {"iva": 1, "taxes": {}}}, {"/amount/taxes"}),
        ({"amount": AMOUNT, "terminal": 7}, {"/terminal"}),
        ({"amount": AMOUNT, "terminal": ""}, {"/terminal"}),
        ({"amount": AMOUNT, "sale": "x" * 129}, {"/sale"}),
        ({"amount": AMOUNT, "type": "loan"}, {"/type"}),
        ({"amount": AMOUNT, "type": 7}, {"/type"}),
        ({"amount": AMOUNT, "type": ["charge"]}, {"/type"}),
        ({"amount": AMOUNT, "metadata": []}, {"/metadata"}),
        ({"amount": AMOUNT, "options": "x"}, {"/options"}),
        (b'{"amount": {"iva": 1}, "metadata": {"a/b": [1, {"c": 1e200000}]}}', {"/metadata/a~1b/1/c"}),
        (b'{"amount": {"iva": 1}, "options": {"n": -1E-20000}}', {"/options/n"}),
        (
            b'{"amount": {"iva": 1}, "metadata": {"a": 1e99999999999999999999, "b": 0e1000}}',
            {"/metadata/a", "/metadata/b"},
        ),
        (b'{"amount": {"iva": 1}, "metadata": {"a": 1e200000, "a": 1}}', {"/metadata/a"}),
        (b'{"amount": {"iva": 1}, "metadata": {"a": ' + b"1" * 1001 + b"}}", {"/metadata/a"}),
        (b'{"amount": {"iva": 1}, "metadata": {"a": 0.' + b"1" * 1001 + b"}}", {"/metadata/a"}),
        (b'{"amount": {"iva": 1}, "metadata": {"a": [9e999, 1e-1000, 1.5e308, 5e-324]}}', set()),
        (b'{"amount": {"iva": 1}, "metadata": {"a": "1e200000, [1e200000]", "1e200000": 1}}', set()),
        ({"amount": AMOUNT, "options": {"amount": 1, "webhookUrl": ""}}, {"/options/amount", "/options/webhookUrl"}),
        ({"amount": AMOUNT, "options": {"Amount": 1, "WEBHOOKURL": ""}}, {"/options/Amount", "/options/WEBHOOKURL"}),
        ({"amount": AMOUNT, "repeat": "yes"}, {"/repeat"}),
        ({"amount": AMOUNT, "transaction_reference": "x"}, {"/transaction_reference"}),
        ({"amount": AMOUNT, "original": 7}, {"/original"}),
        ({"amount": AMOUNT, "original": IDENTITY}, {"/original"}),
        ({"amount": AMOUNT, "transaction_reference": IDENTITY}, {"/transaction_reference"}),
        ({"amount": AMOUNT, "ammount": 1}, {"/ammount"}),
        *(({"amount": AMOUNT, name: 1}, {f"/{name}"}) for name in ("additional", "repeat")),
        ({"amount": AMOUNT, "additional": True, "repeat": True}, set()),
        ({"amount": AMOUNT, "additional": True, "repeat": False}, {"/repeat"}),
        ({"amount": AMOUNT, "additional": False, "repeat": True}, {"/repeat"}),
        ({"amount": AMOUNT, "additional": True, "repeat": None}, set()),
        *(({"type": "void", name: NIL}, {f"/{name}"}) for name in ("original", "transaction_reference")),
        *(({"type": "void", name: MAX.upper()}, {f"/{name}"}) for name in ("original", "transaction_reference")),
        (b'{"amount": {"iva": 1}, "terminal": "a", "terminal": "b"}', {"/terminal"}),
        (b'{"amount": {"iva": 1, "iva": 2}}', {"/amount/iva"}),
        (b'{"amount": {"iva": 1, "iva": 1.0}}', set()),
        ({"amount": {"iva": "no"}, "terminal": 7, "x": 1}, {"/amount/iva", "/terminal", "/x"}),
        ({"type": "void", "transaction_reference": IDENTITY}, set()),
        ({"type": "capture", "original": IDENTITY.upper(), "amount": AMOUNT}, set()),
        *(({"type": kind, "amount": AMOUNT}, {"/original"}) for kind in DERIVED),
        *(({"type": kind, "amount": AMOUNT, "original": None}, {"/original"}) for kind in DERIVED),
        *(({"type": kind, "amount": AMOUNT, "original": 7}, {"/original"}) for kind in DERIVED),
        *(
            ({"type": kind, "amount": AMOUNT, "transaction_reference": ""}, {"/transaction_reference"})
            for kind in DERIVED
        ),
        *(({"type": kind, "amount": AMOUNT, "original": IDENTITY}, set()) for kind in DERIVED),
        *(({"type": kind, "amount": AMOUNT, "transaction_reference": IDENTITY}, set()) for kind in DERIVED),
        *(
            (
                {"type": kind, "amount": AMOUNT, "transaction_reference": IDENTITY, "original": IDENTITY},
                {"/transaction_reference"},
            )
            for kind in DERIVED
        ),
        *(({"type": kind, "original": IDENTITY}, {"/amount"} - OPTIONAL_AMOUNT[kind]) for kind in DERIVED),
        ({"type": "void", "original": IDENTITY, "amount": {"iva": 0}}, {"/amount"}),
        ({"type": "pre-auth", "amount": AMOUNT}, set()),
        ({"type": "pre-auth"}, {"/amount"}),
        ({"type": "pre-auth", "amount": AMOUNT, "original": IDENTITY}, {"/original"}),
    ],
    ids=named,
)
def test_every_fault_is_named_at_once(document: object, paths: set[str]) -> None:
    assert set(faults(document)) == paths


@every(
    ("name", "meant"),
    [("ammount", "amount"), ("Sale", "sale"), ("reference", "transaction_reference"), ("additonal", "additional")],
)
def test_an_unknown_member_is_reported_with_the_nearest_known_member(name: str, meant: str) -> None:
    assert f"did you mean {meant}?" in faults({"amount": AMOUNT, name: 1})[f"/{name}"]


#: Seconds of processor time for a body of the largest size. The event loop waits during that time.
SECONDS = 0.5


@every("text", ['"ammount{}": 1', '"amount{}": 1, "amount{}": 2', '"\\u0000{}": {{}}'])
@every("at", ["{{{}}}", '{{"amount": {{{}}}}}', '{{"amount": {{"extra_taxes": {{{}}}}}}}'])
def test_a_body_full_of_faults_is_refused_quickly_and_in_few_words(at: str, text: str) -> None:
    members = ", ".join(text.format(number, number) for number in range(MAX_BODY_BYTES // (len(text) + 5)))
    began = process_time()
    _, found = read_start(at.format(members).encode())
    with pytest.raises(Problem) as refused:
        check(found, "cannot start")
    assert process_time() - began < SECONDS
    assert 0 < len(refused.value.extra["errors"]) <= MAX_FAULTS
    assert len(refused.value.detail) < MAX_BODY_BYTES


@every("text", ["{:x}&", "{:x}=1&{:x}=2&", "a&"])
def test_a_query_full_of_faults_is_refused_quickly_and_in_few_words(text: str) -> None:
    query = "".join(text.format(number, number) for number in range(MAX_HEADER_BYTES))[:MAX_HEADER_BYTES]
    began = process_time()
    with pytest.raises(Problem) as refused:
        parameters.read(Request({"type": "http", "query_string": query.encode()}), (parameters.LIMIT,))
    assert process_time() - began < SECONDS
    assert 0 < len(refused.value.extra["errors"]) <= MAX_FAULTS


def test_metadata_and_options_share_a_limit() -> None:
    half = "x" * (MAX_FREE_FORM_BYTES // 2)
    assert faults({"amount": AMOUNT, "metadata": {"a": half}}) == {}
    assert set(faults({"amount": AMOUNT, "metadata": {"a": half}, "options": {"b": half}})) == {"/metadata"}
    full = "x" * (MAX_FREE_FORM_BYTES - len('{"a": ""}{}'))
    assert faults({"amount": AMOUNT, "metadata": {"a": full}, "options": {}}) == {}
    assert set(faults({"amount": AMOUNT, "metadata": {"a": f"{full}x"}, "options": {}})) == {"/metadata"}


def test_the_terminal_gets_the_data_exactly_as_the_till_wrote_it() -> None:
    data = (
        b'{"amount": {"iva": 0.1, "subtotal_iva": 0.2, "tip": "1.50", "extra_taxes": {"ice": 10.10}},'
        b' "metadata": {"z": 1.10, "a": [1e5, "\xc3\xa9", "\\u00e9"]}, "options": {"is_deferred": false, "n": 1.0}}'
    )
    request, wrong = read_start(data)
    assert not wrong
    transaction = starting(amount=request.amount, metadata=request.metadata, options=request.options)
    sent = start_body(transaction, "https://posd/callback")
    assert b'"amount":{"iva":0.1,"subtotal_iva":0.2,"subtotal_iva0":0,"tip":1.50,"extra_taxes":{"ice":10.10}}' in sent
    assert b'{"z": 1.10, "a": [1e5, "\xc3\xa9", "\\u00e9"]}' in sent
    document = json.loads(sent)
    assert document["events_webhook_url"] == "https://posd/callback"
    assert (document["is_deferred"], document["n"]) == (False, 1.0)
    assert document["client_transaction_id"] == IDENTITY


def test_without_metadata_of_the_till_no_metadata_is_sent() -> None:
    assert b"metadata" not in start_body(starting(), "https://posd/callback")


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ({"amount": AMOUNT}, []),
        ({"amount": {"subtotal_iva": "10.0", "iva": 1.2, "subtotal_iva0": 0.00}}, []),
        ({"amount": AMOUNT, "terminal": "SN-TEST", "type": "charge", "options": {}, "metadata": {}}, []),
        ({"amount": AMOUNT, "sale": None, "repeat": False, "original": None}, []),
        ({"amount": AMOUNT, "terminal": "SN-2"}, ["terminal"]),
        ({"amount": {"iva": 1}}, ["amount"]),
        ({"amount": AMOUNT, "metadata": {"a": 1}, "repeat": True}, ["metadata", "repeat"]),
        ({"amount": AMOUNT, "additional": True}, ["additional"]),
        ({"amount": AMOUNT, "additional": 1}, ["additional"]),
        ({"amount": {"iva": -1}}, ["amount"]),
        ({"amount": AMOUNT, "surprise": 1}, ["surprise"]),
        # the type differs, and a missing original does not count as a difference
        ({"amount": AMOUNT, "type": "void"}, ["type"]),
    ],
    ids=str,
)
def test_a_repeated_call_is_compared_by_value(document: dict[str, object], fields: list[str]) -> None:
    request, wrong = read_start(json.dumps(document).encode())
    assert differing_fields(recorded({"amount": AMOUNT}), request, wrong) == fields


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({}, []),
        ({"original": IDENTITY.upper()}, []),
        ({"original": OTHER}, ["original"]),
        ({"original": None, "transaction_reference": REFERENCE}, ["original", "transaction_reference"]),
        ({"transaction_reference": REFERENCE}, ["transaction_reference"]),
        ({"type": "re-auth"}, ["type"]),
    ],
    ids=str,
)
def test_a_reference_that_posd_looked_up_is_not_a_difference(changes: dict[str, object], fields: list[str]) -> None:
    call = {"type": "capture", "amount": AMOUNT, "original": IDENTITY}
    known = msgspec.structs.replace(recorded(call), transaction_reference=REFERENCE)
    request, wrong = read_start(json.dumps(call | changes).encode())
    assert differing_fields(known, request, wrong) == fields


def test_a_reference_from_the_till_is_compared() -> None:
    call = {"type": "void", "transaction_reference": REFERENCE}
    for reference, fields in ((REFERENCE.upper(), []), (OTHER, ["transaction_reference"])):
        request, wrong = read_start(json.dumps(call | {"transaction_reference": reference}).encode())
        assert differing_fields(recorded(call), request, wrong) == fields


def test_metadata_is_compared_by_content() -> None:
    known = recorded({"amount": AMOUNT, "metadata": {"a": 1.10, "b": [1]}})
    other, _ = read_start(b'{"metadata": {"b": [true], "a": 1.1}, "amount": {"iva": 1.20, "subtotal_iva": 10}}')
    assert differing_fields(known, other, ()) == ["metadata"], "true is not 1"
    text, _ = read_start(b'{"metadata": {"b": ["1"], "a": 1.1}, "amount": {"iva": 1.20, "subtotal_iva": 10}}')
    assert differing_fields(known, text, ()) == ["metadata"], "the text 1 is not the number 1"
    again, wrong = read_start(b'{"metadata": {"b": [1.0], "a": 1.1}, "amount": {"iva": 1.20, "subtotal_iva": 10}}')
    assert differing_fields(known, again, wrong) == []


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (b'{"amount": {"iva": 1, "extra_taxes": {"ice": 1, "ice": 2}}}', "/amount/extra_taxes/ice"),
        (b'{"amount": {"iva": 1, "extra_taxes": {"a/b": 1, "a/b": 2}}}', "/amount/extra_taxes/a~1b"),
        (b'{"amount": {"iva": 1}, "options": {"is_deferred": true, "is_deferred": false}}', "/options/is_deferred"),
    ],
)
def test_a_request_with_a_repeated_member_is_refused(data: bytes, path: str) -> None:
    assert set(faults(data)) == {path}


def test_a_repeated_call_with_a_formerly_accepted_number_is_the_same_call() -> None:
    known = msgspec.structs.replace(recorded({"amount": AMOUNT}), metadata=b'{"a": 1e200000}')
    again, wrong = read_start(json.dumps({"amount": AMOUNT}).encode()[:-1] + b', "metadata": {"a": 10e199999}}')
    assert wrong
    assert differing_fields(known, again, wrong) == []
    other, wrong = read_start(json.dumps({"amount": AMOUNT}).encode()[:-1] + b', "metadata": {"a": 1e200001}}')
    assert differing_fields(known, other, wrong) == ["metadata"]


def test_metadata_may_have_repeated_members() -> None:
    assert faults(b'{"amount": {"iva": 1}, "metadata": {"a": 1, "a": 2}}') == {}


@pytest.mark.parametrize("data", [b"[]", b"7"])
def test_the_difference_of_an_invalid_request_is_its_whole_body(data: bytes) -> None:
    request, wrong = read_start(data)
    lost = starting(sent_to=None, type=OperationType.CHARGE)
    for known in (recorded({"amount": AMOUNT}), recorded({"amount": AMOUNT, "repeat": True}), lost):
        assert differing_fields(known, request, wrong) == ["body"]


def test_an_orphan_has_no_differences() -> None:
    from posd.payments.transitions import rebuild

    orphan = rebuild(read(event_body(IDENTITY, "APPROVAL")), IDENTITY, NOW)
    request, wrong = read_start(json.dumps({"amount": {"iva": 99}}).encode())
    assert differing_fields(orphan, request, wrong) == []


@given(st.binary(max_size=100))
def test_any_bytes_give_a_request_or_a_reason(data: bytes) -> None:
    try:
        _, wrong = read_start(data)
    except Problem:
        return
    assert wrong


@every(
    ("text", "moment"),
    [
        ("2026-11-20T10:42:03Z", datetime(2026, 11, 20, 10, 42, 3, tzinfo=UTC)),
        ("2026-11-20T05:42:03.500-05:00", datetime(2026, 11, 20, 10, 42, 3, 500_000, tzinfo=UTC)),
        ("0001-01-01T00:00:00+14:00", datetime.min.replace(tzinfo=UTC)),
        ("9999-12-31T23:59:59-14:00", datetime.max.replace(tzinfo=UTC)),
        (None, None),
    ],
)
def test_the_field_not_after_is_a_time(text: str | None, moment: datetime | None) -> None:
    request, wrong = read_start(json.dumps({"amount": {"iva": 1}, "not_after": text}).encode())
    assert (request.not_after, wrong) == (moment, ())


@every("text", ["2026-11-20T10:42:03", "2026-11-20", "tomorrow", "", 5, True, [], {}])
def test_a_time_without_an_offset_is_refused(text: Any) -> None:
    request, wrong = read_start(json.dumps({"amount": {"iva": 1}, "not_after": text}).encode())
    assert (request.not_after, [fault.path for fault in wrong]) == (None, ["/not_after"])
    assert "offset" in wrong[0].message


def test_the_field_not_after_of_a_repeated_call_is_ignored() -> None:
    before = recorded({"amount": AMOUNT})
    for moment in ("2026-11-20T10:42:03Z", "tomorrow", None):
        request, wrong = read_start(json.dumps({"amount": AMOUNT, "not_after": moment}).encode())
        assert differing_fields(before, request, wrong) == []


COMPOSED, DECOMPOSED = "mesa caf\u00e9", "mesa cafe\u0301"


def test_a_sale_is_the_same_in_any_unicode_composition() -> None:
    before = recorded({"amount": AMOUNT, "sale": DECOMPOSED})
    assert before.sale == COMPOSED
    for sale in (COMPOSED, DECOMPOSED):
        request, wrong = read_start(json.dumps({"amount": AMOUNT, "sale": sale}).encode())
        assert differing_fields(before, request, wrong) == []


@every("name", ["repeat", "additional"])
def test_the_old_name_of_the_member_additional_is_accepted(name: str) -> None:
    before = recorded({"amount": AMOUNT, "repeat": True})
    request, wrong = read_start(json.dumps({"amount": AMOUNT, name: True}).encode())
    assert (request.additional, differing_fields(before, request, wrong)) == (True, [])
    request, wrong = read_start(json.dumps({"amount": AMOUNT, name: False}).encode())
    assert differing_fields(before, request, wrong) == [name]
    assert differing_fields(before, StartRequest(amount=before.amount), ()) == ["additional"]
    request, wrong = read_start(json.dumps({"amount": AMOUNT, "additional": 1, "repeat": False}).encode())
    assert differing_fields(before, request, wrong) == ["additional"]


#: Repeated request for a lost charge of 11.20 that an operator has recorded -> differences from the record.
OF_A_LOST_CHARGE = [
    ({}, []),
    ({"type": "charge", "amount": {"subtotal_iva0": 11.2}, "sale": "7", "metadata": {"till": 3}}, []),
    ({"amount": {"iva": 1.20, "subtotal_iva": 10.01}}, ["amount"]),
    ({"type": "pre-auth", "terminal": "SN-OTHER"}, ["terminal", "type"]),
    ({"amount": {"iva": "much"}}, ["amount"]),
    ({"sale": 7}, []),
]


@every(("asked", "differing"), OF_A_LOST_CHARGE)
def test_a_call_for_a_lost_payment_is_compared_with_the_slip(asked: dict[str, Any], differing: list[str]) -> None:
    slip = {"operator": "Ana", "note": "on the slip", "result": "approved", "amount": AMOUNT, "type": "charge"}
    _, facts = decided(DECISIONS["resolve"], json.dumps(slip).encode(), None, "cannot resolve")
    assert facts is not None
    lost = starting(sent_to=None, amount=facts.amount, type=facts.type)
    request, wrong = read_start(json.dumps({"amount": AMOUNT} | asked).encode())
    assert differing_fields(lost, request, wrong) == differing


@every(
    ("known", "facts", "fields"),
    [
        (starting(), PaymentFacts(None, None, b"{}"), []),
        (starting(), PaymentFacts("SN-2", OperationType.VOID, b'{"iva": 1}'), ["terminal", "type", "amount"]),
        (starting(type=None, amount=b"{}"), PaymentFacts("SN-TEST", OperationType.VOID, b'{"iva": 1}'), []),
    ],
)
def test_missing_data_contradicts_nothing(known: Transaction, facts: PaymentFacts, fields: list[str]) -> None:
    assert list(contradicted(known, facts)) == fields


def test_a_payment_known_only_from_events_has_no_differences() -> None:
    request, wrong = read_start(b'{"amount": {"iva": 1}, "terminal": "SN-OTHER"}')
    assert differing_fields(starting(sent_to=None, amount=b"{}"), request, wrong) == []


def test_the_problem_of_a_body_that_is_not_json_says_what_posd_has_not_done() -> None:
    with pytest.raises(Problem, match="nothing was changed") as raised:
        read_body(StartRequest, b"{", "nothing was changed")
    assert raised.value.code == "malformed_json"
    assert read_body(StartRequest, b'{"sale": "7"}', "").text("sale", 9) == "7"


@pytest.mark.parametrize("field", ["terminal", "type", "sale", "original", "metadata", "not_after"])
def test_a_number_that_no_type_can_represent_is_never_read_as_a_text(field: str) -> None:
    _, faults = read_start(b'{"amount": {"iva": 1}, "%s": 1e99999999999999999999}' % field.encode())
    assert f"/{field}" in {fault.path for fault in faults}


@pytest.mark.parametrize("field", ["amount", "metadata"])
def test_a_number_with_more_digits_than_python_reads_is_reported(field: str) -> None:
    data = b'{"amount": {"iva": 1}, "%s": {"x": %s}}' % (field.encode(), b"1" * 5000)
    with pytest.raises(Problem, match=f": /{field}/x has more than 4300 digits"):
        read_start(data)


@every(
    ("given", "wanted"),
    [
        (b"{}", (None, [])),
        (b'{"keep": null}', (None, [])),
        *((f'{{"keep": {text}}}'.encode(), (3, [])) for text in ("3", "3.0", "30e-1")),
        *((f'{{"keep": {text}}}'.encode(), (number, [])) for text, number in (("1", 1), ("5", 5))),
        *(
            (f'{{"keep": {text}}}'.encode(), (None, ["/keep"]))
            for text in ("0", "6", "-1", "1.5", "true", '"3"', "[]", "1e9")
        ),
    ],
)
def test_a_whole_number_may_be_written_in_any_notation(given: bytes, wanted: object) -> None:
    reader = FieldReader(given, ("keep",))
    assert (reader.whole("keep", 1, 5), [fault.path for fault in reader.faults]) == wanted


def test_an_attention_is_shown_without_control_characters() -> None:
    item = Attention(AttentionCode.UNKNOWN_STATUS, "2026-11-20T10:00:00.000Z", "status \x1b[2J\nof a stranger")
    [shown] = starting(attention=(item,)).shown_attention
    assert (shown.code, shown.detail) == (item.code, r"status \u001b[2J\nof a stranger")

"""Ids and digits. Each parser accepts any notation of a whole number and reads the same value."""

from collections.abc import Callable
from decimal import Decimal

import pytest

from posd.base.json_types import MAX_WHOLE_DIGITS, as_text, decode, decoded
from posd.payments.answers import SearchHit, SearchMiss, read_reply
from posd.payments.wire import RawResponse, TransactionEvent, read_acknowledgement, read_event
from posd.printing.model import JobAccepted
from posd.printing.wire import PollAnswered, judge, read_poll, read_status, read_webhook
from posd.terminals.attempt import ErrorEnvelope, Replied, read_envelope
from tests.core.scenarios import IDENTITY
from tests.core.test_printing import starting
from tests.rig.tables import there

#: JSON -> value as an id.
NOTATIONS = {
    "20000000100": "20000000100",
    "20000000100.0": "20000000100",
    "2.00000001E10": "20000000100",
    "2.00000001e+10": "20000000100",
    "200000001000e-1": "20000000100",
    "1234567.0": "1234567",
    "1.234567E+6": "1234567",
    "-1.0": "-1",
    "0.0": "0",
    "0e5": "0",
    "0e99": "0",
    "1.50": "1.50",
    "9007199254740993.0": "9007199254740993",  # a double-precision number cannot represent this number
    f"1e{MAX_WHOLE_DIGITS - 1}": "1" + "0" * (MAX_WHOLE_DIGITS - 1),
    f"1e{MAX_WHOLE_DIGITS}": f"1E+{MAX_WHOLE_DIGITS}",
    "1e999999999": "1E+999999999",
    "1e-999999999": "1E-999999999",
    '"2.00000001E10"': "2.00000001E10",
    '"007.0"': "007.0",
}

_EVENT = f'"event_id": "e", "status": "APPROVAL", "client_transaction_id": "{IDENTITY}"'


def event(members: str) -> TransactionEvent:
    return read_event(f"{{{_EVENT.partition(', ')[2]}, {members}}}".encode())


def terminal(literal: str) -> str:
    return event(f'"terminal": {{"serial_number": {literal}}}').serial_number


def named_twice(literal: str) -> str:
    digits = as_text(decode(literal.encode()))
    return event(f'"terminal": {{"serial_number": "{digits}", "serialNumber": {literal}}}').serial_number


def response(members: str) -> RawResponse:
    return there(event(f'"raw_response": {{{members}}}').raw_response)


def failure(literal: str) -> str | None:
    found = there(event(f'"failure_reason": {{"code": {literal}}}').failure_reason)
    return found.code


def answered(body: str) -> Replied:
    return Replied(200, body.encode())


def element(literal: str) -> str:
    found = read_reply(answered(f'[{{{_EVENT}, "terminal": {{"serialNumber": {literal}}}}}]'), "", IDENTITY)
    assert isinstance(found, SearchHit)
    (only,) = found.events
    assert isinstance(only, TransactionEvent)
    return only.serial_number


def acknowledged(literal: str) -> str | None:
    found = there(read_acknowledgement(decoded(f'{{"terminal": {{"serialNumber": {literal}}}}}'.encode())[0]))
    return found.serial_number


def envelope(members: str) -> ErrorEnvelope:
    return there(read_envelope(f'{{"type": "T", {members}}}'.encode()))


def printed(job_id: str, more: str = '"status": "FAILED"') -> bytes:
    return f'{{"printJobId": {job_id}, {more}}}'.encode()


def polled(literal: str) -> str | None:
    found = read_poll(answered(f'{{"status": "FAILED", "errorCode": {literal}}}'), starting())
    assert isinstance(found, PollAnswered)
    return found.report.error_code


def accepted(literal: str) -> str | None:
    said = judge(answered(f'{{"printJobId": {literal}}}'))
    assert isinstance(said, JobAccepted)
    return said.job_id


#: Place of an id or of digits -> parser.
READERS: dict[str, Callable[[str], str | None]] = {
    "event_id": lambda literal: event(f'"event_id": {literal}').event_id,
    "merchant_id": lambda literal: event(f'"merchant_id": {literal}').merchant_id,
    "serial_number": terminal,
    "a serial under two names": named_twice,
    "ticket_number": lambda literal: response(f'"ticket_number": {literal}').ticket_number,
    "transaction_reference": lambda literal: response(f'"transaction_reference": {literal}').transaction_reference,
    "authorization code": lambda literal: (
        response(f'"message_fields": {{"F38": {literal}}}').receipt.authorization_code
    ),
    "failure code": failure,
    "element of a search": element,
    "acknowledgement": acknowledged,
    "code of an error": lambda literal: envelope(f'"code": {literal}').code,
    "serial of an error": lambda literal: (
        envelope(f'"code": "C", "object": {{"serialNumber": {literal}}}').serial_number
    ),
    "print webhook": lambda literal: read_webhook(printed(literal)).job_id,
    "error of a print webhook": lambda literal: (
        read_webhook(printed('"j"', f'"status": "FAILED", "errorCode": {literal}')).error_code
    ),
    "status of a print webhook": lambda literal: read_status(printed('"j"', f'"status": {literal}')),
    "poll": polled,
    "answer to a print job": accepted,
}


@pytest.mark.parametrize("place", READERS)
def test_a_whole_number_is_read_as_its_digits_everywhere(place: str) -> None:
    assert {literal: READERS[place](literal) for literal in NOTATIONS} == NOTATIONS


def test_a_value_that_is_neither_text_nor_number_is_not_an_id() -> None:
    assert [as_text(value) for value in (None, True, [], {}, 7, 7.0)] == [None] * 6
    assert as_text(Decimal("7.0")) == as_text("7") == "7"


@pytest.mark.parametrize("page", ["1", "1.0", "1E0"])
@pytest.mark.parametrize("size", ["50", "50.0", "5E+1"])
def test_an_empty_page_means_nothing_found_whatever_the_notation_of_its_numbers(page: str, size: str) -> None:
    reply = answered(f'{{"data": [], "page": {page}, "size": {size}, "total": 0.0}}')
    assert isinstance(read_reply(reply, "", IDENTITY, paged=True), SearchMiss)

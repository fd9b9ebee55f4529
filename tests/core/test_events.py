"""Parser of events. It is strict about the state and the payment of an event, and lenient about other members.

No data is lost.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.base.json_types import decode
from posd.payments.wire import (
    MAX_TEXT,
    NotAnEvent,
    StartAcknowledgement,
    read_acknowledgement,
    read_element,
    read_event,
)
from tests.core.scenarios import IDENTITY
from tests.rig.events import body, event
from tests.rig.tables import every


@every("field", ["event_id", "occurred_at", "merchant_id", "client_transaction_id", "terminal"])
@every("value", [None, "", [], True], ids=["absent", "empty", "list", "true"])
def test_an_approval_without_a_member_counts_and_names_the_missing_member(field: str, value: object) -> None:
    event = read_event(body(IDENTITY, "APPROVAL", **{field: value}))
    assert event.status == "APPROVAL"
    assert event.damaged == ("terminal.serial_number" if field == "terminal" and value is not True else field,) or (
        event.damaged == ("terminal", "terminal.serial_number")
    )
    read = {"terminal": event.serial_number, "event_id": event.event_id.partition(":")[0]}
    assert (read | {name: getattr(event, name) for name in ("occurred_at", "merchant_id", "client_transaction_id")})[
        field
    ] == ("sha256" if field == "event_id" else "")


OPERATION, REASON = {"type": "CHARGE", "amount": {"tip": 1}}, {"type": "T", "code": "51", "message": "no"}
DOCUMENT = event(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED", operation=OPERATION, failure_reason=REASON)


def changed(path: str, value: object) -> bytes:
    """Return an approval in which the member at the path has this value."""
    document = json.loads(json.dumps(DOCUMENT))
    *above, name = path.split(".")
    place = document
    for step in above:
        place = place[step]
    place[name] = value
    return json.dumps(document).encode()


@every("value", ["", [], {}], ids=["empty text", "empty list", "empty object"])
@every(
    "path",
    [
        *("terminal.brand", "terminal.model", "previous_status", "reading_type"),
        *("failure_reason", "failure_reason.type", "failure_reason.code", "failure_reason.message"),
        *("operation", "operation.type", "operation.amount", "operation.amount.tip", "operation.amount.currency"),
        *("raw_response", "raw_response.transaction_reference", "raw_response.ticket_number"),
        *("raw_response.authorized_amount", "raw_response.franchise", "raw_response.card_type"),
        *("raw_response.cvm_type", "raw_response.message_fields", "raw_response.message_fields.F38"),
    ],
)
def test_an_unreadable_member_is_named_with_its_path_and_an_empty_member_is_not(path: str, value: object) -> None:
    assert read_event(changed(path, [True])).damaged == (path,)
    assert read_event(changed(path, value)).damaged == ()


@every("path", ["previous_status", "raw_response.transaction_reference"])
def test_a_text_that_is_compared_must_be_complete(path: str) -> None:
    assert read_event(changed(path, "x\ufffd")).damaged == (path,)


@every("status", ["APPROV\ufffdL", "x" * (MAX_TEXT + 1), "", None, 7])
def test_a_body_with_an_unreadable_status_is_not_an_event(status: object) -> None:
    with pytest.raises(NotAnEvent, match="status"):
        read_event(changed("status", status))
    assert read_event(changed("status", "x" * MAX_TEXT)).status == "x" * MAX_TEXT


def test_two_different_serials_in_one_event_are_a_contradiction() -> None:
    assert read_event(changed("terminal", {"serial_number": "", "serialNumber": "SN-1"})).serial_number == "SN-1"
    twice = changed("terminal", {"serialNumber": "SN-1"})[:-1].replace(b'"SN-1"', b'"SN-1", "serialNumber": "SN-2"')
    for data in (twice + b"}", changed("terminal", {"serial_number": "SN-1", "serialNumber": "SN-2"})):
        with pytest.raises(NotAnEvent, match="serial_number"):
            read_event(data)


@every(
    ("inner", "read"),
    [
        ({"status": "CARD_PRESENTED"}, False),
        ({"terminal": {"serialNumber": "SN-2"}}, False),
        ({"status": "TERMINAL_ACKNOWLEDGED", "terminal": {"serialNumber": "SN-1"}}, True),
    ],
)
def test_both_places_of_an_acknowledgement_must_agree(inner: object, *, read: bool) -> None:
    reply = {"status": "TERMINAL_ACKNOWLEDGED", "terminal": {"serialNumber": "SN-1"}, "object": inner}
    found = read_acknowledgement(decode(json.dumps(reply).encode()))
    assert found == (StartAcknowledgement("TERMINAL_ACKNOWLEDGED", (), "SN-1") if read else None)


def test_a_page_of_a_search_may_have_the_state_in_two_places() -> None:
    state = {"transaction_status": "APPROVAL"}
    page = {"client_transaction_id": IDENTITY, "raw_response": state} | state
    assert read_element(json.dumps(page).encode(), paged=True).status == "APPROVAL"


def test_a_body_without_transaction_and_terminal_is_not_an_event() -> None:
    with pytest.raises(NotAnEvent, match="neither"):
        read_event(b'{"status": "APPROVAL", "event_id": "e"}')


def test_an_unreadable_event_id_is_replaced_by_a_digest_of_the_bytes() -> None:
    one, other = (body(IDENTITY, "APPROVAL", event_id=None, extra=extra) for extra in (1, 2))
    assert read_event(one).event_id == read_event(one).event_id
    assert read_event(one).event_id != read_event(other).event_id
    long = read_event(body(IDENTITY, "APPROVAL", event_id="x" * (MAX_TEXT + 1)))
    assert (long.event_id.startswith("sha256:"), long.damaged) == (True, ("event_id",))


@pytest.mark.parametrize("field", ["event_id", "previous_status", "occurred_at", "merchant_id"])
def test_a_field_with_two_different_values_counts_as_missing(field: str) -> None:
    data = body(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED")
    event = read_event(data[:-1] + f', "{field}": "other"}}'.encode())
    assert (event.status, event.damaged) == ("APPROVAL", (field,))
    assert "other" not in (event.event_id, event.previous_status, event.occurred_at, event.merchant_id)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_event_or_a_reason(data: bytes) -> None:
    with pytest.raises(NotAnEvent):
        read_event(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(event(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED"))), json_values)
def test_any_value_in_any_field_is_read_or_refused(field: str, value: object) -> None:
    document = event(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED") | {field: value}
    try:
        read = read_event(json.dumps(document).encode())
        assert read.client_transaction_id or read.serial_number
    except NotAnEvent as error:
        assert str(error)  # noqa: PT017 - success and this error are both correct


def test_an_event_with_the_member_names_of_other_replies_is_read() -> None:
    known = event(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED")
    response, terminal = known.pop("raw_response"), known.pop("terminal")
    known |= {"rawResponse": response, "terminal": {"serialNumber": terminal["serial_number"]}}
    read = read_event(json.dumps(known).encode())
    assert read.raw_response is not None
    assert (read.serial_number, read.raw_response.ticket_number, read.damaged) == ("SN-TEST", "000123", ())
    both = read_event(json.dumps(known | {"raw_response": response | {"ticket_number": "7"}}).encode())
    assert (both.raw_response, both.damaged) == (None, ("raw_response",))

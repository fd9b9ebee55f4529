"""The wire codec: strict about what an event states and whose it is, lenient about the rest, nothing lost."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from posd.payments.wire import MAX_TEXT, NotAnEvent, read_event
from tests.core.scenarios import IDENTITY, acknowledgement_of
from tests.support.events import body, event
from tests.support.tables import every


@every("value", [None, 7, "", [], "x" * (MAX_TEXT + 1)], ids=["absent", "number", "empty", "list", "huge"])
def test_the_status_must_be_there(value: object) -> None:
    with pytest.raises(NotAnEvent, match="status"):
        read_event(body(IDENTITY, "APPROVAL", status=value))


@every("field", ["event_id", "occurred_at", "merchant_id", "client_transaction_id", "terminal"])
@every("value", [None, "", [], True], ids=["absent", "empty", "list", "true"])
def test_an_approval_without_another_member_is_one_and_says_what_is_missing(field: str, value: object) -> None:
    event = read_event(body(IDENTITY, "APPROVAL", **{field: value}))
    assert event.status == "APPROVAL"
    assert event.damaged == ("terminal.serial_number" if field == "terminal" and value is not True else field,) or (
        event.damaged == ("terminal", "terminal.serial_number")
    )
    read = {"terminal": event.terminal.serial_number, "event_id": event.event_id.partition(":")[0]}
    assert (read | {name: getattr(event, name) for name in ("occurred_at", "merchant_id", "client_transaction_id")})[
        field
    ] == ("sha256" if field == "event_id" else "")


@pytest.mark.parametrize("terminal", [{}, {"serial_number": ""}, {"serial_number": None}, {"serial_number": [1]}])
def test_a_serial_that_cannot_be_read_is_empty(terminal: object) -> None:
    event = read_event(body(IDENTITY, "APPROVAL", terminal=terminal))
    assert (event.terminal.serial_number, event.damaged) == ("", ("terminal.serial_number",))


def test_what_names_neither_a_transaction_nor_a_terminal_is_no_event() -> None:
    with pytest.raises(NotAnEvent, match="neither"):
        read_event(b'{"status": "APPROVAL", "event_id": "e"}')


def test_an_event_id_that_cannot_be_read_is_the_digest_of_the_bytes() -> None:
    one, other = (body(IDENTITY, "APPROVAL", event_id=None, extra=extra) for extra in (1, 2))
    assert read_event(one).event_id == read_event(one).event_id
    assert read_event(one).event_id != read_event(other).event_id
    long = body(IDENTITY, "APPROVAL", event_id="x" * (MAX_TEXT + 1))
    assert read_event(long).event_id.startswith("sha256:")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"<html>", "not JSON"),
        (b'{"event_id": "x"', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b"{}", "neither"),
        (b'{"a": NaN', "not JSON: .* breaks off"),
        ("{}".encode("utf-16"), "not JSON"),
        (b'{"a": "\xff"', "UTF-8; it breaks off"),
        (b"[" * 100_000 + b"]" * 100_000, "deeply"),
    ],
)
def test_what_is_no_event_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(NotAnEvent, match=reason):
        read_event(data)


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"previous_status": 7}, "previous_status", "7"),
        ({"previous_status": ""}, "previous_status", None),
        ({"previous_status": []}, "previous_status", None),
        ({"reading_type": {}}, "reading_type", None),
        ({"raw_response": []}, "raw_response", None),
        ({"operation": "CHARGE"}, "operation_type", None),
        ({"operation": {"type": "CHARGE", "amount": 7}}, "operation_type", "CHARGE"),
        ({"operation": {"amount": {"tip": "1.50"}}}, "tip", Decimal("1.50")),
        ({"failure_reason": 7}, "failure_reason", None),
        ({"status": "TERMINAL_WARMING_UP"}, "status", "TERMINAL_WARMING_UP"),
        ({"client_transaction_id": IDENTITY.upper()}, "client_transaction_id", IDENTITY),
    ],
)
def test_the_rest_is_read_as_far_as_it_goes(changes: dict[str, object], field: str, value: object) -> None:
    assert getattr(read_event(body(IDENTITY, "APPROVAL", **changes)), field) == value


@pytest.mark.parametrize("amount", ["11.20", '"11.20"'])
def test_an_approval_is_not_refused_for_a_number_as_a_string(amount: str) -> None:
    data = body(IDENTITY, "APPROVAL", raw_response={"authorized_amount": 0, "ticket_number": 123})
    response = read_event(
        data.replace(b'"authorized_amount": 0', f'"authorized_amount": {amount}'.encode())
    ).raw_response
    assert response is not None
    assert (response.authorized_amount, response.ticket_number) == (Decimal("11.20"), "123")


def test_a_number_that_nothing_can_hold_does_not_hide_an_event() -> None:
    data = body(IDENTITY, "APPROVAL", extra=0).replace(b'"extra": 0', b'"extra": 1e99999999999999999999')
    assert read_event(data).status == "APPROVAL"


@pytest.mark.parametrize("field", ["status", "client_transaction_id"])
def test_a_field_that_says_two_things_is_refused(field: str) -> None:
    data = body(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED")
    with pytest.raises(NotAnEvent, match=f"{field} stands more than once"):
        read_event(data[:-1] + f', "{field}": "other"}}'.encode())


@pytest.mark.parametrize("field", ["event_id", "previous_status", "occurred_at", "merchant_id"])
def test_of_another_field_that_says_two_things_none_is_believed(field: str) -> None:
    data = body(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED")
    event = read_event(data[:-1] + f', "{field}": "other"}}'.encode())
    assert (event.status, event.damaged) == ("APPROVAL", (field,))
    assert "other" not in (event.event_id, event.previous_status, event.occurred_at, event.merchant_id)


def test_two_terminals_are_refused() -> None:
    data = body(IDENTITY, "APPROVAL")[:-1] + b', "terminal": {"serial_number": "SN-OTHER"}}'
    with pytest.raises(NotAnEvent, match="terminal stands more than once"):
        read_event(data)


def test_an_amount_that_says_two_things_is_none() -> None:
    data = body(IDENTITY, "APPROVAL", raw_response={"authorized_amount": 1}, operation={"amount": {"tip": 1}})
    data = data.replace(b'"authorized_amount": 1', b'"authorized_amount": 1, "authorized_amount": 2')
    event = read_event(data.replace(b'"tip": 1', b'"tip": 1, "tip": 2'))
    assert event.raw_response is not None
    assert (event.raw_response.authorized_amount, event.tip) == (None, None)


@pytest.mark.parametrize("name", ["ticket_number", "transaction_reference"])
def test_a_reference_that_says_two_things_is_none(name: str) -> None:
    data = body(IDENTITY, "APPROVAL", raw_response={name: "1"})
    event = read_event(data.replace(b'": "1"}', f'": "1", "{name}": "2"}}'.encode()))
    assert event.damaged == (f"raw_response.{name}",)
    assert event.raw_response is not None
    assert getattr(event.raw_response, name) is None


@pytest.mark.parametrize(
    "twice", [b', "status": "APPROVAL"}', b', "metadata": {"a": 1, "a": 2}}', b', "x": 1, "x": 2}']
)
def test_harmless_repetition_is_no_reason_to_lose_an_event(twice: bytes) -> None:
    assert read_event(body(IDENTITY, "APPROVAL")[:-1] + twice).status == "APPROVAL"


@given(st.binary(max_size=200))
def test_any_bytes_are_an_event_or_say_why_not(data: bytes) -> None:
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
        assert read.client_transaction_id or read.terminal.serial_number
    except NotAnEvent as error:
        assert str(error)  # noqa: PT017 - both ends are right; what matters is that there is no other


def test_the_acknowledgement_is_read_by_its_own_shape() -> None:
    acknowledgement = acknowledgement_of(
        json.dumps(
            {
                "status": "TERMINAL_ACKNOWLEDGED",
                "previous_status": "",
                "terminal": {"serialNumber": "SN-1", "model": "M"},
                "operation": {"client_transaction_id": IDENTITY.upper()},
            }
        ).encode()
    )
    assert acknowledgement is not None
    assert acknowledgement.serial_number == "SN-1"
    assert acknowledgement.client_transaction_ids == (IDENTITY,)


@every(
    ("terminal", "inner", "expected"),
    [
        ({"serial_number": "SN-1"}, {}, "SN-1"),
        ({"serial_number": "SN-1", "serialNumber": ""}, {}, "SN-1"),
        ({"serial_number": "SN-1", "serialNumber": "SN-1"}, {}, "SN-1"),
        ({"serial_number": "SN-2", "serialNumber": "SN-1"}, {}, None),
        ({}, {"terminal": {"serialNumber": "SN-1"}}, "SN-1"),
        ({"serialNumber": "SN-2"}, {"terminal": {"serialNumber": "SN-1"}}, None),
        ({"serialNumber": "SN-1"}, {"status": "CARD_PRESENTED"}, None),
    ],
    ids=str,
)
def test_who_acknowledges_is_read_under_each_name_and_in_the_object(
    terminal: dict[str, str], inner: dict[str, object], expected: str | None
) -> None:
    document = {"status": "TERMINAL_ACKNOWLEDGED", "terminal": terminal, "object": inner}
    read = acknowledgement_of(json.dumps(document).encode())
    assert (read.serial_number if read else None) == expected


def test_an_event_in_the_names_of_other_answers_is_read() -> None:
    known = event(IDENTITY, "APPROVAL", "APPROVAL_REQUESTED")
    response, terminal = known.pop("raw_response"), known.pop("terminal")
    known |= {"rawResponse": response, "terminal": {"serialNumber": terminal["serial_number"]}}
    read = read_event(json.dumps(known).encode())
    assert read.raw_response is not None
    assert (read.terminal.serial_number, read.raw_response.ticket_number, read.damaged) == ("SN-TEST", "000123", ())
    both = read_event(json.dumps(known | {"raw_response": response | {"ticket_number": "7"}}).encode())
    assert (both.raw_response, both.damaged) == (None, ("raw_response",))


@pytest.mark.parametrize("echo", [["x"], {"x": 1}, True, 5])
def test_an_echo_that_is_no_text_matches_no_known_id(echo: object) -> None:
    acknowledgement = acknowledgement_of(json.dumps({"client_transaction_id": echo}).encode())
    assert acknowledgement is not None
    (echoed,) = acknowledgement.client_transaction_ids
    assert echoed != IDENTITY


@pytest.mark.parametrize("echo", [None, ""])
def test_an_empty_echo_is_none(echo: object) -> None:
    acknowledgement = acknowledgement_of(json.dumps({"client_transaction_id": echo}).encode())
    assert acknowledgement is not None
    assert acknowledgement.client_transaction_ids == ()


@pytest.mark.parametrize(
    "data",
    [
        b'{"status": "DECLINED", "status": "TERMINAL_ACKNOWLEDGED"}',
        b'{"status": "TERMINAL_ACKNOWLEDGED", "terminal": {"serialNumber": "A"}, "terminal": {"serialNumber": "B"}}',
        b'{"status": "TERMINAL_ACKNOWLEDGED", "terminal": {"serialNumber": "A", "serialNumber": "B"}}',
        b'{"status": "TERMINAL_ACKNOWLEDGED", "client_transaction_id": "a", "client_transaction_id": "b"}',
        b'{"status": "TERMINAL_ACKNOWLEDGED", "operation": {"client_transaction_id": "a"}, "operation": 1}',
        b'{"operation": {"client_transaction_id": "a", "client_transaction_id": "b"}}',
    ],
)
def test_what_says_two_things_is_no_acknowledgement(data: bytes) -> None:
    assert acknowledgement_of(data) is None


def test_what_says_the_same_twice_is_one() -> None:
    twice = b'{"status": "TERMINAL_ACKNOWLEDGED", "status": "TERMINAL_ACKNOWLEDGED", "x": 1, "x": 2}'
    assert acknowledgement_of(twice) is not None

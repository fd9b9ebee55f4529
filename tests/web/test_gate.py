"""Admission of connections to the webhook listener by places and budgets. The test sets the clock."""

import pytest

from posd.httpd import admission as gates
from posd.httpd.admission import GRACE_SECONDS, KNOWN_SECONDS, AdmissionGate, ConnectionSlot

#: Places of the gate under test.
KNOWN, STRANGER, STRANGERS = 8, 3, 5
TERMINAL, STRANGE, OTHER, THIRD = "192.0.2.1", "192.0.2.66", "192.0.2.67", "192.0.2.68"


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(clock: Clock) -> AdmissionGate:
    return AdmissionGate(lambda: [TERMINAL], of_known=KNOWN, of_stranger=STRANGER, of_strangers=STRANGERS, clock=clock)


def admitted(gate: AdmissionGate, address: str, count: int = 100) -> list[ConnectionSlot]:
    """Request this many places. Return the admitted connections."""
    return [place for _ in range(count) if (place := gate.admit(address)) is not None]


def test_neither_one_address_nor_all_strangers_together_get_every_connection(gate: AdmissionGate) -> None:
    assert len(admitted(gate, STRANGE)) == STRANGER
    assert len(admitted(gate, OTHER)) == STRANGERS - STRANGER
    assert admitted(gate, THIRD) == []
    assert len(admitted(gate, TERMINAL)) == KNOWN


def test_an_address_is_the_same_in_every_notation(gate: AdmissionGate) -> None:
    assert len(admitted(gate, f"::ffff:{TERMINAL}")) == KNOWN
    assert admitted(gate, TERMINAL) == []


def test_a_callback_of_an_open_payment_makes_an_address_known_for_a_day(gate: AdmissionGate, clock: Clock) -> None:
    place = gate.admit(STRANGE)
    assert place is not None
    place.prove()
    place.know()
    place.leave()
    assert len(admitted(gate, OTHER)) + len(admitted(gate, THIRD)) == STRANGERS
    places = admitted(gate, STRANGE)
    assert len(places) == KNOWN
    for place in places:
        place.leave()
    clock.now += KNOWN_SECONDS
    assert len(admitted(gate, STRANGE)) == STRANGER


def test_proven_connections_do_not_count_as_strangers(gate: AdmissionGate) -> None:
    for address in (STRANGE, OTHER):
        for place in admitted(gate, address):
            place.prove()
    assert len(admitted(gate, THIRD)) == STRANGER


def test_the_oldest_unproven_connection_is_cut_after_its_grace(gate: AdmissionGate, clock: Clock) -> None:
    first, second, third = admitted(gate, STRANGE)
    cut: list[ConnectionSlot] = []
    for place in (first, second, third):
        place.on_cut = lambda place=place: cut.append(place)  # type: ignore[misc]
    first.prove()
    first.know()
    clock.now += GRACE_SECONDS * 0.9
    third_of_other = admitted(gate, OTHER, 1)
    assert third_of_other
    assert cut == []
    clock.now += GRACE_SECONDS * 0.1
    assert len(admitted(gate, STRANGE, 1)) == 1  # the sender's address is known, so posd cuts no connection
    assert cut == []
    admitted(gate, STRANGE)
    assert cut == [second, third]


def test_a_connection_with_a_token_is_not_cut_and_its_address_stays_unknown(gate: AdmissionGate, clock: Clock) -> None:
    for place in admitted(gate, STRANGE):
        place.on_cut = lambda: pytest.fail("it has a token")
        place.keep()
    clock.now += 100 * GRACE_SECONDS
    assert admitted(gate, STRANGE) == []


def test_no_connection_is_cut_while_there_is_room(gate: AdmissionGate, clock: Clock) -> None:
    (place,) = admitted(gate, STRANGE, 1)
    place.on_cut = lambda: pytest.fail("there was room")
    clock.now += 100 * GRACE_SECONDS
    assert len(admitted(gate, STRANGE, STRANGER - 1)) == STRANGER - 1


def test_even_short_unproven_connections_are_limited_in_number(gate: AdmissionGate, clock: Clock) -> None:
    def come_and_go(address: str) -> int:
        count = 0
        while (place := gate.admit(address)) is not None:
            place.leave()
            count += 1
        return count

    assert come_and_go(STRANGE) == STRANGER
    assert come_and_go(OTHER) == STRANGERS - STRANGER
    assert come_and_go(TERMINAL) == KNOWN
    clock.now += GRACE_SECONDS
    assert come_and_go(STRANGE) == STRANGER


def test_a_connection_with_a_valid_token_uses_no_budget(gate: AdmissionGate) -> None:
    for _ in range(1000):
        place = gate.admit(STRANGE)
        assert place is not None
        place.prove()
        place.leave()
        place.leave()  # both the gate (to cut a connection) and the server (after its end) call `leave`
    assert len(admitted(gate, STRANGE)) == STRANGER


def test_a_hundred_terminals_behind_one_unknown_address_are_admitted_within_their_backoff(clock: Clock) -> None:
    gate, waiting = AdmissionGate(clock=clock), 100
    for backoff in (0, 1, 2, 4):  # a terminal sends a refused event again (terminal API, Delivery)
        clock.now += backoff
        places = admitted(gate, STRANGE, waiting)
        for place in places:
            place.prove()
            place.know()
            place.leave()
        waiting -= len(places)
        if not waiting:
            break
    assert (waiting, backoff) == (0, 2)


def test_memory_for_addresses_is_bounded(gate: AdmissionGate, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "MAX_ADDRESSES", 10)
    monkeypatch.setattr(gates, "MAX_KNOWN", 10)
    for number in range(1000):
        clock.now += GRACE_SECONDS
        place = gate.admit(f"198.51.{number // 250}.{number % 250}")
        assert place is not None
        if number % 2:
            place.know()
        place.leave()
    assert len(gate._addresses) <= 10 + STRANGERS
    assert len(gate._known) == 10

"""The address of a terminal that posd uses, in every situation."""

from dataclasses import asdict, dataclass, replace
from itertools import product

import pytest

from posd.terminals import identity
from posd.terminals.attempt import Attempt, Replied, ReplyLost, refuser
from posd.terminals.identity import (
    AddressConflict,
    LastTrusted,
    OpenConflict,
    OtherTerminal,
    Proof,
    Trusted,
    UsableAddress,
    steps,
    words,
)
from tests.rig.tables import every

BOOLEANS = ("pinned", "proven", "proved", "decided", "contested", "is_open")


@dataclass(frozen=True)
class Situation:
    """Inputs of the judgement of an address."""

    pinned: bool
    proven: bool
    old: LastTrusted
    claimants: int
    proved: bool = False
    decided: bool = False
    contested: bool = False
    is_open: bool = False


def judge(seen: Situation) -> UsableAddress | AddressConflict:
    return identity.judge(**asdict(seen))


#: Every combination of the inputs.
ALL = [
    Situation(**dict(zip(BOOLEANS, flags, strict=True)), old=old, claimants=claimants)
    for *flags, old, claimants in product(*[(False, True)] * len(BOOLEANS), LastTrusted, range(3))
]


def unproven(**changes: object) -> Situation:
    """Return a situation without proof. By default the terminal is at its last address."""
    base = {"pinned": False, "proven": False, "old": LastTrusted.ANSWERS, "claimants": 0}
    return Situation(**base | changes)  # type: ignore[arg-type]


def test_a_pinned_or_proven_device_may_move() -> None:
    assert {judge(seen) for seen in ALL if seen.pinned} == {UsableAddress.NEWEST}
    rest = [seen for seen in ALL if seen.proven and not seen.pinned]
    assert {judge(seen) for seen in rest} == {UsableAddress.PROVEN}


UNPROVEN = [seen for seen in ALL if not (seen.pinned or seen.proven)]


def test_an_unproven_claim_is_followed_only_if_it_is_alone_and_the_old_address_is_lost() -> None:
    followed = [seen for seen in UNPROVEN if judge(seen) is UsableAddress.NEW]
    assert followed
    for seen in followed:
        assert (seen.old, seen.claimants) == (LastTrusted.LOST, 1), seen
        assert {seen.is_open, seen.proved, seen.contested} == {False}, seen


def test_the_trusted_address_is_used_only_if_no_other_device_may_be_the_terminal() -> None:
    for seen in UNPROVEN:
        if judge(seen) is UsableAddress.TRUSTED:
            assert seen.old is not LastTrusted.NEVER, seen
            alone = seen.claimants == 0
            waits = seen.old is LastTrusted.SILENT and seen.claimants == 1
            assert (
                alone or waits or seen.old is LastTrusted.UNKNOWN or (seen.old is LastTrusted.ANSWERS and seen.decided)
            ), seen


def test_without_a_trusted_address_one_claim_is_used_and_two_claims_conflict() -> None:
    for seen in UNPROVEN:
        if seen.old is LastTrusted.NEVER:
            several = seen.claimants == 2
            assert judge(seen) is (AddressConflict.RIVALS if several else UsableAddress.NEWEST), seen
        else:
            assert judge(seen) is not UsableAddress.NEWEST, seen


def test_an_open_payment_never_increases_trust() -> None:
    for seen in ALL:
        if seen.is_open and isinstance(judge(seen), UsableAddress):
            assert judge(replace(seen, is_open=False)) is judge(seen), seen


@every(
    ("changes", "expected"),
    [
        ({}, UsableAddress.TRUSTED),
        ({"claimants": 1}, AddressConflict.RIVALS),
        ({"claimants": 1, "decided": True}, UsableAddress.TRUSTED),
        ({"claimants": 1, "old": LastTrusted.UNKNOWN}, UsableAddress.TRUSTED),
        ({"claimants": 2, "old": LastTrusted.UNKNOWN}, UsableAddress.TRUSTED),
        ({"claimants": 0, "old": LastTrusted.SILENT}, UsableAddress.TRUSTED),
        ({"claimants": 1, "old": LastTrusted.SILENT}, UsableAddress.TRUSTED),
        ({"claimants": 1, "old": LastTrusted.LOST}, UsableAddress.NEW),
        ({"claimants": 1, "old": LastTrusted.LOST, "decided": True}, UsableAddress.NEW),
        ({"claimants": 1, "old": LastTrusted.SILENT, "is_open": True}, AddressConflict.MOVED),
        ({"claimants": 1, "old": LastTrusted.SILENT, "proved": True}, AddressConflict.MOVED),
        ({"claimants": 1, "old": LastTrusted.SILENT, "decided": True, "contested": True}, AddressConflict.MOVED),
        ({"claimants": 2, "old": LastTrusted.SILENT}, AddressConflict.RIVALS),
    ],
    ids=str,
)
def test_each_situation_has_the_decision_of_the_table(
    changes: dict[str, object], expected: UsableAddress | AddressConflict
) -> None:
    assert judge(unproven(**changes)) is expected


@pytest.mark.parametrize("kind", AddressConflict)
def test_each_conflict_names_the_devices(kind: AddressConflict) -> None:
    other = OtherTerminal("SN-2", announced=False) if kind is AddressConflict.SERIAL else None
    said = words(kind, "SN-1", ("http://b",), "http://a", other)
    assert "SN-1" in said
    assert "http://a" in said
    assert ("SN-2" in said) == (kind is AddressConflict.SERIAL)
    assert ("http://b" in said) == (kind is not AddressConflict.SERIAL)
    assert ("several devices" in said) == (kind is AddressConflict.RIVALS)
    assert ("says that it is terminal SN-2" in said) == (kind is AddressConflict.SERIAL)
    dispute = OpenConflict(kind, "t", (), said, steps("SN-1"))
    assert dispute.detail.startswith(said)
    assert ("Nothing is sent" in dispute.detail) == (kind is not AddressConflict.SERIAL), "searches are sent then"
    assert "posd terminals identity SN-1" in dispute.detail
    assert "base_url if it has no TLS" in dispute.detail, "a terminal without TLS has nothing to pin"


def test_a_wrong_serial_of_a_device_needs_a_corrected_configuration() -> None:
    edit, load, decide = steps("SN-1", "SN-2")
    assert edit.does.endswith("write SN-2 in place of SN-1 into [[terminals]]")
    assert (edit.command, load.command) == ("sudo editor", "posd config check && sudo systemctl reload posd")
    assert "posd terminals identity SN-1 --base-url URL" in str(decide.command)


def test_an_operators_decision_is_distinguished_from_posds_own_records() -> None:
    assert not Trusted("http://a", Proof.NONE, "t").decided
    assert Trusted("http://a", Proof.NONE, "t", operator="Ana").decided


@pytest.mark.parametrize(
    ("attempt", "serial"),
    [
        (Replied(404, b'{"code":"NF-001","object":{"serial_number":"SN-2"}}'), "SN-2"),
        (Replied(400, b'{"code":"1","object":{"serial_number":"SN-2"}}'), "SN-2"),
        (Replied(500, b'{"type":"TERMINAL","object":{"serialNumber":"SN-2","terminal_id":1}}'), "SN-2"),
        (Replied(500, b'{"type":"TERMINAL","object":{"serialNumber":"SN-2","serial_number":"SN-3"}}'), None),
        (Replied(500, b'{"type":"TERMINAL","object":{"serialNumber":"SN-2","serialNumber":"SN-3"}}'), None),
        (Replied(500, b'{"object":{"serialNumber":"SN-2"}}'), None),
        (Replied(200, b'{"code":"1","object":{"serial_number":"SN-2"}}'), None),
        (Replied(404, b'{"code":"1","object":{}}'), None),
        (Replied(404, b'{"code":"1","object":{"serial_number":[]}}'), None),
        (Replied(404, b'{"code":"1","object":{"serial_number":"%s"}}' % (b"9" * 65)), None),
        (Replied(404, b'{"code":"1","object":{"serial_number":"\xff"}}'), None),
        (Replied(404, b"<html>"), None),
        (ReplyLost("x"), None),
    ],
)
def test_an_error_may_name_the_terminal_that_refuses(attempt: Attempt, serial: str | None) -> None:
    assert refuser(attempt) == serial


def test_an_announcement_is_distinguished_from_a_devices_reply() -> None:
    said = words(AddressConflict.SERIAL, "SN-1", (), "http://a", OtherTerminal("SN-2", announced=True))
    assert said == "the device at http://a announces itself (mDNS) as terminal SN-2, not SN-1"

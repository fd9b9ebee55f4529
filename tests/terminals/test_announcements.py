"""mDNS records: which records are the announcement of a terminal."""

from typing import Any

import pytest

from posd.config.schema import DiscoveryConfig
from posd.terminals.announcements import MAX_SERIAL, MAX_TEXT, Announcement, read_announcement

TYPE = "_card-terminal._tcp.local."
RULES = DiscoveryConfig(True, (TYPE,), ("serial", "sn", "serialNumber"), (), 600.0)
AT = "2026-11-20T10:00:00.000Z"


def announcement(**changes: Any) -> Announcement:
    said: dict[str, Any] = {
        "name": f"Front desk.{TYPE}",
        "service_type": TYPE,
        "properties": {"serial": "SN-1", "brand": "B", "model": "M"},
        "announced": ["192.0.2.7"],
        "port": 6869,
    }
    return read_announcement(**(said | changes), rules=RULES, seen_at=AT)


def test_an_announcement_has_all_its_fields() -> None:
    assert announcement() == Announcement(f"front desk.{TYPE}", "SN-1", ("192.0.2.7",), 6869, "B", "M", AT)


@pytest.mark.parametrize(
    ("properties", "serial"),
    [
        ({"serial": "A", "sn": "B"}, "A"),
        ({"sn": "B", "serialNumber": "C"}, "B"),
        ({"SERIAL": " A "}, "A"),
        ({"serial": "", "serialNumber": "C"}, "C"),
        ({"serial": None}, "Front desk"),
        ({}, "Front desk"),
        ({"serial": "x" * MAX_SERIAL}, "x" * MAX_SERIAL),
    ],
)
def test_the_serial_comes_from_a_key_or_else_from_the_name(properties: dict[str, str | None], serial: str) -> None:
    assert announcement(properties=properties).serial == serial


#: Fault -> the fields of a malformed announcement.
MALFORMED: dict[str, dict[str, Any]] = {
    "no port": {"port": None},
    "port 0": {"port": 0},
    "port too large": {"port": 65_536},
    "no address": {"announced": []},
    "no usable address": {"announced": ["127.0.0.1", "fe80::1%2"]},
    "control character": {"properties": {"serial": "SN-1\x1b[2J"}},
    "line feed": {"properties": {"serial": "SN-1\nSN-2"}},
    "not UTF-8": {"properties": {"serial": "SN-\N{REPLACEMENT CHARACTER}"}},
    "huge": {"properties": {"serial": "x" * (MAX_SERIAL + 1)}},
    "huge value": {"properties": {"serial": "x" * 65_000}},
    "no name": {"properties": {}, "name": f".{TYPE}"},
    "name with a control character": {"properties": {}, "name": f"a\x00b.{TYPE}"},
}


@pytest.mark.parametrize("case", MALFORMED, ids=str)
def test_a_malformed_announcement_is_ignored(case: str) -> None:
    with pytest.raises(ValueError) as raised:
        announcement(**MALFORMED[case])
    assert str(raised.value).isprintable()
    assert "SN-1" not in str(raised.value)


def test_brand_and_model_are_used_only_if_they_are_plain_text() -> None:
    found = announcement(properties={"serial": "SN-1", "brand": "x" * 1000, "model": "\x1b[31m"})
    assert (found.brand, found.model) == ("x" * MAX_TEXT, None)

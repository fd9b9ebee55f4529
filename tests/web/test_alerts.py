"""Clients that refuse this machine's certificate. posd counts refusals per address and logs refusals rarely, with
bounded memory.
"""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from posd.api import certificate as certificate_refusals
from posd.api.certificate import CertificateRefusals, refusal
from posd.httpd import admission

START = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)


class Clock:
    """A wall clock and a monotonic clock that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed = 0.0
        monkeypatch.setattr(certificate_refusals, "monotonic", lambda: 1000.0 + self.passed)

    def now(self) -> datetime:
        return START + timedelta(seconds=self.passed)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def error_of(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("reason", "alert"),
    [
        ("TLSV1_ALERT_UNKNOWN_CA", "unknown_ca"),
        ("SSLV3_ALERT_BAD_CERTIFICATE", "bad_certificate"),
        ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", "certificate_unknown"),
        ("SSLV3_ALERT_CERTIFICATE_EXPIRED", "certificate_expired"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", None),
        ("TLSV1_ALERT_INTERNAL_ERROR", None),
        ("WRONG_VERSION_NUMBER", None),
    ],
)
def test_only_tls_alerts_about_the_certificate_count(reason: str, alert: str | None) -> None:
    assert refusal(error_of(reason)) == alert


def test_an_error_without_an_alert_is_not_a_refusal() -> None:
    assert [refusal(error) for error in (None, OSError("x"), ssl.SSLError(1, "no reason"))] == [None] * 3


def test_each_address_is_logged_once_an_hour_and_every_refusal_is_counted(clock: Clock) -> None:
    distrust = CertificateRefusals(clock.now)
    with capture_logs() as lines:
        for _ in range(50):
            distrust.note("10.0.0.7", "unknown_ca")
        distrust.note("10.0.0.8", "bad_certificate")
        clock.passed = 3600
        distrust.note("10.0.0.7", "unknown_ca")
    assert [(line["peer"], line["count"]) for line in lines] == [("10.0.0.7", 1), ("10.0.0.8", 1), ("10.0.0.7", 50)]
    assert all(line["event"] == "listener.distrusted" and line["log_level"] == "warning" for line in lines)
    assert "put ca.crt on it (posd tls ca)" in lines[0]["detail"]
    address, newest = list(distrust.recent().items())[-1]
    assert (address, newest.alert, newest.count) == ("10.0.0.7", "unknown_ca", 51)
    assert (newest.first_at, newest.last_at) == ("2026-11-22T09:00:00.000Z", "2026-11-22T10:00:00.000Z")


def test_a_flood_of_addresses_fills_neither_memory_nor_log(clock: Clock) -> None:
    distrust = CertificateRefusals(clock.now)
    with capture_logs() as lines:
        for number in range(10_000):
            distrust.note(f"10.{number // 65536}.{number // 256 % 256}.{number % 256}", "unknown_ca")
    assert len(lines) == certificate_refusals.MAX_LINES
    assert len(distrust.recent()) == certificate_refusals.MAX_ADDRESSES
    assert list(distrust.recent())[-1] == "10.0.39.15"
    words = distrust.words({}, complete=False)
    assert words is not None
    assert words.startswith("10.0.39.15 refuses it (unknown_ca): ")
    assert words.endswith(f"; and {certificate_refusals.MAX_ADDRESSES - certificate_refusals.MAX_NAMED} more")


def test_refusals_are_shown_for_a_day_after_the_newest(clock: Clock) -> None:
    distrust = CertificateRefusals(clock.now)
    assert (distrust.words({}, complete=False), distrust.recent()) == (None, {})
    distrust.note("10.0.0.7", "unknown_ca")
    clock.passed = 86_399
    assert len(distrust.recent()) == 1
    clock.passed = 86_400
    assert (distrust.words({}, complete=False), distrust.recent()) == (None, {})


def test_a_terminal_is_named_and_a_stranger_is_not(clock: Clock) -> None:
    distrust = CertificateRefusals(clock.now)
    distrust.note("10.0.0.9", "unknown_ca")
    assert distrust.words({"10.0.0.7": "SN-1"}, complete=True) is None
    assert str(distrust.words({"10.0.0.7": "SN-1"}, complete=False)).startswith("10.0.0.9 refuses it (unknown_ca): ")
    distrust.note("10.0.0.7", "unknown_ca")
    words = str(distrust.words({"10.0.0.7": "SN-1"}, complete=True))
    assert words.startswith("terminal SN-1 (10.0.0.7) refuses it (unknown_ca): ")
    assert "10.0.0.9" not in words


def test_a_check_by_this_machine_itself_is_not_a_refusal(clock: Clock) -> None:
    distrust = CertificateRefusals(clock.now, {"10.0.0.1"}.__contains__)
    assert distrust.told("::ffff:10.0.0.1", error_of("TLSV1_ALERT_UNKNOWN_CA"))
    assert distrust.recent() == {}


@pytest.mark.parametrize(
    ("peer", "address"),
    [("10.0.0.7", "10.0.0.7"), ("::ffff:10.0.0.7", "10.0.0.7"), ("fe80::1%eth0", "fe80::1"), ("fd00::2", "fd00::2")],
)
def test_an_address_is_shown_in_its_usual_form(peer: str, address: str) -> None:
    assert admission.plain(peer) == address

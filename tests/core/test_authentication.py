"""Authentication of a call: a failing scheme, a header that cannot be sent, and headers of the configuration."""

import pytest

from posd.terminals.attempt import CallFailed
from posd.terminals.authentication import Authentication, OutgoingRequest, authenticate, headers, hmac_sha256, none

SECRET = "hunter2-hunter2"
REQUEST = OutgoingRequest("POST", "https://192.0.2.7/x", {"X-Key": "before"}, b"{}")


def fails(_: OutgoingRequest) -> OutgoingRequest:
    raise ValueError(SECRET)


def test_configured_headers_replace_headers_of_the_request_in_upper_and_lower_case() -> None:
    assert authenticate(REQUEST, headers({"x-key": SECRET})).headers == {"x-key": SECRET}
    assert authenticate(REQUEST, none) is REQUEST


def test_the_body_is_sent_as_it_is_signed() -> None:
    sent = hmac_sha256("code", lambda: 0.0)(OutgoingRequest("POST", "https://192.0.2.7/x", {}, b'{ "a": 1.0 }'))
    assert sent.body == b'{"a":1}'


@pytest.mark.parametrize(
    ("scheme", "word"),
    [(fails, "ValueError"), (headers({"X-Key": f"{SECRET}\r\nX-Other: 1"}), "a header that cannot be sent")],
)
def test_a_failing_scheme_gives_the_reason_and_quotes_nothing(scheme: Authentication, word: str) -> None:
    with pytest.raises(CallFailed, match=word) as raised:
        authenticate(REQUEST, scheme)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None

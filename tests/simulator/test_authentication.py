"""JSON as JavaScript writes it, and the authentication of calls.

The simulator accepts each vector, and refuses each changed or stale call.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from posd.simulator import Settings
from posd.simulator.authentication import parse_javascript, stringify_javascript, verify
from posd.simulator.wire import Refused
from tests.rig.signing import Signer
from tests.rig.tables import every

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "vendor_auth.json").read_text("utf-8"))["schemes"]
HASHED = {case["id"]: case for part in ("cases", "alternatives") for case in VECTORS["hash-encrypt"][part]}
HMACS = {case["id"]: case for case in VECTORS["hmac"]["cases"]}
#: The signature covers the text as sent. A verifier that has only the parsed object cannot accept the signature.
AS_SENT = "alt-decimals-as-sent"
CODE, SERIAL = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135", "SN-0001"
NOW = 1_710_000_000.0
STATE = Path("unused")
BODY = {"client_transaction_id": "c5a3f3be-9d6f-4d39-8af5-58dbb589af79", "amount": {"subtotal_iva0": 5}}

Call = tuple[Settings, dict[str, str], bytes, float]


def hashed(case: dict[str, Any]) -> Call:
    given, out = case["inputs"], case["outputs"]
    milliseconds = case["id"] == "alt-timestamp-ms"
    scheme = Settings(
        state=STATE,
        auth="hash-encrypt",
        business_code=given["business_code"],
        serial=given["terminal_serial"],
        key_separator=given["key_separator"],
        key_position=given["signing_key_position"],
        minute_utc_offset=given["minute_utc_offset_minutes"],
        timestamp_unit="ms" if milliseconds else None,
        encrypt_replies=True,
    )
    headers = {"authorization": out["authorization_header"], "timestamp": out["timestamp_header"]}
    return scheme, headers, out["request_body"].encode(), given["timestamp"] / (1000 if milliseconds else 1)


def hmacs(case: dict[str, Any], unit: Any = None) -> Call:
    given, out = case["inputs"], case["outputs"]
    scheme = Settings(
        state=STATE, auth="hmac", business_code=given["business_code"], serial=SERIAL, timestamp_unit=unit
    )
    timestamp = out["timestamp_header_s" if unit == "s" else "timestamp_header_ms"]
    headers = {"authorization": out["authorization_base64"], "timestamp": timestamp}
    return scheme, headers, given["body"].encode(), given["timestamp_ms"] / 1000


def refused(call: Call) -> str:
    scheme, headers, body, now = call
    with pytest.raises(Refused) as caught:
        verify(scheme, headers, body, now)
    assert (caught.value.status, caught.value.kind, caught.value.code) == (401, "AUTHENTICATION", "AUTH-001")
    assert scheme.business_code not in f"{caught.value.message} {scheme!r}"
    return caught.value.message


@every("name", HASHED.keys() - {AS_SENT})
def test_each_encrypted_vector_is_accepted(name: str) -> None:
    scheme, headers, body, now = hashed(HASHED[name])
    clear, _ = verify(scheme, headers, body, now)
    assert clear.decode() == HASHED[name]["inputs"]["plaintext"]


@every("unit", [None, "s"])
@every("name", HMACS)
def test_each_hmac_vector_is_accepted(name: str, unit: Any) -> None:
    scheme, headers, body, now = hmacs(HMACS[name], unit)
    assert verify(scheme, headers, body, now)[0] == body


def test_a_signature_over_the_text_as_sent_is_refused() -> None:
    assert refused(hashed(HASHED[AS_SENT])) == "the signature is not that of this call"


SCHEMES = {
    auth: Settings(state=STATE, auth=auth, business_code=CODE, serial=SERIAL)
    for auth in ("hash-encrypt", "hmac")  # type: ignore[misc]
}


@every("seconds", [-300, 300])
@every("auth", SCHEMES)
def test_a_clock_that_is_off_by_less_than_the_window_is_accepted(auth: str, seconds: float) -> None:
    signed = Signer(auth, CODE, SERIAL).sign(BODY, NOW)
    assert json.loads(verify(SCHEMES[auth], lower(signed.headers), signed.content, NOW + seconds)[0]) == BODY


@every("auth", SCHEMES)
def test_a_call_without_a_body_is_signed_over_an_empty_object(auth: str) -> None:
    signed = Signer(auth, CODE, SERIAL).sign(None, NOW)
    assert verify(SCHEMES[auth], lower(signed.headers), b"", NOW)[0] == b""


def lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


#: JSON -> text of JavaScript, for values that posd refuses to sign or writes in another way. For all other values,
#: tests/core/test_canonical_json.py compares posd with JavaScript.
JAVASCRIPT = [
    ("12345678901234567", "12345678901234568"),
    ("1e999", "null"),
    ('"\\uD800x\\udc00"', '"\\ud800x\\udc00"'),
    ('{"01":1,"4294967295":2,"4294967294":3,"-1":4,"1.5":5}', '{"4294967294":3,"01":1,"4294967295":2,"-1":4,"1.5":5}'),
    ('{"٣":1,"1":2}', '{"1":2,"٣":1}'),
]


@every(("text", "written"), JAVASCRIPT)
def test_values_are_written_as_javascript_does(text: str, written: str) -> None:
    assert stringify_javascript(parse_javascript(text)) == written


@every("text", ["NaN", "[Infinity]", "{", "", "01", "[" * 100_000, "\ufeff{}", "'a'"])
def test_a_value_that_is_not_json_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        parse_javascript(text)

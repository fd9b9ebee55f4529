"""The published vectors of the schemes, byte for byte, and each vector with one changed bit."""

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from posd.config.schema import HashEncryptConfig
from posd.terminals.authentication import OutgoingRequest, hmac_sha256
from posd.terminals.hash_encrypt import SigningMoment, hash_encrypt
from tests.rig.tables import every

SCHEMES = json.loads((Path(__file__).parents[1] / "vectors/vendor_auth.json").read_text(encoding="utf-8"))["schemes"]
CASES = [*SCHEMES["hash-encrypt"]["cases"], *SCHEMES["hash-encrypt"]["alternatives"]]
#: Signed text in the vectors that is not in JavaScript's form. posd never sends such a text.
NOT_CANONICAL = "alt-decimals-as-sent"
NAMES = [case["id"] for case in CASES]


def choices(inputs: Mapping[str, Any]) -> HashEncryptConfig:
    unit = "ms" if inputs["timestamp"] > 10**11 else "s"
    minutes = inputs["minute_utc_offset_minutes"]
    return HashEncryptConfig(inputs["key_separator"], unit, 300, inputs["signing_key_position"], minutes)  # type: ignore[arg-type]


def seconds(inputs: Mapping[str, Any]) -> float:
    return float(inputs["timestamp"] / (1000 if inputs["timestamp"] > 10**11 else 1))


def moment(inputs: Mapping[str, Any]) -> SigningMoment:
    return SigningMoment.of(inputs["business_code"], inputs["terminal_serial"], seconds(inputs), choices(inputs))


@every("case", CASES, ids=NAMES)
def test_each_step_of_the_scheme_hash_encrypt_equals_the_vectors(case: Mapping[str, Any]) -> None:
    inputs, outputs = case["inputs"], case["outputs"]
    made, body, iv = moment(inputs), inputs["plaintext"].encode(), bytes.fromhex(inputs["iv_hex"])
    assert made.password == outputs["password"]
    assert made.timestamp == outputs["timestamp_header"]
    assert made.signed(body).decode() == outputs["signed_json"]
    assert base64.b64encode(made.signed(body)).decode() == outputs["signed_json_base64"]
    assert f"Basic {made.signature(body)}" == outputs["authorization_header"]
    sent = made.encrypted(body, iv)
    assert sent.decode() == outputs["request_body"]
    assert json.loads(sent)["data"] == f"{inputs['iv_hex']}:{outputs['ciphertext_hex']}"
    assert made.opened(sent) == body


@every(
    "case",
    [case for case in CASES if case["id"] != NOT_CANONICAL],
    ids=[name for name in NAMES if name != NOT_CANONICAL],
)
def test_the_complete_request_equals_the_vectors(case: Mapping[str, Any]) -> None:
    inputs, outputs = case["inputs"], case["outputs"]
    scheme = hash_encrypt(
        inputs["business_code"],
        inputs["terminal_serial"],
        choices(inputs),
        now=lambda: seconds(inputs),
        random=lambda _size: bytes.fromhex(inputs["iv_hex"]),
    )
    plain = OutgoingRequest("POST", "https://t/x", {"accept": "application/json"}, inputs["plaintext"].encode())
    sent = scheme(plain)
    assert sent.headers == {
        "accept": "application/json",
        "Authorization": outputs["authorization_header"],
        "timestamp": outputs["timestamp_header"],
        "content-type": "application/json",
    }
    assert (sent.body or b"").decode() == outputs["request_body"]
    assert sent.opened(sent.body or b"") == plain.body
    got = scheme(replace(plain, method="GET", body=None))
    assert got.body is None
    posted = scheme(replace(plain, body=None))  # without a body, the call is an abort through the cloud
    assert posted.opened(posted.body or b"") == b"{}"
    assert posted.headers["Authorization"] == got.headers["Authorization"]
    if case["id"] == "empty-object":
        assert got.headers["Authorization"] == outputs["authorization_header"]


def test_a_text_that_is_not_canonical_is_never_signed() -> None:
    (case,) = (case for case in CASES if case["id"] == NOT_CANONICAL)
    (safe,) = (case for case in CASES if case["id"] == "decimals-js-canonical")
    inputs = case["inputs"]
    scheme = hash_encrypt(
        inputs["business_code"], inputs["terminal_serial"], choices(inputs), now=lambda: seconds(inputs)
    )
    sent = scheme(OutgoingRequest("POST", "https://t/x", {}, inputs["plaintext"].encode()))
    assert sent.headers["Authorization"] == safe["outputs"]["authorization_header"]


@every("case", CASES, ids=NAMES)
def test_one_changed_bit_changes_the_signature(case: Mapping[str, Any]) -> None:
    inputs, outputs = case["inputs"], case["outputs"]
    made, body = moment(inputs), inputs["plaintext"].encode()
    for changed in (
        structs.replace(made, password=_flipped(made.password)),
        structs.replace(made, timestamp=_flipped(made.timestamp)),
    ):
        assert f"Basic {changed.signature(body)}" != outputs["authorization_header"]
        assert _opened(changed, outputs["request_body"].encode()) != body
    if body != b"{}":
        other = body[:-2] + bytes((body[-2] ^ 1,)) + body[-1:]
        assert f"Basic {made.signature(other)}" != outputs["authorization_header"]
    for name in ("business_code", "terminal_serial"):
        assert moment({**inputs, name: _flipped(inputs[name])}).password != outputs["password"]
    assert moment({**inputs, "timestamp": inputs["timestamp"] + 60_000}).password != outputs["password"]


def _flipped(text: str) -> str:
    return chr(ord(text[0]) ^ 1) + text[1:]


def _opened(made: SigningMoment, body: bytes) -> bytes | None:
    try:
        return made.opened(body)
    except ValueError:
        return None


@every("case", SCHEMES["hmac"]["cases"], ids=[case["id"] for case in SCHEMES["hmac"]["cases"]])
def test_the_hmac_equals_the_vectors(case: Mapping[str, Any]) -> None:
    inputs, outputs = case["inputs"], case["outputs"]
    body = inputs["body"].encode() or None
    scheme = hmac_sha256(inputs["business_code"], now=lambda: inputs["timestamp_ms"] / 1000)
    sent = scheme(OutgoingRequest("POST" if body else "GET", "https://t/x", {}, body))
    assert sent.headers == {
        "Authorization": outputs["authorization_base64"],
        "timestamp": outputs["timestamp_header_ms"],
    }
    assert sent.body == body
    assert base64.b64decode(sent.headers["Authorization"]).hex() == outputs["authorization_hex"]
    other = hmac_sha256(_flipped(inputs["business_code"]), time.time)(OutgoingRequest("POST", "https://t/x", {}, body))
    assert other.headers["Authorization"] != outputs["authorization_base64"]


@pytest.mark.parametrize(
    "reply",
    [
        b'{"status":"TERMINAL_ACKNOWLEDGED"}',
        b'{"data":[]}',
        b'{"data":"00:11"}',
        b'{"data":"' + b"0" * 32 + b":" + b"0" * 32 + b'","more":1}',
        b"<html>",
        b"",
        b"[" * 5000,
    ],
    ids=lambda body: body[:12].decode(),
)
def test_a_plain_text_reply_is_read_unchanged(reply: bytes) -> None:
    assert moment(CASES[0]["inputs"]).opened(reply) == reply


def test_a_reply_with_another_key_cannot_be_read() -> None:
    ours, other = (moment(case["inputs"]) for case in (CASES[0], CASES[2]))
    for number in range(2000):  # the padding of some of these replies is valid with our key
        with pytest.raises(ValueError, match="encrypted with another key"):
            ours.opened(other.encrypted(b'{"status":"TERMINAL_ACKNOWLEDGED"}', number.to_bytes(16, "big")))


def test_no_secret_is_shown() -> None:
    inputs = CASES[0]["inputs"]
    scheme = hash_encrypt(inputs["business_code"], inputs["terminal_serial"], choices(inputs), time.time)
    sent = scheme(OutgoingRequest("POST", "https://t/x", {}, b"{}"))
    for shown in (
        repr(scheme),
        repr(sent),
        str(sent),
        repr(moment(inputs)),
        repr(hmac_sha256(inputs["business_code"], time.time)),
    ):
        assert inputs["business_code"] not in shown
        assert moment(inputs).password not in shown
        assert "Basic " not in shown


def test_the_guide_has_the_bytes_of_the_scheme() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/real-terminals.md").read_text(encoding="utf-8")
    request = guide.partition("```http\n")[2].partition("\n```")[0]
    head, _, body = request.partition("\n\n")
    headers = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    password, signed = guide.partition("of that request are:\n\n```text\n")[2].partition("\n```")[0].splitlines()
    choices = HashEncryptConfig("___", "s", 300, "last", 0)
    made = SigningMoment.of(CASES[0]["inputs"]["business_code"], "PTEST00000001", float(headers["timestamp"]), choices)
    opened = made.opened(body.encode())
    assert (made.password, made.signed(opened).decode()) == (password, signed)
    assert headers["Authorization"] == f"Basic {made.signature(opened)}"
    assert headers["Content-Length"] == str(len(body))

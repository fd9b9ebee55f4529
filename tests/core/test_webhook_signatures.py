"""Signatures of webhooks: the published vectors byte for byte, each with one changed bit, and unusual headers."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from posd.config.schema import WebhookSignature
from posd.terminals.authentication import (
    KINDS,
    MAX_OF_A_NAME,
    MAX_VALUE_BYTES,
    Verifier,
    header_names,
    signature_headers,
)
from tests.rig.tables import every

VECTORS = json.loads((Path(__file__).parents[1] / "vectors/vendor_auth.json").read_text(encoding="utf-8"))
CASES = VECTORS["schemes"]["webhook-candidates"]["cases"]
IDS = [case["id"] for case in CASES]


def inputs(case: Mapping[str, Any]) -> tuple[str, bytes, bytes, bytes | None]:
    """Return secret, body and signature of a vector, and the id if the kind has an id."""
    given = case["inputs"]
    identity = given.get("x_kushki_id")
    secret = given.get("business_code") or given["webhook_secret"]
    return (
        secret,
        given["body"].encode(),
        case["outputs"]["signature"].encode(),
        None if identity is None else identity.encode(),
    )


def fault(name: Any, secret: str, body: bytes, header: str, signature: bytes, identity: bytes | None) -> str:
    headers = [(b"host", b"x"), (header.lower().encode(), signature)]
    if identity is not None:
        headers.append((b"x-kushki-id", identity))
    return Verifier(name, secret).fault(headers, body)


def flipped(value: bytes) -> Iterator[bytes]:
    """Yield copies of a text, each with one inverted bit."""
    for place in range(8 * len(value)):
        changed = bytearray(value)
        changed[place // 8] ^= 1 << place % 8
        yield bytes(changed)


def test_the_vectors_and_the_configuration_have_the_same_kinds() -> None:
    assert list(KINDS) == IDS == list(get_args(WebhookSignature))


@every("case", CASES, ids=IDS)
def test_a_published_signature_is_valid_in_each_permitted_header(case: Mapping[str, Any]) -> None:
    secret, body, signature, identity = inputs(case)
    for header in case["headers_seen"]:
        assert fault(case["id"], secret, body, header, signature, identity) == ""
        wrong_first = [(header.lower().encode(), b"other"), (header.lower().encode(), signature)]
        ids = [] if identity is None else [(b"x-kushki-id", identity)]
        assert Verifier(case["id"], secret).fault(wrong_first + ids, body) == ""
    assert tuple(name.lower().encode() for name in case["headers_seen"]) == KINDS[case["id"]].headers


@every("case", CASES, ids=IDS)
def test_one_changed_bit_makes_a_signature_invalid(case: Mapping[str, Any]) -> None:
    secret, body, signature, identity = inputs(case)
    header = case["headers_seen"][0]
    for changed in flipped(body):
        assert fault(case["id"], secret, changed, header, signature, identity) == "its signature is wrong"
    for changed in flipped(signature):
        assert fault(case["id"], secret, body, header, changed, identity) == "its signature is wrong"
    for changed in flipped(secret.encode()):
        other = changed.decode("latin-1")
        assert fault(case["id"], other, body, header, signature, identity) == "its signature is wrong"
    for changed in flipped(identity or b""):
        assert fault(case["id"], secret, body, header, signature, changed) == "its signature is wrong"


@every("case", CASES, ids=IDS)
def test_a_header_that_is_missing_or_wrong_or_too_long_is_not_a_signature(case: Mapping[str, Any]) -> None:
    secret, body, signature, identity = inputs(case)
    verifier = Verifier(case["id"], secret)
    for headers in ([], [(b"x-signature", signature)], [(b"signature ", signature)]):
        assert verifier.fault(headers, body).startswith("it has no signature (no usable header ")
    for header in KINDS[case["id"]].headers:
        assert header.decode() in verifier.fault([], body)
        longer = signature + b" " * (MAX_VALUE_BYTES + 1 - len(signature))
        assert "no signature" in verifier.fault([(header, longer), (b"x-kushki-id", identity or b"1")], body)
        strange = (b"", b" ", b"\x00\xff", signature + b"\x00", signature * 2, signature[:-1], b"HMAC  " + signature)
        for value in strange:
            assert fault(case["id"], secret, body, header.decode(), value, identity) == "its signature is wrong"


def test_only_a_base64_signature_may_have_a_prefix() -> None:
    words = {b"HMAC ": "", b"HMAC-SHA256 ": "", b"- ": "wrong", b"HM=AC ": "wrong", b" ": "wrong"}
    for word, expected in words.items():
        secret, body, signature, _ = inputs(CASES[0])
        assert fault(IDS[0], secret, body, "Authorization", word + signature, None).endswith(expected)
        assert (fault(IDS[0], secret, body, "Authorization", word + signature, None) == "") == (not expected)
    for case in CASES[1:]:
        secret, body, signature, identity = inputs(case)
        header = case["headers_seen"][0]
        assert fault(case["id"], secret, body, header, b"HMAC " + signature, identity) == "its signature is wrong"


def test_the_signed_id_must_be_present_once() -> None:
    secret, body, signature, identity = inputs(CASES[2])
    assert identity is not None
    own, verifier = (b"x-kushki-signature", signature), Verifier(IDS[2], secret)
    assert verifier.fault([own], body) == "it has 0 usable headers x-kushki-id, and its signature needs one"
    for ids in ([identity, identity], [identity, b"2"]):
        headers = [own, *((b"x-kushki-id", item) for item in ids)]
        assert verifier.fault(headers, body).startswith("it has 2 usable headers x-kushki-id")
    assert verifier.fault([own, (b"x-kushki-id", b"9" * (MAX_VALUE_BYTES + 1))], body).startswith("it has 0 usable")


def test_the_stored_headers_are_few_and_short_and_verify_like_all_headers() -> None:
    secret, body, signature, identity = inputs(CASES[2])
    headers = [
        (b"cookie", b"secret"),
        (b"authorization", b"x" * (MAX_VALUE_BYTES + 1)),
        (b"authorization", b"x" * MAX_VALUE_BYTES),
        (b"x-kushki-signature", signature),
        (b"x-kushki-id", identity or b""),
    ]
    assert signature_headers(headers) == tuple(headers[2:])
    assert (
        Verifier(IDS[2], secret).fault(signature_headers(headers), body)
        == Verifier(IDS[2], secret).fault(headers, body)
        == ""
    )
    many = [(b"x-kushki-id", b"%d" % number) for number in range(256)]
    assert len(signature_headers(many)) == MAX_OF_A_NAME
    # the reason must not be a missing signature
    assert Verifier(IDS[1], secret).fault([*many, *headers], body) == "its signature is wrong"


def test_a_secret_is_not_shown() -> None:
    assert "hunter2" not in repr(Verifier(IDS[0], "hunter2"))


def test_names_of_headers_are_shown_once_and_without_their_values() -> None:
    def shown(*headers: bytes) -> str:
        return header_names([(name, b"value") for name in headers])

    assert shown() == ""
    assert shown(b"host", b"x-a", b"x-a", b"x-b") == "host, x-a, x-b"
    assert shown(b"a" * 65) == "a" * 64
    assert shown(b"a\x1b[2Jb", b"\xc3\xa9") == "a\\u001b[2Jb, ��"
    assert shown(*(b"x-%d" % number for number in range(43))).endswith("x-39, and 3 more")
    assert shown(*(b"x-%d" % number for number in range(40))).endswith("x-39")

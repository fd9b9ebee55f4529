"""Scheme `hash-encrypt`: a signed and encrypted body, with a new key for every request.

A body is sent as `{"data": "IV:CIPHERTEXT"}`. A GET has no body, and its signed text is made from `{}`. A reply is
encrypted in the same form with the key of its request, or is not encrypted.

Source: docs/guides/real-terminals.md, hash-encrypt.
"""

import base64
import hashlib
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.padding import PKCS7

from posd.base.canonical_json import canonical
from posd.config.schema import HashEncryptConfig
from posd.terminals.authentication import Authentication, OutgoingRequest

#: Text in place of the body, in the signature of a request without a body.
EMPTY = b"{}"
#: Length to which business code, serial and minute together are padded, in characters. The key has the same length.
LEAST_CHARACTERS = KEY_CHARACTERS = 32
IV_BYTES = 16
BLOCK_BITS = 128

_DATA = re.compile(rf"([0-9a-fA-F]{{{2 * IV_BYTES}}}):((?:[0-9a-fA-F]{{{2 * IV_BYTES}}})+)")
_SEALED = msgspec.json.Decoder(dict[str, object])
_JSON = msgspec.json.Decoder()


class SigningMoment(msgspec.Struct, frozen=True):
    """Timestamp and password of one request, from which its keys follow. The repr does not show the password."""

    timestamp: str
    password: str
    choices: HashEncryptConfig

    @classmethod
    def of(cls, business_code: str, serial: str, seconds: float, choices: HashEncryptConfig) -> "SigningMoment":
        """Return the values for a request that is sent at a time, in seconds since 1970."""
        instant = int(seconds)
        offset = timedelta(minutes=choices.minute_utc_offset_minutes)
        minute = (datetime.fromtimestamp(instant, UTC) + offset).strftime("%Y:%m:%d:%H:%M")
        secret = f"{business_code}{serial}{minute}".ljust(LEAST_CHARACTERS, "0")
        password = hashlib.md5(secret.encode(), usedforsecurity=False).hexdigest()
        return cls(str(int(seconds * 1000) if choices.timestamp_unit == "ms" else instant), password, choices)

    def __repr__(self) -> str:
        return f"SigningMoment({self.timestamp})"

    def signed(self, body: bytes) -> bytes:
        """Return the text to sign: the JSON object of the body (in canonical form) with the member `key`."""
        key = base64.b64encode(f"{self.password}{self.timestamp}".encode()).decode()
        member, members = f'"key":"{key}"'.encode(), body[1:-1]
        order = (members, member) if self.choices.key_position == "last" else (member, members)
        return b"{" + b",".join(part for part in order if part) + b"}"

    def signature(self, body: bytes) -> str:
        """Return the signature: the text to sign, in base64, hashed with SHA-512, as hexadecimal digits."""
        return hashlib.sha512(base64.b64encode(self.signed(body))).hexdigest()

    def encrypted(self, body: bytes, iv: bytes) -> bytes:
        """Return the encrypted body."""
        padder = PKCS7(BLOCK_BITS).padder()
        encryptor = self._cipher(iv).encryptor()
        text = encryptor.update(padder.update(body) + padder.finalize()) + encryptor.finalize()
        return f'{{"data":"{iv.hex()}:{text.hex()}"}}'.encode()

    def opened(self, body: bytes) -> bytes:
        """Return the decrypted reply.

        Return a reply that is not encrypted unchanged. Raise ValueError if the key is wrong.
        """
        sealed = _sealed(body)
        if sealed is None:
            return body
        iv, text = sealed
        decryptor, unpadder = self._cipher(iv).decryptor(), PKCS7(BLOCK_BITS).unpadder()
        try:
            opened = unpadder.update(decryptor.update(text) + decryptor.finalize()) + unpadder.finalize()
            _JSON.decode(opened)  # check it, because a wrong key gives a valid padding in one of 256 cases
        except ValueError:
            raise ValueError("the reply is encrypted with another key than the request") from None
        return opened

    def _cipher(self, iv: bytes) -> Cipher[CBC]:
        key = f"{self.timestamp}{self.choices.key_separator}{self.password}"[:KEY_CHARACTERS]
        return Cipher(AES256(key.encode()), CBC(iv))


def _sealed(body: bytes) -> tuple[bytes, bytes] | None:
    """Return IV and ciphertext of a body, or None if it is not encrypted."""
    try:
        members = _SEALED.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    data = members.get("data") if len(members) == 1 else None
    found = _DATA.fullmatch(data) if isinstance(data, str) else None
    return None if found is None else (bytes.fromhex(found[1]), bytes.fromhex(found[2]))


def hash_encrypt(
    business_code: str,
    serial: str,
    choices: HashEncryptConfig,
    now: Callable[[], float],
    random: Callable[[int], bytes] = secrets.token_bytes,
) -> Authentication:
    """Return the authentication that signs and encrypts with the business code, for one terminal.

    `now`: returns seconds since 1970. `random`: returns random bytes for the IV, as many as requested.
    """

    def sign(request: OutgoingRequest) -> OutgoingRequest:
        moment = SigningMoment.of(business_code, serial, now(), choices)
        body = EMPTY if request.body is None else canonical(request.body)
        signed = request.with_headers(
            {"Authorization": f"Basic {moment.signature(body)}", "timestamp": moment.timestamp}
        )
        if request.method == "GET" and request.body is None:
            return replace(signed, opened=moment.opened)
        sent = signed.with_headers({"content-type": "application/json"})
        return replace(sent, body=moment.encrypted(body, random(IV_BYTES)), opened=moment.opened)

    return sign

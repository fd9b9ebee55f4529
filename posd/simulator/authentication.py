"""Authentication on the terminal's side: check of the signature, and decryption of the body.

Source: terminal API, Authentication. For each point that the vendor's documents leave open, there is a setting. The
signature covers the JSON in JavaScript's form. This assumption is the strictest one.

JavaScript's form is `JSON.stringify(JSON.parse(text))`, because a verifier that has only the parsed object serialises
it again. In that form a number is a double in its shortest notation. If a name is repeated, the last member counts.
Members whose names are array indices come first.
"""

import hashlib
import hmac
import json
import math
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from posd.simulator import wire
from posd.simulator.settings import Settings
from posd.simulator.wire import Refused

#: First integer that is not an array index (2³² - 1).
_INDEX_LIMIT = 2**32 - 1
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
#: JavaScript writes no exponent if the decimal point is at one of these positions, counted from the first digit.
_PLAIN = range(-5, 22)


def parse_javascript(text: str) -> Any:
    """Parse a JSON document; each number is a float, as in JavaScript. Raise ValueError, RecursionError."""
    return json.loads(text, parse_int=float, parse_constant=_refuse)


def stringify_javascript(value: Any) -> str:
    """Serialise a value from `parse_javascript`. Raise RecursionError if it is nested too deeply."""
    match value:
        case bool() | None:
            return json.dumps(value)
        case float():
            return number(value)
        case str():
            return _text(value)
        case list():
            return f"[{','.join(map(stringify_javascript, value))}]"
        case dict():
            names = sorted(filter(_is_index, value), key=int) + [name for name in value if not _is_index(name)]
            return "{" + ",".join(f"{_text(name)}:{stringify_javascript(value[name])}" for name in names) + "}"
        case _:
            raise TypeError(f"JSON has no {type(value).__name__}")


def number(value: float) -> str:
    """Return a number as JavaScript writes it: 10, 1.2, 1e+21, 1.5e-7. Infinite numbers and NaN become null."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    _, shortest, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits = "".join(map(str, shortest))
    point = len(digits) + int(exponent)
    if point not in _PLAIN:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits.ljust(point, '0')}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _text(text: str) -> str:
    return _LONE_SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", json.dumps(text, ensure_ascii=False))


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdigit() and str(int(name[:11])) == name and int(name) < _INDEX_LIMIT


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


#: Units of a timestamp per second.
_PER_SECOND = {"s": 1, "ms": 1000}
#: Maximum number of digits of a timestamp.
_MAX_DIGITS = 16
#: Signed text of a call without a body.
EMPTY = b"{}"
_KEY_BYTES = 32
_BLOCK_BYTES = 16
_PREFIX = "Basic "


def verify(settings: Settings, headers: Mapping[str, str], body: bytes, now: float) -> tuple[bytes, bytes | None]:
    """Return the decrypted body of a call, and the key for its reply. None: the reply is not encrypted.

    `now` is the terminal's clock, in seconds since the epoch.

    Raise Refused (401) for a missing header, a stale timestamp, an undecryptable body, or a wrong signature.
    """
    if settings.auth == "none":
        return body, None
    signature, timestamp = (headers.get(name, "") for name in ("authorization", "timestamp"))
    for name, value in (("Authorization", signature), ("timestamp", timestamp)):
        if not value:
            raise _refused(f"the header {name} is missing", name)
    moment = _moment(settings, timestamp)
    if abs(moment - now) > settings.window_seconds:
        off = f"{abs(moment - now):.0f} s {'before' if moment < now else 'after'} the terminal's clock"
        raise _refused(f"the timestamp is {off}; {settings.window_seconds:g} s are accepted", "timestamp")
    if settings.auth == "hmac":
        _check_hmac(settings, signature, body)
        return body, None
    password = _password(settings, moment)
    key = f"{timestamp}{settings.key_separator}{password}".encode()[:_KEY_BYTES]
    clear = decrypt(key, body) if body else EMPTY
    _check_hash(settings, signature, timestamp, password, clear)
    return clear if body else b"", key if settings.encrypt_replies else None


def _moment(settings: Settings, timestamp: str) -> float:
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _MAX_DIGITS):
        raise _refused("the timestamp is not a decimal number", "timestamp")
    return int(timestamp) / _PER_SECOND[settings.timestamp_unit or ("ms" if settings.auth == "hmac" else "s")]


def _check_hmac(settings: Settings, signature: str, body: bytes) -> None:
    """Check a signature over the body. Without a body, the signed text is empty or an empty object."""
    texts = [body] if body else [b"", EMPTY]
    digests = (hmac.digest(settings.business_code.encode(), text, "sha256") for text in texts)
    if not any(_same(signature, b64encode(digest).decode()) for digest in digests):
        raise _refused("the signature is not that of this call", "Authorization")


def _check_hash(settings: Settings, signature: str, timestamp: str, password: str, clear: bytes) -> None:
    key = {"key": b64encode(f"{password}{timestamp}".encode()).decode()}
    try:
        value = parse_javascript(clear.decode())
        if not isinstance(value, dict):
            raise _refused("the decrypted body is not a JSON object", "data")
        text = stringify_javascript({**value, **key} if settings.key_position == "last" else {**key, **value})
    except (ValueError, RecursionError) as error:  # a wrong business code decrypts to arbitrary bytes
        raise _refused("the decrypted body is not JSON", "data") from error
    digest = hashlib.sha512(b64encode(text.encode())).hexdigest()
    if not _same(signature, _PREFIX + digest):
        raise _refused("the signature is not that of this call", "Authorization")


def _password(settings: Settings, moment: float) -> str:
    """Return the password, which depends on the minute of the timestamp."""
    at = datetime.fromtimestamp(moment, UTC) + timedelta(minutes=settings.minute_utc_offset)
    text = f"{settings.business_code}{settings.serial}{at:%Y:%m:%d:%H:%M}"
    return hashlib.md5(text.ljust(32, "0").encode(), usedforsecurity=False).hexdigest()


def encrypt(key: bytes, clear: bytes) -> bytes:
    """Encrypt a text with a new IV, and return the JSON body that contains it."""
    iv = secrets.token_bytes(_BLOCK_BYTES)
    padder = PKCS7(algorithms.AES.block_size).padder()
    encryptor = Cipher(algorithms.AES256(key), modes.CBC(iv)).encryptor()
    text = encryptor.update(padder.update(clear) + padder.finalize()) + encryptor.finalize()
    return wire.encode({"data": f"{iv.hex()}:{text.hex()}"})


def decrypt(key: bytes, body: bytes) -> bytes:
    """Return the decrypted body. Raise Refused (401)."""
    try:
        iv, text = map(bytes.fromhex, _data(body).split(":"))
        decryptor = Cipher(algorithms.AES256(key), modes.CBC(iv)).decryptor()
        unpadder = PKCS7(algorithms.AES.block_size).unpadder()
        return unpadder.update(decryptor.update(text) + decryptor.finalize()) + unpadder.finalize()
    except ValueError as error:
        raise _refused("the body cannot be decrypted", "data") from error


def _data(body: bytes) -> str:
    value: Any = wire.decode(body)
    data = value.get("data") if isinstance(value, dict) else None
    if not isinstance(data, str) or data != data.lower():
        raise ValueError("there is no data")
    return data


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _refused(message: str, param: str) -> Refused:
    return Refused(HTTPStatus.UNAUTHORIZED, "AUTH-001", message, kind="AUTHENTICATION", param=param)

"""A client that signs its calls to a terminal. The client is written from the vectors and the vendor's description. The
client shares no code with the daemon or the simulator, so that tests find errors in both.
"""

import hashlib
import hmac
import json
import os
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


@dataclass(frozen=True)
class Signed:
    """A signed call, and the key of the encrypted reply."""

    headers: dict[str, str]
    content: bytes
    aes_key: bytes = b""

    def read(self, answer: bytes) -> bytes:
        """Return a reply in plain text. The received reply may be encrypted."""
        try:
            data = json.loads(answer)["data"]
            iv, _, text = data.partition(":")
        except (ValueError, TypeError, KeyError, AttributeError):
            return answer
        aes = Cipher(algorithms.AES(self.aes_key), modes.CBC(bytes.fromhex(iv))).decryptor()
        clear = aes.update(bytes.fromhex(text)) + aes.finalize()
        assert set(clear[-clear[-1] :]) == {clear[-1]}
        return clear[: -clear[-1]]


@dataclass(frozen=True)
class Signer:
    """Signer for one terminal. The body of a call is an object, or None."""

    auth: str
    code: str
    serial: str

    def sign(self, body: Any, now: float) -> Signed:
        """Sign a call at this time, in seconds since the epoch."""
        if self.auth == "none":
            return Signed({}, b"" if body is None else compact(body))
        if self.auth == "hmac":
            content = b"" if body is None else compact(body)
            digest = hmac.new(self.code.encode(), content or b"{}", hashlib.sha256).digest()
            return Signed({"Authorization": b64encode(digest).decode(), "timestamp": f"{now * 1000:.0f}"}, content)
        stamp = str(int(now))
        minute = datetime.fromtimestamp(int(now), UTC).strftime("%Y:%m:%d:%H:%M")
        seed = self.code + self.serial + minute
        password = hashlib.md5((seed + "0" * (32 - len(seed))).encode()).hexdigest()
        key = {"key": b64encode((password + stamp).encode()).decode()}
        signature = hashlib.sha512(b64encode(compact({**(body or {}), **key}))).hexdigest()
        aes_key = (stamp + "___" + password)[:32].encode()
        content = b"" if body is None else encrypted(aes_key, compact(body))
        return Signed({"Authorization": f"Basic {signature}", "timestamp": stamp}, content, aes_key)


def compact(body: Any) -> bytes:
    """Encode an object as JavaScript does. Whole numbers must have the type int."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def encrypted(aes_key: bytes, clear: bytes) -> bytes:
    """Return a body with an encrypted text."""
    pad = 16 - len(clear) % 16
    iv = os.urandom(16)
    aes = Cipher(algorithms.AES(aes_key), modes.CBC(iv)).encryptor()
    text = aes.update(clear + bytes([pad]) * pad) + aes.finalize()
    return compact({"data": f"{iv.hex()}:{text.hex()}"})

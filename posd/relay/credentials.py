"""Login with a file of NATS credentials: a user's JWT, and the seed of the key that signs the server's nonce.

The `nkeys` package has a second implementation of Ed25519, compiled and as large as the relay; posd has one.
"""

import base64
import re
from pathlib import Path
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

#: The two parts of the file, each between lines of dashes (NATS, Decentralized JWT).
_PARTS = re.compile(r"-{3,} *BEGIN ([A-Z ]+?) *-{3,}\s*(\S+)\s*-{3,} *END \1 *-{3,}")
#: A seed has two bytes of its kind, those of the key, and two of a checksum, in base32 without padding.
_KIND_BYTES, _CHECKSUM_BYTES = 2, 2


class Credentials(NamedTuple):
    """A user's token, and the key that proves its ownership."""

    jwt: str
    key: Ed25519PrivateKey

    def sign(self, nonce: str) -> bytes:
        """Return the signature of the server's nonce, in base64."""
        return base64.b64encode(self.key.sign(nonce.encode()))


def read(path: Path) -> Credentials:
    """Read a file of credentials. Raise OSError; raise ValueError if it is none."""
    try:
        parts = dict(_PARTS.findall(path.read_text(encoding="ascii")))
        jwt, seed = parts["NATS USER JWT"], parts["USER NKEY SEED"]
        raw = base64.b32decode(seed + "=" * (-len(seed) % 8))
        return Credentials(jwt, Ed25519PrivateKey.from_private_bytes(raw[_KIND_BYTES:-_CHECKSUM_BYTES]))
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"{path} is no file of NATS credentials: it needs a user's JWT and the seed of its key, as `nsc generate "
            "creds` writes them"
        ) from error

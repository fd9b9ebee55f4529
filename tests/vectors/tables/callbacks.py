"""Callback addresses: what posd gives out, and which of those that are called are believed (design 5, promise 5)."""

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

from tests.vectors.case import Case
from tests.vectors.wire import IDENTITY, OTHER

KEY = bytes(range(32)).hex()
OLD_KEY = bytes(range(32, 64)).hex()
STRANGE_KEY = "ff" * 32
#: The keys of every vector of addresses, newest first: both are good for verification.
KEYS = [KEY, OLD_KEY]
JOB = "job-1042"
PAYMENTS, PRINTS = "transactions", "print-jobs"


def token(key: str, channel: str, identity: str) -> str:
    """Return the token: HMAC-SHA256 of `posd:CHANNEL:ID`, base64url without padding."""
    digest = hmac.new(bytes.fromhex(key), f"posd:{channel}:{identity}".encode(), sha256).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


GOOD = token(KEY, PAYMENTS, IDENTITY)
GOOD_PRINT = token(KEY, PRINTS, JOB)


def _tokens() -> list[Case]:
    subjects = {
        "payment": (KEY, PAYMENTS, IDENTITY),
        "payment-other-id": (KEY, PAYMENTS, OTHER),
        "payment-other-key": (OLD_KEY, PAYMENTS, IDENTITY),
        "payment-zero-key": ("00" * 32, PAYMENTS, IDENTITY),
        "print-job": (KEY, PRINTS, JOB),
        "print-job-of-a-payments-id": (KEY, PRINTS, IDENTITY),
        "print-job-longest": (KEY, PRINTS, "j" * 64),
        "print-job-every-character": (KEY, PRINTS, "Az09._-"),
    }
    return [
        Case(
            "callback-token",
            name,
            "the address that a terminal is given",
            "design 5; spec 5",
            {"key": key, "channel": channel, "id": identity},
            {
                "token": token(key, channel, identity),
                "path": f"/webhooks/{channel}/{identity}/{token(key, channel, identity)}",
            },
        )
        for name, (key, channel, identity) in subjects.items()
    ]


def _addresses() -> list[Case]:
    found: list[Case] = []

    def add(name: str, about: str, path: str, reply: int, method: str = "POST") -> None:
        given: dict[str, Any] = {"keys": KEYS, "method": method, "path": path, "body": {"text": "{}"}}
        found.append(
            Case("callback-address", name, about, "design 5 (token wrong or missing)", given, {"reply": reply})
        )

    base = f"/webhooks/{PAYMENTS}/{IDENTITY}"
    add("good", "believed; `{}` is no event", f"{base}/{GOOD}", 400)
    add("good-old-key", "an older key stays good", f"{base}/{token(OLD_KEY, PAYMENTS, IDENTITY)}", 400)
    add(
        "good-upper-case-id",
        "the id in another case is the same id",
        f"/webhooks/{PAYMENTS}/{IDENTITY.upper()}/{GOOD}",
        400,
    )
    add("good-print-job", "believed; `{}` is no print webhook", f"/webhooks/{PRINTS}/{JOB}/{GOOD_PRINT}", 400)
    add(
        "good-unknown-payment",
        "a payment that is in no database",
        f"/webhooks/{PAYMENTS}/{OTHER}/{token(KEY, PAYMENTS, OTHER)}",
        400,
    )
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS"):
        add(f"method-{method.lower()}", "believed, by another method than POST", f"{base}/{GOOD}", 405, method)
    flipped = ("A" if GOOD[0] != "A" else "B") + GOOD[1:]
    last = GOOD[:-1] + ("A" if GOOD[-1] != "A" else "B")
    wrong = {
        "other-key": token(STRANGE_KEY, PAYMENTS, IDENTITY),
        "other-id": token(KEY, PAYMENTS, OTHER),
        "other-channel": token(KEY, PRINTS, IDENTITY),
        "first-character": flipped,
        "last-character": last,
        "cut": GOOD[:-1],
        "longer": f"{GOOD}A",
        "padded": f"{GOOD}%3D",
        "lower-case": GOOD.lower(),
        "empty": "",
        "space": f"{GOOD}%20",
        "nul": f"{GOOD}%00",
        "not-ascii": "%C3%B1",
        "not-utf-8": "%FF%FE",
        "huge": "A" * 4000,
        "hexadecimal": hmac.new(bytes.fromhex(KEY), f"posd:{PAYMENTS}:{IDENTITY}".encode(), sha256).hexdigest(),
    }
    for name, given in wrong.items():
        add(f"token-{name}", "a token that does not belong to the id", f"{base}/{given}", 403)
    paths = {
        "token-missing": base,
        "more-parts": f"{base}/{GOOD}/x",
        "trailing-slash": f"{base}/{GOOD}/",
        "double-slash": f"/webhooks//{PAYMENTS}/{IDENTITY}/{GOOD}",
        "escaped-slash": f"/webhooks/{PAYMENTS}/{IDENTITY}%2F{GOOD}/x",
        "unknown-channel": f"/webhooks/refunds/{IDENTITY}/{GOOD}",
        "channel-case": f"/webhooks/Transactions/{IDENTITY}/{GOOD}",
        "no-uuid": f"/webhooks/{PAYMENTS}/payment-1/{token(KEY, PAYMENTS, 'payment-1')}",
        "uuid-braces": f"/webhooks/{PAYMENTS}/%7B{IDENTITY}%7D/{GOOD}",
        "id-nul": f"/webhooks/{PAYMENTS}/{IDENTITY}%00/{GOOD}",
        "print-job-dots": f"/webhooks/{PRINTS}/../{token(KEY, PRINTS, '..')}",
        "print-job-upper-case": f"/webhooks/{PRINTS}/{JOB.upper()}/{GOOD_PRINT}",
        "print-job-long": f"/webhooks/{PRINTS}/{'j' * 65}/{token(KEY, PRINTS, 'j' * 65)}",
        "print-job-token-of-payment": f"/webhooks/{PRINTS}/{JOB}/{GOOD}",
        "nothing": "/webhooks/",
    }
    for name, path in paths.items():
        add(f"path-{name}", "no callback address", path, 403)
    for name, path in {
        "root": "/",
        "metrics": "/metrics",
        "local-api": f"/v1/transactions/{IDENTITY}",
        "prefix": "/webhooks",
        "prefix-case": f"/Webhooks/{PAYMENTS}/{IDENTITY}/{GOOD}",
    }.items():
        add(f"other-{name}", "nothing but webhooks is served on the LAN", path, 404)
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*_tokens(), *_addresses()]

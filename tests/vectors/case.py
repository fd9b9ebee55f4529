"""One test vector and its file (README.md has the format)."""

import json
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

#: The payment of most vectors: a charge of 11.20 on SN-0001.
IDENTITY = "7f3c1f0e-3b0a-4d7c-9d55-0f6b1c2a9e11"
OTHER = "11111111-2222-4333-8444-555555555555"
AMOUNT = '{"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0}'
TERMINAL = "SN-0001"
FLEET = [TERMINAL, "SN-0002"]
MERCHANT = "M-1"
#: The keys of all vectors of callback URLs, newest first. A URL with a token of either key is valid.
KEYS = [bytes(range(32)).hex(), bytes(range(32, 64)).hex()]
#: The largest body of a callback.
MAX_BODY_BYTES = 1_048_576

#: A body in a file: `{"text": …}`, `{"base64": …}`, or `{"parts": […]}` with `times`.
Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A vector. `name` is the name of its file in the directory of its kind, without `.json`."""

    kind: str
    name: str
    about: str
    source: str
    given: dict[str, Any]
    expect: dict[str, Any]

    @property
    def path(self) -> str:
        """Path of the vector's file in this directory."""
        return f"{self.kind}/{self.name}.json"

    def dump(self) -> str:
        """Return the content of the file."""
        document = {name: getattr(self, name) for name in ("kind", "about", "source", "given", "expect")}
        return json.dumps({"format": 1} | document, indent=2) + "\n"


def load(path: Path) -> Case:
    """Read a vector from a file."""
    document = json.loads(path.read_text("ascii"))
    assert document.pop("format") == 1, path
    return Case(name=path.stem, **document)


def content(body: Body) -> bytes:
    """Return the bytes of a body in a file."""
    if "parts" in body:
        return b"".join(content(piece) * piece.get("times", 1) for piece in body["parts"])
    return body["text"].encode() if "text" in body else b64decode(body["base64"], validate=True)

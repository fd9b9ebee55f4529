"""Secrets that must never be in a log, and the forms in which a log could have them."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

_PLACES = """
metadata metadata_name option sale unknown_field broken_request query query_name path till_header operator note
document external_reference header_value header_file header_credential event_metadata receipt_holder receipt_card
receipt_authorization receipt_extra failure refusal reply_header no_http search_reply broken_event foreign_event
print_error broken_print wrong_token stranger_path stranger_query stranger_header stranger_host stranger_body
stranger_bytes server_name fault
"""
#: Places of secrets: configuration, calls of tills, replies of terminals, calls of strangers. A test puts a value into
#: each place. No value may be in the log.
PLACES = tuple(_PLACES.split())


def marks() -> dict[str, str]:
    """Return a unique value for each place. Each value looks like a path, a name, or a header."""
    return {place: f"mark{number:02}.{place.replace('_', '-')}.qx7" for number, place in enumerate(PLACES)}


def forms(value: str | bytes) -> Iterator[str]:
    """Yield the forms of a value: plain, escaped, quoted for a URL, base64, and hexadecimal."""
    raw = value.encode() if isinstance(value, str) else value
    plain = raw.decode("utf-8", "replace")
    yield plain
    yield json.dumps(plain)[1:-1]
    yield quote(raw, safe="")
    yield repr(raw)[2:-1]
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for lead in (b"", b"0", b"00"):  # the value may be at any offset of the encoded text
            text = encode(lead + raw).decode().rstrip("=")
            yield text[4 if lead else 0 : -2]
    yield binascii.hexlify(raw).decode()


class Secrets:
    """Secret values by their kind."""

    def __init__(self, values: Mapping[str, str | bytes]) -> None:
        self.values = dict(values)

    def add_callbacks(self, name: str, urls: Iterable[str]) -> None:
        """Add the tokens of callback URLs."""
        for number, url in enumerate(urls):
            self.values[f"{name} {number}"] = urlsplit(url).path.rsplit("/", 1)[1]

    def add_requests(self, requests: Iterable[str]) -> None:
        """Add the tokens of requests that a terminal received."""
        documents = [json.loads(text) for text in requests]
        for name in ("events_webhook_url", "webhookUrl"):
            self.add_callbacks(name, (item[name] for item in documents if item.get(name)))

    def add_key(self, path: Path) -> None:
        """Add the keys of a callback key file."""
        for number, line in enumerate(path.read_bytes().split()):
            self.values[f"callback key {number}"] = line
            for decode in (binascii.unhexlify, base64.b64decode):
                try:
                    self.values[f"callback key {number} by {decode.__name__}"] = decode(line)
                except ValueError:
                    continue

    def found_in(self, lines: Iterable[Mapping[str, Any]]) -> list[str]:
        """Return the secrets in lines of a log, with their place."""
        texts = [json.dumps(line, ensure_ascii=False).lower() for line in lines]
        whole = "\n".join(texts)
        found = []
        for name, value in self.values.items():
            for form in {form.lower() for form in forms(value) if len(form) >= 6}:
                if form in whole:
                    found += [f"{name} ({form}) in {text}" for text in texts if form in text][:3]
        return found


def undone(text: str) -> str:
    """Return a text with all escapes decoded. Decode until nothing changes."""
    while True:
        plain = unquote(re.sub(r"\\\\+u00([0-7][0-9a-fA-F])", r"%\1", text).replace("\\", ""))
        if plain == text:
            return text
        text = plain


#: Ways to write a URL into a JSON document, as the text between two quotes.
ECHOES: Mapping[str, Callable[[str], str]] = {
    "plain": lambda url: url,
    "slashes": lambda url: url.replace("/", "\\/"),
    "escaped": lambda url: _escaped(url),
    "escaped in part": lambda url: url[:-3].replace("w", "\\u0077") + _escaped(url[-3:]),
    "percent": lambda url: quote(url, safe=""),
    "percent, all": lambda url: "".join(f"%{ord(char):02x}" for char in url),
    "percent twice": lambda url: quote(quote(url, safe=""), safe=""),
    "percent, escaped": lambda url: _escaped(quote(url, safe="")),
    "JSON in a text": lambda url: json.dumps(json.dumps({"url": url}))[1:-1],
    "escaped JSON in a text": lambda url: json.dumps('{"url": "' + _escaped(url) + '"}')[1:-1],
    "another host": lambda url: "http://proxy.example/x" + urlsplit(url).path + "?y=1#z",
    "the token alone": lambda url: url.rsplit("/", 1)[1],
}


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(char):04X}" for char in text)

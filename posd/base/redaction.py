"""Callback tokens in what leaves posd: a token lets its holder post an event of its payment or print job.

A terminal echoes the callback URL of its request in events, refusals and searches. Every answer of a socket, log line
and support archive passes here, as text: one rule holds for JSON, for JSON inside a string and for a body that is cut
off. What is stored keeps its bytes.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from posd.base import ids

#: What stands in a token's place.
REDACTED = "[redacted]"
#: How deep encodings inside each other are undone: JSON in a string of JSON in a query has three.
MAX_LEVELS = 8

_ESCAPE = re.compile(r'(\\u00[0-7][0-9a-fA-F]|\\["\\/]|%[0-7][0-9a-fA-F])')
_CHARACTERS = {"\\/": "/", "\\\\": "\\", '\\"': '"'} | {
    f"{prefix}{code:02{case}}": chr(code) for code in range(128) for prefix in ("\\u00", "%") for case in "xX"
}
_CALLBACK = re.compile(r"webhooks/(?:transactions|print-jobs)/[^/\s\"]*/([\w.~=-]+)", re.ASCII)
_RUN = re.compile(rf"(?<![\w-])[\w-]{{{ids.TOKEN_CHARACTERS},}}", re.ASCII)
_SUBJECT = re.compile(
    r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})|(?:[iI]d|print_job)\"?\s*[:=]\s*\"?([\w.-]{1,64})",
    re.ASCII,
)
#: One letter for all that can be of a token, escaped or not: its shape is found at the speed of memory.
_SHAPE = re.sub(rb"[^ ]", b"A", re.sub(rb"[^\w\\%-]", b" ", bytes(range(256))))
_LONG_RUN = b"A" * ids.TOKEN_CHARACTERS


class Redactor:
    """Replaces callback tokens. Without the `keys` of the callback URLs a token is known only in a URL."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = keys

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Replace the keys."""
        self._keys = keys

    def text(self, text: str, *subjects: str) -> str:
        """Return the text without tokens; see `body`."""
        return self.body(text.encode("utf-8", "surrogatepass"), *subjects).decode("utf-8", "surrogatepass")

    def body(self, body: bytes, *subjects: str) -> bytes:
        """Return the bytes without what stands in a token's place of a callback URL, and without the tokens of ids.

        The ids are `subjects` and those in the text. JSON stays JSON.
        """
        if b"webhooks" not in body and _LONG_RUN not in body.translate(_SHAPE):
            return body
        text = body.decode("latin-1")
        plain, levels = _unescaped(text)
        spans = [found.span(1) for found in _CALLBACK.finditer(plain)]
        if self._keys:
            spans += self._bare(plain, {end for _, end in spans}, subjects)
        pieces: list[str] = []
        end = 0
        for span in sorted(spans):
            first, last = (_origin(levels, place) for place in span)
            if first >= end:
                pieces += text[end:first], REDACTED
                end = last
        return "".join((*pieces, text[end:])).encode("latin-1") if pieces else body

    def _bare(self, text: str, known: set[int], subjects: Iterable[str]) -> Iterator[tuple[int, int]]:
        """Yield where tokens stand by themselves; `known`: where tokens of URLs end."""
        runs = [found.span() for found in _RUN.finditer(text) if found.end() not in known]
        if not runs:
            return
        named = {one or other for one, other in _SUBJECT.findall(text)}
        tokens = ids.tokens(self._keys, {*subjects, *named, *map(str.lower, named)})
        for first, last in runs:  # what else stands beside a token is before it or after it
            for at in (first, last - ids.TOKEN_CHARACTERS):
                if text[at : at + ids.TOKEN_CHARACTERS] in tokens:
                    yield at, at + ids.TOKEN_CHARACTERS


#: Of all that this process answers and logs. A daemon sets its keys when it has read them.
REDACTOR = Redactor()


#: For each level of escapes: behind which of its characters one was undone, and how much shorter the text is there.
Levels = list[tuple[list[int], list[int]]]


def _unescaped(text: str) -> tuple[str, Levels]:
    """Return a text without the escapes of JSON and of URLs."""
    levels: Levels = []
    while len(levels) < MAX_LEVELS and len(pieces := _ESCAPE.split(text)) > 1:
        lengths = list(map(len, pieces))
        shorter = list(accumulate(length - 1 for length in lengths[1::2]))
        pieces[1::2] = map(_CHARACTERS.__getitem__, pieces[1::2])
        levels.append((list(accumulate(length + 1 for length in lengths[:-1:2])), shorter))
        text = "".join(pieces)
    return text, levels


def _origin(levels: Levels, place: int) -> int:
    """Return where in the text as it came the characters before a place end."""
    for behind, shorter in reversed(levels):
        if count := bisect_right(behind, place):
            place += shorter[count - 1]
    return place

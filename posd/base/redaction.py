"""Redaction of callback tokens in all output of posd. With a token, anyone can post an event of its payment or print
job.

A terminal echoes the callback URL of its request in events, refusals and search replies. All responses, log lines and
support archives are redacted as text. So one rule covers JSON, JSON inside a string and a truncated body. Stored data
stays unchanged.
"""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from itertools import accumulate

from posd.base import ids
from posd.base.clocks import monotonic

#: Replacement of a token.
REDACTED = "[redacted]"
#: Approximate size of a piece of a body, in bytes. Each piece takes at most a few milliseconds.
PIECE_BYTES = 4 * 1024
#: Maximum size of a piece. At this size it is cut at any place, because no genuine callback URL is so long.
MAX_PIECE_BYTES = 16 * 1024
#: Longest time of one step on the event loop, in seconds.
TURN_SECONDS = 0.005
#: Maximum number of nested encodings that are decoded. JSON in a string of JSON in a query has three.
MAX_LEVELS = 8

_ESCAPE = re.compile(r'(\\u00[0-7][0-9a-fA-F]|\\["\\/]|%[0-7][0-9a-fA-F]|&#(?:x2[fF]|47);)')
_CHARACTERS = {"\\/": "/", "\\\\": "\\", '\\"': '"', "&#x2f;": "/", "&#x2F;": "/", "&#47;": "/"} | {
    f"{prefix}{code:02{case}}": chr(code) for code in range(128) for prefix in ("\\u00", "%") for case in "xX"
}
#: A backslash without its escape, or an escape without its backslash. They remain if a text was encoded as JSON, then
#: by an encoding that changes only some characters, and then as JSON again. For example, `%5c\\u0072` is an r in doubly
#: encoded JSON.
_STRAY = re.compile(r"(\\?u00[0-7][0-9a-fA-F]|\\[\w/.~=-])", re.ASCII)
_CALLBACK = re.compile(r"webhooks/(?:transactions|print-jobs)/[^/\s\"]*/([\w.~=-]+)", re.ASCII)
#: Characters that are never part of a token, of a callback URL, or of an escape in one.
_CUT = re.compile(rb"[,{}\[\]\s]")
_RUN = re.compile(rf"(?<![\w-])[\w-]{{{ids.TOKEN_CHARACTERS},}}", re.ASCII)
_SUBJECT = re.compile(
    r"([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})|(?:[iI]d|print_job)\"?\s*[:=]\s*\"?([\w.-]{1,64})",
    re.ASCII,
)
#: Byte -> A if it can be part of a token, escaped or not, else a space. So the search for a long run is fast.
_SHAPE = re.sub(rb"[^ ]", b"A", re.sub(rb"[^\w\\%-]", b" ", bytes(range(256))))
_LONG_RUN = b"A" * ids.TOKEN_CHARACTERS
#: Escapes of the letters in the word `webhooks`, and of the first character of an escape.
_ESCAPED_LETTER = re.compile(rb"(?:\\u00|%)(?:25|5[cC]|[67])")


class Redactor:
    """Redactor of callback tokens. Without `keys`, the keys of the tokens, it finds tokens only in URLs."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self.keys = keys

    def text(self, text: str, *subjects: str) -> str:
        """Return the text without tokens (see `body`)."""
        return self.body(text.encode("utf-8", "surrogatepass"), *subjects).decode("utf-8", "surrogatepass")

    def body(self, body: bytes, *subjects: str) -> bytes:
        """Return the bytes without callback tokens, in URLs and alone.

        A token alone is found if its id is one of `subjects` or in the body. JSON stays JSON.
        """
        steps = self._steps(body, subjects)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return bytes(done.value)

    async def body_in_steps(self, body: bytes, *subjects: str) -> bytes:
        """Redact a body and return the result, without blocking the loop.

        A long body uses at most half of the loop's time, in steps of a few milliseconds.
        """
        if len(body) <= PIECE_BYTES:
            return self.body(body, *subjects)
        steps, began = self._steps(body, subjects), monotonic()
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return bytes(done.value)
            if (spent := monotonic() - began) >= TURN_SECONDS:
                await asyncio.sleep(spent)
                began = monotonic()

    def _steps(self, body: bytes, subjects: Iterable[str]) -> Generator[None, None, bytes]:
        """Redact a body in pieces. Yield after each piece, and return the redacted body.

        The pieces share little state, to save memory.
        """
        if not _may_have_tokens(body):
            return body
        tokens: set[str] = set()
        if self.keys:
            runs: set[str] = set()
            for part in _parts(body):
                if _may_have_tokens(part):
                    runs.update(_Piece(part).runs())
                yield
            if runs:
                tokens |= runs & ids.tokens(self.keys, subjects)
                for part in _parts(body):
                    tokens |= runs & ids.tokens(self.keys, _named(part))
                    yield
        redacted = bytearray()
        for part in _parts(body):
            redacted += _Piece(part).redacted(tokens) if _may_have_tokens(part) else part
            yield
        return bytes(redacted)


class _Piece:
    """A piece of a body, in its original form and without its escapes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._text, self._levels = _unescaped(body.decode("latin-1"))
        urls = [found.span(1) for found in _CALLBACK.finditer(self._text)]
        known = {end for _, end in urls}
        self._of_urls = [self._original(span, self._levels) for span in urls]
        text, stray = _unescaped(self._text, _STRAY, _without_stray)
        for url in _CALLBACK.finditer(text) if stray else ():
            span = url.start(1), min(url.end(1), url.start(1) + ids.TOKEN_CHARACTERS)
            self._of_urls.append(self._original(span, [*self._levels, *stray]))
        # A run is a long sequence of a token's characters. It may have other text, such as an undecoded escape, before
        # or after the token. So the first and the last characters of the run are both possible tokens.
        self._places = [
            at
            for found in _RUN.finditer(self._text)
            if found.end() not in known
            for at in (found.start(), found.end() - ids.TOKEN_CHARACTERS)
        ]

    def runs(self) -> Iterator[str]:
        """Yield possible tokens outside of URLs."""
        for at in self._places:
            yield self._text[at : at + ids.TOKEN_CHARACTERS]

    def redacted(self, tokens: Collection[str]) -> bytes:
        """Return the piece without the given tokens, and without tokens in URLs."""
        size = ids.TOKEN_CHARACTERS
        found = (at for at in self._places if self._text[at : at + size] in tokens) if tokens else ()
        bare = [self._original((at, at + size), self._levels) for at in found]
        pieces: list[bytes] = []
        end = 0
        for first, last in sorted(self._of_urls + bare):
            if first >= end:
                pieces += self._body[end:first], REDACTED.encode()
            end = max(end, last)
        return b"".join((*pieces, self._body[end:]))

    @staticmethod
    def _original(span: tuple[int, int], levels: "Levels") -> tuple[int, int]:
        first, last = span
        return _origin(levels, first), _origin(levels, last)


def _named(body: bytes) -> set[str]:
    """Return the ids in a body."""
    text, _ = _unescaped(body.decode("latin-1"))
    named = {one or other for one, other in _SUBJECT.findall(text)}
    return named.union(map(str.lower, named))


def _may_have_tokens(body: bytes) -> bool:
    return b"webhooks" in body or _LONG_RUN in body.translate(_SHAPE) or bool(_ESCAPED_LETTER.search(body))


def _parts(body: bytes) -> Iterator[bytes]:
    """Yield a body in parts. A part never ends inside a token or callback URL, even if it is escaped."""
    begin = 0
    while len(body) - begin > PIECE_BYTES:
        found = _CUT.search(body, begin + PIECE_BYTES, begin + MAX_PIECE_BYTES)
        end = found.start() if found else min(begin + MAX_PIECE_BYTES, len(body))
        yield body[begin:end]
        begin = end
    yield body[begin:]


#: Redactor of all responses and logs of this process. A daemon sets its keys after it has read them.
REDACTOR = Redactor()


#: For each level of escapes: the end of each decoded escape, and the number of characters removed up to that end.
Levels = list[tuple[list[int], list[int]]]


def _without_stray(escape: str) -> str:
    return _CHARACTERS.get("\\" + escape.removeprefix("\\"), escape[-1])


def _unescaped(
    text: str, escape: re.Pattern[str] = _ESCAPE, character: Callable[[str], str] = _CHARACTERS.__getitem__
) -> tuple[str, Levels]:
    """Return a text without the escapes of JSON and of URLs, and without HTML's escapes of a slash."""
    levels: Levels = []
    while len(levels) < MAX_LEVELS and (found := _one_level(text, escape, character)):
        text, level = found
        levels.append(level)
    return text, levels


def _one_level(
    text: str, escape: re.Pattern[str], character: Callable[[str], str]
) -> tuple[str, tuple[list[int], list[int]]] | None:
    """Return a text with each escape replaced by its character, or None if it has no escapes."""
    if len(pieces := escape.split(text)) == 1:
        return None
    lengths = list(map(len, pieces))
    shorter = list(accumulate(length - 1 for length in lengths[1::2]))
    pieces[1::2] = map(character, pieces[1::2])
    return "".join(pieces), (list(accumulate(length + 1 for length in lengths[:-1:2])), shorter)


def _origin(levels: Levels, place: int) -> int:
    """Return the position in the original text for a position in the unescaped text."""
    for behind, shorter in reversed(levels):
        if count := bisect_right(behind, place):
            place += shorter[count - 1]
    return place

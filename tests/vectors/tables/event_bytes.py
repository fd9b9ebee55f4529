"""Transaction events as bytes: encodings, what is no JSON, other forms of the same, depth, size (design 5)."""

import gzip
from typing import Any

from tests.vectors.case import Case, parts
from tests.vectors.tables.events import accepted, document, reads, refused
from tests.vectors.wire import ACK, APPROVAL, OTHER, REQUESTED, Literal, body, changed

BASE = document(APPROVAL, REQUESTED)
TAKEN = reads(BASE)
PLAIN = body(BASE)
NO_JSON = "design 5 (body not an event); RFC 8259"
DAMAGE = "design 13.5 (an approval is too dear to lose to one bad byte)"

#: Bodies whose structure is whole: the damage is in one text or value, or around all of it.
DAMAGED = frozenset(
    {
        "trailing-garbage",
        "trailing-bracket",
        "trailing-nul",
        "padded-nul",
        "bom",
        "latin-1",
        "overlong",
        "cesu-8",
        "beyond-unicode",
        "cut-utf-8",
        "lone-high-surrogate",
        "lone-low-surrogate",
        "swapped-surrogates",
        "surrogate-in-name",
        "raw-newline",
        "raw-tab",
        "raw-nul",
        "bad-escape",
        "short-escape",
        "true-capital",
        "none",
        "undefined",
        "nan",
        "infinity",
        "vertical-tab",
        "no-break-space",
    }
)

#: The default limit of a body, in bytes (configuration: webhooks.max_body_bytes).
LIMIT = 1_048_576
#: Levels of arrays and objects: these are read by every implementation; deeper than that may be refused, never a fault.
DEEP, TOO_DEEP = 100, 129


def gzipped(content: bytes) -> bytes:
    """Compress with gzip; byte 9, which names the operating system, differs between versions of Python."""
    made = gzip.compress(content, mtime=0)
    return made[:9] + b"\x03" + made[10:]


def _no_json() -> list[Case]:
    half = len(PLAIN) // 2
    bodies: dict[str, tuple[str, bytes]] = {
        "empty": ("no body", b""),
        "space": ("white space alone", b" \r\n\t "),
        "html": ("a page of some proxy", b"<html><body>502 Bad Gateway</body></html>"),
        "text": ("plain text", b"TERMINAL_ACKNOWLEDGED"),
        "form": ("a form", b"event_id=1&status=APPROVAL"),
        "xml": ("XML", b'<?xml version="1.0"?><event/>'),
        "cut-half": ("cut in the middle", PLAIN[:half]),
        "cut-last": ("its last byte is missing", PLAIN[:-1]),
        "cut-first": ("its first byte is missing", PLAIN[1:]),
        "trailing-garbage": ("more bytes after it", PLAIN + b"x"),
        "trailing-bracket": ("one bracket too many", PLAIN + b"}"),
        "trailing-event": ("two events in one body", PLAIN + PLAIN),
        "trailing-event-line": ("two events, one a line", PLAIN + b"\n" + PLAIN),
        "trailing-nul": ("a NUL after it", PLAIN + b"\0"),
        "leading-nul": ("a NUL before it", b"\0" + PLAIN),
        "leading-anti-hijack": ("a prefix against hijacking", b")]}'\n" + PLAIN),
        "padded-nul": ("a buffer of the terminal, filled up with NUL", PLAIN + b"\0" * 64),
        "bom": ("a byte order mark before it", b"\xef\xbb\xbf" + PLAIN),
        "utf-16-le": ("UTF-16, little endian", PLAIN.decode().encode("utf-16-le")),
        "utf-16-bom": ("UTF-16 with a byte order mark", b"\xff\xfe" + PLAIN.decode().encode("utf-16-le")),
        "utf-16-be": ("UTF-16, big endian", PLAIN.decode().encode("utf-16-be")),
        "utf-32": ("UTF-32", PLAIN.decode().encode("utf-32-le")),
        "latin-1": ("Latin-1 in a text", body(BASE | {"extra": Literal('"\xf1"')}).decode().encode("latin-1")),
        "overlong": ("an overlong UTF-8 sequence", PLAIN[:-1] + b', "extra": "\xc0\xaf"}'),
        "cesu-8": ("surrogates written as UTF-8", PLAIN[:-1] + b', "extra": "\xed\xa0\xbd\xed\xb8\x80"}'),
        "beyond-unicode": ("a code point beyond Unicode", PLAIN[:-1] + b', "extra": "\xf4\x90\x80\x80"}'),
        "cut-utf-8": ("half a character", PLAIN[:-1] + b', "extra": "\xc3"}'),
        "gzip": ("compressed, which was not asked for", gzipped(PLAIN)),
        "lone-high-surrogate": ("an escape of half a character", PLAIN[:-1] + b', "extra": "\\ud83d"}'),
        "lone-low-surrogate": ("an escape of the other half", PLAIN[:-1] + b', "extra": "\\ude00"}'),
        "swapped-surrogates": ("two halves in the wrong order", PLAIN[:-1] + b', "extra": "\\ude00\\ud83d"}'),
        "surrogate-in-name": ("half a character in a name", PLAIN[:-1] + b', "\\ud83d": 1}'),
        "raw-newline": ("a line break in a text", PLAIN[:-1] + b', "extra": "a\nb"}'),
        "raw-tab": ("a tab in a text", PLAIN[:-1] + b', "extra": "a\tb"}'),
        "raw-nul": ("a NUL in a text", PLAIN[:-1] + b', "extra": "a\0b"}'),
        "bad-escape": ("an escape that JSON does not have", PLAIN[:-1] + b', "extra": "\\x41"}'),
        "short-escape": ("an escape of three digits", PLAIN[:-1] + b', "extra": "\\u004"}'),
        "open-text": ("a text without its end", PLAIN[:-1] + b', "extra": "a}'),
        "comment": ("a comment", PLAIN[:-1] + b', /* more */ "extra": 1}'),
        "line-comment": ("a comment before it", b"// event\n" + PLAIN),
        "trailing-comma": ("a comma too many", PLAIN[:-1] + b",}"),
        "leading-comma": ("a comma before the first member", b"{," + PLAIN[1:]),
        "no-colon": ("a member without its colon", PLAIN[:-1] + b', "extra" 1}'),
        "bare-name": ("a name without quotation marks", PLAIN[:-1] + b", extra: 1}"),
        "single-quotes": ("single quotation marks", PLAIN.replace(b'"', b"'")),
        "number-name": ("a number as a name", PLAIN[:-1] + b", 7: 1}"),
        "true-capital": ("True as Python writes it", PLAIN[:-1] + b', "extra": True}'),
        "none": ("None as Python writes it", PLAIN[:-1] + b', "extra": None}'),
        "undefined": ("undefined as JavaScript writes it", PLAIN[:-1] + b', "extra": undefined}'),
        "nan": ("NaN in a field that posd does not read", PLAIN[:-1] + b', "extra": NaN}'),
        "infinity": ("Infinity in a field that posd does not read", PLAIN[:-1] + b', "extra": -Infinity}'),
        "vertical-tab": ("white space that JSON does not have", PLAIN + b"\x0b"),
        "no-break-space": ("a no-break space after it", PLAIN + b"\xc2\xa0"),
    }
    assert bodies.keys() >= DAMAGED
    return [
        accepted(f"no-json-{name}", f"{about}: read around it", DAMAGE, content, TAKEN)
        if name in DAMAGED
        else refused(f"no-json-{name}", about, NO_JSON, content, None)
        for name, (about, content) in bodies.items()
    ]


def _no_object() -> list[Case]:
    bodies = {
        "list": ("a list of events", b"[" + PLAIN + b"]"),
        "empty-list": ("an empty list", b"[]"),
        "null": ("null", b"null"),
        "true": ("true", b"true"),
        "number": ("a number", b"7"),
        "text": ("a text", b'"APPROVAL"'),
        "text-of-event": ("an event inside of a text", body(PLAIN.decode())),
    }
    found = [
        refused(f"no-object-{name}", about, "design 5 (body not an event)", content, None)
        for name, (about, content) in bodies.items()
    ]
    wrapped = body({"event": BASE})
    found.append(refused("no-object-wrapped", "an event inside of another object", "spec 2.1", wrapped, None))
    found.append(refused("no-object-empty", "an object without members", "spec 2.1", b"{}", None))
    acknowledgement = {"status": ACK, "previous_status": "", "event_id": "e", "terminal": {"serialNumber": "SN-0001"}}
    found.append(
        accepted(
            "object-acknowledgement",
            "the acknowledgement of the call instead of an event: the least that is one",
            "design 13.5",
            body(acknowledgement),
            {"event_id": "e", "status": ACK, "terminal": {"serial_number": "SN-0001"}},
        )
    )
    job = {"printJobId": "job-1", "status": "COMPLETED", "externalReference": ""}
    found.append(
        refused("no-object-print-webhook", "a print webhook at a payment's address", "spec 1", body(job), None)
    )
    return found


def _forms() -> list[Case]:
    """The same event, written in another way: it is read as the same."""
    pairs = b"".join(b"\\u%04x" % ord(character) for character in "status")
    forms = {
        "leading-space": ("white space before and after it", b" \r\n\t" + PLAIN + b"\n\n"),
        "compact": ("no white space", PLAIN.replace(b", ", b",").replace(b": ", b":")),
        "windows-lines": ("a member a line, CR LF", PLAIN.replace(b", ", b",\r\n  ")),
        "escaped-name": ("a name in escapes", PLAIN.replace(b'"status"', b'"' + pairs + b'"', 1)),
        "escaped-value": ("a word in escapes", PLAIN.replace(b'"APPROVAL"', b'"\\u0041PPROVAL"', 1)),
        "escaped-solidus": ("solidi in escapes", PLAIN.replace(b"https://", b"https:\\/\\/")),
    }
    source = "RFC 8259; design 5 (raw bytes are the record)"
    found = [accepted(f"form-{name}", about, source, content, TAKEN) for name, (about, content) in forms.items()]
    turned = dict(reversed(BASE.items()))
    found.append(accepted("form-members-reversed", "members in another order", source, body(turned), TAKEN))
    extras: dict[str, tuple[str, Any]] = {
        "members": ("more members at each level", None),
        "pair-of-surrogates": ("a character in two escapes", Literal('"\\ud83d\\ude00"')),
        "not-ascii": ("characters that are not ASCII", Literal('"\xf1 \u20ac \U0001f600 \u2028"')),
        "escaped-nul": ("an escaped NUL in a field that posd does not read", Literal('"a\\u0000b"')),
        "list": ("a list of everything", [None, True, 1.5, "x", {}, []]),
        "camel-case": ("names of another case beside the right ones", None),
        "javascript-names": ("names that are traps elsewhere", None),
    }
    for name, (about, value) in extras.items():
        event = BASE | {"extra": value}
        if name == "members":
            event = changed(changed(BASE | {"extra": 1}, "terminal.firmware", "9.1"), "raw_response.new", {"a": [1]})
        elif name == "camel-case":
            event = BASE | {"Status": "DECLINED", "eventId": "x", "rawResponse": {}, "clientTransactionId": OTHER}
        elif name == "javascript-names":
            event = BASE | {"__proto__": {"status": "DECLINED"}, "constructor": 1, "": 2, "toString": "x"}
        found.append(accepted(f"extra-{name}", about, "design 5 (extra fields)", body(event), TAKEN))
    return found


def _depth() -> list[Case]:
    source = "design 5 (an internal fault never answers a 4xx; what cannot be read is no event)"
    opened, closed = PLAIN[:-1] + b', "extra": ', b"}"
    found = []
    for kind, opening, closing in (("lists", b"[", b"]"), ("objects", b'{"a":', b"}")):
        deep = parts((opened, 1), (opening, DEEP - 1), (b"1", 1), (closing, DEEP - 1), (closed, 1))
        found.append(
            accepted(
                f"deep-{kind}-{DEEP}",
                f"{DEEP} levels in a field that posd does not read: metadata is echoed",
                source,
                deep,
                TAKEN,
            )
        )
        for levels in (TOO_DEEP, 500, 1000, 100_000):
            deep = parts((opened, 1), (opening, levels - 1), (b"1", 1), (closing, levels - 1), (closed, 1))
            name = f"deep-{kind}-{levels}"
            if levels <= 1000:
                found.append(accepted(name, f"{levels} levels: read around what is too deep", DAMAGE, deep, TAKEN))
            else:
                found.append(refused(name, f"{levels} levels, and too long to be read around", source, deep, None))
        torn = parts((opened, 1), (opening, 100_000))
        found.append(refused(f"deep-{kind}-open", "100,000 levels that are never closed", source, torn, None))
    metadata = Literal('{"a":' * 64 + "1" + "}" * 64)
    echoed = body(changed(BASE, "operation.metadata", metadata))
    found.append(accepted("deep-metadata-64", "metadata as deep as a till may send it, echoed", source, echoed, TAKEN))
    text = body(BASE | {"extra": "[" * 1000 + '"\\{' * 1000})
    found.append(accepted("deep-text", "brackets in a text are no levels", source, text, TAKEN))
    return found


def _size() -> list[Case]:
    source = "design 5 (body over the limit)"
    at = parts((PLAIN, 1), (b" ", LIMIT - len(PLAIN)))
    over = parts((PLAIN, 1), (b" ", LIMIT + 1 - len(PLAIN)))
    long = PLAIN[:-1] + b', "extra": "'
    text = parts((long, 1), (b"x", LIMIT - len(long) - 2), (b'"}', 1))
    members = parts((PLAIN[:-1], 1), (b', "x": 1', 50_000), (b"}", 1))
    items = parts((PLAIN[:-1] + b', "extra": [0', 1), (b",[]", 100_000), (b"]}", 1))
    return [
        accepted("size-at-the-limit", "as large as the limit, 1 MiB", source, at, TAKEN),
        refused("size-over-the-limit", "one byte over the limit of 1 MiB", source, over, None, reply=413),
        accepted("size-long-text", "a text of a megabyte in a field that posd does not read", source, text, TAKEN),
        accepted("size-many-members", "one member 50,000 times, always the same", source, members, TAKEN),
        accepted("size-many-items", "a list of 100,000 empty lists", source, items, TAKEN),
    ]


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*_no_json(), *_no_object(), *_forms(), *_depth(), *_size()]

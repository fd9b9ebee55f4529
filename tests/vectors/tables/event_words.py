"""Transaction events whose words, times, ids, terminals or merchants are odd (design 5; spec 6.3)."""

from tests.vectors.case import Case
from tests.vectors.tables.events import accepted, document, reads, refused
from tests.vectors.wire import ACK, APPROVAL, CARD, FOREIGN, IDENTITY, OTHER, REQUESTED, SECOND, body, changed

BASE = document(APPROVAL, REQUESTED)
TAKEN = reads(BASE)
PLAIN = body(BASE)


#: What the name of a case begins with, the field that is odd, what is said of its word, the source, and the words.
WORDS: list[tuple[str, str, str, str, dict[str, str]]] = [
    (
        "status",
        "status",
        "a status that the spec does not have: {!r}; kept, and not taken for another",
        "design 5 (a status that posd does not know; names are never normalised)",
        {
            "new": "TERMINAL_WARMING_UP",
            "lower-case": "approval",
            "mixed-case": "Approval",
            "space": "APPROVAL ",
            "newline": "APPROVAL\n",
            "approved": "APPROVED",
            "nul": "APPROVAL\0",
            "not-ascii": "APROBACI\xd3N",
            "acknowledgement-word": "acknowledged",
        },
    ),
    (
        "previous",
        "previous_status",
        "previous_status is {}",
        "spec 6.3 rule 3, design 5",
        {"unknown": "TERMINAL_WARMING_UP", "lower-case": "approval_requested", "itself": APPROVAL},
    ),
    (
        "reading",
        "reading_type",
        "reading_type is {}",
        "spec 2.1, design 5",
        {"unknown": "NFC_TAG", "lower-case": "chip"},
    ),
    (
        "operation",
        "operation.type",
        "operation.type is {}",
        "design 5 (other operation types)",
        {"unknown": "LOTTERY", "lower-case": "charge", "response-spelling": "pre-auth"},
    ),
    (
        "time",
        "occurred_at",
        "occurred_at is {!r}: kept as it is, nothing depends on it",
        "spec 2.1; design 10 (order never depends on the wall clock)",
        {
            "no-milliseconds": "2026-11-20T10:42:03Z",
            "microseconds": "2026-11-20T10:42:03.120456Z",
            "offset": "2026-11-20T05:42:03.120-05:00",
            "no-zone": "2026-11-20T10:42:03.120",
            "space": "2026-11-20 10:42:03",
            "date": "2026-11-20",
            "basic": "20261120T104203Z",
            "epoch-text": "1795171323",
            "local": "20/11/2026 10:42 a. m.",
            "leap-second": "2026-12-31T23:59:60Z",
            "year-0": "0000-00-00T00:00:00Z",
            "year-9999": "9999-12-31T23:59:59.999Z",
            "1970": "1970-01-01T00:00:00.000Z",
            "words": "yesterday",
        },
    ),
]


def _words() -> list[Case]:
    return [
        accepted(
            f"{prefix}-{name}",
            about.format(word),
            source,
            body(changed(BASE, field, word)),
            changed(TAKEN, field, word),
        )
        for prefix, field, about, source, words in WORDS
        for name, word in words.items()
    ]


def _ids() -> list[Case]:
    found = []
    for name, word in {"upper-case": IDENTITY.upper(), "mixed-case": IDENTITY.replace("f", "F")}.items():
        found.append(
            accepted(
                f"id-{name}",
                f"client_transaction_id in {name.replace('-', ' ')}: the same id",
                "design 5; local API (UUIDs in any case)",
                body(BASE | {"client_transaction_id": word}),
                TAKEN,
            )
        )
    others = {
        "another": OTHER,
        "braces": f"{{{IDENTITY}}}",
        "urn": f"urn:uuid:{IDENTITY}",
        "no-hyphens": IDENTITY.replace("-", ""),
        "space": f" {IDENTITY}",
        "newline": f"{IDENTITY}\n",
        "nul": f"{IDENTITY}\0",
        "fullwidth-digit": IDENTITY.replace("7", "\uff17"),
        "cut": IDENTITY[:-1],
        "word": "payment-1",
    }
    for name, word in others.items():
        about = f"client_transaction_id is {word!r}, which is not the one of the callback address"
        found.append(
            refused(
                f"id-{name}",
                about,
                "design 5 (another id); promise 5",
                body(BASE | {"client_transaction_id": word}),
                "client_transaction_id",
            )
        )
    events = {
        "no-uuid": "42",
        "upper-case": "00000000-0000-4000-8000-00000000000A",
        "nul": "e\0f",
        "nul-alone": "\0",
        "newline": "e\nf",
        "quotes": 'e"; DROP TABLE events; --',
        "emoji": "\U0001f600",
        "long": "e" * 256,
        "space": " e ",
        "escape-sequence": "\x1b[2J",
        "text-direction": "\u202ee",
    }
    for name, word in events.items():
        about = f"event_id is {word[:30]!r}: no UUID, and a name all the same"
        found.append(
            accepted(
                f"event-id-{name}",
                about,
                "spec 6.3 rule 1; design 5 (only what is missing is no event)",
                body(BASE | {"event_id": word}),
                TAKEN | {"event_id": word},
            )
        )
    return found


def _terminals() -> list[Case]:
    source = "spec 6.3 rule 6; design 5 (serial not in the fleet)"
    foreign = {
        "foreign": FOREIGN,
        "lower-case": "sn-0001",
        "space": "SN-0001 ",
        "nul": "SN-0001\0",
        "newline": "SN-0001\n",
        "similar": "SN\u20100001",
        "prefix": "SN-000",
        "long": "S" * 256,
    }
    field = "terminal.serial_number"
    found = [
        refused(
            f"terminal-{name}",
            f"a serial that the fleet does not have: {serial[:20]!r}",
            source,
            body(changed(BASE, field, serial)),
            field,
            reply=403,
        )
        for name, serial in foreign.items()
    ]
    second = changed(BASE, field, SECOND)
    found.append(
        accepted(
            "terminal-second",
            "another terminal of the fleet",
            "design 5 (of a fleet terminal other than the one asked)",
            body(second),
            changed(TAKEN, field, SECOND),
        )
    )
    camel = BASE | {"terminal": {"serialNumber": "SN-0001", "model": "M"}}
    found.append(
        accepted(
            "terminal-camel-case",
            "the serial as the acknowledgement names it",
            "design 13.5",
            body(camel),
            changed(TAKEN, "terminal", {"serial_number": "SN-0001", "model": "M"}),
        )
    )
    two = BASE | {"terminal": {"serialNumber": "SN-0002", "serial_number": "SN-0001"}}
    about = "two serials under two names"
    found.append(refused("terminal-two-names", about, "design 13.5", body(two), "terminal.serial_number"))
    response = BASE["raw_response"]
    camel = changed(BASE, "raw_response", remove=True) | {"rawResponse": response}
    about = "the acquirer's answer as synchronous calls name it"
    found.append(accepted("raw-response-camel-case", about, "design 13.5", body(camel), TAKEN))
    two = BASE | {"rawResponse": response | {"ticket_number": "7"}}
    about = "two answers of the acquirer under two names: none"
    without = changed(TAKEN, "raw_response", remove=True)
    found.append(accepted("raw-response-two-names", about, "design 13.5", body(two), without))
    stated = changed(BASE, "status", remove=True) | {"raw_response": response | {"transaction_status": "APPROVAL"}}
    about = "no state but the acquirer's: that is for a search alone"
    found.append(refused("status-of-acquirer", about, "local API, the outcome", body(stated), "status"))
    strange = changed(BASE, "terminal.brand", "a\0b\x1b[31m")
    found.append(
        accepted(
            "terminal-brand-control-characters",
            "control characters in the brand",
            "spec 2.1",
            body(strange),
            changed(TAKEN, "terminal.brand", "a\0b\x1b[31m"),
        )
    )
    merchant = "design 5 (another merchant)"
    found.append(
        accepted("merchant-configured", "the merchant that is configured", merchant, PLAIN, TAKEN, merchant="M-1")
    )
    for name, word in {"another": "M-2", "lower-case": "m-1", "space": "M-1 ", "nul": "M-1\0"}.items():
        found.append(
            refused(
                f"merchant-{name}",
                f"merchant_id is {word!r}, configured is M-1",
                merchant,
                body(BASE | {"merchant_id": word}),
                "merchant",
                reply=403,
                merchant="M-1",
            )
        )
    both = changed(BASE | {"merchant_id": "M-2"}, field, FOREIGN)
    found.append(
        accepted(
            "merchant-not-configured",
            "any merchant where none is configured",
            merchant,
            body(BASE | {"merchant_id": "M-2"}),
            TAKEN | {"merchant_id": "M-2"},
        )
    )
    found.append(
        refused(
            "merchant-and-terminal",
            "neither the merchant nor the terminal is ours",
            merchant,
            body(both),
            "merchant",
            reply=403,
            merchant="M-1",
        )
    )
    wrong = body(changed(BASE, field, FOREIGN) | {"client_transaction_id": OTHER})
    found.append(
        refused(
            "terminal-foreign-another-id",
            "another id, and a foreign terminal: it is not this event",
            "design 5",
            wrong,
            "client_transaction_id",
        )
    )
    cancel = document("TERMINAL_CANCELED", ACK) | {"reading_type": "CHIP"}
    found.append(
        accepted(
            "canceled-with-reading-type",
            "a cancellation with a reading_type against the spec",
            "spec 3.1 rule 8, design 5",
            body(cancel),
            reads(cancel),
        )
    )
    early = document(CARD, ACK) | {"raw_response": BASE["raw_response"], "operation": BASE["operation"]}
    found.append(
        accepted(
            "card-with-raw-response",
            "an event that is no final, with the fields of one",
            "spec 3.1 rule 7, design 5",
            body(early),
            reads(early),
        )
    )
    return found


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*_words(), *_ids(), *_terminals()]

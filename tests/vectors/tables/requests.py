"""A till's request, and the bytes that go to the terminal for it; or what is wrong with it (spec 2.4; local API).

Amounts are exact: what the till wrote is what the terminal reads, digit by digit, never with an exponent.
"""

import json
from typing import Any

from tests.vectors.case import Body, Case, as_body, parts
from tests.vectors.wire import IDENTITY, OTHER, REFERENCE, Literal, body

URL = f"https://192.0.2.10:8443/webhooks/transactions/{IDENTITY}/token"
PRINT_URL = "https://192.0.2.10:8443/webhooks/print-jobs/job-1042/token"
JOB = "job-1042"


def _wire(amount: str | None, *, reference: str | None = None, metadata: str = "", options: str = "") -> str:
    members = [f'"client_transaction_id":"{IDENTITY}"']
    members += [f'"amount":{amount}'] if amount else []
    members += [f'"transaction_reference":"{reference}"'] if reference else []
    members.append(f'"events_webhook_url":"{URL}"')
    members += [f'"metadata":{metadata}'] if metadata else []
    members += [options] if options else []
    return "{" + ",".join(members) + "}"


def _three(iva: str = "0", subtotal: str = "0", zero: str = "0", more: str = "") -> str:
    return f'{{"iva":{iva},"subtotal_iva":{subtotal},"subtotal_iva0":{zero}{more}}}'


def starts() -> list[Case]:
    """Return requests to start a payment."""
    found: list[Case] = []

    def sent(name: str, about: str, content: bytes | Body, wire: str) -> None:
        given = {"client_transaction_id": IDENTITY, "callback_url": URL, "body": as_body(content)}
        found.append(
            Case(
                "start-request",
                name,
                about,
                "spec 2.4; design 4 (amounts are exact); local API",
                given,
                {"request": {"text": wire}},
            )
        )

    def refused(name: str, about: str, content: bytes | Body, *paths: str, problem: str = "invalid_request") -> None:
        given = {"client_transaction_id": IDENTITY, "callback_url": URL, "body": as_body(content)}
        expect: dict[str, Any] = {"problem": problem} | (
            {"paths": sorted(paths)} if problem == "invalid_request" else {}
        )
        found.append(Case("start-request", name, about, "local API (PUT /transactions)", given, expect))

    def iva(literal: str) -> bytes:
        return body({"amount": {"iva": Literal(literal)}})

    sent(
        "charge",
        "a charge",
        body({"amount": {"iva": Literal("1.20"), "subtotal_iva": Literal("10.00"), "subtotal_iva0": 0}}),
        _wire(_three("1.20", "10.00")),
    )
    sent(
        "terminal-and-sale",
        "the terminal and the sale are not sent",
        body({"terminal": "SN-0001", "sale": "s-1", "amount": {"iva": 1}}),
        _wire(_three("1")),
    )
    exact = {
        "ten-ten": ("10.10", "10.10"),
        "places": ("1.2000", "1.2000"),
        "binary-trap": ("0.1", "0.1"),
        "binary-trap-2": ("1.005", "1.005"),
        "integer": ("11", "11"),
        "largest": ("999999999999.9999", "999999999999.9999"),
        "smallest": ("0.0001", "0.0001"),
        "exponent": ("1.12e1", "11.2"),
        "exponent-places": ("1.120e1", "11.20"),
        "exponent-large": ("1E+2", "100"),
        "exponent-negative": ("1120e-2", "11.20"),
        "text": ('"10.10"', "10.10"),
        "text-integer": ('"11"', "11"),
    }
    for name, (literal, wire) in exact.items():
        sent(f"amount-{name}", f"{literal} goes out as {wire}", iva(literal), _wire(_three(wire)))
    sent(
        "amount-zeros",
        "zeros beside it keep their places",
        body({"amount": {"iva": Literal("0.00"), "subtotal_iva": Literal("-0"), "subtotal_iva0": 5}}),
        _wire(_three("0.00", "0", "5")),
    )
    sent(
        "amount-more",
        "further numbers and extra_taxes pass as they are",
        body({"amount": {"tip": Literal("0.50"), "iva": 1, "extra_taxes": {"ice": Literal("0.10"), "iac": 0}}}),
        _wire(_three("1", more=',"tip":0.50,"extra_taxes":{"ice":0.10,"iac":0}')),
    )
    sent(
        "metadata",
        "metadata as the till wrote it",
        body({"amount": {"iva": 1}})[:-1] + b', "metadata": { "b" : 1.10, "a":"\xc3\xb1", "c":1e400, "b2":[ ] }}',
        _wire(_three("1"), metadata='{ "b" : 1.10, "a":"\xf1", "c":1e400, "b2":[ ] }'),
    )
    sent(
        "metadata-twice",
        "metadata says two things: the till's own affair",
        body({"amount": {"iva": 1}})[:-1] + b', "metadata": {"a": 1, "a": 2}}',
        _wire(_three("1"), metadata='{"a": 1, "a": 2}'),
    )
    deepest = '{"a":' * 64 + "1" + "}" * 64
    sent(
        "metadata-deepest",
        "metadata of 64 levels",
        body({"amount": {"iva": 1}, "metadata": Literal(deepest)}),
        _wire(_three("1"), metadata=deepest),
    )
    sent(
        "options",
        "options go out beside the other fields",
        body({"amount": {"iva": 1}, "options": {"is_deferred": True, "cashback_amount": Literal("1.50")}}),
        _wire(_three("1"), options='"is_deferred":true,"cashback_amount":1.50'),
    )
    for kind in ("capture", "re-auth", "post-tip"):
        sent(
            f"{kind}",
            f"a {kind} by reference",
            body({"type": kind, "amount": {"iva": 1}, "transaction_reference": REFERENCE}),
            _wire(_three("1"), reference=REFERENCE),
        )
    sent(
        "void",
        "a void needs no amount",
        body({"type": "void", "transaction_reference": REFERENCE.upper()}),
        _wire(None, reference=REFERENCE),
    )
    sent(
        "pre-auth",
        "a pre-authorization",
        body({"type": "pre-auth", "amount": {"subtotal_iva0": 5}}),
        _wire(_three(zero="5")),
    )
    sent(
        "nulls",
        "null is as left out",
        body(
            {
                "terminal": None,
                "type": None,
                "sale": None,
                "metadata": None,
                "options": None,
                "original": None,
                "transaction_reference": None,
                "repeat": None,
                "amount": {"iva": 1},
            }
        ),
        _wire(_three("1")),
    )

    for name, literal in {
        "negative": "-1",
        "five-places": "1.00001",
        "thirteen-digits": "1000000000000",
        "1e400": "1e400",
        "1e-400": "1e-400",
        "true": "true",
        "list": "[1]",
        "object": '{"a": 1}',
        "text-exponent": '"1e2"',
        "text-comma": '"1,20"',
        "text-space": '" 1"',
        "text-negative": '"-1"',
        "text-nan": '"NaN"',
        "text-empty": '""',
        "text-underscore": '"1_0"',
        "text-arabic": '"\\u0661"',
    }.items():
        refused(f"amount-{name}", f"an amount that is none: {literal}", iva(literal), "/amount/iva")
    refused("amount-beyond-decimal", "a number that nothing can hold", iva("1e99999999999999999999"), "/amount")
    refused("amount-zero", "it adds up to 0", iva("0.00"), "/amount")
    refused("amount-null", "a member that is null is left out, so it adds up to 0", iva("null"), "/amount")
    refused("amount-unknown", "a member that is not known", b'{"amount": {"total": "5.00"}}', "/amount/total")
    refused("amount-missing", "no amount", b"{}", "/amount")
    refused("amount-absent-null", "no amount", b'{"amount": null}', "/amount")
    refused("amount-number", "an amount that is no object", b'{"amount": 11.20}', "/amount")
    refused("amount-twice", "two amounts", b'{"amount": {"iva": 1}, "amount": {"iva": 2}}', "/amount")
    refused("amount-member-twice", "a member of the amount twice", b'{"amount": {"iva": 1, "iva": 2}}', "/amount/iva")
    refused(
        "amount-member-twice-escaped",
        "the same, once with an escape",
        b'{"amount": {"iva": 1, "i\\u0076a": 2}}',
        "/amount/iva",
    )
    refused(
        "amount-taxes-twice",
        "a member of extra_taxes twice",
        b'{"amount": {"iva": 1, "extra_taxes": {"ice": 1, "ice": 2}}}',
        "/amount/extra_taxes/ice",
    )
    refused(
        "amount-taxes-deeper",
        "an object in extra_taxes",
        b'{"amount": {"iva": 1, "extra_taxes": {"ice": {"a": 1}}}}',
        "/amount/extra_taxes/ice",
    )
    for name in (
        "client_transaction_id",
        "amount",
        "metadata",
        "events_webhook_url",
        "webhookUrl",
        "transaction_reference",
    ):
        refused(
            f"options-{name.lower().replace('_', '-')}",
            "an option that would replace a field",
            body({"amount": {"iva": 1}, "options": {name: 1}}),
            f"/options/{name}",
        )
    refused(
        "options-escaped",
        "the same, with an escape in its name",
        b'{"amount": {"iva": 1}, "options": {"am\\u006funt": 1}}',
        "/options/amount",
    )
    refused(
        "options-twice",
        "an option that says two things",
        b'{"amount": {"iva": 1}, "options": {"is_deferred": true, "is_deferred": false}}',
        "/options/is_deferred",
    )
    for levels in (65, 100):
        deep = parts((b'{"amount": {"iva": 1}, "metadata": ', 1), (b'{"a":', levels), (b"1", 1), (b"}", levels + 1))
        refused(f"metadata-{levels}-levels", f"metadata of {levels} levels: at most 64", deep, "/metadata")
    for levels in (500, 900, 20_000):
        deep = parts((b'{"amount": {"iva": 1}, "metadata": ', 1), (b'{"a":', levels), (b"1", 1), (b"}", levels + 1))
        refused(f"metadata-{levels}-levels", f"metadata of {levels} levels: it is refused, never a fault", deep, "")
    large = parts((b'{"amount": {"iva": 1}, "metadata": {"a": "', 1), (b"x", 16 * 1024), (b'"}}', 1))
    refused("metadata-large", "metadata over 16 KiB", large, "/metadata")
    refused("sale-empty", "an empty sale", b'{"amount": {"iva": 1}, "sale": ""}', "/sale")
    refused("sale-long", "a sale of 129 characters", body({"amount": {"iva": 1}, "sale": "s" * 129}), "/sale")
    refused("type-unknown", "a type that there is not", b'{"amount": {"iva": 1}, "type": "loan"}', "/type")
    refused("type-wire-word", "the wire's word for a type", b'{"amount": {"iva": 1}, "type": "CHARGE"}', "/type")
    refused("repeat-number", "repeat is no flag", b'{"amount": {"iva": 1}, "repeat": 1}', "/repeat")
    refused(
        "reference-no-uuid",
        "a reference that is no UUID",
        body({"type": "void", "transaction_reference": "42"}),
        "/transaction_reference",
    )
    refused("reference-missing", "a void of nothing", b'{"type": "void"}', "/original")
    refused(
        "reference-twice",
        "a reference and an original",
        body({"type": "void", "transaction_reference": REFERENCE, "original": OTHER}),
        "/transaction_reference",
    )
    refused(
        "reference-of-charge", "a charge of something", body({"amount": {"iva": 1}, "original": OTHER}), "/original"
    )
    refused("unknown-field", "a field that there is not", b'{"amount": {"iva": 1}, "a/b~c": 1}', "/a~1b~0c")
    refused(
        "all-at-once",
        "every fault is told at once",
        b'{"amount": {"iva": -1}, "sale": 7, "type": "x", "nope": 1}',
        "/amount/iva",
        "/sale",
        "/type",
        "/nope",
    )
    for name, content in {"list": b"[]", "null": b"null", "number": b"7", "text": b'"x"'}.items():
        refused(f"no-object-{name}", "no object", content, "")
    for name, content in {
        "empty": b"",
        "cut": b'{"amount": {"iva": 1}',
        "nan": b'{"amount": {"iva": NaN}}',
        "bom": b"\xef\xbb\xbf{}",
        "utf-16": "{}".encode("utf-16"),
        "bad-utf-8": b'{"sale": "\xff"}',
        "lone-surrogate": b'{"sale": "\\ud800"}',
        "comment": b"{} // x",
        "leading-zero": b'{"amount": {"iva": 01}}',
        "garbage-after": b"{}x",
        "nul-after": b"{}\0",
    }.items():
        refused(f"no-json-{name}", "no JSON", content, problem="malformed_json")
    return found


def prints() -> list[Case]:
    """Return requests to print."""
    found: list[Case] = []
    source = "spec 2.3, 4.3; local API (PUT /print-jobs)"

    def given(content: bytes | Body) -> dict[str, Any]:
        return {"print_job_id": JOB, "callback_url": PRINT_URL, "document_member": "document", "body": as_body(content)}

    def sent(name: str, about: str, content: bytes | Body, document: str, reference: str = "") -> None:
        named = json.dumps(reference, ensure_ascii=False)
        wire = f'{{"printJobId":"{JOB}","externalReference":{named},"webhookUrl":"{PRINT_URL}","document":{document}}}'
        found.append(Case("print-request", name, about, source, given(content), {"request": {"text": wire}}))

    def refused(name: str, about: str, content: bytes | Body, *paths: str, problem: str = "invalid_request") -> None:
        expect: dict[str, Any] = {"problem": problem} | (
            {"paths": sorted(paths)} if problem == "invalid_request" else {}
        )
        found.append(Case("print-request", name, about, source, given(content), expect))

    sent(
        "receipt",
        "a receipt",
        b'{"document": {"lines": ["ACME", 11.20]}, "external_reference": "ticket 1042"}',
        '{"lines": ["ACME", 11.20]}',
        "ticket 1042",
    )
    sent(
        "verbatim",
        "the document as the till wrote it",
        b'{"document": { "b" : 1.10, "a":1e400,"a":2 , "c":"\xc3\xb1" }}',
        '{ "b" : 1.10, "a":1e400,"a":2 , "c":"\xf1" }',
    )
    deepest = '{"a":' * 64 + "1" + "}" * 64
    sent("deepest", "a document of 64 levels", f'{{"document": {deepest}}}'.encode(), deepest)
    refused(
        "too-deep",
        "a document of 65 levels",
        parts((b'{"document": ', 1), (b'{"a":', 65), (b"1", 1), (b"}", 66)),
        "/document",
    )
    refused(
        "far-too-deep",
        "a document of 900 levels: it is refused, never a fault",
        parts((b'{"document": ', 1), (b'{"a":', 900), (b"1", 1), (b"}", 901)),
        "",
    )
    refused(
        "too-large",
        "a document over 240 KiB",
        parts((b'{"document": {"a": "', 1), (b"x", 240 * 1024), (b'"}}', 1)),
        "/document",
    )
    commands = (
        '{"commands": [ {"type":"text", "text":"TE\\n", "size":28.0}, {"type":"image","x":1.10}, {"type": "cut"}]}'
    )
    sent(
        "commands",
        "a list of commands, one of a type that is not known",
        f'{{"document":{commands}}}'.encode(),
        commands,
    )
    refused(
        "commands-wrong",
        "commands with values that a terminal has no meaning for",
        b'{"document": {"commands": [{"type": "text", "text": "x", "align": "MIDDLE"}, {"type": "feed", "lines": -1}, '
        b'{"type": "columns", "columns": [{"text": "x", "weight": 0}]}, {"type": "qr"}, "cut"]}}',
        "/document/commands/0/align",
        "/document/commands/1/lines",
        "/document/commands/2/columns/0/weight",
        "/document/commands/3/content",
        "/document/commands/4",
    )
    refused("commands-none", "an empty list of commands", b'{"document": {"commands": []}}', "/document/commands")
    refused("document-missing", "no document", b"{}", "/document")
    refused("document-list", "a document that is no object", b'{"document": []}', "/document")
    refused("document-twice", "two documents", b'{"document": {"a": 1}, "document": {"a": 2}}', "/document")
    refused(
        "reference-number",
        "a reference that is no text",
        b'{"document": {}, "external_reference": 7}',
        "/external_reference",
    )
    refused(
        "reprint-of-itself-unnamed",
        "what it reprints has no id of a job",
        b'{"document": {}, "reprint_of": ".."}',
        "/reprint_of",
    )
    refused("unknown-field", "a field that there is not", b'{"document": {}, "webhookUrl": "x"}', "/webhookUrl")
    refused("no-json", "no JSON", b'{"document": {}', problem="malformed_json")
    refused("no-object", "no object", b"[]", "")
    return found


def searches() -> list[Case]:
    """Return the request of a search."""
    return [
        Case(
            "search-request",
            "id",
            "the body of a search",
            "design 7",
            {"client_transaction_id": IDENTITY},
            {"request": {"text": f'{{"client_transaction_id":"{IDENTITY}"}}'}},
        )
    ]


def cases() -> list[Case]:
    """Return every case of this theme."""
    return [*starts(), *prints(), *searches()]

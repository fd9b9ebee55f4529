"""No secret and no personal data is logged. A daemon runs through every situation with marked texts.

The test searches the log.
"""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

import pytest

from posd.cli.explain import catalogue
from posd.logs.output import FIELDS
from tests.e2e.conftest import home, terminal  # noqa: F401 - fixtures
from tests.rig.daemon import Daemon, running
from tests.rig.events import APPROVED, body
from tests.rig.https import deliver, post, send
from tests.rig.secrets import PLACES, Secrets, forms, marks
from tests.rig.terminal import Request, ScriptedTerminal, http

#: Events that the daemon can log.
EVENTS = catalogue.events()

MARKS = marks()
DEBUG = '[logging]\nlevel = "debug"\n[merchant]\nid = "M-1"\n[print]\npoll_first_seconds = 0.2\npoll_max_seconds = 1\n'
AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00}
RECEIPT = {
    "transaction_reference": str(uuid4()),
    "authorized_amount": 11.20,
    "card_holder": MARKS["receipt_holder"],
    "card_data": {"last4": MARKS["receipt_card"], "bin": MARKS["receipt_card"]},
    "message_fields": {"F38": MARKS["receipt_authorization"], "F39": "00"},
    MARKS["receipt_extra"]: MARKS["receipt_extra"],
}

#: Program that causes faults in calls, callbacks, tasks and threads of the daemon. Their messages quote secret data.
FAULTS = """
import os
if os.environ.get("POSD_TEST_FAULT"):
    import asyncio, logging, threading, warnings
    from posd.payments import inbox
    from posd.records import start as records
    words = os.environ["POSD_TEST_FAULT"]

    def fails(*given):
        raise KeyError(words, given)

    async def fails_later(*given):
        raise ValueError(words) from RuntimeError(given)

    async def start(self, *given, **named):
        asyncio.get_running_loop().call_soon(fails, given)
        asyncio.create_task(fails_later(given))
        thread = threading.Thread(target=fails, args=given)
        thread.start()
        thread.join()
        logging.getLogger("zeroconf").warning("cannot read %r of %s", given, words)
        logging.getLogger("asyncio").error(words, exc_info=ValueError(words))
        warnings.warn(words)
        raise ValueError(words, given)

    async def receive(self, *given):
        raise ExceptionGroup(words, [LookupError(given)])

    records.Starts.start = start
    inbox.Inbox.receive = receive
"""


@pytest.fixture
def configured(
    home: Path,  # noqa: F811
    terminal: ScriptedTerminal,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> str:
    """Return the configuration of the fleet, with secret headers from all three sources."""
    (home / "header").write_text(MARKS["header_file"] + "\n")
    credentials = home / "credentials"
    credentials.mkdir()
    (credentials / "terminal-key").write_text(MARKS["header_credential"])
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    return f"""{terminal.toml}
[terminals.headers]
X-Value = "{MARKS["header_value"]}"
X-File = {{file = "{home / "header"}"}}
X-Credential = {{credential = "terminal-key"}}
"""


async def paid(posd: Daemon, terminal: ScriptedTerminal) -> str:  # noqa: F811
    """Run a payment with marks in every text of the till, and events with marks in every text of the terminal."""
    identity = str(uuid4())
    request = {
        "amount": AMOUNT,
        "sale": MARKS["sale"],
        "metadata": {"reference": MARKS["metadata"], MARKS["metadata_name"]: 1},
        "options": {"further": MARKS["option"]},
    }
    assert (await posd.call("PUT", f"/transactions/{identity}", request)).status == 201
    assert (await posd.call("PUT", f"/transactions/{identity}", request | {"metadata": {}})).status == 409
    callback = terminal.requests[-1].callback
    operation = {"type": "CHARGE", "metadata": {"m": MARKS["event_metadata"]}, "events_webhook_url": callback}
    for status, previous in APPROVED:
        changes: dict[str, Any] = {"operation": operation}
        if status == "APPROVAL":
            changes["raw_response"] = RECEIPT
        content = body(identity, status, previous, **changes)
        assert await deliver(callback, content, posd.ca) == 200
        assert await deliver(callback, content, posd.ca) == 200
    assert (await posd.outcome(identity))["result"] == "approved"
    other = {"operation": operation, "raw_response": RECEIPT | {"transaction_reference": str(uuid4())}}
    assert await deliver(callback, body(identity, "APPROVAL", "APPROVAL_REQUESTED", **other), posd.ca) == 200
    return identity


async def troubled(posd: Daemon, terminal: ScriptedTerminal) -> None:  # noqa: F811
    """Send invalid replies of a terminal, and bodies that posd refuses."""

    async def refuse(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(422, json.dumps({"error": MARKS["refusal"]}).encode()))

    async def no_http(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{MARKS['no_http']}: {MARKS['no_http']}\r\n\r\n".encode())

    async def odd(request: Request, writer: asyncio.StreamWriter) -> None:
        mark = MARKS["reply_header"]
        reply = http(200, json.dumps({"status": "QUEUED", "metadata": request.json["metadata"]}).encode())
        writer.write(reply.replace(b"\r\n", f"\r\nX-Mark: {mark}\r\nSet-Cookie: a={mark}\r\n".encode(), 1))

    async def found(_request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(http(200, json.dumps([{"who": MARKS["search_reply"]}, MARKS["search_reply"]]).encode()))

    terminal.search = found
    for script in (refuse, no_http, odd, None):
        terminal.start = script
        identity = str(uuid4())
        request = {"amount": AMOUNT, "metadata": {"reference": MARKS["metadata"]}}
        assert (await posd.call("PUT", f"/transactions/{identity}", request)).status == 201
        callback = terminal.requests[-1].callback
        mark = MARKS["broken_event"]
        broken = [
            (f'{{"{mark}": "{mark}"', 400),
            (json.dumps({mark: mark, "status": {mark: mark}}), 400),
            (body(identity, "DECLINED", merchant_id="M-2", note=MARKS["foreign_event"]).decode(), 403),
            (mark * 100_000, 413),
        ]
        for content, status in broken:
            assert await deliver(callback, content.encode(), posd.ca) == status
        await posd.call("POST", f"/transactions/{identity}/reconcile")
        await posd.call("POST", f"/transactions/{identity}/abort")
        person = {"operator": MARKS["operator"], "note": MARKS["note"]}
        await posd.call("POST", f"/transactions/{identity}/release", person)
        for call, more in (("resolve", {"result": "declined"}), ("acknowledge", {"code": "quarantined_event"})):
            path = f"/transactions/{identity}/{call}"
            await posd.call("POST", path, person | more, socket=posd.admin_socket)
        failed = {"failure_reason": {"type": "T", "code": "51", "message": MARKS["failure"]}}
        assert await deliver(callback, body(identity, "DECLINED", "APPROVAL_REQUESTED", **failed), posd.ca) == 200
    assert (await posd.call("GET", "/quarantine", socket=posd.admin_socket)).json["quarantine"]
    assert (await posd.call("POST", "/reprocess", socket=posd.admin_socket)).status == 200


async def printed(posd: Daemon, terminal: ScriptedTerminal) -> None:  # noqa: F811
    """Run print jobs with marked texts. One job fails with a text of the terminal."""
    for number in range(2):
        job = str(uuid4())
        request = {"document": {"lines": [MARKS["document"]]}, "external_reference": MARKS["external_reference"]}
        assert (await posd.call("PUT", f"/print-jobs/{job}", request)).status == 201
        callback = terminal.prints[-1].print_callback
        assert await deliver(callback, f'{{"{MARKS["broken_print"]}": 1'.encode(), posd.ca) == 400
        failed = {
            "printJobId": job,
            "externalReference": MARKS["external_reference"],
            "status": "FAILED",
            "errorCode": "NO_PAPER",
            "errorMessage": MARKS["print_error"],
        }
        if number:
            assert await deliver(callback, json.dumps(failed).encode(), posd.ca) == 200
        else:
            await posd.log_line("print.poll", print_job=job)
            person = {"operator": MARKS["operator"], "note": MARKS["note"], "status": "FAILED", "result": "failed"}
            await posd.call("POST", f"/print-jobs/{job}/resolve", person, socket=posd.admin_socket)


async def called_wrongly(posd: Daemon) -> None:
    """Send a till's invalid requests with secrets."""
    for method in ("GET", "PUT", "POST", "PATCH"):
        for path in (
            f"/transactions/{quote(MARKS['path'])}",
            f"/{quote(MARKS['path'])}?{MARKS['query_name']}={quote(MARKS['query'])}",
            f"/transactions?metadata.{MARKS['query_name']}={quote(MARKS['query'])}",
            f"/transactions?{MARKS['query_name']}={quote(MARKS['query'])}",
            f"/transactions/{uuid4()}?x={quote(MARKS['query'])}",
        ):
            for content in (
                f'{{"metadata": "{MARKS["broken_request"]}"'.encode(),
                json.dumps({MARKS["unknown_field"]: MARKS["unknown_field"], "amount": MARKS["unknown_field"]}).encode(),
                MARKS["broken_request"].encode() * 20_000,
            ):
                sent = {"x-mark": MARKS["till_header"], "authorization": f"Bearer {MARKS['till_header']}"}
                reply = await posd.call(method, path, content, headers=sent)
                assert reply.status in (200, 400, 404, 405, 413, 422, 503), reply.body


async def disturbed(posd: Daemon) -> None:
    """Send requests of strangers on the LAN."""
    path, query = MARKS["stranger_path"], MARKS["stranger_query"]
    mark = MARKS["stranger_header"]
    for where in (
        f"/webhooks/transactions/{uuid4()}/{MARKS['wrong_token']}",
        f"/webhooks/print_jobs/{path}/{MARKS['wrong_token']}",
        f"/{path}?{query}={query}",
        f"/{path}/%ff%00%1b?{query}",
    ):
        request = post(f"https://{MARKS['stranger_host']}{where}", MARKS["stranger_body"].encode())
        request = request.replace(b"\r\n", f"\r\nX-{mark}: {mark}\r\nCookie: {mark}\r\n".encode(), 1)
        assert await send(posd.port, posd.ca, request)
    for raw in (
        f"{MARKS['stranger_bytes']} " * 50,
        f"GET /{path} HTTP/9.9\r\n{mark}\r\n\r\n",
        f"X{mark}: {mark}\r\n\r\n",
    ):
        assert await send(posd.port, posd.ca, raw.encode()) is not None
        reader, writer = await asyncio.open_connection("127.0.0.1", posd.port)  # without TLS
        writer.write(raw.encode())
        await reader.read()
        writer.close()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(
        "127.0.0.1", posd.port, ssl=context, server_hostname=MARKS["server_name"].replace("_", "-")
    )
    writer.close()


async def failing(posd: Daemon, terminal: ScriptedTerminal, callback: str) -> None:  # noqa: F811
    """Cause faults of posd itself, with values in their messages."""
    request = {"amount": AMOUNT, "metadata": {"reference": MARKS["metadata"]}}
    reply = await posd.call("PUT", f"/transactions/{uuid4()}", request)
    assert (reply.status, reply.json["code"]) == (500, "internal_error")
    told = await posd.log_line("posd.internal_error", error_id=reply.json["error_id"])
    assert told["exception"][0]["type"] == "ValueError"
    assert await deliver(callback, json.dumps({"x": MARKS["broken_event"]}).encode(), posd.ca) == 500
    await terminal.unplug()


def faulty(directory: Path) -> dict[str, str]:
    """Return the environment that causes the faults in the daemon."""
    (directory / "faults").mkdir()
    (directory / "faults" / "sitecustomize.py").write_text(FAULTS)
    return {"PYTHONPATH": f"{directory / 'faults'}:{Path.cwd()}", "POSD_TEST_FAULT": MARKS["fault"]}


@pytest.mark.slow
async def test_no_secret_value_and_no_token_is_in_the_log(
    home: Path,  # noqa: F811
    terminal: ScriptedTerminal,  # noqa: F811
    configured: str,
) -> None:
    async with running(home, configured, DEBUG) as posd:
        identity = await paid(posd, terminal)
        await troubled(posd, terminal)
        await printed(posd, terminal)
        await called_wrongly(posd)
        await disturbed(posd)
        backup = {"path": str(home / "state" / "copy.db")}
        assert (await posd.call("POST", "/backup", backup, socket=posd.admin_socket)).status == 200
        terminal.start = None
        await posd.call("PUT", f"/transactions/{uuid4()}", {"amount": AMOUNT, "metadata": {"m": MARKS["metadata"]}})
        lines = list(posd.lines)
        await posd.restart()
        assert (await posd.transaction(identity))["phase"] == "final"
        await posd.stop()
        lines += posd.lines
        posd.environment = faulty(home)
        await posd.start()
        await failing(posd, terminal, terminal.requests[0].callback)
        await posd.stop()
        lines += posd.lines
        posd.lines = []  # the test has caused these faults

    secrets = Secrets(MARKS)
    secrets.add_key(home / "state" / "callback.key")
    secrets.add_callbacks("callback", (item.callback for item in terminal.requests if item.method == "POST"))
    secrets.add_callbacks("print callback", (item.print_callback for item in terminal.prints))
    sent = terminal.requests[0].headers
    assert {sent["x-value"], sent["x-file"], sent["x-credential"]} <= set(MARKS.values())
    assert len(secrets.values) > len(PLACES) + 8
    assert secrets.found_in(lines) == []
    events = {line["event"] for line in lines}
    assert not [line for line in lines if "dropped" in line]
    assert "not json" not in events
    assert events <= EVENTS.keys()
    assert (
        not {name for line in lines for name in line}
        - FIELDS
        - {*("timestamp", "level", "event", "logger", "exception")}
    )
    assert events >= {
        *("payment.started", "payment.answered", "payment.outcome", "payment.attention", "payment.search"),
        *("payment.operator", "webhook.event", "webhook.quarantined", "webhook.too_large", "listener.refused"),
        *("print.started", "print.answered", "print.outcome", "print.poll", "webhook.print", "store.backup"),
        *("store.reprocessed", "posd.internal_error", "posd.library", "payment.taken_over"),
    }


@pytest.mark.parametrize("form", range(9))
def test_a_secret_value_is_found_in_any_form(form: int) -> None:
    """This test shows that the search of the test above can fail."""
    text = list(forms(MARKS["metadata"]))[form]
    assert Secrets(MARKS).found_in([{"event": "x", "detail": f"before {text} after"}])
    assert not Secrets(MARKS).found_in([{"event": "x", "detail": "nothing of it"}])


def test_the_search_for_secrets_also_finds_the_tokens_of_callback_urls() -> None:
    url = "https://10.0.0.1:8443/webhooks/transactions/x/c2VjcmV0LXRva2Vu"
    secrets = Secrets({})
    secrets.add_requests([json.dumps({"events_webhook_url": url}), json.dumps({"webhookUrl": url})])
    assert len(secrets.values) == 2
    assert secrets.found_in([{"event": "x", "detail": f"POST {urlsplit(url).path}"}])


@pytest.mark.parametrize(
    "toml",
    [
        '[terminal_defaults]\nheaders = {{X-Key = "{mark}\\u0001"}}\n',
        '[terminal_defaults]\nheaders = {{X-Key = ["{mark}"]}}\n',
        '[terminal_defaults]\nheaders = {{X-Key = {{value = "{mark}"}}}}\n',
    ],
)
async def test_a_wrong_header_is_reported_without_its_value(home: Path, toml: str) -> None:  # noqa: F811
    mark = MARKS["header_value"]
    daemon = Daemon(home, toml.format(mark=mark))
    code, said = await daemon.cannot_start()
    assert code == 2
    assert "X-Key" in said
    assert mark not in said

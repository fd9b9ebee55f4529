"""Callbacks that HTTP allows in another form are taken; those that the HTTP parser refuses leave a trace."""

import asyncio
import json
import re
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.e2e.conftest import some
from tests.support.daemon import NO_TLS
from tests.support.events import body
from tests.support.prints import SILENT, Printer
from tests.support.shop import Payment, Shop
from tests.support.webhooks import answer_to, attention, disk, recorded

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Of the printer: it is asked at once where a webhook is lost, and not before.
POLLING = SILENT

ACK = "TERMINAL_ACKNOWLEDGED"


def request(target: str, content: bytes, *, line: str = "POST {} HTTP/1.1", fields: str = "host: posd\r\n") -> bytes:
    """Return a request; `line` and `fields` may break HTTP."""
    head = f"{line.format(target)}\r\n{fields}content-length: {len(content)}\r\nconnection: close\r\n\r\n"
    return head.encode("latin-1") + content


def path(payment: Payment) -> str:
    """Return the path of the payment's callback address."""
    return urlsplit(payment.requests[0].callback).path


@pytest.mark.parametrize(
    "authority", ["https://localhost", "http://192.0.2.7:1", "HTTPS://user@stranger.example:99999"]
)
async def test_a_target_in_absolute_form_is_taken_whatever_its_authority(shop: Shop, authority: str) -> None:
    payment = await shop.started()
    content = body(payment.identity, "TERMINAL_CANCELED", ACK, payment.serial)
    answer = await answer_to(shop.daemon, request(f"{authority}{path(payment)}?retry=1", content))
    assert answer.status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]


async def test_a_till_may_call_in_absolute_form_too(shop: Shop) -> None:
    reader, writer = await asyncio.open_unix_connection(str(shop.daemon.till_socket))
    writer.write(b"GET http://stranger.example/v1/version HTTP/1.1\r\nhost: posd\r\nconnection: close\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200")
    writer.close()


#: What breaks HTTP though path and token are right, and the kind that it is counted as.
BROKEN: dict[str, tuple[dict[str, Any], int, str]] = {
    "a space in a name": ({"fields": "host: posd\r\nx y: z\r\n"}, 400, "malformed_request"),
    "a space behind a name": ({"fields": "host : posd\r\n"}, 400, "malformed_request"),
    "a bare LF": ({"fields": "host: posd\nx: y\r\n"}, 400, "malformed_request"),
    "a bare LF behind the line": ({"line": "POST {} HTTP/1.1\nx: y"}, 400, "malformed_request"),
    "no Host": ({"fields": ""}, 400, "malformed_request"),
    "two Hosts": ({"fields": "host: a\r\nhost: b\r\n"}, 400, "malformed_request"),
    "another version": ({"line": "POST {} HTTP/3.7"}, 400, "malformed_request"),
    "a method in small letters": ({"line": "post {} HTTP/1.1"}, 400, "malformed_request"),
    "two lengths": ({"fields": "host: posd\r\ncontent-length: 1\r\n"}, 400, "malformed_request"),
    "a broken chunk": ({"fields": "host: posd\r\ntransfer-encoding: chunked\r\n"}, 400, "malformed_request"),
    "another coding": ({"fields": "host: posd\r\ntransfer-encoding: gzip\r\n"}, 501, "unsupported_request"),
    "a header of 20 KiB": ({"fields": f"host: posd\r\nx: {'y' * 20_000}\r\n"}, 431, "large_head"),
    "absolute-form": ({"fields": "", "line": "POST https://posd{} HTTP/1.1"}, 400, "malformed_request"),
}


async def count(shop: Shop, kind: str) -> int:
    """Return how many of a kind the listener has turned away."""
    transport = httpx2.AsyncHTTPTransport(uds=str(shop.daemon.till_socket), verify=NO_TLS)
    async with httpx2.AsyncClient(transport=transport) as client:
        figures = (await client.get("http://posd/metrics")).text
    found = re.search(rf'^posd_listener_noise_total{{kind="{kind}"}} (\d+)', figures, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.parametrize(
    "name", some(BROKEN, "a space in a name", "no Host", "a broken chunk", "a method in small letters")
)
async def test_what_the_parser_refuses_is_counted_and_its_payment_is_asked_for(shop: Shop, name: str) -> None:
    broken, status, kind = BROKEN[name]
    payment = await shop.started()
    before = await count(shop, kind)
    searches = len(payment.searches)
    content = b"zz\r\n" if name == "a broken chunk" else body(payment.identity, "APPROVAL", ACK, payment.serial)
    answer = await answer_to(shop.daemon, request(path(payment), content, **broken))
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert await count(shop, kind) == before + 1
    document = await payment.get()
    assert (document["phase"], attention(document)) == ("active", {"quarantined_event"})
    await payment.searched(searches + 1)
    line = await shop.daemon.log_line("webhook.unreadable", transaction=payment.identity)
    assert (line["peer"], path(payment).rsplit("/", 1)[1] in json.dumps(shop.daemon.lines)) == ("127.0.0.1", False)


async def test_what_the_parser_refuses_again_and_again_is_recorded_once(shop: Shop) -> None:
    payment = await shop.started()

    def changes() -> int:
        with disk(shop.daemon) as db:
            return int(
                db.execute(
                    "SELECT count(*) FROM journal WHERE client_transaction_id = ?", (payment.identity,)
                ).fetchone()[0]
            )

    sent = [request(path(payment), b"", fields=fields) for fields in ("", "transfer-encoding: gzip\r\nhost: a\r\n")]
    assert [(await answer_to(shop.daemon, one)).status for one in sent] == [400, 501]
    before = changes()
    assert {(await answer_to(shop.daemon, one)).status for one in sent * 3} == {400, 501}
    assert changes() <= before + 1  # a search may have come in


async def test_a_stranger_whose_request_is_none_leaves_a_count_alone(shop: Shop) -> None:
    before = await count(shop, "malformed_request")
    answer = await answer_to(shop.daemon, request("/webhooks/transactions/x/y", b"", fields=""))
    assert (answer.status, await count(shop, "malformed_request")) == (400, before + 1)


async def test_a_print_webhook_that_the_parser_refuses_is_followed_by_a_poll(printer: Printer) -> None:
    job = await printer.job().started()
    polls = len(job.polls)
    answer = await answer_to(printer.daemon, request(job.address, b"{}", fields="host : posd\r\n"))
    assert answer.status == 400
    await job.polled(polls + 1)

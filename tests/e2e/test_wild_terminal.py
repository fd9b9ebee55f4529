"""A terminal that breaks the rules. Each body gets the reply of its row in the reply table, and nothing is lost."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.events import body, event
from tests.support.https import send
from tests.support.shop import Payment, Shop
from tests.support.webhooks import Answer, attention, chunked, deliver, faults, parse, recorded

pytestmark = pytest.mark.asyncio(loop_scope="module")

REQUESTED = "APPROVAL_REQUESTED"


@pytest.fixture(scope="module", autouse=True)
def no_faults(shop: Shop) -> Iterator[None]:
    """Check after all these tests that the daemon's log has no internal fault."""
    yield
    assert [line for line in faults(shop.daemon) if line["event"] != "payment.attention"] == []


def approval(payment: Payment, **changes: Any) -> dict[str, Any]:
    """Return the approval of a payment as a document."""
    return event(payment.identity, "APPROVAL", REQUESTED, payment.serial, **changes)


async def hand_in(payment: Payment, content: bytes) -> Answer:
    """Deliver bytes to the payment's own callback URL."""
    return await deliver(payment.shop.daemon, payment.requests[0].callback, content)


async def still_works(payment: Payment) -> None:
    """Deliver the payment's events as a correct terminal does."""
    content = body(payment.identity, "TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED", payment.serial)
    assert (await hand_in(payment, content)).status == 200
    assert (await payment.get())["outcome"]["result"] == "canceled"


@pytest.mark.parametrize("framing", ["content-length", "chunked in small pieces"])
async def test_a_body_of_ten_megabytes_is_refused_with_a_response(shop: Shop, framing: str) -> None:
    payment = await shop.started()
    content = json.dumps(approval(payment, x="y" * 10_000_000)).encode()
    if framing == "content-length":
        answer = await hand_in(payment, content)
    else:
        answer = await chunked_post(payment, chunked(content, 1000))
    assert answer.status == 413
    assert attention(await payment.get()) == {"quarantined_event"}
    assert recorded(shop.daemon, payment.identity) == []
    await still_works(payment)


async def test_a_chunked_event_is_accepted(shop: Shop) -> None:
    payment = await shop.started()
    content = json.dumps(approval(payment)).encode()
    assert (await chunked_post(payment, chunked(content, 7))).status == 200
    assert recorded(shop.daemon, payment.identity) == [("applied", content)]


async def chunked_post(payment: Payment, coded: bytes) -> Answer:
    """Deliver a body in the chunked transfer coding, without a length."""
    path = "/" + payment.requests[0].callback.split("/", 3)[3]
    head = f"POST {path} HTTP/1.1\r\nhost: posd\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    daemon = payment.shop.daemon
    (answer,) = parse(await send(daemon.port, daemon.ca, head.encode() + coded))
    return answer

"""A terminal with `webhook_signature`. posd keeps a wrongly signed event, does not apply it, and searches."""

import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from uuid import uuid4

import pytest

from tests.rig.daemon import Daemon, running
from tests.rig.events import body, event
from tests.rig.prints import SILENT, Job, knowing
from tests.rig.shop import QUIET, Held, Payment, Shop
from tests.rig.shop import knowing as found
from tests.rig.streams import Reply
from tests.rig.terminal import scripted_terminal
from tests.rig.webhooks import address, attention, deliver, quarantined, recorded

SIGNING, PLAIN = "SN-SIGNING", "SN-PLAIN"
SECRET = "whs-example-0001"


def hexadecimal(content: bytes, secret: str = SECRET) -> str:
    """Return a signature header of the scheme wh-secret-body-hex."""
    return f"X-Kushki-Signature: {hmac.digest(secret.encode(), content, hashlib.sha256).hex()}\r\n"


@dataclass
class Two:
    """A daemon and two terminals. One terminal signs its webhooks."""

    daemon: Daemon
    signing: Shop
    plain: Shop
    secret: Path

    @property
    def text(self) -> str:
        """The first configuration, with the daemon's real port."""
        return self.daemon.config.replace("127.0.0.1:0", f"127.0.0.1:{self.daemon.port}")

    async def started(self, shop: Shop) -> Payment:
        """Return an acknowledged payment of the shop's terminal."""
        payment = Payment(shop, str(uuid4()), shop.terminal.serial)
        assert (await payment.put()).status == 201
        return payment

    async def deliver(self, payment: Payment, content: bytes, headers: str = "") -> int:
        """Deliver these bytes and headers to the payment's callback URL. Return the HTTP status."""
        return (await deliver(self.daemon, payment.requests[0].callback, content, headers=headers)).status

    def job(self, shop: Shop) -> Job:
        return Job(self.daemon, shop.terminal, f"job-{uuid4()}")


@asynccontextmanager
async def two(home: Path, signature: str = "wh-secret-body-hex") -> AsyncIterator[Two]:
    secret = home / "webhook-secret"
    secret.write_text(SECRET)
    setting = f'webhook_signature = "{signature}"\nwebhook_secret = {{file = "{secret}"}}\n'
    async with (
        scripted_terminal(home, SIGNING) as one,
        scripted_terminal(home, PLAIN) as other,
        running(home, one.toml + setting + other.toml, QUIET + SILENT) as daemon,
    ):
        shops = [Shop(daemon, item, repeat(item.serial)) for item in (one, other)]
        yield Two(daemon, *shops, secret)


@pytest.fixture
async def shops(home: Path) -> AsyncIterator[Two]:
    async with two(home) as shops:
        yield shops


async def test_an_event_is_applied_only_with_the_right_signature_and_is_never_lost(shops: Two) -> None:
    posd = shops.daemon
    payment = await shops.started(shops.signing)
    taken = body(payment.identity, "TERMINAL_ACKNOWLEDGED", None, SIGNING)
    assert await shops.deliver(payment, taken, hexadecimal(taken)) == 200
    assert await shops.deliver(payment, taken) == 200, "posd does not record the event again"
    before = await payment.get()
    assert (before["phase"], attention(before)) == ("active", set())

    # The event has no signature, a signature of another body, or a signature with another secret. posd refuses and
    # keeps the event, and searches at once.
    search = shops.signing.terminal.search = Held(found(event(payment.identity, "APPROVAL", None, SIGNING)))
    bodies = [body(payment.identity, "APPROVAL", None, SIGNING) for _ in range(3)]
    wrong = ["", hexadecimal(taken), hexadecimal(bodies[2], "another")]
    for content, headers in zip(bodies, wrong, strict=True):
        assert await shops.deliver(payment, content, headers) == 403
    await search.arrived.wait()
    refused = await payment.get()
    assert (refused["phase"], refused["status"], refused["outcome"]) == ("active", before["status"], None)
    assert attention(refused) == {"quarantined_event"}
    assert recorded(posd, payment.identity) == [("applied", taken)]
    reasons, kept = zip(*quarantined(posd, payment.identity), strict=True)
    assert list(kept) == bodies
    assert [reason.partition(";")[0] for reason in reasons] == [
        "it has no signature (no usable header kushki-signature or x-kushki-signature)",
        "its signature is wrong",
        "its signature is wrong",
    ]
    assert f'terminal {SIGNING} has webhook_signature = "wh-secret-body-hex"' in reasons[0]

    # posd also refuses an unsigned body that names the other terminal, which needs no signature.
    other = body(payment.identity, "APPROVAL", None, PLAIN)
    assert await shops.deliver(payment, other) == 403
    # posd finds the refused events by the search.
    search.release.set()
    assert (await posd.outcome(payment.identity))["evidence"][0]["kind"] == "search"

    # The other terminal needs no signature. Commissioning reports which terminal signs.
    for serial, kind in ((SIGNING, "wh-secret-body-hex"), (PLAIN, "")):
        asked = await posd.call("POST", f"/terminals/{serial}/probe", socket=posd.admin_socket)
        assert asked.json["webhook_signature"] == kind
    payment = await shops.started(shops.plain)
    assert await shops.deliver(payment, body(payment.identity, "CARD_PRESENTED", None, SIGNING)) == 200
    assert await shops.deliver(payment, body(payment.identity, "APPROVAL", None, PLAIN)) == 200
    assert "serial_mismatch" in attention(await payment.get())


async def test_for_an_unknown_payment_the_terminal_in_the_body_decides_on_the_signature(shops: Two) -> None:
    posd = shops.daemon

    async def orphan(serial: str, *, signed: bool) -> tuple[Reply, str]:
        identity = str(uuid4())
        content = body(identity, "DECLINED", None, serial)
        headers = hexadecimal(content) if signed else ""
        return await deliver(posd, address(posd, identity), content, headers=headers), identity

    refused, unknown = await orphan(SIGNING, signed=False)
    assert (refused.status, len(quarantined(posd, unknown))) == (403, 1)
    assert (await posd.call("GET", f"/transactions/{unknown}")).status == 404
    for serial, signed in ((SIGNING, True), (PLAIN, False)):
        taken, identity = await orphan(serial, signed=signed)
        assert taken.status == 200
        assert (await posd.outcome(identity))["result"] == "declined"


@pytest.mark.slow
async def test_print_webhooks_must_be_signed_too(shops: Two) -> None:
    posd, terminal = shops.daemon, shops.signing.terminal
    job = await shops.job(shops.signing).started(terminal=SIGNING)
    content = job.words("FAILED")
    assert (await job.call(content)).status == 403
    await job.polled()
    document = await job.get()
    assert (document["phase"], attention(document), job.kept) == ("active", {"quarantined_event"}, [])
    assert [kept for _, kept in quarantined(posd, job.identity)] == [content]
    done = job.words("COMPLETED")
    assert (await job.call(done, headers=hexadecimal(done))).status == 200
    assert (await job.outcome())["status"] == "COMPLETED"
    asked = await shops.job(shops.signing).started(terminal=SIGNING)
    terminal.print_poll = knowing(asked, status="COMPLETED")
    assert (await asked.call(asked.words("FAILED"), headers="X-Kushki-Signature: 0\r\n")).status == 403
    assert (await asked.outcome())["decided_by"] == "poll"
    plain = await shops.job(shops.plain).started(terminal=PLAIN)
    assert await plain.webhook() == 200


async def test_the_headers_of_each_terminals_first_callback_are_logged(shops: Two) -> None:
    posd = shops.daemon
    payment = await shops.started(shops.plain)
    for _ in range(2):
        content = body(payment.identity, "CARD_PRESENTED", None, PLAIN)
        assert await shops.deliver(payment, content, f"Signature: hunter2\r\n{'Y' * 70}: hunter2\r\n") == 200
    signing = await shops.started(shops.signing)
    assert await shops.deliver(signing, body(signing.identity, "CARD_PRESENTED", None, SIGNING)) == 403
    job = await shops.job(shops.plain).started(terminal=PLAIN)
    assert await job.webhook() == 200
    await posd.log_line("webhook.headers", terminal=PLAIN, kind="print-jobs")
    lines = [line for line in posd.lines if line["event"] == "webhook.headers"]
    assert [(line["terminal"], line["kind"]) for line in lines] == [
        (PLAIN, "transactions"),
        (SIGNING, "transactions"),
        (PLAIN, "print-jobs"),
    ]
    assert lines[0]["detail"] == f"host, content-type, signature, {'y' * 64}, connection, content-length"
    assert "hunter2" not in str(posd.lines)

"""A wrong clock of the machine. The daemon deletes nothing and makes no certificate, and payments continue."""

import shutil
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trustme

from posd.base.times import iso, parse_iso
from tests.e2e.test_certificates import shown
from tests.rig.certificates import LATER
from tests.rig.daemon import Daemon, running
from tests.rig.events import body
from tests.rig.faketime import FakeTime
from tests.rig.needs import needs
from tests.rig.shop import AMOUNT, Payment, Shop, acknowledging, open_shop
from tests.rig.streams import Reply
from tests.rig.tables import there
from tests.rig.terminal import scripted_terminal

pytestmark = needs("faketime")

AHEAD = 500.0  # days. The certificate has then expired, and the CA is still valid
HOUR = timedelta(hours=1)
BY_ANA = {"operator": "Ana", "note": "compared with the church tower"}


@pytest.fixture
def clock(home: Path) -> FakeTime:
    return FakeTime(home / "clock")


@pytest.fixture
async def shop(home: Path, clock: FakeTime) -> AsyncIterator[Shop]:
    async with open_shop(home, environment=clock.environment) as shop:
        yield shop


async def admin(posd: Daemon, method: str, path: str, content: Any = None) -> Reply:
    return await posd.call(method, path, content, socket=posd.admin_socket)


async def health(posd: Daemon) -> Any:
    """Return the health check of the clock. Check that the clock does not turn `/health` to failing."""
    reply = await posd.call("GET", "/health")
    assert reply.status == 200, reply.body
    return reply.json["checks"]["clock"]


async def metric(posd: Daemon) -> str:
    (line,) = (line for line in (await posd.metrics()).splitlines() if line.startswith("posd_clock_unsure "))
    return line.split()[1]


async def unsure(posd: Daemon, reason: str) -> None:
    """Check that all outputs report an untrusted clock."""
    check = await health(posd)
    assert (check["status"], check["reason"]) == ("degraded", reason)
    assert "posd clock confirm" in check["todo"]
    assert await metric(posd) == "1"
    state = (await admin(posd, "GET", "/clock")).json
    assert (state["sure"], state["reason"]) == (False, reason)
    assert state["detail"][:15] == check["detail"][:15]  # the seconds differ between two reads of the clock
    assert state["waiting"]


async def sure(posd: Daemon) -> None:
    assert (await health(posd))["status"] == "ok"
    assert await metric(posd) == "0"
    state = (await admin(posd, "GET", "/clock")).json
    assert (state["sure"], state["reason"], state["todo"], state["waiting"]) == (True, None, "", [])


async def paid(shop: Shop) -> Payment:
    payment = await shop.started()
    await payment.approve()
    assert (await payment.get())["outcome"]["result"] == "approved"
    return payment


async def prune(posd: Daemon, days: int) -> Reply:
    return await admin(posd, "POST", "/prune", {"older_than_days": days})


async def looked_at_the_certificate(posd: Daemon) -> None:
    """Wait until posd has checked whether to renew its certificate."""
    for _ in range(2):  # the second check begins after the end of the first check
        lines = len(posd.lines)
        there(posd.process).send_signal(signal.SIGHUP)
        await posd.log_line("certificate.loaded", after=lines)


async def served(posd: Daemon) -> str:
    """Return the fingerprint of posd's served certificate, which a terminal may refuse."""
    check = (await posd.call("GET", "/health")).json["checks"]["certificate"]
    return str(check["served"]["fingerprint_sha256"])


async def ages_of_what_this_process_did(posd: Daemon, **ahead: float) -> timedelta:
    """Return the age of posd's start or of its configuration, whichever is greater. `ahead`: lead of the clock."""
    found = (await admin(posd, "GET", "/status")).json
    now = datetime.now(UTC) + timedelta(**ahead)
    return max(abs(now - parse_iso(at)) for at in (found["started_at"], found["configuration"]["loaded_at"]))


async def test_a_clock_briefly_ahead_deletes_nothing_and_makes_no_certificate(shop: Shop, clock: FakeTime) -> None:
    posd = shop.daemon
    before, certificate = await paid(shop), await shown(posd)
    await sure(posd)

    clock.move(days=AHEAD)
    refused = await prune(posd, 30)
    assert (refused.status, refused.json["code"]) == (503, "clock_unsure")
    assert "posd clock confirm" in refused.json["detail"]
    assert (await admin(posd, "POST", "/prune", {"older_than_days": 30, "dry_run": True})).json["removed"][
        "transactions"
    ] == 0
    await unsure(posd, "stepped_ahead")
    in_time = shop.payment()
    reply = await in_time.put(not_after=iso(datetime.now(UTC) + timedelta(days=2 * AHEAD)))
    assert (reply.status, reply.json["code"]) == (503, "clock_unsure"), "posd cannot tell if `not_after` has passed"
    assert in_time.requests == []
    meanwhile = await paid(shop)
    await looked_at_the_certificate(posd)
    assert await shown(posd) == certificate
    assert await ages_of_what_this_process_did(posd, days=AHEAD) < HOUR

    clock.move()
    assert await ages_of_what_this_process_did(posd) < HOUR, "posd loaded the configuration under the wrong clock"
    await sure(posd)
    assert (await prune(posd, 30)).json["removed"]["transactions"] == 0
    for payment in (before, meanwhile):
        assert (await payment.get())["outcome"]["result"] == "approved"
    await looked_at_the_certificate(posd)
    assert await shown(posd) == certificate
    assert not [line for line in posd.lines if line["event"] == "certificate.renewed"]


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, -2000)])
async def test_a_till_keeps_a_payment_that_a_database_lost_while_the_clock_was_wrong(
    shop: Shop, clock: FakeTime, home: Path, before: int, after: int
) -> None:
    """Two cases: the clock was ahead when posd stored the payment, or is behind when posd detects the older
    database."""
    posd = shop.daemon
    await posd.stop()
    shutil.copy2(posd.database, home / "old.db")
    clock.move(hours=before)
    await posd.start()
    await shop.started()
    await posd.stop()
    shutil.copy2(home / "old.db", posd.database)
    clock.move(hours=after)
    await posd.start()
    problem = (await shop.payment().put()).json
    assert (problem["code"], problem["never_started"]) == ("restore_unseen", False)
    stored_at = datetime.now(UTC) + HOUR * before + HOUR  # the lost payment is an hour younger than the known payment
    assert parse_iso(problem["records_missing_until"]) > stored_at


@pytest.mark.slow
async def test_a_person_confirms_the_clock(shop: Shop, clock: FakeTime) -> None:
    posd = shop.daemon
    old = await paid(shop)
    clock.move(days=AHEAD)
    assert (await prune(posd, 30)).json["code"] == "clock_unsure"
    for content, path in (({}, "/operator"), ({"operator": "Ana", "why": 1}, "/why"), ({"operator": ""}, "/operator")):
        refused = await admin(posd, "POST", "/clock/confirm", content)
        assert (refused.status, [error["path"] for error in refused.json["errors"]]) == (422, [path])
    assert (await posd.call("POST", "/clock/confirm", BY_ANA)).json["code"] == "forbidden"
    said = (await admin(posd, "POST", "/clock/confirm", BY_ANA)).json
    assert (said["sure"], said["confirmation"]["operator"]) == (True, "Ana")
    await posd.log_line("certificate.loaded")  # for this clock, the previous certificate has expired
    await sure(posd)
    await posd.restart()
    await sure(posd)
    assert (await admin(posd, "GET", "/clock")).json["confirmation"]["note"] == BY_ANA["note"]
    assert (await prune(posd, 30)).status == 200
    assert (await old.get())["code"] == "pruned", "retention removes it, in this run or in the run at the start"

    clock.move()  # the confirmed clock was wrong
    await unsure(posd, "behind")
    assert (await admin(posd, "POST", "/clock/confirm", {"operator": "Ana"})).json["sure"] is True
    await posd.restart()
    await sure(posd)


@pytest.mark.slow
async def test_impossible_times_of_terminals_change_nothing(shop: Shop) -> None:
    posd = shop.daemon
    for moment in ("9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "yesterday", "2099-01-01T00:00:00Z", "1e999"):
        payment = await shop.started()
        assert await payment.event("APPROVAL", occurred_at=moment) == 200
    await sure(posd)


@pytest.mark.slow
async def test_one_terminal_that_pretends_to_be_several_does_not_confirm_the_clock(shop: Shop, clock: FakeTime) -> None:
    posd, serial = shop.daemon, "SN-001"
    clock.move(days=AHEAD)
    moment = iso(datetime.now(UTC) + timedelta(days=AHEAD))
    shop.terminal.start = acknowledging(serial)
    for named in (serial, serial, "SN-002"):
        payment = Payment(shop, str(uuid4()), serial)
        assert (await payment.put()).status == 201
        event = body(payment.identity, "APPROVAL", None, named, occurred_at=moment)
        assert await payment.deliver(event) == 200
    state = (await admin(posd, "GET", "/clock")).json
    assert (state["sure"], state["reason"]) == (False, "stepped_ahead")
    times = state["witnesses"]["terminals"]
    assert (times["payments"], times["terminals"]) == (2, 1), "an event that names another terminal says no time"


@pytest.mark.slow
async def test_the_dates_of_a_certificate_are_checked_only_by_a_trusted_clock(home: Path, clock: FakeTime) -> None:
    def ends_soon(authority: trustme.CA) -> trustme.LeafCert:
        return authority.issue_cert("127.0.0.1", not_after=LATER)

    async with (
        scripted_terminal(home, issue=ends_soon) as terminal,
        running(home, terminal.toml, environment=clock.environment) as posd,
    ):
        clock.move(days=AHEAD)
        identity = str(uuid4())
        started = await posd.call("PUT", f"/transactions/{identity}", {"amount": AMOUNT})
        assert (started.status, started.json["phase"]) == (201, "active"), started.body
        await posd.approve(terminal.requests[0].callback, identity, terminal.serial)
        await unsure(posd, "stepped_ahead")
        assert (await admin(posd, "POST", "/clock/confirm", BY_ANA)).json["sure"] is True
        refused = (await posd.call("PUT", f"/transactions/{uuid4()}", {"amount": AMOUNT})).json
        (evidence,) = refused["outcome"]["evidence"]
        assert (refused["outcome"]["result"], "has expired" in evidence["reason"]) == ("not_started", True)
        clock.move()
        await unsure(posd, "behind")
        started = await posd.call("PUT", f"/transactions/{uuid4()}", {"amount": AMOUNT})
        assert started.json["phase"] == "active", started.body

"""Payments with every kind of outcome, for tests of the daemon's metrics."""

from uuid import uuid4

from tests.rig.events import RESULTS, body, event
from tests.rig.https import deliver
from tests.rig.prints import Job
from tests.rig.shop import Payment, Shop, answering, knowing, quiet
from tests.rig.webhooks import deliver as deliver_to


async def every_outcome(shop: Shop) -> dict[str, Payment]:
    """End a payment in each way. Leave one payment in doubt and one active. Print one job that works and one that
    fails.

    Also make a successful search, an abort, a refused start, a repeated event, a quarantined event, and a stranger's
    event. Return the payments by result. `in_doubt` and `active` are keys too.
    """
    done: dict[str, Payment] = {}
    for status, result in RESULTS.items():
        done[result] = payment = await shop.started()
        if status == "APPROVAL":
            await payment.approve(3)
        final = body(payment.identity, status, "APPROVAL_REQUESTED" if status == "APPROVAL" else None, payment.serial)
        assert await payment.deliver(final) == 200
        if status == "APPROVAL":
            assert await payment.deliver(final) == 200  # the terminal sends the event again, as after a lost reply
        await quiet(shop.daemon)  # posd searches for the events that are missing
    done["not_started"] = refused = shop.payment()
    shop.terminal.start = answering(400, b'{"error":"no"}')
    assert (await refused.put()).json["phase"] == "final"
    done["in_doubt"] = await shop.in_doubt()
    done["active"] = active = await shop.started()
    assert (await Payment(shop, str(uuid4()), active.serial).put()).json["code"] == "terminal_busy"
    shop.terminal.abort = answering(200)
    assert (await active.post("abort")).status == 202
    shop.terminal.search = knowing(event(active.identity, "CARD_PRESENTED", None, active.serial))
    assert (await active.post("reconcile")).status == 200
    assert await active.deliver(b"no event") == 400
    url = active.requests[0].callback
    assert await deliver(f"{url[:-4]}0000", b"{}", shop.daemon.ca) == 403
    for status, code in (("COMPLETED", 200), ("FAILED", 200), ("PRINTED", 200)):
        job = Job(shop.daemon, shop.terminal, f"job-{uuid4()}")
        assert (await job.put(terminal=next(shop.serials))).status == 201
        assert (await deliver_to(shop.daemon, job.address, job.words(status))).status == code
    return done

"""A refused abort leaves no data and no call."""

import asyncio
import json
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from posd.base.limits import CALLS_OF_TRANSACTION, EVENT_BYTES, EVENTS_OF_TERMINAL
from posd.base.operations import OperationType
from posd.base.problems import Problem
from posd.config import load
from posd.payments import journal, rows
from posd.payments.abort import MAX_REPLY_BYTES, Aborts
from posd.payments.answers import NOTHING_RUNNING_STATUS, AbortAnswer
from posd.payments.entries import AbortRequested, Released, Resolved
from posd.payments.model import Result
from posd.records import terminals
from posd.records.quotas import Quotas
from posd.records.service import CallsInFlight, ServiceParts
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.events import body
from tests.rig.shop import answering
from tests.rig.terminal import Request
from tests.services.inside import CHARGE, code_of, composed

WORD = ("Ana", "the slip shows it", 1000)
RELEASED, RESOLVED = Released(*WORD), Resolved(*WORD, Result.DECLINED)
PINNED = '[[terminals]]\nserial = "SN-TEST"\nfingerprint_sha256 = "{pin}"\n'
OTHER = json.dumps({"type": "TERMINAL", "code": "TER-004", "object": {"serial_number": "SN-OTHER"}}).encode()


def now() -> datetime:
    return datetime.now(UTC)


async def test_an_abort_refused_while_the_payment_ends_does_not_hold_the_terminal(tmp_path: Path) -> None:
    """The refusal and the end are in one commit.

    At the moment when the final event frees the terminal, the abort still counts as a call.
    """
    identity = str(uuid4())
    async with composed(tmp_path) as inside:
        await inside.payments.start(identity, CHARGE)
        deliver = partial(inside.inbox.receive, identity, peer="peer")
        assert (await deliver(body(identity, "APPROVAL_REQUESTED", "CARD_PRESENTED"))).result.status == 200
        inside.lock()  # the writer waits for this lock while the two functions queue
        busy = asyncio.create_task(inside.store.write(lambda _unit: True))
        for _ in range(2):  # the call passes its function to the writer, and the writer accepts the function
            await asyncio.sleep(0)
        abort = asyncio.create_task(code_of(inside.aborts.abort(identity, None)))
        await asyncio.sleep(0)
        final = asyncio.create_task(deliver(body(identity, "APPROVAL", "APPROVAL_REQUESTED")))
        await asyncio.sleep(0)
        assert len(inside.store.writer._waiting) == 2
        inside.unlock()
        assert await busy
        assert ((await final).result.status, await abort) == (200, "past_point_of_no_return")
        assert (await inside.store.read(rows.leases), inside.terminal.aborts) == ({}, 0)


@pytest.mark.parametrize(
    ("code", "reason", "configuration", "acknowledged", "reported"),
    [
        ("", "", "{entry}", "SN-TEST", None),
        ("identity_conflict", "says that it is", "{entry}", "SN-TEST", "SN-OTHER"),
        ("not_abortable", "another device", "{entry}", "SN-OTHER", None),
        ("not_abortable", "abortable = false", "{entry}[profile.charge]\nabortable = false\n", "SN-TEST", None),
        ("terminal_offline", "cannot be reached", '[[terminals]]\nserial = "SN-OTHER"\n', "SN-TEST", None),
        ("terminal_offline", "cannot be reached", PINNED, "SN-TEST", None),
        ("terminal_offline", "cannot be reached", "{moved}", "SN-TEST", None),
    ],
)
async def test_an_abort_is_sent_only_to_the_device_that_got_the_start(
    tmp_path: Path, code: str, reason: str, configuration: str, acknowledged: str, reported: str | None
) -> None:
    """An abort carries no id. On another device it would cancel the payment of another customer.

    `configuration`: the configuration after a restart. `acknowledged`: the serial in the reply to the start.
    `reported`: another serial that the device has reported since then.
    """
    identity = str(uuid4())
    async with composed(tmp_path) as inside:
        terminal = inside.terminal
        moved = terminal.entry("SN-TEST", terminal.base_urls[1])
        entry = configuration.format(entry=terminal.toml, moved=moved, pin=terminal.fingerprint)
        (tmp_path / "config.toml").write_text(toml(tmp_path, entry))
        terminal.serial = acknowledged
        await inside.payments.start(identity, CHARGE)
        config = load(tmp_path / "config.toml")
        fleet = Fleet(config.terminals, config.profiles)
        if reported is not None:
            fleet.remember(await inside.store.read(terminals.trusted_ones), {})
            fleet.of("SN-TEST").record_other_identity(terminal.base_url, reported)
        with pytest.raises(Problem, match=reason) if code else nullcontext() as refused:
            await Aborts(ServiceParts(inside.store, fleet, now)).abort(identity, None)
        assert (refused.value.code if refused else "") == code
        assert terminal.aborts == (not code)
        await fleet.close()


@pytest.mark.parametrize(
    ("since", "status", "reply", "code", "probe"),
    [
        ("", 200, b" " * (MAX_REPLY_BYTES + 1), "", AbortAnswer.TAKEN),
        ("", 404, b"", "not_configured", AbortAnswer.NOT_TAKEN),
        ("", NOTHING_RUNNING_STATUS, b"", "nothing_running", AbortAnswer.NOTHING_RUNNING),
        ("", NOTHING_RUNNING_STATUS, OTHER, "nothing_running", AbortAnswer.UNREACHABLE),
        ("the payment ends during the abort", NOTHING_RUNNING_STATUS, b"", "already_final", None),
        ("an operator resolved the payment", 200, b"", "already_final", None),
        ("an operator released the terminal", 200, b"", "not_abortable", None),
        ("the payment no longer holds its terminal", 200, b"", "not_abortable", None),
        ("the payment was not started", 200, b"", "not_found", None),
        ("too many calls", 200, b"", "limit_reached", AbortAnswer.TAKEN),
    ],
)
async def test_the_till_learns_the_effect_of_its_abort(
    tmp_path: Path, since: str, status: int, reply: bytes, code: str, probe: AbortAnswer | None
) -> None:
    """`since`: a change of the payment since its start. `status` and `reply`: the terminal's reply to each abort.

    `probe`: the result of a later abort by posd itself, which no limit stops. None: posd sends no abort.
    """
    identity, during = str(uuid4()), list[str]()
    quotas, calls, sent = Quotas(clock=lambda: 0.0), CallsInFlight(), since in ("", "the payment ends during the abort")
    async with composed(tmp_path) as inside:
        aborts = Aborts(ServiceParts(inside.store, inside.fleet, now, outstanding=calls, quotas=quotas))
        till = inside.till(outstanding=calls)

        async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
            during.append(await code_of(till.decide(identity, RELEASED)))
            if since == "the payment ends during the abort":
                await inside.inbox.receive(identity, body(identity, "TERMINAL_CANCELED"), "peer")
            await answering(status, reply)(request, writer)

        inside.terminal.abort = answer
        if since != "the payment was not started":
            await till.start(identity, CHARGE)
        if since in ("an operator resolved the payment", "an operator released the terminal"):
            await till.decide(identity, RELEASED if since == "an operator released the terminal" else RESOLVED)
        if since == "the payment no longer holds its terminal":
            await inside.store.write(partial(rows.give_up_leases, client_transaction_id=identity))
        for _ in range(CALLS_OF_TRANSACTION.value if since == "too many calls" else 0):
            quotas.require_calls(identity, "cannot abort")
        assert (await code_of(aborts.abort(identity, 1000)), inside.terminal.aborts) == (code, sent)
        if not since:
            left = EVENTS_OF_TERMINAL.value - 2 * EVENT_BYTES - min(len(reply), MAX_REPLY_BYTES)
            assert [bool(quotas.limit_of_event("SN-TEST", size)) for size in (left, left + 1)] == [False, True]
        assert await aborts.probe(identity) == probe
        entries = [item.entry for item in await inside.store.read(lambda db: list(journal.entries(db, identity)))]
        requested = [AbortRequested(probe=False, uid=1000)] * sent + [AbortRequested(probe=True)] * (probe is not None)
        assert [entry for entry in entries if isinstance(entry, AbortRequested)] == requested
        assert during == ["call_outstanding"] * inside.terminal.aborts


async def test_the_record_and_the_profile_decide_whether_an_abort_is_possible(tmp_path: Path) -> None:
    async with composed(tmp_path) as inside:
        inside.reload(f"{inside.terminal.toml}[profile.refund]\nabortable = false\n")
        charge, _ = await inside.payments.start(identity := str(uuid4()), CHARGE)
        changed, refund = partial(msgspec.structs.replace, charge), OperationType.REFUND
        others = (
            changed(type=None),
            changed(type=refund, terminal="SN-GONE"),
            changed(released=True),
            changed(type=refund),
        )
        assert [inside.aborts.possible(item) for item in (charge, *others)] == [True, True, True, False, False]
        assert await inside.aborts.abort(identity, None) == await inside.get(identity)

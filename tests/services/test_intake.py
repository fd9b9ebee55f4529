"""The effect of each callback, and the limits on stored callbacks: by terminal, process and user, and free space."""

import hmac
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from posd.base import limits
from posd.base.fair_queue import APART_BYTES
from posd.base.ids import Channel
from posd.base.problems import Problem
from posd.base.replies import CallbackResult, RefusedBody
from posd.base.times import iso
from posd.httpd.admission import SocketPeer
from posd.payments import journal, rows, transitions
from posd.payments.entries import Unlikely
from posd.payments.inbox import Inbox
from posd.payments.lifecycle import Status
from posd.payments.model import Attention, AttentionCode, OperationType, Phase, Result, Transaction
from posd.payments.outcomes import inferred
from posd.payments.record import begin
from posd.records import quarantine
from posd.records.inbox import UnreadableCallback
from posd.records.model import Pruned
from posd.records.quarantine import QuarantineEntry, ReceivedCallback
from posd.records.quotas import Quotas
from posd.records.quotas import sender as budget_of
from posd.records.service import ServiceParts
from posd.storage.database_files import disk_space, mount_point
from tests.rig.events import body
from tests.rig.tables import every, there
from tests.services.inside import CHECKS, Inside, composed

MIB = limits.MIB
TILL, OTHER = SocketPeer(10, 1000), SocketPeer(11, 1000)


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def use_up(quotas: Quotas, sender: SocketPeer) -> None:
    starts = quotas.print_jobs
    for _ in range(limits.PRINT_JOBS_OF_PROCESS.value // (200_000 + limits.START_BYTES)):
        starts.require(sender, 200_000 + limits.START_BYTES, "cannot print")
        starts.take(sender, 200_000 + limits.START_BYTES)
    with pytest.raises(Problem):
        starts.require(sender, 200_000 + limits.START_BYTES, "cannot print")


def test_only_the_process_that_started_too_much_is_refused() -> None:
    clock = Clock()
    quotas = Quotas(clock=clock)
    use_up(quotas, TILL)
    with pytest.raises(Problem) as refused:
        quotas.print_jobs.require(TILL, 200_000 + limits.START_BYTES, "cannot print")
    problem = refused.value
    assert (problem.code, problem.status) == ("limit_reached", 429)
    assert problem.extra["limit"] == "print_jobs_of_process"
    assert "nothing recorded" in problem.detail.lower()
    quotas.print_jobs.require(OTHER, 200_000, "cannot print")
    quotas.payments.require(TILL, 200_000, "cannot start")  # endless print callbacks block no payment
    clock.now += problem.extra["retry_after_seconds"]
    quotas.print_jobs.require(TILL, 200_000 + limits.START_BYTES, "cannot print")
    assert quotas.reached.counts["print_jobs_of_process"] == 2


def test_a_terminal_has_its_own_quotas_for_events_and_for_the_quarantine() -> None:
    clock = Clock()
    quotas = Quotas(clock=clock)
    for budget in ("SN-1", budget_of("SN-1", updates_terminal=False)):
        for _ in range(255):
            assert quotas.limit_of_event(budget, MIB) is None
            quotas.keep_event(budget, MIB)
        quotas.keep_event(budget, MIB)
        assert quotas.limit_of_event(budget, 100) is limits.EVENTS_OF_TERMINAL
    assert quotas.limit_of_event("SN-2", MIB) is None
    assert quotas.limit_of_body("SN-1", MIB) is None
    for _ in range(64):
        quotas.keep_body("SN-1", MIB)
    assert quotas.limit_of_body("SN-1", 100) is limits.QUARANTINE_OF_TERMINAL
    clock.now += 3600.0
    assert quotas.limit_of_event("SN-1", MIB) is None
    assert quotas.limit_of_body("SN-1", MIB) is None


@pytest.mark.parametrize(
    ("free", "size", "extras", "payments"),
    [
        (65 * MIB, 20_000 * MIB, True, True),
        (63 * MIB, 20_000 * MIB, False, True),
        (15 * MIB, 20_000 * MIB, False, False),
        (11 * MIB, 1000 * MIB, True, True),  # on a small disk the reserve is a share of the disk
        (6 * MIB, 1000 * MIB, False, True),
        (4 * MIB, 1000 * MIB, False, False),
    ],
)
def test_a_nearly_full_disk_is_reserved_for_payments_and_then_for_their_events(
    free: int, size: int, extras: bool, payments: bool
) -> None:
    quotas = Quotas(lambda: (free, size), Clock())
    assert (quotas.limit_of_body("SN-1", 100) is None) is extras
    assert quotas.limit_of_event("SN-1", 100) is None
    for limit, allowed in ((limits.FREE_FOR_EXTRAS, extras), (limits.FREE_FOR_PAYMENTS, payments)):
        if allowed:
            quotas.require_free(limit, "cannot")
            continue
        with pytest.raises(Problem) as refused:
            quotas.require_free(limit, "cannot")
        assert (refused.value.code, refused.value.status) == ("storage_unavailable", 503)


def test_the_free_space_is_read_from_the_disk(tmp_path: Path) -> None:
    first = there(disk_space(tmp_path))
    assert 0 < first[0] <= first[1]
    assert disk_space(tmp_path / "not there") is None
    mounted = mount_point(tmp_path / "not there")
    assert mounted.is_mount()
    assert tmp_path.is_relative_to(mounted)


AT, MOMENT = "2026-11-20T17:00:00.000Z", datetime(2026, 11, 20, 17, 5, tzinfo=UTC)
SIGNING, SECRET = "SN-SIGNING", "whs-example-0001"
GONE, OLD = "SN-GONE", "SN-OLD"  # terminals that were removed from the configuration
ENDED: dict[str, Any] = {"phase": Phase.FINAL, "outcome": inferred(Result.APPROVED, (), MOMENT)}
SIGNED, FORGED = ({"serial": SIGNING, "signed_with": secret} for secret in (SECRET, "another"))
LARGE = "y" * APART_BYTES
#: A payment, an event, and the event's effect. The payment None is unknown here. Retention has removed a payment that
#: is given as its result. Effect: result, "heard" if the terminal is updated, "time" if its time is used, "search".
EVENTS = [
    (None, {}, "applied"),
    (ENDED, {}, "applied"),
    ({}, {}, "applied heard time"),
    ({}, {"extra": LARGE}, "applied heard time"),
    ({}, {"status": "APPROVAL", "occurred_at": "2026-12-24T17:00:00.000Z"}, "applied heard time"),
    ({}, {"client_transaction_id": None, "merchant_id": None}, "applied heard time"),
    ({"terminal": SIGNING}, SIGNED, "applied heard time"),
    ({"terminal": SIGNING}, FORGED, "unsigned search"),
    ({"terminal": SIGNING}, {}, "unsigned search"),
    (None, FORGED, "unsigned search"),
    (None, SIGNED, "applied"),
    ({}, FORGED, "applied"),
    ({"terminal": GONE}, {"serial": GONE}, "applied time"),
    ({}, {"serial": GONE}, "applied"),
    ({"terminal": ""}, {}, "applied"),
    (ENDED | {"terminal": OLD}, {"serial": OLD}, "other_terminal search"),
    ({}, {"serial": "SN-OTHER"}, "other_terminal search"),
    ({}, {"terminal": {}}, "applied"),
    (None, {"terminal": {}}, "no_terminal search"),
    ({}, {"client_transaction_id": "another"}, "other_id search"),
    ({}, {"merchant_id": "M-2"}, "other_merchant search"),
    ({}, {"status": None, "extra": LARGE}, "no_status search"),
    ("approved", SIGNED | {"status": "APPROVAL", "merchant_id": "M-2"}, "removed"),
    ("approved", SIGNED | {"status": "DECLINED"}, "contradicts_removed search"),
    ("approved", SIGNED | {"client_transaction_id": "another"}, "other_id search"),
    ("approved", FORGED, "unsigned search"),
]


@pytest.fixture
async def inside(tmp_path: Path) -> AsyncIterator[Inside]:
    (tmp_path / "secret").write_text(SECRET)
    signs = 'webhook_signature = "wh-secret-body-hex"\nwebhook_secret = {file = "secret"}\n'
    async with composed(tmp_path) as made:
        made.reload(made.terminal.toml + made.terminal.entry(SIGNING, made.terminal.base_urls[1]) + signs)
        yield made


async def stored(inside: Inside, payment: dict[str, Any] | str | None) -> str:
    """Store a payment of `EVENTS` with these fields. Return the id."""
    identity, serial = str(uuid4()), inside.terminal.serial
    if isinstance(payment, str):
        removed = Pruned(identity, SIGNING, "charge", payment, "2026-11-20")
        await inside.store.write(lambda unit: rows.PAYMENT.keep_pruned(unit.db, removed))
    elif payment is not None:
        sent = {"phase": Phase.ACTIVE, "sent_to": "https://192.0.2.7", "created_at": AT, "updated_at": AT}
        fields = {"terminal": serial, "type": OperationType.CHARGE, "answer_unit": None} | sent | payment
        made = Transaction(client_transaction_id=identity, **fields)
        await inside.store.write(lambda unit: begin(unit, made, "intent"))
    return identity


def callback(inside: Inside, identity: str, changes: dict[str, Any]) -> ReceivedCallback:
    """Return the callback of an event with these changes."""
    content = body(identity, "CARD_PRESENTED", **({"serial": inside.terminal.serial, "signed_with": ""} | changes))
    signature = hmac.digest(changes.get("signed_with", "").encode(), content, "sha256").hex().encode()
    return ReceivedCallback(content, "peer", MOMENT, [(b"x-kushki-signature", signature)])


class RestartedInbox(Inbox):
    """Inbox of a restarted daemon, with its calls of other parts."""

    def __init__(self, inside: Inside, merchant: str = "M-1", **parts: Any) -> None:
        made = ServiceParts(inside.store, inside.fleet, lambda: MOMENT, **parts)
        self.calls = calls = list[str]()
        super().__init__(made, merchant, CHECKS, lambda *_: calls.append("search"), lambda *_: calls.append("time"))


async def effect(inside: Inside, identity: str, came: ReceivedCallback, **parts: Any) -> str:
    """Deliver a callback after a restart of the daemon. Return the effect, as in `EVENTS`."""
    inbox = RestartedInbox(inside, **parts)
    asked = [there(inside.fleet.get(item)) for item in (inside.terminal.serial, SIGNING)]
    before = await inside.get(identity)
    for terminal in asked:
        terminal.last_seen = terminal.brand = terminal.model = None
    receipt = await inbox.receive(identity, came.body, came.peer, came.headers)
    assert receipt.updates_terminal == (before is not None and before.updates_terminal)
    seen = [(item.last_seen, item.brand, item.model) for item in asked].count((iso(MOMENT), "Brand", "Model"))
    return " ".join([receipt.result.word, *["heard"] * seen, *inbox.calls])


async def in_quarantine(inside: Inside) -> list[QuarantineEntry]:
    return await inside.store.read(lambda db: quarantine.page(db, 0, 999))


async def reapplied(inside: Inside, identity: str, came: ReceivedCallback, **parts: Any) -> str:
    """Put a callback in quarantine, and apply it. Return the result."""
    await inside.store.write(lambda unit: quarantine.put(unit, Channel.TRANSACTION, identity, "a reason", came))
    item = next(item for item in await in_quarantine(inside) if item.body == came.body)
    try:
        found = await inside.store.write(partial(RestartedInbox(inside, **parts).reapply, item=item)) or "nothing new"
    except RefusedBody as refused:
        found = refused.result.word
    return found + " kept" * (item in await in_quarantine(inside))


@every(("payment", "event", "word"), EVENTS)
async def test_an_event_has_its_effect_once(inside: Inside, payment: Any, event: Any, word: str) -> None:
    """An event updates only the terminal that got the start, and only while the payment is open."""
    identity = await stored(inside, payment)
    came = callback(inside, identity, event)
    with capture_logs() as lines:
        assert await effect(inside, identity, came) == word
    assert ("webhook.event" in [line["event"] for line in lines]) == word.startswith("applied")
    if not word.startswith("applied"):
        assert await effect(inside, identity, came) == word
        assert [item.body for item in await in_quarantine(inside)].count(came.body) == (word != "removed")
        return
    known = there(await inside.get(identity))
    assert known.answer_unit == (None if known.terminal == GONE else "main")
    journaled = [type(item.entry) for item in await inside.store.read(lambda db: journal.entries(db, identity))]
    doubted = known.attention_of("approval_unlikely") is not None, Unlikely in journaled
    assert doubted == (("status" in event,) * 2), "the approval is dated long after its arrival"
    # The present configuration would refuse the event.
    again = replace(came, body=came.body + b" ", headers=())
    heard = known.updates_terminal and "heard" in word
    assert await effect(inside, identity, again, merchant="M-9") == f"repeated{' heard' * heard}"
    other = callback(inside, identity, event | {"event_id": json.loads(came.body)["event_id"], "reading_type": "CHIP"})
    assert (await RestartedInbox(inside).receive(identity, other.body, "peer", other.headers)).verdict == "duplicate"


@every(("payment", "event", "word"), EVENTS)
async def test_a_body_in_quarantine_is_checked_again(inside: Inside, payment: Any, event: Any, word: str) -> None:
    identity = await stored(inside, payment)
    result, same = word.partition(" ")[0], event | {"event_id": "the-same", "occurred_at": AT}
    came = [callback(inside, identity, same | {"attempt": number}) for number in range(2)]
    found = [await reapplied(inside, identity, item) for item in came]
    twice = {"applied": ["applied", "nothing new"], "removed": ["nothing new"] * 2}
    assert found == twice.get(result, [f"{result} kept"] * 2)


async def test_a_payment_has_its_attention_until_none_of_its_bodies_is_in_quarantine(inside: Inside) -> None:
    identity = await stored(inside, {})
    refused = [callback(inside, identity, {}) for _ in range(2)]
    assert [await effect(inside, identity, came, merchant="M-9") for came in refused] == ["other_merchant search"] * 2
    for came, left in zip(refused, (True, False), strict=True):
        assert await reapplied(inside, identity, came) == "applied"
        assert (there(await inside.get(identity)).attention_of("quarantined_event") is not None) == left


@every(
    ("payment", "full", "effects"),
    [
        ({}, "open", "event_limit search, applied heard time, event_limit, quarantine_limit search"),
        ({}, "ended", "applied heard time, applied heard time, applied heard time, not_json search"),
        ({}, "payment", "applied heard time, applied heard time, event_limit search, not_json search"),
        ({}, "soon", "applied heard time, applied heard time, event_limit search, quarantine_limit search"),
        (ENDED, "open", "applied, applied, applied, not_json search"),
        (ENDED, "ended", "event_limit search, applied, event_limit, quarantine_limit search"),
        (None, "ended", "event_limit, applied, event_limit search, quarantine_limit search"),
    ],
)
async def test_ended_payments_use_no_quota_of_open_payments(
    inside: Inside, monkeypatch: pytest.MonkeyPatch, payment: Any, full: str, effects: str
) -> None:
    """The first event of each state is always stored. At the first refusal of an event posd asks the terminal."""
    quotas, of_one, most = Quotas(clock=Clock()), limits.EVENTS_OF_TRANSACTION, limits.EVENTS_OF_TERMINAL.value
    monkeypatch.setattr(transitions, "EVENTS_OF_TRANSACTION", replace(of_one, value=1 if full == "payment" else 9))
    used = {"payment": 0, "soon": most - 3 * limits.EVENT_BYTES}.get(full, most)
    for keep in (quotas.keep_event, quotas.keep_body):
        keep(budget_of(inside.terminal.serial, updates_terminal=full != "ended"), used)
    identity = await stored(inside, payment)
    events = [callback(inside, identity, {"status": item}) for item in ("NEW", "CARD_PRESENTED", "CARD_PRESENTED")]
    came = [*events, replace(events[0], body=b"{")]
    assert ", ".join([await effect(inside, identity, item, quotas=quotas) for item in came]) == effects
    assert sum(quotas.reached.counts.values()) == effects.count("_limit")
    if "event_limit" in effects:
        assert await reapplied(inside, identity, callback(inside, identity, {}), quotas=quotas) == "event_limit kept"


@every(("result", "kept"), [(CallbackResult.OTHER_ID, 1), (CallbackResult.EVENT_LIMIT, 0)])
async def test_the_refusal_decides_whether_a_body_is_kept(inside: Inside, result: CallbackResult, kept: int) -> None:
    identity, before = await stored(inside, {}), await inside.store.read(quarantine.count)
    refuse = partial(
        RestartedInbox(inside).callbacks.refuse, identity=identity, refusal=RefusedBody(result, "a reason")
    )
    receipt = await inside.store.write(partial(refuse, came=callback(inside, identity, {})))
    assert (receipt.result, receipt.kept_of is not None) == (result, kept == 1)
    assert await inside.store.read(quarantine.count) == before + kept


@every(
    ("payment", "heard"),
    [({"phase": Phase.STARTING}, True), ({"phase": Phase.IN_DOUBT}, True), ({}, False), (ENDED, False), (None, None)],
)
async def test_a_broken_callback_counts_for_a_payment_in_doubt(
    inside: Inside, payment: Any, heard: bool | None
) -> None:
    identity = await stored(inside, payment)
    await RestartedInbox(inside).broke_off(identity)
    found = await inside.get(identity)
    assert (found and found.heard) == heard


ATTENDED = {"attention": (Attention(AttentionCode.QUARANTINED_EVENT, AT, "a reason"),)}
STATED = {"outcome": replace(ENDED["outcome"], status=Status.APPROVAL)}


@every(
    ("payment", "recorded"),
    [
        ({}, True),
        ({"heard": True}, True),
        (ATTENDED, True),
        (ATTENDED | {"heard": True}, False),
        (ENDED | ATTENDED | {"heard": True}, True),
        (ENDED | ATTENDED | {"heard": True} | STATED, False),
    ],
)
async def test_an_unreadable_callback_with_an_effect_is_recorded(inside: Inside, payment: Any, recorded: bool) -> None:
    identity, inbox = await stored(inside, payment), RestartedInbox(inside)
    result = await inbox.lose(identity, UnreadableCallback(CallbackResult.TOO_LARGE, "too large", "peer"))
    assert (result.word, there(await inside.get(identity)).revision > 0) == ("too_large", recorded)
    assert inbox.calls == ["search"]

"""The reconciler as a task. The task ends on request at every step."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from posd.base.problems import Problem
from posd.base.times import iso
from posd.config import load
from posd.config.schema import ReconcileConfig
from posd.payments import journal, rows
from posd.payments.abort import Aborts
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import NothingHeard
from posd.payments.inbox import Inbox
from posd.payments.missing_proof import ProofCode
from posd.payments.model import AttentionCode
from posd.payments.reconcile import Reconciler
from posd.payments.record import TransactionChanged, begin
from posd.payments.search import Searching
from posd.payments.transitions import interrupted, rebuild
from posd.payments.wire import read_event
from posd.records.model import Phase
from posd.records.service import ServiceParts
from posd.storage.store import Store
from posd.terminals.fleet import Fleet
from tests.rig.daemon import toml
from tests.rig.events import APPROVED, body
from tests.rig.shop import answering, hanging_up
from tests.rig.terminal import Request, scripted_terminal
from tests.services.inside import CHARGE, Inside, composed

CONFIRMED = "[profile.search]\nconfirmed = true\n[profile.abort]\nconfirmed = true\n"
OTHER = '[[terminals]]\nserial = "SN-OTHER"\nbase_url = "https://127.0.0.1:9"\n'


def now() -> datetime:
    return datetime.now(UTC)


class House(NamedTuple):
    """A reconciler with payments in doubt."""

    reconciler: Reconciler
    store: Store
    identities: list[str]


@asynccontextmanager
async def asking(home: Path, address: str = "", payments: int = 1) -> AsyncIterator[House]:
    """Run a reconciler with payments in doubt on one terminal. `address`: lines of the terminal's configuration."""
    (home / "config.toml").write_text(toml(home, f'[[terminals]]\nserial = "SN-TEST"\n{address}'))
    config = load(home / "config.toml")
    store = await Store.open(home / "posd.db", home / "posd.db.lock")
    fleet = Fleet(config.terminals, config.profiles)
    parts = ServiceParts(store, fleet, now, chance=random.random)
    searching = Searching(parts, "", ApprovalChecks("", lambda: True))
    aborts = Aborts(parts)
    settings = ReconcileConfig(3600, 3600, 3600, settle_seconds=60, probe_with_abort=False)
    reconciler = Reconciler(parts, searching, aborts, settings)
    store.hub.listen(reconciler.changed, TransactionChanged)
    identities = [str(uuid4()) for _ in range(payments)]
    for identity in identities:
        event = read_event(body(identity, "TERMINAL_ACKNOWLEDGED"))
        payment = interrupted(rebuild(event, identity, now()), now())
        await store.write(partial(begin, transaction=payment, word="orphan"))
        reconciler.adopt([payment])
    try:
        yield House(reconciler, store, identities)
    finally:
        await reconciler.close()
        await fleet.close()
        await store.close()


@pytest.mark.parametrize("turns", range(8))
async def test_the_reconciler_ends_on_request_even_if_woken_at_the_same_moment(tmp_path: Path, turns: int) -> None:
    with capture_logs() as lines:
        async with asking(tmp_path) as house:
            reconciler = house.reconciler
            running = asyncio.create_task(reconciler.run())
            async with asyncio.timeout(30):
                while not lines:  # the first search
                    await some_turns(1)
            await some_turns(20)  # these turns end the first search
            reconciler.returned("SN-TEST")
            await some_turns(turns)
            running.cancel()
            done, _ = await asyncio.wait({running}, timeout=30)
            assert done


async def test_nothing_is_recorded_for_a_payment_that_was_removed(tmp_path: Path) -> None:
    async with asking(tmp_path) as house:
        gone = str(uuid4())
        await house.reconciler._record(gone, NothingHeard(AttentionCode.STALLED, 60.0))
        assert await house.store.read(lambda db: list(journal.entries(db, gone))) == []


@asynccontextmanager
async def proving(inside: Inside) -> AsyncIterator[Reconciler]:
    """Run a reconciler that can prove within one request after another that a payment never started."""
    parts, checks = ServiceParts(inside.store, inside.fleet, now), ApprovalChecks("", lambda: True)
    settings = ReconcileConfig(3600, 3600, 3600, settle_seconds=0, probe_with_abort=True)
    reconciler = Reconciler(parts, Searching(parts, "", checks), Aborts(parts), settings)
    inside.store.hub.listen(reconciler.changed, TransactionChanged)
    yield reconciler
    await reconciler.close()


@pytest.mark.parametrize(("first", "count"), [(0, 2), (1, 3)])
async def test_a_search_on_another_device_than_the_one_that_got_the_start_proves_nothing(
    tmp_path: Path, first: int, count: int
) -> None:
    """Reloads move the address of the serial between two devices.

    Each abort goes to the device that got the start, and the search after the abort goes to the other one.
    `first`: the device that gets the search before the abort. `count`: requests that would complete the proof if each
    reply counted.
    """
    identity, none = str(uuid4()), answering(200, b"[]")
    async with (
        scripted_terminal(tmp_path, "SN-OTHER") as other,
        composed(tmp_path) as inside,
        proving(inside) as reconciler,
    ):
        right, store = inside.terminal, inside.store
        entries = [CONFIRMED + device.entry("SN-TEST", device.base_url) for device in (right, other)]

        async def nothing_runs(request: Request, writer: asyncio.StreamWriter) -> None:
            inside.reload(entries[1])
            await answering(409)(request, writer)

        async def knows_nothing(request: Request, writer: asyncio.StreamWriter) -> None:
            inside.reload(entries[0])
            await none(request, writer)

        right.start, right.abort, right.search, other.search = hanging_up, nothing_runs, none, knows_nothing
        search = "POST /terminal/v1/transaction_search_online"
        await store.write(lambda unit: rows.remember_search(unit, "SN-TEST", search, str(uuid4()), iso(now())))
        await inside.payments.start(identity, CHARGE)
        for _ in range(count):
            inside.reload(entries[first])
            after = await reconciler.reconcile(identity)
        assert other.searches
        assert (after.phase, after.outcome) == (Phase.IN_DOUBT, None)
        inside.reload(entries[1])
        with pytest.raises(Problem, match="cannot be reached"):
            await inside.aborts.abort(identity, None)
        assert other.aborts == 0


UNCONFIRMED = (ProofCode.SEARCH_NOT_CONFIRMED, ProofCode.ABORT_NOT_CONFIRMED)
BUSY = b'{"type": "TERMINAL", "code": "TER-003"}'
NEVER_FOUND_ANY = ProofCode.SEARCH_NEVER_FOUND_ANY


@pytest.mark.parametrize(
    ("serial", "profile", "abort", "codes"),
    [
        ("SN-TEST", CONFIRMED, b"", ()),
        ("SN-OTHER", CONFIRMED, b"", (NEVER_FOUND_ANY,)),
        ("", CONFIRMED, b"", (NEVER_FOUND_ANY,)),
        ("SN-TEST", CONFIRMED, BUSY, (ProofCode.WAS_ACKNOWLEDGED,)),
        ("SN-TEST", "", b"", (*UNCONFIRMED, NEVER_FOUND_ANY, ProofCode.ABORT_NOT_ASKED)),
    ],
)
async def test_empty_searches_are_proof_only_if_the_search_works_and_the_terminal_runs_nothing(
    tmp_path: Path, serial: str, profile: str, abort: bytes, codes: tuple[ProofCode, ...]
) -> None:
    """`serial`: the serial in the search result for the ended payment. Without a serial the result is empty.

    `abort`: the body of the reply 409 to an abort. `codes`: the missing conditions of the proof.
    """
    ended, doubtful = str(uuid4()), str(uuid4())
    charge = json.dumps({**json.loads(CHARGE), "terminal": "SN-TEST"}).encode()
    known = json.dumps([json.loads(body(ended, "APPROVAL", "APPROVAL_REQUESTED", serial))] if serial else []).encode()

    async def search(request: Request, writer: asyncio.StreamWriter) -> None:
        await answering(200, known if ended in request.body.decode() else b"[]")(request, writer)

    async with composed(tmp_path) as inside, proving(inside) as reconciler:
        terminal = inside.terminal
        inside.reload(f"{profile}{terminal.toml}{OTHER}")
        inbox = Inbox(ServiceParts(inside.store, inside.fleet, now), "", ApprovalChecks("", lambda: True))
        terminal.search, terminal.abort = search, answering(409, abort)
        await inside.payments.start(ended, charge)
        for status, previous in APPROVED:
            await inbox.receive(ended, body(ended, status, previous), "peer")
        terminal.start = hanging_up
        await inside.payments.start(doubtful, charge)
        for _ in range(2):
            after = await reconciler.reconcile(doubtful)
        assert after.phase is (Phase.IN_DOUBT if codes else Phase.FINAL)
        lacking = await inside.store.read(partial(reconciler.missing_proof, transaction=after))
        assert tuple(item.code for item in lacking) == codes


async def some_turns(count: int) -> None:
    """Run the loop for this many turns."""
    for _ in range(count):
        await asyncio.sleep(0)

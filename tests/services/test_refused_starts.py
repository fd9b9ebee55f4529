"""Starts that posd refuses before it records or sends anything."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from posd.base.problems import Problem
from posd.payments import journal
from posd.payments.amounts import NOTHING_MORE
from posd.payments.entries import Attempted
from posd.payments.start import MAX_REPLY_BYTES, SendDeadline
from posd.terminals.attempt import Replied
from tests.rig.shop import answering
from tests.rig.tables import every
from tests.services.inside import CHARGE, composed

HASH, HMAC = 'auth = "hash-encrypt"\n', 'auth = "hmac"\n'
CODE = 'business_code = {file = "code"}\n'
MAXIMUM = Decimal("11.20")
LONG = {"metadata": {"n": 12345678901234567890}}
KEY = {"options": {"key": 1}}
UNSURE = {"clock_doubt": lambda: "the clock went back"}
TOO_LATE = {"not_after": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("entry", "amounts", "parts", "change", "refusal"),
    [
        ("", {"max_amount": MAXIMUM}, {}, {}, ""),
        ("", {"max_amount": MAXIMUM - Decimal("0.01")}, {}, {}, "amount_exceeds"),
        ("", {"decimals": 0}, {}, {}, "invalid_request /amount/iva"),
        ("", {}, {}, {"amount": {"iva": "1.2.0"}}, "invalid_request /amount/iva"),
        ("", {}, {}, LONG, ""),
        (HMAC, {}, {}, LONG, "invalid_request /metadata/n"),
        (HMAC, {}, {}, KEY, ""),
        (HASH, {}, {}, KEY, "invalid_request /options/key"),
        ("", {}, UNSURE, {}, ""),
        (HMAC, {}, UNSURE, {}, "clock_unsure"),
        ("", {}, {"refuse_unseen": lambda: unseen()}, {}, "restore_unseen"),
        ("", {}, {"refuse_unseen": lambda: unseen()}, TOO_LATE, "restore_unseen"),
        ("", {}, {}, TOO_LATE, "expired"),
    ],
)
async def test_a_refused_start_is_neither_recorded_nor_sent(
    tmp_path: Path, entry: str, amounts: dict[str, Any], parts: dict[str, Any], change: dict[str, Any], refusal: str
) -> None:
    """`refusal`: the code, and the path of the fault. If it is empty, the start is sent."""
    (tmp_path / "code").write_text("5f1e0c8a7b3d49e2a6c4d80f9b2e7135")
    identity = str(uuid4())
    async with composed(tmp_path) as inside:
        inside.reload(inside.terminal.toml + (entry and entry + CODE))
        configured = {name: getattr(NOTHING_MORE, name) for name in NOTHING_MORE.__struct_fields__} | amounts
        till = inside.till(amounts=type(NOTHING_MORE)(**configured), **parts)
        found = ""
        try:
            await till.start(identity, json.dumps(json.loads(CHARGE) | change).encode())
        except Problem as problem:
            found = " ".join((problem.code, *(fault["path"] for fault in problem.extra.get("errors", []))))
        assert found == refusal
        entries = await inside.store.read(lambda db: list(journal.entries(db, identity)))
        counts = (len(entries), len(inside.hosts), len(inside.terminal.requests))
        assert counts == ((0, 0, 0) if refusal else (1, 1, 1))


def unseen() -> None:
    raise Problem("restore_unseen", "an operator must check")


@pytest.mark.parametrize(
    ("reload", "code"),
    [
        (None, "draining"),
        ("", "terminal_offline"),
        ('{entry}amount_unit = "hundredths"\n', "terminal_offline"),
        ("{entry}[profile.charge]\nerrors_in_2xx = true\n", "terminal_offline"),
    ],
)
async def test_a_start_that_is_being_checked_at_a_stop_or_a_reload_is_refused(
    tmp_path: Path, reload: str | None, code: str
) -> None:
    """`reload`: the new configuration of the terminal, or None for a stop."""
    stopping = list["asyncio.Task[None]"]()
    async with composed(tmp_path) as inside:
        entry = inside.terminal.toml.replace("127.0.0.1", "localhost")  # a name is looked up in a thread
        inside.reload(entry)

        def meanwhile() -> None:
            if reload is None:
                stopping.append(asyncio.create_task(till.drain(30)))
            else:
                inside.reload(reload.format(entry=entry))

        till = inside.till(clock_doubt=meanwhile)
        until = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
        with pytest.raises(Problem) as refused:
            await till.start(str(uuid4()), json.dumps(json.loads(CHARGE) | {"not_after": until}).encode())
        assert (refused.value.code, inside.terminal.requests) == (code, [])
        await asyncio.gather(*stopping)


async def test_after_a_start_the_device_is_recognized_at_another_address(tmp_path: Path) -> None:
    async with composed(tmp_path) as inside:
        await inside.payments.start(str(uuid4()), CHARGE)
        addresses = inside.fleet.of(inside.terminal.serial).addresses
        assert addresses.same_device(*inside.terminal.base_urls) == inside.terminal.fingerprint


@pytest.mark.parametrize(("status", "kept"), [(200, MAX_REPLY_BYTES), (409, MAX_REPLY_BYTES + 1)])
async def test_only_the_reply_that_ends_a_payment_is_kept_whole(tmp_path: Path, status: int, kept: int) -> None:
    identity = str(uuid4())
    async with composed(tmp_path) as inside:
        inside.terminal.start = answering(status, b" " * (MAX_REPLY_BYTES + 1))
        await inside.payments.start(identity, CHARGE)
        *_, last = await inside.store.read(lambda db: list(journal.entries(db, identity)))
        assert isinstance(last.entry, Attempted)
        assert isinstance(last.entry.attempt, Replied)
        assert len(last.entry.attempt.body) == kept


@every(("wall", "boot", "passed"), [(-1, -1, False), (0, -1, True), (-1, 0, True)])
def test_a_deadline_passes_on_the_clock_that_reaches_it_first(wall: int, boot: int, passed: bool) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert SendDeadline(moment, 60.0).passed(moment + timedelta(seconds=wall), 60.0 + boot) is passed

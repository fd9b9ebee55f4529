"""Starts that posd refuses before it records or sends anything."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import trustme
from structlog.testing import capture_logs

from posd.base.limits import EVENT_BYTES, EVENTS_OF_TERMINAL
from posd.base.problems import Problem
from posd.payments import journal, rows
from posd.payments.amounts import NOTHING_MORE
from posd.payments.attentions import ApprovalChecks
from posd.payments.entries import Attempted, Resolved
from posd.payments.model import Result
from posd.payments.start import MAX_REPLY_BYTES, SendDeadline
from posd.records import terminals
from posd.records.model import Pruned
from posd.records.quotas import Quotas
from posd.storage import changes
from posd.terminals.attempt import Replied
from posd.terminals.identity import Proof, Trusted
from tests.rig.shop import answering, hanging_up
from tests.rig.tables import every, there
from tests.rig.terminal import ScriptedTerminal
from tests.services.inside import CHARGE, code_of, composed

HASH, HMAC = (f'auth = "{name}"\nbusiness_code = {{file = "code"}}\n' for name in ("hash-encrypt", "hmac"))
CLOUD, UNIT = 'access_mode = "cloud"\n', 'answer_amount_unit = "hundredths"\n'
FAR = '[[terminals]]\nserial = "SN-FAR"\n'
MAXIMUM = Decimal("11.20")
LONG = {"metadata": {"n": 12345678901234567890}}
KEY = {"options": {"key": 1}}
REFUND = {"type": "refund", "transaction_reference": str(uuid4())}
UNSURE = {"clock_doubt": lambda: "the clock went back"}
TOO_LATE = {"not_after": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("entry", "amounts", "parts", "change", "refusal"),
    [
        ("", {"max_amount": MAXIMUM}, {}, {}, ""),
        ("", {"max_amount": MAXIMUM - Decimal("0.01")}, {}, {}, "amount_exceeds"),
        ("", {"max_amount": MAXIMUM - Decimal("0.01")}, {}, REFUND, "amount_exceeds"),
        ("", {"decimals": 0}, {}, {}, "invalid_request /amount/iva"),
        ("", {}, {}, {"amount": {"iva": "1.2.0"}}, "invalid_request /amount/iva"),
        ("", {}, {}, LONG, ""),
        (HMAC, {}, {}, LONG, "invalid_request /metadata/n"),
        (HMAC, {}, {}, KEY, ""),
        (HASH, {}, {}, KEY, "invalid_request /options/key"),
        ("", {}, UNSURE, {}, ""),
        (HMAC, {}, UNSURE, {}, "clock_unsure"),
        ("", {}, UNSURE, TOO_LATE, "clock_unsure"),
        ("", {}, {"refuse_unseen": lambda: unseen()}, {}, "restore_unseen"),
        ("", {}, {"refuse_unseen": lambda: unseen()}, TOO_LATE, "restore_unseen"),
        ("", {}, {}, TOO_LATE, "expired"),
        ("", {}, {"checks": ApprovalChecks("CLP", lambda: True)}, {}, "invalid_request /amount/iva"),
        (HMAC, {"decimals": 4}, {}, {"amount": {"iva": "900000000000.0003"}}, "invalid_request /amount/iva"),
        (FAR, {}, {}, {"terminal": "SN-FAR"}, "terminal_offline"),
    ],
)
async def test_a_refused_start_is_neither_recorded_nor_sent(
    tmp_path: Path, entry: str, amounts: dict[str, Any], parts: dict[str, Any], change: dict[str, Any], refusal: str
) -> None:
    """`refusal`: the code, and the path of the fault. If `refusal` is empty, posd sends the start."""
    (tmp_path / "code").write_text("5f1e0c8a7b3d49e2a6c4d80f9b2e7135")
    identity = str(uuid4())
    async with composed(tmp_path) as inside:
        inside.reload(inside.terminal.toml + entry)
        configured = {name: getattr(NOTHING_MORE, name) for name in NOTHING_MORE.__struct_fields__} | amounts
        till = inside.till(amounts=type(NOTHING_MORE)(**configured), **parts)
        found = ""
        try:
            await till.start(identity, json.dumps(json.loads(CHARGE) | change).encode())
        except Problem as problem:
            found = " ".join((problem.code, *(fault["path"] for fault in problem.extra.get("errors", []))))
        assert found == refusal
        feed = [item.reason for item in await inside.store.read(lambda db: changes.after(db, 0, 9))]
        assert feed == ([] if refusal else ["intent", "acknowledged"])
        assert (len(inside.hosts), len(inside.terminal.requests), len(till._newest)) == (not refusal, not refusal, 0)


def unseen() -> None:
    raise Problem("restore_unseen", "an operator must check")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("stop", "draining"),
        ("prune", "pruned"),
        ("conflict", "identity_conflict"),
        ("", "terminal_offline"),
        ('[[terminals]]\nserial = "SN-NEW"\nbase_url = "{url}"\n', "terminal_offline"),
        ('{entry}amount_unit = "hundredths"\n', "terminal_offline"),
        ("{entry}[profile.charge]\nerrors_in_2xx = true\n", "terminal_offline"),
    ],
)
async def test_a_change_while_a_start_is_being_checked_counts(tmp_path: Path, change: str, code: str) -> None:
    """`change`: a stop, another serial of the device, the removal of the id, or the new configuration."""
    identity, stopping = str(uuid4()), list["asyncio.Task[None]"]()
    async with composed(tmp_path) as inside:
        url = inside.terminal.base_url.replace("127.0.0.1", "localhost")  # a name is looked up in a thread
        entry = inside.terminal.entry("SN-TEST", url)
        inside.reload(entry)

        def meanwhile() -> None:
            if change == "stop":
                stopping.append(asyncio.create_task(till.drain(30)))
            elif change == "prune":
                removed = Pruned(identity, "SN-TEST", None, "approved", "2026-01-01")
                rows.PAYMENT.keep_pruned(inside.foreign, removed)
            elif change == "conflict":
                device = inside.fleet.of("SN-TEST")
                device.trust(Trusted(url, Proof.NONE, "2026-01-01T00:00:00.000Z"))
                device.record_other_identity(url, "SN-OTHER")
            else:
                inside.reload(change.format(entry=entry, url=url))

        till = inside.till(clock_doubt=meanwhile)
        until = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
        call = till.start(identity, json.dumps(json.loads(CHARGE) | {"not_after": until}).encode())
        assert (await code_of(call), inside.terminal.requests) == (code, [])
        await asyncio.gather(*stopping)


@pytest.mark.parametrize(
    ("fleet", "sale", "code"),
    [
        ([("SN-TEST", 0, "")], None, "terminal_busy"),
        ([("SN-NEW", 0, "")], None, "terminal_busy"),
        ([("SN-NEW", 0, ""), ("SN-TEST", 1, "")], None, "terminal_busy"),
        ([("SN-NEW", 0, ""), ("SN-TEST", None, "")], None, ""),
        ([("SN-NEW", 0, CLOUD)], None, ""),
        ([("SN-NEW", 1, "")], "basket-8", ""),
        ([("SN-NEW", 1, "")], "basket-7", "sale_conflict"),
    ],
)
async def test_a_second_payment_is_refused_on_the_same_device_and_for_the_same_sale(
    tmp_path: Path, fleet: list[tuple[str, int | None, str]], sale: str | None, code: str
) -> None:
    """`fleet`: serial, port and settings of each terminal since the first payment.

    The first terminal gets the second payment.
    """
    async with composed(tmp_path) as inside:
        till = inside.till()
        await till.start(str(uuid4()), CHARGE[:-1] + b', "sale": "basket-7"}')
        inside.reload(configured(inside.terminal, fleet))
        second = json.dumps(json.loads(CHARGE) | {"terminal": fleet[0][0], "sale": sale}).encode()
        found = await code_of(till.start(str(uuid4()), second))
        assert (found, len(inside.terminal.requests), set(inside.hosts)) == (code, 1 if code else 2, {"127.0.0.1"})


def configured(terminal: ScriptedTerminal, fleet: list[tuple[str, int | None, str]]) -> str:
    return "".join(
        FAR.replace("SN-FAR", serial) if port is None else terminal.entry(serial, terminal.base_urls[port]) + more
        for serial, port, more in fleet
    )


@pytest.mark.parametrize(
    ("fleet", "by", "terminal"),
    [
        ([("SN-NEW", 1, ""), ("SN-TEST", 0, UNIT)], "original", "SN-TEST"),
        ([("SN-NEW", 1, ""), ("SN-TEST", 0, UNIT)], "transaction_reference", "SN-TEST"),
        ([("SN-NEW", 1, UNIT)], "original", "SN-NEW"),
        ([("SN-NEW", 1, UNIT)], "transaction_reference", "SN-NEW"),
    ],
)
async def test_a_refund_runs_on_the_terminal_of_its_original_and_its_repetition_is_recognized(
    tmp_path: Path, fleet: list[tuple[str, int | None, str]], by: str, terminal: str
) -> None:
    """`fleet`: see above. `by`: the member that names the original. The reference has no original on a new terminal."""
    original, identity, reference = str(uuid4()), str(uuid4()), str(uuid4())
    async with composed(tmp_path) as inside:
        inside.terminal.start = hanging_up
        await inside.payments.start(original, CHARGE)
        await inside.payments.decide(original, Resolved("Ana", "slip", None, Result.APPROVED, reference))
        inside.terminal.start = answering(200)
        inside.reload(configured(inside.terminal, fleet))
        named = original if by == "original" else reference if terminal == "SN-TEST" else str(uuid4())
        request = {"type": "refund", by: named, "sale": "basket-7"}
        request |= {"metadata": {"till": 3}, "options": {"lines": 2}, "additional": True}
        with capture_logs() as lines:
            refund, _ = await inside.payments.start(identity, json.dumps(request).encode())
        assert (refund.terminal, refund.callback_host, refund.answer_unit) == (terminal, "127.0.0.1", "hundredths")
        assert inside.terminal.requests[-1].path.endswith("/refund")
        assert await inside.payments.start(identity, json.dumps(request).encode()) == (refund, False)
        told = next(line for line in lines if line["event"] == "payment.answered")
        assert (told["terminal"], told["phase"], told["http_status"]) == (terminal, refund.phase, 200)


@pytest.mark.parametrize(("name", "proof"), [("SN-TEST", Proof.CA), ("SN-OTHER", Proof.NONE)])
async def test_after_a_start_the_device_is_trusted_and_recognized(tmp_path: Path, name: str, proof: Proof) -> None:
    """`name`: the name in the certificate of the device."""

    def issue(authority: trustme.CA) -> trustme.LeafCert:
        return authority.issue_cert("127.0.0.1", common_name=name)

    async with composed(tmp_path, announced=True, issue=issue) as inside:
        addresses = inside.fleet.of(inside.terminal.serial).addresses
        for _ in range(2):
            await inside.payments.start(str(uuid4()), CHARGE)
            await inside.store.write(lambda unit: unit.db.execute("DELETE FROM leases").close())
            trusted = there(addresses.trusted)
            assert (trusted.base_url, trusted.proof) == (inside.terminal.base_url, proof)
            assert await inside.store.read(terminals.trusted_ones) == {inside.terminal.serial: trusted}
        assert addresses.same_device(*inside.terminal.base_urls) == inside.terminal.fingerprint


@pytest.mark.parametrize(
    ("status", "kept"), [(200, MAX_REPLY_BYTES), (300, MAX_REPLY_BYTES + 1), (409, MAX_REPLY_BYTES + 1)]
)
async def test_only_the_reply_that_ends_a_payment_is_kept_whole(tmp_path: Path, status: int, kept: int) -> None:
    identity, quotas = str(uuid4()), Quotas(clock=lambda: 0.0)
    async with composed(tmp_path) as inside:
        inside.terminal.start = answering(status, b" " * (MAX_REPLY_BYTES + 1))
        await inside.till(quotas=quotas).start(identity, CHARGE)
        *_, last = await inside.store.read(lambda db: list(journal.entries(db, identity)))
        assert isinstance(last.entry, Attempted)
        assert isinstance(last.entry.attempt, Replied)
        assert len(last.entry.attempt.body) == kept
        left = EVENTS_OF_TERMINAL.value - 2 * EVENT_BYTES - kept
        found = [quotas.limit_of_event(inside.terminal.serial, size) for size in (left, left + 1)]
        assert found == [None, EVENTS_OF_TERMINAL], "the reply uses the quota of the terminal's events"


@every(("wall", "boot", "passed"), [(-1, -1, False), (0, -1, True), (-1, 0, True)])
def test_a_deadline_passes_on_the_clock_that_reaches_it_first(wall: int, boot: int, passed: bool) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert SendDeadline(moment, 60.0).passed(moment + timedelta(seconds=wall), 60.0 + boot) is passed

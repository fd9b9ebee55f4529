"""A database that goes back in time. No start is sent twice, and posd asks an operator."""

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_backup import back_up, lose, posd_command
from tests.rig.daemon import Daemon
from tests.rig.events import APPROVED
from tests.rig.shop import Payment, Shop
from tests.rig.slow import named_quick

SEEN = "posd restore --seen --operator NAME"


def witness(daemon: Daemon) -> Path:
    return daemon.database.with_name("posd.db.witness")


def copy_state(daemon: Daemon, to: Path, *names: str) -> None:
    """Copy these files of the state directory while posd is stopped."""
    to.mkdir()
    for name in names:
        shutil.copy2(daemon.database.with_name(name), to)


async def restored(daemon: Daemon, *arguments: str) -> None:
    code, _, said = await posd_command(daemon, "restore", *arguments, "--yes")
    assert code == 0, said


async def refused(payment: Payment) -> Any:
    """Start a payment. Check that posd refuses the start, and sends and records nothing."""
    reply = await payment.put()
    assert (reply.status, reply.json["code"]) == (409, "restore_unseen"), reply.body
    assert SEEN in reply.json["how"]
    assert SEEN in reply.json["detail"]
    until, since = (datetime.fromisoformat(reply.json[name]) for name in ("records_missing_until", "since"))
    assert until - since >= timedelta(seconds=300)  # posd does not detect a smaller step back of the clock
    assert payment.requests == []
    assert (await payment.get())["code"] == "not_found"
    return reply.json


async def repeated(payment: Payment) -> Any:
    """Repeat the call of a sent payment. Check that posd sends nothing again."""
    reply = await payment.put()
    assert reply.status == 200, reply.body
    assert len(payment.requests) == 1
    return reply.json


async def check(daemon: Daemon) -> dict[str, str]:
    found: dict[str, str] = (await daemon.call("GET", "/health")).json["checks"]["restore"]
    return found


async def feed(daemon: Daemon) -> Any:
    return (await daemon.call("GET", "/feed")).json


async def seen(daemon: Daemon) -> str:
    code, said, shown = await posd_command(daemon, "restore", "--seen", "--operator", "Ana")
    assert code == 0, shown
    return said + shown


async def test_after_an_old_backup_is_copied_in_by_hand_nothing_is_sent_twice(own: Shop, home: Path) -> None:
    """The file was copied without `posd restore`. The till repeats a call whose id is not in the file."""
    daemon = own.daemon
    before = await own.started()
    await before.approve()
    await daemon.stop()
    copy_state(daemon, home / "old", "posd.db")
    await daemon.start()
    first = await feed(daemon)
    open_one, paid = await own.started(), await own.started(sale="basket-7")
    await paid.approve()
    await daemon.stop()
    shutil.copy2(home / "old" / "posd.db", daemon.database)
    await daemon.start()

    told = await daemon.log_line("store.gone_back")
    assert (told["level"], told["count"]) == ("error", 2)
    for payment in (open_one, paid):
        document = await repeated(payment)
        assert (document["phase"], document["terminal"]) == ("in_doubt", payment.serial)
    assert "approved" in str((await paid.history())[0]), "posd shows the end that is in the witness"
    assert (await repeated(before))["outcome"]["result"] == "approved"
    problem = await refused(own.payment())
    health = await check(daemon)
    assert (health["status"], SEEN in health["todo"]) == ("degraded", True)
    assert "2 payments" in health["detail"]
    metrics = await daemon.metrics()
    assert "\nposd_restore_unseen 1\n" in metrics

    again = await feed(daemon)
    assert again["database_id"] != first["database_id"]
    assert again["first_seq"] > first["changes"][-1]["seq"] + 100
    numbers = [item["seq"] for item in again["changes"] if item["seq"] >= again["first_seq"]]
    assert numbers == list(range(again["first_seq"], again["first_seq"] + len(numbers)))
    copied = [item["seq"] for item in again["changes"] if item["seq"] < again["first_seq"]]
    assert again["databases"] == [
        {"database_id": first["database_id"], "first_seq": 1, "last_seq": max(copied)},
        {"database_id": again["database_id"], "first_seq": again["first_seq"], "last_seq": numbers[-1]},
    ]

    await open_one.approve()  # the payment's callback address is still valid
    await daemon.restart()
    assert (await refused(own.payment()))["since"] == problem["since"]
    said = await seen(daemon)
    problem = (await own.payment().put(sale="basket-7")).json
    assert (problem["code"], problem["transactions"]) == ("sale_conflict", [paid.identity])
    assert open_one.identity in said
    assert paid.identity in said
    assert before.identity not in said
    assert (await check(daemon))["status"] == "ok"
    assert (await (await own.started()).get())["phase"] == "active"
    assert (await feed(daemon))["database_id"] == again["database_id"]
    await daemon.restart()
    assert (await (await own.started()).get())["phase"] == "active"


async def test_a_database_that_lost_only_an_event_uses_no_feed_number_twice(own: Shop, home: Path) -> None:
    """No payment starts or ends after the copy. posd is killed, so the witness has no last line."""
    daemon, payment = own.daemon, await own.started()
    await daemon.kill()
    names = ("posd.db", "posd.db-wal")
    copy_state(daemon, home / "old", *names)
    await daemon.start()
    before = await feed(daemon)
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
    await daemon.kill()
    lose(daemon.database, "-shm")
    for name in names:
        shutil.copy2(home / "old" / name, daemon.database.with_name(name))
    await daemon.start()
    await daemon.log_line("store.gone_back")
    assert (await feed(daemon))["database_id"] != before["database_id"]


async def test_the_guards_are_checked_in_their_order(own: Shop) -> None:
    """posd checks for a known id first, then the sale, the restore, and the busy terminal."""
    daemon = own.daemon
    holding = own.payment()
    assert (await holding.put(sale="sale-1")).status == 201
    await back_up(daemon, daemon.directory / "backup.db")
    await daemon.kill()
    lose(daemon.database, "", "-wal", "-shm")
    await restored(daemon, str(daemon.directory / "backup.db"))
    await daemon.start()
    assert (await holding.put(sale="sale-1")).status == 200
    assert (await own.payment().put(sale="sale-1")).json["code"] == "sale_conflict"
    assert (await own.payment().put(terminal=holding.serial)).json["code"] == "restore_unseen"
    assert (await own.payment().put(terminal="SN-NOBODY")).json["code"] == "unknown_terminal"
    await seen(daemon)
    assert (await own.payment().put(terminal=holding.serial)).json["code"] == "terminal_busy"


async def test_a_restore_with_an_unreadable_old_file_takes_the_ids_from_the_witness(own: Shop, home: Path) -> None:
    """The witness replaces the data of the lost file."""
    daemon = own.daemon
    await back_up(daemon, home / "backup.db")
    payment = await own.started()
    await daemon.kill()
    lose(daemon.database, "", "-wal", "-shm")
    code, said = await daemon.cannot_start()
    assert code == 1
    assert "posd restore" in said, "no new database replaces a missing database"
    await restored(daemon, str(home / "backup.db"))
    await daemon.start()
    assert (await repeated(payment))["phase"] == "in_doubt"
    await refused(own.payment())
    assert payment.identity in await seen(daemon)
    assert (await (await own.started()).get())["phase"] == "active"


async def test_a_restore_with_an_intact_old_file_refuses_nothing(own: Shop, home: Path) -> None:
    """posd knows every id, so posd refuses nothing. The database gets another identity."""
    daemon = own.daemon
    await back_up(daemon, home / "backup.db")
    payment = await own.started()
    first = await feed(daemon)
    await daemon.kill()
    await restored(daemon, str(home / "backup.db"))
    await daemon.start()
    assert (await repeated(payment))["phase"] == "active"
    assert (await (await own.started()).get())["phase"] == "active"
    again = await feed(daemon)
    assert again["database_id"] != first["database_id"]
    assert again["first_seq"] == first["changes"][-1]["seq"] + 1
    assert not [line for line in daemon.lines if line["event"] == "store.gone_back"]
    assert (await check(daemon))["status"] == "degraded"
    await seen(daemon)
    assert (await check(daemon))["status"] == "ok"


async def test_a_restore_takes_over_damaged_events(own: Shop, home: Path) -> None:
    daemon = own.daemon
    await back_up(daemon, home / "backup.db")
    paid = await own.started()
    for lost in ("client_transaction_id", "event_id", "occurred_at", "merchant_id", "terminal"):
        status, before = APPROVED[-1] if lost == "terminal" else APPROVED[1]
        assert await paid.event(status, before, **{lost: None}) == 200, lost
    first = await paid.get()
    events = (await daemon.call("GET", f"/transactions/{paid.identity}/events")).json
    assert first["outcome"]["result"] == "approved"
    await daemon.kill()
    await restored(daemon, str(home / "backup.db"))
    await daemon.start()
    kept = (await daemon.call("GET", f"/transactions/{paid.identity}/events")).json["events"]
    assert [item["event"] for item in kept] == [item["event"] for item in events["events"]]
    reply = await daemon.call("POST", "/reprocess", socket=daemon.admin_socket)
    assert (reply.status, reply.json["differences"]) == (200, []), reply.body
    assert (await paid.get())["outcome"] == first["outcome"]
    code, said, _ = await posd_command(daemon, "verify")
    assert code == 0, said


@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_backup_completes_a_payment_known_only_by_the_witness(own: Shop, home: Path, steps: int) -> None:
    """A snapshot lacks a payment, and posd adds only its id from the witness. Afterwards a backup with the complete
    payment is restored. posd must keep the outcome of the newer file and the data of the backup.
    """
    daemon = own.daemon
    await daemon.stop()
    copy_state(daemon, home / "old", "posd.db")
    await daemon.start()
    paid, canceled = own.payment(), own.payment()
    for payment in (paid, canceled):
        assert (await payment.put(sale=f"sale of {payment.identity}")).status == 201
        await payment.approve(steps)
    await back_up(daemon, home / "backup.db")
    await daemon.stop()
    shutil.copy2(home / "old" / "posd.db", daemon.database)
    await daemon.start()
    await paid.approve(after=steps)
    assert await canceled.event("TERMINAL_CANCELED", APPROVED[steps - 1][0]) == 200
    await daemon.stop()
    await restored(daemon, str(home / "backup.db"))
    await daemon.start()
    for payment, result in ((paid, "approved"), (canceled, "canceled")):
        document = await payment.get()
        assert (document["outcome"]["result"], document["type"]) == (result, "charge")
        assert document["sale"] == f"sale of {payment.identity}"
        assert document["amount"] != {}
        assert (await payment.put(sale=f"sale of {payment.identity}")).status == 200
        assert len(payment.requests) == 1
    reply = await daemon.call("POST", "/reprocess", socket=daemon.admin_socket)
    assert (reply.status, reply.json["differences"]) == (200, []), reply.body


async def test_head_office_provides_the_started_ids_after_the_loss_of_a_disk(own: Shop, home: Path) -> None:
    """Only the certificates are left. posd repeats no start, and asks an operator."""
    daemon = own.daemon
    payments = [await own.started() for _ in range(3)]
    await payments[0].approve()
    at = [(await payment.get())["created_at"] for payment in payments]
    await daemon.kill()
    for path in filter(Path.is_file, daemon.database.parent.iterdir()):
        path.unlink()
    first, second, bare = payments
    (home / "lane.ids").write_text(
        "# posd collect ids\n"
        f"{first.identity}\t{at[0]}\t{first.serial}\n{second.identity}\t{at[1]}\t{second.serial}\n{bare.identity}\n"
    )
    code, said, shown = await posd_command(daemon, "restore", "--ids", str(home / "lane.ids"))
    assert code == 0, shown
    assert "3 payments; 3 of them were not known here" in said
    assert "no callback key" in said
    code, said = await daemon.cannot_start()
    assert (code, "callback key" in said) == (1, True), said
    code, _, shown = await posd_command(daemon, "restore", "--new-callback-key", "--operator", "Ana")
    assert code == 0, shown
    await daemon.start()
    for payment, created_at in zip(payments[:2], at, strict=False):
        document = await repeated(payment)
        assert (document["phase"], document["terminal"]) == ("in_doubt", payment.serial)
        assert document["created_at"] == created_at
    assert (await repeated(bare))["phase"] == "in_doubt"
    assert "the list that was given to the restore says" in str((await first.history())[0])
    await refused(own.payment())
    health = await check(daemon)
    assert (health["status"], "3 payments were taken over by id only" in health["detail"]) == ("degraded", True)
    reply = (await daemon.call("GET", "/restore", socket=daemon.admin_socket)).json
    assert (reply["refusing"], reply["restores"][0]["ids"], reply["restores"][0]["ids_taken_over"]) == (True, 3, 3)
    assert [item["client_transaction_id"] for item in reply["transactions"]] == [item.identity for item in payments]
    await second.searched()  # posd searches for payments that the terminal has
    said = await seen(daemon)
    assert all(payment.identity in said for payment in payments)
    assert (await (await own.started()).get())["phase"] == "active"
    await daemon.restart()
    for payment in payments:
        await repeated(payment)


async def test_the_witness_file_supplies_the_sale_of_a_listed_id(own: Shop, home: Path) -> None:
    daemon, paid = own.daemon, own.payment()
    assert (await paid.put(sale="basket-7")).status == 201
    await paid.approve()
    await daemon.kill()
    lose(daemon.database, "", "-wal", "-shm")
    (home / "lane.ids").write_text(f"{paid.identity}\n")
    await restored(daemon, "--without-backup", "--ids", str(home / "lane.ids"))
    await daemon.start()
    document = await repeated(paid)
    assert (document["sale"], document["terminal"]) == ("basket-7", paid.serial)
    await seen(daemon)
    problem = await own.payment().put(sale="basket-7")
    assert (problem.json["code"], problem.json["transactions"]) == ("sale_conflict", [paid.identity])


async def test_nothing_is_sent_twice_if_only_the_witness_file_is_left(own: Shop) -> None:
    daemon = own.daemon
    payment = await own.started()
    await daemon.kill()
    lose(daemon.database, "", "-wal", "-shm")
    daemon.database.with_name("callback.key").unlink()
    code, said = await daemon.cannot_start()
    assert (code, "posd.db.witness" in said) == (1, True)
    assert len(payment.requests) == 1


@pytest.mark.parametrize("point", named_quick(("writer.before_commit", "writer.committed"), ("writer.committed",)))
async def test_a_kill_while_the_ids_are_taken_over_loses_no_id(own: Shop, home: Path, point: str) -> None:
    daemon = own.daemon
    await daemon.stop()
    copy_state(daemon, home / "old", "posd.db")
    await daemon.start()
    payment = await own.started()
    await daemon.kill()
    lose(daemon.database, "-wal", "-shm")
    shutil.copy2(home / "old" / "posd.db", daemon.database)
    daemon.environment = {"POSD_CRASH": point}
    assert (await daemon.cannot_start())[0] == -9
    daemon.environment = {}
    await daemon.start()
    assert (await repeated(payment))["phase"] == "in_doubt"
    await refused(own.payment())


@pytest.mark.parametrize(
    "point", named_quick(("start.intended", "start.before_send", "start.written"), ("start.before_send",))
)
async def test_a_start_killed_before_it_was_sent_is_in_the_witness(own: Shop, home: Path, point: str) -> None:
    """posd sends no request before the witness has its id."""
    daemon = own.daemon
    await daemon.stop()
    copy_state(daemon, home / "old", "posd.db")
    daemon.environment = {"POSD_CRASH": point}
    await daemon.start()
    payment = own.payment()
    with pytest.raises(OSError):
        await payment.put()
    await daemon.ended()
    sent = len(payment.requests)
    daemon.environment = {}
    lose(daemon.database, "-wal", "-shm")
    shutil.copy2(home / "old" / "posd.db", daemon.database)
    await daemon.start()
    assert (await payment.put()).json["phase"] == "in_doubt"
    assert len(payment.requests) == sent


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _garbage(path: Path) -> None:
    path.write_bytes(b"\0\xff garbage\n\n" + bytes(5000))


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


TROUBLES: dict[str, Callable[[Path], None]] = {
    "missing": Path.unlink,
    "cut off": _cut,
    "empty": lambda path: path.write_bytes(b"") and None,
    "garbage": _garbage,
    "one changed bit": _flip,
    "unreadable": _directory,
}


@pytest.mark.parametrize("trouble", named_quick(TROUBLES, ("missing", "one changed bit", "unreadable")))
async def test_a_damaged_witness_blocks_no_payment(own: Shop, trouble: str) -> None:
    daemon = own.daemon
    payment = await own.started()
    await daemon.kill()
    TROUBLES[trouble](witness(daemon))
    await daemon.start()
    assert (await repeated(payment))["phase"] == "active"
    later = await own.started()
    assert (await later.get())["phase"] == "active"
    said = [line for line in daemon.lines if line["event"].startswith("witness.")]
    assert bool(said) == (trouble not in ("cut off", "empty"))
    if trouble == "unreadable":
        assert (await check(daemon))["status"] == "degraded"
        witness(daemon).rmdir()
    await daemon.restart()
    content = witness(daemon).read_text()
    assert (payment.identity in content, later.identity in content) == (True, True)
    assert witness(daemon).stat().st_mode & 0o777 == 0o600


async def test_files_of_another_machine_are_reported(own: Shop, home: Path) -> None:
    """The witness belongs to this machine, and the database belongs to another machine."""
    daemon = own.daemon
    payment = await own.started()
    await daemon.stop()
    kept = witness(daemon).read_bytes()
    lose(daemon.database, "", ".witness")
    daemon.database.with_name("callback.key").rename(home / "key")
    await daemon.start()
    await daemon.stop()
    witness(daemon).write_bytes(kept)
    await daemon.start()
    assert (await repeated(payment))["phase"] == "in_doubt"
    assert "not the database that posd used here" in (await refused(own.payment()))["how"]


async def test_the_witness_contains_only_the_needed_data(own: Shop) -> None:
    payment = own.payment()
    await payment.put(metadata={"reference": "ticket-1042"}, sale="till-3/1042", amount={"subtotal_iva0": 77.31})
    await payment.approve()
    await own.daemon.stop()
    content = witness(own.daemon).read_text()
    assert payment.identity in content
    for secret in ("ticket-1042", "77.31"):
        assert secret not in content


async def test_a_print_job_is_not_refused_after_a_new_database_was_made_without_a_backup(own: Shop) -> None:
    daemon, payment = own.daemon, await own.started()
    await daemon.kill()
    lose(daemon.database, "", "-wal", "-shm")
    await restored(daemon, "--without-backup")
    await daemon.start()
    reply = await daemon.call("PUT", "/print-jobs/job-1", {"terminal": next(own.serials), "document": {"lines": []}})
    assert reply.status == 201, reply.body
    assert (await repeated(payment))["phase"] == "in_doubt"
    await refused(own.payment())

"""Printing from end to end: the daemon as a process, and the simulated terminal with every scenario that it has."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio

from tests.support.printed import ONLY_WEBHOOKS, POLLS, PrintShop, codes, print_shop

#: How every webhook is lost: the terminal does not trust the daemon, or has no route to the address that it was given.
LOST: dict[str, tuple[str, bool, str]] = {
    "another CA": ("", False, "tls_failure"),
    "no route": ('[webhooks]\nadvertise_host = "127.0.0.2"\n', True, "unreachable"),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def webhooks() -> AsyncIterator[PrintShop]:
    """A shop where posd does not ask for a job."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with print_shop(Path(directory), ONLY_WEBHOOKS) as shop:
            yield shop


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def polls() -> AsyncIterator[PrintShop]:
    """A shop where no webhook comes."""
    with TemporaryDirectory(prefix="posd-") as directory:
        async with print_shop(Path(directory), POLLS, trusted=False) as shop:
            yield shop


async def command(shop: PrintShop, *arguments: str) -> tuple[int, Any]:
    """Run a command of posd as a person does; return its exit code and its JSON."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "posd", "--config", str(shop.daemon.config_file), *arguments, "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert b"Traceback" not in err, err
    assert process.returncode is not None
    return process.returncode, json.loads(out)


@pytest.mark.quick(1)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("by", ["webhook", "poll"])
async def test_a_receipt_printed_from_the_command_line(
    webhooks: PrintShop, polls: PrintShop, tmp_path: Path, by: str
) -> None:
    shop = webhooks if by == "webhook" else polls
    receipt = tmp_path / "receipt.txt"
    receipt.write_text("MY SHOP\n\n1 Bread  1.50\nThank you ñ\n")
    shop.jobs.append(f"receipt-{by}")
    code, job = await command(shop, "print", str(receipt), "--id", f"receipt-{by}", "--reference", "ticket 1042")
    assert (code, job["status"], job["phase"], job["decided_by"]) == (0, "COMPLETED", "final", by)
    structured = tmp_path / "receipt.json"
    structured.write_text('{"title": "MY SHOP", "total": 11.20}')
    shop.jobs.append(f"document-{by}")
    code, job = await command(shop, "print", str(structured), "--id", f"document-{by}", "--reprint-of", f"receipt-{by}")
    assert (code, job["decided_by"], job["reprint_of"]) == (0, by, f"receipt-{by}")
    shown = {item["print_job_id"]: item for item in shop.simulator.prints()}
    assert shown[f"receipt-{by}"]["text"].rstrip("\n") == "MY SHOP\n\n1 Bread  1.50\nThank you ñ"
    assert shown[f"receipt-{by}"]["external_reference"] == "ticket 1042"
    assert shown[f"document-{by}"]["text"] == "title: MY SHOP\ntotal: 11.20"
    (told,) = shop.simulator.ledger.of("print_webhook", print_job_id=f"receipt-{by}")
    assert told["result"] == (200 if by == "webhook" else "tls_failure")
    shop.created_once()


@pytest.mark.asyncio(loop_scope="module")
async def test_a_receipt_of_commands_is_printed_as_it_was_made(webhooks: PrintShop) -> None:
    columns = [{"text": "1 Tea", "weight": 3}, {"text": "2.50", "weight": 1, "align": "RIGHT"}]
    receipt = {
        "commands": [
            {"type": "text", "text": "MY SHOP \N{LATIN SMALL LETTER N WITH TILDE}\n", "align": "CENTER", "size": 32},
            {"type": "columns", "columns": columns},
            {"type": "qr", "content": "https://example.org/t/1042", "errorLevel": "M"},
            {"type": "cut"},
        ]
    }
    identity = str(uuid4())
    assert (await webhooks.put(identity, document=receipt)).status == 201
    assert (await webhooks.outcome(identity))["status"] == "COMPLETED"
    (printed,) = [item for item in webhooks.simulator.prints() if item["print_job_id"] == identity]
    assert json.dumps(printed["document"]) == json.dumps(receipt)


#: Scenario -> the end where only polls bring it: status, by what it is known. None: it does not end by itself, and a
#: person is told that it is stuck. How each ends where webhooks come, its file says, and tests/catalogue.
ENDS: dict[str, tuple[str | None, str | None]] = {
    "completes": ("COMPLETED", "poll"),
    "fails": ("FAILED", "poll"),
    "silent": ("COMPLETED", "poll"),
    "slow": ("COMPLETED", "poll"),
    "stuck": ("IN_PROGRESS", None),
    "out-of-paper": ("COMPLETED", "poll"),
    "loses-reply": ("COMPLETED", "poll"),
    "calls-twice": ("COMPLETED", "poll"),
    "calls-before-reply": ("COMPLETED", "poll"),
    "wrong-id": ("COMPLETED", "poll"),
    "own-id": ("COMPLETED", "poll"),
    "refuses": (None, "refusal"),
    "forgets": ("PENDING", None),
    "forgets-at-restart": ("COMPLETED", "poll"),
}


@pytest.mark.quick(3)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("scenario", ENDS)
async def test_what_becomes_of_a_job_whose_webhooks_are_lost(polls: PrintShop, scenario: str) -> None:
    status, decided_by = ENDS[scenario]
    identity = str(uuid4())
    reply = await polls.put(identity, scenario)
    assert reply.status == 201, reply.body
    if scenario == "refuses":
        assert (reply.json["phase"], reply.json["decided_by"]) == ("final", "refusal")
    if scenario == "out-of-paper":
        assert (await polls.stuck(identity))["phase"] == "active"
        await polls.put_paper_in(identity)
    if decided_by is None:
        job = await polls.stuck(identity)
        assert (job["phase"], job["status"], codes(job)) == ("active", status, {"print_stuck"})
    else:
        job = await polls.outcome(identity)
        assert (job["phase"], job["status"], job["decided_by"]) == ("final", status, decided_by)
        assert codes(job) == set()
    failed = ("PAPER_JAM", "The paper is jammed") if scenario == "fails" else (None, None)
    assert (job["error_code"], job["error_message"]) == failed
    if scenario == "own-id":
        (taken,) = [item for item in polls.simulator.ledger.of("printed") if item["slip"] in job["terminal_job_id"]]
        assert taken["print_job_id"] == job["terminal_job_id"]
    assert (await polls.put(identity, scenario)).status == 200  # a till may ask as often as it likes
    polls.created_once()


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_stuck_is_settled_by_a_person_and_printed_again_as_a_new_job(webhooks: PrintShop) -> None:
    shop = webhooks
    first, second = str(uuid4()), str(uuid4())
    await shop.put(first, "forgets")
    await shop.stuck(first)
    word = {"result": "FAILED", "operator": "ana", "note": "nothing came out"}
    resolved = await shop.daemon.call("POST", f"/print-jobs/{first}/resolve", word, socket=shop.daemon.admin_socket)
    assert (resolved.status, resolved.json["decided_by"]) == (200, "operator")
    await shop.put(second, reprint_of=first)
    assert (await shop.outcome(second))["status"] == "COMPLETED"
    assert (await shop.job(first))["status"] == "FAILED"
    shop.created_once()


@pytest.mark.quick(1)
@pytest.mark.parametrize("how", LOST)
async def test_every_webhook_lost_the_end_is_found_by_asking(home: Path, how: str) -> None:
    advertised, trusted, result = LOST[how]
    async with print_shop(home, POLLS, trusted=trusted) as shop:
        if advertised:
            assert await shop.daemon.stop() == 0
            shop.daemon.config = shop.daemon.config.replace("[webhooks]\n", advertised)
            await shop.daemon.start()
        for number in range(3):
            assert (await shop.put(f"job-{number}")).json["status"] == "PENDING"
        for number in range(3):
            job = await shop.outcome(f"job-{number}")
            assert (job["status"], job["decided_by"]) == ("COMPLETED", "poll")
            told = await shop.simulator.ledger.wait_for("print_webhook", print_job_id=f"job-{number}")
            assert told["result"] == result
        shop.created_once()


@pytest.mark.quick(1)
@pytest.mark.parametrize("scenario", ["out-of-paper", "loses-reply"])
async def test_killed_between_acceptance_and_webhook_the_end_is_found_by_asking(home: Path, scenario: str) -> None:
    """The webhook comes while the daemon is dead, and never again."""
    async with print_shop(home, ONLY_WEBHOOKS) as shop:
        await shop.put("before", "out-of-paper")  # what comes behind it waits
        held = "before" if scenario == "out-of-paper" else "job-1"
        if scenario == "loses-reply":
            assert (await shop.put("job-1", scenario)).json["phase"] == "in_doubt"
        await shop.daemon.kill()
        await shop.put_paper_in("before")
        assert (await shop.simulator.ledger.wait_for("print_webhook", print_job_id=held))["result"] == "unreachable"
        await shop.daemon.start()
        job = await shop.outcome(held)
        assert (job["status"], job["decided_by"], codes(job)) == ("COMPLETED", "poll", set())
        shop.created_once()


@pytest.mark.slow
async def test_a_terminal_that_restarts_prints_what_it_kept_and_the_rest_is_shown_as_stuck(home: Path) -> None:
    async with print_shop(home, POLLS) as shop:
        await shop.put("empty", "out-of-paper")
        await shop.put("kept")
        await shop.put("volatile", "forgets-at-restart")
        await shop.restart_terminal()
        await shop.put_paper_in("empty")
        for name in ("empty", "kept"):
            assert (await shop.outcome(name))["status"] == "COMPLETED"
        assert (await shop.stuck("volatile"))["status"] == "PENDING"
        assert [item["print_job_id"] for item in shop.simulator.prints()] == ["empty", "kept"]
        assert shop.simulator.ledger.of("print") == []  # nothing was sent to it again

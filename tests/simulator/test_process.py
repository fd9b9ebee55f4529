"""`posd simulate` as a process: start, use, stop, kill, start again."""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from click import unstyle
from click.testing import CliRunner

from posd.cli.simulate import simulate as command
from posd.cli.simulate.words import as_words
from tests.simulator.conftest import CHARGE, LOCAL, PATIENCE, Receiver, request
from tests.simulator.processes import simulate, until


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def trusting(ca_file: str) -> httpx2.AsyncClient:
    context = ssl.create_default_context(cafile=ca_file)
    return httpx2.AsyncClient(verify=context, trust_env=False, timeout=PATIENCE)


async def test_with_nothing_configured_it_makes_its_own_certificate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    async with simulate("--serial", "SN-9", "--no-mdns", tmp=tmp_path) as (process, ready):
        assert ready["ready"] is True
        assert ready["serial"] == "SN-9"
        async with trusting(ready["ca_file"]) as client:
            answer = await client.post(ready["base_url"] + CHARGE, json=request(metadata={"scenario": "decline"}))
            assert answer.json()["terminal"]["serialNumber"] == "SN-9"
            assert (await until(process, "final"))["status"] == "DECLINED"
            began = time.monotonic()  # the client's connection is idle and open
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
            assert time.monotonic() - began < 15
        assert process.stderr is not None
        assert await process.stderr.read() == b""
    assert left_in(tmp_path) == []


@pytest.mark.slow
async def test_it_stops_in_a_second_with_mdns_and_a_payment_in_progress(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.jsonl"
    options = ("--http", "--mdns-interface", "127.0.0.1", "--scenario", "wait-for-abort", "--wait-seconds", "0")
    options += ("--serial", f"SN-{uuid4()}")  # a serial is announced once in a network, and loopback is one
    async with simulate(*options, "--ledger", str(ledger), tmp=tmp_path) as (process, ready):
        assert ready["ca_file"] is None
        assert (await until(process, "mdns"))["result"] == "announced"
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.post(ready["base_url"] + CHARGE, json=request())).status_code == 200
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), PATIENCE) == 0
        assert time.monotonic() - began < 15
    assert [json.loads(line)["kind"] for line in ledger.read_text().splitlines()] == [
        "mdns",
        "start",
        "forgotten",
        "over",
    ]
    assert left_in(tmp_path) == [ledger]


async def test_killed_and_started_again_it_keeps_its_certificate_and_delivers_what_it_owes(
    tmp_path: Path, receiver: Receiver, pem: dict[str, Path]
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    options = ("--no-mdns", "--state", str(tmp_path / "state"), "--trust", str(pem["ca"]), "--ledger", str(ledger))
    receiver.answer = lambda _: 503
    async with simulate(*options, tmp=tmp_path) as (process, ready):
        ca = ssl.create_default_context(cafile=ready["ca_file"]).get_ca_certs(binary_form=True)
        pinned = (tmp_path / "state" / "tls" / "server.crt").read_bytes()
        async with trusting(ready["ca_file"]) as client:
            await client.post(ready["base_url"] + CHARGE, json=request(events_webhook_url=receiver.url))
        await until(process, "event", status="APPROVAL")
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert '"kind":"final"' in ledger.read_text()
    receiver.deliveries.clear()
    receiver.answer = lambda _: 200
    async with simulate(*options, tmp=tmp_path) as (_, ready):
        assert ssl.create_default_context(cafile=ready["ca_file"]).get_ca_certs(binary_form=True) == ca
        assert (tmp_path / "state" / "tls" / "server.crt").read_bytes() == pinned
        await receiver.wait_for(4)
    assert receiver.statuses[:4] == ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]


@pytest.mark.slow
def test_a_reader_that_reads_only_the_first_line_does_not_stop_it(tmp_path: Path) -> None:
    """Sixty refused starts make more than the 64 KiB of lines that the pipe holds."""
    options = ("--listen", "127.0.0.1:0", "--http", "--no-mdns")
    command = [sys.executable, "-m", "posd", "simulate", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(tmp_path)}) as process:
        try:
            assert process.stdout is not None
            base_url = json.loads(process.stdout.readline())["base_url"]
            with httpx2.Client(trust_env=False, timeout=PATIENCE) as client:
                for _ in range(60):
                    client.post(base_url + CHARGE, json={"client_transaction_id": "x" * 2000})
                assert len(client.get(base_url + "/simulator/ledger").json()) == 60
            process.terminate()
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()


@pytest.mark.slow
async def test_two_of_them_cannot_share_a_state_directory(tmp_path: Path) -> None:
    options = ("--http", "--no-mdns", "--state", str(tmp_path / "state"))
    async with simulate(*options, tmp=tmp_path):
        second = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "posd", "simulate", "--listen", "127.0.0.1:0", *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(second.communicate(), PATIENCE)
        finally:
            if second.returncode is None:
                second.kill()
                await second.wait()
        assert (second.returncode, out) == (2, b"")
        assert b"--state" in err
        assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--listen", "6869"], b"HOST:PORT"),
        (["--listen", "localhost:0"], b"IP address"),
        (["--http", "--cert", "x"], b"--http"),
        (["--cert", "x"], b"give both"),
        (["--speed", "0"], b"speed"),
        (["--scenario", "x"], b"--list"),
        (["--trust", "/nonexistent"], b"/nonexistent"),
        (["--tip", "x"], b"11.20"),
        (["--tip", "-1"], b"--tip"),
        (["--tip", "1e3"], b"11.20"),
    ],
)
def test_a_wrong_option_is_exit_2_and_says_why(options: list[str], named: bytes) -> None:
    before = signal.getsignal(signal.SIGTERM)
    result = CliRunner().invoke(command, ["--no-mdns", "--listen", "127.0.0.1:0", *options])
    signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 2
    assert named in result.stderr_bytes


async def test_the_tip_is_an_option(tmp_path: Path) -> None:
    async with (
        simulate("--http", "--no-mdns", "--tip", "1.10", tmp=tmp_path) as (process, ready),
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        body = request(amount={"subtotal_iva0": 5})
        assert (await client.post(ready["base_url"] + LOCAL["pre-auth"], json=body)).status_code == 200
        final = await until(process, "final")
        assert (final["operation"], final["amount"]) == ("pre-auth", 6.1)


def test_the_help_tells_of_everything_that_it_runs() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert all(name in text for name in LOCAL)
    assert "--tip AMOUNT" in text


REFERENCE = "5a1e0000-0000-4000-8000-000000000009"
START = {"kind": "start", "http_status": 200, "code": None, "scenario": "approve-chip-pin"}
CHARGE_START = START | {"operation": "charge", "access_mode": "local", "transaction_reference": None}
VOID_START = START | {"operation": "void", "access_mode": "cloud", "transaction_reference": REFERENCE}
FINAL = {"kind": "final", "operation": "re-auth", "status": "APPROVAL", "charged": True, "amount": Decimal("12.50")}
ATTEMPT = {"kind": "attempt", "status": "APPROVAL", "attempt": 1, "result": 200, "retry_in_seconds": None}
#: An entry of the ledger, and the end of the line that a person reads.
TOLD: list[tuple[dict[str, Any], str]] = [
    (CHARGE_START, "7f3c0000  charge answered 200, scenario approve-chip-pin"),
    (VOID_START, f"void of {REFERENCE} over the cloud path answered 200, scenario approve-chip-pin"),
    (
        VOID_START | {"http_status": 422, "code": "ALREADY_VOIDED", "scenario": None, "access_mode": "local"},
        f"void of {REFERENCE} answered 422, ALREADY_VOIDED",
    ),
    (
        FINAL | {"transaction_reference": REFERENCE, "ticket_number": "000042"},
        f"final: re-auth approved, 12.50, reference {REFERENCE}, ticket 000042",
    ),
    *(
        (
            FINAL | {"transaction_reference": REFERENCE, "ticket_number": "000042", "amount": amount},
            f"final: re-auth approved, {shown}, reference {REFERENCE}, ticket 000042",
        )
        for amount, shown in (
            (7, "7.00"),
            (Decimal("6.5"), "6.50"),
            (Decimal("6.5000"), "6.50"),
            (Decimal("0.125"), "0.125"),
        )
    ),
    (FINAL | {"status": "DECLINED", "charged": False}, "final: re-auth DECLINED, no money moved"),
    ({"kind": "search", "http_status": 200, "found": 1}, "7f3c0000  search answered 200, found 1"),
    (ATTEMPT | {"again": False}, "  APPROVAL, delivery 1: 200"),
    (ATTEMPT | {"again": True}, "  APPROVAL once more, delivery 1: 200"),
]


@pytest.mark.parametrize(("entry", "end"), TOLD)
def test_what_a_person_is_told(entry: dict[str, Any], end: str) -> None:
    known = {"at": "2026-11-01T10:00:00.000Z", "client_transaction_id": "7f3c0000-0000-4000-8000-000000000001"}
    told = as_words(known | entry)
    assert told is not None
    assert unstyle(told).endswith(end)

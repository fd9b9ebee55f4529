"""`posd simulate` as a process: start, use, stop, kill, restart, and several terminals in one process."""

import signal
import ssl
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from click import unstyle

from posd.cli.simulator_screen import as_words
from tests.rig.ports import reserve
from tests.simulator.conftest import CHARGE, PATIENCE, Receiver, request
from tests.simulator.processes import simulate


def left_in(directory: Path) -> list[Path]:
    return list(directory.iterdir())


def trusting(ca_file: str) -> httpx2.AsyncClient:
    context = ssl.create_default_context(cafile=ca_file)
    return httpx2.AsyncClient(verify=context, trust_env=False, timeout=PATIENCE)


async def test_without_configuration_the_simulator_makes_its_own_certificate(tmp_path: Path) -> None:
    async with simulate("--serial", "SN-9", tmp=tmp_path) as (process, ready):
        assert ready["ready"] is True
        assert ready["serial"] == "SN-9"
        async with trusting(ready["ca_file"]) as client:
            answer = await client.post(ready["base_url"] + CHARGE, json=request(metadata={"scenario": "decline"}))
            assert answer.json()["terminal"]["serialNumber"] == "SN-9"
            assert (await process.record(kind="final"))["status"] == "DECLINED"
            began = time.monotonic()  # the client's connection is idle and still open
            assert await process.stop() == 0
            assert time.monotonic() - began < 15
        assert process.text == ""
    assert left_in(tmp_path) == []


async def test_after_a_kill_the_simulator_keeps_its_certificate_and_pending_events(
    tmp_path: Path, receiver: Receiver, pem: dict[str, Path]
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    options = ("--state", str(tmp_path / "state"), "--trust", str(pem["ca"]), "--ledger", str(ledger))
    receiver.answer = lambda _: 503
    async with simulate(*options, tmp=tmp_path) as (process, ready):
        ca = ssl.create_default_context(cafile=ready["ca_file"]).get_ca_certs(binary_form=True)
        pinned = (tmp_path / "state" / "tls" / "server.crt").read_bytes()
        async with trusting(ready["ca_file"]) as client:
            await client.post(ready["base_url"] + CHARGE, json=request(events_webhook_url=receiver.url))
        await process.record(kind="event", status="APPROVAL")
        await process.stop(signal.SIGKILL)
    assert '"kind":"final"' in ledger.read_text()
    receiver.deliveries.clear()
    receiver.answer = lambda _: 200
    async with simulate(*options, tmp=tmp_path) as (_, ready):
        assert ssl.create_default_context(cafile=ready["ca_file"]).get_ca_certs(binary_form=True) == ca
        assert (tmp_path / "state" / "tls" / "server.crt").read_bytes() == pinned
        await receiver.wait_for(4)
    assert receiver.statuses[:4] == ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]


CREATED = {"kind": "print", "access_mode": "local", "http_status": 202, "code": None, "scenario": "completes"}


def test_control_characters_of_an_id_are_escaped_on_the_screen() -> None:
    told = as_words({"at": "2026-11-01T10:00:00.000Z", "print_job_id": "\x1b[2J\nx"} | CREATED)
    assert told is not None
    assert r" print \u001b[2J\nx answered" in unstyle(told)


async def test_each_of_several_terminals_has_its_own_directory_and_ledger(tmp_path: Path) -> None:
    port, ledgers = reserve(), tmp_path / "ledgers"
    serials = ("SN-1", "../SN/2")
    names = [name for serial in serials for name in ("--serial", serial)]
    options = ("--http", "--listen", f"127.0.0.1:{port}", "--state", str(tmp_path / "state"))
    async with (
        simulate(*options, *names, "--ledger", str(ledgers), tmp=tmp_path) as (process, first),
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        ready = [first, await process.line(lambda line: "ready" in line, 1)]
        assert [line["serial"] for line in ready] == list(serials)
        assert urlsplit(first["base_url"]).port == port
        for line in ready:
            charge = f"{line['base_url']}/terminal/v1/async/charge"
            assert (await client.post(charge, json={"client_transaction_id": "x"})).status_code == 422
            await process.record(kind="start", serial=line["serial"])
    files = [(ledgers / name).read_text() for name in ("SN-1.jsonl", "%2E%2E%2FSN%2F2.jsonl")]
    assert [text.count('"kind":"start"') for text in files] == [1, 1]
    assert {path.name for path in (tmp_path / "state").iterdir()} == {"SN-1", "%2E%2E%2FSN%2F2"}

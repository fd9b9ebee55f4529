"""Power, network, address and certificate of a running terminal, as a caller and a receiver see them."""

import asyncio
import hashlib
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
import trustme

from posd.simulator import Settings, Simulator, TerminalGroup
from posd.simulator.payment import ManualControl
from posd.simulator.scenario import Certificate
from tests.simulator.conftest import SLOW_SPEED, Receiver, Till, request
from tests.simulator.printers import PrintTill
from tests.support.ports import reserve

APPROVED = ["TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL"]


async def refused(till: Till) -> bool:
    try:
        await till.get("/simulator/ledger")
    except httpx2.ConnectError:
        return True
    return False


def kinds(terminal: Simulator, *wanted: str) -> list[str]:
    return [entry["kind"] for entry in terminal.ledger if entry["kind"] in wanted]


async def test_an_unplugged_terminal_refuses_calls_and_tells_all_in_order_once_it_is_back(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, receiver: Receiver
) -> None:
    async with TerminalGroup([settings(virtual=True, scenario="by-hand")]) as shop:
        (terminal,) = shop.terminals.values()
        assert shop.virtual_clock is not None
        till = Till(terminal, client)
        before = terminal.base_url
        await till.charge(events_webhook_url=receiver.url)
        await shop.virtual_clock.advance(10)
        await terminal.unplug()
        await terminal.unplug()  # it is so already
        assert await refused(till)
        assert not terminal.plugged
        assert terminal.terminal.hand(ManualControl.APPROVE)
        await shop.virtual_clock.advance(600)
        assert [entry["charged"] for entry in terminal.ledger.of("final")] == [True]
        assert terminal.waiting_events == 3
        assert receiver.statuses == APPROVED[:1]
        await terminal.plug()
        await receiver.wait_for(4)
        assert receiver.statuses == APPROVED
        assert terminal.base_url == before
        assert not await refused(till)
        await shop.virtual_clock.advance(0)
        attempts = [entry["attempt"] for entry in terminal.ledger.of("attempt")]
        assert attempts == [1, 1, 1, 1]  # none was made, or counted, meanwhile
        assert kinds(terminal, "unplugged", "plugged") == ["unplugged", "plugged"]


async def test_a_terminal_that_loses_power_forgets_the_payment_and_nothing_else(
    settings: Callable[..., Settings], client: httpx2.AsyncClient, receiver: Receiver, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.jsonl"
    async with Simulator(settings(speed=SLOW_SPEED, scenario="by-hand", ledger_file=ledger)) as terminal:
        till, printer = Till(terminal, client), PrintTill(terminal, client)
        receiver.answer = lambda _: 503
        owed, forgotten = request()["client_transaction_id"], request()["client_transaction_id"]
        await till.charge(client_transaction_id=owed, events_webhook_url=receiver.url)
        await receiver.wait_for(1)
        assert terminal.terminal.hand(ManualControl.DECLINE)
        await terminal.ledger.wait_for("final", client_transaction_id=owed)
        await printer.create("before")
        await printer.ended("before")
        await till.charge(client_transaction_id=forgotten)
        await terminal.power_off()
        assert await refused(till)
        assert not terminal.powered
        assert terminal.terminal.running is None
        assert terminal.waiting_events == 4
        assert [entry["client_transaction_id"] for entry in terminal.ledger.of("forgotten")] == [forgotten]
        receiver.answer = lambda _: 200
        receiver.deliveries.clear()
        await terminal.power_on()
        await receiver.wait_for(4)
        assert receiver.statuses == [*APPROVED[:3], "DECLINED"]
        assert json.loads((await till.search(owed)).content)[0]["status"] == "DECLINED"
        assert json.loads((await till.search(forgotten)).content) == []
        assert (await till.charge()).status_code == 200
        await printer.create("after")
        await printer.ended("after")
        assert await printer.prints() == ["before", "after"]
        assert kinds(terminal, "power_off", "power_on") == ["power_off", "power_on"]
    printed = [line for line in map(json.loads, ledger.read_text().splitlines()) if line["kind"] == "printed"]
    assert [line["print_job_id"] for line in printed] == ["before", "after"]


async def test_a_moved_terminal_is_called_elsewhere(
    settings: Callable[..., Settings], client: httpx2.AsyncClient
) -> None:
    ports = (reserve(), reserve())
    async with Simulator(settings(port=reserve(), move_ports=ports)) as terminal:
        till = Till(terminal, client)
        seen = [terminal.base_url]
        for _ in range(3):
            await terminal.move()
            assert not await refused(till)
            with pytest.raises(httpx2.ConnectError):
                await client.get(f"{seen[-1]}/simulator/ledger")
            seen.append(terminal.base_url)
        assert [urlsplit(url).port for url in seen[1:]] == [*ports, ports[0]]
        assert [entry["base_url"] for entry in terminal.ledger.of("moved")] == seen[1:]


async def shown(terminal: Simulator, context: ssl.SSLContext) -> str:
    """Make a handshake; return the fingerprint, or why it failed."""
    port = urlsplit(terminal.base_url).port
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return hashlib.sha256(certificate).hexdigest()


#: Certificate -> what a client says that trusts the CA of the terminal; None where it is content.
VERDICTS = {
    Certificate.OWN: None,
    Certificate.CHANGED: None,
    Certificate.EXPIRED: "certificate has expired",
    Certificate.SELF_SIGNED: "self-signed certificate",
    Certificate.WRONG_NAME: "IP address mismatch, certificate is not valid for '127.0.0.1'.",
}


async def test_certificates_as_a_client_sees_them(
    settings: Callable[..., Settings], client_tls: ssl.SSLContext, ca: trustme.CA, tmp_path: Path
) -> None:
    ca_files = {"ca_certificate": tmp_path / "ca.pem", "ca_private_key": tmp_path / "ca.key"}
    ca.cert_pem.write_to_path(str(ca_files["ca_certificate"]))
    ca.private_key_pem.write_to_path(str(ca_files["ca_private_key"]))
    async with Simulator(settings(**ca_files)) as terminal:
        own = await shown(terminal, client_tls)
        for which, verdict in VERDICTS.items():
            await terminal.show_certificate(which)
            assert terminal.certificate is which
            seen = await shown(terminal, client_tls)
            assert seen == verdict if verdict else len(seen) == 64
            assert (seen == own) == (which is Certificate.OWN)
        await terminal.show_certificate(Certificate.CHANGED)
        again = await shown(terminal, client_tls)
        await terminal.show_certificate(Certificate.OWN)
        assert await shown(terminal, client_tls) == own
        await terminal.show_certificate(Certificate.CHANGED)
        assert await shown(terminal, client_tls) == again != own  # a client that pins it anew finds it again
        told = [entry["which"] for entry in terminal.ledger.of("certificate")]
        assert told == [*list(VERDICTS)[1:], "changed", "own", "changed"]

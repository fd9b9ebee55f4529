"""`posd doctor` on the network: the callback address, devices that refuse the certificate, terminals found by mDNS."""

import asyncio
import contextlib
import shutil
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from posd.simulator import Settings, Simulator
from posd.tls import issue
from posd.tls.files import files_in
from tests.cli.doctor.healthy import SERIAL, STOPPED, Found, SetUp, Terminal, failures, running
from tests.support.daemon import Daemon

#: Maximum duration of a wait, in seconds.
PATIENCE_SECONDS = 60.0


def of(found: list[Found], check: str) -> list[Found]:
    return [one for one in found if one["check"] == check]


async def test_a_callback_address_without_posd_is_a_failure(setup: SetUp) -> None:
    issue.init(setup.state / "tls", names=[], addresses=["127.0.0.1", "127.0.0.2"])
    setup.change("[database]", 'advertise_host = "127.0.0.2"\n[database]')
    async with running(setup):
        (silent,) = failures(setup.findings(1))
        with Terminal(setup.terminal.directory).on("127.0.0.2", setup.port):
            (strange,) = failures(setup.findings(1))
    for failed in (silent, strange):
        assert (failed["check"], failed["subject"]) == ("callback", f"127.0.0.2:{setup.port}")
    assert f"{SERIAL} will call this address; posd's listener there cannot be reached" in silent["meaning"]
    assert "another server answers there: it shows a certificate of " in strange["meaning"]
    assert setup.terminal.fingerprint in strange["meaning"]


async def test_a_mismatched_pair_is_reported_once(setup: SetUp) -> None:
    """posd keeps its earlier certificate. The earlier certificate is a consequence, not a separate failure."""
    async with running(setup):
        shutil.copy(setup.terminal.directory / "server.crt", setup.tls.certificate)
        found = setup.findings(1)
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("certificate", str(setup.tls.private_key))
    (told,) = of(found, "callback")
    assert told["status"] == "warning"
    assert "posd still shows another certificate" in told["meaning"]


async def test_a_listener_on_another_port_than_configured_is_reported(setup: SetUp) -> None:
    async with running(setup):
        setup.change(f"127.0.0.1:{setup.port}", "127.0.0.1:1")
        found = setup.findings(1)
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("port", "127.0.0.1:1")
    assert f"posd listens on port {setup.port}, not on" in failed["meaning"]
    assert of(found, "callback")[0]["subject"] == f"127.0.0.1:{setup.port}", (
        "the callback URLs have the configured port"
    )


def refuse(port: int, source: str) -> None:
    """Connect as a device that does not trust the CA."""
    distrusting = ssl.create_default_context(cadata=None)
    with (
        contextlib.suppress(ssl.SSLError),
        socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS, (source, 0)) as raw,
        distrusting.wrap_socket(raw, server_hostname="127.0.0.1"),
    ):
        raise AssertionError("the system trusts the CA of a test")


async def refused_by(daemon: Daemon, port: int, least: int) -> list[Found]:
    """Refuse the certificate from two addresses. Return posd's report after it has counted this many refusals."""
    for source in ("127.0.0.1", "127.0.0.3"):
        await asyncio.to_thread(refuse, port, source)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            said = (await daemon.call("GET", "/health")).json["checks"]["certificate"]
            if len(said["refused_by"]) >= least:
                return list(said["refused_by"])
            await asyncio.sleep(0.02)  # posd sends no message for a counted refusal, so the test polls


async def test_devices_that_refuse_the_certificate_are_named_with_what_to_do(setup: SetUp) -> None:
    async with running(setup) as daemon:
        await refused_by(daemon, setup.port, 2)
        found = setup.findings(1)
    told = {one["subject"]: one for one in of(found, "callback")}
    assert [one["subject"] for one in failures(found)] == ["127.0.0.1"]
    assert f"terminal {SERIAL} has refused the certificate" in told["127.0.0.1"]["meaning"]
    assert told["127.0.0.3"]["status"] == "warning"
    assert "a device that is no terminal of ours" in told["127.0.0.3"]["meaning"]
    assert all("ca.crt" in told[address]["todo"] for address in ("127.0.0.1", "127.0.0.3"))


async def test_a_check_by_this_machine_itself_is_not_a_refusal_of_a_terminal(setup: SetUp) -> None:
    made = issue.init(setup.home / "own", names=["localhost"], addresses=["10.9.9.9"])
    setup.change("[database]", f'certificate = "{made.certificate}"\nprivate_key = "{made.private_key}"\n[database]')
    async with running(setup) as daemon:
        (unnamed,) = failures(setup.findings(1))  # the terminal of the set-up uses an address of this machine
        assert "the certificate does not name it: every callback is refused" in unnamed["meaning"]
        assert (await daemon.call("GET", "/health")).json["checks"]["certificate"]["refused_by"] == []
    setup.change(setup.terminal.base_url, "https://127.0.0.9:1")
    async with running(setup) as daemon:
        assert [item["address"] for item in await refused_by(daemon, setup.port, 1)] == ["127.0.0.3"]
        assert "refuses it" not in (await daemon.call("GET", "/health")).json["checks"]["certificate"]["detail"]


@pytest.fixture
async def announced(setup: SetUp) -> AsyncIterator[str]:
    """Run a simulated terminal that announces itself on loopback. Yield the serial, which is unique on this machine."""
    serial = f"SN-{setup.port}"
    made = files_in(setup.terminal.directory)
    state = setup.home / "simulated"
    state.mkdir()
    settings = Settings(
        state=state,
        serial=serial,
        mdns_interfaces=("127.0.0.1",),
        certificate=made.certificate,
        private_key=made.private_key,
    )
    async with Simulator(settings):
        yield serial


@pytest.mark.slow
async def test_terminals_are_found_by_mdns_while_posd_does_not_run(setup: SetUp, announced: str) -> None:
    setup.change("enabled = false", 'interfaces = ["127.0.0.1"]')
    setup.config += f'[[terminals]]\nserial = "{announced}"\nca_file = "{setup.terminal.ca}"\n'
    setup.file.write_text(setup.config)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:  # multicast packets are sometimes lost, and an announcement takes over a second
            done = await asyncio.to_thread(setup.doctor, "--json")
            if done.returncode == STOPPED and not failures(setup.read(done)):
                break
    found = setup.read(done)
    assert [one["status"] for one in of(found, "terminal")] == ["ok", "ok"]
    (told,) = (one for one in of(found, "terminal") if one["subject"] == announced)
    assert "(found by mDNS): it answers over TLS" in told["meaning"]
    (heard,) = of(found, "mdns")
    assert heard["status"] == "ok"
    assert announced in heard["meaning"]


@pytest.mark.slow
def test_a_terminal_that_is_not_announced_is_reported(setup: SetUp) -> None:
    setup.change("enabled = false", 'interfaces = ["127.0.0.1"]')
    # other tests on this machine announce that serial
    setup.change(f'serial = "{SERIAL}"', f'serial = "SN-{setup.port}"')
    setup.config += '[[terminals]]\nserial = "SN-GONE"\n'
    found = setup.findings()
    (failed,) = failures(found)
    assert (failed["check"], failed["subject"]) == ("terminal", "SN-GONE")
    assert "it does not announce itself over mDNS" in failed["meaning"]
    (heard,) = of(found, "mdns")
    assert heard["status"] == "warning"
    assert "SN-GONE" in heard["meaning"]
